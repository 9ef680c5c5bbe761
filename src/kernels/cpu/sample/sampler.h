// Samplers of SBM edges on CPU: p_ij = query_membership_i . key_side_j + exploration, then the edge law.
//
// All samplers have the same law; they differ in cost. Each works on a range of rows of one head and depends
// on nothing but that head's memberships, its valid keys and its stream key: not on threads, not on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {

enum class Law { kBernoulli, kPoisson };

// One item and head. Memberships are fp32, row-major, non-negative and finite.
struct SampleHead {
  int64_t queries = 0;                      // L
  int64_t keys = 0;                         // S
  int64_t clusters = 0;                     // C
  const float* query_membership = nullptr;  // [L, C]
  const float* key_side = nullptr;          // [S, C]
  const int32_t* valid_keys = nullptr;      // [valid_key_count], ascending
  int64_t valid_key_count = 0;
  int64_t valid_query_count = 0;
  const uint8_t* query_mask = nullptr;  // [L], 0 = not valid; null = all valid
  bool is_causal = false;
  int64_t first_row = 0;  // row 0 of this head is row first_row of the whole: direct sampler only
  Law law = Law::kBernoulli;
  double exploration = 0;
  uint64_t stream_key = 0;
};

// Rows as they are drawn, and how many edges each has: either the columns of row after row, or one bit per
// valid key, whichever the sampler makes.
struct SampledRows {
  std::vector<int32_t> degrees;
  std::vector<int32_t> columns;
  bool are_positions = false;   // `columns` count among the valid keys
  std::vector<uint64_t> words;  // [rows, (valid_key_count + 63) / 64]

  int64_t edge_count() const;
  // Writes the columns, ascending within each row, to `out` [edge_count()].
  void write_columns(const SampleHead& head, int32_t* out) const;
};

// Are the valid keys first, first + 1, ...?
bool is_run(const SampleHead& head);
ExactParams exact_params(const SampleHead& head);

// How many of the valid keys, from the first on, row may have edges to.
int64_t allowed_keys(const SampleHead& head, int64_t row);

// P(edge) under the law, for p that already includes exploration.
double edge_probability(Law law, double p);

// ---- direct: visits every pair, cost L * S * C ----

// key_side of the valid keys, transposed so that the inner loop runs over keys: [C, valid_key_count].
std::vector<float> transpose_valid_keys(const SampleHead& head);
void sample_direct(const SampleHead& head, const std::vector<float>& transposed, int64_t row_begin,
                   int64_t row_end, SampledRows& out);

// ---- squeezed: visits every pair with one random byte, cost L * S / 64 blocks; sample_squeezed.cpp ----

struct SampleBounds;  // sample_bounds.h
struct SqueezeBounds;
struct ProductBounds;
class SampleScratch;
// Bounds come from `products` unless it is empty. Which of the two decides what a draw costs, not what it
// draws.
void sample_squeezed(const SampleHead& head, const SqueezeBounds& bounds, const ProductBounds& products,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out);

// ---- thinning: draws edges from one bound, cost edges + (L + S) * C; sample_thinning.cpp ----

// What one row makes of the bounds.
struct ThinningRate {
  double bound = 0;  // b_i >= p
  double rate = 0;   // c_i b_i, at least the rate of every pair
  bool fits = true;  // else p may be so near 1 that the squeezed sampler draws the row
};
ThinningRate thinning_rate(const SampleHead& head, const SampleBounds& bounds, const Terms& row);
// Points run from row to row, so the rows of one call share one sequence: the range is part of the contract.
// `squeeze` is for rows that the squeezed sampler draws.
void sample_thinning(const SampleHead& head, const SampleBounds& bounds, const SqueezeBounds& squeeze,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out);

// ---- fastRG: draws edges, cost edges + (L + S) * C ----

// How a key of each cluster is drawn, and what bounds a row. A table of Walker's alias method costs its
// making; where a cluster's keys are alike, or few edges come from it, keys are proposed uniformly instead
// and rejected in proportion to what they lack of the largest.
struct FastRgTables {
  std::vector<uint8_t> rejects;  // [C]
  // [C, valid_key_count] the probability to keep a slot: the alias method's, or key_side / top
  std::vector<float> threshold;
  std::vector<int32_t>
      alias;                // [C, valid_key_count] positions in valid_keys; not set where a cluster rejects
  std::vector<double> sum;  // [C] sum over valid keys of key_side
  std::vector<float> top;   // [C] maximum over valid keys of key_side
};
FastRgTables fastrg_tables(const SampleHead& head);
void sample_fastrg(const SampleHead& head, const FastRgTables& tables, int64_t row_begin, int64_t row_end,
                   SampledRows& out);

// Edges that a draw must leave out: the CSR of the same head. Row i has columns row_offsets[i] ..
// row_offsets[i + 1].
struct ExistingEdges {
  const int64_t* row_offsets = nullptr;  // [L + 1]
  const int32_t* col_indices = nullptr;  // the whole array that row_offsets points into
};

// Every allowed pair that is not there yet with probability `rate`, by geometric skips: cost = number drawn +
// existing edges. The rows of one call share one sequence; sample_absent.cpp.
void sample_absent(const SampleHead& head, const ExistingEdges& existing, double rate, int64_t row_begin,
                   int64_t row_end, SampledRows& out);

// The same in units (probe_units.h): all allowed pairs of the chosen squares that are not there yet.
void sample_absent_units(const SampleHead& head, const ExistingEdges& existing, double rate,
                         int64_t row_begin, int64_t row_end, SampledRows& out);

}  // namespace edgewise::kernels::cpu
