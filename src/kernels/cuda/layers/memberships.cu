// Memberships of an SBM and their gradients (membership_params.h), for head dims D of 32 and 64. A warp takes
// 16 tokens through all layers in registers: what a product leaves in a lane is what the next one wants of it
// as left operand. Weights lie in shared memory in the order in which lanes read them.
//
// The gradients of weights are sums over tokens. Four warps leave what they know of 64 tokens in shared
// memory, and each adds up its own share of the numbers, so that a result does not depend on who came first.
#include <cuda_bf16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_words.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/layers/membership_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kClusters = kMembershipClusters;
constexpr int kWarps = 4, kThreads = 32 * kWarps, kTile = 16;  // tokens of a warp at a time
constexpr int kTilesOfBlock = 8 * kWarps;                      // forward
constexpr int kMostGradBlocks = 264;                           // backward: two an SM, all at once

// 16 tokens x 8 N numbers, as products give them: [column / 8][0, 1 | 2, 3] is row g | g + 8 of columns
// 8 n + 2 t, + 1 (lane = 4 g + t).
template <int N>
using Numbers = float[N][4];
// 16 tokens x 16 K numbers in bf16 as left operand: [column / 16][2 half + r] is row g + 8 r of columns
// 16 s + 8 half + 2 t, + 1.
template <int K>
using Operand = uint32_t[K][4];

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

// A right operand, of which number_at(n, k) is multiplied with number k < 16 K of a token and added to number
// n < 8 N.
template <int N, int K>
struct Weights {
  uint4 words[N][K / 2][32];
};
template <int N, int K, typename NumberAt>
__device__ void prepare(Weights<N, K>& weights, const NumberAt& number_at) {
  for (int at = threadIdx.x; at < N * K / 2 * 32; at += kThreads) {
    const int lane = at % 32, s = at / 32 % (K / 2), tile = at / 32 / (K / 2), n = 8 * tile + lane / 4,
              first = 32 * s + 2 * (lane % 4);
    const auto pair = [&](int k) { return packed(number_at(n, first + k), number_at(n, first + k + 1)); };
    weights.words[tile][s][lane] = make_uint4(pair(0), pair(8), pair(16), pair(24));
  }
}
// numbers += operand weights.
template <int N, int K>
__device__ void add_product(float (&numbers)[N][4], const uint32_t (&operand)[K][4],
                            const Weights<N, K>& weights) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int s = 0; s < K / 2; ++s) {
      const uint4 word = weights.words[n][s][threadIdx.x % 32];
      multiply(numbers[n], operand[2 * s], word.x, word.y);
      multiply(numbers[n], operand[2 * s + 1], word.z, word.w);
    }
}
template <int K, int N>
__device__ void round_to_operand(uint32_t (&to)[K][4], const float (&from)[N][4]) {
  static_assert(N == 2 * K);
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r) to[n / 2][n % 2 * 2 + r] = packed(from[n][2 * r], from[n][2 * r + 1]);
}
template <int N>
__device__ void set(float (&numbers)[N][4], float value) {
#pragma unroll
  for (auto& column : numbers)
#pragma unroll
    for (float& x : column) x = value;
}
template <int N>
__device__ void set_rows(float (&numbers)[N][4], const float* bias) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) numbers[n][e] = bias[8 * n + threadIdx.x % 4 * 2 + e % 2];
}

// Numbers of 16 tokens from `first` on, of rows of 16 K bf16; 0 beyond the last token.
template <int K>
__device__ void load_tokens(uint32_t (&to)[K][4], const Bf16* rows, int64_t stride, int64_t first,
                            int64_t tokens) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t token = first + g + 8 * r;
    const auto* const from = reinterpret_cast<const uint32_t*>(rows + token * stride);
#pragma unroll
    for (int n = 0; n < 2 * K; ++n) to[n / 2][n % 2 * 2 + r] = token < tokens ? __ldg(from + 4 * n + t) : 0;
  }
}
template <int K>
__device__ void store_tokens(const uint32_t (&from)[K][4], Bf16* rows, int64_t stride, int64_t first,
                             int64_t tokens) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t token = first + g + 8 * r;
    if (token >= tokens) continue;
    auto* const to = reinterpret_cast<uint32_t*>(rows + token * stride);
#pragma unroll
    for (int n = 0; n < 2 * K; ++n) to[4 * n + t] = from[n / 2][n % 2 * 2 + r];
  }
}

// The weights that both passes read.
template <int D>
struct Layers {
  Weights<D / 8, D / 16> first, second;
  Weights<kClusters / 8, D / 16> clusters;
  float bias1[D], bias2[D];
};
template <int D>
__device__ void prepare_layers(Layers<D>& layers, const MembershipInputs& in, int head) {
  prepare(layers.first, [&](int n, int k) { return in.weight1[n * D + k]; });
  prepare(layers.second, [&](int n, int k) { return in.weight2[n * D + k]; });
  prepare(layers.clusters, [&](int n, int k) { return in.clusters[(head * kClusters + n) * D + k]; });
  if (threadIdx.x < D) {
    layers.bias1[threadIdx.x] = in.bias1[threadIdx.x];
    layers.bias2[threadIdx.x] = in.bias2[threadIdx.x];
  }
}

// What 16 tokens become.
template <int D>
struct Tokens {
  Operand<D / 16> node, hidden, projected;
  Numbers<kClusters / 8> membership;

  __device__ void compute(const Layers<D>& layers, float shift) {
    Numbers<D / 8> numbers;
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
template <int N>
struct ColumnSums {
  float sum[N][2] = {};

  __device__ void add(const float (&numbers)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[n][e % 2] += numbers[n][e];
  }
  // Of the warp, to out[column].
  __device__ void write(float* out) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float all = sum[n][e];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) all += __shfl_xor_sync(~0u, all, step);
        if (threadIdx.x % 32 < 4) out[8 * n + threadIdx.x % 4 * 2 + e] = all;
      }
  }
};
// out[column] of all warps; all threads take part.
template <int W>
__device__ void add_up(float* out, const float (&of_warps)[kWarps][W]) {
  if (threadIdx.x >= W) return;
  float all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += of_warps[w][threadIdx.x];
  out[threadIdx.x] = all;
}

__device__ bool counts(const uint8_t* mask, int64_t item, int64_t token, int64_t tokens) {
  return token < tokens && (!mask || mask[item * tokens + token]);
}

// Blocks (tiles of one head, 2 B H): queries, then keys.
template <int D>
__global__ void __launch_bounds__(kThreads) memberships(const __grid_constant__ MembershipParams p) {
  __shared__ Layers<D> layers;
  __shared__ Weights<kClusters / 8, kClusters / 16> blocks;
  __shared__ float sums[kWarps][kClusters];
  const MembershipInputs& in = p.in;
  const int all_heads = static_cast<int>(in.batch * in.heads), side = blockIdx.y / all_heads,
            head_index = blockIdx.y % all_heads, item = head_index / static_cast<int>(in.heads),
            head = head_index % static_cast<int>(in.heads);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  prepare_layers(layers, in, head);
  prepare(blocks, [&](int n, int k) { return in.blocks[(head * kClusters + n) * kClusters + k]; });
  __syncthreads();

  const int64_t tokens = in.tokens[side];
  const Bf16* const rows = in.nodes[side].head(item, head);
  ColumnSums<kClusters / 8> column_sums;
  for (int tile = warp; tile < kTilesOfBlock; tile += kWarps) {
    const int64_t first = (static_cast<int64_t>(blockIdx.x) * kTilesOfBlock + tile) * kTile;
    if (first >= tokens) break;
    Tokens<D> x;
    load_tokens(x.node, rows, in.nodes[side].row_stride, first, tokens);
    x.compute(layers, in.shift);
    Operand<kClusters / 16> result;
    round_to_operand(result, x.membership);
    if (side == 1) {
      Numbers<kClusters / 8> mixed;
      set(mixed, 0);
      add_product(mixed, result, blocks);
      round_to_operand(result, mixed);
    }
    store_tokens(result, p.memberships[side].head(item, head), p.memberships[side].row_stride, first, tokens);
    Numbers<kClusters / 8> counted;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool valid = counts(in.masks[side], item, first + g + 8 * r, tokens);
#pragma unroll
      for (int n = 0; n < kClusters / 8; ++n) {
        const uint32_t pair = valid ? result[n / 2][n % 2 * 2 + r] : 0;
        counted[n][2 * r] = low_half(pair), counted[n][2 * r + 1] = high_half(pair);
      }
    }
    column_sums.add(counted);
  }
  column_sums.write(sums[warp]);
  __syncthreads();
  add_up(p.sum_parts + (static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * kClusters, sums);
}

// W numbers in bf16 of the tokens of all warps. Rows are 16 bytes longer, so that those which `ldmatrix`
// reads at once, and those which eight lanes write, lie in different banks.
template <int W>
struct TokenRows {
  static constexpr int kPitch = W + 8;
  alignas(16) uint16_t numbers[kWarps * kTile][kPitch];

  template <int K>
  __device__ void keep(const uint32_t (&operand)[K][4]) {
    static_assert(W == 16 * K);
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < 2 * K; ++n)
        store_word(word_address(&numbers[warp * kTile + g + 8 * r][8 * n + 2 * t]),
                   operand[n / 2][n % 2 * 2 + r]);
  }
};

// Sums over tokens of left[o] right[i], o < 16 M, i < 16 N. A warp has every fourth part of 16 x 16 numbers:
// [part][i / 8], each as a product leaves it.
template <int M, int N>
struct OuterSums {
  static constexpr int kParts = M * N / kWarps;
  static_assert(M * N % kWarps == 0);
  float sum[kParts][2][4] = {};

  static __device__ int part(int p) { return threadIdx.x / 32 + p * kWarps; }
  __device__ void add(const TokenRows<16 * M>& left, const TokenRows<16 * N>& right) {
    const int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int o = part(p) / N * 16, i = part(p) % N * 16;
#pragma unroll
      for (int k = 0; k < kWarps * kTile; k += 16) {
        // Matrices: left, outputs 0 and 8 of tokens 0, then of tokens 8; right, tokens 0 and 8 of inputs 0,
        // then of inputs 8.
        uint32_t a[4], b[4];
        load_transposed(a, word_address(&left.numbers[k + matrix / 2 * 8 + row][o + matrix % 2 * 8]));
        load_transposed(b, word_address(&right.numbers[k + matrix % 2 * 8 + row][i + matrix / 2 * 8]));
        multiply(sum[p][0], a, b[0], b[1]);
        multiply(sum[p][1], a, b[2], b[3]);
      }
    }
  }
  // To out [16 M, 16 N].
  __device__ void write(float* out) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          out[(part(p) / N * 16 + g + e / 2 * 8) * (16 * N) + part(p) % N * 16 + 8 * half + 2 * t + e % 2] =
              sum[p][half][e];
  }
};

template <int D>
struct GradShared {
  Layers<D> layers;
  // For the way back.
  Weights<kClusters / 8, kClusters / 16> blocks;
  Weights<D / 8, kClusters / 16> clusters;
  Weights<D / 8, D / 16> second, first;
  // Left and right factors of the gradients of weights: of the block matrix, the clusters, W2 and W1.
  TokenRows<kClusters> mixed_grad, membership, cluster_grad;
  TokenRows<D> projected, second_grad, hidden, first_grad, node;
  float bias_sums[2][kWarps][D];
};

// Blocks (part, 2 H): a part of the tiles of a head in all items, queries, then keys.
template <int D>
__global__ void __launch_bounds__(kThreads, 2)
    membership_grads(const __grid_constant__ MembershipGradParams p) {
  auto& shared = *reinterpret_cast<GradShared<D>*>(dynamic_shared());
  const MembershipInputs& in = p.in;
  const int heads = static_cast<int>(in.heads), side = blockIdx.y / heads, head = blockIdx.y % heads;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  prepare_layers(shared.layers, in, head);
  prepare(shared.blocks, [&](int n, int k) { return in.blocks[(head * kClusters + k) * kClusters + n]; });
  prepare(shared.clusters, [&](int n, int k) { return in.clusters[(head * kClusters + k) * D + n]; });
  prepare(shared.second, [&](int n, int k) { return in.weight2[k * D + n]; });
  prepare(shared.first, [&](int n, int k) { return in.weight1[k * D + n]; });
  __syncthreads();

  const int64_t tokens = in.tokens[side], tiles = (tokens + kTile - 1) / kTile;
  OuterSums<kClusters / 16, kClusters / 16> block_sums;
  OuterSums<kClusters / 16, D / 16> cluster_sums;
  OuterSums<D / 16, D / 16> second_sums, first_sums;
  ColumnSums<D / 8> bias1_grad, bias2_grad;
  for (int64_t turn = static_cast<int64_t>(blockIdx.x) * kWarps; turn < in.batch * tiles;
       turn += static_cast<int64_t>(gridDim.x) * kWarps) {
    // Warps meet below: one without a tile works on tokens beyond the last, of which every gradient is 0.
    const bool has_tile = turn + warp < in.batch * tiles;
    const int64_t item = has_tile ? (turn + warp) / tiles : 0,
                  start = has_tile ? (turn + warp) % tiles * kTile : tokens;
    Tokens<D> x;
    load_tokens(x.node, in.nodes[side].head(item, head), in.nodes[side].row_stride, start, tokens);
    x.compute(shared.layers, in.shift);
    shared.node.keep(x.node);
    shared.hidden.keep(x.hidden);
    shared.projected.keep(x.projected);

    // The gradient of what went out, and of the membership.
    Numbers<kClusters / 8> grad;
    Operand<kClusters / 16> given = {};
    if (p.grads[side].data)
      load_tokens(given, p.grads[side].head(item, head), p.grads[side].row_stride, start, tokens);
    const float* const of_sums =
        p.sum_grads ? p.sum_grads + ((side * in.batch + item) * heads + head) * kClusters : nullptr;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool counted = of_sums && counts(in.masks[side], item, start + g + 8 * r, tokens);
#pragma unroll
      for (int n = 0; n < kClusters / 8; ++n) {
        const uint32_t pair = given[n / 2][n % 2 * 2 + r];
        grad[n][2 * r] = low_half(pair) + (counted ? of_sums[8 * n + 2 * t] : 0);
        grad[n][2 * r + 1] = high_half(pair) + (counted ? of_sums[8 * n + 2 * t + 1] : 0);
      }
    }
    Operand<kClusters / 16> narrow;
    if (side == 1) {
      round_to_operand(narrow, x.membership);
      shared.membership.keep(narrow);
      round_to_operand(narrow, grad);
      shared.mixed_grad.keep(narrow);
      set(grad, 0);
      add_product(grad, narrow, shared.blocks);
    }
#pragma unroll
    for (int n = 0; n < kClusters / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) grad[n][e] *= x.membership[n][e] * (1 - x.membership[n][e]);

    // Back through the products.
    round_to_operand(narrow, grad);
    shared.cluster_grad.keep(narrow);
    Numbers<D / 8> wide;
    Operand<D / 16> operand;
    set(wide, 0);
    add_product(wide, narrow, shared.clusters);
    bias2_grad.add(wide);
    round_to_operand(operand, wide);
    shared.second_grad.keep(operand);
    set(wide, 0);
    add_product(wide, operand, shared.second);
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t pair = x.hidden[n / 2][n % 2 * 2 + r];  // 0 where it was cut off
        if (!(pair & 0xFFFFu)) wide[n][2 * r] = 0;
        if (!(pair >> 16)) wide[n][2 * r + 1] = 0;
      }
    bias1_grad.add(wide);
    round_to_operand(operand, wide);
    shared.first_grad.keep(operand);
    set(wide, 0);
    add_product(wide, operand, shared.first);
    round_to_operand(operand, wide);
    store_tokens(operand, p.node_grads[side].head(item, head), p.node_grads[side].row_stride, start, tokens);

    __syncthreads();
    if (side == 1) block_sums.add(shared.mixed_grad, shared.membership);
    cluster_sums.add(shared.cluster_grad, shared.projected);
    second_sums.add(shared.second_grad, shared.hidden);
    first_sums.add(shared.first_grad, shared.node);
    __syncthreads();
  }
  float* out = p.grad_parts + ((head * 2 + side) * p.parts + blockIdx.x) * membership_grads_of(D);
  const auto write = [&](const auto& sums, int numbers) {
    sums.write(out);
    out += numbers;
  };
  write(cluster_sums, kClusters * D);
  write(block_sums, kClusters * kClusters);
  write(first_sums, D * D);
  write(second_sums, D * D);
  bias1_grad.write(shared.bias_sums[0][warp]);
  bias2_grad.write(shared.bias_sums[1][warp]);
  __syncthreads();
  add_up(out, shared.bias_sums[0]);
  add_up(out + D, shared.bias_sums[1]);
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
  if (!takes_membership_dim(p.in.dim)) return cudaErrorInvalidValue;
  launch(p.in.dim == 32 ? memberships<32> : memberships<64>, grid, kThreads,
         static_cast<cudaStream_t>(stream), p);
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
  const auto run = [&](auto kernel, size_t bytes) {
    return launch_with_shared(kernel, grid, kThreads, bytes, static_cast<cudaStream_t>(stream), p);
  };
  cudaError_t error = cudaErrorInvalidValue;
  if (p.in.dim == 32) error = run(membership_grads<32>, sizeof(GradShared<32>));
  if (p.in.dim == 64) error = run(membership_grads<64>, sizeof(GradShared<64>));
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
