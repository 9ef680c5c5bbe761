// In place of the cuda_*.cpp in a build without CUDA: every call is refused, so that dispatch takes the
// reference.
#include <ATen/ops/empty.h>

#include "ops/attention/cuda_choice.h"
#include "ops/attention/cuda_impl.h"
#include "ops/layers/cuda_rows.h"
#include "ops/sample/cuda_sampling.h"
#include "ops/sample/memberships.h"
#include "ops/squares/square_attention.h"
#include "ops/step_graph.h"
#include "ops/walk/cuda_walk.h"

namespace edgewise::ops {
namespace {

constexpr const char* kWhy =
    "this build has no CUDA kernels (install the CUDA toolkit and configure again with -DEDGEWISE_CUDA=ON)";

}  // namespace

CudaChoice choose_cuda_attention(const AttentionInputs&, const EdgeCredit*) {
  return {"", kWhy};
}
bool windows_fit(const EdgeShape&, at::Device) {
  return false;
}
std::optional<int64_t> cuda_edge_count(const EdgeSet&) {
  return std::nullopt;
}
AttentionForward cuda_forward(const AttentionInputs&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "edge_attention: ", kWhy);
}
AttentionBackward cuda_backward(const AttentionInputs&, const AttentionForward&, const at::Tensor&,
                                const CreditRequest&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "edge_attention: ", kWhy);
}
std::string cuda_square_refusal(const SquareCall&) {
  return kWhy;
}
SquareForward cuda_square_forward(const SquareCall&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "square_forward: ", kWhy);
}
SquareBackward cuda_square_backward(const SquareCall&, const SquareForward&, const at::Tensor&,
                                    const SquareCredit&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "square_backward: ", kWhy);
}
std::string cuda_sample_refusal(const at::Tensor&, const EdgeShape&, Sampler) {
  return kWhy;
}
EdgeSet cuda_sample(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "sample_sbm_edges: ", kWhy);
}
std::string cuda_probe_refusal(const EdgeSet&, int64_t) {
  return kWhy;
}
EdgeSet cuda_sample_probes(const EdgeSet&, const std::vector<double>&, const SampleOptions&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "sample_probe_edges: ", kWhy);
}
bool cuda_samples_lists(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  return false;
}
EdgeSet cuda_sample_lists(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "sample_sbm_edges: ", kWhy);
}
std::string cuda_walk_refusal(const at::Tensor&, const EdgeShape&, int64_t, int64_t) {
  return kWhy;
}
std::string cuda_pairs_refusal(const at::Tensor&, const EdgeShape&) {
  return kWhy;
}
bool cuda_takes_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, at::ScalarType,
                           const at::Tensor&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "layer_norm: ", kWhy);
}
bool cuda_takes_add(const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_add_dropped(const at::Tensor&, const at::Tensor&, double) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "add_dropped: ", kWhy);
}
bool cuda_takes_linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "linear: ", kWhy);
}
bool cuda_takes_embed(const EmbedInput&) {
  return false;
}
at::Tensor cuda_embed(const EmbedInput&, double) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "embed: ", kWhy);
}
bool cuda_takes_memberships(const MembershipInput&) {
  return false;
}
Memberships cuda_memberships(const MembershipInput&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "memberships: ", kWhy);
}
CudaWalkActions cuda_rooted_walk(const WalkTensors&, const CudaWalkRules&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rooted_walk: ", kWhy);
}
bool cuda_token_walk_takes(const TokenWalk&, int64_t) {
  return false;
}
at::Tensor cuda_token_walk(const TokenWalk&, const CudaWalkRules&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rooted_walk: ", kWhy);
}

at::Tensor step_memory(int64_t bytes, at::Device device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}
struct StepGraphs::State {};
StepGraphs::StepGraphs(c10::Device) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "StepGraphs: ", kWhy);
}
StepGraphs::~StepGraphs() = default;
void StepGraphs::wait() const {}
struct StepGraph::Capture {};
StepGraph::StepGraph(const StepGraphs&, const std::function<void()>&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "StepGraph: ", kWhy);
}
StepGraph::~StepGraph() = default;
void StepGraph::replay() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "StepGraph: ", kWhy);
}

}  // namespace edgewise::ops
