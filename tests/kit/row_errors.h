// Errors row by row. The norm of a whole tensor hides a wrong row among thousands, so each row [.., D] has a
// limit of its own: its error against its own norm, or against a typical row's where its own is smaller.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace edgewise::kit {

struct RowErrors {
  double whole = 0;        // |found - expected| / |expected| of the whole tensor
  double worst = 0;        // the largest of a row
  int64_t worst_row = -1;  // counted over all dimensions but the last; -1 = there is none
};

inline RowErrors row_errors(const at::Tensor& found, const at::Tensor& expected) {
  TORCH_CHECK_VALUE(found.sizes() == expected.sizes(), "row_errors: expected ", expected.sizes(), "; got ",
                    found.sizes());
  if (expected.numel() == 0) return {};
  const at::Tensor e = expected.detach().to(at::kCPU, at::kDouble).reshape({-1, expected.size(-1)}),
                   f = found.detach().to(at::kCPU, at::kDouble).reshape(e.sizes());
  const at::Tensor norms = e.norm(2, {1}), typical = norms.square().mean().sqrt().clamp_min(1e-30),
                   of_rows = (f - e).norm(2, {1}) / norms.maximum(typical);
  const int64_t worst = of_rows.argmax().item<int64_t>();  // NaN counts as the largest
  return {((f - e).norm() / e.norm().clamp_min(1e-30)).item<double>(), of_rows[worst].item<double>(), worst};
}

// Whether the whole is within `limit` and every row within `rows` (5 times the limit: rounding is not spread
// evenly).
inline testing::AssertionResult rows_agree(const at::Tensor& found, const at::Tensor& expected, double limit,
                                           double rows = 0) {
  if (rows == 0) rows = 5 * limit;
  const RowErrors errors = row_errors(found, expected);
  if (errors.whole <= limit && errors.worst <= rows) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "error " << errors.whole << " (limit " << limit << "), of row "
                                     << errors.worst_row << " " << errors.worst << " (limit " << rows << ") ";
}

}  // namespace edgewise::kit
