// In place of the cuda_*.cpp in a build without CUDA: every call is refused, so that dispatch takes the
// reference.
#include <ATen/ops/empty.h>

#include "ops/additive/additive_call.h"
#include "ops/attention/cuda_limits.h"
#include "ops/attention/kernel_table.h"
#include "ops/layers/cuda_rows.h"
#include "ops/sample/cuda_sampling.h"
#include "ops/sample/memberships.h"
#include "ops/squares/square_choice.h"
#include "ops/step_graph.h"
#include "ops/walk/cuda_walk.h"

namespace edgewise::ops {
namespace {

constexpr const char* kWhy =
    "this build has no CUDA kernels (install the CUDA toolkit and configure again with -DEDGEWISE_CUDA=ON)";

[[noreturn]] void not_built(const char* function) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, function, ": ", kWhy);
}

}  // namespace

CudaDevice cuda_device(at::Device) {
  return {kWhy, 0};
}
std::optional<int64_t> cuda_edge_count(const EdgeSet&) {
  return std::nullopt;
}
AttentionForward cuda_gather_forward(const AttentionInputs&) {
  not_built("edge_attention");
}
AttentionBackward cuda_gather_backward(const AttentionInputs&, const AttentionForward&, const at::Tensor&,
                                       const at::Tensor&) {
  not_built("edge_attention");
}
std::string cuda_additive_refusal(at::Device, at::ScalarType, int64_t, kernels::CreditRule) {
  return kWhy;
}
AdditiveForward cuda_additive_forward(const AdditiveInputs&) {
  not_built("additive_edge_attention");
}
AdditiveBackward cuda_additive_backward(const AdditiveInputs&, const AdditiveForward&, const at::Tensor&) {
  not_built("additive_edge_attention");
}
at::Tensor cuda_sparse_product(const SparseInputs&) {
  not_built("sparse_product");
}
AttentionForward cuda_windows_forward(const AttentionInputs&) {
  not_built("edge_attention");
}
AttentionBackward cuda_windows_backward(const AttentionInputs&, const AttentionForward&, const at::Tensor&,
                                        const at::Tensor&) {
  not_built("edge_attention");
}
AttentionForward cuda_tiles_forward(const AttentionInputs&) {
  not_built("edge_attention");
}
AttentionBackward cuda_tiles_backward(const AttentionInputs&, const AttentionForward&, const at::Tensor&,
                                      const at::Tensor&) {
  not_built("edge_attention");
}
std::string cuda_square_refusal(const SquareCall&) {
  return kWhy;
}
SquareForward cuda_square_forward(const SquareCall&) {
  not_built("square_forward");
}
SquareBackward cuda_square_backward(const SquareCall&, const SquareForward&, const at::Tensor&,
                                    const SquareCredit&) {
  not_built("square_backward");
}
std::string cuda_choice_refusal(const SquareSampling&) {
  return kWhy;
}
ChosenSquares cuda_choose_squares(const SquareSampling&) {
  not_built("choose_squares");
}
std::optional<GroupMeans> cuda_group_means(const at::Tensor&, const at::Tensor&,
                                           const std::optional<at::Tensor>&,
                                           const std::optional<at::Tensor>&) {
  return std::nullopt;
}
std::optional<SquareMembershipGrads> cuda_membership_grads(const EdgeLearner&, const EdgeSet&,
                                                           const SquareBackward&) {
  return std::nullopt;
}
std::string cuda_sample_refusal(const at::Tensor&, const EdgeShape&, Sampler) {
  return kWhy;
}
EdgeSet cuda_sample(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  not_built("sample_sbm_edges");
}
std::string cuda_probe_refusal(const EdgeSet&, int64_t) {
  return kWhy;
}
EdgeSet cuda_sample_probes(const EdgeSet&, const std::vector<double>&, const SampleOptions&) {
  not_built("sample_probe_edges");
}
bool cuda_samples_lists(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  return false;
}
EdgeSet cuda_sample_lists(const at::Tensor&, const at::Tensor&, const EdgeShape&, const SampleOptions&) {
  not_built("sample_sbm_edges");
}
std::string cuda_walk_refusal(const at::Tensor&, const EdgeShape&, int64_t) {
  return kWhy;
}
bool cuda_takes_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, at::ScalarType,
                           const at::Tensor&) {
  not_built("layer_norm");
}
bool cuda_takes_add(const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_add_dropped(const at::Tensor&, const at::Tensor&, double) {
  not_built("add_dropped");
}
bool cuda_takes_linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}
at::Tensor cuda_linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  not_built("linear");
}
bool cuda_takes_embed(const EmbedInput&) {
  return false;
}
at::Tensor cuda_embed(const EmbedInput&, double) {
  not_built("embed");
}
bool cuda_takes_memberships(const MembershipInput&) {
  return false;
}
Memberships cuda_memberships(const MembershipInput&) {
  not_built("memberships");
}
CudaWalkActions cuda_rooted_walk(const WalkTensors&, const CudaWalkRules&) {
  not_built("rooted_walk");
}

at::Tensor step_memory(int64_t bytes, at::Device device) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
}
struct StepGraphs::State {};
StepGraphs::StepGraphs(c10::Device) {
  not_built("StepGraphs");
}
StepGraphs::~StepGraphs() = default;
void StepGraphs::wait() const {}
struct StepGraph::Capture {};
StepGraph::StepGraph(const StepGraphs&, const std::function<void()>&) {
  not_built("StepGraph");
}
StepGraph::~StepGraph() = default;
void StepGraph::replay() {
  not_built("StepGraph");
}

}  // namespace edgewise::ops
