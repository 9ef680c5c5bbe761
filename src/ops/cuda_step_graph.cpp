#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/step_graph.h"

namespace edgewise::ops {

struct StepGraphs::State {
  explicit State(c10::Device given)
      : device(given.index() >= 0 ? given.index() : c10::cuda::current_device()),
        stream(at::cuda::getStreamFromPool(/*isHighPriority=*/false, device)),
        pool(at::cuda::graph_pool_handle()) {}

  c10::DeviceIndex device;
  at::cuda::CUDAStream stream;  // the default stream cannot be recorded
  at::cuda::MempoolId_t pool;
};

StepGraphs::StepGraphs(c10::Device device) : state_(std::make_shared<State>(device)) {}
StepGraphs::~StepGraphs() = default;

struct StepGraph::Capture {
  std::shared_ptr<StepGraphs::State> shared;
  at::cuda::CUDAGraph graph;

  // After an error inside: torch's own end of a capture stops at the first thing that went wrong.
  void abandon() {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(shared->device, shared->pool);
      } catch (const c10::Error&) {  // it had come that far
      }
    }
    (void)cudaGetLastError();
  }
};

StepGraph::StepGraph(const StepGraphs& graphs, const std::function<void()>& work)
    : capture_(std::make_unique<Capture>(graphs.state_)) {
  const StepGraphs::State& shared = *graphs.state_;
  const c10::cuda::CUDAGuard device(shared.device);
  // What ordinary passes have left in the allocator's cache is of no use to the graph's own memory, and while
  // a stream is recorded the allocator gives nothing back.
  at::cuda::getCurrentCUDAStream().synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  at::cuda::CUDAEvent before;
  before.record(at::cuda::getCurrentCUDAStream());
  before.block(shared.stream);
  const c10::cuda::CUDAStreamGuard stream(shared.stream);
  // Other threads, which pin the next batches, may go on.
  capture_->graph.capture_begin(shared.pool, cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    capture_->abandon();
    throw;
  }
  try {
    capture_->graph.capture_end();
  } catch (...) {
    capture_->abandon();
    throw;
  }
}
StepGraph::~StepGraph() = default;

void StepGraphs::wait() const {
  at::cuda::getCurrentCUDAStream(state_->device).synchronize();
}

void StepGraph::replay() {
  const c10::cuda::CUDAGuard device(capture_->shared->device);
  capture_->graph.replay();
}

}  // namespace edgewise::ops
