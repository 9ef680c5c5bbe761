// functional::additive_edge_attention and sparse_product: checks, choice of kernel, autograd.
#include <edgewise/ops/additive_attention.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/checks.h"
#include "ops/additive/additive_call.h"
#include "ops/attention/learners/learner_grads.h"
#include "ops/streams.h"

namespace edgewise::functional {
namespace {

using ops::AdditiveBackward;
using ops::AdditiveForward;
using ops::AdditiveInputs;

void check_dtype(const char* name, const at::Tensor& tensor, const AdditiveAttentionOptions& options) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, name,
                   ": expected float32 or float64; got ", tensor.scalar_type());
  TORCH_CHECK_VALUE(options.dropout_p >= 0 && options.dropout_p <= 1, name,
                    ": expected dropout_p in [0, 1]; got ", options.dropout_p);
  TORCH_CHECK_VALUE(
      options.backend != Backend::kDense, name,
      ": expected one of our kernels or the reference; masked matrices have no additive scores");
}

void check_additive(const at::Tensor& query_score, const at::Tensor& key_score, const at::Tensor& value,
                    const EdgeSet& edges, const AdditiveAttentionOptions& options) {
  const char* const name = "additive_edge_attention";
  TORCH_CHECK_VALUE(query_score.dim() == 3 && key_score.dim() == 3 && value.dim() == 4, name,
                    ": expected scores [B, H, L] and [B, H, S] and value [B, H, S, Dv]; got ",
                    query_score.sizes(), ", ", key_score.sizes(), " and ", value.sizes());
  TORCH_CHECK_VALUE(query_score.size(0) == value.size(0) && query_score.size(1) == value.size(1) &&
                        key_score.size(0) == value.size(0) && key_score.size(1) == value.size(1) &&
                        key_score.size(2) == value.size(2),
                    name, ": expected scores of the value's items, heads and keys, ", value.sizes(), "; got ",
                    query_score.sizes(), " and ", key_score.sizes());
  TORCH_CHECK_TYPE(
      query_score.scalar_type() == value.scalar_type() && key_score.scalar_type() == value.scalar_type(),
      name, ": expected scores and value of one dtype; got ", query_score.scalar_type(), ", ",
      key_score.scalar_type(), " and ", value.scalar_type());
  check_dtype(name, value, options);
  TORCH_CHECK_VALUE(query_score.device() == value.device() && key_score.device() == value.device() &&
                        edges.device() == value.device(),
                    name, ": expected scores, value and edges on one device; got ", query_score.device(),
                    ", ", key_score.device(), ", ", value.device(), " and ", edges.device());
  TORCH_CHECK_VALUE(value.size(1) > 0, name, ": expected at least one head; got value ", value.sizes());
  EdgeShape shape{value.size(0), value.size(1), query_score.size(2), value.size(2)};
  if (edges.shape().heads == 1) shape.heads = 1;
  graph::check_same_shape(name, shape, edges.shape());
}

bool runs_kernel(const char* name, const at::Tensor& value, Backend backend, kernels::CreditRule rule) {
  if (backend == Backend::kReference) return false;
  if (value.is_cpu()) return true;
  const std::string refusal =
      ops::cuda_additive_refusal(value.device(), value.scalar_type(), value.size(3), rule);
  TORCH_CHECK_NOT_IMPLEMENTED(refusal.empty() || backend == Backend::kAuto, name,
                              ": our kernels were asked for, but ", refusal);
  return refusal.empty();
}

at::Tensor with_plain_rows(const at::Tensor& x) {
  return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
}

// All that the backward pass needs that is no tensor input.
struct AdditiveCallState : torch::CustomClassHolder {
  AdditiveInputs inputs;
  bool kernel = true;
  at::Tensor lse;
  // Of the learner, its call in numbers, edges and dtype alone.
  std::optional<ops::AttentionInputs> learnt;
};

struct AdditiveFunction : torch::autograd::Function<AdditiveFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& /*query_score*/,
                                                const at::Tensor& /*key_score*/, const at::Tensor& value,
                                                const at::Tensor& query_membership,
                                                const at::Tensor& key_side, const at::Tensor& values,
                                                const at::Tensor& probe_values,
                                                const c10::intrusive_ptr<AdditiveCallState>& call) {
    context->set_materialize_grads(false);
    AdditiveInputs& in = call->inputs;
    const AdditiveForward result = !call->kernel    ? ops::reference::additive_forward(in)
                                   : value.is_cpu() ? ops::cpu_additive_forward(in)
                                                    : ops::cuda_additive_forward(in);
    call->lse = result.lse;
    context->save_for_backward({in.query_score, in.key_score, in.value, result.output, query_membership,
                                key_side, values, probe_values});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    in.query_score = in.key_score = in.value = at::Tensor();
    if (!call->learnt || call->learnt->learns.clusters == 0) return {result.output};
    return {result.output, ops::sampled_density(*call->learnt->learner, in.edges, result.lse.scalar_type())};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call =
        c10::static_intrusive_pointer_cast<AdditiveCallState>(context->saved_data["call"].toCapsule());
    AdditiveInputs in = call->inputs;
    in.query_score = saved[0], in.key_score = saved[1], in.value = saved[2];
    const AdditiveForward computed{saved[3], call->lse};
    const at::Tensor grad = grads[0].defined() ? with_plain_rows(grads[0]) : at::zeros_like(computed.output),
                     density_grad = grads.size() > 1 ? grads[1] : at::Tensor();
    AdditiveBackward result = !call->kernel       ? ops::reference::additive_backward(in, computed, grad)
                              : in.value.is_cpu() ? ops::cpu_additive_backward(in, computed, grad)
                                                  : ops::cuda_additive_backward(in, computed, grad);
    ops::LearnerGrads learnt;
    if (call->learnt) {
      ops::AttentionBackward credit;
      credit.credit = result.credit, credit.probe_credit = result.probe_credit;
      learnt = ops::learner_grads(*call->learnt, credit, density_grad);
    }
    return {result.query_score, result.key_score, result.value,        learnt.query_membership,
            learnt.key_side,    learnt.values,    learnt.probe_values, {}};
  }
};

// Empty tensors stand for inputs that a learner has not: autograd wants defined ones.
at::Tensor or_empty(const at::Tensor& tensor) {
  return tensor.defined() ? tensor : at::empty({0});
}

struct SparseState : torch::CustomClassHolder {
  ops::SparseInputs rows, columns;
  bool kernel = true;
};

at::Tensor run_sparse(const ops::SparseInputs& in, bool kernel) {
  if (!kernel) return ops::reference::sparse_product(in);
  return in.dense.is_cpu() ? ops::cpu_sparse_product(in) : ops::cuda_sparse_product(in);
}

struct SparseFunction : torch::autograd::Function<SparseFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& dense,
                            const c10::intrusive_ptr<SparseState>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    ops::SparseInputs in = call->rows;
    in.dense = dense;
    return run_sparse(in, call->kernel);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    check_differentiated_once();
    const auto call =
        c10::static_intrusive_pointer_cast<SparseState>(context->saved_data["call"].toCapsule());
    ops::SparseInputs in = call->columns;
    in.dense = with_plain_rows(grads[0]);
    return {run_sparse(in, call->kernel), {}};
  }
};

}  // namespace

LearnedAttention additive_edge_attention(const at::Tensor& query_score, const at::Tensor& key_score,
                                         const at::Tensor& value, const EdgeSet& edges,
                                         const AdditiveAttentionOptions& options,
                                         const EdgeLearner* learner) {
  check_additive(query_score, key_score, value, edges, options);
  auto call = c10::make_intrusive<AdditiveCallState>();
  AdditiveInputs& in = call->inputs;
  in.query_score = query_score.detach().contiguous();
  in.key_score = key_score.detach().contiguous();
  in.value = with_plain_rows(value.detach());
  in.edges = edges;
  in.slope = options.slope;
  in.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    in.head_keys = ops::stream_keys(options.random, kernels::Purpose::kDropout, in.shape());
  if (learner) {
    TORCH_CHECK_VALUE(
        edges.shape().heads == value.size(1),
        "additive_edge_attention: expected edges of every head with a learner; got those of one "
        "head for ",
        value.size(1));
    ops::check_learner("additive_edge_attention", *learner, edges);
    TORCH_CHECK_VALUE(!learner->probes || learner->probes->shape() == edges.shape(),
                      "additive_edge_attention: expected probes among the pairs of the edges, ",
                      to_string(edges.shape()), "; got ", to_string(learner->probes->shape()));
    call->learnt = ops::attention_inputs(value, value, value, edges, 1.0, learner);
    call->learnt->query = call->learnt->key = call->learnt->value = at::Tensor();
    in.rule = call->learnt->learns.rule;
    in.probes = learner->probes;
  }
  call->kernel = runs_kernel("additive_edge_attention", value, options.backend, in.rule);
  const EdgeLearner none, &taught = learner ? *learner : none;
  const auto outputs = AdditiveFunction::apply(query_score, key_score, value,
                                               or_empty(taught.query_membership), or_empty(taught.key_side),
                                               or_empty(taught.values), or_empty(taught.probe_values), call);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : at::Tensor()};
}

at::Tensor sparse_product(const EdgeSet& rows, const at::Tensor& row_values, const EdgeSet& columns,
                          const at::Tensor& column_values, const at::Tensor& dense, double dropout_p,
                          const RandomStream& random, Backend backend) {
  const char* const name = "sparse_product";
  AdditiveAttentionOptions options;
  options.dropout_p = dropout_p, options.backend = backend;
  check_dtype(name, dense, options);
  const EdgeShape shape = rows.shape();
  TORCH_CHECK_VALUE(
      shape.batch == 1 && shape.heads == 1 && columns.shape() == (EdgeShape{1, 1, shape.keys, shape.queries}),
      name, ": expected rows [1, 1, N, F] and columns [1, 1, F, N]; got ", to_string(shape), " and ",
      to_string(columns.shape()));
  TORCH_CHECK_VALUE(columns.edge_count() == rows.edge_count(), name,
                    ": expected rows and columns of one matrix, "
                    "with as many entries; got ",
                    rows.edge_count(), " and ", columns.edge_count());
  TORCH_CHECK_VALUE(rows.device() == dense.device() && columns.device() == dense.device(), name,
                    ": expected rows, columns and dense on one device; got ", rows.device(), ", ",
                    columns.device(), " and ", dense.device());
  TORCH_CHECK_VALUE(
      dense.dim() == 4 && dense.size(0) == 1 && dense.size(1) > 0 && dense.size(2) == shape.keys, name,
      ": expected dense [1, H, ", shape.keys, ", D]; got ", dense.sizes());
  for (const at::Tensor* values : {&row_values, &column_values})
    TORCH_CHECK_VALUE(values->dim() == 1 && values->size(0) == rows.edge_count() &&
                          values->scalar_type() == dense.scalar_type() && values->device() == dense.device(),
                      name, ": expected ", rows.edge_count(), " values as ", dense.scalar_type(), " on ",
                      dense.device(), "; got ", values->sizes(), " as ", values->scalar_type(), " on ",
                      values->device());
  auto call = c10::make_intrusive<SparseState>();
  call->rows.entries = rows, call->rows.weights = row_values.contiguous();
  call->columns.entries = columns, call->columns.weights = column_values.contiguous();
  call->columns.turned = true;
  call->rows.dropout_p = call->columns.dropout_p = dropout_p;
  if (dropout_p > 0)
    call->rows.head_keys = call->columns.head_keys =
        ops::stream_keys(random, kernels::Purpose::kDropout, {1, dense.size(1), shape.queries, shape.keys});
  call->kernel = runs_kernel(name, dense, backend, kernels::CreditRule::kNone);
  return SparseFunction::apply(with_plain_rows(dense), call);
}

}  // namespace edgewise::functional
