// Does a sample of graphs follow its law? Marginals alone are not enough: a generator can have every P(edge)
// right and still have dependent edges, so the row-degree variance and lag correlations are tested too.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <sstream>
#include <string>

namespace edgewise::kit {

// Every entry is a z-score: standard normal when the law holds.
struct LawCheck {
  double frequency = 0;  // chi-square of the per-edge frequencies, standardised
  double density_mean = 0;
  double density_variance = 0;
  double row_degree_variance = 0;
  double neighbour_column = 0;  // correlation of (i, j) and (i, j + 1)
  double neighbour_row = 0;     // of (i, j) and (i + 1, j)
  double next_item = 0;         // of the same pair in successive draws
  double next_head = 0;         // of the same pair in the two heads
  int64_t impossible = 0;       // edges with probability 0, and absent ones with probability 1

  double worst() const {
    double result = 0;
    for (const double z : {frequency, density_mean, density_variance, row_degree_variance, neighbour_column,
                           neighbour_row, next_item, next_head})
      result = std::max(result, std::isfinite(z) ? std::abs(z) : 1e9);
    return result;
  }
  bool holds(double bound) const { return impossible == 0 && worst() < bound; }
  std::string text() const {
    std::ostringstream out;
    out << "frequency " << frequency << ", density mean " << density_mean << ", density variance "
        << density_variance << ", row-degree variance " << row_degree_variance << ", neighbours "
        << neighbour_column << " " << neighbour_row << ", next item " << next_item << ", next head "
        << next_head << ", impossible " << impossible;
    return out.str();
  }
};

// z-score of mean(a * b) for independent standardised a, b with zero mean: sqrt(count) * mean / rms(a * b).
inline double correlation_z(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor product = (a * b).reshape(-1);
  if (product.numel() == 0) return 0;
  const double rms = product.square().mean().sqrt().item<double>();
  return rms == 0 ? 0 : product.mean().item<double>() / rms * std::sqrt(static_cast<double>(product.numel()));
}

// Sample variance of x (known mean 0, known variance v per entry) against v, in standard errors from the
// data's own spread.
inline double variance_z(const at::Tensor& squares, const at::Tensor& expected) {
  const at::Tensor difference = (squares - expected).reshape(-1);
  const double spread = difference.std().item<double>();
  return spread == 0
             ? 0
             : difference.mean().item<double>() / spread * std::sqrt(static_cast<double>(difference.numel()));
}

// mask [R, H, L, S]: R independent draws of one graph per head; probability [H, L, S].
inline LawCheck check_law(const at::Tensor& mask, const at::Tensor& probability) {
  const at::Tensor p = probability.to(at::kDouble), x = mask.to(at::kDouble);
  const double draws = static_cast<double>(mask.size(0));
  LawCheck result;
  result.impossible = ((p == 0) & mask).sum().item<int64_t>() + ((p == 1) & ~mask).sum().item<int64_t>();
  const at::Tensor centred = x - p, variance = p * (1 - p);
  const at::Tensor random = variance > 0;
  const int64_t pairs = random.sum().item<int64_t>();
  if (pairs == 0) return result;

  const at::Tensor z2 = (centred.sum(0).square() / (draws * variance)).masked_select(random);
  // Var(z^2) = 2 + (1 - 6 v) / (v R) for a sum of R Bernoulli variables; the second term matters for rare
  // edges.
  const at::Tensor v = variance.masked_select(random);
  const double spread = (2 + (1 - 6 * v) / (v * draws)).sum().sqrt().item<double>();
  result.frequency = (z2 - 1).sum().item<double>() / spread;

  const at::Tensor total = centred.sum({1, 2, 3});
  result.density_mean = total.sum().item<double>() / std::sqrt(draws * variance.sum().item<double>());
  result.density_variance = variance_z(total.square(), variance.sum());
  result.row_degree_variance =
      variance_z(centred.sum(3).square(), variance.sum(2).expand({mask.size(0), -1, -1}));
  const at::Tensor unit = centred / variance.sqrt().masked_fill(~random, INFINITY);
  const int64_t rows = unit.size(2), columns = unit.size(3);
  result.neighbour_column = correlation_z(unit.narrow(3, 0, columns - 1), unit.narrow(3, 1, columns - 1));
  result.neighbour_row = correlation_z(unit.narrow(2, 0, rows - 1), unit.narrow(2, 1, rows - 1));
  result.next_item = correlation_z(unit.narrow(0, 0, unit.size(0) - 1), unit.narrow(0, 1, unit.size(0) - 1));
  if (unit.size(1) > 1) result.next_head = correlation_z(unit.select(1, 0), unit.select(1, 1));
  return result;
}

}  // namespace edgewise::kit
