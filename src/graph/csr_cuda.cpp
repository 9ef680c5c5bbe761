#include "graph/csr_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "graph/checks.h"
#include "graph/cuda_launch.h"
#include "kernels/cuda/lists/csr_params.h"

namespace edgewise::graph {
namespace {

using kernels::CsrFaultKind;
using kernels::cuda::CsrReport;

// Where the faults of one device arrive. Kept until the process ends: the device may write at any time.
struct Mailbox {
  CsrReport* report = nullptr;   // pinned
  uint32_t* reported = nullptr;  // on the device
  std::mutex reading;
};

constexpr size_t kMostDevices = 64;
std::array<std::atomic<Mailbox*>, kMostDevices> mailboxes;

Mailbox& mailbox(at::Device device) {
  const auto index = static_cast<size_t>(device.index());
  TORCH_CHECK(index < kMostDevices, "edgewise: expected a GPU below ", kMostDevices, "; got ", device);
  if (Mailbox* const known = mailboxes[index].load(std::memory_order_acquire)) return *known;
  static std::mutex making;
  const std::scoped_lock lock(making);
  if (Mailbox* const known = mailboxes[index].load(std::memory_order_acquire)) return *known;
  // While a CUDA graph is recorded, too: this is not part of it.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  auto* const made = new Mailbox;  // NOLINT: never freed, see above
  void* memory = nullptr;
  C10_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(CsrReport), cudaHostAllocPortable | cudaHostAllocMapped));
  made->report = new (memory) CsrReport{};
  void* count = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&count, sizeof(uint32_t)));
  made->reported = static_cast<uint32_t*>(count);
  // On a stream that waits for nobody, so that the count is there before any check.
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  C10_CUDA_CHECK(cudaMemsetAsync(count, 0, sizeof(uint32_t), stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  C10_CUDA_CHECK(cudaStreamDestroy(stream));
  mailboxes[index].store(made, std::memory_order_release);
  return *made;
}

bool is_blocking() {
  static const bool asked = [] {
    const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value && std::string_view(value) == "1";
  }();
  return asked;
}

// The fault that has arrived, if any; the mailbox is free again then.
std::optional<CsrReport> take_report(Mailbox& box) {
  const std::atomic_ref kind(box.report->fault.kind);
  if (kind.load(std::memory_order_acquire) == CsrFaultKind::kNone) return std::nullopt;
  const std::scoped_lock lock(box.reading);
  if (kind.load(std::memory_order_acquire) == CsrFaultKind::kNone) return std::nullopt;
  const CsrReport found = *box.report;
  kind.store(CsrFaultKind::kNone, std::memory_order_release);
  std::atomic_ref(box.report->acknowledged).fetch_add(1, std::memory_order_release);
  return found;
}

}  // namespace

void raise_csr_fault(at::Device device) {
  if (!is_hopper(device)) return;
  if (const auto found = take_report(mailbox(device)))
    raise_fault(found->function, found->fault,
                "; an earlier call had these edges, its results are NaN. CUDA_LAUNCH_BLOCKING=1 makes such a "
                "call itself raise the error");
}

void wait_for_csr_faults() {
  for (size_t n = 0; n < kMostDevices; ++n) {
    if (!mailboxes[n].load(std::memory_order_acquire)) continue;
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(n));
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    raise_csr_fault(device);
  }
}

std::optional<SafeCsr> cuda_safe_csr(const char* function, const EdgeShape& shape,
                                     const at::Tensor& row_offsets, const at::Tensor& col_indices) {
  if (!is_hopper(col_indices.device())) return std::nullopt;
  const c10::cuda::CUDAGuard guard(col_indices.device());
  raise_csr_fault(col_indices.device());
  Mailbox& box = mailbox(col_indices.device());
  const at::Tensor offsets = row_offsets.contiguous(), columns = col_indices.contiguous();
  SafeCsr safe{at::empty_like(offsets), at::empty_like(columns), at::zeros({1}, offsets.options())};
  kernels::cuda::CsrCheckParams params;
  params.rows = shape.rows();
  params.edges = columns.size(0);
  params.keys = shape.keys;
  params.row_offsets = offsets.const_data_ptr<int64_t>();
  params.columns = columns.const_data_ptr<int32_t>();
  params.fault_place = reinterpret_cast<uint64_t*>(safe.fault_place.mutable_data_ptr<int64_t>());
  params.safe_offsets = safe.row_offsets.mutable_data_ptr<int64_t>();
  params.safe_columns = safe.col_indices.mutable_data_ptr<int32_t>();
  params.function = function;
  params.reported = box.reported;
  params.report = box.report;
  check_launch("csr_check", kernels::cuda::launch_csr_check(params, current_stream()));
  if (is_blocking() && !is_capturing()) {
    C10_CUDA_CHECK(cudaStreamSynchronize(at::cuda::getCurrentCUDAStream()));
    if (const auto found = take_report(box)) raise_fault(found->function, found->fault, "");
  }
  return safe;
}

void spoil_results(const SafeCsr& csr, at::TensorList results) {
  const c10::cuda::CUDAGuard guard(csr.fault_place.device());
  const auto* const place = reinterpret_cast<const uint64_t*>(csr.fault_place.const_data_ptr<int64_t>());
  for (const at::Tensor& result : results) {
    TORCH_INTERNAL_ASSERT(result.is_non_overlapping_and_dense());
    check_launch("spoil",
                 kernels::cuda::launch_spoil(place, result.mutable_data_ptr(),
                                             static_cast<int64_t>(result.nbytes()), current_stream()));
  }
}

}  // namespace edgewise::graph
