#include <edgewise/attention/performer.h>

#include <cmath>
#include <limits>
#include <ostream>

#include <ATen/ATen.h>

#include "attention/masking.h"
#include "ops/normal_numbers.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

// exp(w . x' - |x'|^2 / 2 - c) + eps over sqrt(M), for x' already scaled; c from `top` of the projections.
template <typename Top>
at::Tensor kernel_features(const at::Tensor& x, const at::Tensor& features, double eps, Top top) {
  const at::Tensor projected = at::matmul(x, features.t());                 // [B, H, N, M]
  const at::Tensor half_square = x.square().sum(-1, /*keepdim=*/true) / 2;  // [B, H, N, 1]
  // c cancels between numerator and denominator but for eps, so no gradient goes through it.
  const at::Tensor c = top(projected.detach());
  return ((projected - half_square - c).exp() + eps) / std::sqrt(static_cast<double>(features.size(0)));
}

}  // namespace

at::Tensor orthogonal_features(const at::Tensor& directions, const at::Tensor& norms) {
  const int64_t count = directions.size(0), dim = directions.size(1);
  std::vector<at::Tensor> groups;
  for (int64_t first = 0; first < count; first += dim) {
    // Columns of Q are uniform on orthogonal frames once signs make the diagonal of R positive. A last group
    // that is not full takes some rows of a whole frame.
    const int64_t rows = std::min(dim, count - first);
    at::Tensor square = directions.slice(0, first, first + rows);
    if (rows < dim) square = at::cat({square, directions.slice(0, 0, dim - rows)});
    const auto [q, r] = at::linalg_qr(square.t().contiguous());
    groups.push_back((q * r.diagonal().sign()).t().slice(0, 0, rows));
  }
  return at::cat(groups) * norms.norm(2, 1, /*keepdim=*/true);
}

PerformerAttentionOptions::PerformerAttentionOptions(int64_t head_dim_, MethodMode mode_)
    : head_dim(head_dim_), mode(mode_) {}

PerformerAttentionImpl::PerformerAttentionImpl(PerformerAttentionOptions options_) : options(options_) {
  TORCH_CHECK_VALUE(options.head_dim > 0 && options.features > 0 && options.redraw_every >= 0,
                    "PerformerAttention: expected head_dim and features of at least 1 and redraw_every of at "
                    "least 0; got ",
                    options.head_dim, ", ", options.features, " and ", options.redraw_every);
  const at::Tensor normal = at::randn({2, options.features, options.head_dim}, at::kDouble);
  features = register_buffer("features", orthogonal_features(normal[0], normal[1]).to(at::kFloat));
}

void PerformerAttentionImpl::redraw(const RandomStream& random) {
  if (options.mode == MethodMode::kHarness || options.redraw_every == 0 || !is_training()) return;
  const auto period = static_cast<int64_t>(random.step / static_cast<uint64_t>(options.redraw_every));
  if (period == drawn_period_) return;
  // The features follow from seed, layer and period alone: a resumed run draws those of the whole run.
  RandomStream stream = random;
  stream.step = static_cast<uint64_t>(period);
  stream.first_item = 0;
  const EdgeShape shape{1, 2, options.features, options.head_dim};
  const at::NoGradGuard no_grad;
  const at::Tensor normal =
      ops::normal_numbers(ops::stream_keys(stream, kernels::Purpose::kEdges, shape), shape, at::kCPU)[0];
  // A new tensor's values, set without touching what earlier passes saved for their gradients.
  features.set_data(orthogonal_features(normal[0], normal[1]).to(features.options()));
  drawn_period_ = period;
}

at::Tensor PerformerAttentionImpl::attend(const MethodInput& input) {
  redraw(input.random);
  const bool harness = options.mode == MethodMode::kHarness;
  const double scale = std::pow(static_cast<double>(options.head_dim), harness ? -0.5 : -0.25);
  const double eps = harness ? 1e-4 : 1e-6;
  const at::Tensor weights = features.to(input.query.scalar_type());  // [M, D]
  const at::Tensor query =
      kernel_features(input.query * scale, weights, eps,
                      [](const at::Tensor& projected) { return projected.amax(-1, /*keepdim=*/true); });
  at::Tensor key = kernel_features(
      zero_padding(input.key * scale, input.key_mask), weights, eps, [&](const at::Tensor& projected) {
        if (harness || !input.key_mask) return projected.amax({-2, -1}, /*keepdim=*/true);
        // Over valid keys only, or 0 where there is none: padding must not matter.
        const at::Tensor padding = input.key_mask->logical_not().unsqueeze(1).unsqueeze(-1);
        const double lowest = std::numeric_limits<float>::lowest();
        const at::Tensor top = projected.masked_fill(padding, lowest).amax({-2, -1}, /*keepdim=*/true);
        return top.masked_fill(top == lowest, 0);
      });
  if (!harness) key = zero_padding(key, input.key_mask);
  const at::Tensor value = zero_padding(input.value, input.key_mask);
  const at::Tensor unnormalised = at::matmul(query, at::matmul(key.transpose(2, 3), value));
  at::Tensor total = at::matmul(query, key.sum(2).unsqueeze(-1));  // [B, H, N, 1]
  if (harness) return unnormalised / total;
  // An item without keys has total 0: its output is 0, not 0 / 0.
  total = total.masked_fill(total == 0, 1);
  return zero_padding(unnormalised / total, input.key_mask);
}

void PerformerAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::PerformerAttention(mode=" << to_string(options.mode)
         << ", features=" << options.features << ", redraw_every=" << options.redraw_every << ")";
}

}  // namespace edgewise
