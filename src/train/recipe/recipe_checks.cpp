#include "train/recipe/recipe_checks.h"

#include <c10/util/Exception.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/task_kinds.h>

#include "train/recipe/kind_names.h"
#include "train/recipe/recipe_fields.h"
#include "train/snapshot/snapshot_recipe.h"

namespace edgewise::train {
namespace {

// "dense, full, window or sbm": kinds for which `wanted` holds.
template <typename Wanted>
std::string kinds_where(const Wanted& wanted) {
  std::string text, last;
  for (const std::string& name : attention_names()) {
    if (!wanted(attention_kind(name))) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = name;
  }
  return text.empty() ? last : text + " or " + last;
}

bool counts_padding(const Recipe& recipe) {
  return attention_kind(recipe).reads("sbm") && sbm_options(recipe).count_padding;
}

// Attention for texts looks at tokens up to the query's only; some kinds have no such form, some no other.
// Only what takes tokens as a set with positions computes the same without those that are masked.
void check_drop_masked(const Recipe& recipe, const std::string& name) {
  if (!recipe.data.drop_masked) return;
  const AttentionKind& kind = attention_kind(recipe);
  TORCH_CHECK_VALUE(
      recipe.data.mask_zero && !recipe.data.fixed_length, name,
      ": expected data.drop_masked with data.mask_zero = true and data.fixed_length = false; found ",
      recipe.data.mask_zero ? "fixed_length = true" : "mask_zero = false");
  TORCH_CHECK_VALUE(kind.ignores_places, name, ": expected data.drop_masked with attention.kind ",
                    kinds_where([](const AttentionKind& other) { return other.ignores_places; }),
                    ", which do not look at places in the batch; found ", kind.name);
  TORCH_CHECK_VALUE(
      recipe.attention.unit == 1, name,
      ": expected attention.unit = 1 with data.drop_masked: groups of 16 tokens are cut by places; found ",
      recipe.attention.unit);
  TORCH_CHECK_VALUE(!counts_padding(recipe), name,
                    ": expected sbm.count_padding = false with data.drop_masked: what is left out cannot be "
                    "counted; found it true (the default of the preset published)");
}

void check_graph_attention(const Recipe& recipe, const std::string& name) {
  TORCH_CHECK_VALUE(
      recipe.train.precision == "fp32", name,
      ": expected train.precision = fp32 with a graph, whose additive scores and sparse features "
      "have no kernels in half precision; found ",
      recipe.train.precision);
  TORCH_CHECK_VALUE(
      recipe.train.density_weight == 0, name,
      ": expected train.density_weight = 0 with a graph: graph.extra says how many edges a node has "
      "beside it; found ",
      recipe.train.density_weight);
  const AttentionKind& kind = attention_kind(recipe);
  TORCH_CHECK_VALUE(
      recipe.graph.hops == 0 || (recipe.graph.hops >= 2 && !kind.is_pattern), name,
      ": expected graph.hops of at least 2 (nodes one edge apart are joined already), or 0 for all "
      "nodes, and with edges that are learned; found ",
      recipe.graph.hops, " with ", kind.name);
}

void check_attention(const Recipe& recipe, const std::string& name) {
  const AttentionKind& kind = attention_kind(recipe);
  const bool is_causal = task_kind(recipe).is_causal, is_graph = task_kind(recipe).is_graph;
  const bool keeps_order = is_causal || recipe.model.causal;
  TORCH_CHECK_VALUE(is_graph == kind.over_graph, name, ": expected attention.kind ",
                    kinds_where([&](const AttentionKind& other) { return other.over_graph == is_graph; }),
                    " with data.name = ", recipe.data.name, "; found ", kind.name,
                    is_graph ? ", which does not join the edges of an input graph"
                             : ", which is for the edges of an input graph");
  TORCH_CHECK_VALUE(!is_graph || recipe.attention.unit == 1, name,
                    ": expected attention.unit = 1 with a graph: squares are groups of 16 neighbouring "
                    "numbers, and the numbers of nodes are arbitrary; found ",
                    recipe.attention.unit);
  if (is_graph) check_graph_attention(recipe, name);
  TORCH_CHECK_VALUE(is_causal || !kind.needs_text, name, ": expected attention.kind = ", kind.name,
                    " with data.name = characters, as it stands here for a language model; found it with ",
                    recipe.data.name);
  TORCH_CHECK_VALUE(
      recipe.attention.unit == 1 || recipe.attention.unit == 16, name,
      ": expected attention.unit = 1 (edges one by one) or 16 (squares of 16 x 16 pairs); found ",
      recipe.attention.unit);
  TORCH_CHECK_VALUE(recipe.attention.unit == 1 || kind.takes_squares, name,
                    ": expected attention.unit = 16 with attention.kind ",
                    kinds_where([](const AttentionKind& other) { return other.takes_squares; }),
                    "; found it with ", kind.name);
  TORCH_CHECK_VALUE(recipe.attention.unit == 1 || !counts_padding(recipe), name,
                    ": expected sbm.count_padding = false with attention.unit = 16, since padding is counted "
                    "pair by pair; found it true (the default of the preset published)");
  const std::string reason = keeps_order && kind.causal_refusal ? kind.causal_refusal(recipe) : "";
  TORCH_CHECK_VALUE(
      reason.empty(), name, ": ",
      is_causal ? "a language model predicts the next character" : "with model.causal = true a token",
      is_causal ? " and may not see it" : " may not see those after it", ", but attention.kind = ", kind.name,
      " has no causal form here: ", reason, ". Use ", kinds_where([&](const AttentionKind& other) {
        return !other.causal_refusal || other.causal_refusal(recipe).empty();
      }));
  if (!recipe.attention.edges) return;
  TORCH_CHECK_VALUE(kind.takes_edges, name, ": expected attention.edges with attention.kind ",
                    kinds_where([](const AttentionKind& other) { return other.takes_edges; }),
                    ", which have scores of their own for the edges of another; found it with ", kind.name);
  const auto can_be_taken = [](const AttentionKind& other) { return other.is_pattern && !other.over_graph; };
  TORCH_CHECK_VALUE(can_be_taken(attention_kind(*recipe.attention.edges)), name,
                    ": expected attention.edges to be ", kinds_where(can_be_taken),
                    ", whose edges nothing learns; found ", *recipe.attention.edges);
}

// Attention that a decoder cannot have, among its tokens or across, is refused when the recipe is read.
void check_decoder(const Recipe& recipe, const std::string& name) {
  const AttentionRecipe& attention = recipe.attention;
  const bool decodes = task_kind(recipe).has_decoder;
  TORCH_CHECK_VALUE(decodes || (!attention.decoder && !attention.cross), name,
                    ": expected attention.decoder and attention.cross with data.name = translation; found ",
                    attention.decoder ? "attention.decoder" : "attention.cross", " with ", recipe.data.name);
  const TrainRecipe& train = recipe.train;
  TORCH_CHECK_VALUE(
      train.batch_tokens == 0 || train.micro_batch == train.batch, name,
      ": expected train.micro_batch = 0 with train.batch_tokens, whose batches are passes; found ",
      train.micro_batch);
  if (!decodes) return;
  TORCH_CHECK_VALUE(!counts_padding(recipe), name, ": expected sbm.count_padding = false with ",
                    recipe.data.name, ", whose layers have different pairs to count; found true");
  for (const DecoderPlace place : {DecoderPlace::kDecoder, DecoderPlace::kCross}) {
    const Recipe of = recipe_of_place(recipe, place);
    const AttentionKind& kind = attention_kind(of);
    const bool is_cross = place == DecoderPlace::kCross;
    const std::string key = is_cross ? "attention.cross" : "attention.decoder";
    TORCH_CHECK_VALUE(!kind.needs_text, name, ": expected ", key, " to choose edges, or dense; found ",
                      kind.name, ", which stands for language models");
    TORCH_CHECK_VALUE(!kind.over_graph, name, ": expected ", key, " to choose edges, or dense; found ",
                      kind.name, ", which is for the edges of an input graph");
    std::string reason = !is_cross && kind.causal_refusal ? kind.causal_refusal(of) : "";
    TORCH_CHECK_VALUE(!counts_padding(of), name, ": expected sbm.count_padding = false of ", key,
                      "; found true");
    if (reason.empty() && kind.reads("sac") && of.sac.budget.value_or(0) > 0)
      reason =
          "a budget is shared by all queries, so every token would tell how many follow: set sac.budget = 0";
    const LayerAttention made = kind.make(of, std::max<int64_t>(recipe.model.max_length, 64));
    if (made.method) reason = "it sees a whole sequence at once and chooses no edges";
    if (made.edges && reason.empty()) {
      const EdgeSourcePtr source = made.edges(0);
      reason = is_cross ? source->cross_refusal() : source->causal_refusal();
    }
    TORCH_CHECK_VALUE(reason.empty(), name, ": ", key, " cannot be ", kind.name, ": ", reason, ". Set ", key,
                      " = dense, or another kind");
  }
  TORCH_CHECK_VALUE(
      train.snapshot_every == 0, name, ": expected train.snapshot_every = 0 with ", recipe.data.name,
      ", whose graphs between two sentences the explorer does not draw; found ", train.snapshot_every);
  TORCH_CHECK_VALUE(recipe.model.token_dropout == 0, name, ": expected model.token_dropout = 0 with ",
                    recipe.data.name, "; found ", recipe.model.token_dropout);
}

// "image or pathfinder": tasks that read a key of [data].
std::string tasks_that_read(const std::string& key) {
  std::string text;
  for (const std::string& name : task_names())
    if (task_kind(name).reads(key)) text += (text.empty() ? "" : " or ") + name;
  return text;
}

void check_data_keys(const Recipe& recipe, const std::string& name) {
  const DataRecipe &data = recipe.data, defaults;
  const auto check = [&](bool is_set, const std::string& key, const std::string& shown) {
    TORCH_CHECK_VALUE(!is_set || task_kind(recipe).reads(key), name, ": expected data.", shown, " with ",
                      tasks_that_read(key), " only; found it with ", data.name);
  };
  check(data.split != defaults.split, "split", "split");
  check(data.normalise != defaults.normalise, "normalise", "normalise = false");
  check(data.standardise, "standardise", "standardise");
  check(data.metric != defaults.metric, "metric", "metric = " + data.metric);
  check(data.mask_zero != defaults.mask_zero, "mask_zero", "mask_zero");
  check(data.symmetries != defaults.symmetries, "symmetries", "symmetries");
  check(data.validation != defaults.validation, "validation", "validation = " + data.validation);
}

// Who shortens a run hears at once of everything that is to be lowered too.
void check_schedule(const TrainRecipe& train, const std::string& name) {
  std::string wrong, cure;
  const auto add = [&](const std::string& what, const std::string& key) {
    wrong += (wrong.empty() ? "" : ", and ") + what;
    cure += " --set train." + key + "=0";
  };
  if (train.warmup_steps > train.steps)
    add("train.warmup_steps to be at most train.steps; found " + std::to_string(train.warmup_steps) +
            " and " + std::to_string(train.steps),
        "warmup_steps");
  if (train.density_weight != 0 && train.density_start >= train.steps)
    add("train.density_start below train.steps, or the penalty would never act; found " +
            std::to_string(train.density_start) + " and " + std::to_string(train.steps),
        "density_start");
  TORCH_CHECK_VALUE(wrong.empty(), name, ": expected ", wrong, "; for a short run:", cure);
}

}  // namespace

void resolve_recipe(Recipe& recipe, const std::string& name) {
  const ModelRecipe& model = recipe.model;
  TrainRecipe& train = recipe.train;
  TORCH_CHECK_VALUE(model.positions != "sinusoidal" || (model.dim % 2 == 0 && model.dim >= 4), name,
                    ": expected an even model.dim of at least 4 with sinusoidal positions; found ",
                    model.dim);
  TORCH_CHECK_VALUE(model.dim % model.heads == 0, name, ": expected model.heads to divide model.dim; found ",
                    model.heads, " and ", model.dim, "; change one of them");
  TORCH_CHECK_VALUE(model.positions != "rotary" || model.head_dim() % 2 == 0, name,
                    ": expected heads of an even width with rotary positions; found ", model.head_dim());
  // The options of an attention or a task of one's own have their values from here on.
  for (const RecipeField& field : recipe_fields())
    if (reads_section(recipe, field.section)) field.slot(recipe);
  // A smaller batch than the micro-batch is one micro-batch: --set train.batch=8 works on any recipe.
  if (train.micro_batch == 0 || train.micro_batch > train.batch) train.micro_batch = train.batch;
  TORCH_CHECK_VALUE(train.batch % train.micro_batch == 0, name,
                    ": expected train.micro_batch to divide train.batch; found ", train.micro_batch, " and ",
                    train.batch);
  const int64_t kernel = recipe.nystromformer.conv_kernel;
  TORCH_CHECK_VALUE(kernel == 0 || kernel % 2 == 1, name,
                    ": expected nystromformer.conv_kernel to be odd, or 0 for none; found ", kernel);
  check_schedule(train, name);
  if (train.snapshot_every > 0) parse_snapshot_inputs(train.snapshot_inputs);
  const TaskKind& task = task_kind(recipe);
  TORCH_CHECK_VALUE(!task.is_causal || model.token_dropout == 0, name,
                    ": expected model.token_dropout = 0 with ", task.name,
                    ", whose model predicts them all; found ", model.token_dropout);
  check_attention(recipe, name);
  check_decoder(recipe, name);
  TORCH_CHECK_VALUE(task.path.empty() || !recipe.data.path.empty(), name, ": expected data.path, ",
                    task.path);
  check_data_keys(recipe, name);
  check_drop_masked(recipe, name);
  TORCH_CHECK_VALUE(!task.reads("length") || model.max_length == 0 || model.max_length >= recipe.data.length,
                    name, ": expected model.max_length to be at least data.length; found ", model.max_length,
                    " and ", recipe.data.length, "; model.max_length = 0 takes the dataset's");
}

}  // namespace edgewise::train
