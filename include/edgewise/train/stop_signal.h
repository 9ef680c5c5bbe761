// SIGINT and SIGTERM as a request: the loop finishes its step, saves and returns. A second signal ends the
// process at once.
#pragma once

namespace edgewise::train {

// While one exists, the two signals set a flag; the destructor restores what was there before. At most one at
// a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static bool requested();
};

}  // namespace edgewise::train
