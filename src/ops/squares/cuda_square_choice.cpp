// A block model's choice of squares on CUDA: what the kernels take, and their launches on the current stream.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/cuda_launch.h"
#include "graph/squares/joined_squares.h"
#include "ops/attention/attention_call.h"
#include "ops/squares/square_choice_launch.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

bool is_number(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16;
}

at::Tensor rates_on(at::Device device, const std::vector<double>& rates,
                    const std::shared_ptr<const ReplayedNumbers>& replayed) {
  return on_device(device, [now = probe_rates_now(rates, replayed)](const StreamShift&) {
    return at::tensor(now(), at::kDouble);
  });
}

std::optional<at::Tensor> whole_mask(const std::optional<at::Tensor>& mask) {
  return mask ? std::optional(mask->contiguous()) : std::nullopt;
}

struct MeansOfGroups : torch::autograd::Function<MeansOfGroups> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query, const at::Tensor& key,
                                                const std::optional<at::Tensor>& query_mask,
                                                const std::optional<at::Tensor>& key_mask) {
    const c10::cuda::CUDAGuard guard(query.device());
    const at::Tensor queries = query_mask.value_or(at::Tensor()), keys = key_mask.value_or(at::Tensor());
    context->save_for_backward({query, key, queries, keys});
    const GroupMeans means =
        means_by_kernels(query, key, queries, keys, graph::current_stream(), graph::check_launch);
    context->set_materialize_grads(false);
    return {means.query, means.key, query, key};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const c10::cuda::CUDAGuard guard(saved[0].device());
    if (!grads[0].defined() && !grads[1].defined()) return {grads[2], grads[3], {}, {}};
    const auto of_means = [](const at::Tensor& grad, const at::Tensor& tokens) {
      if (grad.defined()) return grad;
      return at::zeros({tokens.size(0), tokens.size(1), graph::groups_of(tokens.size(2)), tokens.size(3)},
                       tokens.options());
    };
    const auto rows = [](const at::Tensor& grad) {
      return grad.defined() && grad.stride(3) != 1 ? grad.contiguous() : grad;
    };
    const GroupMeans result = mean_grads_by_kernels(
        {of_means(grads[0], saved[0]), of_means(grads[1], saved[1]), rows(grads[2]), rows(grads[3])},
        saved[0], saved[1], saved[2], saved[3], graph::current_stream(), graph::check_launch);
    return {result.query, result.key, {}, {}};
  }
};

}  // namespace

std::string cuda_choice_refusal(const SquareSampling& sampling) {
  const at::Tensor &query = sampling.query_membership, &side = sampling.key_side;
  if (!query.is_cuda() || !graph::is_hopper(query.device()))
    return "the kernels that draw squares are built for compute capability 9.0 (Hopper)";
  if (query.scalar_type() != side.scalar_type() || !is_number(query.scalar_type()))
    return c10::str("the kernels that draw squares take memberships in float32 or bfloat16; got ",
                    query.scalar_type());
  if (!kernels::cuda::square_choice_takes(query.size(3), static_cast<int64_t>(query.element_size())))
    return c10::str("the kernels that draw squares take up to ", kernels::cuda::kMostChoiceClusters,
                    " clusters in rows of whole 16 bytes; got ", query.size(3));
  if (query.size(0) * query.size(1) * query.size(2) * side.size(2) > std::numeric_limits<int32_t>::max())
    return "more than 2^31 - 1 squares could be chosen, for which there is no room";
  return "";
}

ChosenSquares cuda_choose_squares(const SquareSampling& sampling) {
  const at::Device device = sampling.query_membership.device();
  const c10::cuda::CUDAGuard guard(device);
  const SampleOptions& options = sampling.options;
  const EdgeShape& shape = sampling.shape;
  const bool has_probes = !sampling.probe_rates.empty();
  const at::Tensor edge_keys = stream_keys_on(device, options.random, kernels::Purpose::kEdges, shape);
  at::Tensor probe_keys, rates;
  if (has_probes) {
    probe_keys = stream_keys_on(device, options.random, kernels::Purpose::kProbes, shape);
    rates = rates_on(device, sampling.probe_rates, options.replayed);
  }
  return choose_squares_by_kernels(sampling, edge_keys, probe_keys, rates, graph::current_stream(),
                                   graph::check_launch);
}

std::optional<GroupMeans> cuda_group_means(const at::Tensor& query, const at::Tensor& key,
                                           const std::optional<at::Tensor>& query_mask,
                                           const std::optional<at::Tensor>& key_mask) {
  const auto takes = [&](const at::Tensor& x, const std::optional<at::Tensor>& mask) {
    return x.dim() == 4 && x.scalar_type() == query.scalar_type() && x.device() == query.device() &&
           x.stride(3) == 1 && (!mask || mask->device() == query.device());
  };
  if (!query.is_cuda() || !graph::is_hopper(query.device()) || !is_number(query.scalar_type()) ||
      !takes(query, query_mask) || !takes(key, key_mask))
    return std::nullopt;
  const auto means = MeansOfGroups::apply(query, key, whole_mask(query_mask), whole_mask(key_mask));
  return GroupMeans{means[0], means[1], means[2], means[3]};
}

std::optional<SquareMembershipGrads> cuda_membership_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                                           const SquareBackward& backward) {
  const at::Tensor &query = learner.query_membership, &side = learner.key_side;
  if (!query.is_cuda() || !graph::is_hopper(query.device()) || learner.poisson_slope ||
      query.scalar_type() != side.scalar_type() || !is_number(query.scalar_type()) ||
      !kernels::cuda::square_choice_takes(query.size(3), static_cast<int64_t>(query.element_size())) ||
      backward.credit.scalar_type() != at::kFloat)
    return std::nullopt;
  const c10::cuda::CUDAGuard guard(query.device());
  const auto weighed = [](const graph::Squares& squares, const at::Tensor& values,
                          const std::optional<graph::TransposedSquares>& by_keys) {
    return WeighedSquares{
        {squares.shape, squares.begin.contiguous(), squares.count.contiguous(), squares.cols.contiguous()},
        by_keys ? *by_keys : graph::transposed(squares),
        values};
  };
  const WeighedSquares present = weighed(*edges.squares(), backward.credit, backward.by_keys);
  // Squares that are there anyway owe nothing to who chose squares.
  if (learner.fixed)
    graph::clear_by_kernels(present.values, present.squares, *learner.fixed->squares(),
                            graph::current_stream(), graph::check_launch);
  std::optional<WeighedSquares> probes;
  at::Tensor rates;
  if (backward.probe_credit.defined()) {
    probes = weighed(*learner.probes->squares(), backward.probe_credit, std::nullopt);
    rates = rates_on(query.device(), learner.probe_rates, learner.replayed);
  }
  return membership_grads_by_kernels(present, probes ? &*probes : nullptr, rates, learner.gradient_clip,
                                     query, side, graph::current_stream(), graph::check_launch);
}

}  // namespace edgewise::ops
