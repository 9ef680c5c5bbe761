#include "edges/sac/sac_distill.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "ops/streams.h"
#include "ops/walk/walk_random.h"

namespace edgewise::sac {
namespace {

// Rows [B, R] of [B, X, L, W]: [B, X, R, W].
at::Tensor take_rows(const at::Tensor& values, const at::Tensor& rows) {
  return values.gather(2, rows.view({rows.size(0), 1, rows.size(1), 1})
                              .expand({rows.size(0), values.size(1), rows.size(1), values.size(3)}));
}

}  // namespace

at::Tensor sampled_rows(const EdgeRequest& request, int64_t count) {
  const EdgeShape shape = request.shape();
  const at::Tensor keys = ops::stream_keys(request.random, kernels::Purpose::kProbes, {shape.batch, 1, 0, 0});
  const at::Tensor uniforms =
      ops::reference::walk_uniforms(keys, 1, count, kernels::kRowChoiceLane, request.query.device())
          .squeeze(1);
  const auto mask = request.query_mask();
  if (!mask) return (uniforms * static_cast<double>(shape.queries)).to(at::kLong);
  // Valid queries first, in their order.
  const at::Tensor places = mask->logical_not().to(at::kLong).argsort(/*stable=*/true, 1, false);
  const at::Tensor nth = (uniforms * mask->sum(1, true).to(at::kDouble)).to(at::kLong);
  return places.gather(1, nth);
}

at::Tensor distillation_loss(const WalkInputs& inputs, const WalkResult& walk, const EdgeRequest& request,
                             const at::Tensor& rows) {
  const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1);
  at::Tensor teacher;  // [B, G, R, S]
  {
    const at::NoGradGuard guard;
    const at::Tensor query = take_rows(request.query.detach(), rows), key = request.key.detach();
    const at::Tensor scores =
        at::matmul(query, key.transpose(2, 3)) / std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor open = take_rows(inputs.allowed, rows);
    const at::Tensor attention =
        scores.to(inputs.query_nodes.scalar_type()).masked_fill(open.logical_not(), -1e30).softmax(-1);
    teacher = groups == 1 ? attention.mean(1, true) : attention;
  }
  at::Tensor total = at::zeros({batch}, inputs.query_nodes.options());
  at::Tensor count = at::zeros({batch}, inputs.query_nodes.options());
  for (const WalkStep& step : walk.distributions) {
    const at::Tensor left = take_rows(step.allowed, rows).to(teacher.scalar_type());
    const at::Tensor target = teacher * left / (teacher * left).sum(-1, true).clamp_min(1e-30);
    const at::Tensor kl =
        (at::xlogy(target, target) - target * take_rows(step.log_p, rows)).sum(-1);  // [B, G, R]
    const at::Tensor live = step.is_live.gather(2, rows.unsqueeze(1).expand({batch, groups, rows.size(1)}));
    total = total + kl.masked_fill(live.logical_not(), 0).sum({1, 2});
    count = count + live.sum({1, 2}).to(count.scalar_type());
  }
  return total / count.clamp_min(1);
}

}  // namespace edgewise::sac
