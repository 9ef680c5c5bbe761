// The 16 tokens of a group as operands of a warp's matrix products (mma.sync). The rows of the other group
// lie in shared memory, where copies that run ahead have put them (square_pipe.cuh); own rows stay in
// registers.
//
//   scores   S[16, 16] = A[16, D] B[16, D]^T    A: own rows (OwnRows), B: a tile of 16 tokens
//   sums     O[16, D] += S[16, 16] B[16, D]     S: what the scores became, B: the same tile or another
//
// With g = lane / 4 and t = lane % 4 a lane has of scores the rows g and g + 8 and the tokens pair_token().
// In bf16 every operand lies as the product wants it, and ldmatrix fetches a tile either way. In fp32, which
// it cannot turn, a lane takes 16 neighbouring bytes of every 64 of a row for scores, and of every 128 for
// sums: what is summed over may be dealt out as one likes, if both operands agree, and so may columns.
#pragma once

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/shared_words.cuh"
#include "kernels/cuda/device/tf32_product.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/squares/square_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr uint32_t kAllTokens = 0xFFFF;

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}
// Of number e (0 .. 3) of block n of a lane's scores: the token, of the 16.
__device__ inline int pair_token(int block, int e) {
  return 8 * block + 2 * (lane_id() % 4) + e % 2;
}

// ---- the products of each type ----

struct Bf16Products {
  using Stored = Bf16;
  static constexpr bool kInParts = false;  // whether sums are formed square by square and then added up

  __device__ static uint32_t prepared(uint32_t own) { return own; }
  __device__ static uint32_t negated(uint32_t own) { return own ^ 0x80008000u; }
  __device__ static void set(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_to(sum, a, b0, b1);
  }
  __device__ static void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply(sum, a, b0, b1);
  }
  __device__ static float dot(uint32_t a, uint32_t b) {
    return fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16),
                __uint_as_float(a & 0xFFFF0000u) * __uint_as_float(b & 0xFFFF0000u));
  }
};

// kOnce cuts every operand to tf32's 11 bits. kThrice writes it as high + low, both tf32, and adds low high +
// high low + high high. Tensor cores cut a sum off where they add to it, which over a long row is 1e-5 of it:
// with kThrice they add up 16 tokens, and plain additions do the rest.
template <Tf32 kProducts>
struct Tf32Products {
  using Stored = float;
  static constexpr bool kInParts = kProducts == Tf32::kThrice;

  __device__ static uint32_t low_part(uint32_t word) {
    return __float_as_uint(__uint_as_float(word) - __uint_as_float(word & 0xFFFFE000u));
  }
  // The product cuts off 13 bits: up by half of what these hold on average. NaN stays NaN, and a number that
  // tf32 can hold stays as it is.
  __device__ static uint32_t prepared(uint32_t own) {
    if constexpr (kProducts == Tf32::kThrice) return own;
    return __float_as_uint(__uint_as_float(own) * (1 + 0x1.62e43p-12f));
  }
  __device__ static uint32_t negated(uint32_t own) { return own ^ 0x80000000u; }
  __device__ static void add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (kProducts == Tf32::kThrice) {
      const uint32_t low[4] = {low_part(a[0]), low_part(a[1]), low_part(a[2]), low_part(a[3])};
      multiply_tf32(sum, low, b0, b1);
      multiply_tf32(sum, a, low_part(b0), low_part(b1));
      multiply_tf32(sum, a, b0, b1);
    } else {
      multiply_tf32(sum, a, prepared(b0), prepared(b1));
    }
  }
  __device__ static float dot(uint32_t a, uint32_t b) { return __uint_as_float(a) * __uint_as_float(b); }
};

// ---- words from and to memory ----

// Offsets have 32 bits: added to an address that is the same for all lanes they cost no registers.
template <int kWords>
__device__ inline void read_words(uint32_t* to, const char* from) {
  if constexpr (kWords == 1) {
    to[0] = __ldg(reinterpret_cast<const unsigned*>(from));
  } else if constexpr (kWords == 2) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    to[0] = x.x, to[1] = x.y;
  } else {
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
}
template <int kWords>
__device__ inline void write_words(char* to, const uint32_t* from) {
  if constexpr (kWords == 1)
    *reinterpret_cast<uint32_t*>(to) = from[0];
  else if constexpr (kWords == 2)
    *reinterpret_cast<uint2*>(to) = make_uint2(from[0], from[1]);
  else
    *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
}

// How the D numbers of a token are dealt out to the lanes, in words of 4 bytes.
template <typename Stored, int D>
struct Deal {
  static constexpr int kBytes = D * static_cast<int>(sizeof(Stored));
  // Along a row: a lane has kWords, kChunk at a time.
  static constexpr int kWords = kBytes / 16, kChunk = kWords < 4 ? kWords : 4, kChunks = kWords / kChunk;
  // Down the rows, in fp32: kPiece words of a token at a time.
  static constexpr int kDown = kBytes / 32, kPiece = kDown < 4 ? kDown : 4, kPieces = kDown / kPiece;
  static constexpr int kPerPiece = D / 8 / kPieces;  // blocks of eight columns
};

// 16 tokens in shared memory: rows of 16-byte units, which change places with the token so that neither way
// of reading meets bank conflicts. The mix is linear in the bits of the token.
template <int kBytes>
struct GroupTile {
  static constexpr int kUnits = kBytes / 16, kTileBytes = 16 * kBytes;

  __device__ static constexpr uint32_t mixed(uint32_t token, uint32_t unit) {
    const uint32_t mix = kUnits == 2   ? token >> 2 & 1
                         : kUnits == 4 ? token >> 1 & 3
                                       : (token & 7) ^ (token & 1) << 2;
    return unit ^ mix;
  }
  __device__ static constexpr uint32_t place(uint32_t token, uint32_t unit) {
    return token * kBytes + 16 * mixed(token, unit);
  }
};

// Says to the compiler that a number is made once, here, and not anew wherever it is used.
template <typename T>
__device__ inline void made_once(T& x) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+r"(x));
#endif
}

// Where this lane reads a bf16 tile as B: along the rows for scores, down the rows for sums; further columns
// lie at the exclusive or with 32 n. In fp32 places follow from what is read.
template <int kBytes>
struct TilePlaces {
  uint32_t along, down;

  __device__ TilePlaces() {
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    along = GroupTile<kBytes>::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    down = GroupTile<kBytes>::place(lane % 16, lane / 16);
    made_once(along);
    made_once(down);
  }
};

// Rows of a head: where they begin, and bytes from one to the next.
struct HeadRows {
  const char* base;
  uint32_t stride;

  template <typename T>
  __device__ HeadRows(const HeadTensor<const T>& tensor, int item, int head)
      : base(reinterpret_cast<const char*>(tensor.head(item, head))),
        stride(static_cast<uint32_t>(tensor.row_stride) * static_cast<uint32_t>(sizeof(T))) {}
  __device__ const char* row(uint32_t token) const { return base + static_cast<uint64_t>(token) * stride; }
};

// Where this lane copies from and to: one 16-byte unit of every kStep-th token of a tile.
template <int kBytes>
struct LaneUnits {
  using Shape = GroupTile<kBytes>;
  static constexpr uint32_t kStep = 32 / Shape::kUnits;

  const char* from;
  uint32_t group_bytes, step_bytes;

  __device__ LaneUnits(const HeadRows& rows)
      : from(rows.row(first_token()) + 16 * (static_cast<uint32_t>(lane_id()) % Shape::kUnits)),
        group_bytes(16 * rows.stride),
        step_bytes(kStep * rows.stride) {
    made_once(from);
    made_once(group_bytes);
  }
  __device__ static uint32_t first_token() { return static_cast<uint32_t>(lane_id()) / Shape::kUnits; }
  // In the tile.
  __device__ static uint32_t first_place() {
    return Shape::place(first_token(), static_cast<uint32_t>(lane_id()) % Shape::kUnits);
  }
  __device__ static uint32_t place(uint32_t first, uint32_t token) {
    return (first ^ 16 * Shape::mixed(token, 0)) + token * kBytes;
  }
  __device__ const char* group(int index) const {
    return from + static_cast<uint64_t>(static_cast<uint32_t>(index)) * group_bytes;
  }
};

// Copies a group, all of whose tokens are there, to a tile. `first`: the tile and the lane's first place.
template <int kBytes>
__device__ inline void copy_tile(uint32_t first, const LaneUnits<kBytes>& units, int group) {
  using Units = LaneUnits<kBytes>;
  const char* from = units.group(group);
#pragma unroll
  for (uint32_t token = 0; token < 16; token += Units::kStep) {
    copy_ahead(Units::place(first, token), from);
    from += units.step_bytes;
  }
}
// The tokens that have a bit; the others become zeros. Rare, and kept out of the way: the last group,
// padding, the causal diagonal.
template <int kBytes>
[[gnu::noinline]] __device__ void copy_some(uint32_t first, LaneUnits<kBytes> units, int group,
                                            uint32_t tokens) {
  using Units = LaneUnits<kBytes>;
  const char* from = units.group(group);
#pragma unroll 1
  for (uint32_t token = 0; token < 16; token += Units::kStep) {
    const bool is_there = tokens >> (Units::first_token() + token) & 1;
    copy_or_clear(Units::place(first, token), is_there ? from : units.from, is_there);
    from += units.step_bytes;
  }
}

// ---- operands ----

// A of scores: rows g and g + 8 of a group, those with a bit; the others are 0. In registers, or in a tile of
// the warp's own where they would not fit (kKept).
template <typename Products, int D, bool kKept>
class OwnRows {
 public:
  using Stored = typename Products::Stored;
  using Of = Deal<Stored, D>;
  static constexpr bool kPairs = sizeof(Stored) == 2;  // of numbers in a word
  static constexpr int kTileBytes = kKept ? 0 : GroupTile<Of::kBytes>::kTileBytes;

  __device__ OwnRows(const HeadRows& head, int group, uint32_t bits, bool is_negated, uint32_t tile)
      : is_negated_(is_negated), tile_(tile) {
    if constexpr (kKept) {
      const int g = lane_id() / 4, t = lane_id() % 4;
      const char* rows[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        rows[half] = bits >> (g + 8 * half) & 1 ? head.row(static_cast<uint32_t>(group) * 16 + g + 8 * half) +
                                                      t * (kPairs ? 4 : 4 * Of::kChunk)
                                                : nullptr;
#pragma unroll
      for (int n = 0; n < Of::kWords; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int bytes = kPairs ? 16 * n : n / Of::kChunk * 64 + n % Of::kChunk * 4;
          kept_[half][n] =
              rows[half] ? finished(__ldg(reinterpret_cast<const unsigned*>(rows[half] + bytes))) : 0;
        }
    } else {
      __syncwarp();
      using Units = LaneUnits<Of::kBytes>;
      copy_some(tile + Units::first_place(), Units(head), group, bits);
    }
  }

  // The operand of product n, of which there are D / 16 in bf16 and D / 8 in fp32.
  __device__ void product(int n, uint32_t (&a)[4]) const {
    if constexpr (kKept) {
      a[0] = kept_[0][2 * n], a[1] = kept_[1][2 * n], a[2] = kept_[0][2 * n + 1], a[3] = kept_[1][2 * n + 1];
    } else {
      using Shape = GroupTile<Of::kBytes>;
      const uint32_t lane = static_cast<uint32_t>(lane_id());
      if constexpr (kPairs) {
        load_matrices(a, (tile_ + Shape::place(lane % 16, lane / 16)) ^ static_cast<uint32_t>(32 * n));
      } else {
        const uint32_t place = tile_ + Shape::place(lane / 4, lane % 4 + static_cast<uint32_t>(n / 2 * 4)) +
                               static_cast<uint32_t>(n % 2 * 8);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Eight tokens on the units are mixed alike.
          a[half] = load_word(place + half * 8 * Of::kBytes);
          a[half + 2] = load_word(place + half * 8 * Of::kBytes + 4);
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = finished(a[e]);
    }
  }

 private:
  __device__ uint32_t finished(uint32_t word) const {
    word = Products::prepared(word);
    return is_negated_ ? Products::negated(word) : word;
  }

  bool is_negated_;
  uint32_t tile_;
  uint32_t kept_[2][kKept ? Of::kWords : 1];
};

// ---- products ----

// scores[n][e]: row g (+ 8 for e >= 2), token pair_token(n, e).
template <typename Products, int D, bool kKept>
__device__ inline void form_scores(float (&scores)[2][4], const OwnRows<Products, D, kKept>& own,
                                   uint32_t tile,
                                   const TilePlaces<Deal<typename Products::Stored, D>::kBytes>& places) {
  using Of = Deal<typename Products::Stored, D>;
  using Shape = GroupTile<Of::kBytes>;
  const uint32_t lane = static_cast<uint32_t>(lane_id());
  if constexpr (sizeof(typename Products::Stored) == 2) {
    const uint32_t place = tile + places.along;
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t a[4], b[4];
      own.product(n, a);
      load_matrices(b, place ^ static_cast<uint32_t>(32 * n));
      if (n == 0) {
        Products::set(scores[0], a, b[0], b[1]);
        Products::set(scores[1], a, b[2], b[3]);
      } else {
        Products::add(scores[0], a, b[0], b[1]);
        Products::add(scores[1], a, b[2], b[3]);
      }
    }
  } else {
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (float& x : scores[block]) x = 0;
#pragma unroll
    for (int c = 0; c < Of::kChunks; ++c) {
      uint4 columns[2];
#pragma unroll
      for (int block = 0; block < 2; ++block)
        columns[block] = load_four_words(
            tile + Shape::place(lane / 4 + 8 * block, lane % 4 + static_cast<uint32_t>(4 * c)));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint32_t a[4];
        own.product(2 * c + n, a);
#pragma unroll
        for (int block = 0; block < 2; ++block)
          Products::add(scores[block], a, n ? columns[block].z : columns[block].x,
                        n ? columns[block].w : columns[block].y);
      }
    }
  }
}

// sums[b]: columns of block b of rows g and g + 8; store_rows knows which.
template <typename Products, int D>
__device__ inline void add_rows(float (&sums)[D / 8][4], const float (&weights)[2][4], uint32_t tile,
                                const TilePlaces<Deal<typename Products::Stored, D>::kBytes>& places) {
  using Of = Deal<typename Products::Stored, D>;
  using Shape = GroupTile<Of::kBytes>;
  const uint32_t lane = static_cast<uint32_t>(lane_id());
  if constexpr (sizeof(typename Products::Stored) == 2) {
    uint32_t a[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      a[e] = pack_bf16(weights[e / 2][2 * (e % 2)], weights[e / 2][2 * (e % 2) + 1]);
    const uint32_t place = tile + places.down;
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      load_transposed(b, place ^ static_cast<uint32_t>(32 * n));
      Products::add(sums[2 * n], a, b[0], b[1]);
      Products::add(sums[2 * n + 1], a, b[2], b[3]);
    }
  } else {
    uint32_t a[2][4];
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[block][e] = Products::prepared(__float_as_uint(weights[block][2 * (e % 2) + e / 2]));
#pragma unroll
    for (int c = 0; c < Of::kPieces; ++c) {
      uint32_t words[4][4];  // of tokens pair_token(m / 2, m % 2)
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const uint32_t token = static_cast<uint32_t>(pair_token(m / 2, m % 2)),
                       byte = lane / 4 * (4 * Of::kPiece) + static_cast<uint32_t>(128 * c);
        const uint32_t place = tile + Shape::place(token, byte / 16) + byte % 16;
        if constexpr (Of::kPiece == 4) {
          const uint4 x = load_four_words(place);
          words[m][0] = x.x, words[m][1] = x.y, words[m][2] = x.z, words[m][3] = x.w;
        } else {
#pragma unroll
          for (int n = 0; n < Of::kPiece; ++n) words[m][n] = load_word(place + 4 * n);
        }
      }
#pragma unroll
      for (int n = 0; n < Of::kPerPiece; ++n) {
        float(&sum)[4] = sums[c * Of::kPerPiece + n];
        float part[4] = {};
#pragma unroll
        for (int block = 0; block < 2; ++block)
          Products::add(Products::kInParts ? part : sum, a[block], words[2 * block][n],
                        words[2 * block + 1][n]);
        if constexpr (Products::kInParts) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += part[e];
        }
      }
    }
  }
}

// Rows g and g + 8 of sums times factor[0] and factor[1], as rows of [tokens, D]; `rows` of them exist.
template <typename Stored, int D>
__device__ inline void store_rows(Stored* to, const float (&sums)[D / 8][4], const float (&factor)[2],
                                  int rows) {
  using Of = Deal<Stored, D>;
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (g + 8 * half >= rows) continue;
    char* const row = reinterpret_cast<char*>(to + (g + 8 * half) * D);
    if constexpr (sizeof(Stored) == 2) {
#pragma unroll
      for (int b = 0; b < D / 8; ++b)
        *reinterpret_cast<uint32_t*>(row + 16 * b + 4 * t) =
            pack_bf16(sums[b][2 * half] * factor[half], sums[b][2 * half + 1] * factor[half]);
    } else {
#pragma unroll
      for (int c = 0; c < Of::kPieces; ++c)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          uint32_t words[Of::kPiece];
#pragma unroll
          for (int n = 0; n < Of::kPiece; ++n)
            words[n] = __float_as_uint(sums[c * Of::kPerPiece + n][2 * half + e] * factor[half]);
          write_words<Of::kPiece>(row + 2 * t * (4 * Of::kPiece) + c * 128 + e * (4 * Of::kPiece), words);
        }
    }
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
