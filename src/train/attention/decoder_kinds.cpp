// The attentions of language models that bring score rules of their own.
#include <edgewise/attention/special_cases.h>

#include "train/attention/builtin_kinds.h"

namespace edgewise::train {
namespace {

// What the published models share between layers, the first one owns.
LayerAttention make_transformer_xl(const Recipe& recipe, int64_t) {
  TransformerXlOptions options{
      .embed_dim = recipe.model.dim, .num_heads = recipe.model.heads, .memory = recipe.transformer_xl.memory};
  return {.decoder = [options](int64_t) mutable -> CausalAttentionPtr {
    TransformerXlAttention layer(options);
    options.content_bias = layer->content_bias;
    options.position_bias = layer->position_bias;
    return layer.ptr();
  }};
}

LayerAttention make_adaptive_span(const Recipe& recipe, int64_t) {
  const AdaptiveSpanRecipe& span = recipe.adaptive_span;
  AdaptiveSpanOptions options{
      .embed_dim = recipe.model.dim,
      .span = {.num_heads = recipe.model.heads, .limit = span.limit, .ramp = span.ramp}};
  options.memory = span.memory;
  options.span_weight = span.weight;
  return {.decoder = [options](int64_t) mutable -> CausalAttentionPtr {
    AdaptiveSpanAttention layer(options);
    options.positions = layer->positions;
    return layer.ptr();
  }};
}

LayerAttention make_tree(const Recipe& recipe, int64_t) {
  const TreeAttentionOptions options{.embed_dim = recipe.model.dim,
                                     .num_heads = recipe.model.heads,
                                     .tree = {.tokens = recipe.data.length,
                                              .step = recipe.tree.step,
                                              .is_causal = true,
                                              .clip = recipe.tree.clip}};
  return {.decoder = [options](int64_t) -> CausalAttentionPtr { return TreeAttention(options).ptr(); }};
}

}  // namespace

std::vector<AttentionKind> decoder_kinds() {
  return {{.name = "transformer_xl",
           .meaning = "every token before, with a memory of earlier batches (language models)",
           .sections = {"transformer_xl"},
           .make = make_transformer_xl,
           .needs_text = true,
           .recording_refusal = [](const Recipe&) { return std::string(); }},
          {.name = "adaptive_span",
           .meaning = "heads learn how far they look back (language models)",
           .sections = {"adaptive_span"},
           .make = make_adaptive_span,
           .needs_text = true},
          {.name = "tree",
           .meaning = "BP-Transformer's tree of spans (language models)",
           .sections = {"tree"},
           .make = make_tree,
           .needs_text = true}};
}

}  // namespace edgewise::train
