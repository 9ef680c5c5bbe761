#include "train/ranks/rank_watch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace edgewise::train {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kGrace{10};  // for the main thread to take the verdict

std::string key_of(size_t rank) {
  return "life/" + std::to_string(rank);
}

double since(Clock::time_point then) {
  return Seconds(Clock::now() - then).count();
}

std::string seconds(double count) {
  return std::to_string(static_cast<int64_t>(count + 0.5)) + " s";
}

}  // namespace

struct RankWatch::State : std::enable_shared_from_this<RankWatch::State> {
  State(c10::intrusive_ptr<c10d::Store> store_, RankWatchOptions options_)
      : store(std::move(store_)),
        options(std::move(options_)),
        silence(silence_of(options.timeout)),
        interval(std::clamp(options.timeout / 20, 0.1, 1.0)),
        others(options.names.size()) {}

  // What a rank writes of itself.
  struct Life {
    int64_t tick = 0;      // one more every time
    int64_t progress = 0;  // changes when the main thread gets on
    int64_t place = 0;     // waits that it has come to
    bool waits = false;
    std::optional<std::string> ended;  // why; empty when it is done

    std::string text() const {
      std::ostringstream out;
      if (ended) return "ended " + *ended;
      out << "lives " << tick << ' ' << progress << ' ' << place << ' ' << waits;
      return out.str();
    }
    static Life read(const std::string& text) {
      Life result;
      std::istringstream in(text);
      std::string word;
      in >> word;
      if (word == "ended") {
        result.ended = text.size() > 6 ? text.substr(6) : "";
      } else {
        in >> result.tick >> result.progress >> result.place >> result.waits;
      }
      return result;
    }
  };

  // What this rank has seen of another.
  struct Seen {
    Life life;
    Clock::time_point heard = {}, got_on = {};  // when it last wrote, and when it had last got on
  };

  void write_and_read();
  void judge();
  std::optional<std::string> found() const;  // with `mutex` held
  std::optional<std::string> at_fault(size_t rank) const;
  // Whether the writer is not stuck in the store.
  bool answers() const { return !store_error.empty() || since(store_answered) < 2 * interval.count() + 1; }

  c10::intrusive_ptr<c10d::Store> store;
  const RankWatchOptions options;
  const Seconds silence, interval;

  std::atomic<int64_t> progress = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false, explaining = false;
  std::optional<std::string> waiting;  // for what
  int64_t waits = 0;                   // that this rank has come to
  Clock::time_point waiting_since = {}, watching_since = {}, store_answered = Clock::now();
  bool watching = false;  // others are read
  std::string store_error;
  std::optional<std::string> verdict;
  std::vector<Seen> others;
  std::thread writer, judging;
};

// One thread, which may hang in the store.
void RankWatch::State::write_and_read() {
  std::unique_lock lock(mutex);
  for (int64_t tick = 0; !stopping; ++tick) {
    Life mine;
    mine.tick = tick;
    mine.progress = progress.load();
    mine.place = waits;
    mine.waits = waiting.has_value();
    const bool reads = explaining || (waiting && since(waiting_since) > 2 * interval.count());
    if (reads && !watching) watching_since = Clock::now();
    watching = reads;
    lock.unlock();
    std::vector<Life> read;
    std::string error;
    try {
      store->set(key_of(static_cast<size_t>(options.rank)), mine.text());
      if (reads) {
        std::vector<std::string> keys;
        for (size_t rank = 0; rank < others.size(); ++rank) keys.push_back(key_of(rank));
        for (const std::vector<uint8_t>& value : store->multiGet(keys))
          read.push_back(Life::read({value.begin(), value.end()}));
      }
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    lock.lock();
    const auto now = Clock::now();
    if (!error.empty()) {
      store_error = error;
      changed.notify_all();
      return;
    }
    store_answered = now;
    for (size_t rank = 0; rank < read.size(); ++rank) {
      Seen& seen = others[rank];
      if (read[rank].tick != seen.life.tick || read[rank].ended != seen.life.ended) seen.heard = now;
      if (read[rank].progress != seen.life.progress || read[rank].place != seen.life.place) seen.got_on = now;
      seen.life = read[rank];
    }
    changed.notify_all();
    changed.wait_for(lock, interval, [this] { return stopping || (explaining && !watching); });
  }
}

std::optional<std::string> RankWatch::State::at_fault(size_t rank) const {
  const Seen& seen = others[rank];
  const std::string& name = options.names[rank];
  if (seen.life.ended && !seen.life.ended->empty()) return name + " ended: " + *seen.life.ended;
  if (seen.life.ended) {  // which is no harm to who is about to notice the same
    if (since(seen.heard) < silence.count()) return std::nullopt;
    return name + " has finished, and this rank has not come as far";
  }
  const double silent = since(std::max(seen.heard, watching_since));
  const double patience = explaining ? std::min(silence.count(), 3.0) : silence.count();
  if (silent > patience)
    return name + " has been lost: no sign of it for " + seconds(silent) +
           ". It was killed or stopped, or its network is down";
  const bool comes_here = seen.life.waits && seen.life.place >= waits;
  if (!waiting || comes_here || since(waiting_since) < options.timeout) return std::nullopt;
  if (since(std::max(seen.got_on, watching_since)) < options.timeout - 3 * interval.count())
    return std::nullopt;
  return name + " hangs: it lives, and has not got on for " + seconds(since(waiting_since)) +
         ", which EDGEWISE_RANK_TIMEOUT allows at most, while this rank waits for " + *waiting;
}

std::optional<std::string> RankWatch::State::found() const {
  const std::string store_lost = "the store is lost, which " + options.store_place +
                                 " holds: it has ended, or the network to it is down";
  if (!store_error.empty()) return store_lost;
  if (since(store_answered) > silence.count() + interval.count()) return store_lost;
  if (!watching) return std::nullopt;
  for (size_t rank = 0; rank < others.size(); ++rank)
    if (static_cast<int64_t>(rank) != options.rank)
      if (auto fault = at_fault(rank)) return fault;
  const bool all_wait = std::ranges::all_of(others, [](const Seen& seen) { return seen.life.waits; });
  if (waiting && all_wait && since(waiting_since) > 2 * options.timeout)
    return "all ranks wait for one another at " + *waiting + " since " + seconds(since(waiting_since)) +
           ": the network between them lets nothing through";
  return std::nullopt;
}

// The other thread, which never touches the network.
void RankWatch::State::judge() {
  std::unique_lock lock(mutex);
  Clock::time_point judged = {};
  while (!stopping) {
    if (!verdict && (waiting || explaining)) {
      verdict = found();
      if (verdict) judged = Clock::now(), changed.notify_all();
    }
    if (verdict && waiting && since(judged) > kGrace.count()) {
      std::fprintf(stderr, "edgewise: rank %lld ends: %s\n", static_cast<long long>(options.rank),
                   verdict->c_str());
      std::fflush(stderr);
      std::_Exit(1);
    }
    changed.wait_for(lock, interval / 2, [this] { return stopping; });
  }
}

Seconds RankWatch::silence_of(double timeout) {
  return Seconds(std::clamp(timeout / 2, 1.0, 15.0));
}

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, RankWatchOptions options)
    : state_(std::make_shared<State>(std::move(store), std::move(options))) {
  // Both keep the state: one that hangs in the store is left behind.
  state_->writer = std::thread([state = state_] { state->write_and_read(); });
  state_->judging = std::thread([state = state_] { state->judge(); });
}

RankWatch::~RankWatch() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  const bool answers = state_->answers();
  state_->changed.notify_all();
  lock.unlock();
  if (state_->judging.joinable()) state_->judging.join();
  if (!state_->writer.joinable()) return;
  if (answers)
    state_->writer.join();
  else
    state_->writer.detach();
}

void RankWatch::note() {
  state_->progress.fetch_add(1, std::memory_order_relaxed);
}

RankWatch::Waiting::Waiting(RankWatch& watch, std::string what) : watch_(watch) {
  const std::lock_guard lock(watch_.state_->mutex);
  watch_.state_->waiting = std::move(what);
  watch_.state_->waiting_since = Clock::now();
  ++watch_.state_->waits;
}

RankWatch::Waiting::~Waiting() {
  watch_.note();
  const std::lock_guard lock(watch_.state_->mutex);
  watch_.state_->waiting.reset();
  if (!watch_.state_->explaining) watch_.state_->watching = false;
}

std::optional<std::string> RankWatch::verdict() const {
  const std::lock_guard lock(state_->mutex);
  return state_->verdict;
}

std::string RankWatch::explain(const std::string& error) {
  std::unique_lock lock(state_->mutex);
  state_->explaining = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, Seconds(3 + std::min(state_->silence.count(), 3.0)) + 2 * state_->interval,
                           [this] { return state_->verdict.has_value(); });
  state_->explaining = false;
  return state_->verdict.value_or("the connection to another rank broke, though all of them answer: " +
                                  error);
}

bool RankWatch::end(const std::string& why) {
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    // What hangs cannot be told.
    if (!state_->answers() || !state_->writer.joinable()) return false;
  }
  state_->judging.join();
  state_->writer.join();
  if (!state_->store_error.empty()) return false;
  try {
    State::Life last;
    last.ended = why;
    state_->store->set(key_of(static_cast<size_t>(state_->options.rank)), last.text());
  } catch (const std::exception&) {
    return false;  // the others will hear nothing more of this one
  }
  return true;
}

}  // namespace edgewise::train
