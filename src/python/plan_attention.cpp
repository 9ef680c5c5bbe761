#include "python/plan_attention.h"

#include <edgewise/ops/functional.h>

#include "python/calls.h"
#include "python/plain_call.h"
#include "python/plans.h"
#include "python/tape.h"

namespace edgewise::python {
namespace {

constexpr const char* kName = "edge_attention";

struct PlanCall {
  const at::Tensor &query, &key, &value;
  at::TensorList plan;
  at::IntArrayRef shape;
  const std::optional<at::Tensor>&key_mask, &seed;
  bool is_causal;
  std::optional<double> scale;
  double dropout_p;
};

EdgeSet edges_of(const PlanCall& call) {
  const EdgeShape shape = edge_shape(kName, call.shape);
  TORCH_CHECK_VALUE(shape.queries == call.query.size(2) && shape.keys == call.key.size(2), kName,
                    ": expected edges of ", call.query.size(2), " queries and ", call.key.size(2),
                    " keys; got edges ", to_string(shape));
  const std::shared_ptr<Plan> plan = plan_of(kName, call.plan, call.shape);
  TORCH_CHECK_VALUE(plan->edges().device() == call.query.device(), kName, ": expected edges on ",
                    call.query.device(), ", where the query is; got edges on ", plan->edges().device(),
                    ". Move them with edges.to()");
  const EdgeSet edges = plan->spread(kName, call.query.size(0), call.query.size(1), call.is_causal);
  return call.key_mask ? edges.restricted_to_keys(*call.key_mask) : edges;
}

at::Tensor attend(const PlanCall& call) {
  check_heads(kName, call.query, call.key, call.value);
  check_key_mask(kName, call.key_mask, call.query.size(0), call.key.size(2));
  const EdgeSet edges = edges_of(call);
  functional::EdgeAttentionOptions options;
  options.dropout_p = call.dropout_p;
  options.scale = call.scale;
  options.random = stream_of(kName, call.seed);
  const at::Tensor query = widened(call.query);
  at::Tensor key = widened(call.key), value = widened(call.value);
  if (!edges.squares()) key = with_heads(key, query.size(1)), value = with_heads(value, query.size(1));
  return functional::edge_attention(query, key, value, edges, options)
      .to(call.query.scalar_type())
      .contiguous();
}

// The leaves are query, key and value.
std::shared_ptr<Tape> taped(const PlanCall& call) {
  auto tape = std::make_shared<Tape>();
  const at::Tensor query = tape->leaf(call.query), key = tape->leaf(call.key), value = tape->leaf(call.value);
  tape->outputs = {attend({query, key, value, call.plan, call.shape, call.key_mask, call.seed, call.is_causal,
                           call.scale, call.dropout_p})};
  return tape;
}

}  // namespace

at::Tensor attend_plan(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       at::TensorList plan, at::IntArrayRef shape, const std::optional<at::Tensor>& key_mask,
                       const std::optional<at::Tensor>& seed, bool is_causal, std::optional<double> scale,
                       double dropout_p) {
  return attend({query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p});
}

std::tuple<at::Tensor, at::Tensor> plan_attention(const at::Tensor& query, const at::Tensor& key,
                                                  const at::Tensor& value, at::TensorList plan,
                                                  at::IntArrayRef shape,
                                                  const std::optional<at::Tensor>& key_mask,
                                                  const std::optional<at::Tensor>& seed, bool is_causal,
                                                  std::optional<double> scale, double dropout_p, bool keep) {
  const PlainCall guard(keep);
  std::shared_ptr<Tape> tape =
      taped({query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p});
  const at::Tensor output = tape->outputs[0].detach();
  return {output, guard.records() ? make_ticket(std::move(tape)) : empty_ticket()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> plan_attention_backward(
    const at::Tensor& grad_output, const at::Tensor& ticket, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, at::TensorList plan, at::IntArrayRef shape,
    const std::optional<at::Tensor>& key_mask, const std::optional<at::Tensor>& seed, bool is_causal,
    std::optional<double> scale, double dropout_p) {
  const PlainCall guard(true);
  std::shared_ptr<Tape> tape = tape_of(ticket, {query, key, value});
  if (!tape) tape = taped({query, key, value, plan, shape, key_mask, seed, is_causal, scale, dropout_p});
  TORCH_CHECK_VALUE(grad_output.sizes() == tape->outputs[0].sizes() &&
                        grad_output.scalar_type() == tape->outputs[0].scalar_type(),
                    "plan_attention_backward: expected grad_output like the output, ",
                    tape->outputs[0].scalar_type(), " of ", tape->outputs[0].sizes(), "; got ",
                    grad_output.scalar_type(), " of ", grad_output.sizes());
  const std::vector<at::Tensor> grads = gradients(*tape, {grad_output.detach()});
  return {grads[0], grads[1], grads[2]};
}

}  // namespace edgewise::python
