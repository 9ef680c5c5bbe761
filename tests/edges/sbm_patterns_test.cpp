// Appendix A: the three patterns with self-loops meet the three conditions for universal approximation (Yun
// et al. 2020).
#include <edgewise/edges/sbm_patterns.h>
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace edgewise {
namespace {

// The sampled edges [N, N]; probabilities are 0 and 1, so every draw is the pattern.
at::Tensor sampled(const SbmParameters& parameters) {
  SampleOptions options;
  options.self_loops = true;
  const auto batched = [](const at::Tensor& t) { return t.unsqueeze(0).unsqueeze(0); };
  return sample_sbm_edges(batched(parameters.query_membership), batched(parameters.key_side()), options)
      .to_mask()[0][0];
}

// A Hamiltonian path in the union of the patterns: each token sees its predecessor. Block after block; a
// block ends with its relay, which every token of the next block sees.
bool path_exists(const at::Tensor& united, const std::vector<int64_t>& order) {
  for (size_t n = 0; n + 1 < order.size(); ++n)
    if (!united[order[n + 1]][order[n]].item<bool>()) return false;
  return true;
}

TEST(SbmPatterns, MeetTheThreeConditions) {
  for (const auto& [tokens, blocks] : {std::pair<int64_t, int64_t>{12, 3}, {13, 4}, {5, 5}, {6, 1}, {1, 1}}) {
    const at::Tensor diagonal = sampled(block_diagonal_pattern(tokens, blocks));
    const at::Tensor readers = sampled(relay_readers_pattern(tokens, blocks));
    const at::Tensor writers = sampled(relay_writers_pattern(tokens, blocks));
    // 1. Every pattern contains every self-loop.
    for (const at::Tensor& pattern : {diagonal, readers, writers})
      EXPECT_TRUE(pattern.diagonal().all().item<bool>());
    // 2. The union has a Hamiltonian path.
    std::vector<int64_t> order(static_cast<size_t>(tokens));
    for (int64_t n = 0; n < tokens; ++n) order[static_cast<size_t>(n)] = n;
    EXPECT_TRUE(path_exists(diagonal | readers | writers, order));
    // 3. Some number of layers connects every token to every token.
    at::Tensor reach = at::eye(tokens).to(at::kBool);
    for (int layer = 0; layer < 6; ++layer) {
      const at::Tensor& pattern = layer % 3 == 0 ? diagonal : layer % 3 == 1 ? writers : readers;
      reach = at::matmul(pattern.to(at::kFloat), reach.to(at::kFloat)) > 0;
    }
    EXPECT_TRUE(reach.all().item<bool>()) << tokens << " tokens, " << blocks << " blocks";
    // And stays sparse: far fewer edges than pairs.
    if (tokens >= 12) {
      EXPECT_LT(diagonal.sum().item<double>(), 0.5 * static_cast<double>(tokens * tokens));
    }
  }
}

TEST(SbmPatterns, TheirProbabilitiesAreZeroOrOne) {
  for (const auto& p :
       {block_diagonal_pattern(7, 2), relay_readers_pattern(7, 2), relay_writers_pattern(7, 2)}) {
    const at::Tensor values = p.probabilities();
    EXPECT_TRUE(((values == 0) | (values == 1)).all().item<bool>());
  }
  EXPECT_THROW(block_diagonal_pattern(3, 4), c10::Error);
}

}  // namespace
}  // namespace edgewise
