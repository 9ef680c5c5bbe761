// Attention over squares, forward, compiled once per CPU level (simd.h).
//
// Sixteen queries of a head walk through their squares: s = scale q . k, weights exp(s - c), o = (sum of
// weights * v) / (sum of weights). c is any number of the row's own near its largest score: it follows the
// running maximum, but only when that has left it far behind, so that sums are rarely made anew.
#include <limits>

#include "kernels/cpu/squares/square_visit.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

// A row's sum of weights is at least 1 and each of them at most e^this.
constexpr float kBehind = 16;

template <typename T>
struct ForwardGroup {
  using Acc = Accumulator<T>;
  using L = Lanes<Acc>;

  const SquareForwardParams<T>& params;
  SquareRoom room;
  VisitRoom<T> visit;
  Packed<T>* query;  // [D][16]
  T* query_rows;     // [16][D]
  Acc* sums;         // [16][Dv]
  SquareDropout dropout;

  explicit ForwardGroup(const SquareForwardParams<T>& given)
      : params(given),
        room(room_bytes(given)),
        visit(room, given),
        query(room.take<Packed<T>>(16 * given.head_dim)),
        query_rows(room.take<T>(16 * given.head_dim)),
        sums(room.take<Acc>(16 * given.value_dim)),
        dropout(given.dropout) {}

  void multiply_sums(const L& factors) {
    using V = Vec<Acc>;
    alignas(64) Acc factor[16];
    factors.store(factor);
    for (int i = 0; i < 16; ++i)
      for (int64_t d = 0; d < params.value_dim; d += V::kWidth) {
        Acc* const at = sums + i * params.value_dim + d;
        (V::load(at) * V::broadcast(factor[i])).store(at);
      }
  }

  void run(int64_t row) {
    constexpr Acc kInfinity = std::numeric_limits<Acc>::infinity();
    const GroupPlace place(row, params.heads, params.queries);
    const int64_t key_head = place.head / (params.heads / params.key_heads);
    const T *const keys = params.key.head(place.batch, key_head), *const values = params.value.head(
                                                                      place.batch, key_head);
    const int32_t* const groups = params.squares.groups + params.squares.begin[row];
    const int32_t count = params.squares.count[row];
    std::memset(sums, 0, static_cast<size_t>(16 * params.value_dim) * sizeof(Acc));
    if (count > 0)
      transpose_rows<T>(rows_of_group(params.query.head(place.batch, place.head), params.query.row_stride,
                                      place.first, place.bits(), params.head_dim, query_rows),
                        params.head_dim, query);
    const L scale = L::broadcast(static_cast<Acc>(params.scale)), none = L::broadcast(-kInfinity);
    L behind = none;  // c, -infinity as long as the row has no pair
    L total = L::zero();
    bool has_sums = false;
    for (int32_t n = 0; n < count; ++n) {
      SquareBits bits;
      pairs_of(params, place.batch, place.group, groups[n], bits);
      if (n + 1 < count && (groups[n + 1] + 1) * kSquareSide <= params.keys) {
        const int64_t next = groups[n + 1] * kSquareSide;
        ask_for_rows(keys, params.key.row_stride, next, 16, params.head_dim);
        ask_for_rows(values, params.value.row_stride, next, 16, params.value_dim);
      }
      if (!bits.any()) continue;
      const int64_t first_key = groups[n] * kSquareSide;
      dot_rows<T>(
          rows_of_group(keys, params.key.row_stride, first_key, bits.keys, params.head_dim, visit.key_rows),
          params.head_dim, query, visit.tile);
      L top = none;
      for (int j = 0; j < 16; ++j) {
        L score = L::load(visit.tile + 16 * j) * scale;
        if (!bits.whole) score = select(bits.queries[j], score, none);
        score.store(visit.tile + 16 * j);
        top = max(top, score);
      }
      const uint32_t left_behind = greater(top, behind + L::broadcast(kBehind));
      if (left_behind) {
        const L before = behind;
        behind = select(left_behind, top, behind);
        if (has_sums) {
          const L factor = select(left_behind, exp(before - behind), L::broadcast(1));
          total = total * factor;
          multiply_sums(factor);
        }
      }
      // A row without a pair so far: any c will do.
      const L subtracted = select(greater(behind, none), behind, L::zero());
      uint16_t kept[16];
      if (dropout.drops())
        dropout.kept(params.dropout.head_keys[place.head_index], place.group, groups[n], kept);
      const auto weight_of = [&](int j) EDGEWISE_INLINE_LAMBDA {
        const L weight = exp(L::load(visit.tile + 16 * j) - subtracted);
        total = total + weight;
        return dropout.drops() ? select(kept[j], weight, L::zero()) : weight;
      };
      for (int j = 0; j < 16; j += 2) {
        const L first = weight_of(j), second = weight_of(j + 1);
        set_weights<false, T>(visit.weights, j, first, second);
      }
      const SumRows<T> added = rows_to_add<T>(rows_of_group(values, params.value.row_stride, first_key,
                                                            bits.keys, params.value_dim, visit.value_rows),
                                              params.value_dim, visit.value_sums);
      add_rows<false, T>(visit.weights, added.base, added.stride, params.value_dim, sums);
      has_sums = true;
    }
    finish(place, total, behind);
  }

  void finish(const GroupPlace& place, const L& total, const L& behind) {
    using V = Vec<Acc>;
    constexpr Acc kInfinity = std::numeric_limits<Acc>::infinity();
    // total - total: 0, or NaN where that is not finite.
    const L lse = log(total) + (total - total) + behind;
    alignas(64) Acc factors[16], logs[16], totals[16];
    (L::broadcast(static_cast<Acc>(dropout.kept_scale)) / total).store(factors);
    lse.store(logs);
    total.store(totals);
    const int64_t first_row = place.head_index * params.queries + place.first;
    for (int64_t i = 0; i < place.count; ++i) {
      const bool is_empty = totals[i] == 0;
      const V factor = V::broadcast(is_empty ? 0 : factors[i]);
      T* const out = params.output + (first_row + i) * params.value_dim;
      for (int64_t d = 0; d < params.value_dim; d += V::kWidth)
        (V::load(sums + i * params.value_dim + d) * factor).store(out + d);
      params.lse[first_row + i] = is_empty ? -kInfinity : logs[i];
    }
  }
};

}  // namespace

template <typename T>
void square_forward(const SquareForwardParams<T>& params, int64_t begin, int64_t end) {
  ForwardGroup<T> group(params);
  for (int64_t row = begin; row < end; ++row) group.run(row);
}

template void square_forward<float>(const SquareForwardParams<float>&, int64_t, int64_t);
#if defined(EDGEWISE_PORTABLE_LEVEL)
template void square_forward<double>(const SquareForwardParams<double>&, int64_t, int64_t);
#endif
#if defined(__AVX512BF16__)
template void square_forward<Bf16>(const SquareForwardParams<Bf16>&, int64_t, int64_t);
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
