// From a model and inputs to a snapshot.
#include <edgewise/train/snapshot.h>

#include <algorithm>
#include <array>
#include <span>

#include <torch/types.h>

#include <edgewise/data/examples/text_reader.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/models/encoder_decoder.h>
#include <edgewise/models/input_graph.h>
#include <edgewise/train/evaluate.h>

#include "train/evaluation_mode.h"
#include "train/snapshot/head_edges.h"

namespace edgewise::train {
namespace {

constexpr size_t kLongestPiece = 200;  // bytes that are told of one

at::Tensor as_ints(const at::Tensor& row) {  // copies: a part of a batch keeps all of it
  return row.defined() ? row.to(at::kCPU, at::kInt).clone() : row;
}

// Tokens up to the last valid one.
int64_t shown_length(const Tower& tower) {
  if (!tower.mask.defined()) return tower.length();
  const at::Tensor used = tower.mask[0].nonzero();
  return used.size(0) == 0 ? 1 : used[-1].item<int64_t>() + 1;
}

// The first `length` of a row of item 0; undefined stays so.
at::Tensor cut(const at::Tensor& row, int64_t length) {
  return row.defined() ? row[0].slice(0, 0, length) : row;
}
at::Tensor valid_part(const Tower& tower, int64_t length) {
  if (!tower.mask.defined() || cut(tower.mask, length).all().item<bool>()) return {};
  return cut(tower.mask, length).to(at::kCPU).clone();
}

HeadSnapshot lists_of(const EdgeSet& edges) {
  HeadSnapshot head;
  head.offsets = edges.row_offsets().to(at::kInt);
  head.keys = edges.col_indices();
  head.edges = head.chosen = edges.edge_count();
  return head;
}

// The edges that came with an input, without a node's edge to itself; undefined without.
HeadSnapshot given_edges(const Tower& tower) {
  std::optional<EdgeRelations> relations;
  if (tower.graph)
    relations = tower.graph->on(at::kCPU).relations;
  else if (tower.relations.defined())
    relations = relations_of(tower);
  if (!relations || relations->edges.shape().queries != relations->edges.shape().keys) return {};
  const EdgeSet& edges = relations->edges;
  return lists_of(edges.kept(edges.edge_rows().ne(edges.col_indices())));
}

// Which tower of a batch an input shows, and which its decoder reads.
struct ShownTowers {
  size_t first = 0;
  std::optional<size_t> target = {};
};

InputSnapshot describe_input(const Batch& batch, const ShownTowers& shown, const at::Tensor& logits) {
  const Tower& tower = batch.towers[shown.first];
  InputSnapshot input;
  input.tower = static_cast<int64_t>(shown.first);
  const int64_t length = input.length = shown_length(tower);
  input.tokens = as_ints(cut(tower.tokens, length));
  input.positions = as_ints(cut(tower.positions, length));
  input.valid = valid_part(tower, length);
  if (length == tower.length()) input.given = given_edges(tower);
  if (shown.target) {
    const Tower& target = batch.towers[*shown.target];
    input.target.length = shown_length(target);
    input.target.tokens = as_ints(cut(target.tokens, input.target.length));
    input.target.valid = valid_part(target, input.target.length);
  }
  const bool of_tokens = logits.dim() == 3;
  const int64_t answers = shown.target ? input.target.length : length;
  const auto row = [&](const at::Tensor& all) {
    return as_ints(of_tokens ? cut(all, answers) : all.slice(0, 0, 1));
  };
  if (batch.labels.defined() && batch.labels.dim() == logits.dim() - 1) input.labels = row(batch.labels);
  input.predicted = row(logits.argmax(-1));  // [B, N] or [B]
  return input;
}

// [1, N, N] bool of a batch that knows its right edges.
HeadSnapshot right_edges(const at::Tensor& wanted, int64_t length) {
  const at::Tensor mask = wanted[0].to(at::kCPU).slice(0, 0, length).slice(1, 0, length);
  return lists_of(EdgeSet::from_mask(mask.view({1, 1, length, length})));
}

// Between which sequences of a batch a layer looks.
struct LayerPlace {
  const Tower *queries = nullptr, *keys = nullptr;
  bool is_causal = false, is_of_target = false, looks_at_target = false;
  std::string name = {};
};

EdgeSet all_pairs(const AttentionView& view, const LayerPlace& place) {
  const EdgeShape shape{1, view.query.size(1), view.query.size(2), view.key.size(2)};
  EdgeSet edges = EdgeSet::full(shape);
  if (place.is_causal) edges = edges.causal(shape.keys - shape.queries);
  if (place.keys->mask.defined()) edges = edges.restricted_to_keys(place.keys->mask.to(at::kCPU));
  if (place.queries->mask.defined()) edges = edges.restricted_to_queries(place.queries->mask.to(at::kCPU));
  return edges;
}

double valid_tokens(const Tower& tower, int64_t length) {
  const at::Tensor valid = valid_part(tower, length);
  return static_cast<double>(valid.defined() ? valid.sum().item<int64_t>() : length);
}

// Pairs that a head could have. Keys beyond the tokens are a memory, which stands before them.
double pairs_of(const LayerPlace& place, const EdgeShape& shape) {
  if (place.queries != place.keys)
    return valid_tokens(*place.queries, shown_length(*place.queries)) *
           valid_tokens(*place.keys, shown_length(*place.keys));
  const double valid = valid_tokens(*place.queries, shown_length(*place.queries)),
               queries = shape.queries == shape.keys ? valid : static_cast<double>(shape.queries),
               before = static_cast<double>(shape.keys - shape.queries);
  if (place.is_causal) return queries * (queries + 1) / 2 + queries * before;
  return queries * (queries + before);
}

// Rows 0, stride, 2 stride ... of [1, H, N, C] for one head, as they are kept.
at::Tensor membership_rows(const at::Tensor& memberships, int64_t head, int64_t nodes, int64_t stride) {
  return memberships[0][head].slice(0, 0, nodes, stride).to(at::kCPU, at::kHalf).contiguous();
}

void add_block_matrices(const torch::nn::Module& of, std::vector<at::Tensor>& result) {
  for (const auto& module : of.modules())
    if (const auto* sbm = dynamic_cast<const SbmEdgesImpl*>(module.get()))
      result.push_back(sbm->block_matrix().to(at::kCPU, at::kFloat));  // [H, C, C]
}

// The block models of a model, in the order of its output's layers.
std::vector<at::Tensor> block_matrices(const Model& model) {
  std::vector<at::Tensor> result;
  if (const auto* const translator = dynamic_cast<const EncoderDecoderImpl*>(&model)) {
    add_block_matrices(*translator->encoder, result);
    for (const TransformerBlock& layer : translator->layers) add_block_matrices(*layer->self_attn, result);
    for (const TransformerBlock& layer : translator->layers)
      add_block_matrices(*layer->multihead_attn, result);
  } else {
    add_block_matrices(model, result);
  }
  return result;
}

class Photographer {
 public:
  // inputs: that share the limit of all edges.
  Photographer(const Model& model, const SnapshotRequest& request, int64_t inputs)
      : request_(request), blocks_(block_matrices(model)), inputs_(inputs) {}

  void add_layers(InputSnapshot& input, std::span<const LayerPlace> places,
                  std::span<const AttentionView> views) const {
    size_t learners = 0;
    for (size_t index = 0; index < views.size(); ++index) {
      AttentionView view = views[index];
      const LayerPlace& place = places[index];
      const int64_t longest = std::max(shown_length(*place.queries), shown_length(*place.keys));
      const bool is_dense = !view.edges;
      LayerSnapshot layer;  // stays empty where there are too many pairs to show
      if (!is_dense || (view.query.defined() && longest <= request_.limits.dense_tokens)) {
        view.edges = is_dense ? all_pairs(view, place) : view.edges->to(at::kCPU);
        // Towers use the same layers.
        const at::Tensor blocks = view.query_membership.defined() && !blocks_.empty()
                                      ? blocks_[learners++ % blocks_.size()]
                                      : at::Tensor();
        layer = photograph(place, view, blocks, views.size());
      }
      layer.name = place.name;
      layer.is_of_target = place.is_of_target;
      layer.looks_at_target = place.looks_at_target;
      input.layers.push_back(std::move(layer));
    }
  }

 private:
  // blocks: [H, C, C], or undefined.
  LayerSnapshot photograph(const LayerPlace& place, const AttentionView& view, const at::Tensor& blocks,
                           size_t layers) const {
    const EdgeShape& shape = view.edges->shape();
    const bool squares = view.edges->squares() != nullptr;
    // Nodes beyond the tokens (a memory, the spans of a tree) are shown as they are.
    const auto shown = [](const Tower& tower, int64_t nodes) {
      return nodes == tower.length() ? shown_length(tower) : nodes;
    };
    HeadEdgesInput edges{.view = view,
                         .queries = shown(*place.queries, shape.queries),
                         .keys = shown(*place.keys, shape.keys)};
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
    const double pairs = std::max(pairs_of(place, shape), 1.0);
    for (int64_t head = 0; head < shape.heads; ++head) {
      HeadSnapshot found = head_edges(edges, head);
      found.density = static_cast<double>(found.edges) / pairs;
      if (view.query_membership.defined()) {
        found.query_membership =
            membership_rows(view.query_membership, head, result.queries, result.membership_stride);
        found.key_side = membership_rows(view.key_side, head, result.keys, result.membership_stride);
        if (blocks.defined()) found.block_matrix = blocks[head].contiguous();
      }
      result.heads.push_back(std::move(found));
    }
    return result;
  }

  const SnapshotRequest& request_;
  std::vector<at::Tensor> blocks_;
  int64_t inputs_;
};

// An encoder-decoder's layers, in the order in which its output has them.
std::vector<LayerPlace> decoder_places(const EncoderDecoderImpl& model, const Batch& batch) {
  const Tower *source = &batch.towers[0], *target = &batch.towers[1];
  std::vector<LayerPlace> places;
  const auto add = [&](int64_t count, const LayerPlace& place) {
    for (int64_t n = 0; n < count; ++n) {
      places.push_back(place);
      places.back().name += " " + std::to_string(n);
    }
  };
  const auto layers = std::ssize(model.layers);
  add(model.options.encoder.layers, {.queries = source, .keys = source, .name = "encoder"});
  add(layers, {.queries = target,
               .keys = target,
               .is_causal = true,
               .is_of_target = true,
               .looks_at_target = true,
               .name = "decoder"});
  add(layers, {.queries = target, .keys = source, .is_of_target = true, .name = "across"});
  return places;
}

std::string piece_of(const data::TextReader& reader, int64_t id) {
  if (id == reader.padding()) return "(padding)";
  if (id == reader.stop()) return "(end)";
  if (id == reader.mask()) return "(mask)";
  if (id < 0 || id >= reader.tokenizer().size()) return "(" + std::to_string(id) + ")";
  const std::array<int32_t, 1> one = {static_cast<int32_t>(id)};
  const std::string text = reader.tokenizer().decode(one);
  return (text.empty() ? reader.tokenizer().piece(one[0]) : text).substr(0, kLongestPiece);
}

void tell_pieces(const at::Tensor& tokens, const data::TextReader& reader,
                 std::map<int64_t, std::string>& pieces) {
  if (!tokens.defined()) return;
  for (int64_t n = 0; n < tokens.size(0); ++n) {
    const int64_t id = tokens.const_data_ptr<int32_t>()[n];
    if (!pieces.contains(id)) pieces[id] = piece_of(reader, id);
  }
}

}  // namespace

Snapshot take_snapshot(Model& model, const data::Dataset& dataset, const SnapshotRequest& request) {
  std::vector<SnapshotItem> items;
  for (const int64_t example : request.examples) {
    TORCH_CHECK_VALUE(example < dataset.size(data::Split::kValidation),
                      "take_snapshot: expected examples below ", dataset.size(data::Split::kValidation),
                      ", of which there are in the validation split of ", dataset.name(), "; got ", example);
    SnapshotItem item{.batch = dataset.batch(data::Split::kValidation, std::array{example}),
                      .example = example};
    if (item.batch.towers[0].length() <= request.limits.right_tokens)
      item.right = dataset.right_edges(item.batch);
    items.push_back(std::move(item));
  }
  return take_snapshot(model,
                       {.name = dataset.name(), .view = dataset.token_view(), .reader = dataset.reader()},
                       items, request);
}

Snapshot take_snapshot(Model& model, const SnapshotTask& task, const std::vector<SnapshotItem>& items,
                       const SnapshotRequest& request) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const PrecisionGuard guard(request.precision, request.device);
  Snapshot result;
  result.step = request.step;
  result.task = task.name;
  result.is_causal = request.is_causal;
  result.view = task.view;
  const auto* const translator = dynamic_cast<const EncoderDecoderImpl*>(&model);
  for (const SnapshotItem& item : items) {
    const Batch& host = item.batch;
    const ModelOutput output = model.forward({.batch = to_device(host, request.device),
                                              .random = evaluation_stream(request.seed, 0, item.example),
                                              .keep_edges = true});
    const size_t inputs = translator ? 1 : host.towers.size(), layers = output.views.size() / inputs;
    const Photographer photographer(model, request, static_cast<int64_t>(items.size() * inputs));
    for (size_t tower = 0; tower < inputs; ++tower) {
      const ShownTowers shown{.first = tower, .target = translator ? std::optional<size_t>(1) : std::nullopt};
      InputSnapshot input = describe_input(host, shown, output.logits);
      input.example = item.example;
      input.name = item.name;
      if (item.right.defined()) input.right = right_edges(item.right, input.length);
      const LayerPlace plain{
          .queries = &host.towers[tower], .keys = &host.towers[tower], .is_causal = request.is_causal};
      const std::vector<LayerPlace> places =
          translator ? decoder_places(*translator, host) : std::vector<LayerPlace>(layers, plain);
      TORCH_INTERNAL_ASSERT(places.size() == layers);
      photographer.add_layers(input, places, std::span(output.views).subspan(tower * layers, layers));
      if (task.reader && task.view.names.empty()) {
        tell_pieces(input.tokens, *task.reader, result.pieces);
        tell_pieces(input.target.tokens, *task.reader, result.pieces);
      }
      result.inputs.push_back(std::move(input));
    }
  }
  return result;
}

}  // namespace edgewise::train
