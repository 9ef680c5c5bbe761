// Recipe: everything that defines a run, one TOML file: [data] [model] [attention] [sac] [train]. Names are
// strings here, as in the file; every name and number has been checked once a recipe is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::train {

struct DataRecipe {
  std::string name = "repeated_tokens";
  std::string path;
  int64_t length = 64;
  int64_t train_size = 1'000'000;
  int64_t validation_size = 1024;
  int64_t test_size = 1024;
  int64_t seed = 0;
  bool fixed_length = false;
  bool mask_zero = false;
  bool drop_masked = false;
  std::string symmetries = "none";
  std::string validation = "own";
  int64_t keys = 0;
  int64_t values = 8;
  bool operator==(const DataRecipe&) const = default;
};

struct ModelRecipe {
  int64_t layers = 2;
  int64_t dim = 64;
  int64_t heads = 2;
  int64_t head_dim = 0;  // 0 in a file = dim / heads; never 0 once loaded
  int64_t hidden = 128;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double token_dropout = 0;
  std::string positions = "learned";
  std::string pooling = "mean";
  double embedding_std = 0.02;
  bool norm = true;
  int64_t max_length = 0;  // 0 = the dataset's
  int64_t classifier_hidden = 128;
  bool tied = true;
  bool operator==(const ModelRecipe&) const = default;
};

struct AttentionRecipe {
  std::string kind = "dense";
  int64_t window = 64;
  std::string preset = "edgewise";
  // Overrides of the preset: SbmEdgesOptions, field by field.
  std::optional<int64_t> clusters;
  std::optional<bool> shared_mlp;
  std::optional<double> cluster_std;
  std::optional<std::string> law;
  std::optional<double> exploration;
  std::optional<bool> exploration_in_eval;
  std::optional<std::string> estimator;
  std::optional<std::string> present_form;
  std::optional<double> gradient_clip;
  std::optional<double> probe_rate;
  std::optional<int64_t> probes_per_row;
  std::optional<int64_t> probe_unit;
  std::optional<std::string> density_penalty;
  std::optional<bool> self_loops;
  std::optional<bool> count_padding;
  std::optional<std::string> sampler;
  // The attentions that are compared with.
  std::string mode = "paper";
  int64_t features = 256;
  int64_t redraw_every = 1000;
  int64_t projected_length = 256;
  std::string sharing = "heads";
  int64_t landmarks = 256;
  int64_t conv_kernel = 35;
  int64_t pinv_iterations = 6;
  int64_t rounds = 2;
  int64_t chunk = 64;
  // Of language models.
  int64_t memory = 512;
  int64_t span_limit = 512;
  int64_t span_ramp = 32;
  double span_weight = 2e-6;
  int64_t tree_step = 16;
  int64_t tree_clip = 4;
  bool operator==(const AttentionRecipe&) const = default;
};

// SacEdgesOptions, field by field; what is unset keeps its default there.
struct SacRecipe {
  std::optional<int64_t> alpha;
  std::optional<int64_t> budget;
  std::optional<int64_t> node_dim;
  std::optional<std::string> walk;
  std::optional<std::string> scorer;
  std::optional<std::string> destinations;
  std::optional<int64_t> block_size;
  std::optional<std::string> sharing;
  std::optional<std::string> self_edges;
  std::optional<bool> duplicates;
  std::optional<int64_t> candidate_window;
  std::optional<std::string> distance;
  std::optional<int64_t> distance_buckets;
  std::optional<int64_t> max_distance;
  std::optional<double> distance_decay;
  std::optional<std::string> train_decoding;
  std::optional<std::string> test_decoding;
  std::optional<int64_t> beam;
  std::optional<bool> detach_inputs;
  std::optional<std::string> estimator;
  std::optional<std::string> credit_form;
  std::optional<double> policy_weight;
  std::optional<double> entropy_weight;
  std::optional<std::string> baseline;
  std::optional<double> baseline_decay;
  std::optional<bool> normalize_rewards;
  std::optional<int64_t> distilled_rows;
  bool operator==(const SacRecipe&) const = default;
};

struct TrainRecipe {
  std::string weights;  // of another run, to start from: its folder, or a checkpoint; "" = new ones
  int64_t steps = 1000;
  int64_t batch = 32;
  int64_t micro_batch = 0;  // 0 in a file = batch; never 0 once loaded
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  std::string schedule = "one_cycle";
  double weight_decay = 0;
  double adam_eps = 1e-6;
  double beta2 = 0.999;
  double edge_rate = 1;
  double grad_clip = 0;
  double density_weight = 0;
  int64_t density_start = 0;
  int64_t density_warmup = 0;
  int64_t edge_samples = 1;
  double average = 0;
  int64_t eval_every = 100;
  int64_t eval_batches = 0;
  int64_t eval_draws = 1;
  int64_t patience = 0;
  int64_t checkpoint_every = 100;
  int64_t log_every = 10;
  bool snapshot_edges = false;
  int64_t seed = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  bool cuda_graph = false;
  int64_t threads = 0;
  bool operator==(const TrainRecipe&) const = default;
};

struct Recipe {
  DataRecipe data;
  ModelRecipe model;
  AttentionRecipe attention;
  SacRecipe sac;
  TrainRecipe train;
  bool operator==(const Recipe&) const = default;
};

// Reads a recipe. Each override is "section.key=value", the value as in TOML (a bare word is a string);
// overrides beat the file, and later ones earlier ones. Throws on anything unknown, of the wrong type, out of
// range or inconsistent, naming the place, what was expected and what was found.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {});
// The same from text; `name` stands for the file in messages.
Recipe parse_recipe(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides = {});

// The whole recipe as TOML, every key but unset overrides of the preset and defaults that only other kinds of
// attention read. Loads back to an equal recipe.
std::string to_toml(const Recipe& recipe);

// Every key with its default, its meaning and what it may be.
std::string recipe_help();

}  // namespace edgewise::train
