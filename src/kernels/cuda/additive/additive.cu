// Attention with additive scores, s_ij = LeakyReLU(query_score_i + key_score_j), and sums over lists with
// given weights; equations as in kernels/cpu/additive/additive_level.cpp. A node in one head belongs to Dv /
// 8 neighbouring lanes, each of which owns 8 dimensions and forms the scores for itself: they are two
// numbers. Only a dot product of a whole row takes an exchange.
#include "kernels/cuda/additive/additive.h"

#include <cuda_bf16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pair_dropout.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kAdditiveThreads = 128;

struct EightFloats {
  float x[8];
};
__device__ EightFloats load_floats(const float* from) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(from)),
               high = __ldg(reinterpret_cast<const float4*>(from) + 1);
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}
__device__ void store_floats(float* to, const EightFloats& v, float factor) {
  reinterpret_cast<float4*>(to)[0] =
      make_float4(v.x[0] * factor, v.x[1] * factor, v.x[2] * factor, v.x[3] * factor);
  reinterpret_cast<float4*>(to)[1] =
      make_float4(v.x[4] * factor, v.x[5] * factor, v.x[6] * factor, v.x[7] * factor);
}
__device__ void add_floats(EightFloats& sum, float weight, const EightFloats& v) {
#pragma unroll
  for (int n = 0; n < 8; ++n) sum.x[n] = fmaf(weight, v.x[n], sum.x[n]);
}

// A lane's node, head and eight of the dimensions. Neighbouring lanes have the dimensions of a head, then the
// heads of a node, so that what they read of a neighbour lies together.
template <int kParts>
struct Seat {
  int64_t b, h, node, row, begin, end;
  const int32_t* indices;
  int part;
  unsigned lanes;  // those of the same node and head
  bool exists;

  __device__ explicit Seat(const HeadLists& lists) {
    const int64_t number = int64_t{blockIdx.x} * kAdditiveThreads + threadIdx.x;
    part = static_cast<int>(number % kParts);
    h = number / kParts % lists.heads;
    const int64_t place = number / kParts / lists.heads;
    exists = place < lists.batch * lists.rows;
    b = place / lists.rows, node = place % lists.rows;
    row = lists.row(b, h, node);
    const int64_t list = lists.list(b, h, node);
    begin = exists ? lists.offsets[list] : 0;
    end = exists ? lists.offsets[list + 1] : 0;
    indices = lists.indices;
    constexpr unsigned kOwn = kParts == 32 ? ~0u : (1u << kParts) - 1;
    lanes = kOwn << (threadIdx.x % 32 / kParts * kParts);
  }
  // Row of node 0 on the other side, in the same head.
  __device__ int64_t other_side(const HeadLists& lists) const {
    return (b * lists.heads + h) * lists.columns;
  }
  __device__ float sum(const EightFloats& a, const EightFloats& c) const {
    float x = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) x = fmaf(a.x[n], c.x[n], x);
#pragma unroll
    for (int step = kParts / 2; step; step /= 2) x += __shfl_xor_sync(lanes, x, step);
    return x;
  }
  template <typename T>
  __device__ EightFloats load(const HeadRows<T>& rows, int64_t other) const {
    return load_floats(rows.at(b, h, other) + part * 8);
  }
  __device__ void store(const HeadRows<float>& rows, const EightFloats& value, float factor) const {
    store_floats(rows.at(b, h, node) + part * 8, value, factor);
  }
};

// 0 or 1 / (1 - p) of a pair.
struct KeptPairs {
  uint64_t key = 0;
  uint32_t limit;
  float scale;
  bool drops;

  __device__ KeptPairs(const DropoutParams& dropout, uint32_t given_limit, int64_t head)
      : limit(given_limit),
        scale(dropout.p < 1 ? 1 / (1 - static_cast<float>(dropout.p)) : 0),
        drops(dropout.head_keys != nullptr) {
    if (drops) key = dropout.head_keys[head];
  }
  __device__ float factor(int64_t query, int64_t column) const {
    if (!drops) return 1;
    return pair_dropped(key, static_cast<uint32_t>(query), static_cast<uint32_t>(column), limit) ? 0 : scale;
  }
};

__device__ float leaky(float x, float slope) {
  return x > 0 ? x : slope * x;
}

template <int kParts>
__global__ void __launch_bounds__(kAdditiveThreads)
    additive_forward(const __grid_constant__ AdditiveForwardParams<float> p, uint32_t limit) {
  const Seat<kParts> seat(p.edges);
  if (!seat.exists) return;
  const float* const keys = p.key_score + seat.other_side(p.edges);
  const float own = p.query_score[seat.row];
  const KeptPairs kept(p.dropout, limit, seat.b * p.edges.heads + seat.h);
  float top = -INFINITY;
  for (int64_t e = seat.begin; e < seat.end; ++e)
    top = fmaxf(top, leaky(own + __ldg(keys + seat.indices[e]), p.slope));
  float total = 0;
  EightFloats sum{};
  for (int64_t e = seat.begin; e < seat.end; ++e) {
    const int32_t j = seat.indices[e];
    const float weight = expf(leaky(own + __ldg(keys + j), p.slope) - top);
    total += weight;
    add_floats(sum, weight * kept.factor(seat.node, j), seat.load(p.value, j));
  }
  const bool empty = seat.begin == seat.end;
  seat.store(p.output, sum, empty ? 0 : 1 / total);
  if (seat.part == 0) p.lse[seat.row] = empty ? -INFINITY : top + logf(total);
}

template <int kParts>
__global__ void __launch_bounds__(kAdditiveThreads)
    additive_rows(const __grid_constant__ AdditiveRowsParams<float> p, uint32_t limit) {
  const Seat<kParts> seat(p.edges);
  if (!seat.exists) return;
  const float* const keys = p.key_score + seat.other_side(p.edges);
  const float own = p.query_score[seat.row], lse = p.lse[seat.row];
  const KeptPairs kept(p.dropout, limit, seat.b * p.edges.heads + seat.h);
  const EightFloats grad = seat.load(p.grad_output, seat.node);
  const float ubar = seat.sum(grad, seat.load(p.output, seat.node));
  float total = 0;
  for (int64_t e = seat.begin; e < seat.end; ++e) {
    const int32_t j = seat.indices[e];
    const float score = own + __ldg(keys + j), s = leaky(score, p.slope);
    const float u = seat.sum(grad, seat.load(p.value, j)) * kept.factor(seat.node, j);
    const float number = expf(s - lse) * (u - ubar);
    total += score > 0 ? number : p.slope * number;
    if (p.rule != CreditRule::kNone && seat.part == 0)
      p.credit[e] = p.rule == CreditRule::kPaper ? number * s : number;
  }
  if (seat.part != 0) return;
  p.ubar[seat.row] = ubar;
  p.query_score_grad[seat.row] = total;
}

template <int kParts>
__global__ void __launch_bounds__(kAdditiveThreads)
    additive_columns(const __grid_constant__ AdditiveColumnsParams<float> p, uint32_t limit) {
  const Seat<kParts> seat(p.edges);
  if (!seat.exists) return;
  const int64_t first = seat.other_side(p.edges);
  const float *const queries = p.query_score + first, *const lse = p.lse + first,
                     *const ubar = p.ubar + first;
  const float own = p.key_score[seat.row];
  const KeptPairs kept(p.dropout, limit, seat.b * p.edges.heads + seat.h);
  const EightFloats value = seat.load(p.value, seat.node);
  float total = 0;
  EightFloats sum{};
  for (int64_t e = seat.begin; e < seat.end; ++e) {
    const int32_t i = seat.indices[e];
    const EightFloats grad = seat.load(p.grad_output, i);
    const float score = own + __ldg(queries + i), weight = expf(leaky(score, p.slope) - __ldg(lse + i));
    const float factor = kept.factor(i, seat.node);
    const float number = weight * (seat.sum(value, grad) * factor - __ldg(ubar + i));
    total += score > 0 ? number : p.slope * number;
    add_floats(sum, weight * factor, grad);
  }
  seat.store(p.value_grad, sum, 1);
  if (seat.part == 0) p.key_score_grad[seat.row] = total;
}

template <int kParts>
__global__ void __launch_bounds__(kAdditiveThreads)
    additive_probes(const __grid_constant__ AdditiveProbesParams<float> p, uint32_t) {
  const Seat<kParts> seat(p.edges);
  if (!seat.exists) return;
  const float* const keys = p.key_score + seat.other_side(p.edges);
  const EightFloats grad = seat.load(p.grad_output, seat.node);
  for (int64_t e = seat.begin; e < seat.end; ++e) {
    const int32_t j = seat.indices[e];
    const float s = leaky(p.query_score[seat.row] + __ldg(keys + j), p.slope);
    const float u = seat.sum(grad, seat.load(p.value, j));
    if (seat.part == 0) p.credit[e] = (u - p.ubar[seat.row]) / (1 + expf(p.lse[seat.row] - s));
  }
}

template <int kParts>
__global__ void __launch_bounds__(kAdditiveThreads)
    sparse_product(const __grid_constant__ SparseProductParams<float> p, uint32_t limit) {
  const Seat<kParts> seat(p.entries);
  if (!seat.exists) return;
  const KeptPairs kept(p.dropout, limit, seat.b * p.entries.heads + seat.h);
  EightFloats sum{};
  for (int64_t e = seat.begin; e < seat.end; ++e) {
    const int32_t j = seat.indices[e];
    const float factor = p.turned ? kept.factor(j, seat.node) : kept.factor(seat.node, j);
    if (factor != 0) add_floats(sum, __ldg(p.weights + e) * factor, seat.load(p.dense, j));
  }
  seat.store(p.out, sum, 1);
}

template <int kParts, typename Params>
cudaError_t start(void (*kernel)(Params, uint32_t), const HeadLists& lists, const Params& params,
                  const DropoutParams& dropout, cudaStream_t stream) {
  const int64_t threads = lists.batch * lists.rows * lists.heads * kParts;
  if (threads > 0)
    launch(kernel, static_cast<unsigned>((threads + kAdditiveThreads - 1) / kAdditiveThreads),
           kAdditiveThreads, stream, params, dropout.head_keys ? dropout_limit(dropout.p) : 0u);
  return cudaGetLastError();
}

// The kernel of as many parts as `width` has.
#define EDGEWISE_START(kernel, lists, width)                               \
  const auto stream = static_cast<cudaStream_t>(given);                    \
  switch (width) {                                                         \
    case 8:                                                                \
      return start<1>(kernel<1>, lists, params, params.dropout, stream);   \
    case 16:                                                               \
      return start<2>(kernel<2>, lists, params, params.dropout, stream);   \
    case 32:                                                               \
      return start<4>(kernel<4>, lists, params, params.dropout, stream);   \
    case 64:                                                               \
      return start<8>(kernel<8>, lists, params, params.dropout, stream);   \
    case 128:                                                              \
      return start<16>(kernel<16>, lists, params, params.dropout, stream); \
    case 256:                                                              \
      return start<32>(kernel<32>, lists, params, params.dropout, stream); \
    default:                                                               \
      return cudaErrorInvalidValue;                                        \
  }

}  // namespace

int launch_additive_forward(const AdditiveForwardParams<float>& params, Stream given) {
  EDGEWISE_START(additive_forward, params.edges, params.value_dim)
}
int launch_additive_rows(const AdditiveRowsParams<float>& params, Stream given) {
  EDGEWISE_START(additive_rows, params.edges, params.value_dim)
}
int launch_additive_columns(const AdditiveColumnsParams<float>& params, Stream given) {
  EDGEWISE_START(additive_columns, params.edges, params.value_dim)
}
int launch_additive_probes(const AdditiveProbesParams<float>& params, Stream given) {
  EDGEWISE_START(additive_probes, params.edges, params.value_dim)
}
int launch_sparse_product(const SparseProductParams<float>& params, Stream given) {
  EDGEWISE_START(sparse_product, params.entries, params.width)
}
#undef EDGEWISE_START

}  // namespace edgewise::kernels::cuda
