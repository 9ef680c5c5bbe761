// Probes in units (probe_units.h) as lists: the absent pairs of the chosen squares of 16 x 16. A warp has one
// row of squares: 32 lanes draw 128 of them at a time, then all go through the chosen ones in order, each
// with eight columns of one query.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/lists/list_params.h"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 4;

__global__ void list_probes(const __grid_constant__ ListProbeParams p) {
  const int lane = threadIdx.x % 32, row_unit = blockIdx.x * kWarps + threadIdx.x / 32,
            head_index = blockIdx.y, item = head_index / static_cast<int>(p.shape.heads);
  const int queries = p.shape.queries, keys = p.shape.keys, row = row_unit * kProbeUnit + lane / 2;
  if (row_unit * kProbeUnit >= queries) return;
  const bool exists = row < queries;
  const bool takes_part =
      exists && !(p.query_mask && !p.query_mask[static_cast<int64_t>(item) * queries + row]);
  const int64_t index = static_cast<int64_t>(head_index) * queries + row;
  const uint8_t* const key_mask = p.key_mask ? p.key_mask + static_cast<int64_t>(item) * keys : nullptr;
  // The row's edges from the columns on that are still to come.
  int64_t next = takes_part ? p.row_offsets[index] : 0;
  const int64_t stop = takes_part ? p.row_offsets[index + 1] : 0;
  int32_t* out = p.probes.columns && exists ? p.probes.columns + p.probes.row_offsets[index] : nullptr;
  int count = 0;  // of the row: the same in both of its lanes

  const auto visit = [&](int unit) {
    const int first = unit * kProbeUnit + lane % 2 * 8;
    uint32_t absent = 0;
    if (takes_part) {
      for (int n = 0; n < 8; ++n) {
        const int column = first + n;
        if (column < keys && !(p.is_causal && column > row) && !(key_mask && !key_mask[column]))
          absent |= 1u << n;
      }
      while (next < stop && p.columns[next] < first) ++next;
      for (int64_t edge = next; edge < stop && p.columns[edge] < first + 8; ++edge)
        absent &= ~(1u << (p.columns[edge] - first));
    }
    const int mine = __popc(absent), other = __shfl_xor_sync(~0u, mine, 1);
    if (out) {
      int32_t* to = out + count + (lane % 2 ? other : 0);
      for (; absent; absent &= absent - 1) *to++ = first + __ffs(static_cast<int>(absent)) - 1;
    }
    count += mine + other;
  };

  const uint64_t key = p.stream_keys[head_index];
  const double limit = unit_limit(p.rates[item]);
  const int all = (keys + kProbeUnit - 1) / kProbeUnit, units = p.is_causal ? min(all, row_unit + 1) : all;
  for (int base = 0; base < units; base += 128) {
    const int unit = base + 4 * lane;
    uint32_t mine = 0;
    if (unit < units) {
      const PairWords numbers = unit_numbers(key, row_unit, unit / 4);
#pragma unroll
      for (int n = 0; n < 4; ++n)
        mine |= static_cast<uint32_t>(unit + n < units && numbers.word[n] < limit) << n;
    }
    for (unsigned with = __ballot_sync(~0u, mine); with; with &= with - 1) {
      const int from = __ffs(static_cast<int>(with)) - 1;
      for (uint32_t chosen = __shfl_sync(~0u, mine, from); chosen; chosen &= chosen - 1)
        visit(base + 4 * from + __ffs(static_cast<int>(chosen)) - 1);
    }
  }
  if (!p.probes.columns && exists && lane % 2 == 0) p.probes.degrees[index] = count;
}

}  // namespace

int launch_list_probes(const ListProbeParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  const int64_t row_units = (p.shape.queries + kProbeUnit - 1) / kProbeUnit;
  const dim3 grid(static_cast<unsigned>((row_units + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  launch(list_probes, grid, kWarps * 32, static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
