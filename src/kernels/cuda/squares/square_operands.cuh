// The 16 tokens of a group as operands of a warp's matrix products (mma.sync), from global memory straight to
// registers: every lane reads what it multiplies, nothing goes through shared memory.
//
//   scores   S[16, 16] = A[16, D] B[16, D]^T    A: own rows (OwnRows), B: a group's rows (TokensByRow)
//   sums     O[16, D] += S[16, 16] B[16, D]     S: what the scores became, B: a group's rows (TokensDown)
//
// With g = lane / 4 and t = lane % 4 a product takes of A the rows g and g + 8, of B column g, of the result
// columns 2 t and 2 t + 1 of rows g and g + 8. What is summed over may be dealt out as one likes, as long as
// both operands agree, and so may columns:
//   head dims in scores   a lane takes 16 neighbouring bytes of every 64 of a row
//   tokens                column 2 t + e of block n (of eight) is token t + 4 (2 n + e), so that a lane has
//   the
//                         scores of tokens t, t + 4, t + 8, t + 12
//   columns of sums       lane g of B takes 16 neighbouring bytes of every 128 of a row
#pragma once

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
// Token of block n that a lane takes as column g of B.
__device__ inline int column_token(int block) {
  const int g = lane_id() / 4;
  return g / 2 + 4 * (g % 2) + 8 * block;
}

// ---- the products of each type ----

struct Bf16Products {
  using Stored = Bf16;
  static constexpr bool kInParts = false;  // whether sums are formed square by square and then added up

  __device__ static uint32_t prepared(uint32_t own) { return own; }
  __device__ static uint32_t negated(uint32_t own) { return own ^ 0x80008000u; }
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

// How the D numbers of a token are dealt out, in words of 4 bytes.
template <typename Stored, int D>
struct Deal {
  static constexpr int kBytes = D * static_cast<int>(sizeof(Stored));
  // Along a row: a lane has kWords, kChunk at a time.
  static constexpr int kWords = kBytes / 16, kChunk = kWords < 4 ? kWords : 4, kChunks = kWords / kChunk;
  // Down the rows: kDown of a token, kPiece at a time.
  static constexpr int kDown = kBytes / 32, kPiece = kDown < 4 ? kDown : 4, kPieces = kDown / kPiece;
  // Columns of sums, in blocks of eight; so many of them to a piece.
  static constexpr int kBlocks = D / 8, kPerPiece = kBlocks / kPieces;
};

// Rows of a head: where they begin, bytes from one to the next, and the last one.
struct HeadRows {
  const char* base;
  uint32_t stride;
  int last;

  template <typename T>
  __device__ HeadRows(const HeadTensor<const T>& tensor, int64_t tokens, int item, int head)
      : base(reinterpret_cast<const char*>(tensor.head(item, head))),
        stride(static_cast<uint32_t>(tensor.row_stride) * static_cast<uint32_t>(sizeof(T))),
        last(static_cast<int>(tokens - 1)) {}
  // Of a lane that begins at `place` in every row: the row of a token, beyond the last one the last.
  __device__ const char* at(const char* place, int token) const {
    return place + static_cast<uint64_t>(static_cast<uint32_t>(min(token, last))) * stride;
  }
  __device__ const char* row(uint32_t token) const { return base + token * stride; }
  __device__ uint32_t group(int index) const { return static_cast<uint32_t>(index) * (16 * stride); }
};

// ---- operands ----

// A: rows g and g + 8 of a group, those with a bit; the others are 0. In registers, or read again each time
// where they would not fit (kKept).
template <typename Products, int D, bool kKept>
class OwnRows {
 public:
  using Of = Deal<typename Products::Stored, D>;

  __device__ OwnRows(const HeadRows& head, int group, uint32_t bits, bool is_negated)
      : is_negated_(is_negated) {
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows_[half] = bits >> (g + 8 * half) & 1
                        ? head.base + head.group(group) + (g + 8 * half) * head.stride + t * (4 * Of::kChunk)
                        : nullptr;
    if constexpr (kKept) {
#pragma unroll
      for (int c = 0; c < Of::kChunks; ++c)
#pragma unroll
        for (int half = 0; half < 2; ++half) read(c, half, kept_[half] + c * Of::kChunk);
    }
  }

  // Chunk c of both rows.
  __device__ void chunk(int c, uint32_t (&to)[2][Of::kChunk]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kKept) {
#pragma unroll
        for (int n = 0; n < Of::kChunk; ++n) to[half][n] = kept_[half][c * Of::kChunk + n];
      } else {
        read(c, half, to[half]);
      }
    }
  }

 private:
  __device__ void read(int c, int half, uint32_t* to) const {
#pragma unroll
    for (int n = 0; n < Of::kChunk; ++n) to[n] = 0;
    if (!rows_[half]) return;
    read_words<Of::kChunk>(to, rows_[half] + c * 64);
#pragma unroll
    for (int n = 0; n < Of::kChunk; ++n) {
      to[n] = Products::prepared(to[n]);
      if (is_negated_) to[n] = Products::negated(to[n]);
    }
  }

  const char* rows_[2];
  bool is_negated_;
  uint32_t kept_[2][kKept ? Of::kWords : 1];
};

// B of scores: the rows of a group's tokens, beyond the last one this again: whoever forms scores clears what
// comes of tokens that take no part. They are read by load(), ahead of their use, or chunk by chunk as they
// are used (kHeld).
template <typename Stored, int D, bool kHeld>
class TokensByRow {
 public:
  using Of = Deal<Stored, D>;

  __device__ explicit TokensByRow(const HeadRows& head)
      : head_(head), place_(head.base + lane_id() % 4 * (4 * Of::kChunk)) {}
  __device__ void load(int group) {
#pragma unroll
    for (int block = 0; block < 2; ++block) row_[block] = head_.at(place_, group * 16 + column_token(block));
    if constexpr (kHeld) {
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int c = 0; c < Of::kChunks; ++c)
          read_words<Of::kChunk>(held_[block] + c * Of::kChunk, row_[block] + c * 64);
    }
  }
  // Chunk c of both blocks.
  __device__ void chunk(int c, uint32_t (&to)[2][Of::kChunk]) const {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      if constexpr (kHeld) {
#pragma unroll
        for (int n = 0; n < Of::kChunk; ++n) to[block][n] = held_[block][c * Of::kChunk + n];
      } else {
        read_words<Of::kChunk>(to[block], row_[block] + c * 64);
      }
    }
  }

 private:
  HeadRows head_;
  const char *place_, *row_[2];
  uint32_t held_[2][kHeld ? Of::kWords : 1];
};

// B of sums: the same rows, of which a lane has tokens t, t + 4, t + 8, t + 12. Those without a bit are 0.
template <typename Stored, int D, bool kHeld>
class TokensDown {
 public:
  using Of = Deal<Stored, D>;

  __device__ explicit TokensDown(const HeadRows& head)
      : head_(head), place_(head.base + lane_id() / 4 * (4 * Of::kPiece)) {}
  __device__ void load(int group, uint32_t bits) {
    bits_ = bits;
#pragma unroll
    for (int m = 0; m < 4; ++m) row_[m] = head_.at(place_, group * 16 + lane_id() % 4 + 4 * m);
    if constexpr (kHeld) {
#pragma unroll
      for (int c = 0; c < Of::kPieces; ++c) read(c, held_[c]);
    }
  }
  // Piece c of the four tokens.
  __device__ void piece(int c, uint32_t (&to)[4][Of::kPiece]) {
    if constexpr (kHeld) {
      clear(held_[c]);
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int n = 0; n < Of::kPiece; ++n) to[m][n] = held_[c][m][n];
    } else {
      read(c, to);
      clear(to);
    }
  }

 private:
  __device__ bool has(int m) const {
    return bits_ >> (lane_id() % 4 + 4 * m) & 1;
  }
  __device__ void read(int c, uint32_t (&to)[4][Of::kPiece]) const {
#pragma unroll
    for (int m = 0; m < 4; ++m) read_words<Of::kPiece>(to[m], row_[m] + c * 128);
  }
  __device__ void clear(uint32_t (&words)[4][Of::kPiece]) const {
    if (bits_ == kAllTokens) return;
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int n = 0; n < Of::kPiece; ++n)
        if (!has(m)) words[m][n] = 0;
  }

  HeadRows head_;
  uint32_t bits_;
  const char *place_, *row_[4];
  uint32_t held_[kHeld ? Of::kPieces : 1][4][Of::kPiece];
};

// ---- products ----

// scores[n][e]: row g (+ 8 for e >= 2), token t + 4 (2 n + e % 2).
template <typename Products, int D, bool kKept, bool kHeld>
__device__ inline void form_scores(float (&scores)[2][4], const OwnRows<Products, D, kKept>& own,
                                   const TokensByRow<typename Products::Stored, D, kHeld>& tokens) {
  using Of = Deal<typename Products::Stored, D>;
#pragma unroll
  for (int block = 0; block < 2; ++block)
#pragma unroll
    for (float& x : scores[block]) x = 0;
  // What comes from memory chunk by chunk need not all be in registers.
  constexpr int kTogether = kKept || kHeld ? Of::kChunks : 1;
#pragma unroll kTogether
  for (int c = 0; c < Of::kChunks; ++c) {
    uint32_t rows[2][Of::kChunk], columns[2][Of::kChunk];
    own.chunk(c, rows);
    tokens.chunk(c, columns);
#pragma unroll
    for (int n = 0; n < Of::kChunk; n += 2) {
      const uint32_t a[4] = {rows[0][n], rows[1][n], rows[0][n + 1], rows[1][n + 1]};
#pragma unroll
      for (int block = 0; block < 2; ++block)
        Products::add(scores[block], a, columns[block][n], columns[block][n + 1]);
    }
  }
}

// sums[b]: columns of block b of rows g and g + 8; store_rows knows which.
template <typename Products, int D, bool kHeld>
__device__ inline void add_rows(float (&sums)[D / 8][4], const float (&weights)[2][4],
                                TokensDown<typename Products::Stored, D, kHeld>& tokens) {
  using Of = Deal<typename Products::Stored, D>;
  constexpr bool kPairs = sizeof(typename Products::Stored) == 2;  // of numbers in a word
  uint32_t a[kPairs ? 1 : 2][4];
  if constexpr (kPairs) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      a[0][e] = pack_bf16(weights[e / 2][2 * (e % 2)], weights[e / 2][2 * (e % 2) + 1]);
  } else {
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[block][e] = Products::prepared(__float_as_uint(weights[block][2 * (e % 2) + e / 2]));
  }
#pragma unroll
  for (int c = 0; c < Of::kPieces; ++c) {
    uint32_t words[4][Of::kPiece];
    tokens.piece(c, words);
#pragma unroll
    for (int n = 0; n < Of::kPerPiece; ++n) {
      float(&sum)[4] = sums[c * Of::kPerPiece + n];
      if constexpr (kPairs) {
        const uint32_t half = n % 2 ? 0x7632 : 0x5410;
        Products::add(sum, a[0], __byte_perm(words[0][n / 2], words[1][n / 2], half),
                      __byte_perm(words[2][n / 2], words[3][n / 2], half));
      } else {
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
    char* const row = reinterpret_cast<char*>(to + (g + 8 * half) * D) + 2 * t * (4 * Of::kPiece);
#pragma unroll
    for (int c = 0; c < Of::kPieces; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint32_t words[Of::kPiece];
#pragma unroll
        for (int n = 0; n < Of::kPiece; ++n) {
          if constexpr (sizeof(Stored) == 2) {
            const int b = c * Of::kPerPiece + 2 * n;
            words[n] =
                pack_bf16(sums[b][2 * half + e] * factor[half], sums[b + 1][2 * half + e] * factor[half]);
          } else {
            words[n] = __float_as_uint(sums[c * Of::kPerPiece + n][2 * half + e] * factor[half]);
          }
        }
        write_words<Of::kPiece>(row + c * 128 + e * (4 * Of::kPiece), words);
      }
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
