// The CUDA kernels by which a block model chooses squares, lane by lane on a CPU, against what a CPU does for
// the same request: edges of groups by the direct sampler, counts, sums as dense products, means.
#include <edgewise/edges/sbm_edges.h>

#include "edges/sbm/sbm_squares.h"
#include "kernels/probe_units.h"
#include "kit/square_cases.h"
#include "ops/squares/square_choice_launch.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

const auto kChoiceStarts = [](const char* kernel, int error) { EXPECT_EQ(error, 0) << kernel; };

constexpr int64_t kBatch = 2, kHeads = 3;
constexpr EdgeShape kTokens{kBatch, kHeads, 16 * 37 - 5, 16 * 45 - 9};
constexpr EdgeShape kGroups{kBatch, kHeads, 37, 45};

at::Tensor streams(kernels::Purpose purpose) {
  return ops::stream_keys({.seed = 5, .step = 3}, purpose, kGroups);
}

// Probabilities about 0.3 in the mean, some of them 0 and some above 1.
ops::SquareSampling sampling_of(at::ScalarType dtype, int64_t clusters) {
  ops::SquareSampling sampling;
  sampling.shape = kTokens;
  sampling.query_membership = kit::rand({kBatch, kHeads, 37, clusters}, 1, at::kDouble).pow(3).to(dtype);
  sampling.key_side = (kit::rand({kBatch, kHeads, 45, clusters}, 2, at::kDouble).pow(3) *
                       (5.0 / static_cast<double>(clusters)))
                          .to(dtype);
  sampling.query_membership.select(2, 3).fill_(0);
  sampling.key_side.select(2, 7).fill_(10);
  sampling.options.random = {.seed = 5, .step = 3};
  return sampling;
}

at::Tensor some_mask(int64_t groups, int64_t seed) {
  return kit::rand({kBatch, groups}, seed, at::kDouble) < 0.7;
}

ops::ChosenSquares choose(const ops::SquareSampling& sampling) {
  const bool has_probes = !sampling.probe_rates.empty();
  return ops::choose_squares_by_kernels(
      sampling, streams(kernels::Purpose::kEdges),
      has_probes ? streams(kernels::Purpose::kProbes) : at::Tensor(),
      has_probes ? at::tensor(sampling.probe_rates, at::kDouble) : at::Tensor(), nullptr, kChoiceStarts);
}

void expect_direct_sampler(const ops::SquareSampling& sampling, const std::string& what) {
  SCOPED_TRACE(what);
  SampleOptions options = sampling.options;
  options.sampler = Sampler::kDirect;
  const EdgeSet expected = sample_sbm_edges(sampling.query_membership, sampling.key_side, options);
  const graph::Squares found = choose(sampling).squares;
  graph::check_squares("test", found);
  const EdgeSet groups = graph::groups_of_squares(found);
  EXPECT_GT(expected.edge_count(), 300);
  EXPECT_TRUE(at::equal(groups.row_offsets(), expected.row_offsets()));
  EXPECT_TRUE(at::equal(groups.col_indices(), expected.col_indices()));
}

TEST(SimtSquareChoice, DrawsWhatTheDirectSamplerDraws) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t clusters : {8, 32, 128}) {
      ops::SquareSampling sampling = sampling_of(dtype, clusters);
      const std::string what = c10::str(dtype, ", ", clusters, " clusters");
      expect_direct_sampler(sampling, what);
      sampling.options.law = EdgeLaw::kPoisson, sampling.options.exploration = 0.01;
      expect_direct_sampler(sampling, what + ", Poisson");
      sampling.options.key_mask = some_mask(45, 7), sampling.options.query_mask = some_mask(37, 8);
      expect_direct_sampler(sampling, what + ", masked");
      sampling.options.is_causal = true;
      expect_direct_sampler(sampling, what + ", causal");
    }
}

// Rows behind a first one draw that row's numbers and see its keys.
TEST(SimtSquareChoice, RowsMayBeginLater) {
  ops::SquareSampling sampling = sampling_of(at::kFloat, 32);
  sampling.options.is_causal = true;
  for (const int64_t first_row : {-1, 8}) {
    SCOPED_TRACE(first_row);
    sampling.first_row = first_row;
    SampleOptions options = sampling.options;
    options.sampler = Sampler::kDirect;
    const int64_t skipped = first_row < 0 ? 1 : 0;
    options.query_offset = first_row + skipped;
    const EdgeSet expected = sample_sbm_edges(sampling.query_membership.narrow(2, skipped, 37 - skipped),
                                              sampling.key_side, options);
    const at::Tensor found = graph::mask_of_squares(choose(sampling).squares);
    EXPECT_TRUE(at::equal(found.narrow(2, skipped, 37 - skipped), expected.to_mask()));
    if (skipped) {
      EXPECT_FALSE(found.select(2, 0).any().item<bool>());
    }
  }
}

TEST(SimtSquareChoice, ProbesAreAbsentSquaresAtTheirRate) {
  ops::SquareSampling sampling = sampling_of(at::kBFloat16, 32);
  sampling.options.key_mask = some_mask(45, 7);
  sampling.probe_rates = {0.1, 0.6};
  const ops::ChosenSquares chosen = choose(sampling);
  graph::check_squares("test", *chosen.probes);
  const at::Tensor squares = graph::mask_of_squares(chosen.squares),
                   probes = graph::mask_of_squares(*chosen.probes);
  // By their numbers, pair by pair.
  const at::Tensor keys = streams(kernels::Purpose::kProbes);
  at::Tensor expected = at::zeros_like(probes);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < 37; ++i)
        for (int64_t j = 0; j < 45; ++j) {
          const auto key = static_cast<uint64_t>(keys[b * kHeads + h].item<int64_t>());
          const uint32_t number =
              kernels::unit_numbers(key, static_cast<uint32_t>(i), static_cast<uint32_t>(j / 4)).word[j % 4];
          if (number < kernels::unit_limit(sampling.probe_rates[static_cast<size_t>(b)]))
            expected[b][h][i][j] = true;
        }
  const at::Tensor allowed =
      sampling.options.key_mask->view({kBatch, 1, 1, 45}).logical_and(squares.logical_not());
  EXPECT_TRUE(at::equal(probes, expected.logical_and(allowed)));
  EXPECT_NEAR((probes[1].sum() / allowed[1].sum()).item<double>(), 0.6, 0.04);
}

TEST(SimtSquareChoice, CountsThePairsOfHeads) {
  for (const kit::SquareCase& given : kit::square_cases()) {
    SCOPED_TRACE(given.name);
    const kit::SquareProblem problem = kit::square_problem(given);
    graph::SquarePairs pairs{problem.call.key_bits, problem.call.is_causal, problem.call.query_offset, {}};
    for (const bool masked : {false, true}) {
      if (masked) pairs.query_mask = kit::rand({given.batch, given.queries}, 3, at::kDouble) < 0.6;
      EXPECT_TRUE(
          at::equal(graph::pairs_per_head_by_kernels(problem.call.squares, pairs, nullptr, kChoiceStarts),
                    graph::pairs_per_head(problem.call.squares, pairs)));
    }
  }
}

TEST(SimtSquareChoice, SumsAreDenseProducts) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t clusters : {8, 40, 128, 256}) {
      SCOPED_TRACE(c10::str(dtype, ", ", clusters, " clusters"));
      ops::SquareSampling sampling = sampling_of(dtype, clusters);
      sampling.probe_rates = {0.1, 0.6};
      const ops::ChosenSquares chosen = choose(sampling);
      const auto weighed = [&](const graph::Squares& squares, int64_t seed) {
        return ops::WeighedSquares{squares,
                                   graph::transposed_by_kernels(squares, true, nullptr, kChoiceStarts),
                                   kit::randn({squares.cols.size(0)}, seed, at::kFloat)};
      };
      const ops::WeighedSquares present = weighed(chosen.squares, 1), probes = weighed(*chosen.probes, 2);
      constexpr double kClip = 1.5;
      const at::Tensor rates = at::tensor(sampling.probe_rates, at::kDouble);
      const ops::SquareMembershipGrads found =
          ops::membership_grads_by_kernels(present, &probes, rates, kClip, sampling.query_membership,
                                           sampling.key_side, nullptr, kChoiceStarts);
      const auto dense = [&](const ops::WeighedSquares& list,
                             bool clipped) {  // G [B, H, groups(L), groups(S)]
        const graph::ListedSquares listed = graph::listed(list.squares);
        at::Tensor values = list.values.index_select(0, listed.places).to(at::kDouble);
        if (clipped) values = values.clamp(-kClip, kClip);
        return at::zeros({kGroups.pairs()}, at::kDouble)
            .index_put_({listed.rows * 45 + listed.cols}, values)
            .view({kBatch, kHeads, 37, 45});
      };
      const at::Tensor all = dense(present, true) + dense(probes, false) / rates.view({-1, 1, 1, 1});
      const auto expect_close = [&](const at::Tensor& is, const at::Tensor& wanted) {
        const double bound = dtype == at::kFloat ? 1e-5 : 1e-2;
        EXPECT_LT((is.to(at::kDouble) - wanted).abs().max().item<double>(),
                  bound * wanted.abs().max().item<double>());
      };
      expect_close(found.query, at::matmul(all, sampling.key_side.to(at::kDouble)));
      expect_close(found.key_side,
                   at::matmul(all.transpose(2, 3), sampling.query_membership.to(at::kDouble)));
    }
}

TEST(SimtSquareChoice, MeansAreTheMeansOfValidTokens) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const auto& [dim, masked] :
         {std::pair(24, false), {24, true}, {16, true}, {32, false}, {32, true}}) {
      SCOPED_TRACE(c10::str(dtype, ", ", dim, masked ? " dims, masked" : " dims"));
      const auto rows = [&, dim = dim](int64_t tokens, int64_t seed) {  // strided as projections are
        return kit::randn({kBatch, tokens, kHeads, dim}, seed, dtype).transpose(1, 2);
      };
      const at::Tensor query = rows(kTokens.queries, 1), key = rows(kTokens.keys, 2);
      at::Tensor query_mask, key_mask;
      if (masked) {
        query_mask = kit::rand({kBatch, kTokens.queries}, 3, at::kDouble) < 0.5;
        key_mask = kit::rand({kBatch, kTokens.keys}, 4, at::kDouble) < 0.5;
        key_mask[0].narrow(0, 32, 16).fill_(false);  // a whole group
      }
      const ops::GroupMeans found =
          ops::means_by_kernels(query, key, query_mask, key_mask, nullptr, kChoiceStarts);
      // Beside the means something else reads the queries; with a mask the keys too.
      const ops::GroupMeans grads{.query = kit::randn(found.query.sizes(), 5, dtype),
                                  .key = kit::randn(found.key.sizes(), 6, dtype),
                                  .query_tokens = rows(kTokens.queries, 7),
                                  .key_tokens = masked ? rows(kTokens.keys, 8) : at::Tensor()};
      const ops::GroupMeans back =
          ops::mean_grads_by_kernels(grads, query, key, query_mask, key_mask, nullptr, kChoiceStarts);
      const double bound = dtype == at::kFloat ? 1e-6 : 2e-2;
      const auto expect_side = [&](const at::Tensor& x, const at::Tensor& mask, const at::Tensor& mean,
                                   const at::Tensor& grad, const at::Tensor& other_grad,
                                   const at::Tensor& x_grad) {
        const at::Tensor exact = x.to(at::kDouble).detach().requires_grad_();
        const at::Tensor wanted = mean_of_groups(exact, mask.defined() ? std::optional(mask) : std::nullopt);
        wanted.backward(grad.to(at::kDouble));
        EXPECT_TRUE(at::allclose(mean.to(at::kDouble), wanted, bound, bound));
        const at::Tensor both =
            other_grad.defined() ? exact.grad() + other_grad.to(at::kDouble) : exact.grad();
        EXPECT_TRUE(at::allclose(x_grad.to(at::kDouble), both, bound, bound));
      };
      expect_side(query, query_mask, found.query, grads.query, grads.query_tokens, back.query);
      expect_side(key, key_mask, found.key, grads.key, grads.key_tokens, back.key);
    }
}

}  // namespace
}  // namespace edgewise
