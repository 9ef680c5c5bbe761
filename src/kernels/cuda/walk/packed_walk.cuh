// What the two launches of the walk in blocks on packed inputs share (pack_walk.cu, packed_walk.cu): the
// workspace in the order of fragments, numbers in bf16 terms, and a launch that overlaps the one before it.
#pragma once

#include "kernels/cuda/walk/walk_mma.cuh"

namespace edgewise::kernels::cuda {

inline constexpr int kKeyPieces = kPackedBlock * P / 8;    // 16-byte pieces of a block of keys, a term
inline constexpr int kMeanPieces = kPackedBlocks * P / 8;  // of the means, a term
inline constexpr int kWeightPieces = 2 * P * 4 * P / 8;    // of the LSTM's weights, a term

__host__ __device__ constexpr int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

// ---- the workspace ----
// Which of the P numbers a lane holds is free as long as both sides of a product agree: lane t of four has
// numbers 8 t .. 8 t + 7, a 16-byte piece. mma step s takes 8 t + 4 s .. + 3 of them.
//   keys     [U, N, terms, 4 tiles, 2 steps, 32 lanes]: row g of tile j is key 8 g + 2 j, row g + 8 the next
//   means    [U, 2 terms, 64, P]
//   weights  [G, terms, 4 warps, 2 units, 2 pairs of gates, 2 sides, 32 lanes]
//   streams  [U]: keys of the random numbers
//   sums     [U, S, P] fp32: of the nodes of the block up to each key; where ranges cut blocks
//   distance [G, 4, stride]: copy c begins at entry c, so that any run can be read 16 bytes at a time
struct Packed {
  uint4 *keys, *means, *weights;
  uint64_t* streams;
  float *sums, *distance, *block_distance;
  int stride;  // of a copy of the distances
  int64_t bytes;

  explicit Packed(const PackedWalkParams& p) {
    const int64_t units = static_cast<int64_t>(p.walk.batch) * p.walk.groups;
    char* at = static_cast<char*>(p.workspace);
    const auto take = [&](int64_t size) {
      char* const from = at;
      at += round_up(size, 16);
      return from;
    };
    keys = reinterpret_cast<uint4*>(take(units * p.walk.blocks * p.terms * kKeyPieces * 16));
    means = reinterpret_cast<uint4*>(take(units * 2 * kMeanPieces * 16));
    weights = reinterpret_cast<uint4*>(take(int64_t{p.walk.groups} * p.terms * kWeightPieces * 16));
    streams = reinterpret_cast<uint64_t*>(take(units * 8));
    sums = p.walk.span.cuts_blocks() ? reinterpret_cast<float*>(take(units * p.walk.keys * P * 4)) : nullptr;
    stride = p.distance.count > 0 ? static_cast<int>(round_up(p.distance.count + kPackedBlock, 4)) : 0;
    distance = reinterpret_cast<float*>(take(int64_t{p.walk.groups} * 4 * stride * 4));
    block_distance = reinterpret_cast<float*>(take(int64_t{p.walk.groups} * p.block_distance.count * 4));
    bytes = at - static_cast<char*>(p.workspace);
  }
};

// Two numbers in two bf16 terms, the first number in the lower half.
struct Bf16Terms {
  uint32_t high, low;
  __device__ __forceinline__ Bf16Terms(float x, float y) {
    high = pair(x, y);
    low = pair(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xFFFF0000u));
  }
  static __device__ __forceinline__ uint32_t pair(float x, float y) {
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
    return result;
  }
};
__device__ __forceinline__ float rounded_to_bf16(float x) {
  return __uint_as_float(Bf16Terms::pair(x, 0.f) << 16);
}
__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

__device__ __forceinline__ void mma_bf16(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A launch that may begin while the one before it ends.
struct Launch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute[1];
  Launch(dim3 grid, int threads, int shared_bytes, cudaStream_t stream) {
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
  }
  Launch(const Launch&) = delete;
};

// Fills the workspace.
cudaError_t launch_pack_walk(const PackedWalkParams& p, cudaStream_t stream);

}  // namespace edgewise::kernels::cuda
