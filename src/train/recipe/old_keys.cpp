#include "train/recipe/old_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <c10/util/Exception.h>

#include "train/recipe/kind_names.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

struct Renamed {
  std::string_view before, now;
};
constexpr std::array<Renamed, 28> kRenamed = {{
    {"attention.window", "window.width"},
    {"attention.preset", "sbm.preset"},
    {"attention.clusters", "sbm.clusters"},
    {"attention.cluster_std", "sbm.cluster_std"},
    {"attention.law", "sbm.law"},
    {"attention.exploration", "sbm.exploration"},
    {"attention.estimator", "sbm.estimator"},
    {"attention.probe_rate", "sbm.probe_rate"},
    {"attention.probes_per_row", "sbm.probes_per_row"},
    {"attention.probe_unit", "sbm.probe_unit"},
    {"attention.density_penalty", "sbm.density_penalty"},
    {"attention.self_loops", "sbm.self_loops"},
    {"attention.count_padding", "sbm.count_padding"},
    {"attention.sampler", "sbm.sampler"},
    {"attention.features", "performer.features"},
    {"attention.redraw_every", "performer.redraw_every"},
    {"attention.projected_length", "linformer.projected_length"},
    {"attention.sharing", "linformer.sharing"},
    {"attention.landmarks", "nystromformer.landmarks"},
    {"attention.conv_kernel", "nystromformer.conv_kernel"},
    {"attention.rounds", "reformer.rounds"},
    {"attention.chunk", "reformer.chunk"},
    {"attention.span_limit", "adaptive_span.limit"},
    {"attention.span_ramp", "adaptive_span.ramp"},
    {"attention.span_weight", "adaptive_span.weight"},
    {"attention.tree_step", "tree.step"},
    {"attention.tree_clip", "tree.clip"},
    {"attention.memory", "transformer_xl.memory"},  // or adaptive_span's
}};

struct Gone {
  std::string_view key, only_value, instead;
};
constexpr std::string_view kInCpp = "A C++ program can still set it in the options of its module";
constexpr std::string_view kSquares =
    "In place of blocks, attention.unit = 16 chooses among groups of 16 tokens";
constexpr std::array<Gone, 19> kGone = {{
    {"data.keys", "0", "Keys are half as many as tokens"},
    {"model.norm", "true", kInCpp},
    {"model.classifier_hidden", "128", kInCpp},
    {"attention.shared_mlp", "", kInCpp},
    {"attention.exploration_in_eval", "", kInCpp},
    {"attention.gradient_clip", "", kInCpp},
    {"attention.present_form", "'softmax'", kInCpp},
    {"attention.pinv_iterations", "6", kInCpp},
    {"sac.credit_form", "'leave_one_out'", "Leave it out"},
    {"sac.destinations", "'all'", kSquares},
    {"sac.block_size", "64", kSquares},
    {"sac.duplicates", "false", kInCpp},
    {"sac.distance_buckets", "32", kInCpp},
    {"sac.max_distance", "128", kInCpp},
    {"sac.train_decoding", "'sample'", kInCpp},
    {"sac.detach_inputs", "true", kInCpp},
    {"sac.baseline_decay", "0.99", kInCpp},
    {"sac.normalize_rewards", "false", kInCpp},
    {"train.adam_eps", "1e-06", kInCpp},
}};

std::string section_of(std::string_view name) {
  return std::string(name.substr(0, name.find('.')));
}
std::string key_of(std::string_view name) {
  return std::string(name.substr(name.find('.') + 1));
}

}  // namespace

OldKey old_key(const std::string& section, const std::string& key, const std::string& kind) {
  const std::string name = section + "." + key;
  if (name == "model.head_dim") return {.section = section, .key = key, .is_gone = true, .is_head_dim = true};
  if (name == "train.snapshot_edges")
    return {.section = section, .key = key, .is_gone = true, .is_snapshot_switch = true};
  if (const auto gone = std::ranges::find(kGone, name, &Gone::key); gone != kGone.end())
    return {.section = section,
            .key = key,
            .is_gone = true,
            .only_value = std::string(gone->only_value),
            .instead = std::string(gone->instead)};
  // Keys that several kinds had together are now each kind's own, in a section called like it.
  const bool was_shared = name == "attention.mode" || name == "attention.memory";
  if (was_shared && find_recipe_field(kind, key)) return {.section = kind, .key = key, .was_renamed = true};
  if (name == "attention.mode") return {.section = "linear", .key = key, .was_renamed = true};
  if (name == "sac.alpha" && !reads_section(kind, "sac") && reads_section(kind, "random"))
    return {.section = "random", .key = key, .was_renamed = true};
  if (const auto renamed = std::ranges::find(kRenamed, name, &Renamed::before); renamed != kRenamed.end())
    return {.section = section_of(renamed->now), .key = key_of(renamed->now), .was_renamed = true};
  return {.section = section, .key = key};
}

void apply_snapshot_switch(Recipe& recipe, const std::string& where, const std::string& value) {
  TORCH_CHECK_VALUE(value == "true" || value == "false", where,
                    ": expected train.snapshot_edges, which train.snapshot_every replaces, to be true or "
                    "false; found ",
                    value);
  if (value == "true" && recipe.train.snapshot_every == 0)
    recipe.train.snapshot_every = recipe.train.eval_every;
}

void check_old_head_dim(const Recipe& recipe, const OldHeadDim& given) {
  if (given.where.empty() || given.value == "0") return;
  TORCH_CHECK_VALUE(given.value == std::to_string(recipe.model.head_dim()), given.where,
                    ": model.head_dim is gone: a head is model.dim / model.heads = ", recipe.model.head_dim(),
                    " wide; found ", given.value, ". Change dim or heads, and leave head_dim out");
}

}  // namespace edgewise::train
