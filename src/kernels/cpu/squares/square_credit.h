// A number for whoever chose the squares: of each square that is there, and of each probe. Equations:
// src/ops/squares/square_attention.h. Compiled once per level (simd.h).
#pragma once

#include <limits>

#include "kernels/cpu/squares/square_visit.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Of 16 queries: l, +infinity where there is no pair, so that exp(s - l) is 0; and ubar = g . o.
template <typename Acc>
struct RowTerms {
  Lanes<Acc> lse, ubar;
};

// Sums over the keys of a square, for each of its queries.
template <typename Acc>
struct SquareSums {
  Lanes<Acc> share = Lanes<Acc>::zero();   // a
  Lanes<Acc> effect = Lanes<Acc>::zero();  // a (u - ubar)
  Lanes<Acc> paper = Lanes<Acc>::zero();   // a (u - ubar) s
};

// Credit of the squares of 16 queries, one after the other. leave_one_out: with A = sum a and E = sum a (u -
// ubar), E / (1 - A), which cancels where A is near 1. A row has at most one square with A > 1/2; that one
// waits for the sums over the others, A' and E', whose mean it is compared with: E - A E' / A'.
template <typename T>
class SquareCredits {
 public:
  using Acc = Accumulator<T>;
  using L = Lanes<Acc>;

  SquareCredits(const SquareBackwardParams<T>& params, const SquareDropout& dropout)
      : params_(params), dropout_(dropout) {}

  void start() {
    others_share_ = others_effect_ = L::zero();
    waiting_ = 0;
  }

  void take(int64_t place, const SquareSums<Acc>& sums) {
    if (params_.rule == CreditRule::kNone) return;
    if (params_.rule == CreditRule::kLogit) {
      params_.credit[place] = sum(sums.effect);
      return;
    }
    if (params_.rule == CreditRule::kPaper) {
      params_.credit[place] = sum(sums.paper);
      return;
    }
    const L one = L::broadcast(1), none = L::zero();
    const uint32_t large = greater(sums.share, L::broadcast(static_cast<Acc>(0.5))) & ~waiting_;
    others_share_ = others_share_ + select(large, none, sums.share);
    others_effect_ = others_effect_ + select(large, none, sums.effect);
    params_.credit[place] = sum(select(large, none, sums.effect / (one - sums.share)));
    if (!large) return;
    alignas(64) Acc shares[16], effects[16];
    sums.share.store(shares);
    sums.effect.store(effects);
    waiting_ |= large;
    for (int i = 0; i < 16; ++i)
      if (large >> i & 1) largest_[i] = {place, shares[i], effects[i]};
  }

  void finish(const GroupPlace& group, int64_t row, const RowTerms<Acc>& terms) {
    if (!waiting_) return;
    // Smaller sums have lost digits.
    constexpr Acc kLeast = static_cast<Acc>(1e-30);
    alignas(64) Acc shares[16], effects[16], ubars[16];
    others_share_.store(shares);
    others_effect_.store(effects);
    terms.ubar.store(ubars);
    for (int i = 0; i < 16; ++i) {
      if (!(waiting_ >> i & 1)) continue;
      const Largest& mine = largest_[i];
      const Acc mean =
          shares[i] >= kLeast ? effects[i] / shares[i] : mean_of_others(group, row, i, mine.place, ubars[i]);
      params_.credit[mine.place] += mine.effect - mine.share * mean;
    }
  }

 private:
  struct Largest {
    int64_t place;
    Acc share, effect;
  };

  static Acc dot(const T* a, const T* b, int64_t width) {
    Acc result = 0;
    for (int64_t d = 0; d < width; ++d) result += to_accumulator(a[d]) * to_accumulator(b[d]);
    return result;
  }

  // Mean of u - ubar over the pairs of row i in all squares but one, by their softmax; without such pairs the
  // output would become 0, and u - ubar with it -ubar.
  [[gnu::noinline]] Acc mean_of_others(const GroupPlace& group, int64_t row, int i, int64_t without,
                                       Acc ubar) const {
    const int64_t key_head = group.head / (params_.heads / params_.key_heads), query = group.first + i;
    const T* const keys = params_.key.head(group.batch, key_head);
    const T* const values = params_.value.head(group.batch, key_head);
    const T* const q = params_.query.head(group.batch, group.head) + query * params_.query.row_stride;
    const T* const g =
        params_.grad_output.head(group.batch, group.head) + query * params_.grad_output.row_stride;
    Acc top = -std::numeric_limits<Acc>::infinity(), total = 0, effect = 0;
    const int64_t begin = params_.squares.begin[row];
    for (int64_t place = begin; place < begin + params_.squares.count[row]; ++place) {
      if (place == without) continue;
      const int64_t key_group = params_.squares.groups[place];
      SquareBits bits;
      pairs_of(params_, group.batch, group.group, key_group, bits);
      uint16_t kept[16];
      if (dropout_.drops())
        dropout_.kept(params_.dropout.head_keys[group.head_index], group.group, key_group, kept);
      for (int64_t j = 0; j < kSquareSide; ++j) {
        if (!(bits.keys >> j & 1) || (!bits.whole && !(bits.queries[j] >> i & 1))) continue;
        const int64_t key = key_group * kSquareSide + j;
        const Acc score =
            dot(q, keys + key * params_.key.row_stride, params_.head_dim) * static_cast<Acc>(params_.scale);
        Acc u = dot(g, values + key * params_.value.row_stride, params_.value_dim);
        if (dropout_.drops()) u = kept[j] >> i & 1 ? u * static_cast<Acc>(dropout_.kept_scale) : 0;
        if (score > top) {
          const Acc factor = std::exp(top - score);
          total *= factor, effect *= factor;
          top = score;
        }
        const Acc weight = std::exp(score - top);
        total += weight;
        effect += weight * (u - ubar);
      }
    }
    return total > 0 ? effect / total : -ubar;
  }

  const SquareBackwardParams<T>& params_;
  const SquareDropout& dropout_;
  L others_share_ = L::zero(), others_effect_ = L::zero();
  uint32_t waiting_ = 0;
  Largest largest_[16];
};

// Credit of a probe square from its scores q . k and its u = g . v, [16][16] each. With b = exp(s - l): sum
// over rows of [sum b (u - ubar)] / (1 + sum b), both divided by the largest of 1 and the b. An empty row
// would have the probe's pairs alone: there l drops out, and so does the 1.
template <typename Acc>
EDGEWISE_INLINE Acc probe_credit(Acc* scores, const Acc* u, Acc factor, const SquareBits& bits,
                                 uint32_t queries, const RowTerms<Acc>& terms) {
  using L = Lanes<Acc>;
  const L none = L::broadcast(-std::numeric_limits<Acc>::infinity()), zero = L::zero();
  const uint32_t has_pairs = greater(L::broadcast(std::numeric_limits<Acc>::infinity()), terms.lse);
  const L lse = select(has_pairs, terms.lse, zero), scale = L::broadcast(factor);
  L most = select(has_pairs, zero, none);
  for (int j = 0; j < 16; ++j) {
    L x = L::load(scores + 16 * j) * scale - lse;
    if (!bits.whole) x = select(bits.queries[j], x, none);
    x.store(scores + 16 * j);
    most = max(most, x);
  }
  const L subtracted = select(greater(most, none), most, zero);
  L share = zero, effect = zero;
  for (int j = 0; j < 16; ++j) {
    const L b = exp(L::load(scores + 16 * j) - subtracted);
    share = share + b;
    effect = effect + b * (L::load(u + 16 * j) - terms.ubar);
  }
  const L all = share + select(has_pairs, exp(zero - subtracted), zero);
  return sum(select(greater(all, zero) & queries, effect / all, zero));
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
