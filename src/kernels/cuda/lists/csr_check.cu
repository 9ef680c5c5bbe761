// A CSR from outside is checked where it lies, so that no call waits for the device: what is wrong is told to
// the host later, and until then nobody reads beyond anything, because what goes on is a copy that is right
// whatever came in (unless another stream changes it meanwhile). Of two faults the one that the host's check
// (graph/checks.cpp) would name first wins.
//
// Bytes: offsets and columns are read twice and written once, 12 per edge.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/lists/csr_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kMostBlocks = 2112;  // 16 an SM

// Places in the order of the host's check; the word is turned over, so that 0 is "none" and atomicMax keeps
// the first.
enum Stage : uint64_t { kAtFirst, kAtLast, kAtRow, kAtEdge };
constexpr int kStageShift = 60;

__device__ void note(const CsrCheckParams& p, Stage stage, int64_t place) {
  atomicMax(
      reinterpret_cast<unsigned long long*>(p.fault_place),
      ~(static_cast<unsigned long long>(stage) << kStageShift | static_cast<unsigned long long>(place)));
}

// A warp has one row at a time.
__global__ void check_rows(const __grid_constant__ CsrCheckParams p) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  const int lane = threadIdx.x % 32;
  int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row == 0 && lane == 0) {
    if (p.row_offsets[0] != 0) note(p, kAtFirst, 0);
    if (p.row_offsets[p.rows] != p.edges) note(p, kAtLast, 0);
  }
  for (; row < p.rows; row += step) {
    const int64_t begin = p.row_offsets[row], end = p.row_offsets[row + 1];
    if (begin > end || end > p.edges) {
      if (lane == 0) note(p, kAtRow, row);
      continue;
    }
    if (begin < 0) continue;  // then an offset before it has a fault
    for (int64_t edge = begin + lane; edge < end; edge += 32) {
      const int32_t column = p.columns[edge];
      if (column < 0 || column >= p.keys || (edge > begin && p.columns[edge - 1] >= column))
        note(p, kAtEdge, edge);
    }
  }
}

// The row that holds an edge; offsets have no fault.
__device__ int64_t row_of(const CsrCheckParams& p, int64_t edge) {
  int64_t low = 0, high = p.rows;  // row_offsets[low] <= edge < row_offsets[high]
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (p.row_offsets[middle] <= edge)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ CsrFault described(const CsrCheckParams& p, uint64_t place) {
  const uint64_t stage = ~place >> kStageShift;
  const auto at = static_cast<int64_t>(~place & ((1ull << kStageShift) - 1));
  if (stage == kAtFirst) return {CsrFaultKind::kFirstOffset, 0, p.row_offsets[0], 0, 0};
  if (stage == kAtLast) return {CsrFaultKind::kLastOffset, 0, p.row_offsets[p.rows], 0, p.edges};
  if (stage == kAtRow)
    return {CsrFaultKind::kFallingOffsets, at, p.row_offsets[at], p.row_offsets[at + 1], 0};
  const int64_t row = row_of(p, at);
  const int32_t column = p.columns[at];
  if (column < 0 || column >= p.keys) return {CsrFaultKind::kColumn, row, column, 0, p.keys};
  return {CsrFaultKind::kOrder, row, p.columns[at > 0 ? at - 1 : 0], column, 0};
}

__device__ void report(const CsrCheckParams& p, uint64_t place) {
  volatile CsrReport& out = *p.report;
  const uint32_t read = out.acknowledged;  // as many as were written: there is room
  if (atomicCAS(p.reported, read, read + 1) != read) return;
  const CsrFault fault = described(p, place);
  out.function = p.function;
  out.fault.row = fault.row, out.fault.found = fault.found, out.fault.next = fault.next;
  out.fault.limit = fault.limit;
  __threadfence_system();
  out.fault.kind = fault.kind;
}

// With a fault: rows that have all keys, until the edges are used up.
__global__ void copy_safe(const __grid_constant__ CsrCheckParams p) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const uint64_t place = *p.fault_place;
  int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n == 0 && place != 0) report(p, place);
  for (; n <= p.rows || n < p.edges; n += step) {
    if (n <= p.rows)
      p.safe_offsets[n] = place == 0 ? p.row_offsets[n] : n * p.keys < p.edges ? n * p.keys : p.edges;
    if (n < p.edges) p.safe_columns[n] = place == 0 ? p.columns[n] : static_cast<int32_t>(n % p.keys);
  }
}

// Bytes of ones are not-a-number in every floating type.
__global__ void spoil(const uint64_t* fault_place, uint8_t* data, int64_t bytes) {
  if (*fault_place == 0) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < bytes; n += step)
    data[n] = 0xFF;
}

unsigned blocks_for(int64_t threads) {
  const int64_t blocks = (threads + kWarps * 32 - 1) / (kWarps * 32);
  return blocks < 1 ? 1 : blocks < kMostBlocks ? static_cast<unsigned>(blocks) : kMostBlocks;
}

}  // namespace

int launch_csr_check(const CsrCheckParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  launch(check_rows, blocks_for(p.rows * 32), kWarps * 32, stream, p);
  launch(copy_safe, blocks_for(p.rows + 1 > p.edges ? p.rows + 1 : p.edges), kWarps * 32, stream, p);
  return cudaGetLastError();
}

int launch_spoil(const uint64_t* fault_place, void* data, int64_t bytes, Stream stream) {
  if (bytes == 0) return cudaSuccess;
  launch(spoil, blocks_for(bytes < 1 << 16 ? bytes : 1 << 16), kWarps * 32, static_cast<cudaStream_t>(stream),
         fault_place, static_cast<uint8_t*>(data), bytes);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
