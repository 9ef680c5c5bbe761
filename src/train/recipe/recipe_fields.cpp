#include "train/recipe/recipe_fields.h"

#include <algorithm>
#include <sstream>

#include "train/recipe/nearest_name.h"

namespace edgewise::train {

namespace {

template <typename Section, typename Value>
RecipeField field(Section Recipe::*section_member, Value Section::*member, const char* name,
                  const char* meaning, FieldRule rule = {}) {
  const std::string full = name;
  const size_t dot = full.find('.');
  return {full.substr(0, dot), full.substr(dot + 1),
          [=](Recipe& recipe) -> FieldSlot { return &(recipe.*section_member.*member); }, meaning,
          std::move(rule)};
}

FieldRule at_least(double low) {
  return {.low = low};
}
FieldRule above(double low) {
  return {.low = low, .low_is_allowed = false};
}
FieldRule share() {
  return {.low = 0, .high = 1};
}
FieldRule below_one() {
  return {.low = 0, .high = 1, .high_is_allowed = false};
}
FieldRule one_of(std::vector<std::string> names) {
  return {.names = std::move(names)};
}

std::vector<RecipeField> make_fields() {
  const auto data = &Recipe::data;
  const auto model = &Recipe::model;
  const auto attention = &Recipe::attention;
  const auto sac = &Recipe::sac;
  const auto train = &Recipe::train;
  using D = DataRecipe;
  using M = ModelRecipe;
  using A = AttentionRecipe;
  using S = SacRecipe;
  using T = TrainRecipe;
  // clang-format off
  return {
      field(data, &D::name, "data.name", "the task", one_of({"repeated_tokens", "associative_recall", "listops", "image", "text", "pathfinder", "retrieval", "characters"})),
      field(data, &D::path, "data.path", "characters: a text file; listops to retrieval: the folder that 'edgewise data NAME --out' filled"),
      field(data, &D::length, "data.length", "repeated_tokens, associative_recall, characters: tokens per sequence", at_least(1)),
      field(data, &D::train_size, "data.train_size", "repeated_tokens, associative_recall: training sequences", at_least(1)),
      field(data, &D::validation_size, "data.validation_size", "repeated_tokens, associative_recall: validation sequences", at_least(1)),
      field(data, &D::test_size, "data.test_size", "repeated_tokens, associative_recall: test sequences", at_least(1)),
      field(data, &D::seed, "data.seed", "repeated_tokens, associative_recall: seed of the sequences", at_least(0)),
      field(data, &D::fixed_length, "data.fixed_length",
            "listops, text, retrieval: pad every batch to the full length, as published; else to its longest"),
      field(data, &D::mask_zero, "data.mask_zero", "image, pathfinder: black pixels are masked as padding, as published"),
      field(data, &D::drop_masked, "data.drop_masked", "with mask_zero: masked pixels are left out; same result from fewer tokens"),
      field(data, &D::symmetries, "data.symmetries",
            "image, pathfinder: training pictures also mirrored left to right, or mirrored and turned (square)",
            one_of({"none", "mirror", "square"})),
      field(data, &D::validation, "data.validation", "text: a split of its own, or the test set, as published",
            one_of({"own", "test"})),
      field(data, &D::keys, "data.keys", "associative_recall: distinct keys; 0 = length / 2", at_least(0)),
      field(data, &D::values, "data.values", "associative_recall: distinct values, the classes", at_least(1)),

      field(model, &M::layers, "model.layers", "Transformer blocks", at_least(1)),
      field(model, &M::dim, "model.dim", "width of a token's state", at_least(1)),
      field(model, &M::heads, "model.heads", "attention heads", at_least(1)),
      field(model, &M::head_dim, "model.head_dim", "width of a head; 0 = dim / heads", at_least(0)),
      field(model, &M::hidden, "model.hidden", "width of a block's MLP", at_least(1)),
      field(model, &M::dropout, "model.dropout", "dropout on embeddings, attention output and MLP", below_one()),
      field(model, &M::attention_dropout, "model.attention_dropout", "dropout on attention weights", below_one()),
      field(model, &M::token_dropout, "model.token_dropout",
            "classifiers: part of the tokens that training reads as token 0, which is padding in texts and black in pictures", below_one()),
      field(model, &M::positions, "model.positions", "position embeddings", one_of({"learned", "none"})),
      field(model, &M::pooling, "model.pooling", "mean over valid tokens, or over padding too, as published",
            one_of({"mean", "mean_padded"})),
      field(model, &M::embedding_std, "model.embedding_std", "standard deviation of the initial embeddings", above(0)),
      field(model, &M::norm, "model.norm", "LayerNorm before attention and MLP, and at the end"),
      field(model, &M::max_length, "model.max_length", "longest sequence; 0 = the dataset's", at_least(0)),
      field(model, &M::classifier_hidden, "model.classifier_hidden", "width of the classifier of whole sequences",
            at_least(1)),
      field(model, &M::tied, "model.tied", "characters: the output layer is the token embedding; else one of its own"),

      field(attention, &A::kind, "attention.kind", "dense: no edges, torch's attention; full to window+sac: over edges; linear to nystromformer: published approximations; the others: language models",
            one_of({"dense", "full", "window", "random", "sbm", "window+sbm", "sac", "window+sac", "linear", "reformer", "performer",
                    "linformer", "nystromformer", "transformer_xl", "adaptive_span", "tree"})),
      field(attention, &A::window, "attention.window", "window: keys on each side of a query", at_least(0)).of({"window", "window+sbm", "window+sac"}),
      field(attention, &A::preset, "attention.preset", "sbm: where the settings below come from",
            one_of({"paper", "published", "edgewise"})).of({"sbm", "window+sbm"}),
      field(attention, &A::clusters, "attention.clusters", "clusters of the block model", at_least(1)),
      field(attention, &A::shared_mlp, "attention.shared_mlp", "one node MLP for all heads"),
      field(attention, &A::cluster_std, "attention.cluster_std",
            "standard deviation of the initial clusters; 0 = sqrt(2 / (clusters * head_dim))", at_least(0)),
      field(attention, &A::law, "attention.law", "how probabilities become edges", one_of({"bernoulli", "poisson"})),
      field(attention, &A::exploration, "attention.exploration", "added to every edge probability in training", share()),
      field(attention, &A::exploration_in_eval, "attention.exploration_in_eval", "and in evaluation"),
      field(attention, &A::estimator, "attention.estimator", "how the choice of edges learns",
            one_of({"paper", "logit", "counterfactual"})),
      field(attention, &A::present_form, "attention.present_form", "counterfactual: the form on present edges",
            one_of({"softmax", "leave_one_out"})),
      field(attention, &A::gradient_clip, "attention.gradient_clip", "cuts the gradient of a probability; 0 = no cut",
            at_least(0)),
      field(attention, &A::probe_rate, "attention.probe_rate", "counterfactual: share of absent edges probed", share()),
      field(attention, &A::probes_per_row, "attention.probes_per_row", "counterfactual: at most so many probes per query on average; 0 = no limit", at_least(0)),
      field(attention, &A::probe_unit, "attention.probe_unit", "counterfactual: probes one by one (1) or in squares of 16 queries and keys (16)", at_least(1)),
      field(attention, &A::density_penalty, "attention.density_penalty", "expected density, or the sampled one",
            one_of({"exact", "sampled"})),
      field(attention, &A::self_loops, "attention.self_loops", "every token attends to itself"),
      field(attention, &A::count_padding, "attention.count_padding", "padding is sampled and counted, as published"),
      field(attention, &A::sampler, "attention.sampler", "the sampling algorithm", one_of({"auto", "direct", "fastrg", "squeezed", "thinning"})),

      field(attention, &A::mode, "attention.mode",
            "linear to nystromformer: as its paper prints it, or as the comparison code of the SBM paper computes it",
            one_of({"paper", "harness"})).of({"linear", "reformer", "performer", "linformer", "nystromformer"}),
      field(attention, &A::features, "attention.features", "performer: random features", at_least(1)).of({"performer"}),
      field(attention, &A::redraw_every, "attention.redraw_every",
            "performer, paper: training steps between new features; 0 = never", at_least(0)).of({"performer"}),
      field(attention, &A::projected_length, "attention.projected_length", "linformer: keys and values after projection",
            at_least(1)).of({"linformer"}),
      field(attention, &A::sharing, "attention.sharing", "linformer, paper: what shares a projection",
            one_of({"none", "heads", "key_value", "layers"})).of({"linformer"}),
      field(attention, &A::landmarks, "attention.landmarks", "nystromformer: landmarks", at_least(1)).of({"nystromformer"}),
      field(attention, &A::conv_kernel, "attention.conv_kernel",
            "nystromformer: width of the convolution over values, odd; 0 = none", at_least(0)).of({"nystromformer"}),
      field(attention, &A::pinv_iterations, "attention.pinv_iterations", "nystromformer: steps of the pseudo-inverse",
            at_least(0)).of({"nystromformer"}),
      field(attention, &A::rounds, "attention.rounds", "reformer: rounds of hashing", at_least(1)).of({"reformer"}),
      field(attention, &A::chunk, "attention.chunk", "reformer: tokens per chunk", at_least(1)).of({"reformer"}),
      field(attention, &A::memory, "attention.memory", "transformer_xl, adaptive_span: tokens of the batch before that are kept", at_least(0)).of({"transformer_xl", "adaptive_span"}),
      field(attention, &A::span_limit, "attention.span_limit", "adaptive_span: the longest span", at_least(1)).of({"adaptive_span"}),
      field(attention, &A::span_ramp, "attention.span_ramp", "adaptive_span: tokens over which a span fades", at_least(1)).of({"adaptive_span"}),
      field(attention, &A::span_weight, "attention.span_weight", "adaptive_span: weight of the mean span, in tokens, in the loss", at_least(0)).of({"adaptive_span"}),
      field(attention, &A::tree_step, "attention.tree_step", "tree: nodes per level that a token uses", at_least(1)).of({"tree"}),
      field(attention, &A::tree_clip, "attention.tree_clip", "tree: levels above share their edge types", at_least(0)).of({"tree"}),

      field(sac, &S::alpha, "sac.alpha", "edges per query: 4; kind random: the same", at_least(1)),
      field(sac, &S::budget, "sac.budget", "edges per sequence instead; 0 = alpha decides", at_least(0)),
      field(sac, &S::node_dim, "sac.node_dim", "width of the predictor: 32", at_least(1)),
      field(sac, &S::walk, "sac.walk", "every query a source (rooted), or source, destination, ... as published",
            one_of({"rooted", "pairs"})),
      field(sac, &S::scorer, "sac.scorer", "how a node is scored: dot", one_of({"dot", "mlp"})),
      field(sac, &S::destinations, "sac.destinations", "predicted among all keys, or a block first and a key inside it: all",
            one_of({"all", "blocks"})),
      field(sac, &S::block_size, "sac.block_size", "destinations blocks: keys a block: 64", at_least(1)),
      field(sac, &S::sharing, "sac.sharing", "who shares edges: per_layer", one_of({"all_layers", "per_layer", "per_head"})),
      field(sac, &S::self_edges, "sac.self_edges", "whether a token may choose itself: allowed",
            one_of({"allowed", "never", "always"})),
      field(sac, &S::duplicates, "sac.duplicates", "an edge may be chosen again: false"),
      field(sac, &S::candidate_window, "sac.candidate_window", "choose only within so many tokens on each side", at_least(0)),
      field(sac, &S::distance, "sac.distance", "distance encoding on destinations: bias", one_of({"none", "bias", "vector"})),
      field(sac, &S::distance_buckets, "sac.distance_buckets", "its buckets, half a side: 32", at_least(2)),
      field(sac, &S::max_distance, "sac.max_distance", "farther ones share a bucket: 128", at_least(1)),
      field(sac, &S::distance_decay, "sac.distance_decay", "distance bias: at the start far ones are scored this times log(1 + distance) lower: 0", at_least(0)),
      field(sac, &S::train_decoding, "sac.train_decoding", "in training: sample", one_of({"sample", "greedy"})),
      field(sac, &S::test_decoding, "sac.test_decoding", "in evaluation: beam", one_of({"sample", "greedy", "beam"})),
      field(sac, &S::beam, "sac.beam", "width of the beam: 5", at_least(1)),
      field(sac, &S::detach_inputs, "sac.detach_inputs", "the predictor's gradient stops at its inputs: true"),
      field(sac, &S::estimator, "sac.estimator", "how the choice learns: edge_credit",
            one_of({"reinforce", "edge_credit", "straight_through", "distillation"})),
      field(sac, &S::credit_form, "sac.credit_form", "edge_credit: leave_one_out", one_of({"leave_one_out", "suffix"})),
      field(sac, &S::policy_weight, "sac.policy_weight", "weight of the estimator beside the task loss: 1; 0, with no entropy_weight = untrained", at_least(0)),
      field(sac, &S::entropy_weight, "sac.entropy_weight", "weight of the entropy bonus: 0", at_least(0)),
      field(sac, &S::baseline, "sac.baseline", "reinforce: running_mean", one_of({"none", "running_mean", "learned"})),
      field(sac, &S::baseline_decay, "sac.baseline_decay", "forgetting of the running mean per step: 0.99", below_one()),
      field(sac, &S::normalize_rewards, "sac.normalize_rewards", "reinforce: advantages over the rewards' deviation: false"),
      field(sac, &S::distilled_rows, "sac.distilled_rows", "distillation: queries per sequence: 16", at_least(1)),

      field(train, &T::weights, "train.weights", "weights to start from: a run folder (its best checkpoint) or a checkpoint; \"\" = new ones"),
      field(train, &T::steps, "train.steps", "optimiser steps", at_least(1)),
      field(train, &T::batch, "train.batch", "sequences per step", at_least(1)),
      field(train, &T::micro_batch, "train.micro_batch", "sequences at a time, gradients added up; 0 = batch", at_least(0)),
      field(train, &T::learning_rate, "train.learning_rate", "the peak", above(0)),
      field(train, &T::warmup_steps, "train.warmup_steps", "one_cycle: steps up to the peak", at_least(0)),
      field(train, &T::schedule, "train.schedule", "course of the learning rate", one_of({"one_cycle", "constant"})),
      field(train, &T::weight_decay, "train.weight_decay", "AdamW's", at_least(0)),
      field(train, &T::adam_eps, "train.adam_eps", "AdamW's epsilon", above(0)),
      field(train, &T::beta2, "train.beta2", "AdamW's second decay", below_one()),
      field(train, &T::edge_rate, "train.edge_rate",
            "times the learning rate: the rate of the parameters that choose edges (clusters, predictors)", at_least(0)),
      field(train, &T::grad_clip, "train.grad_clip", "largest norm of the whole gradient; 0 = no limit", at_least(0)),
      field(train, &T::density_weight, "train.density_weight", "lambda: weight of the mean edge density in the loss",
            at_least(0)),
      field(train, &T::density_start, "train.density_start",
            "step before which the density weighs nothing: for tasks that learn nothing at first", at_least(0)),
      field(train, &T::density_warmup, "train.density_warmup",
            "steps from there on over which its weight rises from 0; 0 = whole at once", at_least(0)),
      field(train, &T::edge_samples, "train.edge_samples", "draws of the edges per sequence and step", at_least(1)),
      field(train, &T::average, "train.average",
            "decay of a moving average of the parameters, which is evaluated and kept in their place, e.g. 0.999; 0 = none", below_one()),
      field(train, &T::eval_every, "train.eval_every", "steps between validations", at_least(1)),
      field(train, &T::eval_batches, "train.eval_batches", "batches per validation; 0 = all", at_least(0)),
      field(train, &T::eval_draws, "train.eval_draws", "draws of edges averaged per evaluation", at_least(1)),
      field(train, &T::patience, "train.patience", "the run ends after so many validations in a row without a better one; 0 = never before train.steps", at_least(0)),
      field(train, &T::checkpoint_every, "train.checkpoint_every", "steps between checkpoints", at_least(1)),
      field(train, &T::log_every, "train.log_every", "steps between lines of metrics", at_least(1)),
      field(train, &T::snapshot_edges, "train.snapshot_edges", "keep edges of some sequences for the explorer"),
      field(train, &T::seed, "train.seed", "seed of parameters, order, dropout and edges", at_least(0)),
      field(train, &T::device, "train.device", "where to run", one_of({"cpu", "cuda"})),
      field(train, &T::precision, "train.precision", "of matrix products and attention", one_of({"fp32", "bf16"})),
      field(train, &T::cuda_graph, "train.cuda_graph", "device cuda, attention dense, sbm or transformer_xl: passes of a shape seen before are replayed from CUDA graphs; faster for small models"),
      field(train, &T::threads, "train.threads", "CPU threads; 0 = as many as cores", at_least(0)),
  };
  // clang-format on
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

std::string FieldRule::describe() const {
  if (!names.empty()) {
    std::string text = "one of ";
    for (const std::string& name : names) text += (&name == &names.front() ? "" : ", ") + name;
    return text;
  }
  const bool has_low = low != -std::numeric_limits<double>::infinity();
  const bool has_high = high != std::numeric_limits<double>::infinity();
  if (has_low && has_high) {
    return std::string("in ") + (low_is_allowed ? "[" : "(") + number(low) + ", " + number(high) +
           (high_is_allowed ? "]" : ")");
  }
  if (has_low) return (low_is_allowed ? "at least " : "above ") + number(low);
  return "";
}

bool FieldRule::allows(double value) const {
  // Written so that NaN fails; infinity is no setting either.
  const bool above_low = low_is_allowed ? value >= low : value > low;
  const bool below_high = high_is_allowed ? value <= high : value < high;
  return above_low && below_high && value < std::numeric_limits<double>::infinity();
}

bool FieldRule::allows(const std::string& value) const {
  return names.empty() || std::ranges::find(names, value) != names.end();
}

bool RecipeField::is_read_by(const std::string& kind) const {
  return kinds.empty() || std::ranges::find(kinds, kind) != kinds.end();
}

const std::vector<RecipeField>& recipe_fields() {
  static const std::vector<RecipeField> fields = make_fields();
  return fields;
}

std::vector<std::string> recipe_sections() {
  std::vector<std::string> sections;
  for (const RecipeField& field : recipe_fields()) {
    if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
  }
  return sections;
}

const RecipeField* find_recipe_field(std::string_view section, std::string_view key) {
  const auto found = std::ranges::find_if(recipe_fields(), [&](const RecipeField& field) {
    return field.section == section && field.key == key;
  });
  return found == recipe_fields().end() ? nullptr : &*found;
}

std::string nearest_recipe_key(std::string_view section, std::string_view key) {
  std::vector<std::string> keys;
  for (const RecipeField& field : recipe_fields()) {
    if (field.key == key) return field.full_name();
    if (field.section == section) keys.push_back(field.key);
  }
  const std::string nearest = nearest_name(key, keys);
  if (!nearest.empty()) return std::string(section) + "." + nearest;
  const std::string here = name_here(key);
  return here.empty() ? "" : nearest_recipe_key(section, here);
}

std::string nearest_recipe_section(std::string_view section) {
  return nearest_name(section, recipe_sections());
}

}  // namespace edgewise::train
