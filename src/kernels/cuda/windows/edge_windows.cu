// Lists of windows (window_params.h) from bit tiles, by queries or by keys. A warp has one window and goes
// through its inner tokens a block, four tiles, at a time; of a block each lane gets eight inner tokens and
// the 16 bits of each.
//
// By queries: in the layout of a tile a lane holds, of 16 rows and 64 columns, the bits of rows g and g + 8
// and of columns 8 j + 2 t + h. An exchange of bits between the eight lanes that differ in g gives every lane
// two whole columns a tile. By keys: a lane has 4 x 8 bits of the window's 16 columns; two exchanges of bytes
// between the four lanes that differ in t give every lane two whole rows.
#include "kernels/bit_tiles.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_words.cuh"
#include "kernels/cuda/windows/window_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8, kTiles = kWindowBlock / kTileSide, kSlots = 2 * kTiles;

// The same value, of which the assembler no longer knows where it comes from: it would form it anew at every
// use. (It sees through an empty asm, but not through what a lane gets from itself.)
__device__ uint32_t held(uint32_t value) {
  return __shfl_sync(~0u, value, threadIdx.x % 32);
}

// Each byte of the eight lanes that differ in g (lane = 4 g + t) is an 8 x 8 matrix of bits; transposes them
// all. A lane keeps half of its bits and takes the others from a lane whose bits are rotated into place.
class ByteTransposition {
 public:
  __device__ explicit ByteTransposition(int lane) {
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      const uint32_t low = n == 0 ? 0x0F0F0F0Fu : n == 1 ? 0x33333333u : 0x55555555u;
      const int shift = 4 >> n;
      const bool upper = lane & (16 >> n);
      keep_[n] = held(upper ? ~low : low);
      rotate_[n] = held(upper ? shift : 32 - shift);
    }
  }
  __device__ uint32_t operator()(uint32_t x) const {
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      const uint32_t other = __shfl_xor_sync(~0u, x, 16 >> n);
      x = (x & keep_[n]) | (__funnelshift_r(other, other, rotate_[n]) & ~keep_[n]);
    }
    return x;
  }

 private:
  uint32_t keep_[3], rotate_[3];
};

// Two bits of each byte, those at `shift` (0 .. 6) and above, side by side in the highest byte.
class PairsOnTop {
 public:
  constexpr __device__ explicit PairsOnTop(uint32_t shift)
      : bits_(0x03030303u << shift), factor_(0x01041040u >> shift) {}
  constexpr __device__ PairsOnTop(uint32_t bits, uint32_t factor) : bits_(bits), factor_(factor) {}
  __device__ PairsOnTop held_in_registers() const { return {held(bits_), held(factor_)}; }
  __device__ uint32_t operator()(uint32_t x) const { return (x & bits_) * factor_; }

 private:
  uint32_t bits_, factor_;
};

// What a lane gets of a block: slot s = 2 n + h is of tile n, by queries its column 8 (7 - g) + 2 t + h, by
// keys its row 16 t + 8 h + g.
template <bool kByKeys>
class BlockBits;

template <>
class BlockBits<false> {
 public:
  __device__ BlockBits(int lane, int) : transposed_(lane) {}

  __device__ void read(const uint32_t* from, int64_t, int tiles, uint32_t (&bits)[kSlots]) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) bits[2 * n] = n < tiles ? __ldg(from + n * kTileWords) : 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint32_t word = transposed_(bits[2 * n]);
      // The 16 rows of column 8 (7 - g) + 2 t + h.
      bits[2 * n] = __byte_perm(word, 0, 0x4420);
      bits[2 * n + 1] = __byte_perm(word, 0, 0x4431);
    }
  }

 private:
  ByteTransposition transposed_;
};

template <>
class BlockBits<true> {
 public:
  // Of the four windows of a tile it is the one `part`.
  __device__ BlockBits(int lane, int part)
      : own_(PairsOnTop(static_cast<uint32_t>(6 - 2 * part)).held_in_registers()),
        first_(held(lane & 1 ? 0x3715 : 0x6240)),
        second_(held(lane & 2 ? 0x3276 : 0x5410)) {}

  __device__ void read(const uint32_t* from, int64_t stride, int tiles, uint32_t (&bits)[kSlots]) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = n < tiles ? __ldg(from + n * stride + 32 * w) : 0;
        // Of rows 16 w + g and + 8 the window's columns 8 jj + 2 t + h as bit 4 half + 2 h + 1 - jj of byte
        // w.
#pragma unroll
      for (uint32_t& word : words) word = own_(word);
      uint32_t bytes = __byte_perm(__byte_perm(words[0], words[1], 0x0073),
                                   __byte_perm(words[2], words[3], 0x0073), 0x5410);
      bytes = __byte_perm(bytes, __shfl_xor_sync(~0u, bytes, 1), first_);
      bytes = __byte_perm(bytes, __shfl_xor_sync(~0u, bytes, 2), second_);
      // Now byte t' is from lane t', of rows 16 t + g and + 8.
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half)
        bits[2 * n + half] =
            __byte_perm(PairsOnTop(4 * half)(bytes), PairsOnTop(4 * half + 2)(bytes), 0x0073) & 0xFFFF;
    }
  }

 private:
  PairsOnTop own_;
  uint32_t first_, second_;
};

// Entries are dealt out, bank (token % 8) after bank, to the groups of eight that `ldmatrix` reads at once:
// so each bank's are spread over the groups as evenly as can be, and few of a group meet in one bank.
template <bool kByKeys>
__global__ void __launch_bounds__(kWarps * 32) build_windows(const __grid_constant__ BuildWindowsParams p) {
  __shared__ uint4 gathered[kWarps][kWindowBlock / 4];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32, head = blockIdx.y;
  if (!p.sparse.has(head)) return;
  const int64_t rows = p.shape.row_tiles(), columns = p.shape.column_tiles();
  const int64_t outer = kByKeys ? p.shape.keys : p.shape.queries,
                inner = kByKeys ? p.shape.queries : p.shape.keys;
  const int windows = static_cast<int>(WindowLists::windows(outer)),
            blocks = static_cast<int>(WindowLists::blocks(inner)),
            inner_tiles = static_cast<int>(kByKeys ? rows : columns);
  const int window = blockIdx.x * kWarps + warp;
  if (window >= windows) return;
  const int64_t index = (static_cast<int64_t>(head) * windows + window) * blocks;
  const uint32_t* from = p.tiles + lane +
                         (kByKeys ? (head * rows * columns + window / 4) * kTileWords
                                  : (head * rows + window / 4) * columns * kTileWords + window % 4 * 32);
  const int64_t stride = kByKeys ? columns * kTileWords : kTileWords;
  const uint32_t list = held(word_address(gathered[warp])),
                 token = held((kByKeys ? 16 * t + g : 8 * (7 - g) + 2 * t) << 16);  // of slot 0
  const BlockBits<kByKeys> read_bits(lane, window % 4);
  for (int block = 0; block < blocks; ++block) {
    uint32_t bits[kSlots];
    read_bits.read(from, stride, inner_tiles - block * kTiles, bits);
    from += kTiles * stride;
    // Entries are counted bank after bank; a bank is g, or 2 t + h, so that a lane's slots are of one bank
    // or, even and odd ones, of two. By running sums and exchanges: votes want population counts, of which a
    // GPU does few at a time.
    uint32_t ranks[kSlots], counts[2] = {};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      uint32_t& count = counts[kByKeys ? 0 : s % 2];
      ranks[s] = count;
      count += (bits[s] + 0xFFFF) >> 16;  // 1 where there is a bit
    }
    uint32_t starts[2], total;
    if constexpr (kByKeys) {  // lanes are in the order of their banks
      total = counts[0];
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, total, step);
        if (lane >= step) total += other;
      }
      starts[0] = starts[1] = total - counts[0];
      total = __shfl_sync(~0u, total, 31);
    } else {
      // Both counts at once: over the lanes before with the same t, then over all banks before.
      const uint32_t both = counts[0] | counts[1] << 16;
      uint32_t upto = both;
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, upto, step);
        if (lane >= step) upto += other;
      }
      const uint32_t here = __shfl_sync(~0u, upto, 28 + t), before = upto - both, even = here & 0xFFFF;
      total = even + (here >> 16);
      uint32_t start = 0;
#pragma unroll
      for (int step = 1; step < 4; step *= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, total, step);
        if (lane & step) start += other;
        total += other;
      }
      starts[0] = start + (before & 0xFFFF);
      starts[1] = start + even + (before >> 16);
    }
    const uint32_t groups = (total + 15) / 16 * 2, filled = groups * 8;
    // n / groups = n per_group >> 16 for all n that there are, even with a quotient that is off by one.
    const uint32_t per_group = static_cast<uint32_t>(__fdividef(65536.0f, static_cast<float>(groups))) + 2;
    // Entry n is at place (n % groups) * 8 + n / groups.
    const auto address = [&](uint32_t n) {
      return list + 32 * n - (n * per_group >> 16) * (32 * groups - 4);
    };
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t at = address(starts[s % 2] + ranks[s]);
      constexpr uint32_t kTile = 64 << 16, kHalf = (kByKeys ? 8 : 1) << 16;
      if (bits[s]) store_word(at, token + (s / 2 * kTile + s % 2 * kHalf) + bits[s]);
    }
    __syncwarp();
    // The places left over name a token that their group reads anyway; with a single entry only the first
    // group has one.
    if (const uint32_t n = total + lane; n < filled) {
      const uint32_t at = address(n), first = list + ((at - list) & ~31u);  // of its group
      store_word(at, load_word(n >= groups && total >= groups ? first : list) & 0xFFFF0000u);
    }
    __syncwarp();
    auto* const to = reinterpret_cast<uint4*>(p.lists.entries + (index + block) * kWindowBlock);
    const int pieces = static_cast<int>(filled / 4);
    if (lane < pieces) to[lane] = load_four_words(list + 16 * lane);
    if (lane + 32 < pieces) to[lane + 32] = load_four_words(list + 16 * lane + 512);
    if (lane == 0) p.lists.turns[index + block] = static_cast<uint8_t>(filled / 16);
    __syncwarp();
  }
}

}  // namespace

int launch_build_windows(const BuildWindowsParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  const int64_t windows = WindowLists::windows(p.by_keys ? p.shape.keys : p.shape.queries);
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  const auto stream = static_cast<cudaStream_t>(given);
  launch(p.by_keys ? build_windows<true> : build_windows<false>, grid, kWarps * 32, stream, p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
