// LinformerAttention (Wang et al., arXiv 2006.04768): keys and values are projected along the sequence, from
// N rows to K, before ordinary attention.
//
//   out = softmax(Q (E K)^T / sqrt(D)) (F V)       E, F: [K, N]; a shorter input uses their first columns
//
// Padding keys and values become 0 before the projection.
//
//   paper     E and F apart in every layer, shared by heads unless told otherwise; dropout on the weights
//   harness   one E = F per head for all layers, N(0, 0.02) at the start; no dropout
#pragma once

#include <edgewise/attention/attention_method.h>

#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

// Which projections are one and the same (section 4 of the paper). kNone: own E and F per head and layer;
// kHeads: one E and one F per layer; kKeyValue: one E = F per layer; kLayers: one E = F for all layers.
enum class ProjectionSharing { kNone, kHeads, kKeyValue, kLayers };
ProjectionSharing parse_projection_sharing(
    std::string_view name);  // "none" | "heads" | "key_value" | "layers"
std::string_view to_string(ProjectionSharing sharing);

struct LinformerAttentionOptions {
  LinformerAttentionOptions(int64_t num_heads, int64_t max_length, MethodMode mode = MethodMode::kPaper);

  int64_t num_heads;
  int64_t max_length;  // columns of E and F
  MethodMode mode;
  int64_t projected_length = 256;                         // K
  ProjectionSharing sharing = ProjectionSharing::kHeads;  // not in the harness, which has its own
};

class LinformerAttentionImpl : public AttentionMethod {
 public:
  // `shared`, from another layer's `key_projection`, is used and not registered here; only where layers
  // share.
  explicit LinformerAttentionImpl(LinformerAttentionOptions options, at::Tensor shared = {});
  at::Tensor attend(const MethodInput& input) override;
  void pretty_print(std::ostream& stream) const override;

  LinformerAttentionOptions options;
  at::Tensor key_projection;    // E: [H or 1, K, max_length]
  at::Tensor value_projection;  // F; the same tensor where keys and values share
};
TORCH_MODULE(LinformerAttention);

// Whether all layers of these options use the projection of the first.
bool shares_layers(const LinformerAttentionOptions& options);

}  // namespace edgewise
