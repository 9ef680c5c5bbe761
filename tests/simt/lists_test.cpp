// The samplers whose edges are lists, and lists by keys, lane by lane on a CPU.
#include <edgewise/ops/sample.h>

#include "graph/bool_bytes.h"
#include "graph/edge_plan.h"
#include "kernels/bit_tiles.h"
#include "kit/probe_options.h"
#include "kit/random_inputs.h"
#include "ops/streams.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

using namespace simt_kit;

// Memberships, and the parameters of both samplers.
struct Model {
  at::Tensor query, key;  // [B, H, L, C], [B, H, S, C]
  SampleOptions options;
  EdgeShape shape;
  at::Tensor streams, tops;
  float limit = 1;  // on the mean bound of a block that thins

  Model(at::Tensor queries, at::Tensor keys, SampleOptions given)
      : query(std::move(queries)),
        key(std::move(keys)),
        options(std::move(given)),
        shape{query.size(0), query.size(1), query.size(2), key.size(2)},
        streams(ops::stream_keys(options.random, kernels::Purpose::kEdges, shape)),
        tops(at::zeros({shape.batch * shape.heads, query.size(3)})) {}

  kernels::cuda::TileSampleParams params() const {
    kernels::cuda::TileSampleParams p;
    p.shape = tile_shape(shape);
    p.clusters = query.size(3);
    if (query.scalar_type() == at::kFloat) {
      p.exact_query_membership = view<float>(query);
      p.exact_key_side = view<float>(key);
    } else {
      p.query_membership = view<kernels::Bf16>(query);
      p.key_side = view<kernels::Bf16>(key);
    }
    p.poisson = options.law == EdgeLaw::kPoisson;
    p.exploration = static_cast<float>(options.exploration);
    p.query_mask = graph::bool_bytes(options.query_mask);
    p.key_mask = graph::bool_bytes(options.key_mask);
    p.is_causal = options.is_causal;
    p.edge_keys = keys_of(streams);
    p.thin.limit = limit;
    p.thin.key_tops = tops.mutable_data_ptr<float>();
    return p;
  }

  EdgeSet lists() const {
    tops.zero_();
    return list_of(shape, [&](const kernels::cuda::ListOutput& out) {
      return kernels::cuda::launch_list_sample({params(), out}, nullptr);
    });
  }

  // By thinning into tiles; rows of blocks that do not thin come from the direct sampler, as on a GPU.
  EdgeSet tiles() const {
    tops.zero_();
    kernels::cuda::TileSampleParams p = params();
    const int64_t heads = shape.batch * shape.heads, blocks = (shape.queries + 127) / 128;
    const at::Tensor words = at::full({p.shape.words()}, -1, at::kInt),
                     counts = at::zeros({heads}, at::kLong), thinned = at::zeros({heads, blocks}, at::kByte),
                     direct = at::zeros({heads}, at::kInt);
    p.tiles = reinterpret_cast<uint32_t*>(words.mutable_data_ptr<int32_t>());
    p.edge_counts = reinterpret_cast<uint64_t*>(counts.mutable_data_ptr<int64_t>());
    p.thin.blocks = thinned.mutable_data_ptr<uint8_t>();
    p.thin.direct_blocks = reinterpret_cast<uint32_t*>(direct.mutable_data_ptr<int32_t>());
    EXPECT_EQ(kernels::cuda::launch_thin_sample(p, nullptr), 0);
    SampleOptions exact = options;
    exact.sampler = Sampler::kDirect;
    at::Tensor mask = sample_sbm_edges(query, key, exact).to_mask().clone();
    int64_t in_tiles = 0;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < shape.queries; ++i) {
        if (!p.thin.blocks[h * blocks + i / 128]) continue;
        for (int64_t j = 0; j < shape.keys; ++j) {
          const int row = static_cast<int>(i % 64), column = static_cast<int>(j % 64);
          const int64_t tile = (h * p.shape.row_tiles() + i / 64) * p.shape.column_tiles() + j / 64;
          const uint32_t word = p.tiles[tile * kernels::kTileWords + kernels::tile_word(row, column)];
          const bool edge = word >> kernels::tile_bit(row, column) & 1;
          mask.data_ptr<bool>()[(h * shape.queries + i) * shape.keys + j] = edge;
          in_tiles += edge;
        }
      }
    EXPECT_EQ(counts.sum().item<int64_t>(), in_tiles);
    return EdgeSet::from_mask(mask);
  }

  // 2^-23 of a row's sum is nothing beside what is asserted.
  double expected_edges() const {
    at::Tensor p =
        at::matmul(query.to(at::kDouble), key.to(at::kDouble).transpose(2, 3)) + options.exploration;
    if (options.law == EdgeLaw::kPoisson) p = -(-p).expm1();
    if (options.key_mask) p = p * options.key_mask->view({shape.batch, 1, 1, shape.keys});
    if (options.query_mask) p = p * options.query_mask->view({shape.batch, 1, shape.queries, 1});
    if (options.is_causal) p = p.tril();
    return p.clamp_max(1).sum().item<double>();
  }
};

SampleOptions options_of(EdgeLaw law, bool restricted) {
  SampleOptions options;
  options.law = law;
  options.random = {.seed = 5, .step = 7, .layer = 1};
  if (restricted) {
    options.exploration = 0.02;
    options.is_causal = true;
    options.key_mask = kit::rand({2, 130}, 3) < 0.8;
    options.query_mask = kit::rand({2, 140}, 4) < 0.8;
  }
  return options;
}

TEST(SimtLists, AreTheEdgesOfTheTilesAndFollowTheirNumber) {
  for (const auto& [clusters, dtype] : {std::pair{32, at::kFloat}, {32, at::kBFloat16}, {64, at::kBFloat16}})
    for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
      for (const bool restricted : {false, true}) {
        const at::Tensor query = (kit::rand({2, 1, 140, clusters}, 1) * 0.5).to(dtype),
                         key = (kit::rand({2, 1, 130, clusters}, 2) * (0.9 / clusters)).to(dtype);
        const Model model(query, key, options_of(law, restricted));
        const EdgeSet lists = model.lists();
        const std::string name = c10::str(clusters, " ", dtype, " ", to_string(law), " ", restricted);
        expect_same(lists, model.tiles(), name);
        const double expected = model.expected_edges();
        EXPECT_NEAR(static_cast<double>(lists.edge_count()), expected, 5 * std::sqrt(expected)) << name;
      }
}

// The first block of 128 rows thins, the second is drawn pair by pair.
TEST(SimtLists, BlocksThatDoNotThinAreTheDirectSamplers) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor query = kit::rand({2, 1, 140, 32}, 1) * 0.5;
    query.narrow(2, 0, 128).mul_(0.05);
    Model model(query.to(dtype), (kit::rand({2, 1, 130, 32}, 2) * (0.9 / 32)).to(dtype),
                options_of(EdgeLaw::kBernoulli, false));
    model.limit = 0.033f;
    const EdgeSet lists = model.lists();
    expect_same(lists, model.tiles(), c10::str(dtype));
    SampleOptions direct = model.options;
    direct.sampler = Sampler::kDirect;
    const at::Tensor exact = sample_sbm_edges(model.query, model.key, direct).to_mask(),
                     found = lists.to_mask();
    EXPECT_TRUE(at::equal(found.narrow(2, 128, 12), exact.narrow(2, 128, 12)));
    EXPECT_FALSE(at::equal(found.narrow(2, 0, 128), exact.narrow(2, 0, 128))) << "these should thin";
  }
}

// Every pair as often as its probability says, and forbidden ones never; rows that thin and rows that do not.
TEST(SimtLists, DrawEveryPairAsOftenAsItsProbabilitySays) {
  constexpr int64_t kDraws = 120;
  for (const float limit : {1.f, 0.f})
    for (const bool restricted : {false, true}) {
      // Bounds of rows up to 0.45, where a law that forgets what thinning loses is off by a quarter.
      const at::Tensor query = kit::rand({1, 1, 20, 32}, 1) * 0.8,
                       key = kit::rand({1, 1, 30, 32}, 2) * (0.8 / 32);
      SampleOptions options = options_of(EdgeLaw::kBernoulli, false);
      if (restricted) {
        options.is_causal = true;
        options.key_mask = kit::rand({1, 30}, 3) < 0.8;
        options.query_mask = kit::rand({1, 20}, 4) < 0.8;
      }
      at::Tensor drawn = at::zeros({20, 30}, at::kDouble);
      for (int64_t draw = 0; draw < kDraws; ++draw) {
        options.random.step = static_cast<uint64_t>(draw);
        Model model(query, key, options);
        model.limit = limit;
        drawn += model.lists().to_mask()[0][0].to(at::kDouble);
      }
      at::Tensor p = at::matmul(query.to(at::kDouble), key.to(at::kDouble).transpose(2, 3))[0][0];
      if (restricted) p = (p * options.key_mask->view({1, 30}) * options.query_mask->view({20, 1})).tril();
      const std::string name = c10::str("limit ", limit, restricted ? ", restricted" : "");
      EXPECT_EQ(drawn.masked_select(p == 0).sum().item<double>(), 0) << name;
      const at::Tensor open = p.masked_select(p > 0), mean = open * kDraws,
                       terms = (drawn.masked_select(p > 0) - mean).square() / (mean * (1 - open));
      const double cells = static_cast<double>(open.numel());
      EXPECT_LE(std::abs(terms.mean().item<double>() - 1), 6 * std::sqrt(2 / cells)) << name;
      EXPECT_NEAR(drawn.sum().item<double>(), mean.sum().item<double>(),
                  5 * std::sqrt((mean * (1 - open)).sum().item<double>()))
          << name;
    }
}

TEST(SimtLists, ProbesAreTheCpus) {
  const EdgeShape shape{2, 2, 40, 2105};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, 0.1, 1));
  const std::vector<double> rates = {0.05, 0.2};
  for (const bool restricted : {false, true}) {
    const SampleOptions options = kit::probe_options(shape, restricted);
    const at::Tensor streams = ops::stream_keys(options.random, kernels::Purpose::kProbes, shape);
    kernels::cuda::ListProbeParams p;
    p.shape = tile_shape(shape);
    p.row_offsets = edges.row_offsets().const_data_ptr<int64_t>();
    p.columns = edges.col_indices().const_data_ptr<int32_t>();
    p.stream_keys = keys_of(streams);
    p.rates = rates.data();
    p.query_mask = graph::bool_bytes(options.query_mask);
    p.key_mask = graph::bool_bytes(options.key_mask);
    p.is_causal = options.is_causal;
    const EdgeSet found = list_of(shape, [&](const kernels::cuda::ListOutput& out) {
      p.probes = out;
      return kernels::cuda::launch_list_probes(p, nullptr);
    });
    expect_same(found, sample_probe_edges(edges, rates, options), restricted ? "restricted" : "all pairs");
  }
}

// Keys without a row, with a few, and with more than a warp sorts.
TEST(SimtLists, ByKeysAreTheCpus) {
  for (const EdgeShape& shape : {EdgeShape{2, 2, 150, 70}, EdgeShape{1, 1, 1500, 9}}) {
    at::Tensor mask = kit::random_mask(shape, 0.2, 5);
    mask.select(3, 1).fill_(true);
    mask.select(3, 2).fill_(false);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    kernels::cuda::ListTransposeParams p;
    p.shape = tile_shape(shape);
    p.row_offsets = edges.row_offsets().const_data_ptr<int64_t>();
    p.columns = edges.col_indices().const_data_ptr<int32_t>();
    const at::Tensor counts = at::zeros({shape.columns()}, at::kInt);
    p.counts = counts.mutable_data_ptr<int32_t>();
    ASSERT_EQ(kernels::cuda::launch_count_keys(p, nullptr), 0);
    const at::Tensor offsets = at::cat({at::zeros({1}, at::kLong), at::cumsum(counts, 0, at::kLong)});
    const int64_t count = edges.edge_count();
    const at::Tensor rows = at::full({count}, -1, at::kInt), spare = rows.clone(),
                     long_keys = at::full({count / kernels::cuda::kWarpRows + 1}, -1, at::kLong),
                     long_count = at::zeros({1}, at::kInt);
    p.key_offsets = offsets.const_data_ptr<int64_t>();
    p.rows = rows.mutable_data_ptr<int32_t>();
    p.spare = spare.mutable_data_ptr<int32_t>();
    p.long_keys = long_keys.mutable_data_ptr<int64_t>();
    p.long_count = long_count.mutable_data_ptr<int32_t>();
    ASSERT_EQ(kernels::cuda::launch_list_transpose(p, nullptr), 0);
    EXPECT_TRUE(at::equal(offsets, graph::EdgePlan::of(edges).transposed().column_offsets))
        << to_string(shape);
    EXPECT_TRUE(at::equal(rows, graph::EdgePlan::of(edges).transposed().row_indices)) << to_string(shape);
    EXPECT_EQ(long_count.item<int64_t>(), shape.queries > 1000 ? 1 : 0);
    EXPECT_TRUE(counts.eq(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace edgewise
