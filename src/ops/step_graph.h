// A recorded sequence of work on a GPU, started as a whole: a CUDA graph. Small models are bound by starting
// kernels one by one, which takes the host longer than the GPU needs for them.
//
// Recording runs nothing. What is recorded reads and writes the same memory in every replay; numbers from the
// host come through StepInputs, torch's own random numbers follow the generator as it stands at the replay.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace edgewise::ops {

// Memory that no recorded kernel writes to, [bytes]. While a stream is recorded, torch's memory is that of
// the graph: its tensors share places, one after the other, and replayed they would overwrite what was put
// there before.
at::Tensor step_memory(int64_t bytes, at::Device device);

// Memory and a stream that graphs share. Replays of graphs that share memory must not overlap, and what one
// leaves behind holds until the next starts.
class StepGraphs {
 public:
  explicit StepGraphs(c10::Device device);
  ~StepGraphs();
  void wait() const;  // until the current stream has done all replays

 private:
  friend class StepGraph;
  struct State;
  std::shared_ptr<State> state_;
};

class StepGraph {
 public:
  // Throws what `work` throws, or torch's error when the host must wait or copy from ordinary memory in it.
  // Streams and torch's generator can then be used as before, but graphs that were recorded earlier may be
  // bound to a generator that waits for an end: record them anew.
  StepGraph(const StepGraphs& graphs, const std::function<void()>& work);
  ~StepGraph();
  void replay();  // on the current stream

 private:
  struct Capture;
  std::unique_ptr<Capture> capture_;
};

}  // namespace edgewise::ops
