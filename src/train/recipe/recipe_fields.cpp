#include "train/recipe/recipe_fields.h"

#include <algorithm>
#include <sstream>

#include <c10/util/Exception.h>

#include "train/recipe/kind_names.h"
#include "train/recipe/nearest_name.h"

namespace edgewise::train {

namespace {

template <typename Section, typename Value>
RecipeField field(Section Recipe::*section_member, Value Section::*member, const char* name,
                  const char* meaning, FieldRule rule = {}, const char* unset = "") {
  const std::string full = name;
  const size_t dot = full.find('.');
  return {full.substr(0, dot),
          full.substr(dot + 1),
          [=](Recipe& recipe) -> FieldSlot { return &(recipe.*section_member.*member); },
          meaning,
          std::move(rule),
          unset};
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
  const auto sbm = &Recipe::sbm;
  const auto graph = &Recipe::graph;
  const auto sac = &Recipe::sac;
  const auto indexer = &Recipe::indexer;
  const auto train = &Recipe::train;
  using D = DataRecipe;
  using M = ModelRecipe;
  using B = SbmRecipe;
  using G = GraphRecipe;
  using S = SacRecipe;
  using I = IndexerRecipe;
  using T = TrainRecipe;
  const FieldRule modes = one_of({"paper", "harness"});
  const char* const mode = "as its paper prints it, or as the SBM paper's comparison computes it";
  // clang-format off
  return {
      field(data, &D::name, "data.name", "the task", one_of(task_names())),
      field(data, &D::path, "data.path", "characters: a text file; all others with data of their own: the folder that 'edgewise data ... --out' filled. In a recipe relative to its folder"),
      field(data, &D::length, "data.length", "generated data, characters, next_tokens, masked_text: tokens per sequence", at_least(1)),
      field(data, &D::train_size, "data.train_size", "generated data: training sequences", at_least(1)),
      field(data, &D::validation_size, "data.validation_size", "generated data: validation sequences", at_least(1)),
      field(data, &D::test_size, "data.test_size", "generated data: test sequences", at_least(1)),
      field(data, &D::seed, "data.seed", "generated data: seed of the sequences", at_least(0)),
      field(data, &D::fixed_length, "data.fixed_length", "listops, text, retrieval: pad every batch to the full length, as published; else to its longest"),
      field(data, &D::mask_zero, "data.mask_zero", "image, pathfinder: black pixels are masked as padding, as published"),
      field(data, &D::drop_masked, "data.drop_masked", "with mask_zero: masked pixels are left out; same result from fewer tokens"),
      field(data, &D::symmetries, "data.symmetries", "image, pathfinder: training pictures also mirrored left to right, or mirrored and turned (square)", one_of({"none", "mirror", "square"})),
      field(data, &D::validation, "data.validation", "text: a split of its own, or the test set, as published; images: with the test set, training has the validation pictures too", one_of({"own", "test"})),
      field(data, &D::values, "data.values", "associative_recall: distinct values, the classes", at_least(1)),
      field(data, &D::pairs, "data.pairs", "multi_query_recall, needle: keys with a value", at_least(1)),
      field(data, &D::vocabulary, "data.vocabulary", "multi_query_recall, needle: distinct tokens, padding among them", at_least(8)),
      field(data, &D::split, "data.split", "graph: which of its splits; -1 = train.seed modulo their number, so that seeds of a sweep go through them", at_least(-1)),
      field(data, &D::normalise, "data.normalise", "graph: the features of a node sum to 1; they must not be negative"),
      field(data, &D::standardise, "data.standardise", "graph: every feature has mean 0 and deviation 1 over the training nodes; needs normalise = false"),
      field(data, &D::metric, "data.metric", "graph: what the best checkpoint is chosen by; accuracy is micro_f1 where nodes have many labels", one_of({"accuracy", "roc_auc", "micro_f1"})),
      field(data, &D::mask_rate, "data.mask_rate", "masked_text: share of the tokens that are to be guessed", {.low = 0, .high = 1, .low_is_allowed = false}),

      field(model, &M::layers, "model.layers", "Transformer blocks", at_least(1)),
      field(model, &M::dim, "model.dim", "width of a token's state", at_least(1)),
      field(model, &M::heads, "model.heads", "attention heads", at_least(1)),
      field(model, &M::hidden, "model.hidden", "width of a block's MLP", at_least(1)),
      field(model, &M::dropout, "model.dropout", "dropout on embeddings, attention output and MLP", below_one()),
      field(model, &M::attention_dropout, "model.attention_dropout", "dropout on attention weights", below_one()),
      field(model, &M::hidden_dropout, "model.hidden_dropout", "dropout inside the MLP", below_one(), "model.dropout"),
      field(model, &M::norm_first, "model.norm_first", "LayerNorm before attention and MLP, else behind their residuals (post-norm)"),
      field(model, &M::activation, "model.activation", "of the MLP", one_of({"gelu", "relu"})),
      field(model, &M::token_dropout, "model.token_dropout", "classifiers: part of the tokens that training reads as token 0, which is padding in texts and black in pictures", below_one()),
      field(model, &M::positions, "model.positions", "position embeddings; rotary ones turn queries and keys instead", one_of({"learned", "none", "sinusoidal", "rotary"})),
      field(model, &M::pooling, "model.pooling", "mean over valid tokens, or over padding too, as published", one_of({"mean", "mean_padded"})),
      field(model, &M::causal, "model.causal", "classifiers: a token attends to those up to itself only"),
      field(model, &M::embedding_std, "model.embedding_std", "standard deviation of the initial embeddings; translation: always dim^-0.5", above(0)),
      field(model, &M::max_length, "model.max_length", "longest sequence; 0 = the dataset's", at_least(0)),
      field(model, &M::tied, "model.tied", "characters, next_tokens, translation: the output layer is the token embedding; else one of its own"),

      field(&Recipe::attention, &AttentionRecipe::kind, "attention.kind", "who attends to whom, and how", one_of(attention_names())),

      field(&Recipe::attention, &AttentionRecipe::unit, "attention.unit", "full, window, random, sbm, sac, indexer: edges one by one (1), or in squares of 16 queries and keys (16)", at_least(1)),
      field(&Recipe::attention, &AttentionRecipe::edges, "attention.edges", "transformer_xl, adaptive_span, tree: a pattern whose edges they attend over, such as window or segments", {}, "their own"),
      field(&Recipe::attention, &AttentionRecipe::decoder, "attention.decoder", "translation: the kind of attention among the tokens of the decoder", {}, "attention.kind"),
      field(&Recipe::attention, &AttentionRecipe::cross, "attention.cross", "translation: the kind of attention from the decoder to the encoder", {}, "attention.kind"),

      field(&Recipe::window, &WindowRecipe::width, "window.width", "keys on each side of a query, in pictures rows and columns of pixels; in squares, what such a window touches", at_least(0)),
      field(&Recipe::window, &WindowRecipe::sinks, "window.sinks", "first tokens of the sequence that every query uses too; in squares, their groups", at_least(0)),

      field(&Recipe::segments, &SegmentsRecipe::length, "segments.length", "tokens of a segment, of which a query uses those up to its own", at_least(1)),
      field(&Recipe::segments, &SegmentsRecipe::memory, "segments.memory", "tokens before its segment that it uses too", at_least(0)),

      field(&Recipe::random, &RandomRecipe::alpha, "random.alpha", "keys per query; in squares, groups of 16 keys per group of 16 queries", at_least(1)),

      field(graph, &G::output_heads, "graph.output_heads", "heads of the last layer, whose mean are the logits", at_least(1)),
      field(graph, &G::skip, "graph.skip", "layers that add their input to their output: none, those between the first and the last, or all but the first", one_of({"none", "hidden", "all"})),
      field(graph, &G::learned_skip, "graph.learned_skip", "skips go through a layer of their own also where the sizes agree, as GAT's authors have it"),
      field(graph, &G::norm, "graph.norm", "LayerNorm before every layer but the first; a skip adds what it gives"),
      field(graph, &G::scores, "graph.scores", "of an edge: LeakyReLU of a sum of two numbers, or a product z_i M z_j", one_of({"additive", "dot"})),
      field(graph, &G::slope, "graph.slope", "of LeakyReLU in the scores, below 0", share()),
      field(graph, &G::drop_edges, "graph.drop_edges", "share of the input graph's edges that a training step leaves out (DropEdge)", below_one()),
      field(graph, &G::extra, "graph.extra", "all kinds but graph: edges a node and head beside the input graph's; graph+sbm expects so many, the others have at most so many", at_least(1)),
      field(graph, &G::hops, "graph.hops", "graph+sbm, graph+sac, graph+indexer: choose among nodes at most so many edges away; 0 = all", at_least(0)),

      field(sbm, &B::preset, "sbm.preset", "where the settings below come from: the paper as printed, its released code, or ours", one_of({"paper", "published", "edgewise"})),
      field(sbm, &B::clusters, "sbm.clusters", "clusters of the block model", at_least(1), "128; edgewise: 32"),
      field(sbm, &B::cluster_std, "sbm.cluster_std", "standard deviation of the initial clusters; 0 = sqrt(2 / (clusters * head_dim))", at_least(0), "0"),
      field(sbm, &B::initial_density, "sbm.initial_density", "about the density that a new layer has", {.low = 0, .high = 1, .low_is_allowed = false, .high_is_allowed = false}, "0.25"),
      field(sbm, &B::law, "sbm.law", "how probabilities become edges", one_of({"bernoulli", "poisson"}), "bernoulli; paper: poisson"),
      field(sbm, &B::exploration, "sbm.exploration", "added to every edge probability in training", share(), "0.01; edgewise: 0"),
      field(sbm, &B::estimator, "sbm.estimator", "how the choice of edges learns", one_of({"paper", "logit", "counterfactual"}), "paper: paper; published: logit; edgewise: counterfactual"),
      field(sbm, &B::probe_rate, "sbm.probe_rate", "counterfactual: share of absent edges or squares probed", share(), "0; edgewise: 0.02, in squares 0.05"),
      field(sbm, &B::probes_per_row, "sbm.probes_per_row", "counterfactual: at most so many probes per query (squares per group of queries) on average; 0 = no limit", at_least(0), "64; in squares 4"),
      field(sbm, &B::probe_unit, "sbm.probe_unit", "counterfactual, attention.unit = 1: probes one by one (1) or in squares of 16 queries and keys (16)", at_least(1), "1; edgewise: 16"),
      field(sbm, &B::density_penalty, "sbm.density_penalty", "expected density, or the sampled one", one_of({"exact", "sampled"}), "sampled; edgewise: exact"),
      field(sbm, &B::self_loops, "sbm.self_loops", "every token attends to itself; in squares, every group to itself", {}, "false"),
      field(sbm, &B::count_padding, "sbm.count_padding", "padding is sampled and counted, as published", {}, "false; published: true"),
      field(sbm, &B::sampler, "sbm.sampler", "the sampling algorithm", one_of({"auto", "direct", "fastrg", "squeezed", "thinning"}), "auto; characters, next_tokens, translation, model.causal: direct"),

      field(sac, &S::alpha, "sac.alpha", "edges per query", at_least(1), "4"),
      field(sac, &S::budget, "sac.budget", "edges per sequence instead; 0 = alpha decides", at_least(0), "0"),
      field(sac, &S::node_dim, "sac.node_dim", "width of the predictor", at_least(1), "32"),
      field(sac, &S::walk, "sac.walk", "every query a source (rooted), or source, destination, ... as published", one_of({"rooted", "pairs"}), "rooted"),
      field(sac, &S::scorer, "sac.scorer", "how a node is scored", one_of({"dot", "mlp"}), "dot"),
      field(sac, &S::sharing, "sac.sharing", "who shares edges", one_of({"all_layers", "per_layer", "per_head"}), "per_layer"),
      field(sac, &S::self_edges, "sac.self_edges", "whether a token may choose itself", one_of({"allowed", "never", "always"}), "allowed"),
      field(sac, &S::candidate_window, "sac.candidate_window", "choose only within so many tokens on each side", at_least(0), "none"),
      field(sac, &S::distance, "sac.distance", "distance encoding on destinations", one_of({"none", "bias", "vector"}), "bias"),
      field(sac, &S::distance_decay, "sac.distance_decay", "distance bias: at the start far ones are scored this times log(1 + distance) lower", at_least(0), "0"),
      field(sac, &S::test_decoding, "sac.test_decoding", "in evaluation", one_of({"sample", "greedy", "beam"}), "beam"),
      field(sac, &S::beam, "sac.beam", "width of the beam", at_least(1), "5"),
      field(sac, &S::estimator, "sac.estimator", "how the choice learns", one_of({"counterfactual", "paired", "reinforce", "distillation"}), "counterfactual; walk pairs: paired"),
      field(sac, &S::probes, "sac.probes", "counterfactual: keys per query, on average, that are asked about beside the chosen ones", at_least(0), "4"),
      field(sac, &S::least_slope, "sac.least_slope", "counterfactual: a key's chance of being chosen counts as changing by at least so much with its log-probability; 0 = as it does", at_least(0), "0.25"),
      field(sac, &S::policy_weight, "sac.policy_weight", "weight of the estimator beside the task loss; 0, with no entropy_weight = untrained", at_least(0), "1"),
      field(sac, &S::entropy_weight, "sac.entropy_weight", "weight of the entropy bonus", at_least(0), "0"),
      field(sac, &S::baseline, "sac.baseline", "reinforce: what a reward is compared with", one_of({"none", "running_mean", "learned"}), "running_mean"),
      field(sac, &S::distilled_rows, "sac.distilled_rows", "distillation: queries per sequence", at_least(1), "16"),

      field(indexer, &I::alpha, "indexer.alpha", "keys per query; in squares, groups of 16 keys per group of 16 queries", at_least(1), "4"),
      field(indexer, &I::heads, "indexer.heads", "heads that score a pair together", at_least(1), "4"),
      field(indexer, &I::dim, "indexer.dim", "width of such a head", at_least(1), "16"),
      field(indexer, &I::sharing, "indexer.sharing", "who shares edges", one_of({"per_layer", "per_head"}), "per_layer"),
      field(indexer, &I::temperature, "indexer.temperature", "scores are divided by it before the softmax", above(0), "1"),
      field(indexer, &I::test_decoding, "indexer.test_decoding", "in evaluation", one_of({"sample", "greedy"}), "greedy"),
      field(indexer, &I::estimator, "indexer.estimator", "how the choice learns", one_of({"counterfactual", "paired"}), "counterfactual"),
      field(indexer, &I::probes, "indexer.probes", "counterfactual: keys per query, on average, that are asked about beside the chosen ones", at_least(0), "4"),
      field(indexer, &I::least_slope, "indexer.least_slope", "counterfactual: a key's chance of being chosen counts as changing by at least so much with its log-probability; 0 = as it does", at_least(0), "0.25"),
      field(indexer, &I::policy_weight, "indexer.policy_weight", "weight of the estimator beside the task loss; 0 = untrained", at_least(0), "1"),
      field(indexer, &I::entropy_weight, "indexer.entropy_weight", "weight of the entropy bonus", at_least(0), "0"),

      field(&Recipe::linear, &LinearRecipe::mode, "linear.mode", mode, modes),

      field(&Recipe::performer, &PerformerRecipe::mode, "performer.mode", mode, modes),
      field(&Recipe::performer, &PerformerRecipe::features, "performer.features", "random features", at_least(1)),
      field(&Recipe::performer, &PerformerRecipe::redraw_every, "performer.redraw_every", "mode paper: training steps between new features; 0 = never", at_least(0)),

      field(&Recipe::linformer, &LinformerRecipe::mode, "linformer.mode", mode, modes),
      field(&Recipe::linformer, &LinformerRecipe::projected_length, "linformer.projected_length", "keys and values after projection", at_least(1)),
      field(&Recipe::linformer, &LinformerRecipe::sharing, "linformer.sharing", "mode paper: what shares a projection", one_of({"none", "heads", "key_value", "layers"})),

      field(&Recipe::nystromformer, &NystromformerRecipe::mode, "nystromformer.mode", mode, modes),
      field(&Recipe::nystromformer, &NystromformerRecipe::landmarks, "nystromformer.landmarks", "means that stand for runs of tokens", at_least(1)),
      field(&Recipe::nystromformer, &NystromformerRecipe::conv_kernel, "nystromformer.conv_kernel", "width of the convolution over values, odd; 0 = none", at_least(0)),

      field(&Recipe::reformer, &ReformerRecipe::mode, "reformer.mode", mode, modes),
      field(&Recipe::reformer, &ReformerRecipe::rounds, "reformer.rounds", "rounds of hashing", at_least(1)),
      field(&Recipe::reformer, &ReformerRecipe::chunk, "reformer.chunk", "tokens per chunk", at_least(1)),

      field(&Recipe::transformer_xl, &TransformerXlRecipe::memory, "transformer_xl.memory", "tokens of the batch before that are kept", at_least(0)),

      field(&Recipe::adaptive_span, &AdaptiveSpanRecipe::memory, "adaptive_span.memory", "tokens of the batch before that are kept", at_least(0)),
      field(&Recipe::adaptive_span, &AdaptiveSpanRecipe::limit, "adaptive_span.limit", "the longest span", at_least(1)),
      field(&Recipe::adaptive_span, &AdaptiveSpanRecipe::ramp, "adaptive_span.ramp", "tokens over which a span fades", at_least(1)),
      field(&Recipe::adaptive_span, &AdaptiveSpanRecipe::weight, "adaptive_span.weight", "weight of the mean span, in tokens, in the loss", at_least(0)),

      field(&Recipe::tree, &TreeRecipe::step, "tree.step", "nodes per level that a token uses", at_least(1)),
      field(&Recipe::tree, &TreeRecipe::clip, "tree.clip", "levels above share their edge types", at_least(0)),

      field(train, &T::weights, "train.weights", "weights to start from: a run folder (its best checkpoint) or a checkpoint; \"\" = new ones"),
      field(train, &T::steps, "train.steps", "optimiser steps", at_least(1)),
      field(train, &T::batch, "train.batch", "sequences per step; with train.batch_tokens, of an evaluation", at_least(1)),
      field(train, &T::batch_tokens, "train.batch_tokens", "translation: tokens per step in place of sequences, those of the longer side with their padding, in batches of similar length; 0 = train.batch decides", at_least(0)),
      field(train, &T::micro_batch, "train.micro_batch", "sequences at a time, gradients added up; 0 = batch", at_least(0)),
      field(train, &T::learning_rate, "train.learning_rate", "the peak", above(0)),
      field(train, &T::warmup_steps, "train.warmup_steps", "one_cycle, inverse_sqrt, cosine: steps up to the peak", at_least(0)),
      field(train, &T::initial_rate, "train.initial_rate", "inverse_sqrt, cosine: the learning rate from which the warm-up rises", at_least(0)),
      field(train, &T::schedule, "train.schedule", "course of the learning rate", one_of({"one_cycle", "constant", "inverse_sqrt", "cosine"})),
      field(train, &T::optimizer, "train.optimizer", "AdamW, or stochastic gradient descent with momentum", one_of({"adamw", "sgd"})),
      field(train, &T::momentum, "train.momentum", "sgd: share of the step before that goes into a step", below_one()),
      field(train, &T::nesterov, "train.nesterov", "sgd: the gradient is followed from where the momentum leads"),
      field(train, &T::weight_decay, "train.weight_decay", "AdamW's; of sgd the share of every parameter that its gradient gets", at_least(0)),
      field(train, &T::l2, "train.l2", "weight of half the sum of squares of all parameters in the loss: weight decay as Adam without the W has it", at_least(0)),
      field(train, &T::eps, "train.eps", "of AdamW, below the root", above(0)),
      field(train, &T::beta2, "train.beta2", "AdamW's second decay", below_one()),
      field(train, &T::label_smoothing, "train.label_smoothing", "share of every label that training gives to all classes alike", below_one()),
      field(train, &T::edge_rate, "train.edge_rate", "times the learning rate: the rate of the parameters that choose edges (clusters, predictors)", at_least(0)),
      field(train, &T::grad_clip, "train.grad_clip", "largest norm of the whole gradient; 0 = no limit", at_least(0)),
      field(train, &T::density_weight, "train.density_weight", "lambda: weight of the mean edge density in the loss", at_least(0)),
      field(train, &T::density_start, "train.density_start", "step before which the density weighs nothing: for tasks that learn nothing at first", at_least(0)),
      field(train, &T::density_warmup, "train.density_warmup", "steps from there on over which its weight rises from 0; 0 = whole at once", at_least(0)),
      field(train, &T::edge_samples, "train.edge_samples", "draws of the edges per sequence and step", at_least(1)),
      field(train, &T::average, "train.average", "decay of a moving average of the parameters, which is evaluated and kept in their place, e.g. 0.999; 0 = none", below_one()),
      field(train, &T::average_last, "train.average_last", "the mean of the weights at so many last validations is tested in place of the best ones; 0 = none", at_least(0)),
      field(train, &T::eval_every, "train.eval_every", "steps between validations", at_least(1)),
      field(train, &T::eval_batches, "train.eval_batches", "batches per validation; 0 = all", at_least(0)),
      field(train, &T::eval_draws, "train.eval_draws", "draws of edges averaged per evaluation", at_least(1)),
      field(train, &T::patience, "train.patience", "the run ends after so many validations in a row without a better one; 0 = never before train.steps", at_least(0)),
      field(train, &T::keep, "train.keep", "which validation's weights are kept: that with the best metric; or, as GAT's authors do, the last where metric and loss were both no worse than ever. Patience then ends where both are worse", one_of({"metric", "metric_and_loss"})),
      field(train, &T::checkpoint_every, "train.checkpoint_every", "steps between checkpoints", at_least(1)),
      field(train, &T::log_every, "train.log_every", "steps between lines of metrics", at_least(1)),
      field(train, &T::snapshot_every, "train.snapshot_every", "steps between snapshots of the graphs that heads choose, for 'edgewise explore'; 0 = none", at_least(0)),
      field(train, &T::snapshot_inputs, "train.snapshot_inputs", "what snapshots show: numbers of validation examples, the first is 0"),
      field(train, &T::seed, "train.seed", "seed of parameters, order, dropout and edges", at_least(0)),
      field(train, &T::device, "train.device", "where to run", one_of({"cpu", "cuda"})),
      field(train, &T::precision, "train.precision", "of matrix products and attention", one_of({"fp32", "bf16"})),
      field(train, &T::cuda_graph, "train.cuda_graph", "device cuda, attention dense, sbm or transformer_xl: passes of a shape seen before are replayed from CUDA graphs; faster for small models"),
      field(train, &T::threads, "train.threads", "CPU threads; 0 = as many as cores", at_least(0)),
  };
  // clang-format on
}

// Into the recipe with its default, where it is not set.
FieldSlot own_slot(Recipe& recipe, const std::string& name, const OptionValue& value) {
  OptionValue& own = recipe.own.try_emplace(name, value).first->second;
  return std::visit([](auto& held) -> FieldSlot { return &held; }, own);
}

void append_own_fields(std::vector<RecipeField>& fields, const std::string& section,
                       const std::vector<OwnOption>& options) {
  for (const OwnOption& own : options) {
    const std::string name = section + "." + own.key;
    fields.push_back({section,
                      own.key,
                      [name, value = own.value](Recipe& recipe) { return own_slot(recipe, name, value); },
                      own.meaning,
                      {.low = own.low, .names = own.allowed}});
  }
}

std::vector<RecipeField>& all_fields() {
  static std::vector<RecipeField> fields = [] {
    std::vector<RecipeField> all = make_fields();
    for (const std::string& task : task_names()) append_own_fields(all, task, task_options(task));
    return all;
  }();
  return fields;
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

const std::vector<RecipeField>& recipe_fields() {
  return all_fields();
}

bool is_of_everybody(std::string_view section) {
  return section == "data" || section == "model" || section == "attention" || section == "train";
}

void add_own_fields(const std::string& choice, const std::string& section,
                    const std::vector<OwnOption>& options) {
  std::vector<RecipeField>& fields = all_fields();
  TORCH_CHECK_VALUE(std::ranges::find(fields, section, &RecipeField::section) == fields.end(),
                    "expected a name for ", choice, " that no section of a recipe has; got '", section, "'");
  append_own_fields(fields, section, options);
  std::ranges::find(fields, choice, &RecipeField::full_name)->rule.names.push_back(section);
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
  std::vector<std::string> keys, all;
  for (const RecipeField& field : recipe_fields()) {
    if (field.section == section) keys.push_back(field.key);
    all.push_back(field.key);
  }
  const auto named = [](const std::string& name) {  // the first of all sections
    return std::ranges::find(recipe_fields(), name, &RecipeField::key)->full_name();
  };
  if (const std::string nearest = nearest_name(key, keys); !nearest.empty())
    return std::string(section) + "." + nearest;
  if (const std::string here = name_here(key); std::ranges::find(all, here) != all.end()) return named(here);
  const std::string anywhere = nearest_name(key, all);
  return anywhere.empty() ? "" : named(anywhere);
}

std::string nearest_recipe_section(std::string_view section) {
  return nearest_name(section, recipe_sections());
}

}  // namespace edgewise::train
