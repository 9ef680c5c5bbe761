// Attention over bit tiles, backward, in two passes without atomics: queries own dq and the gradient of their
// memberships, keys own dk, dv and theirs. With a_ij = M_ij exp(s_ij - lse_i), u = do v^T and d = a (u -
// ubar):
//   row pass     dq = scale d k,      d(query_membership) = G key_side
//   column pass  dk = scale d^T q,  dv = a^T do,  d(key_side) = G^T query_membership
// G is the learner's credit (TileCreditParams). Both passes are one kernel: "outer" tokens (64 to a
// warpgroup, 128 to a block) stay, tiles of 64 "inner" tokens pass by; in the column pass the scores come out
// transposed and so do the bits.
//
// While the tensor cores form the outputs of one tile, the elementwise work of the next is done.
#include "kernels/cuda/bit_tiles.cuh"
#include "kernels/cuda/tile_params.h"
#include "kernels/cuda/wgmma.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f, kLn2 = 0.693147180559945f;
constexpr int kStages = 3;

// One pass, as the kernel sees it.
struct PassParams {
  int batch, heads, outer, inner;  // tokens on each side
  float scale;
  HeadTensor<const Bf16> outer_a, inner_a;   // scores: query and key, or key and query
  HeadTensor<const Bf16> outer_b, inner_b;   // u: grad_output and value, or value and grad_output
  HeadTensor<const Bf16> inner_c;            // memberships of the inner side
  const uint32_t *tiles, *probes, *dropped;  // by outer tokens
  float keep_scale;
  const int32_t *outer_lengths, *inner_lengths;
  const float* row_values;  // [2, B*H*L] lse log2(e) and ubar of the queries
  int64_t query_count;      // B*H*L
  bool paper;
  float clip;
  const float *density_grad, *probe_rates;
  HeadTensor<Bf16> grad_a, grad_b;  // of outer_a and, in the column pass, of outer_b
  HeadTensor<float> grad_c;         // of the outer side's memberships
};

__device__ const __nv_bfloat16* bf16(const Bf16* pointer) {
  return reinterpret_cast<const __nv_bfloat16*>(pointer);
}

__device__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// How the learner's credit G follows from d.
enum Credit : int {
  kSame = 0,     // G = d
  kProbed = 1,   // and probe edges have theirs
  kDropped = 4,  // beside the credit: dropout on the weights
  kShaped =
      2,  // G on present edges is d s, clipped, or moved by the density's gradient (options at run time)
};

// What a pass is built for: head dim, clusters, side, credit. Each warpgroup owns 64 outer tokens; as many as
// registers allow.
template <int kHeadDim, int kClusters, bool kByColumns, int kCreditFlags>
struct Pass {
  static constexpr int D = kHeadDim, C = kClusters;
  static constexpr bool kColumns = kByColumns, kProbes = C > 0 && (kCreditFlags & kProbed),
                        kShape = C > 0 && (kCreditFlags & kShaped);
  static constexpr bool kOwnCredit = kProbes || kShape, kDropout = kCreditFlags & kDropped;
  // Accumulators and operands a thread keeps.
  static constexpr int kRegisters =
      64 + 16 + (kColumns ? 16 : 0) + (kOwnCredit ? 16 : 0) + D / 2 * (kColumns ? 2 : 1) + C / 2;
  static constexpr int kGroups = kRegisters <= 136 ? 3 : 2;
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * kGroups;
  static constexpr int kOuterBytes = kRows * D * 2;  // each of outer_a, outer_b
  static constexpr int kInnerBytes = 64 * D * 2, kMemberBytes = 64 * C * 2;
  static constexpr int kValueBytes = 1024;    // lse and ubar of 64 tokens, padded to the alignment
  static constexpr int kWordBytes = 4 * 512;  // bits of up to 4 warpgroups
  static constexpr int kStageBytes = 2 * kInnerBytes + kMemberBytes + kValueBytes + 3 * kWordBytes;
  static constexpr int kBytes = 2 * kOuterBytes + kStages * kStageBytes + 1024;
};

// Writes an accumulator [64, width] of this warpgroup.
template <int kWidth, typename Store>
__device__ void each_output(const float (&sum)[kWidth / 2], const Store& store) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      store(warp * 16 + lane / 4 + 8 * half, 8 * n + 2 * (lane % 4), sum[4 * n + 2 * half],
            sum[4 * n + 2 * half + 1]);
}

__device__ bool has_bit(uint32_t word, int j, int e) {
  return word >> (7 + 8 * e - j) & 1;
}

template <typename Pass>
__global__ void __launch_bounds__(Pass::kThreads, 1) tile_backward(const __grid_constant__ PassParams p) {
  constexpr int D = Pass::D, C = Pass::C, kThreads = Pass::kThreads, kRows = Pass::kRows;
  constexpr bool kColumns = Pass::kColumns;
  extern __shared__ uint8_t raw[];
  using Space = Pass;
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const uint32_t outer_a = base, outer_b = base + Space::kOuterBytes;
  const auto inner_a = [&](int t) {
    return base + 2 * Space::kOuterBytes + (t % kStages) * Space::kStageBytes;
  };
  const auto inner_b = [&](int t) { return inner_a(t) + Space::kInnerBytes; };
  const auto inner_c = [&](int t) { return inner_a(t) + 2 * Space::kInnerBytes; };
  const auto inner_values = [&](int t) { return inner_c(t) + Space::kMemberBytes; };
  const auto edge_words = [&](int t) { return inner_values(t) + Space::kValueBytes; };
  const auto probe_words = [&](int t) { return edge_words(t) + Space::kWordBytes; };
  const auto dropped_words = [&](int t) { return probe_words(t) + Space::kWordBytes; };

  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  const int outer_count = p.outer_lengths ? p.outer_lengths[item] : p.outer;
  const int inner_count = p.inner_lengths ? p.inner_lengths[item] : p.inner;
  const int first = blockIdx.x * kRows, outer_tile = blockIdx.x * Pass::kGroups + group;
  const int outer_tiles = (p.outer + 63) / 64, inner_tiles = (p.inner + 63) / 64;
  const int used_tiles = first < outer_count ? (inner_count + 63) / 64 : 0;
  const bool has_rows = outer_tile < outer_tiles;
  const int64_t strip = (static_cast<int64_t>(head_index) * outer_tiles + (has_rows ? outer_tile : 0)) *
                        inner_tiles * kTileWords;
  const float* const lse2 = p.row_values + static_cast<int64_t>(head_index) * (kColumns ? p.inner : p.outer);
  const float* const ubar = lse2 + p.query_count;

  const auto load_tile = [&](int t) {
    copy_tile<D, 64, kThreads>(inner_a(t), bf16(p.inner_a.head(item, head)), p.inner_a.row_stride, t * 64,
                               inner_count);
    copy_tile<D, 64, kThreads>(inner_b(t), bf16(p.inner_b.head(item, head)), p.inner_b.row_stride, t * 64,
                               inner_count);
    if constexpr (C > 0)
      copy_tile<C, 64, kThreads>(inner_c(t), bf16(p.inner_c.head(item, head)), p.inner_c.row_stride, t * 64,
                                 inner_count);
    if constexpr (kColumns) {
      if (threadIdx.x < 128) {
        const int n = threadIdx.x % 64, token = t * 64 + n;
        const bool valid = token < inner_count;
        asm volatile(
            "cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(inner_values(t) + threadIdx.x * 4),
            "l"((threadIdx.x < 64 ? lse2 : ubar) + (valid ? token : 0)), "r"(valid ? 4 : 0)
            : "memory");
      }
    }
    const bool valid = has_rows && t < used_tiles;
    const int64_t from = strip + (valid ? static_cast<int64_t>(t) * kTileWords : 0);
    copy_words(edge_words(t), p.tiles + from, valid);
    if constexpr (Pass::kProbes) copy_words(probe_words(t), p.probes + from, valid);
    if constexpr (Pass::kDropout) copy_words(dropped_words(t), p.dropped + from, valid);
    copies_commit();
  };
  if (used_tiles > 0) {
    copy_tile<D, kRows, kThreads>(outer_a, bf16(p.outer_a.head(item, head)), p.outer_a.row_stride, first,
                                  outer_count);
    copy_tile<D, kRows, kThreads>(outer_b, bf16(p.outer_b.head(item, head)), p.outer_b.row_stride, first,
                                  outer_count);
    load_tile(0);
  }

  // In the row pass a lane's two rows have their own lse and ubar.
  float row_lse[2] = {}, row_ubar[2] = {};
  if constexpr (!kColumns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = outer_tile * 64 + warp * 16 + lane / 4 + 8 * half;
      if (row < outer_count) row_lse[half] = lse2[row], row_ubar[half] = ubar[row];
    }
  }
  const float to_log2 = p.scale * kLog2E;
  const float density = Pass::kShape && p.density_grad ? p.density_grad[head] : 0;
  const float limit = p.clip > 0 ? p.clip : INFINITY;
  const float per_rate = Pass::kProbes ? 1 / p.probe_rates[item] : 0;

  float scores[32], products[32];  // s, then a; u, then d
  float grad_a[D / 2], grad_b[kColumns ? D / 2 : 1], grad_c[C > 0 ? C / 2 : 1];
  uint32_t operand_d[16], operand_a[kColumns ? 16 : 1], operand_g[Pass::kOwnCredit ? 16 : 1];
#pragma unroll
  for (float& x : grad_a) x = 0;
#pragma unroll
  for (float& x : grad_b) x = 0;
#pragma unroll
  for (float& x : grad_c) x = 0;

  const auto multiply_scores = [&](int t) {
    const uint32_t offset = group * 64 * TileLayout<D>::kRowBytes;
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      score_product(scores, along_row<D, kRows>(outer_a + offset, step), along_row<D, 64>(inner_a(t), step),
                    step > 0);
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      score_product(products, along_row<D, kRows>(outer_b + offset, step), along_row<D, 64>(inner_b(t), step),
                    step > 0);
    products_commit();
  };
  // scores <- a, products <- d. For an absent pair a may pass 1 (a probe's share is a / (1 + a)); 2^100
  // stands for infinity. With dropout, u counts 1 / (1 - p) for an edge that is kept, 0 for one that is not;
  // a probe has no dropout.
  const auto weigh = [&](int t) {
    const uint32_t edge_word = Pass::kDropout && Pass::kProbes ? own_word(edge_words(t)) : 0;
    const uint32_t dropped_word = Pass::kDropout ? own_word(dropped_words(t)) : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float column_lse[2], column_ubar[2];
      if constexpr (kColumns) {
        const uint32_t at = inner_values(t) + (8 * j + 2 * (lane % 4)) * 4;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(column_lse[0]), "=f"(column_lse[1]) : "r"(at));
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(column_ubar[0]), "=f"(column_ubar[1])
                     : "r"(at + 256));
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float l = kColumns ? column_lse[e & 1] : row_lse[e >> 1],
                    u = kColumns ? column_ubar[e & 1] : row_ubar[e >> 1];
        float a = exp2_fast(scores[4 * j + e] * to_log2 - l);
        if constexpr (Pass::kProbes) a = fminf(a, 0x1.0p100f);
        scores[4 * j + e] = a;
        float value = products[4 * j + e];
        if constexpr (Pass::kDropout) {
          const float scale = Pass::kProbes && !has_bit(edge_word, j, e) ? 1 : p.keep_scale;
          value = has_bit(dropped_word, j, e) ? 0 : value * scale;
        }
        products[4 * j + e] = a * (value - u);
      }
    }
  };
  const auto credit_of = [&](float a, float d, float l) {
    float g = d;
    if (p.paper) g *= fmaxf(__log2f(a) + l, -1e30f) * kLn2;  // d s
    return fminf(fmaxf(g + density, -limit), limit);
  };
  // The operands of the output products, after the last ones have been read.
  const auto pack = [&](int t) {
    const uint32_t word = own_word(edge_words(t)), probe_word = Pass::kProbes ? own_word(probe_words(t)) : 0;
    const uint32_t dropped_word = Pass::kDropout && kColumns ? own_word(dropped_words(t)) : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t upper, lower;
      pair_masks(word, j, upper, lower);
      const float *a = scores + 4 * j, *d = products + 4 * j;
      operand_d[2 * j] = pack_bf16(d[0], d[1]) & upper;
      operand_d[2 * j + 1] = pack_bf16(d[2], d[3]) & lower;
      if constexpr (kColumns) {
        const float keep = Pass::kDropout ? p.keep_scale : 1;
        operand_a[2 * j] = pack_bf16(a[0] * keep, a[1] * keep) & upper;
        operand_a[2 * j + 1] = pack_bf16(a[2] * keep, a[3] * keep) & lower;
        if constexpr (Pass::kDropout) {
          uint32_t dropped_upper, dropped_lower;
          pair_masks(dropped_word, j, dropped_upper, dropped_lower);
          operand_a[2 * j] &= ~dropped_upper;
          operand_a[2 * j + 1] &= ~dropped_lower;
        }
      }
      if constexpr (Pass::kOwnCredit) {
        uint32_t g[2] = {operand_d[2 * j], operand_d[2 * j + 1]};
        if constexpr (Pass::kShape) {
          float l[4] = {};
          if (p.paper) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if constexpr (kColumns)
                asm volatile("ld.shared.f32 %0, [%1];"
                             : "=f"(l[e])
                             : "r"(inner_values(t) + (8 * j + 2 * (lane % 4) + (e & 1)) * 4));
              else
                l[e] = row_lse[e >> 1];
            }
          }
          g[0] = pack_bf16(credit_of(a[0], d[0], l[0]), credit_of(a[1], d[1], l[1])) & upper;
          g[1] = pack_bf16(credit_of(a[2], d[2], l[2]), credit_of(a[3], d[3], l[3])) & lower;
        }
        if constexpr (Pass::kProbes) {
          uint32_t probe_upper, probe_lower;
          pair_masks(probe_word, j, probe_upper, probe_lower);
          float probe[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) probe[e] = d[e] * per_rate * reciprocal(1 + a[e]);
          g[0] |= pack_bf16(probe[0], probe[1]) & probe_upper;
          g[1] |= pack_bf16(probe[2], probe[3]) & probe_lower;
        }
        operand_g[2 * j] = g[0];
        operand_g[2 * j + 1] = g[1];
      }
    }
  };

  if (used_tiles > 0) {
    load_tile(1);
    copies_wait<1>();
    publish_copies();
    __syncthreads();
    products_begin();
    multiply_scores(0);
    products_wait<0>();
    settle(scores);
    settle(products);
    weigh(0);
    pack(0);
    for (int t = 0; t < used_tiles; ++t) {
      // Tile t + 1 has arrived for everyone; and everyone is done with tile t - 1, whose place tile t + 2
      // takes.
      copies_wait<0>();
      publish_copies();
      __syncthreads();
      load_tile(t + 2);
      settle(scores);
      settle(products);
      settle(grad_a);
      settle(grad_b);
      settle(grad_c);
      products_begin();
      multiply_scores(t + 1);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        output_product(grad_a, operand_d + 4 * step, down_rows<D, 64>(inner_a(t), step));
        if constexpr (kColumns)
          output_product(grad_b, operand_a + 4 * step, down_rows<D, 64>(inner_b(t), step));
        if constexpr (C > 0)
          output_product(grad_c, (Pass::kOwnCredit ? operand_g : operand_d) + 4 * step,
                         down_rows<C, 64>(inner_c(t), step));
      }
      products_commit();
      products_wait<1>();
      settle(scores);
      settle(products);
      weigh(t + 1);
      products_wait<0>();
      settle(grad_a);
      settle(grad_b);
      settle(grad_c);
      pack(t + 1);
    }
    copies_wait<0>();
  }
  if (!has_rows) return;
  const int first_row = outer_tile * 64;
  const auto store_bf16 = [&](const HeadTensor<Bf16>& to, float factor) {
    auto* const out = to.head(item, head);
    return [=, &p](int row, int column, float x, float y) {
      if (first_row + row < p.outer)
        *reinterpret_cast<uint32_t*>(out + (first_row + row) * to.row_stride + column) =
            pack_bf16(x * factor, y * factor);
    };
  };
  each_output<D>(grad_a, store_bf16(p.grad_a, p.scale));
  if constexpr (kColumns) each_output<D>(grad_b, store_bf16(p.grad_b, 1));
  if constexpr (C > 0) {
    float* const out = p.grad_c.head(item, head);
    each_output<C>(grad_c, [&](int row, int column, float x, float y) {
      if (first_row + row < p.outer)
        *reinterpret_cast<float2*>(out + (first_row + row) * p.grad_c.row_stride + column) =
            make_float2(x, y);
    });
  }
}

// lse log2(e) and ubar = grad_output . output of every query; four lanes a row.
template <int D>
__global__ void row_values(const __grid_constant__ TileBackwardParams p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t rows = p.shape.batch * p.shape.heads * p.shape.queries, row = index / 4;
  const int part = index % 4;
  float sum = 0;
  if (row < rows) {
    const int64_t head_index = row / p.shape.queries, item = head_index / p.shape.heads,
                  head = head_index % p.shape.heads;
    const __nv_bfloat16* o = bf16(p.output.head(item, head)) + row % p.shape.queries * p.output.row_stride;
    const __nv_bfloat16* g =
        bf16(p.grad_output.head(item, head)) + row % p.shape.queries * p.grad_output.row_stride;
#pragma unroll
    for (int d = part * (D / 4); d < (part + 1) * (D / 4); d += 2) {
      const float2 x = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(o + d));
      const float2 y = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(g + d));
      sum += x.x * y.x + x.y * y.y;
    }
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (row < rows && part == 0) {
    p.row_values[row] = p.lse[row] * kLog2E;
    p.row_values[rows + row] = sum;
  }
}

template <typename Pass>
cudaError_t launch_pass(const PassParams& params, cudaStream_t stream) {
  auto* const kernel = tile_backward<Pass>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Pass::kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((params.outer + Pass::kRows - 1) / Pass::kRows, params.batch * params.heads);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, Pass::kThreads, Pass::kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <int D, int C, int kCredit>
cudaError_t launch_both(const TileBackwardParams& p, cudaStream_t stream) {
  const TileCreditParams& credit = p.credit;
  const int64_t rows = p.shape.batch * p.shape.heads * p.shape.queries;
  if (rows > 0) row_values<D><<<static_cast<unsigned>((rows * 4 + 255) / 256), 256, 0, stream>>>(p);
  PassParams pass{};
  pass.batch = static_cast<int>(p.shape.batch);
  pass.heads = static_cast<int>(p.shape.heads);
  pass.scale = p.scale;
  pass.row_values = p.row_values;
  pass.query_count = rows;
  pass.paper = credit.paper;
  pass.clip = credit.clip;
  pass.keep_scale = p.keep_scale;
  pass.density_grad = credit.density_grad;
  pass.probe_rates = credit.probe_rates;

  pass.outer = static_cast<int>(p.shape.queries);
  pass.inner = static_cast<int>(p.shape.keys);
  pass.outer_a = p.query, pass.inner_a = p.key, pass.outer_b = p.grad_output, pass.inner_b = p.value;
  pass.inner_c = credit.key_side;
  pass.tiles = p.tiles, pass.probes = credit.probes, pass.dropped = p.dropped;
  pass.outer_lengths = p.query_lengths, pass.inner_lengths = p.key_lengths;
  pass.grad_a = p.query_grad, pass.grad_c = credit.query_membership_grad;
  if (const cudaError_t error = launch_pass<Pass<D, C, false, kCredit>>(pass, stream); error != cudaSuccess)
    return error;

  pass.outer = static_cast<int>(p.shape.keys);
  pass.inner = static_cast<int>(p.shape.queries);
  pass.outer_a = p.key, pass.inner_a = p.query, pass.outer_b = p.value, pass.inner_b = p.grad_output;
  pass.inner_c = credit.query_membership;
  pass.tiles = p.tiles_transposed, pass.probes = credit.probes_transposed,
  pass.dropped = p.dropped_transposed;
  pass.outer_lengths = p.key_lengths, pass.inner_lengths = p.query_lengths;
  pass.grad_a = p.key_grad, pass.grad_b = p.value_grad, pass.grad_c = credit.key_side_grad;
  return launch_pass<Pass<D, C, true, kCredit>>(pass, stream);
}

template <int D, int C, int kCredit>
cudaError_t launch_dropout(const TileBackwardParams& p, cudaStream_t stream) {
  return p.dropped ? launch_both<D, C, kCredit | kDropped>(p, stream) : launch_both<D, C, kCredit>(p, stream);
}

// Whatever shapes the credit is rare enough to share one kernel, with and without probes.
template <int D, int C>
cudaError_t launch_credit(const TileBackwardParams& p, cudaStream_t stream) {
  const TileCreditParams& credit = p.credit;
  if (credit.paper || credit.clip > 0 || credit.density_grad)
    return credit.probes ? launch_dropout<D, C, kProbed | kShaped>(p, stream)
                         : launch_dropout<D, C, kShaped>(p, stream);
  return credit.probes ? launch_dropout<D, C, kProbed>(p, stream) : launch_dropout<D, C, kSame>(p, stream);
}

template <int D>
cudaError_t launch_clusters(const TileBackwardParams& p, cudaStream_t stream) {
  switch (p.credit.clusters) {
    case 0:
      return launch_dropout<D, 0, kSame>(p, stream);
    case 32:
      return launch_credit<D, 32>(p, stream);
    case 128:
      if constexpr (D <= 32) return launch_credit<D, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool tile_backward_takes(int64_t head_dim, int64_t clusters) {
  return (head_dim == 32 && (clusters == 0 || clusters == 32 || clusters == 128)) ||
         (head_dim == 64 && (clusters == 0 || clusters == 32));
}

int launch_tile_backward(const TileBackwardParams& p, Stream stream) {
  switch (p.head_dim) {
    case 32:
      return launch_clusters<32>(p, static_cast<cudaStream_t>(stream));
    case 64:
      return launch_clusters<64>(p, static_cast<cudaStream_t>(stream));
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
