// Squares: their checks, their ways to and from groups and masks, set operations. In plain ATen, the same on
// every device, but for what a training step on CPU asks for.
#include "graph/squares/squares.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "graph/checks.h"
#include "graph/lists_cuda.h"

namespace edgewise::graph {
namespace {

at::TensorOptions int64_like(const at::Tensor& tensor) {
  return at::TensorOptions().dtype(at::kLong).device(tensor.device());
}

EdgeShape shape_of_groups(const EdgeShape& tokens) {
  return {tokens.batch, tokens.heads, groups_of(tokens.queries), groups_of(tokens.keys)};
}

at::Tensor numbers_of(const Squares& squares) {
  const ListedSquares list = listed(squares);
  return list.rows * squares.key_groups() + list.cols;
}

// The counting sort behind transposed(), head by head.
TransposedSquares transposed_on_cpu(const Squares& squares) {
  const int64_t query_groups = squares.query_groups(), key_groups = squares.key_groups();
  const at::Tensor begins = squares.begin.contiguous(), counts = squares.count.contiguous(),
                   all_cols = squares.cols.contiguous();
  const int32_t *begin = begins.const_data_ptr<int32_t>(), *count = counts.const_data_ptr<int32_t>(),
                *cols = all_cols.const_data_ptr<int32_t>();
  const int64_t total = std::accumulate(count, count + squares.rows(), int64_t{0});
  const int64_t columns = squares.shape.batch * squares.shape.heads * key_groups;
  const auto int32s = [&](int64_t size) { return at::empty({size}, squares.cols.options()); };
  TransposedSquares result{int32s(columns), int32s(columns), int32s(total), int32s(total)};
  int32_t *to_begin = result.begin.mutable_data_ptr<int32_t>(),
          *to_count = result.count.mutable_data_ptr<int32_t>(),
          *rows = result.rows.mutable_data_ptr<int32_t>(),
          *places = result.places.mutable_data_ptr<int32_t>();
  std::fill(to_count, to_count + columns, 0);
  int32_t next = 0;
  for (int64_t head = 0; head < squares.shape.batch * squares.shape.heads; ++head) {
    const int64_t first_row = head * query_groups, first_column = head * key_groups;
    const auto for_squares = [&](const auto& body) {
      for (int64_t row = first_row; row < first_row + query_groups; ++row)
        for (int32_t place = begin[row]; place < begin[row] + count[row]; ++place)
          body(row, place, first_column + cols[place]);
    };
    for_squares([&](int64_t, int32_t, int64_t column) { ++to_count[column]; });
    for (int64_t column = first_column; column < first_column + key_groups; ++column) {
      to_begin[column] = next;
      next += to_count[column];
      to_count[column] = 0;
    }
    for_squares([&](int64_t row, int32_t place, int64_t column) {
      const int32_t at = to_begin[column] + to_count[column]++;
      rows[at] = static_cast<int32_t>(row - first_row);
      places[at] = place;
    });
  }
  return result;
}

void check_int32(const char* function, const char* name, const at::Tensor& tensor, int64_t size) {
  TORCH_CHECK_VALUE(tensor.defined(), function, ": expected squares with ", name, "; got none");
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kInt, function, ": expected squares with ", name,
                   " of dtype int32; got ", tensor.scalar_type());
  TORCH_CHECK_VALUE(tensor.dim() == 1 && (size < 0 || tensor.size(0) == size), function,
                    ": expected squares with ", name, size < 0 ? " [places]" : " [B*H*groups(L)] = [",
                    size < 0 ? "" : std::to_string(size) + "]", "; got ", tensor.sizes());
}

}  // namespace

void check_square_sizes(const char* function, const Squares& squares) {
  check_shape(function, squares.shape);
  check_int32(function, "begin", squares.begin, squares.rows());
  check_int32(function, "count", squares.count, squares.rows());
  check_int32(function, "cols", squares.cols, -1);
  TORCH_CHECK_VALUE(squares.cols.size(0) <= std::numeric_limits<int32_t>::max(), function,
                    ": expected at most 2^31 - 1 places for squares (begin is int32); got ",
                    squares.cols.size(0));
  TORCH_CHECK_VALUE(
      squares.begin.device() == squares.cols.device() && squares.count.device() == squares.cols.device(),
      function, ": expected squares on one device; got begin on ", squares.begin.device(), ", count on ",
      squares.count.device(), " and cols on ", squares.cols.device());
}

void check_squares(const char* function, const Squares& squares) {
  check_square_sizes(function, squares);
  const at::Tensor begins = squares.begin.cpu().contiguous(), counts = squares.count.cpu().contiguous(),
                   all_cols = squares.cols.cpu().contiguous();
  const int32_t *begin = begins.const_data_ptr<int32_t>(), *count = counts.const_data_ptr<int32_t>(),
                *cols = all_cols.const_data_ptr<int32_t>();
  const int64_t places = all_cols.size(0), rows = squares.rows(), groups = squares.key_groups();
  bool in_order = true;
  int64_t end = 0;
  for (int64_t row = 0; row < rows; ++row) {
    TORCH_CHECK_INDEX(begin[row] >= 0 && count[row] >= 0 && int64_t{begin[row]} + count[row] <= places,
                      function, ": expected squares at places in [0, ", places, "); row ", row, " has ",
                      count[row], " from ", begin[row], " on");
    for (int32_t place = begin[row]; place < begin[row] + count[row]; ++place) {
      TORCH_CHECK_INDEX(cols[place] >= 0 && cols[place] < groups, function, ": expected key groups in [0, ",
                        groups, "); row ", row, " has ", cols[place]);
      TORCH_CHECK_VALUE(place == begin[row] || cols[place - 1] < cols[place], function,
                        ": expected the key groups of a row sorted and without repeats; row ", row, " has ",
                        cols[place - (place > begin[row])], " before ", cols[place]);
    }
    if (count[row] == 0) continue;
    in_order = in_order && begin[row] >= end;
    end = int64_t{begin[row]} + count[row];
  }
  if (in_order) return;
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t row) { return count[row] == 0; });
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return begin[a] < begin[b]; });
  for (size_t n = 1; n < order.size(); ++n)
    TORCH_CHECK_VALUE(begin[order[n]] >= begin[order[n - 1]] + count[order[n - 1]], function,
                      ": expected rows of squares that share no place; rows ", order[n - 1], " and ",
                      order[n], " both have place ", begin[order[n]]);
}

ListedSquares listed(const Squares& squares) {
  const at::Tensor count = squares.count.to(at::kLong);
  const at::Tensor rows = at::arange(squares.rows(), int64_like(squares.cols)).repeat_interleave(count);
  // The n-th square of a row stands n places behind its first one.
  const at::Tensor before = at::cumsum(count, 0) - count;
  const at::Tensor n = at::arange(rows.size(0), int64_like(squares.cols)) - before.index_select(0, rows);
  const at::Tensor places = squares.begin.to(at::kLong).index_select(0, rows) + n;
  return {rows, squares.cols.to(at::kLong).index_select(0, places), places};
}

TransposedSquares transposed(const Squares& squares) {
  check_square_sizes("transposed squares", squares);
  if (squares.cols.is_cpu()) return transposed_on_cpu(squares);
  if (auto lists = cuda_transposed_squares(squares)) return std::move(*lists);
  const ListedSquares list = listed(squares);
  const int64_t query_groups = std::max<int64_t>(squares.query_groups(), 1);
  const int64_t columns = squares.shape.batch * squares.shape.heads * squares.key_groups();
  const at::Tensor column = list.rows.div(query_groups, "floor") * squares.key_groups() + list.cols;
  const auto [sorted, order] = at::sort(column, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor count =
      at::zeros({columns}, int64_like(column)).scatter_add(0, column, at::ones_like(column));
  return {(at::cumsum(count, 0) - count).to(at::kInt), count.to(at::kInt),
          list.rows.remainder(query_groups).index_select(0, order).to(at::kInt),
          list.places.index_select(0, order).to(at::kInt)};
}

Squares squares_from_groups(const EdgeShape& tokens, const EdgeSet& groups) {
  constexpr const char* kName = "squares_from_groups";
  check_shape(kName, tokens);
  const EdgeShape expected = shape_of_groups(tokens);
  TORCH_CHECK_VALUE(groups.shape() == expected, kName, ": expected graphs of groups ", to_string(expected),
                    " for tokens ", to_string(tokens), "; got ", to_string(groups.shape()));
  TORCH_CHECK_VALUE(groups.edge_count() <= std::numeric_limits<int32_t>::max(), kName,
                    ": expected at most 2^31 - 1 squares; got ", groups.edge_count());
  const at::Tensor& offsets = groups.row_offsets();
  return {tokens, offsets.narrow(0, 0, expected.rows()).to(at::kInt), offsets.diff().to(at::kInt),
          groups.col_indices()};
}

Squares squares_from_mask(const EdgeShape& tokens, const at::Tensor& mask) {
  const EdgeShape groups = shape_of_groups(tokens);
  TORCH_CHECK_VALUE(
      mask.sizes() == at::IntArrayRef({groups.batch, groups.heads, groups.queries, groups.keys}) &&
          mask.scalar_type() == at::kBool,
      "squares_from_mask: expected a boolean mask [B, H, ceil(L/16), ceil(S/16)] = ", to_string(groups),
      " for tokens ", to_string(tokens), "; got ", mask.scalar_type(), " of shape ", mask.sizes());
  return squares_from_groups(tokens, EdgeSet::from_mask(mask));
}

EdgeSet groups_of_squares(const Squares& squares) {
  const at::Tensor offsets = at::zeros({squares.rows() + 1}, int64_like(squares.cols));
  offsets.narrow(0, 1, squares.rows()).copy_(at::cumsum(squares.count, 0, at::kLong));
  return EdgeSet::from_trusted_csr(shape_of_groups(squares.shape), offsets,
                                   listed(squares).cols.to(at::kInt));
}

at::Tensor mask_of_squares(const Squares& squares) {
  const EdgeShape groups = shape_of_groups(squares.shape);
  return at::zeros({groups.pairs()}, int64_like(squares.cols).dtype(at::kBool))
      .index_fill_(0, numbers_of(squares), true)
      .view({groups.batch, groups.heads, groups.queries, groups.keys});
}

Squares united(const Squares& a, const Squares& b) {
  check_same_shape("united squares", a.shape, b.shape);
  return squares_from_groups(a.shape, groups_of_squares(a).united_with(groups_of_squares(b)));
}

Squares without(const Squares& a, const Squares& b) {
  check_same_shape("squares without others", a.shape, b.shape);
  return squares_from_groups(a.shape, groups_of_squares(a).minus(groups_of_squares(b)));
}

}  // namespace edgewise::graph
