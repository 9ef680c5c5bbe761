// Recipes: defaults, overrides, the round trip through TOML, and an error with its place for everything that
// can be wrong.
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "train/recipe/kind_names.h"
#include "train/recipe/nearest_name.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

using testing::HasSubstr;

Recipe parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(text, "r.toml", overrides);
}

// What is wrong with a recipe.
std::string complaint(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "more than one line: " << message;
    return message;
  }
  return "(no error)";
}

TEST(Recipe, AnEmptyFileGivesTheDefaults) {
  const Recipe recipe = parse("");
  EXPECT_EQ(recipe.data.name, "repeated_tokens");
  EXPECT_EQ(recipe.model.head_dim(), 32);  // dim / heads
  EXPECT_EQ(recipe.train.micro_batch, recipe.train.batch);
  EXPECT_EQ(recipe.sbm.clusters, std::nullopt);
}

TEST(Recipe, ReadsEveryTypeOfField) {
  const Recipe recipe = parse(R"(
    [data]
    name = "listops"
    path = "data/listops"
    fixed_length = true
    [model]
    dropout = 0
    [attention]
    kind = "window+sbm"
    [sbm]
    clusters = 16
    self_loops = true
    probe_rate = 0.02
    law = "poisson"
    [train]
    batch = 128
    micro_batch = 32
    learning_rate = 5e-4)");
  EXPECT_TRUE(recipe.data.fixed_length);
  EXPECT_EQ(recipe.model.dropout, 0.0);  // a whole number is a number
  EXPECT_EQ(recipe.attention.kind, "window+sbm");
  EXPECT_EQ(recipe.sbm.clusters, 16);
  EXPECT_EQ(recipe.sbm.self_loops, true);
  EXPECT_EQ(recipe.sbm.probe_rate, 0.02);
  EXPECT_EQ(recipe.sbm.law, "poisson");
  EXPECT_EQ(recipe.train.micro_batch, 32);
  EXPECT_EQ(recipe.train.learning_rate, 5e-4);
}

TEST(Recipe, OverridesBeatTheFileAndEarlierOverrides) {
  const Recipe recipe =
      parse("[train]\nsteps = 5\nseed = 1",
            {"train.steps=6", "train.steps=7", "train.device=cuda", "attention.kind=sbm",
             "sbm.law=\"poisson\"", "train.learning_rate=1e-5", "data.path=2024", "train.snapshot_every=30"});
  EXPECT_EQ(recipe.train.steps, 7);
  EXPECT_EQ(recipe.train.seed, 1);
  EXPECT_EQ(recipe.train.device, "cuda");
  EXPECT_EQ(recipe.sbm.law, "poisson");
  EXPECT_EQ(recipe.train.learning_rate, 1e-5);
  EXPECT_EQ(recipe.data.path, "2024");
  EXPECT_EQ(recipe.train.snapshot_every, 30);
  EXPECT_EQ(parse("", {"data.path=a b=c"}).data.path, "a b=c");
}

// Every field of the sections that the kind reads away from its default, those that are optional included.
Recipe changed_recipe(const std::string& kind) {
  Recipe recipe;
  recipe.attention.kind = kind;
  for (const RecipeField& field : recipe_fields()) {
    if (field.section == "attention" || !reads_section(kind, field.section)) continue;
    std::visit(
        [&](auto* slot) {
          if constexpr (requires { slot->has_value(); }) {
            slot->emplace();
          }
          auto& value = [&]() -> auto& {
            if constexpr (requires { slot->has_value(); }) {
              return **slot;
            } else {
              return *slot;
            }
          }
          ();
          using Value = std::remove_reference_t<decltype(value)>;
          if constexpr (std::is_same_v<Value, bool>) {
            value = !value;
          } else if constexpr (std::is_same_v<Value, int64_t>) {
            value += 64;
          } else if constexpr (std::is_same_v<Value, double>) {
            value = (value + 1.0 / 3) / 2;
          } else {
            value = field.rule.names.empty() ? "a \"b\\\n\xc3\xa9" : field.rule.names.back();
          }
        },
        field.slot(recipe));
  }
  recipe.model.dim = recipe.model.heads * 34;  // fields must still fit together
  recipe.train.batch_tokens = 0;
  const bool text = attention_kind(kind).needs_text, graph = attention_kind(kind).over_graph;
  const bool picture = !text && !graph;
  recipe.data.name = text ? "characters" : graph ? "graph" : "image";  // mask_zero is for pictures,
  recipe.data.mask_zero = picture;
  recipe.data.symmetries = picture ? "square" : "none";
  if (!graph) {  // splits and metrics for graphs,
    const DataRecipe defaults;
    recipe.data.split = defaults.split;
    recipe.data.normalise = defaults.normalise;
    recipe.data.standardise = defaults.standardise;
    recipe.data.metric = defaults.metric;
  } else {
    recipe.train.precision = "fp32";
    recipe.train.density_weight = 0;
    recipe.graph.hops = attention_kind(kind).is_pattern ? 0 : 3;
  }
  recipe.model.token_dropout = text ? 0 : 0.5;
  recipe.data.validation = "own";   // the other way to validate for texts,
  recipe.data.drop_masked = false;  // which needs the order of tokens
  recipe.nystromformer.conv_kernel = 35;
  recipe.train.snapshot_inputs = "5,1";
  recipe.train.micro_batch = recipe.train.batch = 96;
  recipe.model.max_length = 4096;
  return recipe;
}

TEST(Recipe, ToTomlLoadsBackToTheSame) {
  EXPECT_EQ(parse(to_toml(parse(""))), parse(""));
  for (const std::string& kind : attention_names()) {
    Recipe recipe = changed_recipe(kind);
    const auto& refusal = attention_kind(kind).causal_refusal;  // not every attention has a causal form
    if (refusal && !refusal(recipe).empty()) recipe.model.causal = false;
    EXPECT_EQ(parse(to_toml(recipe)), recipe) << to_toml(recipe);
  }
}

TEST(Recipe, ToTomlTellsWhatTheKindReads) {
  using testing::AllOf, testing::Not;
  const auto text = [](const std::string& kind) { return to_toml(parse("", {"attention.kind=" + kind})); };
  EXPECT_THAT(text("sbm"), AllOf(HasSubstr("\n[sbm]\npreset = "), Not(HasSubstr("[window]"))));
  EXPECT_THAT(text("window+sbm"), AllOf(HasSubstr("\n[sbm]\npreset = "), HasSubstr("\n[window]\nwidth = ")));
  EXPECT_THAT(text("dense"), HasSubstr("[attention]\nkind = \"dense\"\n\n[train]"));
}

TEST(Recipe, AKeyThatTheKindDoesNotReadIsAnError) {
  EXPECT_EQ(
      complaint("[attention]\nkind = \"window\"\n[sbm]\nclusters = 16"),
      "r.toml:4: sbm.clusters is not read by attention.kind = window; sbm, window+sbm and graph+sbm read it. "
      "Leave it out, or choose another attention.kind");
  EXPECT_EQ(
      complaint("", {"tree.step=3"}),
      "--set tree.step=3: tree.step is not read by attention.kind = dense; tree reads it. Leave it out, or "
      "choose another attention.kind");
  EXPECT_THAT(complaint("[attention]\nkind = \"random\"\n[sac]\nnode_dim = 3"),
              HasSubstr("sac.node_dim is not"));
  EXPECT_THAT(complaint("", {"attention.kind=sbm", "window.width=3"}), HasSubstr("window.width is not read"));
  // An override that chooses the kind leaves aside what the file says for others, if that is right.
  const std::string file = "[attention]\nkind = \"sbm\"\n[sbm]\nclusters = ";
  EXPECT_EQ(parse(file + "16", {"attention.kind=dense"}), parse("", {"attention.kind=dense"}));
  EXPECT_THAT(complaint(file + "\"many\"", {"attention.kind=dense"}),
              HasSubstr("sbm.clusters to be an integer"));
}

TEST(Recipe, KeysOfFormerVersionsAreUnderstood) {
  const Recipe recipe = parse(
      "[model]\nhead_dim = 32\nnorm = true\n[attention]\nkind = \"window+sbm\"\nwindow = 8\nclusters = 16\n"
      "features = 256\nmode = \"paper\"\nmemory = 512\n[train]\nadam_eps = 1e-06");
  EXPECT_EQ(recipe, parse("[attention]\nkind = \"window+sbm\"\n[window]\nwidth = 8\n[sbm]\nclusters = 16"));
  EXPECT_EQ(parse("[attention]\nkind = \"linformer\"\nmode = \"harness\"").linformer.mode, "harness");
  EXPECT_EQ(parse("[attention]\nkind = \"random\"\n[sac]\nalpha = 3").random.alpha, 3);
  EXPECT_EQ(
      parse("[data]\nname=\"characters\"\npath=\"x\"\n[attention]\nkind = \"adaptive_span\"\nmemory = 3")
          .adaptive_span.memory,
      3);
  // A value that would have mattered is not passed over.
  EXPECT_THAT(complaint("[attention]\nkind = \"dense\"\nfeatures = 7"),
              HasSubstr("r.toml:3: performer.features is not read by attention.kind = dense"));
  EXPECT_EQ(
      complaint("[model]\nnorm = false"),
      "r.toml:2: model.norm is gone, and it is always true now; found false. A C++ program can still set it "
      "in the options of its module");
  EXPECT_EQ(
      complaint("[attention]\nkind = \"sbm\"\nshared_mlp = false"),
      "r.toml:3: attention.shared_mlp is gone, and the preset decides it now; found false. A C++ program can "
      "still set it in the options of its module");
  EXPECT_EQ(parse("[attention]\nkind = \"sac\"\n[sac]\ndestinations = \"all\"\nblock_size = 64"),
            parse("[attention]\nkind = \"sac\""));
  EXPECT_THAT(
      complaint("[attention]\nkind = \"sac\"\n[sac]\ndestinations = \"blocks\""),
      testing::AllOf(HasSubstr("r.toml:4: sac.destinations is gone"), HasSubstr("attention.unit = 16")));
  EXPECT_THAT(complaint("[model]\nhead_dim = 8"),
              HasSubstr("r.toml:2: model.head_dim is gone: a head is model.dim "));
}

TEST(Recipe, UnknownKeysNameThePlaceAndTheNearestKey) {
  EXPECT_EQ(complaint("[train]\nsteps = 5\nlerning_rate = 1"),
            "r.toml:3: unknown key 'train.lerning_rate'; did you mean 'train.learning_rate'?");
  EXPECT_EQ(complaint("[train]\ndropout = 0.1"),
            "r.toml:2: unknown key 'train.dropout'; did you mean 'model.dropout'?");
  EXPECT_EQ(complaint("[modle]\ndim = 1"), "r.toml:2: unknown section 'modle'; did you mean 'model'?");
  EXPECT_EQ(complaint("\n[modle]"), "r.toml:2: unknown section 'modle'; did you mean 'model'?");
  EXPECT_THAT(complaint("steps = 5"), HasSubstr("r.toml:1: key 'steps' stands outside of a section"));
  EXPECT_THAT(complaint("steps = 5"), HasSubstr("did you mean 'train.steps'?"));
  EXPECT_EQ(complaint("", {"train.step=3"}),
            "--set train.step=3: unknown key 'train.step'; did you mean 'train.steps'?");
  EXPECT_EQ(complaint("", {"train.lr=3"}),
            "--set train.lr=3: unknown key 'train.lr'; did you mean 'train.learning_rate'?");
  EXPECT_THAT(complaint("[model]\nlr = 3"), HasSubstr("did you mean 'train.learning_rate'?"));
  EXPECT_THAT(complaint("lr = 3"), HasSubstr("did you mean 'train.learning_rate'?"));
  EXPECT_THAT(complaint("", {"train.epochs=3"}), HasSubstr("did you mean 'train.steps'?"));
  // No guess where nothing is near.
  EXPECT_EQ(complaint("[train]\nflavour = 1"),
            "r.toml:2: unknown key 'train.flavour'; all keys: edgewise train --help-recipe");
  EXPECT_EQ(
      complaint("[optimizer]\nlr = 1"),
      "r.toml:2: unknown section 'optimizer'; expected data, model, attention, window, segments, "
      "random, graph, sbm, "
      "sac, indexer, linear, "
      "performer, linformer, nystromformer, reformer, transformer_xl, adaptive_span, tree, train, images or "
      "translation");
}

TEST(Recipe, NumbersReadBackAsTheyWere) {
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308}) {
    Recipe recipe;
    recipe.train.grad_clip = value;
    EXPECT_EQ(parse(to_toml(recipe)).train.grad_clip, value);
  }
}

TEST(Recipe, WrongTypesSayWhatWasExpected) {
  EXPECT_EQ(complaint("[train]\n\nsteps = \"many\""),
            "r.toml:3: expected train.steps to be an integer, at least 1; found 'many'");
  EXPECT_EQ(complaint("[train]\nsteps = 1e3"),
            "r.toml:2: expected train.steps to be an integer, at least 1; found 1000.0");
  EXPECT_EQ(complaint("[model]\ntied = 1"), "r.toml:2: expected model.tied to be true or false; found 1");
  EXPECT_EQ(complaint("[data]\npath = 3"), "r.toml:2: expected data.path to be a string; found 3");
  EXPECT_EQ(complaint("[model]\ndropout = [1]"),
            "r.toml:2: expected model.dropout to be a number, in [0, 1); found an array");
  EXPECT_EQ(complaint("[model.dim]\nx = 1"),
            "r.toml:1: expected model.dim to be an integer, at least 1; found a table");
  EXPECT_THAT(complaint("", {"train.steps=soon"}),
              HasSubstr("expected train.steps to be an integer, at least 1; found"));
}

TEST(Recipe, MisspeltValuesNameTheNearest) {
  EXPECT_THAT(complaint("", {"attention.kind=sbm", "sbm.preset=edgwise"}),
              HasSubstr("found 'edgwise'; did you mean 'edgewise'?"));
  EXPECT_THAT(complaint("", {"data.symmetries=squares"}),
              HasSubstr("found 'squares'; did you mean 'square'?"));
  EXPECT_THAT(complaint("", {"train.device=gpu"}), HasSubstr("did you mean 'cuda'?"));
}

TEST(Recipe, ValuesOutOfRangeSayTheRange) {
  EXPECT_EQ(complaint("[train]\nsteps = -1"), "r.toml:2: expected train.steps to be at least 1; found -1");
  EXPECT_EQ(complaint("[attention]\nkind = \"sbm\"\n[sbm]\nprobe_rate = 1.5"),
            "r.toml:4: expected sbm.probe_rate to be in [0, 1]; found 1.5");
  EXPECT_EQ(complaint("[model]\ndropout = 1.0"),
            "r.toml:2: expected model.dropout to be in [0, 1); found 1.0");
  EXPECT_EQ(complaint("[model]\ndropout = 1.1"),  // not 1.1000000000000001
            "r.toml:2: expected model.dropout to be in [0, 1); found 1.1");
  EXPECT_THAT(complaint("[train]\nlearning_rate = 0"), HasSubstr("to be above 0; found 0"));
  EXPECT_THAT(complaint("[train]\nlearning_rate = inf"), HasSubstr("to be above 0; found inf"));
  EXPECT_THAT(complaint("[train]\nlearning_rate = nan"), HasSubstr("to be above 0; found nan"));
  EXPECT_EQ(complaint("[attention]\nkind = \"sparse\""),
            "r.toml:2: expected attention.kind to be one of dense, full, window, segments, random, sbm, "
            "window+sbm, sac, "
            "window+sac, indexer, window+indexer, graph, graph+sbm, graph+sac, graph+indexer, graph+random, "
            "graph+nearest, graph+two_hop, "
            "linear, reformer, performer, linformer, nystromformer, "
            "transformer_xl, adaptive_span, tree; found 'sparse'");
}

TEST(Recipe, FieldsMustFitTogether) {
  EXPECT_THAT(complaint("[train]\nbatch = 10\nmicro_batch = 4"),
              HasSubstr("r.toml: expected train.micro_batch to divide train.batch; found 4 and 10"));
  EXPECT_THAT(complaint("[train]\nsteps = 10\nwarmup_steps = 11"), HasSubstr("found 11 and 10"));
  EXPECT_THAT(
      complaint("[train]\nsteps = 10\nwarmup_steps = 11\ndensity_start = 20\ndensity_weight = 1"),
      testing::AllOf(HasSubstr("found 11 and 10, and train.density_start"), HasSubstr("found 20 and 10"),
                     HasSubstr("for a short run: --set train.warmup_steps=0 --set train.density_start=0")));
  EXPECT_THAT(complaint("[model]\ndim = 10\nheads = 4"),
              HasSubstr("model.heads to divide model.dim; found 4 and 10"));
  EXPECT_EQ(
      complaint("[data]\nname = \"listops\""),
      "r.toml: expected data.path, the folder of the listops data; found none; make it with 'edgewise data "
      "listops --out DATA' and set data.path=DATA");
  EXPECT_THAT(complaint("[data]\nname = \"pathfinder\""),
              HasSubstr("'edgewise data pathfinder --generate --out DATA'"));
  for (const std::string task : {"image", "text", "retrieval"})
    EXPECT_THAT(complaint("[data]\nname = \"" + task + "\""),
                HasSubstr("'edgewise data " + task + " --from FOLDER --out DATA'"));
  EXPECT_THAT(complaint("[data]\nname = \"text\"\npath = \"x\"\nmask_zero = true"),
              HasSubstr("expected data.mask_zero with image or pathfinder only; found it with text"));
  const std::string pictures = "[data]\nname = \"pathfinder\"\npath = \"x\"\ndrop_masked = true\n";
  EXPECT_THAT(complaint(pictures), HasSubstr("data.mask_zero = true"));
  EXPECT_THAT(
      complaint(pictures + "mask_zero = true\n[attention]\nkind = \"linformer\""),
      HasSubstr("attention.kind dense or sbm, which do not look at places in the batch; found linformer"));
  EXPECT_THAT(
      complaint(pictures + "mask_zero = true\n[attention]\nkind = \"sbm\"\n[sbm]\npreset = \"published\""),
      HasSubstr("sbm.count_padding = false"));
  EXPECT_THAT(complaint("[train]\nsnapshot_every = 5\nsnapshot_inputs = \"1,x\""),
              HasSubstr("different numbers of validation examples"));
  EXPECT_THAT(complaint("[data]\nname = \"text\"\npath = \"x\"\nsymmetries = \"mirror\""),
              HasSubstr("expected data.symmetries with image or pathfinder only; found it with text"));
  EXPECT_THAT(complaint("[data]\nname = \"image\"\npath = \"x\"\nvalidation = \"test\""),
              HasSubstr("expected data.validation = test with text or images only; found it with image"));
  EXPECT_THAT(complaint("[data]\nname = \"characters\"\npath = \"x\"\n[model]\ntoken_dropout = 0.1"),
              HasSubstr("expected model.token_dropout = 0 with characters"));
  EXPECT_THAT(complaint("[data]\nlength = 64\n[model]\nmax_length = 32"), HasSubstr("found 32 and 64"));
}

TEST(Recipe, AttentionsWithScoresOfTheirOwnTakeThePatternsEdges) {
  const std::string text =
      "[data]\nname = \"characters\"\npath = \"x\"\n[attention]\nkind = \"transformer_xl\"\n";
  const Recipe recipe = parse(text + "edges = \"window\"\n[window]\nwidth = 3");
  EXPECT_EQ(recipe.attention.edges, "window");
  EXPECT_EQ(recipe.window.width, 3);
  EXPECT_EQ(parse(to_toml(recipe)), recipe);
  EXPECT_THAT(to_toml(recipe), HasSubstr("[window]"));
  EXPECT_THAT(to_toml(parse(text)), testing::Not(HasSubstr("\nedges =")));
  EXPECT_THAT(complaint(text + "[window]\nwidth = 3"), HasSubstr("window.width is not read by"));
  EXPECT_THAT(
      complaint(text + "edges = \"sbm\""),
      HasSubstr(
          "attention.edges to be full, window, segments or random, whose edges nothing learns; found sbm"));
  EXPECT_THAT(complaint(text + "edges = \"windows\""), HasSubstr("did you mean 'window'?"));
  EXPECT_THAT(complaint("[attention]\nkind = \"window\"\nedges = \"full\""),
              HasSubstr("with attention.kind transformer_xl, adaptive_span or tree"));
}

TEST(Recipe, MalformedFilesAndOverridesAreExplained) {
  EXPECT_THAT(complaint("[train\nsteps = 1"), HasSubstr("r.toml:1:"));
  EXPECT_THAT(complaint("[train]\nsteps = 1\nsteps = 2"), HasSubstr("r.toml:3:"));
  EXPECT_THAT(complaint("[train]\nsteps = "), HasSubstr("expected TOML; found: "));
  for (const std::string text : {"train.steps", "steps=3", "=", "", "x=a.b"}) {
    EXPECT_THAT(complaint("", {text}), HasSubstr("expected section.key=value, e.g. train.steps=100")) << text;
  }
  EXPECT_THROW(load_recipe("/nowhere.toml"), c10::Error);
  EXPECT_THROW(load_recipe("/"), c10::Error);
}

TEST(Recipe, DepthAndSizeOfValuesHaveABound) {
  std::string deep = "a";
  for (int n = 0; n < 100'000; ++n) deep += ".a";
  EXPECT_THAT(complaint("[data]\n" + deep + " = 1\n"),
              HasSubstr("r.toml:2: expected keys of at most 16 parts"));
  EXPECT_THAT(complaint("[" + deep + "]\n"), HasSubstr("r.toml:1: expected keys of at most 16 parts"));
  EXPECT_THAT(complaint("x = " + std::string(1000, '[')), HasSubstr("at most 16 brackets"));
  // Neither texts nor remarks count, nor what an override gives as a path.
  const std::string dots = "../../../../../../../../../../../x";
  EXPECT_EQ(parse("# " + deep + "\n[data]\npath = \"" + dots + "\"\n").data.path, dots);
  EXPECT_EQ(parse("", {"data.path=" + dots}).data.path, dots);
  EXPECT_THAT(complaint("[data]\ntrain_size = 9223372036854775807\n"),
              HasSubstr("r.toml:2: expected data.train_size"));
  EXPECT_THAT(complaint("[train]\ndensity_weight = 1e308\n"),
              HasSubstr("r.toml:2: expected train.density_weight to be a number between"));
  EXPECT_THAT(complaint("[train]\nlearning_rate = inf\n"),
              HasSubstr("r.toml:2: expected train.learning_rate"));
  EXPECT_EQ(parse("[train]\nseed = 9223372036854775807\n").train.seed, INT64_MAX);
}

TEST(Recipe, HelpNamesEveryKey) {
  const std::string help = recipe_help();
  for (const RecipeField& field : recipe_fields()) {
    EXPECT_THAT(help, HasSubstr("\n  " + field.key + " "));
    EXPECT_THAT(help, HasSubstr(field.meaning));
  }
  const std::string page = recipe_help(HelpForm::kMarkdown);
  for (const RecipeField& field : recipe_fields()) EXPECT_THAT(page, HasSubstr("\n| `" + field.key + "` | "));
  for (const std::string& section : recipe_sections()) {
    EXPECT_THAT(help, HasSubstr("\n[" + section + "]  "));
    EXPECT_THAT(page, HasSubstr("\n## `[" + section + "]`\n"));
  }
  for (const std::string& kind : attention_names()) EXPECT_THAT(help, HasSubstr("\n    " + kind + " "));
  EXPECT_THAT(help, HasSubstr("\n[sbm]  edges sampled from a stochastic block model; attention.kind = sbm, "
                              "window+sbm, graph+sbm\n"));
}

// What ships must load, say what it is, and keep to the published numbers.
TEST(Recipe, TheRecipesOfTheProjectLoad) {
  const std::string root = EDGEWISE_SOURCE_DIR "/recipes/";
  for (const std::string name :
       {"demo/full", "demo/edgewise", "demo/paper", "demo/published", "demo/poisson", "repeated-tokens/full",
        "repeated-tokens/edgewise", "repeated-tokens/paper", "repeated-tokens/paper-bernoulli",
        "repeated-tokens/published", "repeated-tokens/poisson"}) {
    const std::string path = root + name + ".toml";
    const Recipe recipe = load_recipe(path);
    EXPECT_EQ(parse(to_toml(recipe)), recipe) << name;
    EXPECT_EQ(std::ifstream(path).get(), '#') << name;
    EXPECT_EQ(recipe.model.head_dim(), 32) << name;
    EXPECT_EQ(recipe.data.length, name.starts_with("demo") ? 64 : 256) << name;
  }
}

// The numbers of the published Long Range Arena recipes, task by task.
TEST(Recipe, TheLongRangeArenaKeepsToThePublishedNumbers) {
  struct Task {
    std::string name;
    int64_t length, batch, steps, warmup, eval_every, micro_batch;
    double rate;
    bool pads, is_picture;
  };
  for (const Task& task : {Task{"listops", 2048, 128, 5'000, 1'000, 50, 32, 5e-4, true, false},
                           Task{"text", 3072, 128, 20'000, 8'000, 500, 32, 5e-4, true, false},
                           Task{"retrieval", 4096, 32, 30'000, 800, 300, 32, 1e-4, true, false},
                           Task{"image", 1024, 1024, 35'000, 175, 175, 128, 5e-4, false, true},
                           Task{"pathfinder", 1024, 1024, 62'400, 312, 312, 128, 5e-4, false, true}}) {
    for (const std::string kind : {"dense", "sbm-edgewise", "sbm-paper", "sbm-published", "fast-dense",
                                   "fast-sbm-edgewise", "fast-sbm-published"}) {
      const std::string path = EDGEWISE_SOURCE_DIR "/recipes/lra/" + task.name + "/" + kind + ".toml";
      const Recipe recipe = load_recipe(path);
      const bool is_published = kind.ends_with("paper") || kind.ends_with("published");
      EXPECT_EQ(parse(to_toml(recipe)), recipe) << path;
      EXPECT_EQ(std::ifstream(path).get(), '#') << path;
      EXPECT_EQ(recipe.data.name, task.name) << path;
      EXPECT_LE(recipe.train.steps, 3'500 * recipe.train.log_every) << path << ": a megabyte of metrics";
      EXPECT_EQ(recipe.model.max_length, task.length) << path;
      EXPECT_EQ(recipe.model.layers * 1000 + recipe.model.dim, 2064) << path;
      EXPECT_EQ(recipe.model.head_dim(), 32) << path;
      EXPECT_EQ(recipe.model.hidden, 128) << path;
      EXPECT_EQ(recipe.train.learning_rate, task.rate) << path;
      EXPECT_EQ(recipe.attention.kind, kind.ends_with("dense") ? "dense" : "sbm") << path;
      EXPECT_EQ(recipe.data.mask_zero, is_published && task.is_picture) << path;
      EXPECT_EQ(recipe.data.validation, is_published && task.name == "text" ? "test" : "own") << path;
      if (is_published) {
        EXPECT_EQ(recipe.data.fixed_length, task.pads) << path;
        EXPECT_EQ(recipe.model.pooling, "mean_padded") << path;
      }
      if (kind.starts_with("fast")) {
        EXPECT_LT(recipe.train.steps, task.steps) << path;
        continue;
      }
      EXPECT_EQ(recipe.train.batch, task.batch) << path;
      EXPECT_EQ(recipe.train.micro_batch, task.micro_batch) << path;
      EXPECT_EQ(recipe.train.steps, task.steps) << path;
      EXPECT_EQ(recipe.train.warmup_steps, task.warmup) << path;
      EXPECT_EQ(recipe.train.eval_every, task.eval_every) << path;
    }
  }
}

// A `best` recipe is the run whose figure it tells: all but where and on what it ran.
TEST(Recipe, TheBestOfTheLongRangeArenaAreTheRunsThatWereMeasured) {
  const std::string root = EDGEWISE_SOURCE_DIR;
  std::map<std::string, std::string> recipes;  // of the runs in results/lra.jsonl
  std::ifstream lines(root + "/results/lra.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json run = nlohmann::json::parse(line);
    recipes[run.at("run")] = run.at("recipe");
  }
  for (const auto& [recipe, run] : {std::pair{"image/best-sbm-edgewise", "image-edgewise-avg-w2-0"},
                                    {"text/best-sbm-edgewise", "text-edgewise-avg-w003-1"},
                                    {"text/paper-protocol-sbm-edgewise", "text-edgewise-padded-w03-0"},
                                    {"pathfinder/best-sbm-edgewise", "pathfinder-edgewise-80k-w1-0"},
                                    {"pathfinder/best-sbm-edgewise-on", "pathfinder-edgewise-on-w1-0"},
                                    {"retrieval/best-sbm-edgewise", "retrieval-edgewise-w1-0"}}) {
    const Recipe best = load_recipe(root + "/recipes/lra/" + recipe + ".toml");
    Recipe measured = parse(recipes.at(run));
    measured.data.path = best.data.path;
    if (!measured.train.weights.empty())  // of a run in the folder of the project
      measured.train.weights = root + "/" + measured.train.weights;
    measured.train.seed = best.train.seed;
    measured.train.device = best.train.device;
    measured.train.precision = best.train.precision;
    measured.train.cuda_graph = best.train.cuda_graph;
    measured.train.checkpoint_every = best.train.checkpoint_every;
    EXPECT_EQ(to_toml(best), to_toml(measured)) << recipe;
  }
}

TEST(Recipe, TheSacRecipesLoad) {
  for (const auto& file : std::filesystem::directory_iterator(EDGEWISE_SOURCE_DIR "/recipes/sac")) {
    const Recipe recipe = load_recipe(file.path().string());
    EXPECT_EQ(parse(to_toml(recipe)), recipe) << file.path();
    EXPECT_EQ(std::ifstream(file.path()).get(), '#') << file.path();
    const bool is_random = recipe.attention.kind == "random";
    if (is_random || recipe.attention.kind == "sac") {
      EXPECT_EQ(is_random ? recipe.random.alpha : recipe.sac.alpha, 4) << file.path();
    }
  }
}

TEST(Recipe, TheRecipesOfRecallLoad) {
  int64_t count = 0;
  for (const char* folder : {"/recipes/mqar", "/recipes/needle"})
    for (const auto& file : std::filesystem::directory_iterator(EDGEWISE_SOURCE_DIR + std::string(folder))) {
      const Recipe recipe = load_recipe(file.path().string());
      EXPECT_EQ(parse(to_toml(recipe)), recipe) << file.path();
      EXPECT_EQ(recipe.model.causal, recipe.attention.kind != "linear") << file.path();
      ++count;
    }
  EXPECT_EQ(count, 13);
  // What looks ahead has no place in a model that does not.
  EXPECT_THAT(complaint("[data]\nname = \"needle\"\n[model]\ncausal = true\n[attention]\nkind = \"linear\""),
              HasSubstr("with model.causal = true a token may not see those after it"));
}

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("same", "same"), 0);
  EXPECT_EQ(edit_distance("lats", "last"), 1) << "neighbours swapped";
  EXPECT_EQ(edit_distance("trian", "train"), 1);
  EXPECT_EQ(nearest_name("stepz", {"batch", "steps", "seed"}), "steps");
  EXPECT_EQ(nearest_name("stepz", {}), "");
}

TEST(NearestName, DoesNotGuessWildly) {
  EXPECT_EQ(nearest_name("momentum", {"batch", "steps", "seed"}), "");
  EXPECT_EQ(nearest_name("epochs", {"batch", "seed"}), "");
  EXPECT_EQ(nearest_name("epochs", {"batch", "steps", "seed"}), "steps");
  EXPECT_EQ(nearest_name("gpu", {"cpu", "cuda"}), "cuda") << "nearer to cpu by letters alone";
  EXPECT_EQ(nearest_name("dev", {"train", "validation", "test"}), "validation");
  EXPECT_EQ(nearest_name("val", {"own", "test"}), "");
}

}  // namespace
}  // namespace edgewise::train
