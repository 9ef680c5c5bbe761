// RankWatch: knows which rank is at fault when the others wait in vain.
//
// Every rank writes into the store, about once a second, that it lives, how far it has come and what it waits
// for. While the main thread waits for the others a second thread judges what they have written:
//
//   a rank says that it ends, and why                                            -> at once
//   nothing new of it for `silence` seconds: killed, stopped, or its network down -> lost
//   it lives, has not got on for `timeout` seconds and is not where this one is  -> hangs
//   the store itself does not answer for `silence` seconds                       -> lost
//
// The verdict is a sentence that names the rank. The main thread takes it where it waits; where it cannot,
// inside a call of a GPU that never returns, the process is ended after a few seconds more. Nothing on disk
// is lost by that: checkpoints are written aside and renamed.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace edgewise::train {

struct RankWatchOptions {
  int64_t rank = 0;
  std::vector<std::string> names;  // of all ranks: "rank 1 (process 77 on host)"
  double timeout = 300;            // seconds
  std::string store_place;         // who holds the store, and where
};

class RankWatch {
 public:
  // `store`: a connection of the watch's own.
  RankWatch(c10::intrusive_ptr<c10d::Store> store, RankWatchOptions options);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // This rank gets on, though it waits for nobody. Cheap.
  void note();

  // While it lives this rank waits for the others, at something that all of them come to in the same order.
  class Waiting {
   public:
    Waiting(RankWatch& watch, std::string what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    RankWatch& watch_;
  };

  // Who is to blame for the wait, once that is known.
  std::optional<std::string> verdict() const;
  // Communication has failed with this error: waits until it is known who is to blame, a few seconds at most,
  // and says it; else that nobody is known to be.
  std::string explain(const std::string& error);
  // Tells the others that this rank ends, and why; empty: it is done. Then nothing more is written. False
  // where the store does not answer.
  bool end(const std::string& why);

  // Silence after which a rank is lost.
  static std::chrono::duration<double> silence_of(double timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace edgewise::train
