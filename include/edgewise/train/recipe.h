// Recipe: everything that defines a run, one TOML file: [data] [model] [attention] [train], and a section for
// the options of the kind of attention, such as [sbm]. Names are strings here, as in the file; every name and
// number has been checked once a recipe is loaded.
#pragma once

#include <edgewise/edges/pixel_grid.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace edgewise::train {

struct DataRecipe {
  std::string name = "repeated_tokens";  // of a task in the registry, <edgewise/train/task_kinds.h>
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
  int64_t values = 8;
  int64_t pairs = 64;
  int64_t vocabulary = 8192;
  double mask_rate = 0.15;
  int64_t split = 0;
  bool normalise = true;
  bool standardise = false;
  std::string metric = "accuracy";
  bool operator==(const DataRecipe&) const = default;
};

struct ModelRecipe {
  int64_t layers = 2;
  int64_t dim = 64;
  int64_t heads = 2;
  int64_t hidden = 128;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double token_dropout = 0;
  std::optional<double> hidden_dropout;
  bool norm_first = true;
  std::string activation = "gelu";
  std::string positions = "learned";
  std::string pooling = "mean";
  bool causal = false;
  double embedding_std = 0.02;
  int64_t max_length = 0;  // 0 = the dataset's
  bool tied = true;
  bool operator==(const ModelRecipe&) const = default;

  int64_t head_dim() const { return dim / heads; }
};

struct AttentionRecipe {
  std::string kind = "dense";        // its name in the registry, <edgewise/train/attention_kinds.h>
  int64_t unit = 1;                  // edges one by one, or 16: in squares of 16 x 16 pairs
  std::optional<std::string> edges;  // a kind whose edges it takes (AttentionKind::takes_edges)
  // Of tasks with a decoder: kinds in place of `kind` among its tokens, and across to the encoder.
  std::optional<std::string> decoder = {}, cross = {};
  bool operator==(const AttentionRecipe&) const = default;
};

// The sections below hold the options of the kinds of attention that read them.

struct WindowRecipe {
  int64_t width = 64;
  int64_t sinks = 0;
  bool operator==(const WindowRecipe&) const = default;
};

struct SegmentsRecipe {
  int64_t length = 64;
  int64_t memory = 64;
  bool operator==(const SegmentsRecipe&) const = default;
};

struct RandomRecipe {
  int64_t alpha = 4;
  bool operator==(const RandomRecipe&) const = default;
};

// Layers over the edges of an input graph, and what joins these.
struct GraphRecipe {
  int64_t output_heads = 1;
  std::string skip = "none";
  bool learned_skip = false;
  bool norm = false;
  std::string scores = "additive";
  double slope = 0.2;
  double drop_edges = 0;
  int64_t extra = 4;
  int64_t hops = 0;
  bool operator==(const GraphRecipe&) const = default;
};

// SbmEdgesOptions: a preset, and what is set beside it.
struct SbmRecipe {
  std::string preset = "edgewise";
  std::optional<int64_t> clusters;
  std::optional<double> cluster_std;
  std::optional<double> initial_density;
  std::optional<std::string> law;
  std::optional<double> exploration;
  std::optional<std::string> estimator;
  std::optional<double> probe_rate;
  std::optional<int64_t> probes_per_row;
  std::optional<int64_t> probe_unit;
  std::optional<std::string> density_penalty;
  std::optional<bool> self_loops;
  std::optional<bool> count_padding;
  std::optional<std::string> sampler;
  bool operator==(const SbmRecipe&) const = default;
};

// SacEdgesOptions, field by field; what is unset keeps its default there.
struct SacRecipe {
  std::optional<int64_t> alpha;
  std::optional<int64_t> budget;
  std::optional<int64_t> node_dim;
  std::optional<std::string> walk;
  std::optional<std::string> scorer;
  std::optional<std::string> sharing;
  std::optional<std::string> self_edges;
  std::optional<int64_t> candidate_window;
  std::optional<std::string> distance;
  std::optional<double> distance_decay;
  std::optional<std::string> test_decoding;
  std::optional<int64_t> beam;
  std::optional<std::string> estimator;
  std::optional<double> probes, least_slope;
  std::optional<double> policy_weight;
  std::optional<double> entropy_weight;
  std::optional<std::string> baseline;
  std::optional<int64_t> distilled_rows;
  bool operator==(const SacRecipe&) const = default;
};

// IndexerEdgesOptions, field by field.
struct IndexerRecipe {
  std::optional<int64_t> alpha;
  std::optional<int64_t> heads;
  std::optional<int64_t> dim;
  std::optional<std::string> sharing;
  std::optional<double> temperature;
  std::optional<std::string> test_decoding;
  std::optional<std::string> estimator;
  std::optional<double> probes, least_slope;
  std::optional<double> policy_weight;
  std::optional<double> entropy_weight;
  bool operator==(const IndexerRecipe&) const = default;
};

// `mode` of the approximations: as its paper prints it, or as the SBM paper's comparison computes it.
struct LinearRecipe {
  std::string mode = "paper";
  bool operator==(const LinearRecipe&) const = default;
};
struct PerformerRecipe {
  std::string mode = "paper";
  int64_t features = 256;
  int64_t redraw_every = 1000;
  bool operator==(const PerformerRecipe&) const = default;
};
struct LinformerRecipe {
  std::string mode = "paper";
  int64_t projected_length = 256;
  std::string sharing = "heads";
  bool operator==(const LinformerRecipe&) const = default;
};
struct NystromformerRecipe {
  std::string mode = "paper";
  int64_t landmarks = 256;
  int64_t conv_kernel = 35;
  bool operator==(const NystromformerRecipe&) const = default;
};
struct ReformerRecipe {
  std::string mode = "paper";
  int64_t rounds = 2;
  int64_t chunk = 64;
  bool operator==(const ReformerRecipe&) const = default;
};

struct TransformerXlRecipe {
  int64_t memory = 512;
  bool operator==(const TransformerXlRecipe&) const = default;
};
struct AdaptiveSpanRecipe {
  int64_t memory = 512;
  int64_t limit = 512;
  int64_t ramp = 32;
  double weight = 2e-6;
  bool operator==(const AdaptiveSpanRecipe&) const = default;
};
struct TreeRecipe {
  int64_t step = 16;
  int64_t clip = 4;
  bool operator==(const TreeRecipe&) const = default;
};

struct TrainRecipe {
  std::string weights;  // of another run, to start from: its folder, or a checkpoint; "" = new ones
  int64_t steps = 1000;
  int64_t batch = 32;
  int64_t batch_tokens = 0;
  int64_t micro_batch = 0;  // 0 in a file = batch; never 0 once loaded
  double learning_rate = 1e-3;
  double initial_rate = 0;
  int64_t warmup_steps = 0;
  std::string schedule = "one_cycle";
  std::string optimizer = "adamw";
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double l2 = 0;
  double eps = 1e-6;
  double beta2 = 0.999;
  double label_smoothing = 0;
  double edge_rate = 1;
  double grad_clip = 0;
  double density_weight = 0;
  int64_t density_start = 0;
  int64_t density_warmup = 0;
  int64_t edge_samples = 1;
  double average = 0;
  int64_t average_last = 0;
  int64_t eval_every = 100;
  int64_t eval_batches = 0;
  int64_t eval_draws = 1;
  int64_t patience = 0;
  std::string keep = "metric";
  int64_t checkpoint_every = 100;
  int64_t log_every = 10;
  int64_t snapshot_every = 0;
  std::string snapshot_inputs = "0,1,2,3";
  int64_t seed = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  bool cuda_graph = false;
  int64_t threads = 0;
  bool operator==(const TrainRecipe&) const = default;
};

// A value of a section that an attention or a task of a program's own has brought (AttentionKind::options,
// TaskKind::options).
using OptionValue = std::variant<bool, int64_t, double, std::string>;

// A key of such a section: [strided] stride = 8.
struct OwnOption {
  std::string key;
  OptionValue value;  // the default, and with it the type
  std::string meaning;
  double low = -std::numeric_limits<double>::infinity();  // of numbers
  std::vector<std::string> allowed = {};                  // of strings; empty = any
};

struct Recipe {
  DataRecipe data;
  ModelRecipe model;
  AttentionRecipe attention;
  WindowRecipe window;
  SegmentsRecipe segments;
  RandomRecipe random;
  GraphRecipe graph;
  SbmRecipe sbm;
  SacRecipe sac;
  IndexerRecipe indexer;
  LinearRecipe linear;
  PerformerRecipe performer;
  LinformerRecipe linformer;
  NystromformerRecipe nystromformer;
  ReformerRecipe reformer;
  TransformerXlRecipe transformer_xl;
  AdaptiveSpanRecipe adaptive_span;
  TreeRecipe tree;
  TrainRecipe train;
  // Of no file: the pixels that the tokens of a layer are, where attention is made for an image network.
  std::optional<PixelGrid> grid = {};
  std::map<std::string, OptionValue> own;  // by full name, "strided.stride": those that are set
  bool operator==(const Recipe&) const = default;
};

// Reads a recipe. Each override is "section.key=value", the value as in TOML (a bare word is a string);
// overrides beat the file, and later ones earlier ones. Throws on anything unknown, of the wrong type, out of
// range or inconsistent, and on a key that the kind of attention does not read, naming the place, what was
// expected and what was found. Where an override chooses the kind, what the file says for others is left
// aside. Keys of former versions are read as what they are called now.
//
// data.path and train.weights become absolute: in the file they start at its folder, in overrides where the
// program was called.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {});
// The same from text, with paths as they stand; `name` stands for the file in messages.
Recipe parse_recipe(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides = {});

// The whole recipe as TOML: every key that its kind of attention reads, but what is unset. Loads back to an
// equal recipe.
std::string to_toml(const Recipe& recipe);

// Every section with its keys, their defaults, meanings and what they may be: for a terminal, and as the
// tables of a page.
enum class HelpForm { kText, kMarkdown };
std::string recipe_help(HelpForm form = HelpForm::kText);

}  // namespace edgewise::train
