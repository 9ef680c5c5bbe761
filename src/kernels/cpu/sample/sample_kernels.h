// The parts of the samplers that are compiled once per CPU level. They take raw pointers and no standard
// container, so that no library template is compiled for a level the CPU may lack.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cpu {

// What bounds the probabilities of one token, see sample_bounds.h: side by side, one look into memory.
struct alignas(16) Terms {
  float first = 0, second = 0, rest = 0, unused = 0;
};

// What measures one side of the memberships along two directions.
struct MeasureParams {
  const float* vectors = nullptr;   // [tokens, C]
  const int32_t* tokens = nullptr;  // [count] which rows of `vectors`
  int64_t count = 0;
  int64_t clusters = 0;
  const float* key_direction = nullptr;    // [C] k, unit length
  const float* query_direction = nullptr;  // [C] q, unit length
  float between = 0;                       // k . q
  bool keys = false;
  bool by_token = false;  // terms[token] receives the terms of a token; else terms[n] of the n-th one
};

// Sums over the tokens, and the largest.
struct MeasureResult {
  double first = 0, second = 0, second_size = 0, rest = 0;
  float largest_first = 0, largest_second = 0,
        largest_rest = 0;  // of the second term: of its positive values
  bool valid = true;  // all numbers are surely finite and not negative; if not, SampleKernels::valid knows
};

// Directions that memberships may take, at most: sixteen-bit numbers that one vector holds.
inline constexpr int64_t kMostGroups = 32;

// Products of vectors with a few directions; see GroupBounds in sample_bounds.h. Directions stand side by
// side, `lanes` of them: a multiple of 16.
struct ProjectParams {
  const float* vectors = nullptr;   // [tokens, C]
  const int32_t* tokens = nullptr;  // [count] which rows of `vectors`
  int64_t count = 0;
  int64_t clusters = 0;
  const float* directions = nullptr;  // [C, lanes]
  int64_t lanes = 0;
  bool same_on_all_levels = false;  // to the last bit: for what is chosen by, which takes twice as long
};

// Key terms of the squeezed sampler in fixed point, ordered within each block of 64 as block_position says.
struct FixParams {
  const Terms* terms = nullptr;         // [stride]
  int64_t stride = 0;                   // a multiple of 64
  const float* group_second = nullptr;  // [groups, stride] in place of the terms' own second ones
  int64_t groups = 1;
  float fold = 0;  // by this the second term counts as rest; 0: it has its own place
  // Receives, in units of largest / 65535 (second: / 32767), rest rounded up to the largest of a block:
  uint16_t* first = nullptr;       // [stride]
  int16_t* second = nullptr;       // [groups, stride], null with a fold
  uint16_t* block_rest = nullptr;  // [stride / 64]
};
struct FixScales {
  float first = 0, second = 0, rest = 0;  // largest
};

// One row of the squeezed sampler, in units of 2^(range - 14) after a product with the key's fixed-point
// term.
struct SqueezeRow {
  alignas(64) uint16_t first[kMostGroups] = {};  // by the group of the key
  uint16_t rest = 0, offset = 0;
  int16_t second = 0;
  uint16_t range = 0;                   // p stays below 2^(range + 1)
  const int16_t* key_second = nullptr;  // [stride], null = the second term counts as rest
  bool no_upper = false;                // p may be anything: the upper bound is not used
};

struct SqueezeParams {
  const uint16_t* key_first = nullptr;   // [stride]
  const uint16_t* key_group = nullptr;   // [stride], null = all keys are in group 0
  const uint16_t* block_rest = nullptr;  // [stride / 64] the largest of each block
  uint64_t stream_key = 0;
  bool poisson = false;
  int below = 0, above = 0;  // units by which the products may lie above and below the truth
  int series = 0;            // the same of the Poisson law's series, either way, in units of 2^-14
};

// A pair that the bounds leave open, and the first byte of its random number, in one word.
struct OpenPair {
  static constexpr int kByteShift = 32, kRowShift = 40;
  uint64_t bits = 0;

  OpenPair() = default;
  OpenPair(uint32_t row_in_head, int64_t position_in_keys, uint8_t byte_drawn)
      : bits(uint64_t{row_in_head} << kRowShift | uint64_t{byte_drawn} << kByteShift |
             static_cast<uint64_t>(position_in_keys)) {}
  int64_t row() const { return static_cast<int64_t>(bits >> kRowShift); }
  int64_t position() const { return static_cast<int64_t>(bits & 0xFFFFFFFFu); }  // in valid_keys
  uint32_t byte() const { return static_cast<uint32_t>(bits >> kByteShift) & 255; }
};

// Terms that depend on the group of the other side, see GroupBounds in sample_bounds.h: the first one of a
// row and the second one of a key.
struct GroupTerms {
  const float* row_first = nullptr;   // [L, lanes]; null: all tokens are in one group
  const float* key_second = nullptr;  // [groups, key_stride]
  int64_t lanes = 0, key_stride = 0;
  const uint8_t *row_group = nullptr, *key_group = nullptr;  // [L], [valid keys]
};

// The same bounds in floating point, for open pairs; see sample_bounds.h.
struct RefineParams {
  const Terms* row_terms = nullptr;  // [L]
  const Terms* key_terms = nullptr;  // [valid keys]
  GroupTerms groups;
  double exploration = 0;
  bool poisson = false;
  uint64_t stream_key = 0;
  int64_t first_row = 0;  // that `words` begins with
  int64_t words_per_row = 0;
};

// Both sides in 16-bit integers; see ProductBounds in sample_bounds.h.
struct ProductParams {
  const int16_t* keys = nullptr;     // [blocks, cluster_pairs, 64, 2]
  const float* key_terms = nullptr;  // [3, key_stride]: scale, error, length
  int64_t key_stride = 0;
  int64_t cluster_pairs = 0;
  float exploration = 0;
  bool poisson = false;
  uint64_t stream_key = 0;
};

struct ProductRow {
  uint32_t index = 0;
  int64_t keys = 0;                 // allowed keys; 0 = the row has no edge
  const int16_t* values = nullptr;  // [cluster_pairs, 2]
  float scale = 0, error = 0, length = 0;
};
inline constexpr int64_t kProductRows = 16;  // rows that share a pass over the keys

// What is known of an open pair beside its first byte: P(edge) = likely, up to spread.
struct OpenEstimate {
  float likely = 0, spread = 0;
};

// One vector in 16-bit integers: scale * values, off by a vector of length `error`.
struct RoundParams {
  int64_t clusters = 0;
  float largest = 0;      // values stay in [0, largest]
  int64_t pair_step = 0;  // value c goes to values[c / 2 * pair_step + c % 2]
};

// What the exact probability of a pair is made of.
struct ExactParams {
  const float* query_membership = nullptr;  // [L, C]
  const float* key_side = nullptr;          // [S, C]
  const int32_t* valid_keys = nullptr;      // [valid_key_count]
  int64_t clusters = 0;
  double exploration = 0;
  bool poisson = false;
  int64_t first_row = 0;  // that `words` begins with
  int64_t words_per_row = 0;
};

// One row of the thinning sampler: points on [begin, end) fall on its keys, `keys_per_unit` to a unit.
struct ThinRow {
  int64_t index = 0;
  int64_t keys = 0;  // allowed ones
  double begin = 0, end = 0, keys_per_unit = 0;
  double rate = 0;  // of points on a pair, at least that of the pair itself
  Terms terms;
  float margin = 0;       // what rounding may do to p
  bool squeezed = false;  // the squeezed sampler draws it
};

struct ThinParams {
  const Terms* keys = nullptr;  // [valid keys]
  ExactParams exact;
};

struct SampleKernels {
  // Are all numbers of the given vectors finite and not negative? Looks at `vectors`, `tokens`, `count`,
  // `clusters`.
  bool (*valid)(const MeasureParams& params);
  MeasureResult (*measure)(const MeasureParams& params, Terms* terms);
  // products[n, g] [count, lanes] of the n-th vector with direction g, squares[n] = its squared length.
  void (*project)(const ProjectParams& params, float* products, float* squares);
  FixScales (*fix)(const FixParams& params);
  // Words of one row over its first `count` valid keys: `words` the edges that are certain, `open` the pairs
  // that are not. Returns how many those are; `open` has room for one more than there can be.
  int64_t (*squeeze)(const SqueezeParams& params, const SqueezeRow& row, uint32_t row_index, int64_t count,
                     uint64_t* words, OpenPair* open);
  // Draws the finer bits of the open pairs, sets the bits of those that are edges and keeps those that are
  // still open, with their random numbers in [0, 1) in `numbers` [count]. Returns how many.
  int64_t (*refine)(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words,
                    double* numbers);
  // Sets the bits of those of the pairs whose numbers lie below P(edge).
  void (*decide)(const ExactParams& params, const OpenPair* pairs, const double* numbers, int64_t count,
                 uint64_t* words);
  // terms: scale, error, length of the vector.
  void (*round_vector)(const RoundParams& params, const float* vector, int16_t* values, float* terms);
  // The same two steps with bounds from the integer products. Rows that are not there have keys = 0; `open`
  // has room for all their keys and one more.
  int64_t (*squeeze_products)(const ProductParams& params, const ProductRow* rows, int64_t words_per_row,
                              uint64_t* words, OpenPair* open, OpenEstimate* estimates);
  int64_t (*refine_products)(const RefineParams& params, const OpenEstimate* estimates, OpenPair* pairs,
                             int64_t count, uint64_t* words, double* numbers);
  // m_i . t_j, the sum every decision is defined by: sixteen lanes, added in one order on all levels.
  float (*dot)(const float* a, const float* b, int64_t clusters);
  // Edges of one row, as positions in valid_keys, ascending, from those of the points, ascending too, that
  // lie before its end: one must lie beyond it, and 16 numbers must follow that one. `positions` has room for
  // as many as there are points, and 16 more. Returns how many edges; `taken` becomes how many points.
  int64_t (*thin)(const ThinParams& params, const ThinRow& row, const double* points, const uint32_t* coins,
                  int32_t* positions, int64_t& taken);
  // Running sums of the gaps that follow, from `sum` on.
  void (*points)(uint64_t stream_key, uint32_t sequence, uint32_t block, double sum, double* points,
                 uint32_t* coins);
  // Exponential gaps and uniform words of a thinning sequence, draws kGapDraws * block on.
  void (*gaps)(uint64_t stream_key, uint32_t sequence, uint32_t block, double* gaps, uint32_t* words);
  int64_t (*count_bits)(const uint64_t* words, int64_t word_count);
  // Columns of the set bits, of which there are `degree`, ascending; returns how many. Writes nothing beyond
  // `room`.
  int64_t (*expand)(const uint64_t* words, int64_t word_count, const int32_t* valid_keys, int64_t key_count,
                    int64_t degree, int32_t* columns, int64_t room);
};

inline constexpr int64_t kGapDraws = 64;

// The kernels of the active level.
const SampleKernels& sample_kernels();

}  // namespace edgewise::kernels::cpu
