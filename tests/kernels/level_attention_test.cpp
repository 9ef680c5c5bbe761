// Every CPU level that this machine has against plain loops in fp64, over the shapes that vectors stumble on:
// degrees around the vector width, widths that fill no vector, empty rows, huge logits, keys that nobody
// reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/levels.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu {
namespace {

template <typename T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return from_accumulator<T>(static_cast<float>(value));
}

// One head of queries and keys with a CSR graph, in type T; `grad` is dL/do.
template <typename T>
struct Problem {
  int64_t queries, keys, head_dim, value_dim;
  double scale = 0.3, dropout = 0;
  uint64_t dropout_key = 77;
  std::vector<T> q, k, v, grad;
  std::vector<int64_t> row_offsets = {0};
  std::vector<int32_t> columns;

  // Row i gets degrees[i] edges.
  Problem(const std::vector<int64_t>& degrees, int64_t key_count, int64_t dim, int64_t dim_v, uint32_t seed)
      : queries(static_cast<int64_t>(degrees.size())), keys(key_count), head_dim(dim), value_dim(dim_v) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& x, int64_t count) {
      x.resize(static_cast<size_t>(count));
      for (T& value : x) value = narrowed<T>(normal(random));
    };
    fill(q, queries * head_dim), fill(k, keys * head_dim);
    fill(v, keys * value_dim), fill(grad, queries * value_dim);
    std::vector<int32_t> all(static_cast<size_t>(keys));
    for (size_t j = 0; j < all.size(); ++j) all[j] = static_cast<int32_t>(j);
    for (const int64_t degree : degrees) {
      std::shuffle(all.begin(), all.end(), random);
      std::vector<int32_t> chosen(all.begin(), all.begin() + degree);
      std::sort(chosen.begin(), chosen.end());
      columns.insert(columns.end(), chosen.begin(), chosen.end());
      row_offsets.push_back(static_cast<int64_t>(columns.size()));
    }
  }

  int64_t edges() const { return static_cast<int64_t>(columns.size()); }
  CsrView csr() const { return {1, queries, keys, row_offsets.data(), columns.data()}; }
  HeadView<T> view(const std::vector<T>& x, int64_t width) const {
    return {x.data(), static_cast<int64_t>(x.size()), static_cast<int64_t>(x.size()), width};
  }
  DropoutParams dropout_params() const { return {dropout, &dropout_key}; }
};

struct Gradients {
  std::vector<double> output, lse, dq, dk, dv, credit, probe_credit;
};

// What the forward pass leaves behind for the backward pass.
enum class Kept { kNothing, kScores, kExponentials };
Kept all_that_is_needed(CreditRule rule) {
  return needs_scores(rule) ? Kept::kScores : Kept::kExponentials;
}

// Runs the active level, each pass cut into `pieces` ranges; probes are the edges themselves.
template <typename T>
Gradients run(const Problem<T>& p, CreditRule rule, int pieces, Kept kept) {
  using Acc = Accumulator<T>;
  const AttentionKernels<T> kernels = active_attention_kernels<T>();
  const auto in_pieces = [&](int64_t count, const auto& body) {
    for (int n = 0; n < pieces; ++n) body(count * n / pieces, count * (n + 1) / pieces);
  };
  std::vector<T> output(size_t(p.queries * p.value_dim)), dq(size_t(p.queries * p.head_dim)),
      dk(size_t(p.keys * p.head_dim)), dv(size_t(p.keys * p.value_dim));
  std::vector<Acc> lse(static_cast<size_t>(p.queries)), credit(static_cast<size_t>(p.edges())),
      probe_credit(credit.size());
  std::vector<Acc> weights(credit.size()), logit_grads(credit.size()), numbers(credit.size(), NAN);

  AttentionForwardParams<T> forward;
  forward.edges = p.csr();
  forward.head_dim = p.head_dim, forward.value_dim = p.value_dim, forward.scale = p.scale;
  forward.dropout = p.dropout_params();
  forward.query = p.view(p.q, p.head_dim), forward.key = p.view(p.k, p.head_dim);
  forward.value = p.view(p.v, p.value_dim);
  forward.output = output.data(), forward.lse = lse.data();
  if (kept == Kept::kScores) forward.scores = numbers.data();
  if (kept == Kept::kExponentials) forward.exponentials = numbers.data();
  in_pieces(p.queries, [&](int64_t begin, int64_t end) { kernels.forward(forward, begin, end); });

  AttentionBackwardParams<T> rows;
  rows.edges = forward.edges, rows.dropout = forward.dropout;
  rows.head_dim = p.head_dim, rows.value_dim = p.value_dim, rows.scale = p.scale;
  rows.query = forward.query, rows.key = forward.key, rows.value = forward.value;
  rows.grad_output = p.grad.data(), rows.output = output.data();
  rows.weights = kept == Kept::kNothing ? weights.data() : numbers.data(),
  rows.logit_grads = logit_grads.data(), rows.grad_query = dq.data();
  rows.rule = rule, rows.credit = credit.data();
  rows.scores = forward.scores, rows.exponentials = forward.exponentials;
  in_pieces(p.queries, [&](int64_t begin, int64_t end) { kernels.backward_rows(rows, begin, end); });

  ScatterSumParams<T> columns;
  columns.edges = p.csr(), columns.width = p.head_dim, columns.factor = p.scale;
  columns.coefficients = logit_grads.data(), columns.dense = forward.query, columns.out = dk.data();
  const auto scatter_sum = active_product_kernels<T>().scatter_sum;
  in_pieces(p.keys, [&](int64_t begin, int64_t end) { scatter_sum(columns, begin, end); });
  columns.width = p.value_dim, columns.factor = 1;
  columns.coefficients = rows.weights, columns.dense = p.view(p.grad, p.value_dim);
  columns.out = dv.data();
  in_pieces(p.keys, [&](int64_t begin, int64_t end) { scatter_sum(columns, begin, end); });

  ProbeCreditParams<T> probes;
  probes.probes = forward.edges;
  probes.head_dim = p.head_dim, probes.value_dim = p.value_dim, probes.scale = p.scale;
  probes.query = forward.query, probes.key = forward.key, probes.value = forward.value;
  probes.grad_output = p.grad.data(), probes.output = output.data(), probes.lse = lse.data();
  probes.credit = probe_credit.data();
  in_pieces(p.queries, [&](int64_t begin, int64_t end) { kernels.probe_credit(probes, begin, end); });

  const auto wide = [](const auto& x) {
    std::vector<double> result;
    result.reserve(x.size());
    for (const auto value : x) result.push_back(to_accumulator(value));
    return result;
  };
  return {wide(output), wide(lse), wide(dq), wide(dk), wide(dv), wide(credit), wide(probe_credit)};
}

template <typename T>
Gradients run(const Problem<T>& p, CreditRule rule, int pieces = 1) {
  return run(p, rule, pieces, all_that_is_needed(rule));
}

// The same by plain loops in fp64, from the same (rounded) inputs.
template <typename T>
Gradients oracle(const Problem<T>& p, CreditRule rule) {
  Gradients r;
  r.output.resize(size_t(p.queries * p.value_dim)), r.dq.resize(size_t(p.queries * p.head_dim));
  r.dk.resize(size_t(p.keys * p.head_dim)), r.dv.resize(size_t(p.keys * p.value_dim));
  r.credit.resize(size_t(p.edges())), r.probe_credit.resize(size_t(p.edges()));
  const auto dot = [](const std::vector<T>& a, int64_t i, const std::vector<T>& b, int64_t j, int64_t width) {
    double sum = 0;
    for (int64_t d = 0; d < width; ++d)
      sum += static_cast<double>(to_accumulator(a[size_t(i * width + d)])) *
             static_cast<double>(to_accumulator(b[size_t(j * width + d)]));
    return sum;
  };
  for (int64_t i = 0; i < p.queries; ++i) {
    const int64_t begin = p.row_offsets[size_t(i)], degree = p.row_offsets[size_t(i) + 1] - begin;
    std::vector<double> s, a, u, kept;
    double top = -INFINITY, total = 0;
    for (int64_t e = 0; e < degree; ++e) {
      const int64_t j = p.columns[size_t(begin + e)];
      s.push_back(p.scale * dot(p.q, i, p.k, j, p.head_dim));
      top = std::max(top, s.back());
      const Words words = block_words(p.dropout_key, i, j / 4);
      kept.push_back(p.dropout == 0                                     ? 1
                     : words[size_t(j % 4)] >= p.dropout * 4294967296.0 ? 1 / (1 - p.dropout)
                                                                        : 0);
      u.push_back(dot(p.grad, i, p.v, j, p.value_dim));
    }
    for (const double score : s) total += std::exp(score - top);
    r.lse.push_back(degree ? top + std::log(total) : -INFINITY);
    double ubar = 0;
    for (int64_t e = 0; e < degree; ++e) {
      a.push_back(std::exp(s[size_t(e)] - top) / total);
      ubar += a[size_t(e)] * kept[size_t(e)] * u[size_t(e)];
    }
    for (int64_t e = 0; e < degree; ++e) {
      const size_t n = static_cast<size_t>(e);
      const int64_t j = p.columns[size_t(begin + e)];
      const double ds = a[n] * (kept[n] * u[n] - ubar), here = kept[n] * u[n];
      for (int64_t d = 0; d < p.value_dim; ++d) {
        r.output[size_t(i * p.value_dim + d)] +=
            a[n] * kept[n] * to_accumulator(p.v[size_t(j * p.value_dim + d)]);
        r.dv[size_t(j * p.value_dim + d)] +=
            a[n] * kept[n] * to_accumulator(p.grad[size_t(i * p.value_dim + d)]);
      }
      for (int64_t d = 0; d < p.head_dim; ++d) {
        r.dq[size_t(i * p.head_dim + d)] += p.scale * ds * to_accumulator(p.k[size_t(j * p.head_dim + d)]);
        r.dk[size_t(j * p.head_dim + d)] += p.scale * ds * to_accumulator(p.q[size_t(i * p.head_dim + d)]);
      }
      double& credit = r.credit[size_t(begin + e)];
      if (rule == CreditRule::kLogit) credit = ds;
      if (rule == CreditRule::kPaper) credit = ds * s[n];
      if (rule == CreditRule::kLeaveOneOut) {
        double others = 0, others_u = 0;
        for (size_t m = 0; m < s.size(); ++m) {
          if (m == n) continue;
          others += std::exp(s[m] - top), others_u += std::exp(s[m] - top) * kept[m] * u[m];
        }
        credit = degree == 1 ? here : a[n] * (here - others_u / others);
      }
      r.probe_credit[size_t(begin + e)] = 1 / (1 + std::exp(r.lse.back() - s[n])) * (u[n] - ubar);
    }
  }
  return r;
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double size = 1e-3;
  for (const double x : expected)
    if (std::isfinite(x)) size = std::max(size, std::abs(x));
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n] == expected[n]) continue;  // infinities
    ASSERT_NEAR(found[n], expected[n], tolerance * size) << what << "[" << n << "]";
  }
}

void expect_close(const Gradients& found, const Gradients& expected, double tolerance) {
  expect_close(found.output, expected.output, tolerance, "output");
  expect_close(found.lse, expected.lse, tolerance, "lse");
  expect_close(found.dq, expected.dq, tolerance, "dq");
  expect_close(found.dk, expected.dk, tolerance, "dk");
  expect_close(found.dv, expected.dv, tolerance, "dv");
  expect_close(found.credit, expected.credit, tolerance, "credit");
  expect_close(found.probe_credit, expected.probe_credit, tolerance, "probe credit");
}

void expect_same_gradients(const Gradients& found, const Gradients& expected) {
  EXPECT_EQ(found.output, expected.output);
  EXPECT_EQ(found.dq, expected.dq);
  EXPECT_EQ(found.dk, expected.dk);
  EXPECT_EQ(found.dv, expected.dv);
  EXPECT_EQ(found.credit, expected.credit);
}

class Levels : public ::testing::TestWithParam<Level> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this CPU lacks " << level_name(GetParam());
    set_active_level(GetParam());
  }
  void TearDown() override { set_active_level(best_level()); }
};
INSTANTIATE_TEST_SUITE_P(All, Levels, ::testing::ValuesIn(kLevels),
                         [](const auto& given) { return std::string(level_name(given.param)); });

std::vector<int64_t> degrees_around_the_vector_width() {
  std::vector<int64_t> degrees;
  for (int64_t degree = 0; degree <= 40; ++degree) degrees.push_back(degree);
  return degrees;
}

constexpr double kFp32 = 3e-6, kBf16 = 2e-2;

TEST_P(Levels, DegreesFromNoneToSeveralVectorsUnderEveryRule) {
  for (const CreditRule rule :
       {CreditRule::kNone, CreditRule::kLogit, CreditRule::kPaper, CreditRule::kLeaveOneOut}) {
    SCOPED_TRACE(static_cast<int>(rule));
    const Problem<float> p(degrees_around_the_vector_width(), 50, 32, 32, 1);
    expect_close(run(p, rule), oracle(p, rule), kFp32);
    const Problem<Bf16> half(degrees_around_the_vector_width(), 50, 32, 32, 1);
    expect_close(run(half, rule), oracle(half, rule), kBf16);
  }
}

TEST_P(Levels, AnyWidth) {
  for (const int64_t width : {1, 3, 8, 16, 17, 32, 48, 64, 128, 200, 256, 300}) {
    SCOPED_TRACE(width);
    const Problem<float> p({5, 0, 16, 33, 1}, 40, width, width, 2);
    expect_close(run(p, CreditRule::kLeaveOneOut), oracle(p, CreditRule::kLeaveOneOut), kFp32 * 3);
    const Problem<float> mixed({5, 0, 16, 33, 1}, 40, width, 24, 3);
    expect_close(run(mixed, CreditRule::kPaper), oracle(mixed, CreditRule::kPaper), kFp32 * 3);
    Problem<Bf16> half({5, 0, 16, 33, 1}, 40, width, width, 4);
    half.scale = 0.1;
    expect_close(run(half, CreditRule::kLogit), oracle(half, CreditRule::kLogit), kBf16 * 2);
  }
}

TEST_P(Levels, LongColumnsAreSummedInSegments) {
  for (const int64_t width : {17, 64}) {
    const Problem<float> p(std::vector<int64_t>(600, 2), 3, width, width, 12);  // 400 edges a column
    expect_close(run(p, CreditRule::kLogit), oracle(p, CreditRule::kLogit), kFp32 * 3);
    Problem<Bf16> half(std::vector<int64_t>(600, 2), 3, width, width, 13);
    half.dropout = 0.3;
    expect_close(run(half, CreditRule::kLogit), oracle(half, CreditRule::kLogit), kBf16);
  }
}

TEST_P(Levels, Fp64RunsOnEveryLevel) {
  const Problem<double> p(degrees_around_the_vector_width(), 50, 17, 9, 5);
  expect_close(run(p, CreditRule::kLeaveOneOut), oracle(p, CreditRule::kLeaveOneOut), 1e-13);
}

TEST_P(Levels, DropoutDrawsTheNumbersOfTheReference) {
  for (const double rate : {0.1, 0.5, 1.0}) {
    Problem<float> p(degrees_around_the_vector_width(), 50, 16, 16, 6);
    p.dropout = rate;
    SCOPED_TRACE(rate);
    expect_close(run(p, CreditRule::kLogit), oracle(p, CreditRule::kLogit), kFp32);
  }
}

TEST_P(Levels, HugeLogitsStayNormalised) {
  Problem<float> p({1, 2, 17, 40}, 50, 32, 32, 7);
  // All scores of a row are equal and huge: the weights are 1 / degree, whatever lse can hold.
  for (float& x : p.q) x = 1000;
  for (float& x : p.k) x = 1000;
  const Gradients found = run(p, CreditRule::kLogit);
  for (int64_t j = 0; j < p.value_dim; ++j) {
    double mean = 0;
    for (int64_t e = 0; e < 2; ++e) mean += p.v[size_t(p.columns[size_t(1 + e)] * p.value_dim + j)] / 2;
    EXPECT_NEAR(found.output[size_t(p.value_dim + j)], mean, 1e-6);
  }
  const Gradients expected = oracle(p, CreditRule::kLogit);
  expect_close(found.dv, expected.dv, kFp32, "dv");
  expect_close(found.credit, expected.credit, kFp32, "credit");
}

TEST_P(Levels, KeysThatNobodyChoseAreNeverRead) {
  Problem<float> p({3, 0, 20, 9}, 60, 17, 33, 8);
  const Gradients before = run(p, CreditRule::kLeaveOneOut);
  std::vector<bool> chosen(60);
  for (const int32_t j : p.columns) chosen[size_t(j)] = true;
  ASSERT_NE(std::count(chosen.begin(), chosen.end(), false), 0);
  for (int64_t j = 0; j < 60; ++j) {
    if (chosen[size_t(j)]) continue;
    for (int64_t d = 0; d < 17; ++d) p.k[size_t(j * 17 + d)] = NAN;
    for (int64_t d = 0; d < 33; ++d) p.v[size_t(j * 33 + d)] = NAN;
  }
  const Gradients after = run(p, CreditRule::kLeaveOneOut);
  EXPECT_EQ(before.output, after.output);
  EXPECT_EQ(before.dq, after.dq);
  EXPECT_EQ(before.dk, after.dk);
  EXPECT_EQ(before.credit, after.credit);
}

// Lists are cut into bundles of 16, which a dense head takes in the order of their keys.
TEST_P(Levels, RowsOfSeveralBundles) {
  const std::vector<int64_t> degrees = {300, 0, 95, 96, 97, 64, 500, 1, 128, 160, 350, 350, 17, 420};
  for (const int64_t dim : {32, 64, 40}) {
    SCOPED_TRACE(dim);
    const Problem<float> p(degrees, 520, dim, dim, 8);
    const Gradients whole = run(p, CreditRule::kLeaveOneOut);
    expect_close(whole, oracle(p, CreditRule::kLeaveOneOut), kFp32);
    const Gradients cut = run(p, CreditRule::kLeaveOneOut, 5);
    EXPECT_EQ(cut.output, whole.output);
    EXPECT_EQ(cut.dq, whole.dq);
    EXPECT_EQ(cut.dk, whole.dk);
    EXPECT_EQ(cut.dv, whole.dv);
    const Problem<Bf16> half(degrees, 520, dim, dim, 8);
    expect_close(run(half, CreditRule::kLogit), oracle(half, CreditRule::kLogit), kBf16);
  }
  // Columns with hundreds of edges.
  const Problem<float> tall(std::vector<int64_t>(400, 7), 9, 64, 64, 9);
  expect_close(run(tall, CreditRule::kNone), oracle(tall, CreditRule::kNone), kFp32);
}

// Dense heads of more rows than a group has, of every width class, uneven: bundles in the order of their
// keys, rows without one, rests at the end of the lists, groups cut anywhere.
TEST_P(Levels, DenseHeadsInTheOrderOfTheirKeys) {
  std::vector<int64_t> degrees;
  for (int64_t i = 0; i < 150; ++i)
    degrees.push_back(i % 11 == 3 ? 0 : i % 7 == 2 ? i % 16 : 60 + (i * 37) % 190);
  degrees.push_back(257), degrees.push_back(16), degrees.push_back(15);
  for (const int64_t dim : {8, 16, 24, 32, 64, 128, 256}) {
    SCOPED_TRACE(dim);
    Problem<float> p(degrees, 257, dim, dim, 14);
    p.scale = 1 / std::sqrt(static_cast<double>(dim));
    const Gradients whole = run(p, CreditRule::kPaper);
    expect_close(whole, oracle(p, CreditRule::kPaper), kFp32);
    for (const int pieces : {2, 3, 8}) {
      const Gradients cut = run(p, CreditRule::kPaper, pieces);
      EXPECT_EQ(cut.output, whole.output);
      EXPECT_EQ(cut.lse, whole.lse);
      EXPECT_EQ(cut.dq, whole.dq);
      EXPECT_EQ(cut.credit, whole.credit);
    }
    p.dropout = 0.4;
    expect_close(run(p, CreditRule::kLogit), oracle(p, CreditRule::kLogit), kFp32);
    Problem<Bf16> half(degrees, 257, dim, dim, 15);
    half.scale = p.scale;
    expect_close(run(half, CreditRule::kLogit), oracle(half, CreditRule::kLogit), kBf16);
  }
}

// Causal lists and windows around the diagonal: bundles of one row are neighbours, those of others far away.
TEST_P(Levels, CausalAndBandedPatterns) {
  for (const bool causal : {true, false}) {
    Problem<float> p(std::vector<int64_t>(200, 0), 200, 32, 32, 16);
    p.columns.clear();
    p.row_offsets = {0};
    for (int64_t i = 0; i < 200; ++i) {
      for (int64_t j = causal ? 0 : std::max<int64_t>(i - 75, 0);
           j <= (causal ? i : std::min<int64_t>(i + 75, 199)); ++j)
        p.columns.push_back(static_cast<int32_t>(j));
      p.row_offsets.push_back(static_cast<int64_t>(p.columns.size()));
    }
    const Gradients whole = run(p, CreditRule::kLeaveOneOut);
    expect_close(whole, oracle(p, CreditRule::kLeaveOneOut), kFp32);
    EXPECT_EQ(run(p, CreditRule::kLeaveOneOut, 7).output, whole.output);
  }
}

// Scores whose exponentials leave fp32: those rows are done again by their largest score, the others are not.
TEST_P(Levels, ScoresFarFromZero) {
  Problem<float> p(std::vector<int64_t>(80, 100), 130, 32, 32, 17);
  p.scale = 1;
  for (int64_t i = 0; i < p.queries; ++i)
    for (int64_t d = 0; d < p.head_dim; ++d) {
      // Row i's scores are near 0, 50, -50, 95, -95, 150 or -150, each with a spread of about 1.
      const double level[] = {0, 50, -50, 95, -95, 150, -150};
      p.q[size_t(i * 32 + d)] = d == 0 ? static_cast<float>(level[i % 7]) : 0.2f * p.q[size_t(i * 32 + d)];
    }
  for (int64_t j = 0; j < p.keys; ++j) p.k[size_t(j * 32)] = 1;
  for (const double dropout : {0.3, 0.0}) {
    p.dropout = dropout;
    for (const CreditRule rule : {CreditRule::kLeaveOneOut, CreditRule::kLogit}) {
      const Gradients found = run(p, rule);
      expect_close(found, oracle(p, rule), 5 * kFp32);
      expect_same_gradients(found, run(p, rule, 1, Kept::kNothing));
    }
  }
  for (int64_t d = 0; d < p.head_dim; ++d) p.q[size_t(3 * 32 + d)] = NAN;
  const Gradients with_nan = run(p, CreditRule::kLogit);
  EXPECT_TRUE(std::isnan(with_nan.output[3 * 32]));
  EXPECT_TRUE(std::isfinite(with_nan.output[2 * 32]) && std::isfinite(with_nan.output[4 * 32]));
}

TEST_P(Levels, TheSameBitsHoweverTheRowsAreCut) {
  Problem<float> p(degrees_around_the_vector_width(), 50, 40, 24, 9);
  p.dropout = 0.2;
  const Gradients whole = run(p, CreditRule::kLeaveOneOut, 1);
  for (const int pieces : {2, 3, 7}) {
    const Gradients cut = run(p, CreditRule::kLeaveOneOut, pieces);
    EXPECT_EQ(whole.output, cut.output);
    EXPECT_EQ(whole.dq, cut.dq);
    EXPECT_EQ(whole.dk, cut.dk);
    EXPECT_EQ(whole.dv, cut.dv);
    EXPECT_EQ(whole.credit, cut.credit);
    EXPECT_EQ(whole.probe_credit, cut.probe_credit);
  }
}

// The forward pass may leave its scores or their exponentials to the backward pass, in sparse and in dense
// heads: the same bits as without them.
TEST_P(Levels, KeptNumbersStandForTheKeys) {
  std::vector<int64_t> dense;
  for (int64_t i = 0; i < 70; ++i) dense.push_back(i % 9 == 4 ? i % 17 : 64 + i * 2);
  for (const auto& [degrees, keys] :
       {std::pair(degrees_around_the_vector_width(), int64_t{50}), {dense, 210}})
    for (const int64_t dim : {16, 32, 64, 40})
      for (const CreditRule rule :
           {CreditRule::kNone, CreditRule::kLogit, CreditRule::kPaper, CreditRule::kLeaveOneOut}) {
        SCOPED_TRACE(std::to_string(keys) + " keys, dim " + std::to_string(dim) + ", rule " +
                     std::to_string(static_cast<int>(rule)));
        Problem<float> p(degrees, keys, dim, dim, 18);
        p.scale = 1 / std::sqrt(static_cast<double>(dim));
        for (const double dropout : {0.0, 0.3}) {
          p.dropout = dropout;
          const Gradients anew = run(p, rule, 3, Kept::kNothing);
          expect_close(anew, oracle(p, rule), kFp32);
          expect_same_gradients(run(p, rule, 1, Kept::kScores), anew);
          if (!needs_scores(rule)) expect_same_gradients(run(p, rule, 1, Kept::kExponentials), anew);
        }
      }
}

TEST_P(Levels, ProductsOfMembershipWidth) {
  const std::pair<int64_t, int64_t> cases[] = {{1, 50},   {5, 50},   {32, 50},   {100, 50},
                                               {128, 50}, {256, 50}, {32, 3000}, {136, 3000}};
  for (const auto& [width, keys] : cases) {  // 3000 keys: blocks of columns
    SCOPED_TRACE("width " + std::to_string(width) + ", keys " + std::to_string(keys));
    const Problem<float> p(degrees_around_the_vector_width(), keys, width, width, 10);
    std::vector<float> values, dots(p.columns.size()), rows(p.q.size()), columns(p.k.size());
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (size_t e = 0; e < p.columns.size(); ++e) values.push_back(normal(random));
    const ProductKernels<float> kernels = active_product_kernels<float>();
    kernels.edge_dot({p.csr(), width, p.view(p.q, width), p.view(p.k, width), dots.data()}, 0, p.queries);
    GatherSumParams<float> sum;
    sum.heads = 1, sum.rows_per_head = p.queries, sum.width = width, sum.factor = 2;
    sum.offsets = p.row_offsets.data(), sum.indices = p.columns.data(), sum.coefficients = values.data();
    sum.dense = p.view(p.k, width), sum.out = rows.data();
    kernels.gather_sum(sum, 0, p.queries);
    kernels.scatter_sum({p.csr(), width, 3, values.data(), p.view(p.q, width), columns.data()}, 0, p.keys);

    std::vector<double> want_dots, want_rows(rows.size()), want_columns(columns.size());
    for (int64_t i = 0; i < p.queries; ++i)
      for (int64_t e = p.row_offsets[size_t(i)]; e < p.row_offsets[size_t(i) + 1]; ++e) {
        const int64_t j = p.columns[size_t(e)];
        double product = 0;
        for (int64_t d = 0; d < width; ++d) {
          const double left = p.q[size_t(i * width + d)], right = p.k[size_t(j * width + d)];
          product += left * right;
          want_rows[size_t(i * width + d)] += 2 * values[size_t(e)] * right;
          want_columns[size_t(j * width + d)] += 3 * values[size_t(e)] * left;
        }
        want_dots.push_back(product);
      }
    expect_close({dots.begin(), dots.end()}, want_dots, kFp32, "dots");
    expect_close({rows.begin(), rows.end()}, want_rows, kFp32, "rows");
    expect_close({columns.begin(), columns.end()}, want_columns, kFp32, "columns");
  }
}

TEST(LevelNames, RoundTrip) {
  for (const Level level : kLevels) EXPECT_EQ(level_from_name(level_name(level)), level);
  EXPECT_FALSE(level_from_name("sse9"));
  EXPECT_TRUE(is_available(Level::kScalar));
  EXPECT_TRUE(is_available(best_level()));
}

}  // namespace
}  // namespace edgewise::kernels::cpu
