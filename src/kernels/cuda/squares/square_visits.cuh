// Which squares a warp visits, which of their pairs take part, and which of those dropout keeps.
#pragma once

#include "kernels/cuda/device/pair_dropout.cuh"
#include "kernels/cuda/squares/square_operands.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr uint32_t kEveryLane = ~0u;

__device__ inline uint32_t first_bits(int64_t count) {
  return count >= 16 ? kAllTokens : count <= 0 ? 0 : (1u << count) - 1;
}

// One square: the other group, and a word of
//   bits 0 .. 15   which of its tokens are read
//   bit 16         whether every pair takes part
//   bits 17 ..     32 + shift: query r of the square meets keys up to r + shift (-32 .. 32)
struct Visit {
  int group;
  uint32_t word;

  __device__ uint32_t tokens() const { return word & kAllTokens; }
  __device__ bool whole() const { return word >> 16 & 1; }
  __device__ int shift() const { return static_cast<int>(word >> 17) - 32; }
  __device__ static uint32_t word_of(uint32_t tokens, bool whole, int shift) {
    return tokens | static_cast<uint32_t>(whole) << 16 | static_cast<uint32_t>(shift + 32) << 17;
  }
};

template <typename T>
__device__ inline int shift_of(const SquareParams<T>& p, int query_group, int key_group) {
  if (!p.is_causal) return 32;
  const int64_t shift = p.query_offset + (static_cast<int64_t>(query_group) - key_group) * kSquareSide;
  return static_cast<int>(shift < -32 ? -32 : shift > 32 ? 32 : shift);
}
// The keys of a group that take part at all.
template <typename T>
__device__ inline uint32_t valid_keys(const SquareParams<T>& p, int item, int key_group) {
  uint32_t keys = first_bits(p.keys - key_group * kSquareSide);
  if (p.key_bits) keys &= static_cast<uint32_t>(__ldg(p.key_bits + item * square_groups(p.keys) + key_group));
  return keys;
}

// For a query group: keys that some query may use.
template <typename T>
__device__ inline uint32_t visit_by_query(const SquareParams<T>& p, int item, int query_group,
                                          int key_group) {
  const int shift = shift_of(p, query_group, key_group);
  uint32_t keys = valid_keys(p, item, key_group);
  if (shift < 0) keys &= first_bits(16 + shift);
  return Visit::word_of(keys, keys == kAllTokens && shift >= 15, shift);
}
// For a key group of which `keys` take part: the queries that are there. Those beyond the last have weight 0
// by their log-sum-exp.
template <typename T>
__device__ inline uint32_t visit_by_key(const SquareParams<T>& p, uint32_t keys, int query_group,
                                        int key_group) {
  const int shift = shift_of(p, query_group, key_group);
  return Visit::word_of(first_bits(p.queries - query_group * kSquareSide), keys == kAllTokens && shift >= 15,
                        shift);
}

// A list, square by square: a lane reads every 32nd, 32 squares ahead. word_of(group) says what of it is
// read.
template <typename WordOf>
class SquareWalk {
 public:
  __device__ SquareWalk(const int32_t* list, int count, const WordOf& word_of)
      : list_(list), count_(count), word_of_(word_of) {
    ahead_ = read(lane_id());
  }
  // Square n, to be asked for in order, from 0 on.
  __device__ Visit take(int n) {
    if (static_cast<unsigned>(n) % 32 == 0) {
      group_ = ahead_;
      word_ = n + lane_id() < count_ ? word_of_(group_) : 0;
      ahead_ = read(n + 32 + lane_id());
    }
    return {__shfl_sync(kEveryLane, group_, n), __shfl_sync(kEveryLane, word_, n)};
  }

 private:
  __device__ int read(int n) const { return n < count_ ? __ldg(list_ + n) : 0; }

  const int32_t* list_;
  int count_, group_ = 0, ahead_;
  uint32_t word_ = 0;
  WordOf word_of_;
};

// ---- pairs ----

// Clears what belongs to pairs that take no part: sets them to `none`. By queries: rows are queries, columns
// keys.
__device__ inline bool pair_by_query(const Visit& visit, int block, int e) {
  const int query = lane_id() / 4 + 8 * (e / 2), key = pair_token(block, e);
  return (visit.word >> key & 1) && key <= query + visit.shift();
}
// By keys: rows are keys, of which `keys` take part, columns queries.
__device__ inline bool pair_by_key(const Visit& visit, uint32_t keys, int block, int e) {
  const int key = lane_id() / 4 + 8 * (e / 2), query = pair_token(block, e);
  return (keys >> key & 1) && key <= query + visit.shift();
}

// ---- dropout ----

// Of query lane % 16 of a square, the keys that are kept, a bit each.
__device__ inline uint32_t kept_keys(uint64_t stream_key, uint32_t limit, int query_group, int key_group) {
  const int lane = lane_id();
  const uint32_t query = static_cast<uint32_t>(query_group) * kSquareSide + lane % 16;
  uint32_t kept = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int four = lane / 16 + 2 * half;
    const PairWords words = dropout_words(stream_key, query, static_cast<uint32_t>(key_group) * 4 + four);
    uint32_t bits = 0;
#pragma unroll
    for (int m = 0; m < 4; ++m) bits |= static_cast<uint32_t>(words.word[m] >= limit) << m;
    kept |= bits << (4 * four);
  }
  return kept | __shfl_xor_sync(kEveryLane, kept, 16);
}

// Dropout of one head; without stream keys it keeps everything.
struct PairDropout {
  const uint64_t* key;
  uint32_t limit;
  float keep_scale;

  template <typename T>
  __device__ PairDropout(const SquareParams<T>& p, uint32_t drop_limit, int head_index)
      : key(p.stream_keys ? p.stream_keys + head_index : nullptr),
        limit(drop_limit),
        keep_scale(p.keep_scale) {}
  __device__ bool drops() const { return key; }
  // What the two below ask for; before scores are formed, when registers are free.
  __device__ uint32_t kept(int query_group, int key_group) const {
    return drops() ? kept_keys(__ldg(reinterpret_cast<const unsigned long long*>(key)), limit, query_group,
                               key_group)
                   : 0;
  }
  // factor(block, e) of 0 or keep_scale for each score of a lane, given kept(). By queries:
  template <typename Use>
  __device__ void by_query(uint32_t kept, const Use& use) const {
    const int g = lane_id() / 4;
    const uint32_t row[2] = {__shfl_sync(kEveryLane, kept, g) >> pair_token(0, 0),
                             __shfl_sync(kEveryLane, kept, g + 8) >> pair_token(0, 0)};
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int e = 0; e < 4; ++e) use(block, e, row[e / 2] >> (8 * block + e % 2) & 1 ? keep_scale : 0.0f);
  }
  // and by keys.
  template <typename Use>
  __device__ void by_key(uint32_t kept, const Use& use) const {
    const int g = lane_id() / 4;
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const uint32_t query = __shfl_sync(kEveryLane, kept, pair_token(block, parity)) >> g;
        use(block, parity, query & 1 ? keep_scale : 0.0f);
        use(block, 2 + parity, query >> 8 & 1 ? keep_scale : 0.0f);
      }
  }
};

// ---- sums over lanes ----

// Over the four lanes that share a row.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(kEveryLane, x, 1);
  return x + __shfl_xor_sync(kEveryLane, x, 2);
}
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kEveryLane, x, 1));
  return fmaxf(x, __shfl_xor_sync(kEveryLane, x, 2));
}
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(kEveryLane, x, step);
  return x;
}

// exp(scale s) = exp2(factor s), with the sign of the scale in the query. Never 0, so that minus infinity
// stays what it is.
struct ScoreScale {
  float factor;
  bool is_negative;

  __device__ explicit ScoreScale(float scale)
      : factor(fmaxf(fabsf(scale) * 1.44269504088896f, 0x1.0p-126f)), is_negative(scale < 0) {}
};

}  // namespace
}  // namespace edgewise::kernels::cuda
