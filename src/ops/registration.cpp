// torch.ops.edgewise.*: the ops as Python sees them. Everything that comes from outside is checked here.
//
// edge_attention is differentiable; its forward and backward are functional ops of their own, so that tracing
// (FakeTensor, torch.compile) sees shapes without running them.
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <cmath>

#include "graph/checks.h"
#include "graph/csr_cuda.h"
#include "ops/attention/attention_call.h"
#include "ops/attention/reference.h"

namespace edgewise::ops {
namespace {

EdgeShape attention_shape(const char* function, const at::Tensor& query, const at::Tensor& key) {
  TORCH_CHECK_VALUE(query.dim() == 4 && key.dim() == 4, function,
                    ": expected query [B, H, L, D] and key [B, H, S, D]; got ", query.sizes(), " and ",
                    key.sizes());
  return {query.size(0), query.size(1), query.size(2), key.size(2)};
}

struct Argument {
  const char* name;
  const at::Tensor& tensor;
};

// One device for all, before anything else: a single meta tensor would have the op of shapes answer for
// tensors with data, a single CUDA tensor would have a kernel read host memory.
void check_devices(const char* function, std::initializer_list<Argument> arguments) {
  const Argument& first = *arguments.begin();
  for (const Argument& each : arguments)
    TORCH_CHECK_VALUE(each.tensor.device() == first.tensor.device(), function,
                      ": expected all tensors on one device; got ", first.name, " on ", first.tensor.device(),
                      " and ", each.name, " on ", each.tensor.device(), ". Move them together with .to()");
}
void check_attention_devices(const char* function, const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, const at::Tensor& row_offsets,
                             const at::Tensor& col_indices) {
  check_devices(function, {{"query", query},
                           {"key", key},
                           {"value", value},
                           {"row_offsets", row_offsets},
                           {"col_indices", col_indices}});
}

// Inputs whose edges can be trusted; on CUDA perhaps others than were given, and then the results are spoilt.
struct Checked {
  AttentionInputs in;
  std::optional<graph::SafeCsr> csr;

  void spoil(at::TensorList results) const {
    if (csr) graph::spoil_results(*csr, results);
  }
};

Checked checked_inputs(const char* function, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const at::Tensor& row_offsets, const at::Tensor& col_indices,
                       std::optional<double> scale, const EdgeLearner* learner = nullptr) {
  check_attention_devices(function, query, key, value, row_offsets, col_indices);
  // Not EdgeSet::from_csr, whose messages would speak of a call that the user has not made.
  const EdgeShape shape = attention_shape(function, query, key);
  graph::check_shape(function, shape);
  graph::check_csr_sizes(function, shape, row_offsets, col_indices);
  functional::EdgeAttentionOptions options;
  options.scale = scale;
  std::optional<graph::SafeCsr> csr;
  const auto inputs = [&](const at::Tensor& offsets, const at::Tensor& columns) {
    const EdgeSet edges = EdgeSet::from_trusted_csr(shape, offsets, columns);
    functional::check_attention(query, key, value, edges, options);
    return attention_inputs(query, key, value, edges, scale, learner);
  };
  if (col_indices.is_cuda()) {
    TORCH_CHECK_VALUE(col_indices.size(0) <= shape.pairs(), function, ": expected at most ", shape.pairs(),
                      " columns, one for each pair of ", to_string(shape), "; got ", col_indices.size(0));
    csr = graph::cuda_safe_csr(function, shape, row_offsets, col_indices);
    if (csr) return {inputs(csr->row_offsets, csr->col_indices), csr};
  }
  graph::check_csr(function, shape, row_offsets, col_indices);
  return {inputs(row_offsets.contiguous(), col_indices.contiguous()), csr};
}

std::tuple<at::Tensor, at::Tensor> edge_attention_forward(const at::Tensor& query, const at::Tensor& key,
                                                          const at::Tensor& value,
                                                          const at::Tensor& row_offsets,
                                                          const at::Tensor& col_indices,
                                                          std::optional<double> scale) {
  const Checked checked =
      checked_inputs("edge_attention", query, key, value, row_offsets, col_indices, scale);
  const AttentionForward result = run_forward(checked.in);
  // Contiguous, as tracing was told below.
  const at::Tensor output = result.output.contiguous(), lse = result.lse.contiguous();
  checked.spoil({output, lse});
  return {output, lse};
}

AttentionForward checked_forward(const AttentionInputs& in, const at::Tensor& output, const at::Tensor& lse) {
  const EdgeShape& shape = in.edges.shape();
  TORCH_CHECK_VALUE(
      output.sizes() == at::IntArrayRef({shape.batch, shape.heads, shape.queries, in.value.size(3)}) &&
          output.scalar_type() == in.query.scalar_type(),
      "edge_attention_backward: expected output ", in.query.scalar_type(), " [B, H, L, Dv]; got ",
      output.scalar_type(), " of shape ", output.sizes());
  TORCH_CHECK_VALUE(lse.sizes() == at::IntArrayRef({shape.batch, shape.heads, shape.queries}) &&
                        lse.scalar_type() == in.accumulator(),
                    "edge_attention_backward: expected lse ", in.accumulator(), " [B, H, L]; got ",
                    lse.scalar_type(), " of shape ", lse.sizes());
  return {output, lse.contiguous()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> edge_attention_backward(
    const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& row_offsets, const at::Tensor& col_indices, const at::Tensor& output,
    const at::Tensor& lse, std::optional<double> scale) {
  check_devices("edge_attention_backward",
                {{"query", query}, {"grad_output", grad_output}, {"output", output}, {"lse", lse}});
  const Checked checked =
      checked_inputs("edge_attention_backward", query, key, value, row_offsets, col_indices, scale);
  const AttentionInputs& in = checked.in;
  TORCH_CHECK_VALUE(
      grad_output.sizes() == output.sizes() && grad_output.scalar_type() == output.scalar_type(),
      "edge_attention_backward: expected grad_output like output ", output.sizes(), "; got ",
      grad_output.scalar_type(), " of shape ", grad_output.sizes());
  const AttentionBackward result = run_backward(in, checked_forward(in, output, lse), grad_output);
  const at::Tensor grad_query = result.query.contiguous(), grad_key = result.key.contiguous(),
                   grad_value = result.value.contiguous();
  checked.spoil({grad_query, grad_key, grad_value});
  return {grad_query, grad_key, grad_value};
}

// dL/d(edge present) on the given edges; see edgewise/ops/edge_learner.h for the estimators.
at::Tensor edge_credit(const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const at::Tensor& row_offsets, const at::Tensor& col_indices,
                       std::optional<double> scale, c10::string_view estimator,
                       c10::string_view present_form) {
  check_devices("edge_credit", {{"query", query}, {"grad_output", grad_output}});
  EdgeLearner learner;
  learner.rule = credit_rule(parse_estimator(estimator), parse_present_form(present_form));
  const Checked checked =
      checked_inputs("edge_credit", query, key, value, row_offsets, col_indices, scale, &learner);
  const AttentionInputs& in = checked.in;
  const AttentionForward forward = run_forward(in);
  TORCH_CHECK_VALUE(grad_output.sizes() == forward.output.sizes() &&
                        grad_output.scalar_type() == forward.output.scalar_type(),
                    "edge_credit: expected grad_output ", forward.output.scalar_type(), " of shape ",
                    forward.output.sizes(), "; got ", grad_output.scalar_type(), " of shape ",
                    grad_output.sizes());
  const at::Tensor result = run_backward(in, forward, grad_output).credit.contiguous();
  checked.spoil(result);
  return result;
}

std::tuple<at::Tensor, at::Tensor> sample_sbm_edges_op(const at::Tensor& query_membership,
                                                       const at::Tensor& key_side, c10::string_view law,
                                                       double exploration,
                                                       const std::optional<at::Tensor>& key_mask,
                                                       bool self_loops, int64_t seed, int64_t step,
                                                       c10::string_view sampler) {
  check_devices("sample_sbm_edges", {{"query_membership", query_membership},
                                     {"key_side", key_side},
                                     {"key_mask", key_mask ? *key_mask : key_side}});
  SampleOptions options;
  options.law = parse_edge_law(law);
  options.exploration = exploration;
  options.key_mask = key_mask;
  options.self_loops = self_loops;
  options.sampler = parse_sampler(sampler);
  options.random.seed = static_cast<uint64_t>(seed);
  options.random.step = static_cast<uint64_t>(step);
  options.check_values = true;
  const EdgeSet edges = sample_sbm_edges(query_membership, key_side, options);
  return {edges.row_offsets(), edges.col_indices()};
}

// ---- shapes only ----

std::tuple<at::Tensor, at::Tensor> meta_forward(const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& row_offsets,
                                                const at::Tensor& col_indices, std::optional<double>) {
  check_attention_devices("edge_attention", query, key, value, row_offsets, col_indices);
  const auto sizes = query.sym_sizes();
  const at::ScalarType accumulator = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty_symint({sizes[0], sizes[1], sizes[2], value.sym_size(3)}, query.options()),
          at::empty_symint({sizes[0], sizes[1], sizes[2]}, query.options().dtype(accumulator))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> meta_backward(
    const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& row_offsets, const at::Tensor& col_indices, const at::Tensor& output,
    const at::Tensor& lse, std::optional<double>) {
  check_devices("edge_attention_backward",
                {{"query", query}, {"grad_output", grad_output}, {"output", output}, {"lse", lse}});
  check_attention_devices("edge_attention_backward", query, key, value, row_offsets, col_indices);
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  return {like(query), like(key), like(value)};
}

at::Tensor meta_credit(const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const at::Tensor& row_offsets, const at::Tensor& col_indices,
                       std::optional<double>, c10::string_view, c10::string_view) {
  check_devices("edge_credit", {{"query", query}, {"grad_output", grad_output}});
  check_attention_devices("edge_credit", query, key, value, row_offsets, col_indices);
  const at::ScalarType accumulator = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty_symint(col_indices.sym_sizes(), query.options().dtype(accumulator));
}

// ---- autograd ----

using ForwardOp = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                     const at::Tensor&, const at::Tensor&,
                                                     std::optional<double>);
using BackwardOp = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                                  const at::Tensor&, const at::Tensor&,
                                                                  const at::Tensor&, const at::Tensor&,
                                                                  const at::Tensor&, const at::Tensor&,
                                                                  std::optional<double>);

std::tuple<at::Tensor, at::Tensor> call_forward(const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& row_offsets,
                                                const at::Tensor& col_indices, std::optional<double> scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("edgewise::edge_attention_forward", "")
                             .typed<ForwardOp>();
  return op.call(query, key, value, row_offsets, col_indices, scale);
}

struct PublicAttention : torch::autograd::Function<PublicAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value, const at::Tensor& row_offsets,
                            const at::Tensor& col_indices, std::optional<double> scale) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [output, lse] = call_forward(query, key, value, row_offsets, col_indices, scale);
    context->save_for_backward({query, key, value, row_offsets, col_indices, output, lse});
    context->saved_data["scale"] = scale;
    return output;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    functional::check_differentiated_once();
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("edgewise::edge_attention_backward", "")
                               .typed<BackwardOp>();
    const auto saved = context->get_saved_variables();
    const auto [query, key, value] =
        op.call(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6],
                context->saved_data["scale"].toOptional<double>());
    return {query, key, value, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor edge_attention_autograd(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& row_offsets, const at::Tensor& col_indices,
                                   std::optional<double> scale) {
  return PublicAttention::apply(query, key, value, row_offsets, col_indices, scale);
}

at::Tensor edge_attention_plain(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const at::Tensor& row_offsets, const at::Tensor& col_indices,
                                std::optional<double> scale) {
  return std::get<0>(call_forward(query, key, value, row_offsets, col_indices, scale));
}

// ---- autocast ----
//
// Query, key and value are cast together, for under torch.autocast some come from a matrix product (bfloat16)
// and some do not (float32). Under float16, which the kernels do not have, they meet in float32. As
// everywhere in autocast, float64 stays as it is.

using AttentionOp = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, std::optional<double>);
using CreditOp = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, const at::Tensor&, std::optional<double>, c10::string_view,
                            c10::string_view);

template <c10::DeviceType device>
class Autocast {
 public:
  static at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& row_offsets, const at::Tensor& col_indices,
                                   std::optional<double> scale) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("edgewise::edge_attention", "").typed<AttentionOp>();
    const Off off;
    return op.call(cast(query), cast(key), cast(value), row_offsets, col_indices, scale);
  }

  static at::Tensor edge_credit(const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const at::Tensor& row_offsets,
                                const at::Tensor& col_indices, std::optional<double> scale,
                                c10::string_view estimator, c10::string_view present_form) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("edgewise::edge_credit", "").typed<CreditOp>();
    const Off off;
    return op.call(cast(grad_output), cast(query), cast(key), cast(value), row_offsets, col_indices, scale,
                   estimator, present_form);
  }

  static void register_rules(torch::Library& library) {
    library.impl("edge_attention", &Autocast::edge_attention);
    library.impl("edge_credit", &Autocast::edge_credit);
  }

 private:
  // What the op does inside is not cast a second time.
  struct Off {
    c10::impl::ExcludeDispatchKeyGuard guard{
        at::autocast::get_autocast_dispatch_key_from_device_type(device)};
  };
  static at::Tensor cast(const at::Tensor& tensor) {
    const at::ScalarType wanted = at::autocast::get_autocast_dtype(device);
    return at::autocast::cached_cast(wanted == at::kHalf ? at::kFloat : wanted, tensor, device);
  }
};

void register_backend(torch::Library& library) {
  library.impl("edge_attention", &edge_attention_plain);
  library.impl("edge_attention_forward", &edge_attention_forward);
  library.impl("edge_attention_backward", &edge_attention_backward);
  library.impl("edge_credit", &edge_credit);
  library.impl("sample_sbm_edges", &sample_sbm_edges_op);
}

}  // namespace

TORCH_LIBRARY(edgewise, library) {
  const std::vector<at::Tag> plain = {at::Tag::pt2_compliant_tag};
  library.def(
      "edge_attention(Tensor query, Tensor key, Tensor value, Tensor row_offsets, Tensor col_indices, float? "
      "scale=None) -> Tensor",
      plain);
  library.def(
      "edge_attention_forward(Tensor query, Tensor key, Tensor value, Tensor row_offsets, Tensor "
      "col_indices, float? "
      "scale=None) -> (Tensor output, Tensor lse)",
      plain);
  library.def(
      "edge_attention_backward(Tensor grad_output, Tensor query, Tensor key, Tensor value, Tensor "
      "row_offsets, Tensor "
      "col_indices, Tensor output, Tensor lse, float? scale=None) -> (Tensor, Tensor, Tensor)",
      plain);
  library.def(
      "edge_credit(Tensor grad_output, Tensor query, Tensor key, Tensor value, Tensor row_offsets, Tensor "
      "col_indices, "
      "float? scale=None, *, str estimator=\"counterfactual\", str present_form=\"softmax\") -> Tensor",
      plain);
  // Waits for the GPUs and raises what was wrong with edges there.
  library.def("synchronize() -> ()", &graph::wait_for_csr_faults, plain);
  library.def(
      "sample_sbm_edges(Tensor query_membership, Tensor key_side, *, str law=\"bernoulli\", float "
      "exploration=0., "
      "Tensor? key_mask=None, bool self_loops=False, int seed=0, int step=0, str sampler=\"auto\") -> "
      "(Tensor "
      "row_offsets, Tensor col_indices)",
      {at::Tag::pt2_compliant_tag, at::Tag::dynamic_output_shape});
}
TORCH_LIBRARY_IMPL(edgewise, CPU, library) {
  register_backend(library);
}
TORCH_LIBRARY_IMPL(edgewise, CUDA, library) {
  register_backend(library);
}
TORCH_LIBRARY_IMPL(edgewise, Autograd, library) {
  library.impl("edge_attention", &edge_attention_autograd);
  // Credit has no derivative: an error in backward instead of gradients that are silently missing.
  library.impl("edge_credit", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(edgewise, AutocastCPU, library) {
  Autocast<c10::DeviceType::CPU>::register_rules(library);
}
TORCH_LIBRARY_IMPL(edgewise, AutocastCUDA, library) {
  Autocast<c10::DeviceType::CUDA>::register_rules(library);
}
TORCH_LIBRARY_IMPL(edgewise, Meta, library) {
  library.impl("edge_attention",
               [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& row_offsets, const at::Tensor& col_indices, std::optional<double> scale) {
                 return std::get<0>(meta_forward(query, key, value, row_offsets, col_indices, scale));
               });
  library.impl("edge_attention_forward", &meta_forward);
  library.impl("edge_attention_backward", &meta_backward);
  library.impl("edge_credit", &meta_credit);
}

}  // namespace edgewise::ops
