// The attentions of language models that bring score rules of their own.
#include <edgewise/attention/special_cases.h>

#include "train/attention/builtin_kinds.h"

namespace edgewise::train {
namespace {

// The edges of attention.edges; empty without.
EdgeSourceFactory edges_of(const Recipe& recipe, int64_t max_length) {
  if (!recipe.attention.edges) return [](int64_t) { return EdgeSourcePtr(); };
  Recipe of = recipe;
  of.attention = {.kind = *recipe.attention.edges, .edges = {}};
  return attention_kind(of).make(of, max_length).edges;
}

std::string edges_recording_refusal(const Recipe& recipe) {
  return recipe.attention.edges ? "attention.edges makes edges on the host in every step; leave it out, or "
                                  "set train.cuda_graph = false"
                                : "";
}

// What the published models share between layers, the first one owns.
LayerAttention make_transformer_xl(const Recipe& recipe, int64_t max_length) {
  TransformerXlOptions options{
      .embed_dim = recipe.model.dim, .num_heads = recipe.model.heads, .memory = recipe.transformer_xl.memory};
  return {
      .decoder = [options, edges = edges_of(recipe, max_length)](int64_t n) mutable -> CausalAttentionPtr {
        options.source = edges(n);
        TransformerXlAttention layer(options);
        options.content_bias = layer->content_bias;
        options.position_bias = layer->position_bias;
        return layer.ptr();
      }};
}

LayerAttention make_adaptive_span(const Recipe& recipe, int64_t max_length) {
  const AdaptiveSpanRecipe& span = recipe.adaptive_span;
  AdaptiveSpanOptions options{
      .embed_dim = recipe.model.dim,
      .span = {.num_heads = recipe.model.heads, .limit = span.limit, .ramp = span.ramp}};
  options.memory = span.memory;
  options.span_weight = span.weight;
  return {
      .decoder = [options, edges = edges_of(recipe, max_length)](int64_t n) mutable -> CausalAttentionPtr {
        options.source = edges(n);
        AdaptiveSpanAttention layer(options);
        options.positions = layer->positions;
        return layer.ptr();
      }};
}

LayerAttention make_tree(const Recipe& recipe, int64_t max_length) {
  TreeAttentionOptions options{.embed_dim = recipe.model.dim,
                               .num_heads = recipe.model.heads,
                               .tree = {.tokens = recipe.data.length,
                                        .step = recipe.tree.step,
                                        .is_causal = true,
                                        .clip = recipe.tree.clip}};
  return {
      .decoder = [options, edges = edges_of(recipe, max_length)](int64_t n) mutable -> CausalAttentionPtr {
        options.source = edges(n);
        return TreeAttention(options).ptr();
      }};
}

}  // namespace

std::vector<AttentionKind> decoder_kinds() {
  return {{.name = "transformer_xl",
           .meaning = "every token before, with a memory of earlier batches (language models)",
           .sections = {"transformer_xl"},
           .make = make_transformer_xl,
           .needs_text = true,
           .takes_edges = true,
           .recording_refusal = edges_recording_refusal},
          {.name = "adaptive_span",
           .meaning = "heads learn how far they look back (language models)",
           .sections = {"adaptive_span"},
           .make = make_adaptive_span,
           .needs_text = true,
           .takes_edges = true},
          {.name = "tree",
           .meaning = "BP-Transformer's tree of spans (language models)",
           .sections = {"tree"},
           .make = make_tree,
           .needs_text = true,
           .takes_edges = true}};
}

}  // namespace edgewise::train
