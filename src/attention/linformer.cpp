#include <edgewise/attention/linformer.h>

#include <cmath>
#include <ostream>

#include <torch/nn/functional/dropout.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include "attention/masking.h"
#include "ops/enum_names.h"

namespace edgewise {
namespace {

constexpr EnumNames<ProjectionSharing, 4> kSharings{"sharing",
                                                    {{{"none", ProjectionSharing::kNone},
                                                      {"heads", ProjectionSharing::kHeads},
                                                      {"key_value", ProjectionSharing::kKeyValue},
                                                      {"layers", ProjectionSharing::kLayers}}}};

bool is_harness(const LinformerAttentionOptions& options) {
  return options.mode == MethodMode::kHarness;
}
bool shares_key_and_value(const LinformerAttentionOptions& options) {
  return is_harness(options) || options.sharing == ProjectionSharing::kKeyValue ||
         options.sharing == ProjectionSharing::kLayers;
}

std::vector<int64_t> projection_size(const LinformerAttentionOptions& options) {
  const bool per_head = is_harness(options) || options.sharing == ProjectionSharing::kNone;
  return {per_head ? options.num_heads : 1, options.projected_length, options.max_length};
}

}  // namespace

ProjectionSharing parse_projection_sharing(std::string_view name) {
  return kSharings.parse(name);
}
std::string_view to_string(ProjectionSharing sharing) {
  return kSharings.name(sharing);
}

bool shares_layers(const LinformerAttentionOptions& options) {
  return is_harness(options) || options.sharing == ProjectionSharing::kLayers;
}

LinformerAttentionOptions::LinformerAttentionOptions(int64_t num_heads_, int64_t max_length_,
                                                     MethodMode mode_)
    : num_heads(num_heads_), max_length(max_length_), mode(mode_) {}

LinformerAttentionImpl::LinformerAttentionImpl(LinformerAttentionOptions options_, at::Tensor shared)
    : options(options_) {
  TORCH_CHECK_VALUE(
      options.num_heads > 0 && options.max_length > 0 && options.projected_length > 0,
      "LinformerAttention: expected num_heads, max_length and projected_length of at least 1; got ",
      options.num_heads, ", ", options.max_length, " and ", options.projected_length);
  const std::vector<int64_t> size = projection_size(options);
  const auto make = [&](const char* name) {
    at::Tensor projection = register_parameter(name, torch::empty(size));
    const double bound = 1 / std::sqrt(static_cast<double>(options.projected_length));
    return is_harness(options) ? torch::nn::init::normal_(projection, 0, 0.02)
                               : torch::nn::init::uniform_(projection, -bound, bound);
  };
  if (shared.defined()) {
    TORCH_CHECK_VALUE(shares_layers(options) && shared.sizes() == at::IntArrayRef(size),
                      "LinformerAttention: expected a shared projection ", at::IntArrayRef(size),
                      " and options whose layers share; got ", shared.sizes(), " and sharing ",
                      to_string(options.sharing));
    key_projection = std::move(shared);
  } else {
    key_projection = make("key_projection");
  }
  value_projection = shares_key_and_value(options) ? key_projection : make("value_projection");
}

at::Tensor LinformerAttentionImpl::attend(const MethodInput& input) {
  const int64_t length = input.key.size(2);
  TORCH_CHECK_VALUE(length <= options.max_length,
                    "LinformerAttention: expected at most max_length = ", options.max_length, " tokens; got ",
                    length);
  const auto project = [&](const at::Tensor& projection, const at::Tensor& x) {
    return at::matmul(projection.narrow(2, 0, length).to(x.scalar_type()), zero_padding(x, input.key_mask));
  };
  const at::Tensor key = project(key_projection, input.key);        // [B, H, K, D]
  const at::Tensor value = project(value_projection, input.value);  // [B, H, K, D]
  const double scale = 1 / std::sqrt(static_cast<double>(input.query.size(3)));
  at::Tensor weights = (at::matmul(input.query, key.transpose(2, 3)) * scale).softmax(-1);  // [B, H, N, K]
  if (is_harness(options)) return at::matmul(weights, value);
  if (input.dropout_p > 0) weights = at::dropout(weights, input.dropout_p, /*train=*/true);
  return zero_padding(at::matmul(weights, value), input.key_mask);
}

void LinformerAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::LinformerAttention(mode=" << to_string(options.mode)
         << ", projected_length=" << options.projected_length << ", max_length=" << options.max_length;
  if (!is_harness(options)) stream << ", sharing=" << to_string(options.sharing);
  stream << ")";
}

}  // namespace edgewise
