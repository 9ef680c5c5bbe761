// The registry of attentions: what attention.kind of a recipe names. Everything that depends on the kind is
// asked here; its name is compared nowhere else.
//
// A program adds a kind of its own with register_attention(), before it reads a recipe; recipes can then name
// it and set its options, and it trains, resumes and evaluates like the others
// (examples/strided_pattern.cpp).
#pragma once

#include <edgewise/attention/attention_cost.h>
#include <edgewise/models/encoder.h>
#include <edgewise/models/language_model.h>
#include <edgewise/train/recipe.h>

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

namespace edgewise::train {

// What the layers of a model attend with: one of the three, or none for dense attention. Layers must be made
// in order, once: where they share parameters the first one owns them.
struct LayerAttention {
  EdgeSourceFactory edges = {};
  AttentionMethodFactory method = {};   // in place of edges
  CausalAttentionFactory decoder = {};  // a layer of a language model as a whole
  bool shared_qk = false;               // one projection for queries and keys of norm 1
  bool in_proj_bias = true;

  bool is_dense() const { return !edges && !method && !decoder; }
};

// One head over one sequence of n tokens.
struct HeadSize {
  double n = 0, d = 0;
  double density = 1;
  c10::Device device = at::kCPU;
};

struct AttentionKind {
  std::string name;
  std::string meaning;                     // one line
  std::vector<std::string> sections = {};  // of a recipe whose keys it reads, beside those that all read
  std::vector<OwnOption> options = {};     // keys of a section of its own, called like the kind
  // max_length: the longest sequence of the model.
  std::function<LayerAttention(const Recipe&, int64_t max_length)> make;

  // The rest may stay empty.

  // Why a model whose tokens may not see later ones cannot have it; "" = it can. Empty: it can.
  std::function<std::string(const Recipe&)> causal_refusal = {};
  bool needs_text = false;   // stands for language models only
  bool is_pattern = false;   // makes edges that nothing learns
  bool takes_edges = false;  // those of attention.edges, a pattern, in place of its own
  // Why passes cannot be recorded in CUDA graphs; "" = they can. Empty: every step waits for the device.
  std::function<std::string(const Recipe&)> recording_refusal = {};
  // What a head computes; empty: nobody has counted.
  std::function<Operations(const Recipe&, const HeadSize&)> cost = {};
  bool takes_squares = false;  // attention.unit may be 16
  bool over_graph = false;     // joins the edges of an input graph, and stands for graphs only
  // Of these: whether its edges may join graphs that lie side by side in a batch. Empty: they do not.
  std::function<bool(const Recipe&)> joins_graphs = {};
  // Takes tokens as a set with positions: computes the same where masked ones are left out of the batch.
  bool ignores_places = false;
  // Whether its densities count padding.
  std::function<bool(const Recipe&)> counts_padding = {};
  // What to call it in tables beside its name, such as a preset; and all its options in a line.
  std::function<std::string(const Recipe&)> variant = {};
  std::function<std::string(const Recipe&)> description = {};

  bool reads(const std::string& section) const;
};

// Throws when the name is taken, or an option's section is one of the recipe's own. Not while recipes are
// read.
void register_attention(AttentionKind kind);

const AttentionKind& attention_kind(const std::string& name);  // throws, naming all, when there is none
const AttentionKind& attention_kind(const Recipe& recipe);     // of recipe.attention.kind
std::vector<std::string> attention_names();                    // in the order of the help

// The three places of an encoder-decoder, and the recipe of one of them: attention.kind is what it has.
enum class DecoderPlace { kEncoder, kDecoder, kCross };
Recipe recipe_of_place(const Recipe& recipe, DecoderPlace place);

// Its name, and what it is called beside it: "sbm published".
std::string describe_attention(const Recipe& recipe);

// The value of an option of a kind of one's own: option<int64_t>(recipe, "strided.stride").
template <typename Value>
Value option(const Recipe& recipe, const std::string& full_name) {
  return std::get<Value>(recipe.own.at(full_name));
}

}  // namespace edgewise::train
