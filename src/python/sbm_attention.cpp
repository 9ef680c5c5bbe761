// Attention over edges from a block model, as operations.
#include <ATen/autocast_mode.h>

#include "python/plain_call.h"
#include "python/plans.h"
#include "python/source_call.h"

namespace edgewise::python {
namespace {

constexpr const char* kName = "sbm_attention";

// Inside of a PlainCall, where autocast is off. Under float16, which the kernels do not have, all is float32.
class AutocastAs {
 public:
  AutocastAs(at::DeviceType device, std::optional<at::ScalarType> dtype)
      : device_(device),
        dtype_(dtype == at::kHalf ? std::nullopt : dtype),
        keeps_(at::autocast::is_autocast_cache_enabled()) {
    if (!dtype_) return;
    previous_ = at::autocast::get_autocast_dtype(device);
    at::autocast::set_autocast_dtype(device, *dtype_);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_cache_enabled(false);  // casts of leaves belong to this call's graph
  }
  ~AutocastAs() {
    if (!dtype_) return;
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::set_autocast_dtype(device_, previous_);
    at::autocast::set_autocast_cache_enabled(keeps_);
  }
  AutocastAs(const AutocastAs&) = delete;
  AutocastAs& operator=(const AutocastAs&) = delete;

 private:
  at::DeviceType device_;
  std::optional<at::ScalarType> dtype_;
  at::ScalarType previous_ = at::kFloat;
  bool keeps_;
};

SbmTensors tensors_of(const std::vector<at::Tensor>& given) {
  TORCH_CHECK_VALUE(given.size() == 5, kName,
                    ": expected five parameters (clusters, mlp_weight1, mlp_bias1, mlp_weight2, mlp_bias2); "
                    "got ",
                    given.size());
  return {given[0], given[1], given[2], given[3], given[4]};
}

EdgeChoice choose(const SourceCall& call, const EdgeRequest& request, const SbmTensors& tensors) {
  const SourceOptions options = parse_source_options({call.options.data(), call.options.size()},
                                                     request.query.size(1), request.query.size(3));
  return with_window(choose_sbm_edges(options.sbm, tensors, request, call.training), options, request);
}

struct Run {
  std::shared_ptr<Tape> tape;  // leaves: query, key, value, parameters; outputs: output, penalty
  at::Tensor density;
};

Run run(const SourceCall& call, at::TensorList parameters) {
  check_heads(kName, call.query, call.key, call.value);
  Run result{std::make_shared<Tape>(), {}};
  Tape& tape = *result.tape;
  const AutocastAs autocast(call.query.device().type(), call.autocast);
  const at::Tensor query = widened(tape.leaf(call.query)), key = widened(tape.leaf(call.key)),
                   value = widened(tape.leaf(call.value));
  std::vector<at::Tensor> given;
  for (const at::Tensor& parameter : parameters) given.push_back(widened(tape.leaf(parameter)));
  const EdgeRequest request = request_of(kName, call, query, with_heads(key, query.size(1)));
  const EdgeChoice choice = choose(call, request, tensors_of(given));
  const AttentionOutput out = attend_call(call, request, choice, key, value);
  tape.outputs = {out.output, out.penalty.to(parameters[0].scalar_type()).contiguous()};
  result.density = out.density.detach();
  return result;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sbm_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, at::TensorList parameters,
    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed, c10::string_view options,
    bool training, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<at::ScalarType> autocast, bool keep) {
  const PlainCall guard(keep);
  Run done =
      run({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast},
          parameters);
  const at::Tensor output = done.tape->outputs[0].detach(), penalty = done.tape->outputs[1].detach();
  return {output, penalty, done.density,
          guard.records() ? make_ticket(std::move(done.tape)) : empty_ticket()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, std::vector<at::Tensor>> sbm_attention_backward(
    const std::optional<at::Tensor>& grad_output, const std::optional<at::Tensor>& grad_penalty,
    const at::Tensor& ticket, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    at::TensorList parameters, const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
    c10::string_view options, bool training, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<at::ScalarType> autocast) {
  const PlainCall guard(true);
  std::vector<at::Tensor> inputs = {query, key, value};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  std::shared_ptr<Tape> tape = tape_of(ticket, inputs);
  if (!tape)
    tape = run({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast},
               parameters)
               .tape;
  std::vector<at::Tensor> grads = gradients(*tape, {or_undefined(grad_output), or_undefined(grad_penalty)});
  return {grads[0], grads[1], grads[2], std::vector<at::Tensor>(grads.begin() + 3, grads.end())};
}

std::vector<at::Tensor> sbm_edges(const at::Tensor& query, const at::Tensor& key, at::TensorList parameters,
                                  const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                  c10::string_view options, bool training, bool is_causal,
                                  std::optional<at::ScalarType> autocast) {
  const PlainCall guard(false);
  const SourceCall call{query,    key,       key,          key_mask, seed,    options,
                        training, is_causal, std::nullopt, 0,        autocast};
  check_heads(kName, query, key, key);
  const AutocastAs cast(query.device().type(), autocast);
  const at::Tensor heads = widened(query);
  const EdgeRequest request = request_of(kName, call, heads, with_heads(widened(key), heads.size(1)));
  std::vector<at::Tensor> given;
  for (const at::Tensor& parameter : parameters) given.push_back(widened(parameter));
  return plan_of_edges(choose(call, request, tensors_of(given)).edges);
}

}  // namespace edgewise::python
