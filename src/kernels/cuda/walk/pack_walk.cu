// The inputs of the walk in blocks, in the order of its products' fragments (packed_walk.cuh): keys, means
// and running sums of every block, from nodes or straight from tokens; LSTM weights, keys of the random
// numbers, distances.
#include "kernels/cuda/walk/packed_walk.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kPackThreads = 256, kPackWarps = kPackThreads / 32, kEmbedStep = 64, kNodePitch = P + 1,
              kOtherBlocks = 64;
// Floats from row to row: reads of a warp meet no bank twice.
constexpr int kTokenPitch = kEmbedStep + 8, kWeightPitch = P + 4;

// Tokens times weights for the keys of a block, nearly in fp32 (walk_mma.cuh): a warp has 16 keys and 16
// numbers. keep(key, number, value).
template <typename Keep>
__device__ __forceinline__ void multiply_tokens(const PackedWalkParams& p, int unit, int begin, int size,
                                                const Keep& keep) {
  __shared__ __align__(16) float tokens[kPackedBlock][kTokenPitch];
  __shared__ __align__(16) float weights[kEmbedStep][kWeightPitch];
  const RootedParams& walk = p.walk;
  const NodeSource& source = p.source;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), g = lane / 4, t = lane % 4,
            row = thread / 32 % 4 * 16 + g, column = thread / 128 * 16;
  const int item = unit / walk.groups, group = unit % walk.groups;
  const int64_t first = (static_cast<int64_t>(item) * walk.keys + begin) * source.embed;
  float sum[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < 4; ++n) sum[half][n] = source.bias[group * P + column + 8 * half + 2 * t + n % 2];
  for (int from = 0; from < source.embed; from += kEmbedStep) {
    const int width = min(kEmbedStep, source.embed - from);
#pragma unroll
    for (int n = thread; n < kPackedBlock * kEmbedStep / 4; n += kPackThreads) {
      const int key = n / (kEmbedStep / 4), e = n % (kEmbedStep / 4) * 4;
      float4 x = make_float4(0, 0, 0, 0);
      if (key < size && e < width) {
        const int64_t at = first + static_cast<int64_t>(key) * source.embed + from + e;
        if (source.tokens) {
          x = *reinterpret_cast<const float4*>(source.tokens + at);
        } else {
          const uint2 pairs = *reinterpret_cast<const uint2*>(source.bf16_tokens + at);
          x = make_float4(low_half(pairs.x), high_half(pairs.x), low_half(pairs.y), high_half(pairs.y));
        }
      }
      *reinterpret_cast<float4*>(&tokens[key][e]) = x;
    }
    const float4* const given = reinterpret_cast<const float4*>(
        source.weight + (static_cast<int64_t>(group) * source.embed + from) * P);
#pragma unroll
    for (int n = thread; n < kEmbedStep * P / 4; n += kPackThreads) {
      const int e = n / (P / 4);
      *reinterpret_cast<float4*>(&weights[e][n % (P / 4) * 4]) =
          e < width ? given[n] : make_float4(0, 0, 0, 0);
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kEmbedStep; e += 8) {
      const float2 x = *reinterpret_cast<const float2*>(&tokens[row][e + 2 * t]),
                   y = *reinterpret_cast<const float2*>(&tokens[row + 8][e + 2 * t]);
      const LeftStep left(x.x, x.y, y.x, y.y);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_step(sum[half], left, weights[e + 2 * t][column + 8 * half + g],
                 weights[e + 2 * t + 1][column + 8 * half + g]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < 4; ++n) keep(row + n / 2 * 8, column + 8 * half + 2 * t + n % 2, sum[half][n]);
}

// Keys, mean and running sums of one block.
__device__ __forceinline__ void pack_block(const PackedWalkParams& p, const Packed& packed, int unit,
                                           int block) {
  __shared__ float nodes[kPackedBlock][kNodePitch];  // zeros beyond the block's end
  __shared__ float sums[kPackWarps][P];
  const RootedParams& walk = p.walk;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32), begin = block * walk.block,
            size = min(walk.block, walk.keys - begin);
  const auto keep = [&](int key, int number, float x) {
    nodes[key][number] = key < size ? (p.terms == 1 ? rounded_to_bf16(x) : x) : 0.f;
  };
  if (walk.key_nodes) {
    const float* const from = walk.key_nodes + (static_cast<int64_t>(unit) * walk.keys + begin) * P;
    for (int key = warp; key < kPackedBlock; key += kPackWarps)
      keep(key, lane, key < size ? from[key * P + lane] : 0.f);
  } else {
    multiply_tokens(p, unit, begin, size, keep);
  }
  __syncthreads();
  {
    const int tile = warp / 2, step = warp % 2, key = 8 * (lane / 4) + 2 * tile,
              n = 8 * (lane % 4) + 4 * step;
    const Bf16Terms x(nodes[key][n], nodes[key][n + 1]), y(nodes[key + 1][n], nodes[key + 1][n + 1]),
        z(nodes[key][n + 2], nodes[key][n + 3]), w(nodes[key + 1][n + 2], nodes[key + 1][n + 3]);
    uint4* const to =
        packed.keys + (static_cast<int64_t>(unit) * walk.blocks + block) * p.terms * kKeyPieces + threadIdx.x;
    to[0] = make_uint4(x.high, y.high, z.high, w.high);
    if (p.terms == 2) to[kKeyPieces] = make_uint4(x.low, y.low, z.low, w.low);
  }
  // Running sums over the keys that the mask allows: a warp has eight keys.
  constexpr int kEach = kPackedBlock / kPackWarps;
  const int32_t* const before =
      walk.span.open_before
          ? walk.span.open_before + static_cast<int64_t>(unit / walk.groups) * (walk.keys + 1) + begin
          : nullptr;
  float running[kEach], sum = 0;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int key = warp * kEach + n;
    if (key < size && (!before || before[key + 1] != before[key])) sum += nodes[key][lane];
    running[n] = sum;
  }
  sums[warp][lane] = sum;
  __syncthreads();
  float earlier = 0;
  for (int w = 0; w < warp; ++w) earlier += sums[w][lane];
  if (packed.sums)
#pragma unroll
    for (int n = 0; n < kEach; ++n)
      if (warp * kEach + n < size)
        packed.sums[(static_cast<int64_t>(unit) * walk.keys + begin + warp * kEach + n) * P + lane] =
            earlier + running[n];
  uint16_t* const means =
      reinterpret_cast<uint16_t*>(packed.means + static_cast<int64_t>(unit) * 2 * kMeanPieces);
  constexpr int kTerm = kPackedBlocks * P;  // numbers
  if (warp == kPackWarps - 1) {
    const int count = before ? before[size] - before[0] : size;
    const float mean = (earlier + sum) / static_cast<float>(max(count, 1));
    if (walk.means)
      const_cast<float*>(walk.means)[(static_cast<int64_t>(unit) * walk.blocks + block) * P + lane] = mean;
    const Bf16Terms terms(mean, 0.f);
    means[block * P + lane] = static_cast<uint16_t>(terms.high);
    means[kTerm + block * P + lane] = static_cast<uint16_t>(terms.low);
  } else if (block == 0) {  // nothing beyond the last block
    for (int n = walk.blocks * P + static_cast<int>(threadIdx.x); n < kTerm; n += kPackThreads - 32)
      means[n] = means[kTerm + n] = 0;
  }
}

// LSTM weights, random numbers' keys and distances.
__device__ __forceinline__ void pack_others(const PackedWalkParams& p, const Packed& packed, int first,
                                            int by) {
  const RootedParams& walk = p.walk;
  for (int at = first; at < walk.groups * kWeightPieces; at += by) {
    const int group = at / kWeightPieces, n = at % kWeightPieces, lane = n % 32, side = n / 32 % 2,
              pair = n / 64 % 2, which = n / 128 % 2, warp = n / 256;
    const int unit = 8 * warp + lane / 4 / 2 * 2 + which, gate = 2 * pair + lane / 4 % 2;
    const float* const from = (side ? walk.lstm.weight_hh : walk.lstm.weight_ih) +
                              static_cast<int64_t>(group) * P * 4 * P + lane % 4 * 8 * 4 * P + gate * P +
                              unit;
    uint32_t high[4], low[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Bf16Terms terms(from[2 * k * 4 * P], from[(2 * k + 1) * 4 * P]);
      high[k] = terms.high, low[k] = terms.low;
    }
    uint4* const to = packed.weights + static_cast<int64_t>(group) * p.terms * kWeightPieces + n;
    to[0] = make_uint4(high[0], high[1], high[2], high[3]);
    if (p.terms == 2) to[kWeightPieces] = make_uint4(low[0], low[1], low[2], low[3]);
  }
  for (int unit = first; unit < walk.batch * walk.groups; unit += by)
    packed.streams[unit] = stream_key_of(walk.stream, unit / walk.groups, unit % walk.groups);
  const auto value = [](const DistanceSource& source, int group, int at) {
    if (source.values) return source.values[static_cast<int64_t>(group) * source.count + at];
    return source.table[group * source.buckets + source.bucket[at]];
  };
  for (int at = first; at < walk.groups * 4 * packed.stride; at += by) {
    const int copy = at / packed.stride, n = at % packed.stride + copy % 4;
    packed.distance[at] = n < p.distance.count ? value(p.distance, copy / 4, n) : 0.f;
  }
  const int blocks = p.block_distance.count;
  for (int at = first; at < walk.groups * blocks; at += by)
    packed.block_distance[at] = value(p.block_distance, at / blocks, at % blocks);
}

__global__ void __launch_bounds__(kPackThreads)
    pack_walk(const __grid_constant__ PackedWalkParams p, const __grid_constant__ Packed packed) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // which wait for the end of this grid

  const int at = static_cast<int>(blockIdx.x) - kOtherBlocks;
  if (at >= 0)
    pack_block(p, packed, at / p.walk.blocks, at % p.walk.blocks);
  else
    pack_others(p, packed, static_cast<int>(blockIdx.x * kPackThreads + threadIdx.x),
                kOtherBlocks * kPackThreads);
}

}  // namespace

cudaError_t launch_pack_walk(const PackedWalkParams& p, cudaStream_t stream) {
  const int units = p.walk.batch * p.walk.groups;
  const Launch pack(static_cast<unsigned>(kOtherBlocks + p.walk.blocks * units), kPackThreads, 0, stream);
  return cudaLaunchKernelEx(&pack.config, pack_walk, p, Packed(p));
}

}  // namespace edgewise::kernels::cuda
