// EncoderDecoder: against libtorch's layers and against plain ATen, over every kind of edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/special_case_edges.h>

#include "translation_kit.h"

namespace edgewise {
namespace {

using namespace testing_kit;
using ::testing::HasSubstr;

at::Tensor run(EncoderDecoder& model, const Batch& batch, int64_t first_item = 0) {
  ModelInput input{.batch = batch};
  input.random.first_item = first_item;
  return model->forward(input).logits;
}

TEST(EncoderDecoderTest, SinusoidsAreFairseqs) {
  const at::Tensor first = sinusoids(3, 8)[0];
  const at::Tensor wanted =
      torch::tensor({.909297, .092699, .004309, .0002, -.416147, .995694, .999991, 1.0});
  EXPECT_LT((first - wanted).abs().max().item<double>(), 1e-6);
}

// With equal weights torch's own layers, which are post-norm, give the same loss and the same gradients.
TEST(EncoderDecoderTest, EqualsLayersOfTorch) {
  EncoderDecoder model = tiny_translator(tiny_translator_options());
  const EncoderOptions& options = model->options.encoder;
  const Batch batch = translation_batch({5, 3}, {4, 6});
  const auto copy = [](torch::nn::Module& to, torch::nn::Module& from) {
    torch::NoGradGuard no_grad;
    auto theirs = to.named_parameters();
    for (const auto& item : from.named_parameters()) {
      at::Tensor* const parameter = theirs.find(item.key());
      ASSERT_TRUE(parameter) << item.key();
      parameter->copy_(item.value());
    }
  };
  const auto embed = [&](const at::Tensor& tokens) {  // [N, B, dim]
    return (torch::embedding(model->token_embedding->weight, tokens) * 4 +
            sinusoids(tokens.size(1), options.dim).to(torch::kDouble))
        .transpose(0, 1);
  };
  const at::Tensor source_padding = batch.towers[0].mask.logical_not();
  at::Tensor x = embed(batch.towers[0].tokens);
  std::vector<torch::nn::TransformerEncoderLayer> encoder;
  std::vector<torch::nn::TransformerDecoderLayer> decoder;
  for (int64_t n = 0; n < options.layers; ++n) {
    encoder.emplace_back(torch::nn::TransformerEncoderLayerOptions(options.dim, options.heads)
                             .dim_feedforward(options.hidden)
                             .dropout(0)
                             .activation(torch::kReLU));
    encoder.back()->to(torch::kDouble);
    copy(*encoder.back(), *model->encoder->layers[static_cast<size_t>(n)]);
    x = encoder.back()->forward(x, {}, source_padding);
  }
  at::Tensor y = embed(batch.towers[1].tokens);
  const int64_t length = y.size(0);
  const at::Tensor future = torch::full({length, length}, -INFINITY, torch::kDouble).triu(1);
  for (int64_t n = 0; n < options.layers; ++n) {
    decoder.emplace_back(torch::nn::TransformerDecoderLayerOptions(options.dim, options.heads)
                             .dim_feedforward(options.hidden)
                             .dropout(0)
                             .activation(torch::kReLU));
    decoder.back()->to(torch::kDouble);
    copy(*decoder.back(), *model->layers[static_cast<size_t>(n)]);
    y = decoder.back()->forward(y, x, future, {}, {}, source_padding);
  }
  namespace F = torch::nn::functional;
  const auto loss = [&](const at::Tensor& logits) {
    return F::cross_entropy(logits.flatten(0, 1), batch.labels.flatten(),
                            F::CrossEntropyFuncOptions().ignore_index(-1).reduction(torch::kSum));
  };
  const at::Tensor theirs = loss(F::linear(y.transpose(0, 1), model->token_embedding->weight)),
                   ours = loss(run(model, batch));
  EXPECT_NEAR(ours.item<double>(), theirs.item<double>(), 1e-9);
  const at::Tensor table = model->token_embedding->weight,
                   across = model->layers[0]->multihead_attn->parameters()[0];
  const at::Tensor our_table = torch::autograd::grad({ours}, {table}, {}, true)[0],
                   our_across = torch::autograd::grad({ours}, {across})[0],
                   their_table = torch::autograd::grad({theirs}, {table}, {}, true)[0],
                   their_across =
                       torch::autograd::grad({theirs}, {decoder[0]->multihead_attn->in_proj_weight})[0];
  EXPECT_LT((our_table - their_table).abs().max().item<double>(), 1e-9);
  EXPECT_LT((our_across - their_across).abs().max().item<double>(), 1e-9);
}

// A pre-norm decoder block in plain ATen.
TEST(EncoderDecoderTest, PreNormEqualsPlainAten) {
  EncoderDecoderOptions options = tiny_translator_options();
  options.encoder.style.norm_first = true;
  options.encoder.style.activation = Activation::kGelu;
  options.encoder.layers = 1;
  options.encoder.positions = Positions::kLearned;
  options.tied = false;
  options.shared_embedding = false;
  EncoderDecoder model = tiny_translator(options);
  const Batch batch = translation_batch({5}, {4});
  const auto parameters = model->named_parameters();
  const auto p = [&](const std::string& name) { return parameters[name]; };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {16}, p(name + ".weight"), p(name + ".bias"));
  };
  const auto attend = [&](const at::Tensor& q, const at::Tensor& kv, const std::string& name, bool causal) {
    const auto weights = p(name + ".in_proj_weight").chunk(3), biases = p(name + ".in_proj_bias").chunk(3);
    const auto heads = [&](const at::Tensor& x, int part) {  // [H, N, D]
      return torch::addmm(biases[static_cast<size_t>(part)], x, weights[static_cast<size_t>(part)].t())
          .view({x.size(0), 2, 8})
          .transpose(0, 1);
    };
    at::Tensor scores = heads(q, 0).matmul(heads(kv, 1).transpose(1, 2)) / std::sqrt(8.0);
    if (causal) scores = scores + torch::full({q.size(0), kv.size(0)}, -INFINITY, torch::kDouble).triu(1);
    const at::Tensor mixed = scores.softmax(-1).matmul(heads(kv, 2)).transpose(0, 1).reshape({q.size(0), 16});
    return torch::addmm(p(name + ".out_proj.bias"), mixed, p(name + ".out_proj.weight").t());
  };
  const auto mlp = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor hidden =
        torch::gelu(torch::addmm(p(name + ".linear1.bias"), x, p(name + ".linear1.weight").t()));
    return torch::addmm(p(name + ".linear2.bias"), hidden, p(name + ".linear2.weight").t());
  };
  at::Tensor x = torch::embedding(p("encoder.token_embedding.weight"), batch.towers[0].tokens[0]) * 4 +
                 p("encoder.position_embedding.weight").slice(0, 0, 5);
  const at::Tensor inner = norm(x, "encoder.layers.0.norm1");
  x = x + attend(inner, inner, "encoder.layers.0.self_attn", false);
  x = x + mlp(norm(x, "encoder.layers.0.norm2"), "encoder.layers.0");
  x = norm(x, "encoder.norm");
  at::Tensor y = torch::embedding(p("token_embedding.weight"), batch.towers[1].tokens[0]) * 4 +
                 p("position_embedding.weight").slice(0, 0, 4);
  const at::Tensor own = norm(y, "layers.0.norm1");
  y = y + attend(own, own, "layers.0.self_attn", true);
  y = y + attend(norm(y, "layers.0.norm2"), x, "layers.0.multihead_attn", false);
  y = y + mlp(norm(y, "layers.0.norm3"), "layers.0");
  const at::Tensor wanted = norm(y, "norm").matmul(p("output.weight").t());
  EXPECT_LT((run(model, batch)[0] - wanted).abs().max().item<double>(), 1e-9);
}

TEST(EncoderDecoderTest, StartsAsFairseqDoes) {
  EncoderDecoderOptions options = tiny_translator_options();
  options.encoder.dim = 64;
  options.encoder.vocabulary = 500;
  const EncoderDecoder model = tiny_translator(options);
  const at::Tensor table = model->token_embedding->weight;
  EXPECT_NEAR(table.std().item<double>(), 1 / 8.0, 0.005);
  EXPECT_EQ(table[1].abs().max().item<double>(), 0);
  const auto parameters = model->named_parameters();
  const double bound = std::sqrt(6.0 / 128) / std::sqrt(2.0);
  EXPECT_NEAR(parameters["layers.0.multihead_attn.in_proj_weight"].abs().max().item<double>(), bound, 1e-3);
  EXPECT_NEAR(parameters["layers.0.linear1.weight"].abs().max().item<double>(), std::sqrt(6.0 / 88), 2e-3);
  EXPECT_EQ(parameters["layers.0.multihead_attn.out_proj.bias"].abs().max().item<double>(), 0);
}

// The published tiny Transformer: 128 / 256 / 4 / 4 over 9,712 pieces.
TEST(EncoderDecoderTest, HasTheParametersOfTransformerTiny) {
  EncoderDecoderOptions options = tiny_translator_options();
  options.encoder.vocabulary = 9712;
  options.encoder.dim = 128;
  options.encoder.hidden = 256;
  options.encoder.heads = 4;
  options.encoder.layers = 4;
  const EncoderDecoder model(options);
  int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 2568192);
}

TEST(EncoderDecoderTest, FullEdgesEqualDenseAttention) {
  EncoderDecoder dense = tiny_translator(tiny_translator_options()),
                 full = tiny_translator(tiny_translator_options(edges_named("full")));
  const Batch batch = translation_batch({5, 3, 7}, {4, 6, 2});
  const at::Tensor valid = batch.towers[1].mask.unsqueeze(-1);
  EXPECT_LT(((run(dense, batch) - run(full, batch)) * valid).abs().max().item<double>(), 1e-9);
}

class EdgesOfTranslation : public ::testing::TestWithParam<const char*> {};

// What stands beside a sentence, and how far it is padded, changes nothing.
TEST_P(EdgesOfTranslation, PaddingChangesNothing) {
  EncoderDecoder model = tiny_translator(tiny_translator_options(edges_named(GetParam())));
  const Batch batch = translation_batch({5, 9, 3}, {4, 2, 7});
  const at::Tensor together = run(model, batch);
  for (int64_t item = 0; item < 3; ++item) {
    Batch alone = slice_items(batch, item, 1);
    for (Tower& tower : alone.towers) {
      const int64_t length = tower.mask.sum().item<int64_t>();
      tower = {.tokens = tower.tokens.slice(1, 0, length)};
    }
    const at::Tensor wanted = run(model, alone, item);
    const at::Tensor found = together[item].slice(0, 0, wanted.size(1));
    EXPECT_LT((found - wanted[0]).abs().max().item<double>(), 1e-9) << "item " << item;
  }
}

// A group's window across reaches as far when the translations beside it are longer.
TEST(EncoderDecoderTest, SquaresAcrossDoNotDependOnPadding) {
  EncoderDecoderOptions options = tiny_translator_options(edges_named("window in squares"));
  options.encoder.max_length = 64;
  EncoderDecoder model = tiny_translator(options);
  const Batch batch = translation_batch({60, 40}, {9, 30});
  const at::Tensor together = run(model, batch);
  Batch alone = slice_items(batch, 0, 1);
  alone.towers[1] = {.tokens = alone.towers[1].tokens.slice(1, 0, 9),
                     .mask = alone.towers[1].mask.slice(1, 0, 9)};
  EXPECT_LT((together[0].slice(0, 0, 9) - run(model, alone)[0]).abs().max().item<double>(), 1e-9);
}

// No token sees one after it, however it is read.
TEST_P(EdgesOfTranslation, TheCacheGivesWhatTheWholeGives) {
  for (const Positions positions : {Positions::kSinusoidal, Positions::kRotary}) {
    EncoderDecoderOptions options = tiny_translator_options(edges_named(GetParam()));
    options.encoder.positions = positions;
    EncoderDecoder model = tiny_translator(options);
    ASSERT_EQ(model->cache_refusal(), "");
    const Batch batch = translation_batch({5, 9, 3}, {6, 6, 6});
    const at::Tensor whole = run(model, batch);
    const RandomStream random;
    const EncodedSource source = model->encode(batch.towers[0], random);
    TranslationCache cache;
    for (int64_t n = 0; n < 6; ++n) {
      const at::Tensor read = model->read(batch.towers[1].tokens.slice(1, n, n + 1), source, random, cache),
                       plain = model->read(batch.towers[1].tokens.slice(1, 0, n + 1), source, random);
      EXPECT_LT((plain - whole.select(1, n)).abs().max().item<double>(), 1e-9) << n;
      EXPECT_LT((read - whole.select(1, n)).abs().max().item<double>(), 1e-9) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, EdgesOfTranslation, ::testing::Values("full", "window", "random", "sbm"));

// Layers in the output: encoder, decoder, across.
void check_edges_across(const std::string& name, const Batch& batch) {
  SCOPED_TRACE(name);
  EncoderDecoder model = tiny_translator(tiny_translator_options(edges_named(name)));
  const ModelOutput output = model->forward({.batch = batch, .keep_edges = true});
  ASSERT_EQ(output.edges.size(), 6u);
  EXPECT_EQ(output.densities.sizes(), (std::vector<int64_t>{6, 2}));
  const int64_t queries = batch.towers[1].length(), keys = batch.towers[0].length();
  const at::Tensor sources =
      batch.towers[0].mask.defined() ? batch.towers[0].mask : torch::ones({batch.size(), keys}, torch::kBool);
  const at::Tensor valid = (batch.towers[1].mask.unsqueeze(2) & sources.unsqueeze(1)).unsqueeze(1);
  for (size_t layer = 4; layer < 6; ++layer) {
    const EdgeSet& edges = output.edges[layer];
    EXPECT_EQ(edges.shape().queries, queries);
    EXPECT_EQ(edges.shape().keys, keys);
    const at::Tensor mask = edges.to_mask();
    EXPECT_FALSE((mask & valid.logical_not()).any().item<bool>());
    const double wanted =
        mask.select(1, 0).sum().item<double>() / static_cast<double>(valid.sum().item<int64_t>());
    EXPECT_NEAR(output.densities[static_cast<int64_t>(layer)][0].item<double>(), wanted, 1e-12);
    const at::Tensor degrees = mask.sum(-1);  // [B, H, T]
    if (name == "random") {
      const at::Tensor rows = batch.towers[1].mask.unsqueeze(1).expand_as(degrees);
      EXPECT_TRUE(degrees.masked_select(rows).eq(2).all().item<bool>());
    }
    if (name == "window") {
      const at::Tensor far = (torch::arange(queries).unsqueeze(1) - torch::arange(keys)).abs() > 2;
      EXPECT_TRUE(torch::equal(mask, (valid & far.logical_not()).expand_as(mask)));
    }
  }
}

TEST(EncoderDecoderTest, EdgesAcrossLieBetweenValidTokens) {
  for (const char* const name : {"full", "window", "random", "sbm"}) {
    check_edges_across(name, translation_batch({5, 9, 3}, {4, 2, 7}));
    // Only the translations are padded; and as many queries as keys, which are not the same tokens.
    Batch whole = translation_batch({7, 7, 7}, {4, 2, 7});
    whole.towers[0].mask = at::Tensor();
    check_edges_across(name, whole);
  }
}

TEST(EncoderDecoderTest, TheLossTeachesEdgesAcross) {
  EncoderDecoderOptions options = tiny_translator_options();
  options.cross_edges = edges_named("sbm");
  EncoderDecoder model = tiny_translator(options);
  model->train();
  const Batch batch = translation_batch({5, 9, 3}, {4, 2, 7});
  const ModelOutput output = model->forward({.batch = batch});
  ASSERT_EQ(output.tower_penalties.size(), 2u);
  output.logits.square().mean().backward();
  const auto parameters = model->named_parameters();
  EXPECT_GT(parameters["layers.0.multihead_attn.edges.clusters"].grad().abs().max().item<double>(), 0);
}

TEST(EncoderDecoderTest, LearnsByRewardAcross) {
  EncoderDecoderOptions options = tiny_translator_options();
  options.cross_edges = [](int64_t) -> EdgeSourcePtr {
    SacEdgesOptions sac(2, 16);
    sac.alpha = 2;
    sac.node_dim = 8;
    return SacEdges(sac).ptr();
  };
  EncoderDecoder model = tiny_translator(options);
  EXPECT_THAT(model->cache_refusal(), HasSubstr("one growing sequence"));
  const Batch batch = translation_batch({5, 9, 3}, {4, 2, 7});
  EXPECT_TRUE(torch::isfinite(run(model, batch)).all().item<bool>());
}

TEST(EncoderDecoderTest, SourcesThatCannotAreRefusedWithASentence) {
  const auto message = [](const EdgeSourceFactory& cross) -> std::string {
    EncoderDecoderOptions options = tiny_translator_options();
    options.cross_edges = cross;
    try {
      EncoderDecoder model(options);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  EXPECT_THAT(message([](int64_t) -> EdgeSourcePtr {
                return std::make_shared<SegmentEdges>(SegmentEdgesOptions{.segment = 4});
              }),
              HasSubstr("the place of its query among the keys"));
  EXPECT_THAT(message([](int64_t) -> EdgeSourcePtr {
                SacEdgesOptions sac(2, 16);
                sac.walk = SacWalk::kPairs;
                sac.estimator = SacEstimator::kPaired;
                return SacEdges(sac).ptr();
              }),
              HasSubstr("use sac.walk = rooted"));
  EXPECT_THAT(message([](int64_t) -> EdgeSourcePtr {
                SbmEdgesOptions sbm(2, 8);
                sbm.self_loops = true;
                return SbmEdges(sbm).ptr();
              }),
              HasSubstr("self_loops"));
}

TEST(EncoderDecoderTest, RotaryPositionsLookAtDistancesAlone) {
  MultiheadEdgeAttentionOptions options(16, 2);
  options.rotary = true;
  torch::manual_seed(4);
  MultiheadEdgeAttention attention(options);
  attention->to(torch::kDouble);
  const at::Tensor token = torch::randn({1, 1, 16}, torch::kDouble),
                   other = torch::randn({1, 1, 16}, torch::kDouble),
                   nothing = torch::zeros({1, 3, 16}, torch::kDouble);
  const auto mask = [](std::vector<int64_t> places) {
    at::Tensor result = torch::zeros({1, 8}, torch::kBool);
    for (const int64_t place : places) result[0][place] = true;
    return result;
  };
  // The same pair two apart at the places 0, 2 and at 3, 5.
  at::Tensor early = torch::zeros({1, 8, 16}, torch::kDouble), late = early.clone();
  early[0][0] = token[0][0], early[0][2] = other[0][0];
  late[0][3] = token[0][0], late[0][5] = other[0][0];
  const at::Tensor a = attention->forward(early, mask({0, 2})).output,
                   b = attention->forward(late, mask({3, 5})).output;
  EXPECT_LT((a[0][0] - b[0][3]).abs().max().item<double>(), 1e-6);
  at::Tensor near = torch::zeros({1, 8, 16}, torch::kDouble);
  near[0][0] = token[0][0], near[0][1] = other[0][0];
  const at::Tensor c = attention->forward(near, mask({0, 1})).output;
  EXPECT_GT((a[0][0] - c[0][0]).abs().max().item<double>(), 1e-4);
}

}  // namespace
}  // namespace edgewise
