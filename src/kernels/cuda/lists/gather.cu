// Attention over an edge list, forward and backward: only the edges are visited. A row belongs to D/8
// neighbouring lanes, each of which owns 8 dimensions, so a warp works on several rows and a dot product
// needs few exchanges. Equations as in tile_forward.cu and tile_backward.cuh.
#include <cuda_bf16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pair_dropout.cuh"
#include "kernels/cuda/lists/gather_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f, kLn2 = 0.693147180559945f;
constexpr int kThreads = 256, kAhead = 4;  // edges in flight

struct Eight {
  float x[8];
};
// Eight numbers as they lie in memory: what an edge in flight holds in registers.
struct PackedBf16 {
  uint4 raw;
  __device__ Eight unpack() const {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight out;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      out.x[2 * n] = __uint_as_float(words[n] << 16);
      out.x[2 * n + 1] = __uint_as_float(words[n] & 0xFFFF0000u);
    }
    return out;
  }
};
struct PackedFloat {
  float4 low, high;
  __device__ Eight unpack() const { return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}}; }
};
__device__ PackedBf16 load_packed(const Bf16* from) {
  return {__ldg(reinterpret_cast<const uint4*>(from))};
}
__device__ PackedFloat load_packed(const float* from) {
  return {__ldg(reinterpret_cast<const float4*>(from)), __ldg(reinterpret_cast<const float4*>(from) + 1)};
}
template <typename T>
using Packed = decltype(load_packed(static_cast<const T*>(nullptr)));
template <typename T>
__device__ Eight load_eight(const T* from) {
  return load_packed(from).unpack();
}
__device__ float exp2_fast(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
__device__ void store_eight(Bf16* to, const Eight& value, float factor) {
  uint32_t words[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(value.x[2 * n] * factor, value.x[2 * n + 1] * factor);
    words[n] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ void store_eight(float* to, const Eight& v, float factor) {
  reinterpret_cast<float4*>(to)[0] =
      make_float4(v.x[0] * factor, v.x[1] * factor, v.x[2] * factor, v.x[3] * factor);
  reinterpret_cast<float4*>(to)[1] =
      make_float4(v.x[4] * factor, v.x[5] * factor, v.x[6] * factor, v.x[7] * factor);
}
__device__ float dot(const Eight& a, const Eight& b) {
  float sum = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n) sum = fmaf(a.x[n], b.x[n], sum);
  return sum;
}
__device__ void add_scaled(Eight& sum, float factor, const Eight& x) {
#pragma unroll
  for (int n = 0; n < 8; ++n) sum.x[n] = fmaf(factor, x.x[n], sum.x[n]);
}

// Sum over the kLanes lanes of a row; every lane of the warp takes part.
template <int kLanes>
__device__ float row_sum(float x, unsigned lanes) {
#pragma unroll
  for (int step = kLanes / 2; step; step /= 2) x += __shfl_xor_sync(lanes, x, step);
  return x;
}

// The row of this group of lanes.
template <int kLanes>
struct Place {
  int64_t row;  // head_index * tokens + token
  int part;     // lane within the row
  unsigned lanes;
  bool exists;
  int64_t head_index, item, head, token;

  __device__ Place(const TileShape& shape, int64_t tokens) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    row = thread / kLanes;
    part = threadIdx.x % kLanes;
    lanes = kLanes == 32 ? ~0u : ((1u << kLanes) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
    exists = row < shape.batch * shape.heads * tokens;
    head_index = row / tokens, token = row % tokens;
    item = head_index / shape.heads, head = head_index % shape.heads;
  }
};

// Calls visit(edge, index, loaded) for every kAhead edges of `row`, of which `edge` is the first, with what
// fetch(index) gave; an index is -1 where there is none, or one outside of [0, limit).
template <typename Fetch, typename Visit>
__device__ void for_edges(const EdgeList& edges, int64_t row, int64_t limit, const Fetch& fetch,
                          const Visit& visit) {
  const int64_t begin = edges.offsets[row], end = edges.offsets[row + 1];
  using Loaded = decltype(fetch(0));
  for (int64_t e = begin; e < end; e += kAhead) {
    int index[kAhead];
    Loaded loaded[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int candidate = e + n < end ? __ldg(edges.indices + e + n) : -1;
      index[n] = candidate >= 0 && candidate < limit ? candidate : -1;
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) loaded[n] = fetch(index[n] < 0 ? 0 : index[n]);
    visit(e, index, loaded);
  }
}

// What dropout makes of the weights of kAhead edges of this group's token, whose other ends are `index`: 0,
// or keep_scale. Each lane asks for one edge, or for every kLanes-th.
template <int kLanes, bool kColumns>
__device__ void keep_factors(const GatherDropout& dropout, uint32_t limit, const Place<kLanes>& at,
                             const int (&index)[kAhead], float (&keep)[kAhead]) {
  const uint64_t key = dropout.stream_keys[at.head_index];
  const int first = threadIdx.x % 32 / kLanes * kLanes;  // lane
#pragma unroll
  for (int from = 0; from < kAhead; from += kLanes) {
    int mine = -1;
#pragma unroll
    for (int n = from; n < kAhead && n < from + kLanes; ++n)
      if (n - from == at.part) mine = index[n];
    const uint32_t token = static_cast<uint32_t>(at.token), other = static_cast<uint32_t>(mine);
    const bool kept =
        mine >= 0 && !pair_dropped(key, kColumns ? other : token, kColumns ? token : other, limit);
    const float factor = kept ? dropout.keep_scale : 0;
#pragma unroll
    for (int n = from; n < kAhead && n < from + kLanes; ++n)
      keep[n] = __shfl_sync(at.lanes, factor, first + n - from);
  }
}

template <typename T, int D, bool kDropout>
__global__ void __launch_bounds__(kThreads, 3)
    gather_forward(const __grid_constant__ GatherForwardParams<T> p, uint32_t drop_limit) {
  constexpr int kLanes = D / 8;
  const Place<kLanes> at(p.shape, p.shape.queries);
  if (!at.exists) return;
  const Eight query =
      load_eight(p.query.head(at.item, at.head) + at.token * p.query.row_stride + at.part * 8);
  const T* const key = p.key.head(at.item, at.head) + at.part * 8;
  const T* const value = p.value.head(at.item, at.head) + at.part * 8;
  struct Loaded {
    Packed<T> key, value;
  };
  const auto fetch = [&](int64_t j) {
    return Loaded{load_packed(key + j * p.key.row_stride), load_packed(value + j * p.value.row_stride)};
  };
  const float to_log2 = p.scale * kLog2E;

  // As in tile_forward.cu: exponentials as they are, and once more below the maximum if a sum left the range.
  Eight sum{};
  float total = 0, top = 0;
  int seen = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for_edges(p.edges, at.row, p.shape.keys, fetch,
              [&](int64_t, const int(&index)[kAhead], const Loaded(&loaded)[kAhead]) {
                float s[kAhead];
#pragma unroll
                for (int n = 0; n < kAhead; ++n)
                  s[n] = row_sum<kLanes>(dot(query, loaded[n].key.unpack()), at.lanes);
                float keep[kAhead];
                if constexpr (kDropout) keep_factors<kLanes, false>(p.dropout, drop_limit, at, index, keep);
#pragma unroll
                for (int n = 0; n < kAhead; ++n) {
                  if (index[n] < 0) continue;
                  const float a = exp2_fast(fmaf(s[n], to_log2, -top));
                  total += a;
                  add_scaled(sum, kDropout ? a * keep[n] : a, loaded[n].value.unpack());
                  seen = 1;
                }
              });
    bool good = total > 0x1.0p-100f && total < 0x1.0p100f;
#pragma unroll
    for (int n = 0; n < 8; ++n) good = good && isfinite(sum.x[n]);
    if (attempt == 1 || !seen || __all_sync(at.lanes, good)) break;
    top = -INFINITY, total = 0, sum = Eight{};
    for_edges(p.edges, at.row, p.shape.keys, fetch,
              [&](int64_t, const int(&index)[kAhead], const Loaded(&loaded)[kAhead]) {
#pragma unroll
                for (int n = 0; n < kAhead; ++n) {
                  const float s = row_sum<kLanes>(dot(query, loaded[n].key.unpack()), at.lanes);
                  if (index[n] >= 0) top = fmaxf(top, s * to_log2);
                }
              });
  }
  store_eight(p.output.head(at.item, at.head) + at.token * p.output.row_stride + at.part * 8, sum,
              seen ? 1 / total : 0);
  if (at.part == 0) p.lse[at.row] = seen ? (top + log2f(total)) * kLn2 : -INFINITY;
}

template <typename T, int D>
__global__ void gather_row_values(const __grid_constant__ GatherBackwardParams<T> p) {
  constexpr int kLanes = D / 8;
  const Place<kLanes> at(p.shape, p.shape.queries);
  if (!at.exists) return;
  const Eight o = load_eight(p.output.head(at.item, at.head) + at.token * p.output.row_stride + at.part * 8);
  const Eight g =
      load_eight(p.grad_output.head(at.item, at.head) + at.token * p.grad_output.row_stride + at.part * 8);
  const float ubar = row_sum<kLanes>(dot(o, g), at.lanes);
  if (at.part != 0) return;
  p.row_values[at.row] = p.lse[at.row] * kLog2E;
  p.row_values[p.shape.batch * p.shape.heads * p.shape.queries + at.row] = ubar;
}

// Leaving out an edge: a / (1 - a) (u - ubar), or a (u - mean of u over the other edges), which is what the
// largest edge of a row takes, since 1 - a may be nothing but rounding there. So while the edges pass by,
// this keeps the largest, the first of several, and the softmax over the others.
struct LargestEdge {
  int64_t edge = -1;
  float score = 0, u = 0;  // scores times log2(e)
  float high = -INFINITY, total = 0,
        sum = 0;  // of the others: largest score, sums of exp2(s - high) and times u

  __device__ void see(int64_t e, float s, float u_of_edge) {
    if (edge >= 0 && s <= score) return pass(s, u_of_edge);
    if (edge >= 0) pass(score, u);
    edge = e, score = s, u = u_of_edge;
  }
  __device__ float credit(float lse2) const {
    return total > 0 ? exp2_fast(score - lse2) * (u - sum / total) : u;
  }

 private:
  __device__ void pass(float s, float u_of_edge) {
    if (s > high) {
      const float shrink = exp2_fast(high - s);
      total *= shrink, sum *= shrink, high = s;
    }
    const float share = exp2_fast(s - high);
    total += share;
    sum = fmaf(share, u_of_edge, sum);
  }
};

// One pass of the backward: rows (kColumns = false) or columns. kNumbers: the row pass also writes the number
// of every edge and probe.
template <typename T, int D, int C, bool kColumns, bool kDropout, bool kNumbers>
__global__ void __launch_bounds__(kThreads, 2)
    gather_backward(const __grid_constant__ GatherBackwardParams<T> p, uint32_t drop_limit) {
  static_assert(!kNumbers || (C == 0 && !kColumns));
  constexpr int kLanes = D / 8;
  constexpr int kMembers = C == 0 ? 0 : (C / 8 + kLanes - 1) / kLanes;  // groups of 8 clusters per lane
  const int64_t outer = kColumns ? p.shape.keys : p.shape.queries,
                inner = kColumns ? p.shape.queries : p.shape.keys;
  const Place<kLanes> at(p.shape, outer);
  if (!at.exists) return;
  const auto& outer_a = kColumns ? p.key : p.query;
  const auto& inner_a = kColumns ? p.query : p.key;
  const auto& outer_b = kColumns ? p.value : p.grad_output;
  const auto& inner_b = kColumns ? p.grad_output : p.value;
  const auto& inner_c = kColumns ? p.query_membership : p.key_side;
  const Eight a0 = load_eight(outer_a.head(at.item, at.head) + at.token * outer_a.row_stride + at.part * 8);
  const Eight b0 = load_eight(outer_b.head(at.item, at.head) + at.token * outer_b.row_stride + at.part * 8);
  const T* const a = inner_a.head(at.item, at.head) + at.part * 8;
  const T* const b = inner_b.head(at.item, at.head) + at.part * 8;
  const T* const c = C > 0 ? inner_c.head(at.item, at.head) : nullptr;
  const int64_t query_count = p.shape.batch * p.shape.heads * p.shape.queries;
  const float* const lse2 = p.row_values + at.head_index * p.shape.queries;
  const float* const ubar = lse2 + query_count;
  const float own_lse = kColumns ? 0 : lse2[at.token], own_ubar = kColumns ? 0 : ubar[at.token];
  const float to_log2 = p.scale * kLog2E;
  const float density = p.density_grad ? p.density_grad[at.head] : 0, limit = p.clip > 0 ? p.clip : INFINITY;

  struct Loaded {
    Packed<T> a, b;
    float lse2, ubar;
  };
  const auto fetch = [&](int64_t j) {
    Loaded out{load_packed(a + j * inner_a.row_stride), load_packed(b + j * inner_b.row_stride), own_lse,
               own_ubar};
    if constexpr (kColumns) out.lse2 = __ldg(lse2 + j), out.ubar = __ldg(ubar + j);
    return out;
  };
  Eight grad_a{}, grad_b{}, grad_c[kMembers > 0 ? kMembers : 1] = {};
  const auto teach = [&](int64_t j, float g) {
    if constexpr (C > 0) {
#pragma unroll
      for (int n = 0; n < kMembers; ++n)
        if ((n * kLanes + at.part) * 8 < C)
          add_scaled(grad_c[n], g, load_eight(c + j * inner_c.row_stride + (n * kLanes + at.part) * 8));
    }
  };
  [[maybe_unused]] const auto write = [&](float* credit, const EdgeList& edges, int64_t e, float number) {
    if (at.part == 0 && e < edges.offsets[at.row + 1]) credit[e] = number;
  };
  [[maybe_unused]] LargestEdge largest;
  for_edges(kColumns ? p.edges_by_keys : p.edges, at.row, inner, fetch,
            [&]([[maybe_unused]] int64_t e, const int(&index)[kAhead], const Loaded(&loaded)[kAhead]) {
              float s[kAhead], u[kAhead];
#pragma unroll
              for (int n = 0; n < kAhead; ++n)
                s[n] = row_sum<kLanes>(dot(a0, loaded[n].a.unpack()), at.lanes),
                u[n] = row_sum<kLanes>(dot(b0, loaded[n].b.unpack()), at.lanes);
              float keep[kAhead];
              if constexpr (kDropout) keep_factors<kLanes, kColumns>(p.dropout, drop_limit, at, index, keep);
#pragma unroll
              for (int n = 0; n < kAhead; ++n) {
                if (index[n] < 0) {
                  if constexpr (kNumbers) write(p.edge_credit, p.edges, e + n, 0);
                  continue;
                }
                if constexpr (kDropout) u[n] *= keep[n];
                const float weight = exp2_fast(fmaf(s[n], to_log2, -loaded[n].lse2)),
                            d = weight * (u[n] - loaded[n].ubar);
                if constexpr (kNumbers) {
                  largest.see(e + n, s[n] * to_log2, u[n]);
                  write(p.edge_credit, p.edges, e + n,
                        p.rule == CreditRule::kPaper         ? d * s[n] * p.scale
                        : p.rule == CreditRule::kLeaveOneOut ? d / (1 - weight)
                                                             : d);
                }
                add_scaled(grad_a, d, loaded[n].a.unpack());
                if constexpr (kColumns)
                  add_scaled(grad_b, kDropout ? weight * keep[n] : weight, loaded[n].b.unpack());
                if constexpr (C > 0)
                  teach(index[n], fminf(fmaxf((p.paper ? d * s[n] * p.scale : d) + density, -limit), limit));
              }
            });
  if constexpr (kNumbers)
    if (p.rule == CreditRule::kLeaveOneOut && largest.edge >= 0)
      write(p.edge_credit, p.edges, largest.edge, largest.credit(own_lse));
  const EdgeList& probes = kColumns ? p.probes_by_keys : p.probes;
  if ((C > 0 || kNumbers) && probes.offsets) {
    const float per_rate = C > 0 ? 1 / p.probe_rates[at.item] : 1;
    for_edges(probes, at.row, inner, fetch,
              [&]([[maybe_unused]] int64_t e, const int(&index)[kAhead], const Loaded(&loaded)[kAhead]) {
#pragma unroll
                for (int n = 0; n < kAhead; ++n) {
                  const float s = row_sum<kLanes>(dot(a0, loaded[n].a.unpack()), at.lanes),
                              u = row_sum<kLanes>(dot(b0, loaded[n].b.unpack()), at.lanes);
                  const float share = 1 / (1 + exp2_fast(fmaf(s, -to_log2, loaded[n].lse2))),
                              number = index[n] < 0 ? 0 : share * (u - loaded[n].ubar);
                  if constexpr (kNumbers) write(p.probe_credit, probes, e + n, number);
                  if (C > 0 && index[n] >= 0) teach(index[n], number * per_rate);
                }
              });
  }
  const auto& to_a = kColumns ? p.key_grad : p.query_grad;
  store_eight(to_a.head(at.item, at.head) + at.token * to_a.row_stride + at.part * 8, grad_a, p.scale);
  if constexpr (kColumns)
    store_eight(p.value_grad.head(at.item, at.head) + at.token * p.value_grad.row_stride + at.part * 8,
                grad_b, 1);
  if constexpr (C > 0) {
    const auto& to_c = kColumns ? p.key_side_grad : p.query_membership_grad;
#pragma unroll
    for (int n = 0; n < kMembers; ++n)
      if ((n * kLanes + at.part) * 8 < C)
        store_eight(to_c.head(at.item, at.head) + at.token * to_c.row_stride + (n * kLanes + at.part) * 8,
                    grad_c[n], 1);
  }
}

template <int D>
unsigned blocks_for(const TileShape& shape, int64_t tokens) {
  return static_cast<unsigned>((shape.batch * shape.heads * tokens * (D / 8) + kThreads - 1) / kThreads);
}

template <typename T, int D, int C, bool kDropout, bool kNumbers>
cudaError_t backward(const GatherBackwardParams<T>& p, cudaStream_t stream) {
  const uint32_t limit = dropout_limit(p.dropout.p);
  if (const unsigned blocks = blocks_for<D>(p.shape, p.shape.queries)) {
    launch(gather_row_values<T, D>, blocks, kThreads, stream, p);
    launch(gather_backward<T, D, C, false, kDropout, kNumbers>, blocks, kThreads, stream, p, limit);
  }
  if (const unsigned blocks = blocks_for<D>(p.shape, p.shape.keys))
    launch(gather_backward<T, D, C, true, kDropout, false>, blocks, kThreads, stream, p, limit);
  return cudaGetLastError();
}
template <typename T, int D, int C, bool kNumbers = false>
cudaError_t backward(const GatherBackwardParams<T>& p, cudaStream_t stream) {
  return p.dropout.stream_keys ? backward<T, D, C, true, kNumbers>(p, stream)
                               : backward<T, D, C, false, kNumbers>(p, stream);
}

template <typename T, int D>
cudaError_t backward_clusters(const GatherBackwardParams<T>& p, cudaStream_t stream) {
  switch (p.clusters) {
    case 0:
      return p.rule == CreditRule::kNone ? backward<T, D, 0>(p, stream) : backward<T, D, 0, true>(p, stream);
    case 32:
      return backward<T, D, 32>(p, stream);
    case 128:
      return backward<T, D, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T, int D>
cudaError_t forward(const GatherForwardParams<T>& p, cudaStream_t stream) {
  if (const unsigned blocks = blocks_for<D>(p.shape, p.shape.queries)) {
    const uint32_t limit = dropout_limit(p.dropout.p);
    if (p.dropout.stream_keys)
      launch(gather_forward<T, D, true>, blocks, kThreads, stream, p, limit);
    else
      launch(gather_forward<T, D, false>, blocks, kThreads, stream, p, limit);
  }
  return cudaGetLastError();
}

}  // namespace

template <typename T>
int launch_gather_forward(const GatherForwardParams<T>& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  switch (p.head_dim) {
    case 16:
      return forward<T, 16>(p, stream);
    case 32:
      return forward<T, 32>(p, stream);
    case 64:
      return forward<T, 64>(p, stream);
    case 128:
      return forward<T, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
int launch_gather_backward(const GatherBackwardParams<T>& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  switch (p.head_dim) {
    case 16:
      return backward_clusters<T, 16>(p, stream);
    case 32:
      return backward_clusters<T, 32>(p, stream);
    case 64:
      return backward_clusters<T, 64>(p, stream);
    case 128:
      return backward_clusters<T, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

template int launch_gather_forward<Bf16>(const GatherForwardParams<Bf16>&, Stream);
template int launch_gather_forward<float>(const GatherForwardParams<float>&, Stream);
template int launch_gather_backward<Bf16>(const GatherBackwardParams<Bf16>&, Stream);
template int launch_gather_backward<float>(const GatherBackwardParams<float>&, Stream);

}  // namespace edgewise::kernels::cuda
