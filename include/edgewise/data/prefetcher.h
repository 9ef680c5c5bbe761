// Prefetcher: a background thread prepares the next batches while the current one is in use.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include <edgewise/data/dataset.h>

namespace edgewise::data {

// Calls make(first), make(first + 1), ..., make(last - 1) on one thread of its own, at most `ahead` batches
// before they are asked for. An exception of make reaches the consumer in its place in the order: earlier
// batches come first.
class Prefetcher {
 public:
  using Make = std::function<Batch(int64_t step)>;

  Prefetcher(Make make, int64_t first, int64_t last, int64_t ahead = 2);
  ~Prefetcher();  // finishes the call of make that is under way, then stops
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch in order; waits for it. Throws what make threw, and an error after the last batch.
  Batch next();

 private:
  void work();

  Make make_;
  int64_t next_made_;
  int64_t last_;
  size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  bool done_ = false;
  std::thread thread_;  // last: starts when everything above is ready
};

}  // namespace edgewise::data
