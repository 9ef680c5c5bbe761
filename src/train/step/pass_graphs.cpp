// Passes of training as CUDA graphs: which of them, and how they are recorded and replayed.
#include <edgewise/train/pass_graphs.h>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <edgewise/graph/mask_counts.h>
#include <edgewise/tasks/task.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/task_kinds.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "ops/step_inputs.h"
#include "train/step/dropout_seed.h"
#include "train/step/pass_graph_state.h"

namespace edgewise::train {
namespace {

// A replay repeats what the host decided when the pass was recorded; this is all that may decide.
std::vector<int64_t> shape_of(const Pass& pass, const StepOptions& options) {
  std::vector<int64_t> result;
  const auto add = [&](const at::Tensor& tensor) {
    result.push_back(static_cast<int64_t>(tensor.scalar_type()));
    result.push_back(tensor.dim());
    result.insert(result.end(), tensor.sizes().begin(), tensor.sizes().end());
  };
  for (const at::Tensor& tensor : pass.host.tensors()) add(tensor);
  for (const Tower& tower : pass.host.towers) result.push_back(is_padded(tower.mask));
  result.push_back(pass.host.sequence_length);
  for (const at::Tensor& memory : pass.memories) add(memory);
  result.push_back(static_cast<int64_t>(options.precision));
  return result;
}

}  // namespace

// A graph, the memory that it reads and writes, and the pass that it stands for at the moment.
struct RecordedPass {
  RecordedPass(Model& model, const Pass& pass, const StepOptions& options, const ops::StepGraphs& shared);
  PassOutput replay(const Pass& pass);

 private:
  // The host's side of the pass, where the recorded inputs find it.
  void take(const Pass& pass);
  void add_gradients();

  std::shared_ptr<Pass> current_ = std::make_shared<Pass>();
  std::shared_ptr<PassWeights> weights_ = std::make_shared<PassWeights>();
  RandomStream recorded_;
  ops::StepInputs inputs_;
  Batch part_;
  std::vector<at::Tensor> memories_;  // read by the graph
  PassOutput output_;                 // written by it
  // Parameters that the pass reaches, their gradients as the graph writes them, and where these go.
  std::vector<at::Tensor> parameters_, gradients_, sums_;
  std::unique_ptr<ops::StepGraph> graph_;
};

void RecordedPass::take(const Pass& pass) {
  *current_ = pass;
  *weights_ = pass.weights;
  for (size_t tower = 0; tower < part_.towers.size(); ++tower)
    if (part_.towers[tower].mask.defined())
      remember_mask_counts(part_.towers[tower].mask, pass.host.towers[tower].mask);
}

RecordedPass::RecordedPass(Model& model, const Pass& pass, const StepOptions& options,
                           const ops::StepGraphs& shared)
    : recorded_(pass.random), inputs_(options.device) {
  take(pass);
  part_ = pass.host.map([&, place = size_t{0}](const at::Tensor&) mutable {
    return inputs_.add(
        [current = current_, n = place++](const ops::StreamShift&) { return current->host.tensors()[n]; });
  });
  Pass fixed = pass;
  for (at::Tensor& memory : fixed.memories) {
    memory = memory.clone();
    memories_.push_back(memory);
  }
  const ModelInput input = make_input(fixed, part_);

  const std::vector<at::Tensor> all = model.parameters();
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : all) before.push_back(std::exchange(parameter.mutable_grad(), {}));
  const auto restored = c10::make_scope_exit([&] {
    for (size_t n = 0; n < all.size(); ++n) all[n].mutable_grad() = before[n];
  });
  seed_dropout(pass.random);
  try {
    graph_ = std::make_unique<ops::StepGraph>(shared, [&] {
      const ops::StepInputs::Recording recording(inputs_);
      output_ = run_pass(model, input, part_, weights_, options, nullptr);
    });
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "train.cuda_graph: expected a step that a CUDA graph can hold; recording it failed: ",
        error.what_without_backtrace(), ". Train with --set train.cuda_graph=false");
  }
  for (const at::Tensor& parameter : all) {
    if (!parameter.grad().defined()) continue;
    parameters_.push_back(parameter);
    gradients_.push_back(parameter.grad());
    sums_.push_back(at::empty_like(parameter.grad()));
  }
}

// Out of the graph's memory, which others share, and added up as autograd would.
void RecordedPass::add_gradients() {
  std::vector<at::Tensor> first_to, first_from, sum_to, sum_from;
  for (size_t n = 0; n < parameters_.size(); ++n) {
    at::Tensor& gradient = parameters_[n].mutable_grad();
    const bool first = !gradient.defined();
    if (first) gradient = sums_[n];
    (first ? first_to : sum_to).push_back(gradient);
    (first ? first_from : sum_from).push_back(gradients_[n]);
  }
  if (!first_to.empty()) at::_foreach_copy_(first_to, first_from);
  if (!sum_to.empty()) at::_foreach_add_(sum_to, sum_from);
}

PassOutput RecordedPass::replay(const Pass& pass) {
  RECORD_USER_SCOPE("replay");
  const torch::NoGradGuard no_grad;
  take(pass);
  inputs_.refresh({recorded_, pass.random});
  if (!memories_.empty()) at::_foreach_copy_(memories_, pass.memories);
  seed_dropout(pass.random);
  graph_->replay();
  add_gradients();
  PassOutput result = output_;
  for (at::Tensor& memory : result.memories) memory = memory.clone();
  return result;
}

PassGraphs::State::State(const PassGraphsOptions& given) : options(given) {}
PassGraphs::State::~State() = default;

void PassGraphs::State::forget() {
  if (shared_) shared_->wait();
  shapes_.clear();
  shared_.reset();  // torch gives up a pool with the last graph in it: the next ones need another
  recorded_now_ = 0;
}

std::optional<PassOutput> PassGraphs::State::replay(Model& model, const Pass& pass,
                                                    const StepOptions& step_options) {
  // A pass without the penalty is another one. Weights rise once: what was recorded before is done with.
  if (const bool weighs = pass.weights.density_weight != 0; weighs != density_weighs_) {
    forget();
    density_weighs_ = weighs;
  }
  Shape& shape = shapes_[shape_of(pass, step_options)];
  if (!shape.recorded) {
    if (shape.passes++ < options.ordinary_passes || recorded_now_ >= options.most_graphs) {
      ++counts.ordinary;
      return std::nullopt;
    }
    if (!shared_) shared_.emplace(step_options.device);
    try {
      shape.recorded = std::make_unique<RecordedPass>(model, pass, step_options, *shared_);
    } catch (...) {
      forget();  // earlier graphs may not be replayed after a broken recording
      throw;
    }
    ++counts.recorded;
    ++recorded_now_;
  }
  ++counts.replayed;
  return shape.recorded->replay(pass);
}

PassGraphs::PassGraphs(const PassGraphsOptions& options) : state_(std::make_unique<State>(options)) {}
PassGraphs::~PassGraphs() = default;

PassCounts PassGraphs::counts() const {
  return state_->counts;
}

std::string pass_graphs_refusal(const Recipe& recipe, const tasks::Task& task) {
  const AttentionKind& kind = attention_kind(recipe);
  const std::string off = "; set train.cuda_graph = false";
  if (recipe.train.device != "cuda")
    return "CUDA graphs are of a GPU, and train.device is " + recipe.train.device + off;
  if (!kind.recording_refusal)
    return "attention.kind = " + kind.name + " prepares its attention on the host in every step" + off;
  if (const std::string reason = kind.recording_refusal(recipe); !reason.empty()) return reason;
  if (task_kind(recipe).has_decoder)
    for (const DecoderPlace place : {DecoderPlace::kEncoder, DecoderPlace::kDecoder, DecoderPlace::kCross})
      if (const Recipe of = recipe_of_place(recipe, place); of.attention.kind != "dense")
        return "attention.kind = " + of.attention.kind +
               " counts the pairs of sentences of different lengths on the host in every step" + off;
  const std::string reason = task.recording_refusal();
  return reason.empty() ? "" : reason + off;
}

}  // namespace edgewise::train
