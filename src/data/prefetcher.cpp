#include <edgewise/data/prefetcher.h>

#include <utility>

#include <c10/util/Exception.h>

namespace edgewise::data {

Prefetcher::Prefetcher(Make make, int64_t first, int64_t last, int64_t ahead)
    : make_(std::move(make)), next_made_(first), last_(last), ahead_(static_cast<size_t>(ahead)) {
  TORCH_CHECK_VALUE(make_ != nullptr, "Prefetcher: expected a function that makes a batch; got none");
  TORCH_CHECK_VALUE(ahead >= 1, "Prefetcher: expected ahead to be at least 1; got ", ahead);
  thread_ = std::thread([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  try {
    while (next_made_ < last_) {
      changed_.wait(lock, [this] { return stopping_ || ready_.size() < ahead_; });
      if (stopping_) break;
      const int64_t step = next_made_++;
      lock.unlock();
      Batch batch = make_(step);
      lock.lock();
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    failure_ = std::current_exception();
  }
  done_ = true;
  changed_.notify_all();
}

Batch Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || done_; });
  if (ready_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    TORCH_CHECK_INDEX(false, "Prefetcher: expected at most as many calls of next() as batches; step ", last_,
                      " is the end");
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

}  // namespace edgewise::data
