// The published approximations of dense attention that the SBM paper compares with.
#include <edgewise/attention/linear_attention.h>
#include <edgewise/attention/linformer.h>
#include <edgewise/attention/nystromformer.h>
#include <edgewise/attention/performer.h>
#include <edgewise/attention/reformer.h>
#include <edgewise/edges/bucket_edges.h>

#include "train/attention/builtin_kinds.h"

namespace edgewise::train {
namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

bool as_printed(const std::string& mode) {
  return parse_method_mode(mode) == MethodMode::kPaper;
}

std::function<std::string(const Recipe&)> because(const char* reason) {
  return [reason](const Recipe&) { return reason; };
}

LayerAttention make_linear(const Recipe& recipe, int64_t) {
  return {.method = [mode = parse_method_mode(recipe.linear.mode)](int64_t) {
    return LinearAttention(mode).ptr();
  }};
}

LayerAttention make_performer(const Recipe& recipe, int64_t) {
  PerformerAttentionOptions options(recipe.model.head_dim(), parse_method_mode(recipe.performer.mode));
  options.features = recipe.performer.features;
  options.redraw_every = recipe.performer.redraw_every;
  return {.method = [options](int64_t) { return PerformerAttention(options).ptr(); }};
}

LayerAttention make_linformer(const Recipe& recipe, int64_t max_length) {
  LinformerAttentionOptions options(recipe.model.heads, max_length, parse_method_mode(recipe.linformer.mode));
  options.projected_length = recipe.linformer.projected_length;
  options.sharing = parse_projection_sharing(recipe.linformer.sharing);
  return {.method = [options, first = at::Tensor()](int64_t) mutable {
    LinformerAttention method(options, first);
    if (shares_layers(options)) first = method->key_projection;
    return method.ptr();
  }};
}

LayerAttention make_nystromformer(const Recipe& recipe, int64_t) {
  NystromAttentionOptions options(recipe.model.heads, parse_method_mode(recipe.nystromformer.mode));
  options.landmarks = recipe.nystromformer.landmarks;
  options.conv_kernel = recipe.nystromformer.conv_kernel;
  return {.method = [options](int64_t) { return NystromAttention(options).ptr(); }};
}

// As printed it is attention over edges.
LayerAttention make_reformer(const Recipe& recipe, int64_t) {
  LayerAttention result{.shared_qk = true, .in_proj_bias = as_printed(recipe.reformer.mode)};
  if (as_printed(recipe.reformer.mode)) {
    const BucketEdgesOptions options{.rounds = recipe.reformer.rounds, .chunk = recipe.reformer.chunk};
    result.edges = [options](int64_t) { return BucketEdges(options).ptr(); };
  } else {
    ReformerAttentionOptions options(recipe.model.heads, recipe.model.head_dim());
    options.rounds = recipe.reformer.rounds;
    options.chunk = recipe.reformer.chunk;
    result.method = [options](int64_t) { return ReformerAttention(options).ptr(); };
  }
  return result;
}

Operations reformer_cost(const Recipe& recipe, const HeadSize& size) {
  const double rounds = real(recipe.reformer.rounds), chunk = real(recipe.reformer.chunk);
  if (!as_printed(recipe.reformer.mode))
    return reformer_operations(size.n, size.d, rounds, chunk, real(recipe.model.heads));
  Operations result = bucket_operations(size.n, size.d, rounds, chunk);
  const Operations edges = edges_alone(recipe, size);
  result.insert(result.end(), edges.begin(), edges.end());
  return result;
}

}  // namespace

std::vector<AttentionKind> approximation_kinds() {
  return {
      {.name = "linear",
       .meaning = "linear attention",
       .sections = {"linear"},
       .make = make_linear,
       .causal_refusal = because("it is built here as one sum over all keys of the sequence"),
       .cost =
           [](const Recipe& recipe, const HeadSize& size) {
             return linear_operations(size.n, size.d, as_printed(recipe.linear.mode));
           },
       .variant = [](const Recipe& recipe) { return recipe.linear.mode; }},
      {.name = "reformer",
       .meaning = "hashed buckets of keys",
       .sections = {"reformer"},
       .make = make_reformer,
       .causal_refusal = because("its chunks are cut from the whole sequence in the order of its buckets"),
       .cost = reformer_cost,
       .variant = [](const Recipe& recipe) { return recipe.reformer.mode; }},
      {.name = "performer",
       .meaning = "random features of exp",
       .sections = {"performer"},
       .make = make_performer,
       .causal_refusal = because("it is built here as one sum over all keys of the sequence"),
       .cost =
           [](const Recipe& recipe, const HeadSize& size) {
             return performer_operations(size.n, size.d, real(recipe.performer.features));
           },
       .variant = [](const Recipe& recipe) { return recipe.performer.mode; }},
      {.name = "linformer",
       .meaning = "keys and values projected to a shorter sequence",
       .sections = {"linformer"},
       .make = make_linformer,
       .causal_refusal = because("it mixes all keys of the sequence into a few"),
       .cost =
           [](const Recipe& recipe, const HeadSize& size) {
             return linformer_operations(size.n, size.d, real(recipe.linformer.projected_length));
           },
       .variant = [](const Recipe& recipe) { return recipe.linformer.mode; }},
      {.name = "nystromformer",
       .meaning = "landmarks, and a pseudo-inverse between them",
       .sections = {"nystromformer"},
       .make = make_nystromformer,
       .causal_refusal = because("its landmarks are means over the whole sequence"),
       .cost =
           [](const Recipe& recipe, const HeadSize& size) {
             const NystromAttentionOptions defaults(recipe.model.heads);
             return nystrom_operations(size.n, size.d, real(recipe.nystromformer.landmarks),
                                       real(defaults.iterations), real(recipe.nystromformer.conv_kernel));
           },
       .variant = [](const Recipe& recipe) { return recipe.nystromformer.mode; }}};
}

}  // namespace edgewise::train
