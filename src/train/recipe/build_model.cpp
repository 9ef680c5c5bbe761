#include <edgewise/train/build_model.h>

#include <array>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/attention/linear_attention.h>
#include <edgewise/attention/linformer.h>
#include <edgewise/attention/nystromformer.h>
#include <edgewise/attention/performer.h>
#include <edgewise/attention/reformer.h>
#include <edgewise/data/characters.h>
#include <edgewise/edges/bucket_edges.h>
#include <edgewise/edges/patterns.h>

#include "train/recipe/override_with.h"

namespace edgewise::train {
namespace {

// The number of sequences per example; a dataset says so only through its batches.
size_t towers(const data::Dataset& dataset) {
  constexpr std::array<int64_t, 1> kFirst = {0};
  return dataset.batch(data::Split::kTrain, kFirst).tokens.size();
}

}  // namespace

SbmEdgesOptions sbm_options(const Recipe& recipe) {
  const AttentionRecipe& attention = recipe.attention;
  SbmEdgesOptions options(recipe.model.heads, recipe.model.dim / recipe.model.heads,
                          parse_sbm_preset(attention.preset));
  override_with(options.clusters, attention.clusters);
  override_with(options.shared_mlp, attention.shared_mlp);
  override_with(options.cluster_std, attention.cluster_std);
  override_with(options.law, attention.law, parse_edge_law);
  override_with(options.exploration, attention.exploration);
  override_with(options.exploration_in_eval, attention.exploration_in_eval);
  override_with(options.estimator, attention.estimator, parse_estimator);
  override_with(options.present_form, attention.present_form, parse_present_form);
  override_with(options.gradient_clip, attention.gradient_clip);
  override_with(options.probe_rate, attention.probe_rate);
  override_with(options.probes_per_row, attention.probes_per_row);
  override_with(options.probe_unit, attention.probe_unit);
  override_with(options.density_penalty, attention.density_penalty, parse_density_penalty);
  override_with(options.self_loops, attention.self_loops);
  override_with(options.count_padding, attention.count_padding);
  // In a text every pair by its own random number: a row has the same edges alone as among the others.
  if (recipe.data.name == "characters") options.sampler = Sampler::kDirect;
  override_with(options.sampler, attention.sampler, parse_sampler);
  return options;
}

bool density_counts_padding(const Recipe& recipe) {
  const SbmEdgesOptions options = sbm_options(recipe);
  // Edges that a pattern adds are counted together with the learned ones, over valid pairs.
  return recipe.attention.kind == "sbm" && options.count_padding && !options.self_loops;
}

EdgeSourceFactory edge_source_factory(const Recipe& recipe) {
  const std::string& kind = recipe.attention.kind;
  const bool harness = recipe.attention.mode == "harness";
  if (kind == "dense" || kind == "linear" || kind == "performer" || kind == "linformer" ||
      kind == "nystromformer" || kind == "transformer_xl" || kind == "adaptive_span" || kind == "tree" ||
      (kind == "reformer" && harness))
    return {};
  if (kind == "reformer") {
    const BucketEdgesOptions options{.rounds = recipe.attention.rounds, .chunk = recipe.attention.chunk};
    return [options](int64_t) { return BucketEdges(options).ptr(); };
  }
  if (kind == "full") return [](int64_t) { return std::make_shared<FullEdges>(); };
  const auto window = [width = recipe.attention.window] { return std::make_shared<WindowEdges>(width); };
  if (kind == "window") return [window](int64_t) { return window(); };
  const auto sbm = [options = sbm_options(recipe)] { return SbmEdges(options).ptr(); };
  if (kind == "sbm") return [sbm](int64_t) { return sbm(); };
  if (kind == "window+sbm") {
    return [window, sbm](int64_t) {
      return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{window(), sbm()});
    };
  }
  if (kind == "random")
    return [alpha = sac_options(recipe).alpha](int64_t) { return std::make_shared<RandomEdges>(alpha); };
  if (kind == "sac" || kind == "window+sac") {
    // std::function copies its target: the factory, which remembers the first layer, is shared.
    auto sac = std::make_shared<SacEdgesFactory>(sac_options(recipe));
    if (kind == "sac") return [sac](int64_t layer) { return (*sac)(layer); };
    return [window, sac](int64_t layer) {
      return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{window(), (*sac)(layer)});
    };
  }
  TORCH_CHECK_VALUE(false,
                    "build_model: expected attention.kind dense, full, window, random, sbm, window+sbm, sac, "
                    "window+sac, linear, "
                    "reformer, performer, linformer or nystromformer; got '",
                    kind, "'");
}

AttentionMethodFactory attention_method_factory(const Recipe& recipe, int64_t max_length) {
  const AttentionRecipe& attention = recipe.attention;
  const MethodMode mode = parse_method_mode(attention.mode);
  const int64_t heads = recipe.model.heads, head_dim = recipe.model.dim / heads;
  if (attention.kind == "linear") return [mode](int64_t) { return LinearAttention(mode).ptr(); };
  if (attention.kind == "performer") {
    PerformerAttentionOptions options(head_dim, mode);
    options.features = attention.features;
    options.redraw_every = attention.redraw_every;
    return [options](int64_t) { return PerformerAttention(options).ptr(); };
  }
  if (attention.kind == "linformer") {
    LinformerAttentionOptions options(heads, max_length, mode);
    options.projected_length = attention.projected_length;
    options.sharing = parse_projection_sharing(attention.sharing);
    return [options, first = at::Tensor()](int64_t) mutable {
      LinformerAttention method(options, first);
      if (shares_layers(options)) first = method->key_projection;
      return method.ptr();
    };
  }
  if (attention.kind == "nystromformer") {
    NystromAttentionOptions options(heads, mode);
    options.landmarks = attention.landmarks;
    options.iterations = attention.pinv_iterations;
    options.conv_kernel = attention.conv_kernel;
    return [options](int64_t) { return NystromAttention(options).ptr(); };
  }
  if (attention.kind == "reformer" && mode == MethodMode::kHarness) {
    ReformerAttentionOptions options(heads, head_dim);
    options.rounds = attention.rounds;
    options.chunk = attention.chunk;
    return [options](int64_t) { return ReformerAttention(options).ptr(); };
  }
  return {};
}

ModelPtr build_model(const Recipe& recipe, const data::Dataset& dataset) {
  const ModelRecipe& model = recipe.model;
  if (const auto* text = dynamic_cast<const data::Characters*>(&dataset))
    return build_language_model(recipe, text->bytes()).ptr();
  TORCH_CHECK_VALUE(model.head_dim == 0 || model.head_dim * model.heads == model.dim,
                    "build_model: expected model.head_dim * model.heads = model.dim = ", model.dim, "; got ",
                    model.head_dim, " * ", model.heads, ". Leave head_dim out, or change dim.");
  TORCH_CHECK_VALUE(model.max_length == 0 || model.max_length >= dataset.max_length(),
                    "build_model: expected model.max_length of at least ", dataset.max_length(),
                    ", the longest of ", dataset.name(), "; got ", model.max_length,
                    ". Leave it out to take the dataset's.");
  ClassifierOptions options;
  options.encoder.vocabulary = dataset.vocabulary();
  options.encoder.max_length = model.max_length > 0 ? model.max_length : dataset.max_length();
  options.encoder.layers = model.layers;
  options.encoder.dim = model.dim;
  options.encoder.heads = model.heads;
  options.encoder.hidden = model.hidden;
  options.encoder.dropout = model.dropout;
  options.encoder.attention_dropout = model.attention_dropout;
  options.encoder.token_dropout = model.token_dropout;
  options.encoder.positions = parse_positions(model.positions);
  options.encoder.embedding_std = model.embedding_std;
  options.encoder.norm = model.norm;
  options.encoder.edges = edge_source_factory(recipe);
  options.encoder.method = attention_method_factory(recipe, options.encoder.max_length);
  options.encoder.shared_qk = recipe.attention.kind == "reformer";
  options.encoder.in_proj_bias = !options.encoder.shared_qk || recipe.attention.mode == "paper";
  options.classes = dataset.classes();
  options.hidden = model.classifier_hidden;
  options.pooling = parse_pooling(model.pooling);

  const bool two_towers = towers(dataset) == 2;
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  if (dataset.labels_tokens()) return TokenClassifier(options).ptr();
  if (two_towers) return TwoTowerClassifier(options).ptr();
  return SequenceClassifier(options).ptr();
}

}  // namespace edgewise::train
