// Language models in squares over texts of many groups: a cache changes nothing, and nobody sees the future.
#include <edgewise/models/generator.h>
#include <edgewise/models/language_model.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/recipe.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace edgewise::square_decoder {
namespace {

constexpr int64_t kContext = 100;  // 7 groups, the last one short
const RandomStream kRandom{.seed = 3, .step = 9};
const std::vector<std::string> kWithWindow = {"attention.kind=window+sbm", "window.width=0"};

LanguageModel make_model(const std::vector<std::string>& more) {
  std::vector<std::string> settings = {"data.path=none",   "data.length=100",   "model.dim=16",
                                       "model.heads=2",    "model.hidden=24",   "model.embedding_std=0.7",
                                       "train.seed=5",     "attention.unit=16", "sbm.clusters=4",
                                       "sbm.cluster_std=1"};
  settings.insert(settings.end(), more.begin(), more.end());
  LanguageModel model = train::build_language_model(
      train::parse_recipe("[data]\nname = \"characters\"\n", "test", settings), {'a', 'b', 'c', 'd', 'e'});
  model->to(at::kDouble);
  model->eval();
  return model;
}

at::Tensor some_tokens() {
  torch::manual_seed(1);
  return torch::randint(0, 5, {2, kContext}, at::kLong);
}

at::Tensor full_logits(LanguageModel& model, const at::Tensor& tokens) {
  const torch::NoGradGuard guard;
  ModelInput input;
  input.batch.towers = {{.tokens = tokens}};
  input.random = kRandom;
  return model->forward(input).logits;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(SquareDecoder, ACacheGivesTheLogitsOfTheFullPass) {
  const std::vector<std::vector<std::string>> kinds = {kWithWindow,
                                                       {"attention.kind=window+sbm", "window.width=20"},
                                                       {"attention.kind=sbm", "sbm.self_loops=true"}};
  for (const std::vector<std::string>& kind : kinds) {
    LanguageModel model = make_model(kind);
    ASSERT_EQ(model->cache_refusal(), "");
    const at::Tensor tokens = some_tokens(), whole = full_logits(model, tokens);
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{15, 1, 20, 40}, {33, 7, 40, 1}, {5, 64}}) {
      DecoderCache cache;
      std::vector<at::Tensor> parts;
      for (int64_t first = 0, n = 0; first < kContext; ++n) {
        const auto last_piece = static_cast<int64_t>(pieces.size()) - 1;
        const int64_t count =
            std::min(pieces[static_cast<size_t>(std::min(n, last_piece))], kContext - first);
        parts.push_back(model->read(tokens.narrow(1, first, count), cache, kRandom));
        first += count;
      }
      EXPECT_LT(difference(at::cat(parts, 1), whole), 1e-9) << pieces.size();
    }
  }
}

TEST(SquareDecoder, NoTokenSeesTheFuture) {
  LanguageModel model = make_model(kWithWindow);
  const at::Tensor tokens = some_tokens().narrow(0, 0, 1), whole = full_logits(model, tokens);
  bool reaches_far = false;
  for (const int64_t place : {0, 8, 15, 16, 31, 32, 50, 64, 99}) {
    at::Tensor changed = tokens.clone();
    changed[0][place] = (changed[0][place] + 1) % 5;
    const at::Tensor other = full_logits(model, changed);
    if (place > 0) {
      EXPECT_LT(difference(other.narrow(1, 0, place), whole.narrow(1, 0, place)), 1e-9) << place;
    }
    if (place < 48) reaches_far |= difference(other.narrow(1, 64, 36), whole.narrow(1, 64, 36)) > 1e-6;
  }
  EXPECT_TRUE(reaches_far) << "through chosen squares, since the window is the own group";
  // A shorter text is the beginning of the longer one.
  EXPECT_LT(difference(full_logits(model, tokens.narrow(1, 0, 70)), whole.narrow(1, 0, 70)), 1e-9);
}

TEST(SquareDecoder, GeneratesTheSameWithAndWithoutACache) {
  LanguageModel model = make_model(kWithWindow);
  std::vector<std::vector<int64_t>> texts;
  for (const GeneratorCache cache : {GeneratorCache::kWhereExact, GeneratorCache::kNever}) {
    Generator generator(model, {.temperature = 0.9}, 11, kRandom, cache);
    generator.read({1, 2, 3});
    std::vector<int64_t> text;
    for (int64_t n = 0; n < 40; ++n) text.push_back(generator.next());
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace edgewise::square_decoder
