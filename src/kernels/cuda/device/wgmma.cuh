// Hopper's warpgroup matrix products (wgmma), bf16 in, fp32 out, as far as the tile kernels need them.
//
// A tile lies in shared memory as rows of at most 64 elements ("panels"): panel p of a [rows, width] tile
// holds columns 64 p .. 64 p + 63 of every row. The 16-byte chunks of a row are swizzled with the row number
// in the way the hardware expects for the panel's row length (32, 64 or 128 bytes), so that neither the
// product's reads nor our stores meet bank conflicts. The same tile serves two products:
//   scores   D[64, n] += A[64, k] B[n, k]^T   both operands with k along the row          (score_product)
//   outputs  D[64, w] += P[64, n] B[n, w]     P in registers, B with n down the rows      (output_product)
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace edgewise::kernels::cuda {

// ---- layout of a tile in shared memory ----

template <int kWidth>
struct TileLayout {
  static_assert(kWidth == 16 || kWidth == 32 || kWidth % 64 == 0,
                "tile widths are 16, 32 or multiples of 64");
  static constexpr int kPanel = kWidth < 64 ? kWidth : 64;  // elements of a row in one panel
  static constexpr int kPanels = kWidth / kPanel;
  static constexpr int kRowBytes = kPanel * 2;
  static constexpr int kChunks = kRowBytes / 16;    // 16-byte chunks of a panel row
  static constexpr int kAtomBytes = 8 * kRowBytes;  // the swizzle repeats every 8 rows
  static constexpr uint32_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;

  // Byte offset of chunk `chunk` (over all panels) of row `row` in a tile of kRows rows.
  template <int kRows>
  __device__ static int offset(int row, int chunk) {
    const int panel = chunk / kChunks, inside = chunk % kChunks;
    const int mixed = kRowBytes == 128  ? inside ^ (row & 7)
                      : kRowBytes == 64 ? inside ^ ((row >> 1) & 3)
                                        : inside ^ ((row >> 2) & 1);
    return panel * kRows * kRowBytes + row * kRowBytes + mixed * 16;
  }
};

// Descriptor of an operand: address, the two strides (bytes) and the swizzle. `tile` is what changes at run
// time; with offsets and strides apart a step costs one addition.
__device__ inline uint64_t operand(uint32_t tile, int offset, int leading, int stride, uint32_t swizzle) {
  const uint32_t low = (tile >> 4) + (offset >> 4) + ((leading >> 4) << 16);
  const uint32_t high = (stride >> 4) | swizzle << 30;
  uint64_t descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(low), "r"(high));
  return descriptor;
}

// k along the row: columns 16 step .. 16 step + 15 of a tile of kRows rows.
template <int kWidth, int kRows>
__device__ inline uint64_t along_row(uint32_t tile, int step) {
  using Layout = TileLayout<kWidth>;
  constexpr int kStepsPerPanel = Layout::kPanel / 16;
  const int offset = (step / kStepsPerPanel) * kRows * Layout::kRowBytes + (step % kStepsPerPanel) * 32;
  return operand(tile, offset, 16, Layout::kAtomBytes, Layout::kSwizzle);
}

// k down the rows: rows 16 step .. 16 step + 15, all columns.
template <int kWidth, int kRows>
__device__ inline uint64_t down_rows(uint32_t tile, int step) {
  using Layout = TileLayout<kWidth>;
  return operand(tile, step * 2 * Layout::kAtomBytes, kRows * Layout::kRowBytes, Layout::kAtomBytes,
                 Layout::kSwizzle);
}

// ---- the asynchronous products ----

__device__ inline void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Waits until at most kPending committed groups are still running.
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of accumulators across a wait.
template <int kCount>
__device__ inline void settle(float (&registers)[kCount]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) asm volatile("" : "+f"(registers[n])::"memory");
}

#define EDGEWISE_D4(d, n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3])
#define EDGEWISE_D8(d, n) EDGEWISE_D4(d, n), EDGEWISE_D4(d, n + 4)
#define EDGEWISE_D16(d, n) EDGEWISE_D8(d, n), EDGEWISE_D8(d, n + 8)
#define EDGEWISE_D32(d, n) EDGEWISE_D16(d, n), EDGEWISE_D16(d, n + 16)

#define EDGEWISE_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define EDGEWISE_R16 EDGEWISE_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define EDGEWISE_R32 \
  EDGEWISE_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EDGEWISE_R64                                                                                  \
  EDGEWISE_R32                                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// D[64, 64] (+)= A B^T, both in shared memory with k along the row; one step of k = 16.
__device__ inline void score_product(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" EDGEWISE_R32 "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : EDGEWISE_D32(d, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// The same with A in registers.
__device__ inline void score_product(float (&d)[32], const uint32_t* a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" EDGEWISE_R32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"
      : EDGEWISE_D32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

// D[64, width] += P B, P in registers (one step of k = 16), B in shared memory with k down the rows.
__device__ inline void output_product(float (&d)[8], const uint32_t* p, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" EDGEWISE_R8
               "}, {%8, %9, %10, %11}, %12, 1, 1, 1, 1;\n"
               : EDGEWISE_D8(d, 0)
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}
__device__ inline void output_product(float (&d)[16], const uint32_t* p, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" EDGEWISE_R16
               "}, {%16, %17, %18, %19}, %20, 1, 1, 1, 1;\n"
               : EDGEWISE_D16(d, 0)
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}
__device__ inline void output_product(float (&d)[32], const uint32_t* p, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" EDGEWISE_R32
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
               : EDGEWISE_D32(d, 0)
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}
__device__ inline void output_product(float (&d)[64], const uint32_t* p, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" EDGEWISE_R64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : EDGEWISE_D32(d, 0), EDGEWISE_D32(d, 32)
               : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}

#undef EDGEWISE_D4
#undef EDGEWISE_D8
#undef EDGEWISE_D16
#undef EDGEWISE_D32
#undef EDGEWISE_R8
#undef EDGEWISE_R16
#undef EDGEWISE_R32
#undef EDGEWISE_R64

// Sums over the rows of P (one step), as a product with eight columns of ones (`ones`: 256 bytes of bf16
// ones): d[0] is row lane/4, d[2] row lane/4 + 8.
__device__ inline void row_sums(float (&d)[4], const uint32_t* p, uint64_t ones) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, "
      "0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(ones));
}
// Descriptor of an 8 x 16 operand of equal numbers: any layout within the 256 bytes.
__device__ inline uint64_t uniform_operand(uint32_t address) {
  return operand(address, 0, 128, 128, 0);
}

// ---- copies from global to shared memory ----

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
// 16 bytes, or zeros where `valid` is false (the source is then not read).
__device__ inline void copy_chunk(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copies_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int kPending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}
// Makes our copies visible to the tensor cores; a barrier must follow.
__device__ inline void publish_copies() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Rows first .. first + kRows - 1 of a [count, width] matrix into a tile; rows beyond `count` become 0.
template <int kWidth, int kRows, int kThreads>
__device__ inline void copy_tile(uint32_t tile, const __nv_bfloat16* from, int64_t row_stride, int first,
                                 int count) {
  constexpr int kChunksPerRow = kWidth / 8, kChunks = kRows * kChunksPerRow;
#pragma unroll
  for (int turn = 0; turn < (kChunks + kThreads - 1) / kThreads; ++turn) {
    const int n = turn * kThreads + threadIdx.x, row = n / kChunksPerRow, chunk = n % kChunksPerRow;
    if (kChunks % kThreads != 0 && n >= kChunks) break;
    const bool valid = first + row < count;
    copy_chunk(tile + TileLayout<kWidth>::template offset<kRows>(row, chunk),
               from + (valid ? static_cast<int64_t>(first + row) * row_stride : 0) + chunk * 8, valid);
  }
}

// The same, tile after tile of 64 rows: a thread keeps its place in the source and moves on by a tile.
template <int kWidth, int kThreads>
class TileStream {
 public:
  __device__ TileStream(const __nv_bfloat16* from, int64_t row_stride)
      : row_(threadIdx.x / kChunksPerRow),
        offset_(TileLayout<kWidth>::template offset<64>(row_, threadIdx.x % kChunksPerRow)),
        from_(from + row_ * row_stride + threadIdx.x % kChunksPerRow * 8),
        turn_(kRowsPerTurn * row_stride),
        tile_(64 * row_stride) {}

  // The next tile; of its rows `count` exist.
  __device__ void load(uint32_t tile, int count) {
    copy(tile, from_, count);
    from_ += tile_;
  }
  // Tile number `index`, where nobody moves on.
  __device__ void load_at(uint32_t tile, int index, int count) const {
    copy(tile, from_ + index * tile_, count);
  }

 private:
  __device__ void copy(uint32_t tile, const __nv_bfloat16* from, int count) const {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int row = row_ + turn * kRowsPerTurn;
      if (64 % kRowsPerTurn != 0 && row >= 64) break;
      copy_chunk(tile + offset_ + turn * kRowsPerTurn * TileLayout<kWidth>::kRowBytes, from + turn * turn_,
                 row < count);
    }
  }

  static constexpr int kChunksPerRow = kWidth / 8, kRowsPerTurn = kThreads / kChunksPerRow,
                       kTurns = (64 + kRowsPerTurn - 1) / kRowsPerTurn;
  static_assert(kThreads % kChunksPerRow == 0 && kRowsPerTurn % 8 == 0, "the swizzle must repeat every turn");
  int row_, offset_;
  const __nv_bfloat16* from_;
  int64_t turn_, tile_;
};

// The word of this thread's own place among those of its block.
__device__ inline uint32_t own_word(uint32_t words) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(words + threadIdx.x * 4) : "memory");
  return word;
}

// ---- small things ----

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// {low, high} rounded to two bf16.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace edgewise::kernels::cuda
