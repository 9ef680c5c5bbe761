// Transformer-XL, Adaptive Span, BP-Transformer and vanilla attention against plain dense fp64 versions,
// gradients too; and each reached by constraining SacEdges.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/attention/special_cases.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "attention/method_inputs.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using kit::kClose;

at::Tensor heads_of(const at::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, -1}).transpose(1, 2);
}

// Output and gradients of both versions agree: all parameters of the module, and x.
template <typename Module>
void expect_same(Module& module, const at::Tensor& x, const at::Tensor& ours, const at::Tensor& plain) {
  ASSERT_EQ(ours.sizes(), plain.sizes());
  EXPECT_LT((ours - plain).abs().max().template item<double>(), kClose);
  std::vector<at::Tensor> inputs = {x};
  for (const at::Tensor& parameter : module->parameters()) inputs.push_back(parameter);
  const at::Tensor weight = kit::randn(ours.sizes(), 77, at::kDouble);
  const auto a = torch::autograd::grad({(ours * weight).sum()}, inputs, {}, true, false, true);
  const auto b = torch::autograd::grad({(plain * weight).sum()}, inputs, {}, true, false, true);
  for (size_t n = 0; n < a.size(); ++n) {
    ASSERT_EQ(a[n].defined(), b[n].defined()) << n;
    if (a[n].defined()) {
      EXPECT_LT((a[n] - b[n]).abs().max().template item<double>(), kClose) << "input " << n;
    }
  }
}

template <typename Module>
void randomise(Module& module) {
  module->to(at::kDouble);
  const torch::NoGradGuard guard;
  int64_t seed = 100;
  for (at::Tensor& parameter : module->parameters())
    parameter.copy_(kit::randn(parameter.sizes(), ++seed, at::kDouble) * 0.5);
}

// Softmax over allowed pairs, with gates; rows with nothing give 0.
at::Tensor dense_rows(const at::Tensor& scores, const at::Tensor& allowed, const at::Tensor& gates = {}) {
  const at::Tensor masked = scores.masked_fill(~allowed, -1e30);
  at::Tensor shares = (masked - masked.detach().amax(-1, true)).exp().masked_fill(~allowed, 0);
  if (gates.defined()) shares = shares * gates;
  const at::Tensor total = shares.sum(-1, true);
  return shares / torch::where(total > 0, total, at::ones_like(total));
}

SacEdgesOptions constrained(int64_t heads, int64_t width, int64_t alpha, EdgeSourcePtr candidates,
                            SacWalk walk) {
  SacEdgesOptions options(heads, width);
  options.node_dim = 4;
  options.walk = walk;
  options.alpha = alpha;
  options.sharing = SacSharing::kPerHead;
  options.candidates = std::move(candidates);
  if (walk == SacWalk::kPairs) options.estimator = SacEstimator::kPaired;
  return options;
}

void expect_same_edges(const EdgeSet& a, const EdgeSet& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(at::equal(a.row_offsets(), b.row_offsets()) && at::equal(a.col_indices(), b.col_indices()));
}

// ---- Transformer-XL ----

// The published arrangement: distances S - 1 .. 0, relative shift by padding a column and dropping a row.
at::Tensor dense_transformer_xl(TransformerXlAttention& m, const at::Tensor& x, const at::Tensor& memory,
                                const at::Tensor& allowed) {
  const int64_t heads = m->options.num_heads, length = x.size(1);
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;
  const int64_t keys = all.size(1);
  const at::Tensor q = heads_of(m->q_proj->forward(x), heads), k = heads_of(m->k_proj->forward(all), heads),
                   v = heads_of(m->v_proj->forward(all), heads);
  at::Tensor position = at::arange(keys - 1, -1, -1, at::kDouble);
  if (m->options.clamp_length > 0) position = position.clamp_max(m->options.clamp_length);
  const int64_t width = m->options.embed_dim;
  const at::Tensor angle = position.unsqueeze(1) * at::pow(10000.0, -at::arange(0, width, 2, at::kDouble) /
                                                                        static_cast<double>(width));
  const at::Tensor r =
      heads_of(m->r_proj->forward(at::cat({angle.sin(), angle.cos()}, 1)).unsqueeze(0), heads);
  const at::Tensor content = at::matmul(q + m->content_bias.unsqueeze(1), k.transpose(2, 3));
  at::Tensor shifted = at::matmul(q + m->position_bias.unsqueeze(1), r.transpose(2, 3));  // [B, H, L, S]
  shifted = at::cat({at::zeros({x.size(0), heads, length, 1}, at::kDouble), shifted}, 3)
                .reshape({x.size(0), heads, keys + 1, length})
                .narrow(2, 1, keys)
                .reshape({x.size(0), heads, length, keys});
  const at::Tensor scores = (content + shifted) / std::sqrt(static_cast<double>(q.size(3)));
  return m->out_proj->forward(at::matmul(dense_rows(scores, allowed), v).transpose(1, 2).flatten(2));
}

struct XlCase {
  int64_t memory;
  bool same_length;
  int64_t clamp;
};
class TransformerXl : public testing::TestWithParam<XlCase> {};
INSTANTIATE_TEST_SUITE_P(Forms, TransformerXl,
                         testing::Values(XlCase{0, false, 0}, XlCase{5, false, 0}, XlCase{5, true, 0},
                                         XlCase{9, false, 4}));

TEST_P(TransformerXl, EqualsTheDenseForm) {
  const auto [memory_length, same_length, clamp] = GetParam();
  TransformerXlOptions options{
      .embed_dim = 8, .num_heads = 2, .memory = memory_length, .same_length = same_length};
  options.clamp_length = clamp;
  TransformerXlAttention module(options);
  randomise(module);
  const at::Tensor x = kit::randn({2, 6, 8}, 1, at::kDouble).requires_grad_();
  const at::Tensor memory =
      memory_length > 0 ? kit::randn({2, memory_length, 8}, 2, at::kDouble) : at::Tensor();
  const int64_t keys = 6 + memory_length;
  const at::Tensor position = at::arange(6).unsqueeze(1) + memory_length, key = at::arange(keys).unsqueeze(0);
  at::Tensor allowed = key <= position;
  if (same_length) allowed = allowed & (key > position - memory_length);
  const at::Tensor mask = at::ones({2, keys}, at::kBool);
  mask[1].narrow(0, keys - 2, 2).fill_(false);
  for (const bool masked : {false, true}) {
    const at::Tensor open =
        masked ? allowed & mask.view({2, 1, 1, keys}) & mask.narrow(1, memory_length, 6).view({2, 1, 6, 1})
               : allowed.expand({2, 1, 6, keys});
    expect_same(module, x, module->forward(x, memory, masked ? std::optional(mask) : std::nullopt),
                dense_transformer_xl(module, x, memory, open));
  }
}

TEST(TransformerXlMemory, SegmentsWithMemoryEqualOnePassOverTheWhole) {
  // A memory as long as all that went before: segment by segment is one causal pass.
  TransformerXlAttention module(TransformerXlOptions{.embed_dim = 8, .num_heads = 2, .memory = 12});
  randomise(module);
  const at::Tensor x = kit::randn({2, 12, 8}, 1, at::kDouble);
  const at::Tensor whole = module->forward(x);
  at::Tensor memory;
  for (int64_t first = 0; first < 12; first += 4) {
    const at::Tensor part = x.narrow(1, first, 4);
    EXPECT_TRUE(at::allclose(module->forward(part, memory), whole.narrow(1, first, 4), 0, kClose));
    memory = module->next_memory(memory, part);
  }
  EXPECT_EQ(memory.size(1), 12);
}

TEST(TransformerXlMemory, NoGradientEntersTheMemory) {
  TransformerXlAttention module(TransformerXlOptions{.embed_dim = 8, .num_heads = 2, .memory = 3});
  const at::Tensor x = torch::randn({1, 4, 8}).requires_grad_();
  const at::Tensor memory = module->next_memory({}, x);
  EXPECT_EQ(memory.size(1), 3);
  EXPECT_FALSE(memory.requires_grad());
}

// ---- Adaptive Span ----

class AdaptiveSpan : public testing::TestWithParam<std::tuple<bool, bool>> {};  // causal, include_self
INSTANTIATE_TEST_SUITE_P(Forms, AdaptiveSpan,
                         testing::Values(std::tuple(true, false), std::tuple(true, true),
                                         std::tuple(false, false)));

TEST_P(AdaptiveSpan, EqualsTheDenseForm) {
  const auto [causal, include_self] = GetParam();
  AdaptiveSpanOptions options{.embed_dim = 9,
                              .span = {.num_heads = 3, .limit = 10, .ramp = 4, .include_self = include_self}};
  options.is_causal = causal;
  AdaptiveSpanAttention module(options);
  randomise(module);
  {
    const torch::NoGradGuard guard;
    module->spans->span.copy_(torch::tensor({0.03, 0.33, 0.97}, at::kDouble));
  }
  const at::Tensor x = kit::randn({2, 14, 9}, 1, at::kDouble).requires_grad_();
  const at::Tensor memory = causal ? kit::randn({2, 5, 9}, 2, at::kDouble) : at::Tensor();
  const at::Tensor all = causal ? at::cat({memory, x}, 1) : x;
  const int64_t keys = all.size(1), offset = keys - 14;
  const at::Tensor q = heads_of(module->q_proj->forward(x), 3), k = heads_of(module->k_proj->forward(all), 3),
                   v = heads_of(module->v_proj->forward(all), 3);
  // x of every pair, the gate m over all pairs, the softmax over all x < limit: nothing is cut but by its
  // gate.
  const at::Tensor distance = at::arange(14).unsqueeze(1) + offset - at::arange(keys).unsqueeze(0);  // p - j
  const at::Tensor far = causal ? distance - (include_self ? 0 : 1) : distance.abs();
  const at::Tensor within = (far >= 0) & (far < 10);
  const at::Tensor types =
      far.clamp(0, 9) + (causal ? at::zeros_like(far) : (distance < 0).to(at::kLong) * 10);
  const at::Tensor relative = (q.unsqueeze(3) * module->positions.index({types})).sum(-1);
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) + relative) / std::sqrt(3.0);
  const at::Tensor z = (module->spans->span * 10).view({3, 1, 1});
  const at::Tensor gates = ((4 + z - far) / 4).clamp(0, 1);
  const at::Tensor plain = module->out_proj->forward(
      at::matmul(dense_rows(scores, within.expand({2, 3, 14, keys}), gates), v).transpose(1, 2).flatten(2));
  for (const SpanForm form : {SpanForm::kEdges, SpanForm::kAllPairs}) {
    module->options.form = form;
    expect_same(module, x, module->forward(x, memory), plain);
  }
}

TEST(AdaptiveSpanEdges, AShortHeadIsCheapBesideALongOne) {
  SpanEdges spans({.num_heads = 2, .limit = 1000, .ramp = 10, .include_self = false});
  {
    const torch::NoGradGuard guard;
    spans.span[1].fill_(0.5);
  }
  EdgeRequest request;
  request.query = request.key = at::zeros({1, 2, 800, 1});
  request.is_causal = true;
  const at::Tensor last = spans.choose(request).edges.degrees()[0].select(1, 799);
  EXPECT_EQ(last[0].item<int64_t>(), 10);
  EXPECT_EQ(last[1].item<int64_t>(), 510);
  EXPECT_NEAR(spans.mean_span().item<double>(), 250, 1e-4);
  {
    const torch::NoGradGuard guard;
    spans.span[0].fill_(-1);
  }
  spans.clamp_span();
  EXPECT_EQ(spans.span.min().item<double>(), 0);
}

// ---- BP-Transformer ----

struct TreeCase {
  int64_t tokens, step;
  bool causal;
};
class Tree : public testing::TestWithParam<TreeCase> {};
INSTANTIATE_TEST_SUITE_P(Forms, Tree,
                         testing::Values(TreeCase{8, 1, false}, TreeCase{13, 2, false}, TreeCase{13, 2, true},
                                         TreeCase{1, 1, false}, TreeCase{6, 3, true}));

TEST_P(Tree, EqualsTheDenseForm) {
  const auto [tokens, step, causal] = GetParam();
  TreeAttentionOptions options{.embed_dim = 8,
                               .num_heads = 2,
                               .tree = {.tokens = tokens, .step = step, .is_causal = causal, .clip = 2}};
  TreeAttention module(options);
  randomise(module);
  const int64_t nodes = module->tree->graph().nodes;
  const at::Tensor x = kit::randn({2, nodes, 8}, 1, at::kDouble).requires_grad_();
  // The graph as matrices.
  at::Tensor allowed = at::zeros({nodes, nodes}, at::kBool), types = at::zeros({nodes, nodes}, at::kLong);
  const TreeGraph& graph = module->tree->graph();
  for (int64_t i = 0; i < nodes; ++i)
    for (int64_t e = graph.row_offsets[i].item<int64_t>(); e < graph.row_offsets[i + 1].item<int64_t>();
         ++e) {
      allowed[i][graph.col_indices[e].item<int64_t>()] = true;
      types[i][graph.col_indices[e].item<int64_t>()] = graph.types[e];
    }
  const at::Tensor q = heads_of(module->q_proj->forward(x), 2), k = heads_of(module->k_proj->forward(x), 2),
                   v = heads_of(module->v_proj->forward(x), 2);
  const at::Tensor scores =
      (at::matmul(q, k.transpose(2, 3)) + (q.unsqueeze(3) * module->types.index({types})).sum(-1)) / 2.0;
  const at::Tensor mask =
      at::arange(tokens).unsqueeze(0) < torch::tensor({tokens, (tokens + 1) / 2}).unsqueeze(1);
  {
    const c10::InferenceMode guard;  // leaves nothing behind that training could not use
    module->forward(x.detach());
  }
  for (const bool masked : {false, true}) {
    at::Tensor open = allowed.expand({2, 1, nodes, nodes});
    if (masked) {
      const at::Tensor valid = module->tree->node_mask(mask);
      open = open & valid.view({2, 1, 1, nodes}) & valid.view({2, 1, nodes, 1});
    }
    const at::Tensor plain =
        module->out_proj->forward(at::matmul(dense_rows(scores, open), v).transpose(1, 2).flatten(2));
    expect_same(module, x, module->forward(x, masked ? std::optional(mask) : std::nullopt), plain);
  }
}

// ---- each reached by constraining SAC ----

class Constrained : public testing::TestWithParam<SacWalk> {};
INSTANTIATE_TEST_SUITE_P(Both, Constrained, testing::Values(SacWalk::kRooted, SacWalk::kPairs));

EdgeRequest plain_request(int64_t batch, int64_t heads, int64_t queries, int64_t keys, bool causal) {
  EdgeRequest request;
  request.query = kit::randn({batch, heads, queries, 4}, 1);
  request.key = kit::randn({batch, heads, keys, 4}, 2);
  request.tokens = kit::randn({batch, queries, heads * 4}, 3);
  request.key_tokens = kit::randn({batch, keys, heads * 4}, 4);
  request.is_causal = causal;
  request.query_offset = causal ? keys - queries : 0;
  return request;
}

TEST_P(Constrained, ReachesEverySpecialCase) {
  const auto check = [&](const EdgeSourcePtr& source, const EdgeRequest& request) {
    const EdgeSet wanted = source->choose(request).edges;
    const int64_t most = wanted.degrees().max().item<int64_t>();
    for (const bool training : {true, false}) {
      torch::manual_seed(0);
      SacEdges sac(constrained(request.shape().heads, 8, most, source, GetParam()));
      sac->train(training);
      expect_same_edges(sac->choose(request).edges, wanted);
    }
  };
  for (const bool causal : {false, true})
    check(std::make_shared<FullEdges>(), plain_request(2, 2, 9, 9, causal));
  for (const bool same_length : {false, true})
    check(std::make_shared<SegmentEdges>(
              SegmentEdgesOptions{.segment = 4, .memory = 3, .same_length = same_length}),
          plain_request(2, 2, 12, 12, true));
  check(std::make_shared<SegmentEdges>(SegmentEdgesOptions{.segment = 4, .memory = 5}),
        plain_request(2, 2, 4, 9, true));
  for (const bool causal : {false, true}) {
    auto spans = std::make_shared<SpanEdges>(SpanEdgesOptions{.num_heads = 2, .limit = 8, .ramp = 2});
    {
      const torch::NoGradGuard guard;
      spans->span.copy_(torch::tensor({0.1, 0.7}));
    }
    check(spans, plain_request(2, 2, 12, 12, causal));
    auto tree = std::make_shared<TreeEdges>(TreeEdgesOptions{.tokens = 7, .step = 1, .is_causal = causal});
    check(tree, plain_request(1, 2, tree->graph().nodes, tree->graph().nodes, false));
  }
}

TEST(ConstrainedSac, GivesTheSameOutputAsTheMethodItIsConstrainedTo) {
  TransformerXlOptions options{.embed_dim = 8, .num_heads = 2, .memory = 5};
  TransformerXlAttention own(options);
  randomise(own);
  options.source =
      SacEdges(constrained(2, 8, 20,
                           std::make_shared<SegmentEdges>(SegmentEdgesOptions{.segment = 6, .memory = 5}),
                           SacWalk::kRooted))
          .ptr();
  TransformerXlAttention sac(options);
  sac->to(at::kDouble);
  sac->eval();  // the scores teach SAC nothing about single edges
  {
    const torch::NoGradGuard guard;
    auto from = own->named_parameters();
    for (auto& item : sac->named_parameters())
      if (from.contains(item.key())) item.value().copy_(from[item.key()]);
  }
  const at::Tensor x = kit::randn({2, 6, 8}, 1, at::kDouble), memory = kit::randn({2, 5, 8}, 2, at::kDouble);
  EXPECT_TRUE(at::allclose(own->forward(x, memory), sac->forward(x, memory), 0, kClose));
}

// A source that would learn from single edges would learn nothing, without a word.
TEST(ConstrainedSac, WhatLearnsFromSingleEdgesIsRefused) {
  TransformerXlOptions options{.embed_dim = 8, .num_heads = 2};
  SacEdgesOptions sac = constrained(2, 8, 2, nullptr, SacWalk::kRooted);
  const at::Tensor x = kit::randn({1, 5, 8}, 1);
  for (const SacEstimator estimator : {SacEstimator::kCounterfactual, SacEstimator::kReinforce}) {
    sac.estimator = estimator;
    options.source = SacEdges(sac).ptr();
    TransformerXlAttention attention(options);
    if (estimator == SacEstimator::kCounterfactual) {
      EXPECT_THROW(attention->attend({.x = x}), c10::NotImplementedError);
    } else {
      EXPECT_TRUE(attention->attend({.x = x}).policy) << "its rewards are the model's business";
    }
    attention->eval();
    EXPECT_FALSE(attention->attend({.x = x}).policy);
  }
}

TEST(ConstrainedSac, VanillaIsDenseAttention) {
  MultiheadEdgeAttentionOptions dense(8, 2), sac(8, 2);
  SacEdgesOptions all(2, 8);
  all.alpha = 10;
  sac.source = SacEdges(all).ptr();
  for (const bool causal : {false, true}) {
    dense.is_causal = sac.is_causal = causal;
    MultiheadEdgeAttention a(dense), b(sac);
    a->to(at::kDouble);
    b->to(at::kDouble);
    {
      const torch::NoGradGuard guard;
      b->in_proj_weight.copy_(a->in_proj_weight);
      b->in_proj_bias.copy_(a->in_proj_bias);
      b->out_proj->weight.copy_(a->out_proj->weight);
      b->out_proj->bias.copy_(a->out_proj->bias);
    }
    const at::Tensor x = kit::randn({2, 10, 8}, 1, at::kDouble);
    EXPECT_TRUE(at::allclose(a->forward(x).output, b->forward(x).output, 0, kClose));
  }
}

}  // namespace
}  // namespace edgewise
