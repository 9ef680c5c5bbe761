// The lists of windows that are made of bit tiles, lane by lane on a CPU.
#include <map>

#include "kernels/cuda/windows/window_params.h"
#include "kit/random_inputs.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

using namespace simt_kit;
using kernels::cuda::kWindow, kernels::cuda::kWindowBlock, kernels::cuda::WindowLists;

struct Lists {
  at::Tensor entries, turns;

  Lists(const EdgeSet& edges, double most_edges, bool by_keys) {
    const EdgeShape& shape = edges.shape();
    const int64_t heads = shape.batch * shape.heads,
                  windows = WindowLists::windows(by_keys ? shape.keys : shape.queries),
                  blocks = WindowLists::blocks(by_keys ? shape.queries : shape.keys);
    entries = at::full({heads, windows, blocks, kWindowBlock}, -1, at::kInt);
    turns = at::full({heads, windows, blocks}, 255, at::kByte);
    const at::Tensor counts = edges.edges_per_head().to(at::kLong).contiguous(), tiles = edges.tiles();
    kernels::cuda::BuildWindowsParams params;
    params.shape = tile_shape(shape);
    params.tiles = static_cast<const uint32_t*>(tiles.const_data_ptr());
    params.sparse = {reinterpret_cast<const uint64_t*>(counts.const_data_ptr<int64_t>()), most_edges};
    params.by_keys = by_keys;
    params.lists = {static_cast<uint32_t*>(entries.mutable_data_ptr()), turns.mutable_data_ptr<uint8_t>()};
    EXPECT_EQ(kernels::cuda::launch_build_windows(params, nullptr), 0);
  }
};

// What the lists say of one head, [outer, inner]; checks what is promised of every part.
at::Tensor decoded(const Lists& lists, int64_t head, int64_t outer, int64_t inner, bool by_keys) {
  const at::Tensor mask = at::zeros({outer, inner}, at::kBool);
  auto found = mask.accessor<bool, 2>();
  const auto entries = lists.entries.accessor<int32_t, 4>();
  const auto turns = lists.turns.accessor<uint8_t, 3>();
  for (int64_t window = 0; window < entries.size(1); ++window)
    for (int64_t block = 0; block < entries.size(2); ++block) {
      const int count = turns[head][window][block] * 16;
      EXPECT_LE(count, kWindowBlock);
      std::map<int, int> in_bank;
      std::map<std::pair<int, int>, int> in_group;  // of eight neighbours, of a bank
      int real = 0;
      for (int n = 0; n < count; ++n) {
        const auto entry = static_cast<uint32_t>(entries[head][window][block][n]);
        const int token = static_cast<int>(entry >> 16);
        EXPECT_LT(token, kWindowBlock);
        if ((entry & 0xFFFF) == 0) continue;
        ++real, ++in_bank[token % 8], ++in_group[{n / 8, token % 8}];
        for (int r = 0; r < kWindow; ++r) {
          if (!(entry >> (by_keys ? kernels::cuda::window_bit_of_key(r) : r) & 1)) continue;
          const int64_t i = window * kWindow + r, j = block * kWindowBlock + token;
          if (i >= outer || j >= inner) {
            ADD_FAILURE() << "an edge outside: " << i << ", " << j;
            continue;
          }
          EXPECT_FALSE(found[i][j]) << "twice: " << i << ", " << j;
          found[i][j] = true;
        }
      }
      EXPECT_EQ(count, (real + 15) / 16 * 16) << "turns that are not needed";
      for (const auto& [place, members] : in_group)
        EXPECT_LE(members, (in_bank[place.second] + count / 8 - 1) / (count / 8)) << "a bank in one group";
    }
  return mask;
}

TEST(SimtWindows, HoldEveryEdgeOnce) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{70, 300}, {257, 40}, {16, 600}})
    for (const double density : {0.004, 0.03, 0.3, 1.0}) {
      const EdgeSet edges = EdgeSet::from_mask(kit::rand({1, 2, queries, keys}, 11) < density);
      for (const bool by_keys : {false, true}) {
        const Lists lists(edges, 1e9, by_keys);
        for (int64_t head = 0; head < 2; ++head) {
          const at::Tensor mask = edges.to_mask()[0][head];
          EXPECT_TRUE(by_keys ? at::equal(decoded(lists, head, keys, queries, true), mask.t())
                              : at::equal(decoded(lists, head, queries, keys, false), mask))
              << queries << " x " << keys << " at " << density << (by_keys ? " by keys" : " by queries");
        }
      }
    }
}

TEST(SimtWindows, LeaveOutHeadsWithManyEdges) {
  at::Tensor mask = kit::rand({1, 2, 40, 80}, 5) < 0.05;
  mask[0][1].fill_(true);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  for (const bool by_keys : {false, true}) {
    const Lists lists(edges, 1000, by_keys);
    EXPECT_TRUE(lists.turns[1].eq(255).all().item<bool>());
    EXPECT_TRUE(lists.entries[1].eq(-1).all().item<bool>());
    EXPECT_FALSE(lists.turns[0].eq(255).any().item<bool>());
  }
}

}  // namespace
}  // namespace edgewise
