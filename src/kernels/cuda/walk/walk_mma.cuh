// Products of 16 rows of width P with up to 8 columns on tensor cores, in fp32 but for the last bits: every
// number is the sum of two tf32 numbers, and three of the four products count.
//
// Which of the P numbers a lane holds is free as long as both sides agree: lane t of a group of four has
// numbers 8 t .. 8 t + 7, so that rows are read 16 bytes at a time.
#pragma once

#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {

constexpr int kMmaRows = 16;
constexpr int kRowStride =
    P + 4;  // floats from row to row in shared memory: 16-byte reads of a warp meet no bank twice

struct TwoTerms {
  uint32_t high, low;
  __device__ explicit TwoTerms(float x) {
    high = __float_as_uint(x) & 0xFFFFE000u;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};

__device__ __forceinline__ void mma_tf32(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The left side of one step of 8 numbers: rows lane / 4 and lane / 4 + 8.
struct LeftStep {
  uint32_t high[4], low[4];
  LeftStep() = default;
  // x0, x1: numbers 8 t + 2 step and the next, of the two rows.
  __device__ LeftStep(float x0, float x1, float y0, float y1) {
    const TwoTerms a(x0), b(y0), c(x1), d(y1);
    high[0] = a.high, high[1] = b.high, high[2] = c.high, high[3] = d.high;
    low[0] = a.low, low[1] = b.low, low[2] = c.low, low[3] = d.low;
  }
};
__device__ __forceinline__ void add_step(float (&sum)[4], const LeftStep& left, float b0, float b1) {
  const TwoTerms first(b0), second(b1);
  mma_tf32(sum, left.low, first.high, second.high);
  mma_tf32(sum, left.high, first.low, second.low);
  mma_tf32(sum, left.high, first.high, second.high);
}

// The four steps of 16 rows in shared memory, kRowStride apart.
__device__ __forceinline__ void load_left(const float* rows, LeftStep (&left)[4]) {
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  const float* const upper = rows + g * kRowStride + 8 * t;
  const float* const lower = upper + 8 * kRowStride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 x = *reinterpret_cast<const float4*>(upper + 4 * half),
                 y = *reinterpret_cast<const float4*>(lower + 4 * half);
    left[2 * half] = LeftStep(x.x, x.y, y.x, y.y);
    left[2 * half + 1] = LeftStep(x.z, x.w, y.z, y.w);
  }
}

// The right side: eight nodes, of which a lane is given number lane / 4.
struct RightNodes {
  float4 low, high;
  __device__ __forceinline__ explicit RightNodes(const float* node) {
    const float4* const from = reinterpret_cast<const float4*>(node + lane_id() % 4 * 8);
    low = __ldg(from), high = __ldg(from + 1);
  }
  __device__ __forceinline__ float first(int step) const {
    return step == 0 ? low.x : step == 1 ? low.z : step == 2 ? high.x : high.z;
  }
  __device__ __forceinline__ float second(int step) const {
    return step == 0 ? low.y : step == 1 ? low.w : step == 2 ? high.y : high.w;
  }
};

// ---- the LSTM of 16 rows ----
// A warp has four units at a time: sums of lane (g, t) are the four gates of unit t in rows g and g + 8, so
// that the cells stay in registers. Weights lie in shared memory as the lanes read them.

constexpr int kUnitQuads = P / 4;
constexpr int kLstmWeights = 2 * P * 4 * P;  // floats

// All threads of the block; the caller synchronises.
__device__ inline void pack_lstm_weights(const float* weight_ih, const float* weight_hh, float* packed) {
  for (int n = static_cast<int>(threadIdx.x); n < kLstmWeights / 4; n += static_cast<int>(blockDim.x)) {
    const int side = n / (P * P), k = n / P % P, column = n % P * 4;  // four columns at a time
    const float4 w = reinterpret_cast<const float4*>(side ? weight_hh : weight_ih)[n % (P * P)];
    const int gate = column / P, unit = column % P, step = k % 8 / 2, t = k / 8;
    float* const to = packed + (((unit / 4 * 2 + side) * 2 + gate / 2) * 4 + step) * 64 + k % 2;
    const float value[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int u = 0; u < 4; ++u) to[((2 * u + gate % 2) * 4 + t) * 2] = value[u];
  }
}

enum class LstmSide { kInput, kState };

// Units 4 quad .. 4 quad + 3.
struct LstmQuad {
  int quad;
  float bias[4];
  float sums[2][4];  // gates i, f and g, o; of two rows
  float cell[2];

  __device__ __forceinline__ void start(int which, const float* given) {
    quad = which;
    cell[0] = cell[1] = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) bias[n] = given[n * P + 4 * quad + lane_id() % 4];
    restart();
  }
  __device__ __forceinline__ void restart() {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
#pragma unroll
      for (int n = 0; n < 4; ++n) sums[tile][n] = bias[2 * tile + n % 2];
  }
  __device__ __forceinline__ void add(const LeftStep (&left)[4], LstmSide side, const float* packed) {
    const float* const weights = packed + (quad * 2 + static_cast<int>(side)) * 512 + 2 * lane_id();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const float2 w = *reinterpret_cast<const float2*>(weights + (tile * 4 + step) * 64);
        add_step(sums[tile], left[step], w.x, w.y);
      }
  }
  // Writes h of this lane's unit and rows, and begins anew.
  __device__ __forceinline__ void finish(float* hidden) {
    const int lane = lane_id(), unit = 4 * quad + lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float i = sigmoid_of(sums[0][2 * r]), f = sigmoid_of(sums[0][2 * r + 1]),
                  g = tanh_of(sums[1][2 * r]), o = sigmoid_of(sums[1][2 * r + 1]);
      cell[r] = fmaf(f, cell[r], i * g);
      hidden[(lane / 4 + 8 * r) * kRowStride + unit] = o * tanh_of(cell[r]);
    }
    restart();
  }
};

}  // namespace edgewise::kernels::cuda
