// Times of calls on a GPU, one by one or replayed as CUDA graphs.
#pragma once

#include "bench/bench.h"

namespace edgewise::app {

struct DeviceTiming {
  int repeats = 20;    // calls a round
  bool graph = false;  // the call is recorded once and replayed, with random streams of its own each time
};

// Milliseconds a call: the median over five rounds of a queue of calls, so that the device waits for the host
// only where the host takes longer to start a call than the device to run it.
double device_ms(const DeviceTiming& timing, const Body& body);

}  // namespace edgewise::app
