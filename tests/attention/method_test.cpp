// What holds for every attention method: gradients, padding, batch mates, devices, reduced precision, and how
// MultiheadEdgeAttention uses them.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/edges/bucket_edges.h>
#include <edgewise/ops/functional.h>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/method_inputs.h"
#include "kit/devices.h"
#include "kit/other_bytes.h"

namespace edgewise {
namespace {

using namespace kit;

class Method : public testing::TestWithParam<MethodCase> {
 protected:
  AttentionMethodPtr method_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(Every, Method, every_method(), [](const auto& given) { return given.param.name; });

bool close(const at::Tensor& a, const at::Tensor& b) {
  return torch::allclose(a, b, 1e-9, 1e-11);
}

MethodInput item(const MethodInput& input, int64_t index) {
  MethodInput result = input;
  for (at::Tensor* x : {&result.query, &result.key, &result.value}) *x = x->slice(0, index, index + 1);
  if (input.key_mask) result.key_mask = input.key_mask->slice(0, index, index + 1);
  result.random.first_item += index;
  return result;
}

TEST_P(Method, ItemsDependOnTheirBatchMatesOnlyWhereThatIsReproduced) {
  const MethodInput input = method_input(3, 24, mask_of({24, 17, 3}, 24));
  const at::Tensor together = method_->attend(input);
  bool same = true;
  for (int64_t b = 0; b < 3; ++b) same = same && close(together[b], method_->attend(item(input, b))[0]);
  EXPECT_EQ(same, !GetParam().mixes_batch);
}

// In mode paper the numbers behind an item's padding, and how much of it there is, do not matter; and its
// output is 0. The harness divides by the padded length or keeps padding in its sums.
TEST_P(Method, PaddingDoesNotMatterInModePaper) {
  if (!GetParam().is_paper) GTEST_SKIP() << "the harness counts padding";
  const MethodInput short_input = method_input(2, 16, mask_of({16, 9}, 16));
  MethodInput long_input = method_input(2, 40, mask_of({16, 9}, 40), 2);
  long_input.query.slice(2, 0, 16).copy_(short_input.query);
  long_input.key.slice(2, 0, 16).copy_(short_input.key);
  long_input.value.slice(2, 0, 16).copy_(short_input.value);
  long_input.value[1].slice(1, 9).fill_(INFINITY);
  const at::Tensor a = method_->attend(short_input), b = method_->attend(long_input);
  EXPECT_TRUE(close(a[0], b[0].slice(1, 0, 16)));
  EXPECT_TRUE(close(a[1].slice(1, 0, 9), b[1].slice(1, 0, 9)));
  EXPECT_EQ(b[1].slice(1, 9).abs().max().item<double>(), 0);
}

TEST_P(Method, NoMaskIsAMaskOfOnes) {
  MethodInput input = method_input(2, 16, std::nullopt);
  const at::Tensor without = method_->attend(input);
  input.key_mask = torch::ones({2, 16}, torch::kBool);
  EXPECT_TRUE(close(without, method_->attend(input)));
}

TEST_P(Method, MaskBytesOtherThanOneAreTrue) {
  MethodInput input = method_input(2, 16, mask_of({16, 9}, 16));
  const at::Tensor expected = method_->attend(input);
  input.key_mask = kit::other_bytes(*input.key_mask);
  EXPECT_TRUE(at::equal(method_->attend(input), expected));
}

TEST_P(Method, PaddingAloneGivesNoNan) {
  MethodInput input = method_input(2, 16, mask_of({0, 5}, 16));
  for (at::Tensor* x : {&input.query, &input.key, &input.value}) x->requires_grad_();
  const at::Tensor output = method_->attend(input);
  EXPECT_TRUE(output.isfinite().all().item<bool>());
  if (GetParam().is_paper) {
    EXPECT_EQ(output[0].abs().max().item<double>(), 0);
  }
  output.square().sum().backward();
  for (const at::Tensor* x : {&input.query, &input.key, &input.value})
    if (x->grad().defined()) {
      EXPECT_TRUE(x->grad().isfinite().all().item<bool>());
    }
  for (const auto& parameter : method_->parameters())
    EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
}

TEST_P(Method, GradientsMatchFiniteDifferences) {
  MethodInput input = method_input(2, 16, mask_of({16, 11}, 16));
  for (at::Tensor* x : {&input.query, &input.key, &input.value}) x->requires_grad_();
  const at::Tensor direction = randn(input.query.sizes(), 9, at::kDouble);
  const auto loss = [&] { return (method_->attend(input) * direction).sum(); };
  loss().backward();
  std::vector<std::pair<std::string, at::Tensor>> variables = {{"query", input.query},
                                                               {"value", input.value}};
  if (input.key.grad().defined())
    variables.emplace_back("key", input.key);  // Reformer's keys are its queries
  for (const auto& parameter : method_->named_parameters())
    variables.emplace_back(parameter.key(), parameter.value());
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  // No gradient goes through the stabiliser of FAVOR+, which leaves an error of the order of its eps, 1e-4
  // there.
  const double tolerance = std::string(GetParam().name) == "performer_harness" ? 1e-3 : 2e-5;
  for (const auto& [name, variable] : variables) {
    at::Tensor flat = variable.view(-1);
    const int64_t stride = std::max<int64_t>(1, flat.numel() / 16);
    for (int64_t i = 0; i < flat.numel(); i += stride) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = loss().item<double>();
      flat[i] = value - kStep;
      const double below = loss().item<double>();
      flat[i] = value;
      const double found = variable.grad().view(-1)[i].item<double>();
      EXPECT_NEAR(found, (above - below) / (2 * kStep), tolerance * std::max(1.0, std::abs(found)))
          << name << " [" << i << "]";
    }
  }
}

TEST_P(Method, RunsOnAGpuLikeOnTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  MethodInput input = method_input(3, 32, mask_of({32, 19, 0}, 32));
  const at::Tensor expected = method_->attend(input);
  method_->to(torch::kCUDA);
  for (at::Tensor* x : {&input.query, &input.key, &input.value}) *x = x->cuda();
  input.key_mask = input.key_mask->cuda();
  EXPECT_TRUE(torch::allclose(method_->attend(input).cpu(), expected, 1e-8, 1e-8));
}

// Through the module that the encoder uses, in fp32 and under bf16 autocast: sums and exponentials stay in
// fp32.
TEST_P(Method, ServesMultiheadAttention) {
  torch::manual_seed(3);
  MultiheadEdgeAttentionOptions options(kHeads * kDim, kHeads);
  options.method = method_;
  options.shared_qk = std::string(GetParam().name) == "reformer_harness";
  MultiheadEdgeAttention attention(options);
  attention->to(torch::kFloat);
  attention->eval();
  const at::Tensor x = torch::randn({2, 16, kHeads * kDim});
  const auto mask = mask_of({16, 9}, 16);
  const AttentionOutput plain = attention->forward(x, mask, {.seed = 1});
  EXPECT_EQ(plain.output.sizes(), x.sizes());
  EXPECT_EQ(plain.edge_count.item<int64_t>(), 0);
  EXPECT_FALSE(plain.penalty.defined());
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor reduced = attention->forward(x, mask, {.seed = 1}).output;
  const bool still_on = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(still_on);
  EXPECT_EQ(reduced.scalar_type(), at::kBFloat16);
  // Hashing may put a rounded query into another bucket.
  if (!options.shared_qk) {
    EXPECT_TRUE(torch::allclose(reduced.to(at::kFloat), plain.output, 0.1, 0.05));
  }
  EXPECT_TRUE(reduced.isfinite().all().item<bool>());

  options.is_causal = true;
  EXPECT_THROW(MultiheadEdgeAttention{options}, c10::ValueError);
}

TEST(PerformerAttention, DrawsFeaturesAnewEverySoManyTrainingSteps) {
  PerformerAttentionOptions options(kDim);
  options.features = 8;
  options.redraw_every = 10;
  PerformerAttention method(options), other(options);
  MethodInput input = method_input(1, 8, std::nullopt);
  const auto features_at = [&](PerformerAttention& performer, uint64_t step) {
    input.random.step = step;
    performer->attend(input);
    return performer->features.clone();
  };
  const at::Tensor start = method->features.clone();
  method->eval();
  EXPECT_TRUE(torch::equal(features_at(method, 25), start));  // never in evaluation
  method->train();
  const at::Tensor third = features_at(method, 25);
  EXPECT_FALSE(torch::equal(third, start));
  EXPECT_TRUE(torch::equal(features_at(method, 29), third));
  EXPECT_FALSE(torch::equal(features_at(method, 30), third));
  // A run that begins there draws the same, whatever it was made with: resuming needs no more than the step.
  EXPECT_TRUE(torch::equal(features_at(other, 27), third));
  options.redraw_every = 0;
  PerformerAttention fixed(options);
  const at::Tensor before = fixed->features.clone();
  EXPECT_TRUE(torch::equal(features_at(fixed, 5), before));
}

// A backward pass after new features were drawn still uses those of its own forward pass.
TEST(PerformerAttention, NewFeaturesLeaveEarlierPassesAlone) {
  PerformerAttentionOptions options(kDim);
  options.features = 8;
  options.redraw_every = 1;
  PerformerAttention method(options);
  method->to(torch::kDouble);
  MethodInput input = method_input(1, 8, std::nullopt);
  input.query.requires_grad_();
  const at::Tensor first = method->attend(input).square().sum();
  MethodInput next = input;
  next.random.step += 1;
  method->attend(next);
  const at::Tensor late = torch::autograd::grad({first}, {input.query})[0];
  const at::Tensor at_once = torch::autograd::grad({method->attend(input).square().sum()}, {input.query})[0];
  EXPECT_TRUE(torch::allclose(late, at_once));
}

TEST(LinformerAttention, DropsWeightsInModePaperOnly) {
  for (const bool paper : {true, false}) {
    const auto method = paper ? linformer<MethodMode::kPaper>() : linformer<MethodMode::kHarness>();
    MethodInput input = method_input(1, 8, std::nullopt);
    const at::Tensor plain = method->attend(input);
    input.dropout_p = 0.5;
    EXPECT_EQ(torch::equal(method->attend(input), plain), !paper);
  }
}

// Reformer as printed: every round attends within its own buckets and chunks, the weight of a pair met c
// times is divided by c, and the rounds are mixed by their log-sum-exp. That is a softmax over the union of
// the edges.
TEST(Reformer, MixingRoundsIsASoftmaxOverTheUnion) {
  constexpr int64_t kTokens = 20, kRounds = 3;
  const at::Tensor query = randn({1, 1, kTokens, kDim}, 1, at::kDouble),
                   value = randn({1, 1, kTokens, kDim}, 2, at::kDouble);
  const at::Tensor key = query / query.norm(2, -1, true);
  const EdgeRequest request{query, key, std::nullopt, false, {.seed = 5}};
  const BucketEdges all(BucketEdgesOptions{.rounds = kRounds, .chunk = 6});
  const EdgeChoice choice = all.ptr()->choose(request);
  const at::Tensor output = functional::edge_attention(query, key, value, choice.edges);

  // The pairs of round r alone: those of sources that differ in nothing but the number of rounds.
  const at::Tensor bucket = all.ptr()->buckets(request)[0][0];  // [R, N]
  std::vector<at::Tensor> met;
  for (int64_t r = 0; r < kRounds; ++r) {
    const at::Tensor order = (bucket[r] * kTokens + torch::arange(kTokens)).argsort();
    const at::Tensor chunk = order.argsort().div(6, "floor");
    const at::Tensor distance = chunk.unsqueeze(1) - chunk.unsqueeze(0);
    met.push_back((bucket[r].unsqueeze(1) == bucket[r].unsqueeze(0))
                      .logical_and(distance >= 0)
                      .logical_and(distance <= 1));
  }
  const at::Tensor times = torch::stack(met).sum(0).to(torch::kDouble);
  const at::Tensor logits = query[0][0].matmul(key[0][0].t()) / std::sqrt(static_cast<double>(kDim));
  std::vector<at::Tensor> outputs, lses;
  for (const at::Tensor& pairs : met) {
    const at::Tensor self = torch::eye(kTokens, torch::kBool);
    const at::Tensor row =
        (logits - times.clamp_min(1).log()).masked_fill(self, -1e5).masked_fill(pairs.logical_not(), -1e30);
    lses.push_back(row.logsumexp(1));
    outputs.push_back(row.softmax(1).matmul(value[0][0]));
  }
  const at::Tensor mix = torch::stack(lses).softmax(0).unsqueeze(-1);
  EXPECT_TRUE(torch::allclose(output[0][0], (mix * torch::stack(outputs)).sum(0), 1e-9, 1e-9));
}

TEST(Reformer, SharesOneProjectionBetweenQueriesAndKeys) {
  torch::manual_seed(3);
  MultiheadEdgeAttentionOptions options(8, 2);
  options.shared_qk = true;
  options.source = BucketEdges(BucketEdgesOptions{.rounds = 2, .chunk = 4}).ptr();
  MultiheadEdgeAttention attention(options);
  EXPECT_EQ(attention->in_proj_weight.sizes(), (std::vector<int64_t>{16, 8}));
  const AttentionOutput found =
      attention->forward(torch::randn({2, 10, 8}), mask_of({10, 6}, 10), {.seed = 1}, true);
  found.output.sum().backward();
  EXPECT_GT(attention->in_proj_weight.grad().slice(0, 0, 8).abs().sum().item<double>(), 0);
  EXPECT_LT(found.density.max().item<double>(), 1);
  options.in_proj_bias = false;
  EXPECT_FALSE(MultiheadEdgeAttention(options)->named_parameters().contains("in_proj_bias"));
}

TEST(Method, MistakesAreExplained) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(
      message([] { nystromformer<MethodMode::kHarness>()->attend(method_input(1, 10, std::nullopt)); }),
      testing::HasSubstr("a multiple of 4 landmarks for a length; got 10. Pad to a fixed length"));
  EXPECT_THAT(message([] { reformer()->attend(method_input(1, 12, std::nullopt)); }),
              testing::HasSubstr("a multiple of 8 tokens (two chunks); got 12"));
  EXPECT_THAT(message([] { linformer<MethodMode::kPaper>()->attend(method_input(1, 49, std::nullopt)); }),
              testing::HasSubstr("at most max_length = 48 tokens; got 49"));
  NystromAttentionOptions even(2);
  even.conv_kernel = 4;
  EXPECT_THROW(NystromAttention{even}, c10::ValueError);
  MultiheadEdgeAttentionOptions both(8, 2);
  both.source = BucketEdges().ptr();
  both.method = LinearAttention().ptr();
  EXPECT_THROW(MultiheadEdgeAttention{both}, c10::ValueError);
  EXPECT_EQ(message([] { parse_method_mode("papre"); }), "mode: expected one of paper, harness; got 'papre'");
}

}  // namespace
}  // namespace edgewise
