// Attention over edges from a block model, as operations.
#include <ATen/autocast_mode.h>

#include "python/plain_call.h"
#include "python/plans.h"
#include "python/source_call.h"

namespace edgewise::python {
namespace {

constexpr const char* kName = "sbm_attention";

std::vector<at::Tensor> all_widened(at::TensorList given) {
  std::vector<at::Tensor> result;
  result.reserve(given.size());
  for (const at::Tensor& tensor : given) result.push_back(widened(tensor));
  return result;
}

// Autocast as the caller says. Under float16, which the kernels do not have, all is float32.
class AutocastAs {
 public:
  AutocastAs(at::DeviceType device, std::optional<at::ScalarType> dtype)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_(at::autocast::get_autocast_dtype(device)),
        kept_(at::autocast::is_autocast_cache_enabled()) {
    const bool wanted = dtype && *dtype != at::kHalf;
    if (!wanted && !was_enabled_) return;
    at::autocast::set_autocast_enabled(device, wanted);
    if (wanted) at::autocast::set_autocast_dtype(device, *dtype);
    at::autocast::set_autocast_cache_enabled(false);  // casts of leaves belong to this call's graph
  }
  ~AutocastAs() {
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_);
    at::autocast::set_autocast_cache_enabled(kept_);
  }
  AutocastAs(const AutocastAs&) = delete;
  AutocastAs& operator=(const AutocastAs&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType was_;
  bool kept_;
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

struct Attended {
  at::Tensor output, penalty, density;
};

Attended attend(const SourceCall& call, const std::vector<at::Tensor>& parameters) {
  check_heads(kName, call.query, call.key, call.value);
  const AutocastAs autocast(call.query.device().type(), call.autocast);
  const at::Tensor query = widened(call.query), key = widened(call.key), value = widened(call.value);
  const std::vector<at::Tensor> given = all_widened(parameters);
  const EdgeRequest request = request_of(kName, call, query, with_heads(key, query.size(1)));
  const EdgeChoice choice = choose(call, request, tensors_of(given));
  const AttentionOutput out = attend_call(call, request, choice, key, value);
  return {out.output, out.penalty.to(parameters[0].scalar_type()).contiguous(), out.density.detach()};
}

struct Taped {
  std::shared_ptr<Tape> tape;  // leaves: query, key, value, parameters; outputs: output, penalty
  at::Tensor density;
};

Taped taped(const SourceCall& call, at::TensorList parameters) {
  auto tape = std::make_shared<Tape>();
  const at::Tensor query = tape->leaf(call.query), key = tape->leaf(call.key), value = tape->leaf(call.value);
  std::vector<at::Tensor> given;
  given.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) given.push_back(tape->leaf(parameter));
  const Attended out = attend({query, key, value, call.key_mask, call.seed, call.options, call.training,
                               call.is_causal, call.scale, call.dropout_p, call.autocast},
                              given);
  tape->outputs = {out.output, out.penalty};
  return {std::move(tape), out.density};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_sbm(const at::Tensor& query, const at::Tensor& key,
                                                          const at::Tensor& value, at::TensorList parameters,
                                                          const std::optional<at::Tensor>& key_mask,
                                                          const at::Tensor& seed, c10::string_view options,
                                                          bool training, bool is_causal,
                                                          std::optional<double> scale, double dropout_p,
                                                          std::optional<at::ScalarType> autocast) {
  const Attended out =
      attend({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast},
             parameters.vec());
  return {out.output, out.penalty, out.density};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sbm_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, at::TensorList parameters,
    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed, c10::string_view options,
    bool training, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<at::ScalarType> autocast, bool keep) {
  const PlainCall guard(keep);
  Taped done =
      taped({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast},
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
    tape =
        taped({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p, autocast},
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
  const std::vector<at::Tensor> given = all_widened(parameters);
  return plan_of_edges(choose(call, request, tensors_of(given)).edges);
}

}  // namespace edgewise::python
