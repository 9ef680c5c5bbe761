// Counting sort by key, in two steps so that both write where the cache already is: edges first go to blocks
// of neighbouring keys (few streams, each in order), then from each block to their places. One step alone
// writes to as many places as there are keys: at 10 % of 2048 keys every write misses the TLB, at 64K keys
// the cache too.
#include "kernels/cpu/transpose.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

namespace edgewise::kernels::cpu {
namespace {

using std::size_t;

constexpr int64_t kBlockEdges = 16384;  // 192 KiB of places: within L2
constexpr int64_t kMostBlocks = 256;
constexpr int64_t kKeysInOneStep = 4096;

struct Entry {
  int32_t key, query;
  uint32_t edge;  // counted from the first edge of the head
};

class HeadTranspose {
 public:
  HeadTranspose(const TransposeParams& params, int64_t head)
      : params_(params),
        edges_(params.edges),
        head_(head),
        first_row_(head * edges_.queries),
        begin_(edges_.row_offsets[first_row_]),
        end_(edges_.row_offsets[first_row_ + edges_.queries]) {}

  void run(std::vector<int64_t>& next) {
    count_keys(next);
    const int64_t blocks = edges_.keys <= kKeysInOneStep
                               ? 1
                               : std::clamp<int64_t>((end_ - begin_) / kBlockEdges, 1, kMostBlocks);
    // A power of two, so that a shift finds the block.
    const uint64_t block_keys = std::bit_ceil(static_cast<uint64_t>((edges_.keys + blocks - 1) / blocks));
    if (blocks == 1)
      for_edges([&](const Entry& entry) { place(entry, next); });
    else
      place_by_blocks(std::countr_zero(block_keys), next);
  }

 private:
  // next[key] = place of the key's first edge.
  void count_keys(std::vector<int64_t>& next) const {
    next.assign(static_cast<size_t>(edges_.keys), 0);
    for (int64_t e = begin_; e < end_; ++e) ++next[static_cast<size_t>(edges_.col_indices[e])];
    int64_t offset = begin_;
    for (int64_t key = 0; key < edges_.keys; ++key) {
      const int64_t count = next[static_cast<size_t>(key)];
      next[static_cast<size_t>(key)] = offset;
      offset += count;
      params_.column_offsets[head_ * edges_.keys + key + 1] = offset;
    }
  }

  template <typename Body>
  void for_edges(const Body& body) const {
    for (int64_t query = 0; query < edges_.queries; ++query)
      for (int64_t e = edges_.row_offsets[first_row_ + query]; e < edges_.row_offsets[first_row_ + query + 1];
           ++e)
        body(Entry{edges_.col_indices[e], static_cast<int32_t>(query), static_cast<uint32_t>(e - begin_)});
  }

  void place(const Entry& entry, std::vector<int64_t>& next) const {
    const int64_t to = next[static_cast<size_t>(entry.key)]++;
    params_.row_indices[to] = entry.query;
    params_.edge_ids[to] = begin_ + entry.edge;
  }

  void place_by_blocks(int shift, std::vector<int64_t>& next) const {
    const auto entries = std::make_unique_for_overwrite<Entry[]>(static_cast<size_t>(end_ - begin_));
    // Where each block starts is where its first key starts.
    std::vector<int64_t> block_next;
    for (int64_t key = 0; key < edges_.keys; key += int64_t{1} << shift)
      block_next.push_back(next[static_cast<size_t>(key)] - begin_);
    for_edges([&](const Entry& entry) {
      entries[static_cast<size_t>(block_next[static_cast<size_t>(entry.key >> shift)]++)] = entry;
    });
    for (int64_t n = 0; n < end_ - begin_; ++n) place(entries[static_cast<size_t>(n)], next);
  }

  const TransposeParams& params_;
  const CsrView& edges_;
  const int64_t head_, first_row_, begin_, end_;
};

}  // namespace

void transpose_heads(const TransposeParams& params, int64_t head_begin, int64_t head_end) {
  std::vector<int64_t> next;
  for (int64_t head = head_begin; head < head_end; ++head) HeadTranspose(params, head).run(next);
}

}  // namespace edgewise::kernels::cpu
