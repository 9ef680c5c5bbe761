// Attention over squares of 16 x 16 pairs (edgewise/graph/square_lists.h) on CPU: parameters and the table of
// kernels. Equations: src/ops/squares/square_attention.h; how it is done: square_products.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/levels.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu {

inline constexpr int64_t kSquareSide = 16;
constexpr int64_t square_groups(int64_t tokens) {
  return (tokens + kSquareSide - 1) / kSquareSide;
}

// Row r has count[r] squares, whose other groups stand in `groups` from begin[r] on, ascending.
struct SquareList {
  const int32_t* begin = nullptr;
  const int32_t* count = nullptr;
  const int32_t* groups = nullptr;
};

// Head dim and value dim are multiples of 16 (zeros fill them up); in bf16 the strides are even.
template <typename T>
struct SquareParams {
  int64_t batch = 0, heads = 0;   // B, H
  int64_t key_heads = 0;          // Hk: query head h reads key head h / (H / Hk)
  int64_t queries = 0, keys = 0;  // L, S
  int64_t head_dim = 0, value_dim = 0;
  double scale = 1;
  HeadView<T> query, key, value;
  SquareList squares;                 // rows (b*H + h) * groups(L) + I
  const int32_t* key_bits = nullptr;  // [B, groups(S)], bit j: key 16 J + j takes part; null: every key does
  bool is_causal = false;             // pairs with key <= query_offset + query only
  int64_t query_offset = 0;
  DropoutParams dropout;
};

template <typename T>
struct SquareForwardParams : SquareParams<T> {
  T* output = nullptr;            // [B*H*L, Dv]
  Accumulator<T>* lse = nullptr;  // [B*H*L], -inf for a row without pairs
};

template <typename T>
struct SquareBackwardParams : SquareParams<T> {
  HeadView<T> grad_output;               // [B, H, L, Dv]
  const T* output = nullptr;             // [B*H*L, Dv]
  const Accumulator<T>* lse = nullptr;   // [B*H*L]
  Accumulator<T>* ubar = nullptr;        // [B*H*L] g . o, from the pass by queries to that by keys
  T* grad_query = nullptr;               // [B*H*L, D]
  Accumulator<T>* grad_key = nullptr;    // [B*Hk, 16 groups(S), D]
  Accumulator<T>* grad_value = nullptr;  // [B*Hk, 16 groups(S), Dv]
  SquareList squares_by_keys;            // rows (b*H + h) * groups(S) + J; for the pass by keys alone
  CreditRule rule = CreditRule::kNone;
  Accumulator<T>* credit = nullptr;        // a number at the place of each square
  SquareList probes;                       // without groups: none
  Accumulator<T>* probe_credit = nullptr;  // the same of each probe
};

// The backward is done by queries (dq, credit) and then by keys (dk, dv), which many threads can share, or
// head by head in one go, which saves a second look at every square. The bits are the same.
template <typename T>
struct SquareKernels {
  RangeKernel<SquareForwardParams<T>> forward;       // rows (b*H + h) * groups(L) + I
  RangeKernel<SquareBackwardParams<T>> by_queries;   // the same rows
  RangeKernel<SquareBackwardParams<T>> by_keys;      // rows (b*Hk + h) * groups(S) + J
  RangeKernel<SquareBackwardParams<T>> whole_heads;  // key heads b*Hk + h
};

// Whether the active level has kernels for T: fp32 on every level, fp64 on the portable one for all, bf16
// where the CPU multiplies it.
template <typename T>
bool has_square_kernels();
// The kernels of the active level, which must have them.
template <typename T>
SquareKernels<T> active_square_kernels();

// One namespace per level, filled by square_forward_level.cpp and square_backward_level.cpp.
#define EDGEWISE_DECLARE_LEVEL(name)                                                  \
  namespace name {                                                                    \
  template <typename T>                                                               \
  void square_forward(const SquareForwardParams<T>&, int64_t, int64_t);               \
  template <typename T>                                                               \
  void square_backward_by_queries(const SquareBackwardParams<T>&, int64_t, int64_t);  \
  template <typename T>                                                               \
  void square_backward_by_keys(const SquareBackwardParams<T>&, int64_t, int64_t);     \
  template <typename T>                                                               \
  void square_backward_whole_heads(const SquareBackwardParams<T>&, int64_t, int64_t); \
  }
EDGEWISE_DECLARE_LEVEL(scalar)
EDGEWISE_DECLARE_LEVEL(avx2)
EDGEWISE_DECLARE_LEVEL(avx512)
EDGEWISE_DECLARE_LEVEL(avx512bf16)
#undef EDGEWISE_DECLARE_LEVEL

}  // namespace edgewise::kernels::cpu
