// The pairs of squares: which of them masks and causality leave, and how many. On CPU, where a training step
// counts them, square by square; elsewhere in plain ATen.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <vector>

#include "graph/bool_bytes.h"
#include "graph/checks.h"
#include "graph/lists_cuda.h"
#include "graph/squares/squares.h"

namespace edgewise::graph {
namespace {

at::TensorOptions int64_of(const Squares& squares) {
  return at::TensorOptions().dtype(at::kLong).device(squares.cols.device());
}

// Of the tokens of a group that holds 16 of them, and of the last one: bit j of the word is token j.
uint32_t tokens_of_group(int64_t group, int64_t tokens) {
  const int64_t count = std::min(tokens - group * kSquare, kSquare);
  return (uint32_t{1} << count) - 1;
}

// Counts the pairs of squares on the host.
class PairCounter {
 public:
  PairCounter(const Squares& squares, const SquarePairs& pairs)
      : shape_(squares.shape),
        query_groups_(squares.query_groups()),
        key_groups_(squares.key_groups()),
        is_causal_(pairs.is_causal),
        offset_(pairs.query_offset) {
    if (pairs.key_bits.defined()) key_bits_ = pairs.key_bits.contiguous();
    if (!pairs.query_mask.defined()) return;
    const at::Tensor mask = pairs.query_mask.contiguous();
    const uint8_t* const valid = bool_bytes(mask);
    query_words_.resize(static_cast<size_t>(shape_.batch * query_groups_));
    for (int64_t b = 0; b < shape_.batch; ++b)
      for (int64_t i = 0; i < shape_.queries; ++i)
        if (valid[b * shape_.queries + i])
          query_words_[static_cast<size_t>(b * query_groups_ + i / kSquare)] |= uint32_t{1} << (i % kSquare);
  }

  int64_t count(int64_t item, int64_t query_group, int64_t key_group) const {
    const uint32_t queries = query_word(item, query_group), keys = key_word(item, key_group);
    // The last key that the group's first query may use, as a place in the key group.
    const int64_t last = (query_group - key_group) * kSquare + offset_;
    if (!is_causal_ || last >= kSquare - 1) return std::popcount(queries) * std::popcount(keys);
    int64_t total = 0;
    for (int64_t i = 0; i < kSquare; ++i)
      if (queries >> i & 1 && last + i >= 0)
        total += std::popcount(keys & ((uint32_t{2} << std::min(last + i, kSquare - 1)) - 1));
    return total;
  }

 private:
  uint32_t query_word(int64_t item, int64_t group) const {
    return query_words_.empty() ? tokens_of_group(group, shape_.queries)
                                : query_words_[static_cast<size_t>(item * query_groups_ + group)];
  }
  uint32_t key_word(int64_t item, int64_t group) const {
    const uint32_t there = tokens_of_group(group, shape_.keys);
    if (!key_bits_.defined()) return there;
    return there & static_cast<uint32_t>(key_bits_.const_data_ptr<int32_t>()[item * key_groups_ + group]);
  }

  EdgeShape shape_;
  int64_t query_groups_, key_groups_;
  bool is_causal_;
  int64_t offset_;
  at::Tensor key_bits_;
  std::vector<uint32_t> query_words_;  // [B, groups(L)], empty: all queries take part
};

// body(row, place, pairs of that square) for every square, row by row. On CPU.
template <typename Body>
void for_squares(const Squares& squares, const SquarePairs& pairs, const Body& body) {
  const PairCounter counter(squares, pairs);
  const at::Tensor begins = squares.begin.contiguous(), counts = squares.count.contiguous(),
                   all_cols = squares.cols.contiguous();
  const int32_t *begin = begins.const_data_ptr<int32_t>(), *count = counts.const_data_ptr<int32_t>(),
                *cols = all_cols.const_data_ptr<int32_t>();
  const int64_t groups = squares.query_groups(), heads = squares.shape.heads;
  for (int64_t row = 0; row < squares.rows(); ++row)
    for (int32_t place = begin[row]; place < begin[row] + count[row]; ++place)
      body(row, place, counter.count(row / groups / heads, row % groups, cols[place]));
}

int64_t square_count(const Squares& squares) {
  return squares.count.sum(at::kLong).item<int64_t>();
}

// How many of the first m keys of each group take part: [B, groups(S), 17] int64.
at::Tensor keys_before(const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  const at::Tensor key = at::arange(squares.key_groups() * kSquare, int64_of(squares));
  at::Tensor takes_part = (key < shape.keys).view({1, -1, kSquare});
  if (pairs.key_bits.defined()) {
    const at::Tensor bit = at::arange(kSquare, int64_of(squares));
    takes_part = pairs.key_bits.to(at::kLong)
                     .unsqueeze(2)
                     .bitwise_right_shift(bit)
                     .bitwise_and(1)
                     .to(at::kBool)
                     .logical_and(takes_part);
  }
  takes_part = takes_part.expand({shape.batch, squares.key_groups(), kSquare});
  return at::constant_pad_nd(at::cumsum(takes_part, 2, at::kLong), {1, 0}, 0);
}

// Squares that are listed, and what they join. All [squares, 16] but `head`.
struct SquareTokens {
  at::Tensor head;        // [squares]
  at::Tensor query;       // within its head; may lie beyond the last one
  at::Tensor takes_part;  // whether the query does
  at::Tensor key;

  SquareTokens(const Squares& squares, const SquarePairs& pairs, const ListedSquares& list) {
    const EdgeShape& shape = squares.shape;
    const at::Tensor within = at::arange(kSquare, int64_of(squares));
    const int64_t query_groups = std::max<int64_t>(squares.query_groups(), 1);
    head = list.rows.div(query_groups, "floor");
    query = (list.rows.remainder(query_groups) * kSquare).unsqueeze(1) + within;
    key = (list.cols * kSquare).unsqueeze(1) + within;
    takes_part = query < shape.queries;
    if (!pairs.query_mask.defined() || shape.queries == 0) return;
    const at::Tensor item = head.div(std::max<int64_t>(shape.heads, 1), "floor").unsqueeze(1);
    const at::Tensor place = item * shape.queries + query.clamp_max(shape.queries - 1);
    takes_part = takes_part.logical_and(pairs.query_mask.reshape(-1).take(place));
  }
};

// How many keys each query of each listed square meets there: [squares, 16].
at::Tensor keys_of_queries(const Squares& squares, const SquarePairs& pairs, const ListedSquares& list) {
  const SquareTokens tokens(squares, pairs, list);
  // The first so many of the group.
  at::Tensor first = at::full_like(tokens.query, kSquare);
  if (pairs.is_causal)
    first = (tokens.query + pairs.query_offset + 1 - tokens.key.narrow(1, 0, 1)).clamp(0, kSquare);
  first = first.masked_fill(tokens.takes_part.logical_not(), 0);
  const at::Tensor item = tokens.head.div(std::max<int64_t>(squares.shape.heads, 1), "floor");
  const at::Tensor group = item * squares.key_groups() + list.cols;
  return keys_before(squares, pairs).reshape(-1).take(group.unsqueeze(1) * (kSquare + 1) + first);
}

bool same_mask(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || a.is_same(b) || at::equal(a, b);
}

}  // namespace

at::Tensor key_bits_of(const at::Tensor& key_mask) {
  TORCH_CHECK_VALUE(key_mask.dim() == 2 && key_mask.scalar_type() == at::kBool,
                    "key_bits_of: expected key_mask [B, S] of dtype bool; got ", key_mask.scalar_type(),
                    " of shape ", key_mask.sizes());
  const int64_t keys = key_mask.size(1), groups = groups_of(keys);
  const at::Tensor bit = at::arange(kSquare, at::TensorOptions().dtype(at::kLong).device(key_mask.device()));
  const at::Tensor bits =
      at::constant_pad_nd(zeros_and_ones(key_mask).to(at::kLong), {0, groups * kSquare - keys}, 0)
          .view({key_mask.size(0), groups, kSquare})
          .bitwise_left_shift(bit);
  return bits.sum(2).to(at::kInt);
}

bool same_pairs(const SquarePairs& a, const SquarePairs& b) {
  return a.is_causal == b.is_causal && (!a.is_causal || a.query_offset == b.query_offset) &&
         same_mask(a.key_bits, b.key_bits) && same_mask(a.query_mask, b.query_mask);
}

void check_square_pairs(const char* function, const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  const auto check_device = [&](const char* name, const at::Tensor& tensor) {
    TORCH_CHECK_VALUE(tensor.device() == squares.cols.device(), function, ": expected ", name, " on ",
                      squares.cols.device(), " as the squares; got ", tensor.device());
  };
  if (const at::Tensor& bits = pairs.key_bits; bits.defined()) {
    TORCH_CHECK_VALUE(bits.sizes() == at::IntArrayRef({shape.batch, squares.key_groups()}) &&
                          bits.scalar_type() == at::kInt,
                      function, ": expected key_bits [", shape.batch, ", ", squares.key_groups(),
                      "] of dtype int32; got ", bits.scalar_type(), " of shape ", bits.sizes(),
                      ". Make them with key_bits_of(key_mask)");
    check_device("key_bits", bits);
  }
  if (pairs.query_mask.defined()) {
    check_token_mask(function, "query_mask", pairs.query_mask, shape.batch, shape.queries);
    check_device("query_mask", pairs.query_mask);
  }
}

Squares without_empty(const Squares& squares, const SquarePairs& pairs) {
  if (!squares.cols.is_cpu()) {
    const EdgeSet groups = groups_of_squares(squares);
    return squares_from_groups(squares.shape, groups.kept(pairs_per_square(squares, pairs) > 0));
  }
  const auto int32s = [&](int64_t size) { return at::empty({size}, squares.cols.options()); };
  Squares result{squares.shape, int32s(squares.rows()), int32s(squares.rows()),
                 int32s(square_count(squares))};
  int32_t *const begin = result.begin.mutable_data_ptr<int32_t>(),
                 *const count = result.count.mutable_data_ptr<int32_t>(),
                 *const cols = result.cols.mutable_data_ptr<int32_t>();
  const at::Tensor all_cols = squares.cols.contiguous();
  const int32_t* const given = all_cols.const_data_ptr<int32_t>();
  std::fill(count, count + squares.rows(), 0);
  int32_t left = 0;
  for_squares(squares, pairs, [&](int64_t row, int32_t place, int64_t pairs_there) {
    if (pairs_there == 0) return;
    cols[left++] = given[place];
    ++count[row];
  });
  for (int64_t row = 0, next = 0; row < squares.rows(); next += count[row++])
    begin[row] = static_cast<int32_t>(next);
  result.cols = result.cols.narrow(0, 0, left);
  return result;
}

at::Tensor pair_mask(const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  at::Tensor mask = mask_of_squares(squares)
                        .repeat_interleave(kSquare, 2)
                        .repeat_interleave(kSquare, 3)
                        .narrow(2, 0, shape.queries)
                        .narrow(3, 0, shape.keys);
  const at::Tensor key = at::arange(shape.keys, int64_of(squares));
  if (pairs.key_bits.defined()) {
    const at::Tensor words = pairs.key_bits.to(at::kLong).index_select(1, key.div(kSquare, "floor"));
    mask = mask.logical_and(words.bitwise_right_shift(key.remainder(kSquare))
                                .bitwise_and(1)
                                .to(at::kBool)
                                .view({shape.batch, 1, 1, shape.keys}));
  }
  if (pairs.query_mask.defined())
    mask = mask.logical_and(pairs.query_mask.view({shape.batch, 1, shape.queries, 1}));
  if (pairs.is_causal)
    mask = mask.logical_and(key <=
                            (at::arange(shape.queries, int64_of(squares)) + pairs.query_offset).unsqueeze(1));
  return mask;
}

EdgeSet edges_of_squares(const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  const ListedSquares list = listed(squares);
  const SquareTokens tokens(squares, pairs, list);
  at::Tensor key_takes_part = tokens.key < shape.keys;
  if (pairs.key_bits.defined()) {
    const at::Tensor item = tokens.head.div(std::max<int64_t>(shape.heads, 1), "floor");
    const at::Tensor words =
        pairs.key_bits.to(at::kLong).reshape(-1).index_select(0, item * squares.key_groups() + list.cols);
    const at::Tensor within = at::arange(kSquare, int64_of(squares));
    key_takes_part = key_takes_part.logical_and(
        words.unsqueeze(1).bitwise_right_shift(within).bitwise_and(1).to(at::kBool));
  }
  at::Tensor is_edge = tokens.takes_part.unsqueeze(2).logical_and(key_takes_part.unsqueeze(1));
  if (pairs.is_causal)
    is_edge = is_edge.logical_and(tokens.key.unsqueeze(1) <= tokens.query.unsqueeze(2) + pairs.query_offset);
  // Sorted pair numbers (head, query, key).
  const at::Tensor number =
      ((tokens.head.unsqueeze(1) * shape.queries + tokens.query) * shape.keys).unsqueeze(2) +
      tokens.key.unsqueeze(1);
  const at::Tensor numbers = std::get<0>(number.masked_select(is_edge).sort());
  const int64_t keys = std::max<int64_t>(shape.keys, 1);
  const at::Tensor row = numbers.div(keys, "floor");
  const at::Tensor offsets = at::zeros({shape.rows() + 1}, int64_of(squares));
  offsets.narrow(0, 1, shape.rows())
      .scatter_add_(0, row, at::ones_like(row))
      .copy_(at::cumsum(offsets.narrow(0, 1, shape.rows()), 0));
  return EdgeSet::from_trusted_csr(shape, offsets, numbers.remainder(keys).to(at::kInt));
}

at::Tensor pairs_per_square(const Squares& squares, const SquarePairs& pairs) {
  if (!squares.cols.is_cpu()) return keys_of_queries(squares, pairs, listed(squares)).sum(1);
  const at::Tensor result = at::empty({square_count(squares)}, at::kLong);
  int64_t* next = result.mutable_data_ptr<int64_t>();
  for_squares(squares, pairs, [&](int64_t, int32_t, int64_t pairs_there) { *next++ = pairs_there; });
  return result;
}

at::Tensor pairs_per_query(const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  const ListedSquares list = listed(squares);
  const int64_t groups = squares.query_groups();
  return at::zeros({squares.rows(), kSquare}, int64_of(squares))
      .index_add(0, list.rows, keys_of_queries(squares, pairs, list))
      .view({shape.batch, shape.heads, groups * kSquare})
      .narrow(2, 0, shape.queries)
      .contiguous();
}

at::Tensor pairs_per_head(const Squares& squares, const SquarePairs& pairs) {
  const EdgeShape& shape = squares.shape;
  if (!squares.cols.is_cpu())
    if (auto counts = cuda_pairs_per_head(squares, pairs)) return *counts;
  const at::Tensor result = at::zeros({shape.batch * shape.heads}, int64_of(squares));
  const int64_t groups = std::max<int64_t>(squares.query_groups(), 1);
  if (squares.cols.is_cpu()) {
    int64_t* const counts = result.mutable_data_ptr<int64_t>();
    for_squares(squares, pairs,
                [&](int64_t row, int32_t, int64_t pairs_there) { counts[row / groups] += pairs_there; });
  } else {
    const ListedSquares list = listed(squares);
    result.scatter_add_(0, list.rows.div(groups, "floor"), keys_of_queries(squares, pairs, list).sum(1));
  }
  return result.view({shape.batch, shape.heads});
}

}  // namespace edgewise::graph
