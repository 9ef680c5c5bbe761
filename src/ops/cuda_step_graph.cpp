#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/step_graph.h"

namespace edgewise::ops {
namespace {

// What asks for memory or gives it back is no part of what this thread records, and an error stays here.
template <typename Call>
cudaError_t beside_recordings(const Call& call) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t error = call();
  if (error != cudaSuccess) (void)cudaGetLastError();
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return error;
}

// A recording that broke off may leave torch's generator waiting for its end, and dropout fails from then on:
// the generator gets another state of the same seed and offset.
void free_generator(c10::DeviceIndex device) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  try {
    at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(0);
  } catch (const c10::Error&) {
    at::Generator fresh = at::cuda::detail::createCUDAGenerator(device);
    fresh.set_current_seed(generator.current_seed());
    fresh.set_offset(generator.get_offset());
    generator.graphsafe_set_state(fresh.graphsafe_get_state());
  }
}

}  // namespace

at::Tensor step_memory(int64_t bytes, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (!device.is_cuda()) return at::empty({bytes}, options.device(device));
  const c10::cuda::OptionalCUDAGuard guard(device.has_index() ? std::optional(device) : std::nullopt);
  void* memory = nullptr;
  const auto ask = [&] { return cudaMalloc(&memory, static_cast<size_t>(bytes)); };
  cudaError_t error = beside_recordings(ask);
  if (error != cudaSuccess &&
      c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    error = beside_recordings(ask);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, error == cudaSuccess, "step_memory: expected ", bytes,
                   " bytes on the GPU for the inputs of a recorded pass; got: ", cudaGetErrorString(error));
  return at::from_blob(
      memory, {bytes}, [](void* given) { (void)beside_recordings([=] { return cudaFree(given); }); },
      options.device(at::kCUDA, c10::cuda::current_device()));
}

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

  // After an error inside, which is the one to show: torch's own end of a capture stops at the first thing
  // that went wrong.
  void abandon() noexcept {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(shared->device, shared->pool);
      } catch (const c10::Error&) {  // it had come that far
      }
    }
    (void)cudaGetLastError();
    try {
      free_generator(shared->device);
    } catch (const std::exception& error) {
      TORCH_WARN("StepGraph: a recording broke off, and torch's generator stays bound to it: ", error.what());
    }
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
  try {
    // Other threads, which pin the next batches, may go on.
    capture_->graph.capture_begin(shared.pool, cudaStreamCaptureModeThreadLocal);
    work();
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
