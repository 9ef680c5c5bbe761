// What the fast samplers promise beyond their law: the squeezed sampler is nothing but "draw a number for
// every pair and compare it with P(edge)", whatever bounds it uses; bounds hold; every CPU level gives the
// same edges.
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sample_scratch.h"
#include "kernels/cpu/sample/sampler.h"
#include "kernels/pair_bytes.h"
#include "kit/cpu_level_guard.h"
#include "kit/law_check.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using namespace kernels::cpu;

struct Memberships {
  const char* name;
  at::Tensor query, key;  // [L, C], [S, C]
};

std::vector<Memberships> memberships(int64_t queries, int64_t keys, int64_t clusters) {
  const auto flat = [&](int64_t n, uint64_t seed) { return kit::rand({n, clusters}, seed) * 0.1 + 0.45; };
  const auto degrees = [&](int64_t n, uint64_t seed) {
    return flat(n, seed) * kit::rand({n, 1}, seed + 100).pow(3) * 2;
  };
  const auto sharp = [&](int64_t n, uint64_t seed) {
    return (kit::rand({n, clusters}, seed) > 0.9).to(at::kFloat) * 0.9 + 0.01;
  };
  // Tokens that belong to one of four sets of clusters.
  const auto groups = [&](int64_t n, uint64_t seed) {
    const at::Tensor set = torch::arange(clusters).remainder(4), mine = (torch::arange(n) * 7).remainder(4);
    return (mine.unsqueeze(1) == set.unsqueeze(0)).to(at::kFloat) * 0.8 +
           kit::rand({n, clusters}, seed) * 0.1;
  };
  const double scale = 1.0 / static_cast<double>(clusters);
  return {{"flat", flat(queries, 1), flat(keys, 2) * scale},
          {"degrees", degrees(queries, 3), degrees(keys, 4) * scale},
          {"random", kit::rand({queries, clusters}, 5), kit::rand({keys, clusters}, 6) * scale},
          {"sharp", sharp(queries, 7), sharp(keys, 8) * (4 * scale)},
          {"groups", groups(queries, 14), groups(keys, 15) * (2 * scale)},
          {"groups beyond one", groups(queries, 16) * 5, groups(keys, 17) * scale},
          {"far beyond one", kit::rand({queries, clusters}, 18) * 4000, kit::rand({keys, clusters}, 19)},
          {"beyond one", kit::rand({queries, clusters}, 9) * 6, kit::rand({keys, clusters}, 10) * scale},
          {"rare", flat(queries, 11), flat(keys, 12) * (scale * 1e-3)},
          {"nothing", at::zeros({queries, clusters}), flat(keys, 13) * scale}};
}

// A head over tensors that outlive it.
struct LevelCase {
  at::Tensor query, key;
  std::vector<int32_t> valid_keys;
  std::vector<uint8_t> query_valid;  // bool has no data()
  SampleHead head;

  LevelCase(const Memberships& of, bool masked) : query(of.query.contiguous()), key(of.key.contiguous()) {
    for (int32_t j = 0; j < key.size(0); ++j)
      if (!masked || j % 5 != 3) valid_keys.push_back(j);
    for (int64_t i = 0; i < query.size(0); ++i) query_valid.push_back(!masked || i % 7 != 2);
    head.queries = query.size(0);
    head.keys = key.size(0);
    head.clusters = query.size(1);
    head.query_membership = query.const_data_ptr<float>();
    head.key_side = key.const_data_ptr<float>();
    head.valid_keys = valid_keys.data();
    head.valid_key_count = static_cast<int64_t>(valid_keys.size());
    head.query_mask = query_valid.data();
    for (const uint8_t valid : query_valid) head.valid_query_count += valid;
    head.stream_key = 0x1234567890abcdefull;
  }

  double p(int64_t row, int64_t n) const {
    return sample_kernels().dot(head.query_membership + row * head.clusters,
                                head.key_side + head.valid_keys[n] * head.clusters, head.clusters) +
           head.exploration;
  }
};

// The squeezed sampler with each kind of bounds.
enum class BoundsOf { kOneDirection, kGroups, kProducts };

SampledRows squeezed(const SampleHead& head, BoundsOf kind) {
  SampleScratch scratch;
  SampledRows rows;
  const SampleBounds bounds = sample_bounds(head);
  GroupBounds groups = group_directions(head);
  if (groups.groups > 0) measure_groups(head, groups);
  const bool by_groups = kind == BoundsOf::kGroups && groups.groups > 0;
  sample_squeezed(head, by_groups ? squeeze_bounds(groups) : squeeze_bounds(head, bounds),
                  kind == BoundsOf::kProducts ? product_bounds(head) : ProductBounds{}, scratch, 0,
                  head.queries, rows);
  return rows;
}

std::vector<int32_t> columns_of(const SampleHead& head, const SampledRows& rows) {
  std::vector<int32_t> result(static_cast<size_t>(rows.edge_count()));
  rows.write_columns(head, result.data());
  return result;
}

class SampleLevels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kit::has_cpu_level(GetParam())) GTEST_SKIP() << "this CPU has no " << GetParam();
    level_.emplace(GetParam());
  }
  std::optional<kit::ForcedCpuLevel> level_;
};
INSTANTIATE_TEST_SUITE_P(All, SampleLevels, ::testing::Values("scalar", "avx2", "avx512"),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(SampleLevels, SqueezedIsTheComparisonOfEveryPair) {
  for (const int64_t clusters : {40, 5})
    for (const Memberships& of : memberships(70, 300, clusters))
      for (const Law law : {Law::kBernoulli, Law::kPoisson})
        for (const bool masked : {false, true}) {
          SCOPED_TRACE(std::string(of.name) + ", " + std::to_string(clusters) + " clusters");
          LevelCase given(of, masked);
          SampleHead& head = given.head;
          head.law = law;
          head.exploration = masked ? 0.1 : 0;
          head.is_causal = masked;
          std::vector<int32_t> columns, degrees;
          for (int64_t row = 0; row < head.queries; ++row) {
            const size_t before = columns.size();
            for (int64_t n = 0; n < allowed_keys(head, row); ++n) {
              const double u = (kernels::pair_byte(head.stream_key, row, n) +
                                kernels::pair_fine_word(head.stream_key, row, n) * 0x1.0p-32) /
                               256;
              if (u < edge_probability(law, given.p(row, n))) columns.push_back(head.valid_keys[n]);
            }
            degrees.push_back(static_cast<int32_t>(columns.size() - before));
          }
          for (const BoundsOf kind : {BoundsOf::kOneDirection, BoundsOf::kGroups, BoundsOf::kProducts}) {
            const SampledRows rows = squeezed(head, kind);
            EXPECT_EQ(rows.degrees, degrees) << static_cast<int>(kind);
            EXPECT_EQ(columns_of(head, rows), columns) << static_cast<int>(kind);
          }
        }
}

TEST_P(SampleLevels, BoundsHold) {
  for (const int64_t clusters : {128, 33, 1})
    for (const Memberships& of : memberships(60, 200, clusters)) {
      SCOPED_TRACE(of.name);
      const LevelCase given(of, false);
      const SampleHead& head = given.head;
      const SampleBounds bounds = sample_bounds(head);
      const ProductBounds products = product_bounds(head);
      GroupBounds groups = group_directions(head);
      if (groups.groups > 0) measure_groups(head, groups);
      for (int64_t row = 0; row < head.queries; ++row)
        for (int64_t n = 0; n < head.valid_key_count; ++n) {
          const double p = given.p(row, n);
          const Terms &terms = bounds.rows[static_cast<size_t>(row)],
                      &key = bounds.keys[static_cast<size_t>(n)];
          const double centre = double{terms.first} * key.first + double{terms.second} * key.second;
          EXPECT_LE(std::abs(p - centre), double{terms.rest} * key.rest + 1e-5 * std::abs(centre));
          EXPECT_LE(p, thinning_rate(head, bounds, terms).bound);
          if (groups.groups > 0) {
            const Terms &of_row = groups.rows[static_cast<size_t>(row)],
                        &of_key = groups.keys[static_cast<size_t>(n)];
            const size_t g = groups.key_group[static_cast<size_t>(n)],
                         h = groups.row_group[static_cast<size_t>(row)];
            const double first =
                double{groups.row_first[static_cast<size_t>(row * groups.lanes) + g]} * of_key.first;
            const double second =
                double{of_row.second} * groups.key_second[h * groups.keys.size() + static_cast<size_t>(n)];
            EXPECT_LE(std::abs(p - first - second),
                      double{of_row.rest} * of_key.rest + 1e-5 * (first + std::abs(second)));
          }
          const float* rounded = products.row_terms.data() + 3 * row;
          const auto key_term = [&](int64_t t) {
            return double{products.key_terms[static_cast<size_t>(t * products.key_stride + n)]};
          };
          double product = 0;
          for (int64_t c = 0; c < 2 * products.cluster_pairs; ++c)
            product += 1.0 * products.rows[static_cast<size_t>(row * products.cluster_pairs * 2 + c)] *
                       products.keys[static_cast<size_t>((n / 64 * products.cluster_pairs + c / 2) * 128 +
                                                         n % 64 * 2 + c % 2)];
          EXPECT_LE(std::abs(p - product * rounded[0] * key_term(0)),
                    rounded[2] * key_term(1) + rounded[1] * key_term(2) + 1e-5 * p);
          EXPECT_LE(std::abs(product), 2147483647.0);  // what the kernels sum in
        }
    }
}

TEST_P(SampleLevels, EverySamplerGivesTheEdgesOfTheScalarLevel) {
  for (const Sampler sampler : {Sampler::kSqueezed, Sampler::kThinning, Sampler::kFastRg, Sampler::kAuto})
    for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
      for (const Memberships& of : memberships(130, 200, 24)) {
        SCOPED_TRACE(std::string(of.name) + ", " + std::string(to_string(sampler)));
        SampleOptions options;
        options.sampler = sampler;
        options.law = law;
        const auto draw = [&] {
          return sample_sbm_edges(of.query.view({1, 1, 130, 24}), of.key.view({1, 1, 200, 24}), options);
        };
        const EdgeSet here = draw();
        const kit::ForcedCpuLevel scalar("scalar");
        const EdgeSet there = draw();
        EXPECT_TRUE(at::equal(here.row_offsets(), there.row_offsets()));
        EXPECT_TRUE(at::equal(here.col_indices(), there.col_indices()));
      }
}

TEST(FastRgTables, RejectWhereATableDoesNotPay) {
  const auto rejecting = [](const at::Tensor& query, const at::Tensor& key) {
    const LevelCase given({"", query, key}, false);
    const FastRgTables tables = fastrg_tables(given.head);
    return std::count(tables.rejects.begin(), tables.rejects.end(), 1);
  };
  const at::Tensor many = at::full({500, 4}, 0.5f), few = at::full({2, 4}, 0.5f);
  const at::Tensor flat = at::full({64, 4}, 0.1f);
  at::Tensor uneven = at::full({64, 4}, 0.01f);
  uneven[3].fill_(0.3);
  EXPECT_EQ(rejecting(many, flat), 4);    // every proposal is kept
  EXPECT_EQ(rejecting(many, uneven), 0);  // one in twenty is, of many draws
  EXPECT_EQ(rejecting(few, uneven), 4);   // of few
}

TEST(SampleIndependence, FarNeighboursRowsAndSteps) {
  // Numbers that share a counter, a lane of a vector or a tile lie this far apart.
  const at::Tensor query = at::full({1, 2, 40, 3}, 0.5f), key = at::full({1, 2, 700, 3}, 0.2f);
  for (const Sampler sampler : {Sampler::kSqueezed, Sampler::kThinning}) {
    SampleOptions options;
    options.sampler = sampler;
    std::vector<at::Tensor> steps;
    for (int64_t step = 0; step < 60; ++step) {
      options.random.step = static_cast<uint64_t>(step);
      steps.push_back(sample_sbm_edges(query, key, options).to_mask().to(at::kDouble) - 0.3);
    }
    const at::Tensor x = at::cat(steps);  // [60, 2, 40, 700]
    const auto apart = [&](int64_t dim, int64_t lag) {
      return kit::correlation_z(x.narrow(dim, 0, x.size(dim) - lag), x.narrow(dim, lag, x.size(dim) - lag));
    };
    for (const int64_t lag : {1, 2, 4, 7, 8, 16, 32, 64, 128, 256})
      EXPECT_LT(std::abs(apart(3, lag)), 4.7) << lag;
    for (const int64_t lag : {1, 2, 4, 16, 32}) EXPECT_LT(std::abs(apart(2, lag)), 4.7) << lag;
    EXPECT_LT(std::abs(apart(1, 1)), 4.7);
    for (const int64_t lag : {1, 2, 3}) EXPECT_LT(std::abs(apart(0, lag)), 4.7) << lag;
    // Degrees of rows and of columns vary as sums of independent edges do.
    for (const int64_t over : {3, 2}) {
      const at::Tensor degree = x.sum(over);
      EXPECT_LT(std::abs(kit::variance_z(degree.square(), at::full_like(degree, 0.21 * x.size(over)))), 4.7);
    }
  }
}

}  // namespace
}  // namespace edgewise
