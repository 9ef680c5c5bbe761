// From a model and inputs to a snapshot.
#include <edgewise/train/snapshot.h>

#include <algorithm>
#include <array>
#include <span>

#include <torch/types.h>

#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/train/evaluate.h>

#include "train/evaluation_mode.h"
#include "train/snapshot/head_edges.h"

namespace edgewise::train {
namespace {

at::Tensor as_ints(const at::Tensor& row) {  // copies: a part of a batch keeps all of it
  return row.defined() ? row.to(at::kCPU, at::kInt).clone() : row;
}

// Tokens up to the last valid one.
int64_t shown_length(const Tower& tower) {
  if (!tower.mask.defined()) return tower.length();
  const at::Tensor used = tower.mask[0].nonzero();
  return used.size(0) == 0 ? 1 : used[-1].item<int64_t>() + 1;
}

InputSnapshot describe_input(const Batch& batch, size_t tower_index, const at::Tensor& logits) {
  const Tower& tower = batch.towers[tower_index];
  InputSnapshot input;
  input.tower = static_cast<int64_t>(tower_index);
  const int64_t length = input.length = shown_length(tower);
  const auto cut = [&](const at::Tensor& row) { return row.defined() ? row[0].slice(0, 0, length) : row; };
  input.tokens = as_ints(cut(tower.tokens));
  input.positions = as_ints(cut(tower.positions));
  if (tower.mask.defined() && !cut(tower.mask).all().item<bool>())
    input.valid = cut(tower.mask).to(at::kCPU).clone();
  const bool of_tokens = batch.labels.dim() == 2;
  input.labels = as_ints(of_tokens ? cut(batch.labels) : batch.labels.slice(0, 0, 1));
  const at::Tensor likeliest = logits.argmax(-1);  // [B, N] or [B]
  input.predicted = as_ints(of_tokens ? cut(likeliest) : likeliest.slice(0, 0, 1));
  return input;
}

// [1, N, N] bool of a batch that knows its right edges.
HeadSnapshot right_edges(const at::Tensor& wanted, int64_t length) {
  const at::Tensor mask = wanted[0].to(at::kCPU).slice(0, 0, length).slice(1, 0, length);
  const EdgeSet edges = EdgeSet::from_mask(mask.view({1, 1, length, length}));
  HeadSnapshot head;
  head.offsets = edges.row_offsets().to(at::kInt);
  head.keys = edges.col_indices();
  head.edges = head.chosen = edges.edge_count();
  return head;
}

EdgeSet all_pairs(const AttentionView& view, const Tower& tower, bool is_causal) {
  const EdgeShape shape{1, view.query.size(1), view.query.size(2), view.key.size(2)};
  EdgeSet edges = EdgeSet::full(shape);
  if (is_causal) edges = edges.causal(shape.keys - shape.queries);
  if (!tower.mask.defined()) return edges;
  const at::Tensor mask = tower.mask.to(at::kCPU);
  return edges.restricted_to_keys(mask).restricted_to_queries(mask);
}

double pairs_of(const InputSnapshot& input, const EdgeShape& shape, bool is_causal) {
  const int64_t valid = input.valid.defined() ? input.valid.sum().item<int64_t>() : input.length;
  const double queries = static_cast<double>(shape.queries == shape.keys ? valid : shape.queries);
  const double before = static_cast<double>(shape.keys - shape.queries);
  if (is_causal) return queries * (queries + 1) / 2 + queries * before;
  return queries * (queries + before);
}

// Rows 0, stride, 2 stride ... of [1, H, N, C] for one head, as they are kept.
at::Tensor membership_rows(const at::Tensor& memberships, int64_t head, int64_t nodes, int64_t stride) {
  return memberships[0][head].slice(0, 0, nodes, stride).to(at::kCPU, at::kHalf).contiguous();
}

// The block models of a model, layer by layer.
std::vector<at::Tensor> block_matrices(Model& model) {
  std::vector<at::Tensor> result;
  for (const auto& module : model.modules())
    if (const auto* sbm = dynamic_cast<const SbmEdgesImpl*>(module.get()))
      result.push_back(sbm->block_matrix().to(at::kCPU, at::kFloat));  // [H, C, C]
  return result;
}

class Photographer {
 public:
  Photographer(Model& model, const SnapshotRequest& request, int64_t inputs)
      : request_(request), blocks_(block_matrices(model)), inputs_(inputs) {}

  void add_layers(InputSnapshot& input, const Tower& tower, std::span<const AttentionView> views) const {
    for (size_t index = 0; index < views.size(); ++index) {
      AttentionView view = views[index];
      const bool is_dense = !view.edges;
      if (is_dense && (!view.query.defined() || input.length > request_.limits.dense_tokens)) {
        input.layers.emplace_back();  // too many pairs to show
        continue;
      }
      view.edges = is_dense ? all_pairs(view, tower, request_.is_causal) : view.edges->to(at::kCPU);
      input.layers.push_back(layer(input, tower, view, index, views.size()));
    }
  }

 private:
  LayerSnapshot layer(const InputSnapshot& input, const Tower& tower, const AttentionView& view, size_t index,
                      size_t layers) const {
    const EdgeShape& shape = view.edges->shape();
    const bool squares = view.edges->squares() != nullptr;
    // Nodes beyond the tokens (a memory, the spans of a tree) are shown as they are.
    HeadEdgesInput edges{.view = view,
                         .queries = shape.queries == tower.length() ? input.length : shape.queries,
                         .keys = shape.keys == tower.length() ? input.length : shape.keys};
    edges.most_edges =
        std::min(request_.limits.head_edges,
                 request_.limits.all_edges /
                     std::max<int64_t>(inputs_ * shape.heads * static_cast<int64_t>(layers), 1));
    LayerSnapshot result;
    result.unit = squares ? graph::kSquare : 1;
    result.queries = squares ? graph::groups_of(edges.queries) : edges.queries;
    result.keys = squares ? graph::groups_of(edges.keys) : edges.keys;
    const int64_t rows = std::max(result.queries, result.keys), limit = request_.limits.membership_rows;
    result.membership_stride = (rows + limit - 1) / limit;
    const double pairs = std::max(pairs_of(input, shape, request_.is_causal), 1.0);
    for (int64_t head = 0; head < shape.heads; ++head) {
      HeadSnapshot found = head_edges(edges, head);
      found.density = static_cast<double>(found.edges) / pairs;
      if (view.query_membership.defined()) {
        found.query_membership =
            membership_rows(view.query_membership, head, result.queries, result.membership_stride);
        found.key_side = membership_rows(view.key_side, head, result.keys, result.membership_stride);
        // Towers use the same layers.
        if (!blocks_.empty()) found.block_matrix = blocks_[index % blocks_.size()][head].contiguous();
      }
      result.heads.push_back(std::move(found));
    }
    return result;
  }

  const SnapshotRequest& request_;
  std::vector<at::Tensor> blocks_;
  int64_t inputs_;
};

}  // namespace

Snapshot take_snapshot(Model& model, const data::Dataset& dataset, const SnapshotRequest& request) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const PrecisionGuard guard(request.precision, request.device);
  Snapshot result;
  result.step = request.step;
  result.task = dataset.name();
  result.is_causal = request.is_causal;
  result.view = dataset.token_view();
  for (const int64_t example : request.examples) {
    TORCH_CHECK_VALUE(example < dataset.size(data::Split::kValidation),
                      "take_snapshot: expected examples below ", dataset.size(data::Split::kValidation),
                      ", of which there are in the validation split of ", dataset.name(), "; got ", example);
    const Batch host = dataset.batch(data::Split::kValidation, std::array{example});
    const Batch batch = to_device(host, request.device);
    const ModelOutput output = model.forward(
        {.batch = batch, .random = evaluation_stream(request.seed, 0, example), .keep_edges = true});
    const size_t towers = host.towers.size(), layers = output.views.size() / towers;
    const Photographer photographer(model, request, static_cast<int64_t>(request.examples.size() * towers));
    at::Tensor right;
    if (host.towers[0].length() <= request.limits.right_tokens) right = dataset.right_edges(host);
    for (size_t tower = 0; tower < towers; ++tower) {
      InputSnapshot input = describe_input(host, tower, output.logits);
      input.example = example;
      if (right.defined()) input.right = right_edges(right, input.length);
      photographer.add_layers(input, host.towers[tower],
                              std::span(output.views).subspan(tower * layers, layers));
      result.inputs.push_back(std::move(input));
    }
  }
  return result;
}

}  // namespace edgewise::train
