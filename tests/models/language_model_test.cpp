// Language models over every causal attention: nobody sees the future, a cache changes nothing, a memory is
// what went before.
#include <edgewise/models/generator.h>
#include <edgewise/models/language_model.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/recipe.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace edgewise {
namespace {

constexpr int64_t kContext = 24;
constexpr double kClose = 1e-9;  // in fp64
const RandomStream kRandom{.seed = 3, .step = 9};

struct Kind {
  const char* name;
  std::vector<std::string> settings;
};
std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.name;
}

const std::vector<Kind> kKinds = {
    {"dense", {}},
    {"dense_separate_output", {"model.tied=false", "model.positions=none"}},
    {"full", {"attention.kind=full"}},
    {"window", {"attention.kind=window", "window.width=3"}},
    {"random", {"attention.kind=random", "random.alpha=3"}},
    {"sbm", {"attention.kind=sbm", "sbm.clusters=4", "sbm.cluster_std=1"}},
    {"window_sbm", {"attention.kind=window+sbm", "sbm.clusters=4", "window.width=2"}},
    {"window_squares", {"attention.kind=window", "attention.unit=16", "window.width=3"}},
    {"full_squares", {"attention.kind=full", "attention.unit=16"}},
    {"sbm_squares",
     {"attention.kind=sbm", "attention.unit=16", "sbm.clusters=4", "sbm.cluster_std=1",
      "sbm.self_loops=true"}},
    {"window_sbm_squares",
     {"attention.kind=window+sbm", "attention.unit=16", "sbm.clusters=4", "window.width=0"}},
    {"sac_greedy", {"attention.kind=sac", "sac.test_decoding=greedy", "sac.sharing=per_head", "sac.alpha=3"}},
    {"sac_beam", {"attention.kind=sac", "sac.test_decoding=beam", "sac.self_edges=always"}},
    {"sac_sample", {"attention.kind=sac", "sac.test_decoding=sample", "sac.alpha=3"}},
    {"sac_all_layers", {"attention.kind=sac", "sac.test_decoding=greedy", "sac.sharing=all_layers"}},
    {"sac_mlp", {"attention.kind=sac", "sac.scorer=mlp", "sac.test_decoding=sample", "sac.distance=vector"}},
    {"window_sac", {"attention.kind=window+sac", "window.width=1", "sac.candidate_window=9"}},
    {"segments", {"attention.kind=segments", "segments.length=5", "segments.memory=4"}},
    {"transformer_xl", {"attention.kind=transformer_xl", "transformer_xl.memory=10"}},
    {"adaptive_span",
     {"attention.kind=adaptive_span", "adaptive_span.memory=10", "adaptive_span.limit=20",
      "adaptive_span.ramp=4"}},
    {"tree", {"attention.kind=tree", "tree.step=2", "tree.clip=2"}},
};

LanguageModel make_model(std::vector<std::string> settings) {
  settings.insert(settings.begin(),
                  {"data.path=none", "data.length=" + std::to_string(kContext), "model.dim=16",
                   "model.heads=2", "model.hidden=24", "model.embedding_std=0.7", "train.seed=5"});
  const train::Recipe recipe = train::parse_recipe("[data]\nname = \"characters\"\n", "test", settings);
  LanguageModel model = train::build_language_model(recipe, {'a', 'b', 'c', 'd', 'e', 'f', 'g'});
  const torch::NoGradGuard guard;
  for (auto& item : model->named_parameters())
    if (item.key().ends_with("span")) item.value().copy_(torch::tensor({0.1, 0.6}));
  model->to(at::kDouble);
  model->eval();
  return model;
}

at::Tensor some_tokens(int64_t batch, int64_t length, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return torch::randint(0, 7, {batch, length}, at::kLong);
}

at::Tensor full_logits(LanguageModel& model, const at::Tensor& tokens,
                       const std::vector<at::Tensor>& memories = {}) {
  const torch::NoGradGuard guard;
  ModelInput input;
  input.batch.towers = {{.tokens = tokens}};
  input.random = kRandom;
  input.memories = memories;
  return model->forward(input).logits;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class EveryKind : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(EveryKind, ACacheGivesTheLogitsOfTheFullPass) {
  LanguageModel model = make_model(GetParam().settings);
  EXPECT_EQ(model->cache_refusal(), "");
  const at::Tensor tokens = some_tokens(2, kContext);
  const at::Tensor whole = full_logits(model, tokens);
  ASSERT_EQ(whole.sizes(), at::IntArrayRef({2, kContext, 7}));
  // Some at once, then some more, then one by one.
  DecoderCache cache;
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const int64_t count : {int64_t{7}, int64_t{4}}) {
    parts.push_back(model->read(tokens.narrow(1, first, count), cache, kRandom));
    first += count;
  }
  for (; first < kContext; ++first) parts.push_back(model->read(tokens.narrow(1, first, 1), cache, kRandom));
  EXPECT_LT(difference(at::cat(parts, 1), whole), kClose);
  EXPECT_EQ(cache.length, kContext);
}

TEST_P(EveryKind, NoTokenSeesTheFuture) {
  LanguageModel model = make_model(GetParam().settings);
  const at::Tensor tokens = some_tokens(1, kContext);
  const at::Tensor whole = full_logits(model, tokens);
  for (const int64_t place : {int64_t{0}, int64_t{9}, kContext - 1}) {
    at::Tensor changed = tokens.clone();
    changed[0][place] = (changed[0][place] + 1) % 7;
    const at::Tensor other = full_logits(model, changed);
    if (place > 0) {
      EXPECT_LT(difference(other.narrow(1, 0, place), whole.narrow(1, 0, place)), kClose) << place;
    }
    EXPECT_GT(difference(other.select(1, place), whole.select(1, place)), 1e-6) << place;
  }
  // A shorter text is the beginning of the longer one.
  EXPECT_LT(difference(full_logits(model, tokens.narrow(1, 0, 10)), whole.narrow(1, 0, 10)), kClose);
}

TEST_P(EveryKind, AnItemDoesNotDependOnItsBatchMates) {
  LanguageModel model = make_model(GetParam().settings);
  const at::Tensor tokens = some_tokens(3, kContext);
  const at::Tensor alone = full_logits(model, tokens.narrow(0, 0, 1));
  EXPECT_LT(difference(full_logits(model, tokens).narrow(0, 0, 1), alone), kClose);
}

TEST_P(EveryKind, GeneratesTheSameWithAndWithoutACache) {
  LanguageModel model = make_model(GetParam().settings);
  // A cache that forgets reaches further than a window.
  const int64_t length = model->forgets() ? kContext - 3 : 2 * kContext;
  std::vector<std::vector<int64_t>> texts;
  for (const GeneratorCache cache : {GeneratorCache::kWhereExact, GeneratorCache::kNever}) {
    Generator generator(model, {.temperature = 0.9}, 11, kRandom, cache);
    generator.read({1, 2, 3});
    std::vector<int64_t> text;
    for (int64_t n = 0; n < length; ++n) text.push_back(generator.next());
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_P(EveryKind, HasGradients) {
  LanguageModel model = make_model(GetParam().settings);
  model->train();
  ModelInput input;
  input.batch.towers = {{.tokens = some_tokens(2, kContext)}};
  input.random = kRandom;
  const ModelOutput output = model->forward(input);
  at::Tensor loss = output.logits.log_softmax(-1).select(-1, 0).mean();
  if (output.extra_loss.defined()) loss = loss + output.extra_loss;
  if (output.penalty.defined()) loss = loss + output.penalty;
  for (const EdgePolicy& policy : output.policies)
    loss = loss + policy_loss(policy, at::ones({2}, at::kDouble)).sum();
  loss.backward();
  for (const auto& item : model->named_parameters()) {
    if (item.key().find("mlp_bias") != std::string::npos || item.key().find("start") != std::string::npos)
      continue;
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
  EXPECT_EQ(output.densities.sizes(), at::IntArrayRef({2, 2}));
  EXPECT_GT(output.densities.min().item<double>(), 0);
  EXPECT_LE(output.densities.max().item<double>(),
            3);  // a tree of two tokens' worth of spans beside few pairs
}

class Relative : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Relative, testing::Values("transformer_xl", "adaptive_span"));

// A memory as long as the segment before: segment by segment is reading on with a cache.
TEST_P(Relative, AMemoryIsWhatWentBefore) {
  const std::string kind = GetParam();
  std::vector<std::string> settings = {"attention.kind=" + kind, kind + ".memory=24"};
  if (kind == "adaptive_span") settings.insert(settings.end(), {kind + ".limit=40", kind + ".ramp=8"});
  LanguageModel model = make_model(settings);
  const at::Tensor tokens = some_tokens(2, 2 * kContext);
  DecoderCache cache;
  std::vector<at::Tensor> memories;
  for (const int64_t first : {int64_t{0}, kContext}) {
    const at::Tensor part = tokens.narrow(1, first, kContext);
    const at::Tensor read = model->read(part, cache, kRandom);
    ModelInput input;
    input.batch.towers = {{.tokens = part}};
    input.random = kRandom;
    input.memories = memories;
    const ModelOutput output = model->forward(input);
    EXPECT_LT(difference(output.logits, read), kClose) << first;
    memories = output.memories;
    ASSERT_EQ(memories.size(), 2u);
    EXPECT_EQ(memories[0].size(1), kContext);
    EXPECT_FALSE(memories[0].requires_grad());
  }
  const at::Tensor without = full_logits(model, tokens.narrow(1, kContext, kContext));
  DecoderCache fresh;
  EXPECT_LT(difference(without, model->read(tokens.narrow(1, kContext, kContext), fresh, kRandom)), kClose);
}

TEST_P(Relative, ReadsOnForEver) {
  LanguageModel model =
      make_model({std::string("attention.kind=") + GetParam(), GetParam() + std::string(".memory=8")});
  EXPECT_TRUE(model->forgets());
  EXPECT_EQ(model->cache_limit(), kContext + 8);
  Generator generator(model, {}, 1, kRandom);
  generator.read(std::vector<int64_t>(100, 3));
  for (int n = 0; n < 100; ++n) generator.next();
  EXPECT_TRUE(generator.logits().isfinite().all().item<bool>());
}

struct Taken {
  const char* kind;
  std::vector<std::string> settings;
  const char* whole;  // a pattern with every edge that the kind has by itself
};
std::ostream& operator<<(std::ostream& stream, const Taken& taken) {
  return stream << taken.kind;
}
class TakenEdges : public testing::TestWithParam<Taken> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TakenEdges,
                         testing::Values(Taken{"transformer_xl", {"transformer_xl.memory=10"}, "segments"},
                                         Taken{"adaptive_span",
                                               {"adaptive_span.memory=10", "adaptive_span.limit=20",
                                                "adaptive_span.ramp=4"},
                                               "full"},
                                         Taken{"tree", {"tree.step=2", "tree.clip=2"}, "full"}));

LanguageModel model_over(const Taken& taken, const std::vector<std::string>& edges) {
  std::vector<std::string> settings = taken.settings;
  settings.push_back(std::string("attention.kind=") + taken.kind);
  settings.insert(settings.end(), edges.begin(), edges.end());
  return make_model(settings);
}

// With a pattern that leaves out nothing they compute what they compute by themselves, behind a memory too.
TEST_P(TakenEdges, OfAPatternThatHasThemAllAreTheirOwn) {
  std::vector<std::string> edges = {std::string("attention.edges=") + GetParam().whole};
  if (edges[0].ends_with("segments"))
    edges.insert(edges.end(), {"segments.length=" + std::to_string(kContext), "segments.memory=10"});
  LanguageModel own = model_over(GetParam(), {}), taken = model_over(GetParam(), edges);
  const torch::NoGradGuard guard;
  std::vector<at::Tensor> memories;
  for (const uint64_t segment : {1, 2}) {
    ModelInput input{.batch = {.towers = {{.tokens = some_tokens(2, kContext, segment)}}}, .random = kRandom};
    input.memories = memories;
    input.keep_edges = true;
    const ModelOutput a = own->forward(input), b = taken->forward(input);
    EXPECT_LT(difference(a.logits, b.logits), kClose) << segment;
    EXPECT_LT(difference(a.densities, b.densities), 1e-12) << a.densities << b.densities;
    EXPECT_EQ(a.edge_count.item<int64_t>(), b.edge_count.item<int64_t>());
    EXPECT_EQ(b.edges.size(), 2u);
    memories = a.memories;
  }
}

TEST_P(TakenEdges, AreFewerAndSeeNoFuture) {
  LanguageModel own = model_over(GetParam(), {}),
                taken = model_over(GetParam(), {"attention.edges=window", "window.width=2"});
  const at::Tensor tokens = some_tokens(1, kContext);
  const at::Tensor whole = full_logits(taken, tokens);
  EXPECT_GT(difference(whole, full_logits(own, tokens)), 1e-6);
  at::Tensor changed = tokens.clone();
  changed[0][9] = (changed[0][9] + 1) % 7;
  EXPECT_LT(difference(full_logits(taken, changed).narrow(1, 0, 9), whole.narrow(1, 0, 9)), kClose);
  const ModelInput input{.batch = {.towers = {{.tokens = tokens}}}, .random = kRandom};
  EXPECT_LT(taken->forward(input).densities.max().item<double>(),
            own->forward(input).densities.max().item<double>());
  // Text comes a window at a time.
  EXPECT_THAT(taken->cache_refusal(), testing::HasSubstr("edges are those of a source"));
  Generator generator(taken, {}, 1, kRandom);
  generator.read({1, 2, 3});
  for (int64_t n = 0; n < 5; ++n) generator.next();
  EXPECT_TRUE(generator.logits().isfinite().all().item<bool>());
}

TEST(LanguageModel, SaysWhereACacheIsNotExact) {
  EXPECT_THAT(make_model({"attention.kind=sac", "sac.budget=40"})->cache_refusal(),
              testing::HasSubstr("sac.alpha"));
  EXPECT_THAT(make_model({"attention.kind=sbm", "sbm.sampler=fastrg"})->cache_refusal(),
              testing::HasSubstr("sbm.sampler = direct"));
}

TEST(LanguageModel, RefusesMoreTokensThanItsContext) {
  LanguageModel model = make_model({});
  DecoderCache cache;
  model->read(some_tokens(1, kContext), cache, kRandom);
  EXPECT_THROW(model->read(some_tokens(1, 1), cache, kRandom), c10::ValueError);
  EXPECT_THROW(full_logits(model, some_tokens(1, kContext + 1)), c10::ValueError);
  EXPECT_THROW(full_logits(model, at::full({1, 3}, 7, at::kLong)), c10::IndexError);
}

TEST(SampleToken, KeepsToItsLimits) {
  const at::Tensor logits = torch::tensor({0.5, 2.0, 1.0, -1.0}, at::kDouble);
  EXPECT_EQ(sample_token(logits, {.greedy = true}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.top_k = 1}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.top_k = 2}, 0.999), 2);
  EXPECT_EQ(sample_token(logits, {.top_p = 0.3}, 0.999), 1);
  EXPECT_EQ(sample_token(logits, {}, 0.9999), 3);
  EXPECT_EQ(sample_token(logits, {.temperature = 0.01}, 0.9999), 1);
  EXPECT_THROW(sample_token(logits, {.temperature = 0}, 0.5), c10::ValueError);
  EXPECT_THROW(sample_token(logits, {.top_p = 0}, 0.5), c10::ValueError);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sample_token(torch::tensor({-infinity, 0.0}, at::kDouble), {}, 0.0), 1);
  EXPECT_THROW(sample_token(torch::tensor({infinity, 0.0}, at::kDouble), {}, 0.5), c10::ValueError);
  EXPECT_THROW(sample_token(torch::tensor({std::nan(""), 0.0}, at::kDouble), {}, 0.5), c10::ValueError);
  // The share of the uniform numbers that give a token is its probability.
  const at::Tensor p = (logits / 0.7).softmax(0);
  std::vector<double> counts(4);
  constexpr int kDraws = 10000;
  for (int n = 0; n < kDraws; ++n)
    counts[static_cast<size_t>(sample_token(logits, {.temperature = 0.7}, (n + 0.5) / kDraws))] +=
        1.0 / kDraws;
  for (int64_t token = 0; token < 4; ++token)
    EXPECT_NEAR(counts[static_cast<size_t>(token)], p[token].item<double>(), 2.0 / kDraws);
}

TEST(RowBuffer, GrowsAndForgets) {
  RowBuffer buffer;
  EXPECT_EQ(buffer.size(), 0);
  at::Tensor all;
  for (int64_t n = 0; n < 300; ++n) {
    const at::Tensor rows = at::full({1, 2, n % 3 + 1, 4}, static_cast<double>(n));
    all = all.defined() ? at::cat({all, rows}, 2) : rows;
    if (n % 7 == 0) {
      buffer.keep_last(50);
      all = all.narrow(2, std::max<int64_t>(all.size(2) - rows.size(2) - 50, 0),
                       std::min<int64_t>(all.size(2), rows.size(2) + 50));
    }
    ASSERT_TRUE(at::equal(buffer.append(rows), all)) << n;
  }
}

}  // namespace
}  // namespace edgewise
