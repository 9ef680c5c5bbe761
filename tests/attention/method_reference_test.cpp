// Every attention method against its definition, written as loops over items, heads and rows in fp64, with no
// code in common.
#include <cmath>

#include <gtest/gtest.h>

#include "attention/method_inputs.h"

namespace edgewise {
namespace {

using namespace kit;

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LT((found - expected).abs().max().item<double>(), kClose);
}

// Calls rule(item, head, q, k, v [N, D], valid [N] bool) and stacks what it gives [N, D].
template <typename Rule>
at::Tensor per_head(const MethodInput& input, Rule rule) {
  const int64_t length = input.query.size(2);
  std::vector<at::Tensor> items;
  for (int64_t b = 0; b < input.query.size(0); ++b) {
    const at::Tensor valid = input.key_mask ? (*input.key_mask)[b] : torch::ones({length}, torch::kBool);
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < input.query.size(1); ++h)
      heads.push_back(rule(b, h, input.query[b][h], input.key[b][h], input.value[b][h], valid));
    items.push_back(torch::stack(heads));
  }
  return torch::stack(items);
}

at::Tensor column(const at::Tensor& valid) {
  return valid.to(torch::kDouble).unsqueeze(1);
}

// Full, one with padding, one with a hole in the middle, one valid token, nothing but padding.
at::Tensor ragged(int64_t length) {
  at::Tensor mask = *mask_of({length, length - 3, length, 1, 0}, length);
  mask[2].slice(0, 2, 5).fill_(false);
  return mask;
}
constexpr int64_t kItems = 5;

at::Tensor elu_plus_one(const at::Tensor& x) {
  return torch::where(x > 0, x + 1, x.exp());
}

TEST(LinearAttention, PaperIsANormalisedSumOverValidKeys) {
  for (const int64_t length : {8, 13}) {
    const MethodInput input = method_input(kItems, length, ragged(length));
    const at::Tensor expected = per_head(input, [](auto, auto, auto q, auto k, auto v, auto valid) {
      const at::Tensor weights = elu_plus_one(q).matmul(elu_plus_one(k).t()) * column(valid).t();
      return weights.matmul(v) / (weights.sum(1, true) + 1e-6) * column(valid);
    });
    expect_close(linear<MethodMode::kPaper>()->attend(input), expected);
  }
}

TEST(LinearAttention, HarnessDividesByTheRootOfThePaddedLength) {
  const MethodInput input = method_input(kItems, 13, ragged(13));
  const at::Tensor expected = per_head(input, [](auto, auto, auto q, auto k, auto v, auto valid) {
    return (elu_plus_one(q).matmul(elu_plus_one(k).t()) * column(valid).t()).matmul(v) / std::sqrt(13.0);
  });
  expect_close(linear<MethodMode::kHarness>()->attend(input), expected);
}

// phi(x) row by row, with the stabiliser c given.
at::Tensor random_features(const at::Tensor& x, const at::Tensor& w, const at::Tensor& c, double eps) {
  const at::Tensor exponent = x.matmul(w.t()) - x.pow(2).sum(1, true) / 2 - c;
  return (exponent.exp() + eps) / std::sqrt(static_cast<double>(w.size(0)));
}

TEST(PerformerAttention, PaperIsTheKernelOverValidKeys) {
  const auto method = performer<MethodMode::kPaper>();
  const at::Tensor w = method->named_buffers()["features"];
  const MethodInput input = method_input(kItems, 11, ragged(11));
  const double scale = std::pow(static_cast<double>(kDim), -0.25);
  const at::Tensor expected = per_head(input, [&](auto, auto, auto q, auto k, auto v, auto valid) {
    if (!valid.any().template item<bool>()) return torch::zeros_like(q);
    const at::Tensor keys = k.index({valid}) * scale, values = v.index({valid});
    const at::Tensor phi_q =
        random_features(q * scale, w, std::get<0>((q * scale).matmul(w.t()).max(1, true)), 1e-6);
    const at::Tensor phi_k = random_features(keys, w, keys.matmul(w.t()).max(), 1e-6);
    const at::Tensor weights = phi_q.matmul(phi_k.t());
    return weights.matmul(values) / weights.sum(1, true) * column(valid);
  });
  expect_close(method->attend(input), expected);
}

TEST(PerformerAttention, HarnessScalesTwiceAndKeepsPaddingInTheDenominator) {
  const auto method = performer<MethodMode::kHarness>();
  const at::Tensor w = method->named_buffers()["features"];
  const MethodInput input = method_input(kItems, 11, ragged(11));
  const double scale = 1 / std::sqrt(static_cast<double>(kDim));
  const at::Tensor expected = per_head(input, [&](auto, auto, auto q, auto k, auto v, auto valid) {
    const at::Tensor keys = k * scale * column(valid), values = v * column(valid);
    const at::Tensor phi_q =
        random_features(q * scale, w, std::get<0>((q * scale).matmul(w.t()).max(1, true)), 1e-4);
    const at::Tensor phi_k = random_features(keys, w, keys.matmul(w.t()).max(), 1e-4);
    const at::Tensor weights = phi_q.matmul(phi_k.t());
    return weights.matmul(values) / weights.sum(1, true);
  });
  expect_close(method->attend(input), expected);
}

TEST(PerformerAttention, FeaturesAreOrthogonalInGroupsWithNormsLikeNormalVectors) {
  const at::Tensor directions = randn({10, 4}, 1, at::kDouble), norms = randn({10, 4}, 2, at::kDouble);
  const at::Tensor w = orthogonal_features(directions, norms);
  for (int64_t first = 0; first < 10; first += 4) {
    const at::Tensor group = w.slice(0, first, std::min<int64_t>(first + 4, 10));
    const at::Tensor products = group.matmul(group.t());
    EXPECT_LT((products - products.diagonal().diag()).abs().max().item<double>(), 1e-12);
  }
  expect_close(w.norm(2, 1), norms.norm(2, 1));
}

// The mean of exp(w.x - |x|^2/2) exp(w.y - |y|^2/2) over w ~ N(0, I) is exp(x.y): with many features the
// estimate must come near. 20,000 features, a relative standard error below 2 % here; the bound is five of
// them.
TEST(PerformerAttention, EstimatesTheSoftmaxKernel) {
  const at::Tensor w =
      orthogonal_features(randn({20000, 4}, 3, at::kDouble), randn({20000, 4}, 4, at::kDouble));
  const at::Tensor x = randn({3, 4}, 5, at::kDouble) / 2, y = randn({3, 4}, 6, at::kDouble) / 2;
  const at::Tensor zero = torch::zeros({}, torch::kDouble);
  const at::Tensor estimate = random_features(x, w, zero, 0).matmul(random_features(y, w, zero, 0).t());
  const at::Tensor error = estimate / x.matmul(y.t()).exp() - 1;
  EXPECT_LT(error.abs().max().item<double>(), 0.1);
}

at::Tensor projected_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& valid, const at::Tensor& e, const at::Tensor& f) {
  const at::Tensor keys = e.slice(1, 0, k.size(0)).matmul(k * column(valid));
  const at::Tensor values = f.slice(1, 0, v.size(0)).matmul(v * column(valid));
  const at::Tensor exps = (q.matmul(keys.t()) / std::sqrt(static_cast<double>(kDim))).exp();
  return exps.matmul(values) / exps.sum(1, true);
}

TEST(LinformerAttention, PaperProjectsKeysAndValuesApart) {
  for (const bool heads_apart : {false, true}) {
    const auto method = heads_apart ? linformer<MethodMode::kPaper, ProjectionSharing::kNone>()
                                    : linformer<MethodMode::kPaper>();
    const auto parameters = method->named_parameters();
    const at::Tensor e = parameters["key_projection"], f = parameters["value_projection"];
    ASSERT_EQ(e.sizes(), (std::vector<int64_t>{heads_apart ? 2 : 1, 5, 48}));
    const MethodInput input = method_input(kItems, 13, ragged(13));
    const at::Tensor expected = per_head(input, [&](auto, auto h, auto q, auto k, auto v, auto valid) {
      const int64_t which = heads_apart ? h : 0;
      return projected_attention(q, k, v, valid, e[which], f[which]) * column(valid);
    });
    expect_close(method->attend(input), expected);
  }
}

TEST(LinformerAttention, HarnessHasOneProjectionPerHeadForBoth) {
  const auto method = linformer<MethodMode::kHarness>();
  const auto parameters = method->named_parameters();
  ASSERT_EQ(parameters.size(), 1u);
  const at::Tensor e = parameters["key_projection"];
  const MethodInput input = method_input(kItems, 13, ragged(13));
  const at::Tensor expected = per_head(input, [&](auto, auto h, auto q, auto k, auto v, auto valid) {
    return projected_attention(q, k, v, valid, e[h], e[h]);
  });
  expect_close(method->attend(input), expected);
}

TEST(LinformerAttention, LayersThatShareUseOneTensor) {
  LinformerAttentionOptions options(kHeads, 16, MethodMode::kHarness);
  options.projected_length = 3;
  LinformerAttention first(options), second(options, first->key_projection);
  EXPECT_EQ(second->parameters().size(), 0u);
  first->to(torch::kDouble);  // moves the one tensor, wherever it is used
  EXPECT_EQ(second->key_projection.scalar_type(), torch::kDouble);
  EXPECT_TRUE(second->key_projection.is_same(first->key_projection));
  options.mode = MethodMode::kPaper;
  EXPECT_THROW(LinformerAttention(options, first->key_projection), c10::ValueError);
}

at::Tensor softmax_rows(const at::Tensor& logits) {
  const at::Tensor exps = logits.exp();
  return exps / exps.sum(1, true);
}

at::Tensor iterated_inverse(const at::Tensor& a, double norm) {
  const at::Tensor i = torch::eye(a.size(0), torch::kDouble);
  at::Tensor z = a.t() / norm;
  for (int n = 0; n < 6; ++n) {
    const at::Tensor az = a.matmul(z);
    z = z.matmul(13 * i - az.matmul(15 * i - az.matmul(7 * i - az))) / 4;
  }
  return z;
}

at::Tensor convolution(const at::Tensor& v, const at::Tensor& weight) {  // v [N, D], weight [3]
  at::Tensor out = torch::zeros_like(v);
  for (int64_t i = 0; i < v.size(0); ++i)
    for (int64_t offset = -1; offset <= 1; ++offset)
      if (i + offset >= 0 && i + offset < v.size(0)) out[i] += weight[offset + 1] * v[i + offset];
  return out;
}

TEST(NystromAttention, PaperIsTheFormulaOverValidTokens) {
  const auto method = nystromformer<MethodMode::kPaper>();
  const at::Tensor conv = method->named_parameters()["conv_weight"];
  for (const int64_t length : {8, 13, 5}) {  // 4 landmarks divide the first only
    const MethodInput input = method_input(kItems, length, ragged(length));
    const double scale = std::pow(static_cast<double>(kDim), -0.25);
    const at::Tensor expected = per_head(input, [&](auto, auto h, auto q, auto k, auto v, auto valid) {
      const at::Tensor where = valid.nonzero().select(1, 0);
      const int64_t n = where.size(0), m = std::min<int64_t>(4, n);
      if (n == 0) return torch::zeros_like(q);
      const at::Tensor queries = q.index_select(0, where) * scale, keys = k.index_select(0, where) * scale;
      const auto landmarks = [&](const at::Tensor& x) {
        at::Tensor sums = torch::zeros({m, kDim}, torch::kDouble),
                   counts = torch::zeros({m, 1}, torch::kDouble);
        for (int64_t rank = 0; rank < n; ++rank) {
          sums[rank * m / n] += x[rank];
          counts[rank * m / n] += 1;
        }
        return sums / counts;
      };
      const at::Tensor ql = landmarks(queries), kl = landmarks(keys);
      const at::Tensor f = softmax_rows(queries.matmul(kl.t())), a = softmax_rows(ql.matmul(kl.t())),
                       b = softmax_rows(ql.matmul(keys.t()));
      const at::Tensor attended = f.matmul(iterated_inverse(a, a.sum(0).max().template item<double>()))
                                      .matmul(b.matmul(v.index_select(0, where)));
      at::Tensor out = convolution(v * column(valid), conv[h][0].squeeze(1)) * column(valid);
      return out.index_add(0, where, attended);
    });
    expect_close(method->attend(input), expected);
  }
}

TEST(NystromAttention, HarnessCountsPaddingAndMixesTheBatch) {
  const auto method = nystromformer<MethodMode::kHarness>();
  const at::Tensor conv = method->named_parameters()["conv_weight"];
  const MethodInput input = method_input(kItems, 12, ragged(12));
  const double scale = std::pow(static_cast<double>(kDim), -0.25);
  const auto parts = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid) {
    const at::Tensor queries = q * scale * column(valid), keys = k * scale * column(valid);
    const at::Tensor ql = queries.view({4, 3, kDim}).mean(1), kl = keys.view({4, 3, kDim}).mean(1);
    return std::tuple(softmax_rows(queries.matmul(kl.t())), softmax_rows(ql.matmul(kl.t())),
                      (ql.matmul(keys.t()) - 1e9 * (1 - column(valid).t())).softmax(1));
  };
  double norm = 0;  // the largest column sum of any item and head
  per_head(input, [&](auto, auto, auto q, auto k, auto, auto valid) {
    norm = std::max(norm, std::get<1>(parts(q, k, valid)).sum(0).max().template item<double>());
    return q;
  });
  const at::Tensor expected = per_head(input, [&](auto, auto h, auto q, auto k, auto v, auto valid) {
    const auto [f, a, b] = parts(q, k, valid);
    return f.matmul(iterated_inverse(a, norm)).matmul(b.matmul(v)) +
           convolution(v * column(valid), conv[h][0].squeeze(1));
  });
  expect_close(method->attend(input), expected);
}

TEST(NystromAttention, HarnessIsPlainAttentionWhenEveryTokenIsALandmark) {
  const auto method = nystromformer<MethodMode::kHarness>();
  const at::Tensor conv = method->named_parameters()["conv_weight"];
  const MethodInput input = method_input(2, 4, mask_of({4, 3}, 4));
  const at::Tensor expected = per_head(input, [&](auto, auto h, auto q, auto k, auto v, auto valid) {
    // As there: padding queries and keys are 0 before the product, then padding keys get -1e9.
    const at::Tensor logits =
        (q * column(valid)).matmul((k * column(valid)).t()) / 2 - 1e9 * (1 - column(valid).t());
    return logits.softmax(1).matmul(v) + convolution(v * column(valid), conv[h][0].squeeze(1));
  });
  expect_close(method->attend(input), expected);
}

TEST(NystromAttention, TheIterationConvergesToTheInverse) {
  const at::Tensor a = (3 * randn({2, 6, 6}, 4, at::kDouble)).softmax(-1) + torch::eye(6, torch::kDouble);
  const at::Tensor start =
      a.transpose(1, 2) / (a.abs().sum(1, true).amax(2, true) * a.abs().sum(2, true).amax(1, true));
  EXPECT_LT((pseudo_inverse(a, start, 20) - torch::linalg_inv(a)).abs().max().item<double>(), 1e-9);
}

// The rounds one after another: sort, cut into chunks, look at the own chunk and the one before in the ring
// of all chunks of all rounds, then mix.
at::Tensor hashed_attention(const at::Tensor& buckets, const at::Tensor& q, const at::Tensor& v,
                            const at::Tensor& valid, int64_t chunk) {
  const int64_t rounds = buckets.size(0), length = q.size(0);
  std::vector<std::vector<int64_t>> ring;
  for (int64_t r = 0; r < rounds; ++r) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return buckets[r][a].item<int64_t>() < buckets[r][b].item<int64_t>();
    });
    for (int64_t first = 0; first < length; first += chunk)
      ring.emplace_back(order.begin() + first, order.begin() + first + chunk);
  }
  std::vector<at::Tensor> sums(static_cast<size_t>(length)), lses(static_cast<size_t>(length));
  std::vector<std::vector<at::Tensor>> outputs(sums.size()), weights(sums.size());
  for (size_t c = 0; c < ring.size(); ++c) {
    std::vector<int64_t> keys = ring[c];
    const auto& before = ring[(c + ring.size() - 1) % ring.size()];
    keys.insert(keys.end(), before.begin(), before.end());
    for (const int64_t i : ring[c]) {
      std::vector<double> logits;
      for (const int64_t j : keys) {
        double logit = (q[i].dot(q[j]) / q[j].norm()).item<double>() / std::sqrt(static_cast<double>(kDim));
        if (!valid[i].item<bool>() || !valid[j].item<bool>()) logit = -1e38;
        if (i == j) logit = -5e4;
        logits.push_back(logit);
      }
      const at::Tensor row = torch::tensor(logits, torch::kDouble);
      outputs[static_cast<size_t>(i)].push_back(
          row.softmax(0).unsqueeze(0).matmul(v.index_select(0, torch::tensor(keys)))[0]);
      weights[static_cast<size_t>(i)].push_back(row.logsumexp(0));
    }
  }
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < outputs.size(); ++i)
    rows.push_back((torch::stack(weights[i]).softmax(0).unsqueeze(1) * torch::stack(outputs[i])).sum(0));
  return torch::stack(rows);
}

TEST(ReformerAttention, HarnessAttendsWithinTheRingOfChunks) {
  const AttentionMethodPtr method = reformer();
  auto& impl = dynamic_cast<ReformerAttentionImpl&>(*method);
  const MethodInput input = method_input(kItems, 16, ragged(16));
  const at::Tensor buckets = impl.buckets(input.query, input.random);
  ASSERT_EQ(buckets.sizes(), (std::vector<int64_t>{kItems, kHeads, 3, 16}));
  const at::Tensor heads = per_head(input, [&](auto b, auto h, auto q, auto, auto v, auto valid) {
    return hashed_attention(buckets[b][h], q, v, valid, 4);
  });
  const at::Tensor merged = heads.transpose(1, 2).reshape({kItems, 16, kHeads * kDim});
  const at::Tensor expected = merged.matmul(impl.out->weight.t()) + impl.out->bias;
  expect_close(method->attend(input).transpose(1, 2).reshape(expected.sizes()), expected);
  EXPECT_EQ(method->density(16), 1);
  EXPECT_EQ(method->density(48), 0.5);
}

TEST(ReformerAttention, UpToOneChunkAttendsDensely) {
  const AttentionMethodPtr method = reformer();
  auto& impl = dynamic_cast<ReformerAttentionImpl&>(*method);
  const MethodInput input = method_input(2, 3, mask_of({3, 2}, 3));
  const at::Tensor heads = per_head(input, [&](auto, auto, auto q, auto, auto v, auto valid) {
    at::Tensor logits = q.matmul((q / q.norm(2, 1, true)).t()) / 2;
    logits = logits.masked_fill((column(valid).matmul(column(valid).t()) == 0), -1e38);
    return logits.masked_fill(torch::eye(3, torch::kBool), -5e4).softmax(1).matmul(v);
  });
  const at::Tensor merged = heads.transpose(1, 2).reshape({2, 3, kHeads * kDim});
  expect_close(method->attend(input).transpose(1, 2).reshape(merged.sizes()),
               merged.matmul(impl.out->weight.t()) + impl.out->bias);
}

TEST(ReformerAttention, HashesByAngle) {
  const AttentionMethodPtr method = reformer();
  auto& impl = dynamic_cast<ReformerAttentionImpl&>(*method);
  at::Tensor query = randn({1, kHeads, 32, kDim}, 3, at::kDouble);  // 8 buckets
  query.select(2, 1).copy_(query.select(2, 0) * 5);
  query.select(2, 2).copy_(-query.select(2, 0));
  const at::Tensor found = impl.buckets(query, {.seed = 1});
  EXPECT_TRUE(torch::equal(found.select(3, 0), found.select(3, 1)));
  EXPECT_TRUE(torch::equal((found.select(3, 0) + 4).remainder(8), found.select(3, 2)));
  EXPECT_LT(found.max().item<int64_t>(), 8);
  EXPECT_FALSE(torch::equal(found, impl.buckets(query, {.seed = 1, .step = 1})));       // anew at every step
  EXPECT_TRUE(torch::equal(found, impl.buckets(query, {.seed = 1, .first_item = 9})));  // for all items alike
}

}  // namespace
}  // namespace edgewise
