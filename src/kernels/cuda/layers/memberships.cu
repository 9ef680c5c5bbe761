// Memberships of an SBM and their gradients (membership_params.h). A warp takes 16 tokens through all layers
// in registers: what a product leaves in a lane is what the next one wants of it as left operand. Weights lie
// in shared memory in the order in which lanes read them. Sums over tokens stay in registers, are added up
// warp after warp and left for each thread block apart, so that a result does not depend on who came first.
#include <cuda_bf16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/layers/membership_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWidth = kMembershipWidth, kSquare = kWidth * kWidth;
constexpr int kWarps = 4, kThreads = 32 * kWarps, kTile = 16;  // tokens of a warp at a time
constexpr int kTilesOfBlock = 8 * kWarps;                      // forward
constexpr int kMostGradBlocks = 264;                           // backward: two an SM, all at once

// 16 tokens x 32 numbers, as products give them: [column / 8][0, 1 | 2, 3] is row g | g + 8 of columns
// 8 n + 2 t, + 1 (lane = 4 g + t).
using Numbers = float[4][4];
// The same in bf16 as left operand: [column / 16][2 half + r] is row g + 8 r of columns 16 s + 8 half + 2 t,
// + 1.
using Operand = uint32_t[2][4];

__device__ uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &both, sizeof bits);
  return bits;
}
__device__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// A 32 x 32 right operand, of which number_at(n, k) is multiplied with number k of a token and added to
// number n.
struct Weights {
  uint4 words[4 * 32];
};
template <typename NumberAt>
__device__ void prepare(Weights& weights, const NumberAt& number_at) {
  static_assert(kThreads == 4 * 32);
  const int n = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto pair = [&](int k) { return packed(number_at(n, k + 2 * t), number_at(n, k + 2 * t + 1)); };
  weights.words[threadIdx.x] = make_uint4(pair(0), pair(8), pair(16), pair(24));
}
// numbers += operand weights.
__device__ void add_product(Numbers& numbers, const Operand& operand, const Weights& weights) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const uint4 word = weights.words[n * 32 + threadIdx.x % 32];
    multiply(numbers[n], operand[0], word.x, word.y);
    multiply(numbers[n], operand[1], word.z, word.w);
  }
}
__device__ void round_to_operand(Operand& to, const Numbers& from) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r) to[n / 2][n % 2 * 2 + r] = packed(from[n][2 * r], from[n][2 * r + 1]);
}
__device__ void set(Numbers& numbers, float value) {
#pragma unroll
  for (auto& column : numbers)
#pragma unroll
    for (float& x : column) x = value;
}
__device__ void set_rows(Numbers& numbers, const float* bias) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) numbers[n][e] = bias[8 * n + threadIdx.x % 4 * 2 + e % 2];
}

// Numbers of 16 tokens from `first` on, of rows of 32 bf16.
__device__ void load_tokens(Operand& to, const Bf16* rows, int64_t stride, int64_t first, int64_t tokens) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t token = first + g + 8 * r;
    const auto* const from = reinterpret_cast<const uint32_t*>(rows + token * stride);
#pragma unroll
    for (int n = 0; n < 4; ++n) to[n / 2][n % 2 * 2 + r] = token < tokens ? __ldg(from + 4 * n + t) : 0;
  }
}
__device__ void store_tokens(const Operand& from, Bf16* rows, int64_t stride, int64_t first, int64_t tokens) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t token = first + g + 8 * r;
    if (token >= tokens) continue;
    auto* const to = reinterpret_cast<uint32_t*>(rows + token * stride);
#pragma unroll
    for (int n = 0; n < 4; ++n) to[4 * n + t] = from[n / 2][n % 2 * 2 + r];
  }
}

// The weights that both passes read.
struct Layers {
  Weights first, second, clusters;
  float bias1[kWidth], bias2[kWidth];
};
__device__ void prepare_layers(Layers& layers, const MembershipInputs& in, int head) {
  prepare(layers.first, [&](int n, int k) { return in.weight1[n * kWidth + k]; });
  prepare(layers.second, [&](int n, int k) { return in.weight2[n * kWidth + k]; });
  prepare(layers.clusters, [&](int n, int k) { return in.clusters[head * kSquare + n * kWidth + k]; });
  if (threadIdx.x < kWidth) {
    layers.bias1[threadIdx.x] = in.bias1[threadIdx.x];
    layers.bias2[threadIdx.x] = in.bias2[threadIdx.x];
  }
}

// What 16 tokens become.
struct Tokens {
  Operand node, hidden, projected;
  Numbers membership;

  __device__ void compute(const Layers& layers, float shift) {
    Numbers numbers;
    set_rows(numbers, layers.bias1);
    add_product(numbers, node, layers.first);
#pragma unroll
    for (auto& column : numbers)
#pragma unroll
      for (float& x : column) x = x <= 0 ? 0 : x;  // NaN stays
    round_to_operand(hidden, numbers);
    set_rows(numbers, layers.bias2);
    add_product(numbers, hidden, layers.second);
    round_to_operand(projected, numbers);
    set(membership, 0);
    add_product(membership, projected, layers.clusters);
#pragma unroll
    for (auto& column : membership)
#pragma unroll
      for (float& x : column) x = __fdividef(1, 1 + __expf(-(x + shift)));
  }
};

// Sums over the rows of many tiles.
struct ColumnSums {
  float sum[4][2] = {};

  __device__ void add(const Numbers& numbers) {
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[n][e % 2] += numbers[n][e];
  }
  // Of the warp, to out[column]; or to what is there already.
  __device__ void write(float* out, bool add_to) {
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float all = sum[n][e];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) all += __shfl_xor_sync(~0u, all, step);
        float& to = out[8 * n + threadIdx.x % 4 * 2 + e];
        if (threadIdx.x % 32 < 4) to = add_to ? to + all : all;
      }
  }
};

__device__ bool counts(const uint8_t* mask, int64_t item, int64_t token, int64_t tokens) {
  return token < tokens && (!mask || mask[item * tokens + token]);
}

// Blocks (tiles of one head, 2 B H): queries, then keys.
__global__ void __launch_bounds__(kThreads) memberships(const __grid_constant__ MembershipParams p) {
  __shared__ Layers layers;
  __shared__ Weights blocks;
  __shared__ float sums[kWarps][kWidth];
  const MembershipInputs& in = p.in;
  const int all_heads = static_cast<int>(in.batch * in.heads), side = blockIdx.y / all_heads,
            head_index = blockIdx.y % all_heads, item = head_index / static_cast<int>(in.heads),
            head = head_index % static_cast<int>(in.heads);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  prepare_layers(layers, in, head);
  prepare(blocks, [&](int n, int k) { return in.blocks[head * kSquare + n * kWidth + k]; });
  __syncthreads();

  const int64_t tokens = in.tokens[side];
  const Bf16* const rows = in.nodes[side].head(item, head);
  ColumnSums column_sums;
  for (int tile = warp; tile < kTilesOfBlock; tile += kWarps) {
    const int64_t first = (static_cast<int64_t>(blockIdx.x) * kTilesOfBlock + tile) * kTile;
    if (first >= tokens) break;
    Tokens x;
    load_tokens(x.node, rows, in.nodes[side].row_stride, first, tokens);
    x.compute(layers, in.shift);
    Operand result;
    round_to_operand(result, x.membership);
    if (side == 1) {
      Numbers mixed;
      set(mixed, 0);
      add_product(mixed, result, blocks);
      round_to_operand(result, mixed);
    }
    store_tokens(result, p.memberships[side].head(item, head), p.memberships[side].row_stride, first, tokens);
    Numbers counted;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool valid = counts(in.masks[side], item, first + g + 8 * r, tokens);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t pair = valid ? result[n / 2][n % 2 * 2 + r] : 0;
        counted[n][2 * r] = low_half(pair), counted[n][2 * r + 1] = high_half(pair);
      }
    }
    column_sums.add(counted);
  }
  column_sums.write(sums[warp], false);
  __syncthreads();
  if (threadIdx.x < kWidth) {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) all += sums[w][threadIdx.x];
    p.sum_parts[(static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kWidth + threadIdx.x] = all;
  }
}

// Sums over tokens of left[o] right[i]: [o / 16][i / 8], each as a product leaves it.
struct OuterSums {
  float sum[2][4][4] = {};

  __device__ void add(const Operand& left, const Operand& right) {
    uint32_t columns[4][2];
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) columns[n][r] = transposed(right[n / 2][n % 2 * 2 + r]);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint32_t rows[4] = {transposed(left[m][0]), transposed(left[m][2]), transposed(left[m][1]),
                                transposed(left[m][3])};
#pragma unroll
      for (int n = 0; n < 4; ++n) multiply(sum[m][n], rows, columns[n][0], columns[n][1]);
    }
  }
  __device__ void write(float* out, bool add_to) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& to = out[(16 * m + g + e / 2 * 8) * kWidth + 8 * n + 2 * t + e % 2];
          to = add_to ? to + sum[m][n][e] : sum[m][n][e];
        }
  }
};

// Blocks (part, 2 H): a part of the tiles of a head in all items, queries, then keys.
__global__ void __launch_bounds__(kThreads, 2)
    membership_grads(const __grid_constant__ MembershipGradParams p) {
  __shared__ Layers layers;
  __shared__ Weights blocks, clusters, second, first;  // for the way back
  __shared__ float totals[kMembershipGrads];
  const MembershipInputs& in = p.in;
  const int heads = static_cast<int>(in.heads), side = blockIdx.y / heads, head = blockIdx.y % heads;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  prepare_layers(layers, in, head);
  prepare(blocks, [&](int n, int k) { return in.blocks[head * kSquare + k * kWidth + n]; });
  prepare(clusters, [&](int n, int k) { return in.clusters[head * kSquare + k * kWidth + n]; });
  prepare(second, [&](int n, int k) { return in.weight2[k * kWidth + n]; });
  prepare(first, [&](int n, int k) { return in.weight1[k * kWidth + n]; });
  __syncthreads();

  const int64_t tokens = in.tokens[side], tiles = (tokens + kTile - 1) / kTile;
  OuterSums cluster_grad, block_grad, weight1_grad, weight2_grad;
  ColumnSums bias1_grad, bias2_grad;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + warp; index < in.batch * tiles;
       index += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t item = index / tiles, start = index % tiles * kTile;
    Tokens x;
    load_tokens(x.node, in.nodes[side].head(item, head), in.nodes[side].row_stride, start, tokens);
    x.compute(layers, in.shift);

    // The gradient of what went out, and of the membership.
    Numbers grad;
    Operand given = {};
    if (p.grads[side].data)
      load_tokens(given, p.grads[side].head(item, head), p.grads[side].row_stride, start, tokens);
    const float* const of_sums =
        p.sum_grads ? p.sum_grads + ((side * in.batch + item) * heads + head) * kWidth : nullptr;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool counted = of_sums && counts(in.masks[side], item, start + g + 8 * r, tokens);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t pair = given[n / 2][n % 2 * 2 + r];
        grad[n][2 * r] = low_half(pair) + (counted ? of_sums[8 * n + 2 * t] : 0);
        grad[n][2 * r + 1] = high_half(pair) + (counted ? of_sums[8 * n + 2 * t + 1] : 0);
      }
    }
    if (side == 1) {
      Operand mixed_grad, membership;
      round_to_operand(mixed_grad, grad);
      round_to_operand(membership, x.membership);
      block_grad.add(mixed_grad, membership);
      set(grad, 0);
      add_product(grad, mixed_grad, blocks);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) grad[n][e] *= x.membership[n][e] * (1 - x.membership[n][e]);

    // Back through the products.
    Operand operand;
    round_to_operand(operand, grad);
    cluster_grad.add(operand, x.projected);
    set(grad, 0);
    add_product(grad, operand, clusters);
    bias2_grad.add(grad);
    round_to_operand(operand, grad);
    weight2_grad.add(operand, x.hidden);
    set(grad, 0);
    add_product(grad, operand, second);
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t pair = x.hidden[n / 2][n % 2 * 2 + r];  // 0 where it was cut off
        if (!(pair & 0xFFFFu)) grad[n][2 * r] = 0;
        if (!(pair >> 16)) grad[n][2 * r + 1] = 0;
      }
    bias1_grad.add(grad);
    round_to_operand(operand, grad);
    weight1_grad.add(operand, x.node);
    set(grad, 0);
    add_product(grad, operand, first);
    round_to_operand(operand, grad);
    store_tokens(operand, p.node_grads[side].head(item, head), p.node_grads[side].row_stride, start, tokens);
  }
  for (int w = 0; w < kWarps; ++w) {
    if (warp == w) {
      cluster_grad.write(totals, w > 0);
      block_grad.write(totals + kSquare, w > 0);
      weight1_grad.write(totals + 2 * kSquare, w > 0);
      weight2_grad.write(totals + 3 * kSquare, w > 0);
      bias1_grad.write(totals + 4 * kSquare, w > 0);
      bias2_grad.write(totals + 4 * kSquare + kWidth, w > 0);
    }
    __syncthreads();
  }
  float* const out = p.grad_parts + ((head * 2 + side) * p.parts + blockIdx.x) * kMembershipGrads;
  for (int n = threadIdx.x; n < kMembershipGrads; n += kThreads) out[n] = totals[n];
}

int64_t longest(const MembershipInputs& in) {
  return in.tokens[0] > in.tokens[1] ? in.tokens[0] : in.tokens[1];
}

}  // namespace

int64_t membership_sum_parts(const MembershipInputs& in) {
  return (longest(in) + kTile * kTilesOfBlock - 1) / (kTile * kTilesOfBlock);
}

int launch_memberships(const MembershipParams& p, Stream stream) {
  if (p.in.batch * p.in.heads == 0 || longest(p.in) == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(membership_sum_parts(p.in)),
                  static_cast<unsigned>(2 * p.in.batch * p.in.heads));
  launch(memberships, grid, kThreads, static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

int64_t membership_grad_parts(const MembershipInputs& in) {
  const int64_t turns = (in.batch * ((longest(in) + kTile - 1) / kTile) + kWarps - 1) / kWarps,
                most = kMostGradBlocks / (2 * in.heads);
  return turns < 1 ? 1 : most < 1 ? 1 : turns < most ? turns : most;
}

int launch_membership_grads(const MembershipGradParams& p, Stream stream) {
  if (p.in.heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(p.parts), static_cast<unsigned>(2 * p.in.heads));
  launch(membership_grads, grid, kThreads, static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
