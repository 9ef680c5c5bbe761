// Attention over squares, backward, compiled once per CPU level (simd.h). With a = exp(s - l), u = g . v and
// ubar = g . o:
//   dL/ds = a (u - ubar),  dq_i = scale sum_j dL/ds k_j,  dk_j = scale sum_i dL/ds q_i,  dv_j = sum_i a g_i.
//
// By queries: 16 queries walk through their squares, for dq and for credit. By keys: 16 keys do, for dk and
// dv; both products of a square are formed again there. Or a whole head by queries, where dk and dv are added
// to as well. A sum is made of the same terms in the same order either way, so that its bits do not depend on
// the choice.
#include <limits>
#include <optional>

#include "kernels/cpu/squares/square_credit.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

// Rows of one operand of a group: transposed, as they are, and as add_rows reads them.
template <typename T>
struct GroupOperand {
  int64_t dim;
  Packed<T>* transposed;  // [dim][16]
  T* copy;                // [16][dim]
  Packed<T>* room;        // [16][dim]
  SumRows<T> to_add;

  GroupOperand(SquareRoom& from, int64_t width)
      : dim(width),
        transposed(from.take<Packed<T>>(16 * width)),
        copy(from.take<T>(16 * width)),
        room(from.take<Packed<T>>(16 * width)) {}
  EDGEWISE_INLINE void take(const T* head, int64_t stride, int64_t first, uint32_t bits, bool is_added) {
    const GroupRows<T> rows = rows_of_group(head, stride, first, bits, dim, copy);
    transpose_rows<T>(rows, dim, transposed);
    if (is_added) to_add = rows_to_add<T>(rows, dim, room);
  }
};

template <typename T>
struct BackwardRoom {
  using Acc = Accumulator<T>;
  const SquareBackwardParams<T>& params;
  SquareRoom room;
  VisitRoom<T> visit;
  GroupOperand<T> left, right;  // of the group that walks: q and g, or k and v
  Packed<T>* weights_by_sum;    // [16][16], in the order of add_rows<true>
  Acc* sums;                    // [16][D]
  SquareDropout dropout;

  explicit BackwardRoom(const SquareBackwardParams<T>& given)
      : params(given),
        room(2 * room_bytes(given)),
        visit(room, given),
        left(room, given.head_dim),
        right(room, given.value_dim),
        weights_by_sum(room.take<Packed<T>>(256)),
        sums(room.take<Acc>(16 * given.head_dim)),
        dropout(given.dropout) {}
};

// dL/ds of 16 pairs (or what stands for them with their masks), with a and a after dropout.
template <typename Acc>
struct PairTerms {
  Lanes<Acc> weight, dropped, score, logit_grad;
};
template <typename Acc>
EDGEWISE_INLINE PairTerms<Acc> pair_terms(const Acc* scores, const Acc* u, Acc scale,
                                          const RowTerms<Acc>& terms, const uint16_t* pairs,
                                          const uint16_t* kept, Acc kept_scale) {
  using L = Lanes<Acc>;
  PairTerms<Acc> result;
  result.score = L::load(scores) * L::broadcast(scale);
  result.weight = exp(result.score - terms.lse);
  if (pairs) result.weight = select(*pairs, result.weight, L::zero());
  L with_dropout = L::load(u);
  result.dropped = result.weight;
  if (kept) {
    const L factor = select(*kept, L::broadcast(kept_scale), L::zero());
    with_dropout = with_dropout * factor;
    result.dropped = result.weight * factor;
  }
  result.logit_grad = result.weight * (with_dropout - terms.ubar);
  if (pairs) result.logit_grad = select(*pairs, result.logit_grad, L::zero());
  return result;
}

// Sixteen queries. kAll: dk and dv too.
template <bool kAll, typename T>
struct QueryWalk {
  using Acc = Accumulator<T>;
  using L = Lanes<Acc>;
  using V = Vec<Acc>;

  BackwardRoom<T> at;
  const SquareBackwardParams<T>& params = at.params;
  SquareCredits<T> credits;

  explicit QueryWalk(const SquareBackwardParams<T>& given) : at(given), credits(given, at.dropout) {}

  // l and ubar; ubar goes to memory for the pass by keys.
  RowTerms<Acc> terms_of(const GroupPlace& place) {
    constexpr Acc kInfinity = std::numeric_limits<Acc>::infinity();
    const int64_t first_row = place.head_index * params.queries + place.first;
    alignas(64) Acc lse[16], ubar[16];
    const T* const grads = params.grad_output.head(place.batch, place.head);
    for (int first = 0; first < 16; first += V::kWidth) {
      const auto products = [&](int n) EDGEWISE_INLINE_LAMBDA {
        const int64_t i = smaller(first + n, place.count - 1);
        const T *const grad = grads + (place.first + i) * params.grad_output.row_stride,
                       *const output = params.output + (first_row + i) * params.value_dim;
        V result = V::zero();
        for (int64_t d = 0; d < params.value_dim; d += V::kWidth)
          result = fma(V::load(grad + d), V::load(output + d), result);
        return result;
      };
      transpose_reduce<Acc>(products, V::kWidth).store(ubar + first);
    }
    for (int64_t i = 0; i < 16; ++i) {
      lse[i] = i < place.count ? params.lse[first_row + i] : -kInfinity;
      if (lse[i] == -kInfinity) lse[i] = kInfinity, ubar[i] = 0;
      if (i < place.count) params.ubar[first_row + i] = ubar[i];
    }
    return {L::load(lse), L::load(ubar)};
  }

  void run(int64_t row) {
    const GroupPlace place(row, params.heads, params.queries);
    const int64_t key_head = place.head / (params.heads / params.key_heads);
    const T *const keys = params.key.head(place.batch, key_head), *const values = params.value.head(
                                                                      place.batch, key_head);
    const int64_t dim = params.head_dim, value_dim = params.value_dim;
    const Acc scale = static_cast<Acc>(params.scale);
    std::memset(at.sums, 0, static_cast<size_t>(16 * dim) * sizeof(Acc));
    at.left.take(params.query.head(place.batch, place.head), params.query.row_stride, place.first,
                 place.bits(), kAll);
    at.right.take(params.grad_output.head(place.batch, place.head), params.grad_output.row_stride,
                  place.first, place.bits(), kAll);
    const RowTerms<Acc> terms = terms_of(place);
    Acc *key_sums = nullptr, *value_sums = nullptr;
    if constexpr (kAll) {
      const int64_t first =
          (place.batch * params.key_heads + key_head) * square_groups(params.keys) * kSquareSide;
      key_sums = params.grad_key + first * dim;
      value_sums = params.grad_value + first * value_dim;
    }
    // s and u of a square; whether it has pairs.
    SquareBits bits;
    GroupRows<T> key_rows;
    const auto products = [&](int64_t group) EDGEWISE_INLINE_LAMBDA {
      pairs_of(params, place.batch, place.group, group, bits);
      if (!bits.any()) return false;
      const int64_t first = group * kSquareSide;
      key_rows = rows_of_group(keys, params.key.row_stride, first, bits.keys, dim, at.visit.key_rows);
      dot_rows<T>(key_rows, dim, at.left.transposed, at.visit.tile);
      dot_rows<T>(
          rows_of_group(values, params.value.row_stride, first, bits.keys, value_dim, at.visit.value_rows),
          value_dim, at.right.transposed, at.visit.other_tile);
      return true;
    };
    credits.start();
    const int64_t begin = params.squares.begin[row];
    for (int64_t n = begin; n < begin + params.squares.count[row]; ++n) {
      const int64_t group = params.squares.groups[n];
      SquareSums<Acc> sums;
      if (products(group)) {
        uint16_t kept[16];
        if (at.dropout.drops())
          at.dropout.kept(params.dropout.head_keys[place.head_index], place.group, group, kept);
        const auto line = [&](int j) EDGEWISE_INLINE_LAMBDA {
          const PairTerms<Acc> pairs =
              pair_terms(at.visit.tile + 16 * j, at.visit.other_tile + 16 * j, scale, terms,
                         bits.whole ? nullptr : bits.queries + j, at.dropout.drops() ? kept + j : nullptr,
                         static_cast<Acc>(at.dropout.kept_scale));
          sums.share = sums.share + pairs.weight;
          sums.effect = sums.effect + pairs.logit_grad;
          if (params.rule == CreditRule::kPaper) sums.paper = sums.paper + pairs.logit_grad * pairs.score;
          return pairs;
        };
        for (int j = 0; j < 16; j += 2) {
          const PairTerms<Acc> first = line(j), second = line(j + 1);
          const L factor = L::broadcast(scale);
          const L first_grad = first.logit_grad * factor, second_grad = second.logit_grad * factor;
          set_weights<false, T>(at.visit.weights, j, first_grad, second_grad);
          if constexpr (kAll) {
            // The tiles have been read: line j of each may go.
            if constexpr (Factor<T>::kNumbers == 2)
              set_weights<true, T>(at.weights_by_sum, j, first_grad, second_grad);
            set_weights<true, T>(reinterpret_cast<Packed<T>*>(at.visit.other_tile), j, first.dropped,
                                 second.dropped);
          }
        }
        const SumRows<T> added = rows_to_add<T>(key_rows, dim, at.visit.key_sums);
        add_rows<false, T>(at.visit.weights, added.base, added.stride, dim, at.sums);
        if constexpr (kAll) {
          const auto* const grads = Factor<T>::kNumbers == 2 ? at.weights_by_sum : at.visit.weights;
          add_rows<true, T>(grads, at.left.to_add.base, at.left.to_add.stride, dim,
                            key_sums + group * kSquareSide * dim);
          add_rows<true, T>(reinterpret_cast<const Packed<T>*>(at.visit.other_tile), at.right.to_add.base,
                            at.right.to_add.stride, value_dim, value_sums + group * kSquareSide * value_dim);
        }
      }
      credits.take(n, sums);
    }
    credits.finish(place, row, terms);
    if (params.probes.groups) {
      const int64_t first = params.probes.begin[row];
      for (int64_t n = first; n < first + params.probes.count[row]; ++n)
        params.probe_credit[n] =
            products(params.probes.groups[n])
                ? probe_credit(at.visit.tile, at.visit.other_tile, scale, bits, place.bits(), terms)
                : 0;
    }
    const int64_t first_row = place.head_index * params.queries + place.first;
    for (int64_t i = 0; i < place.count; ++i)
      for (int64_t d = 0; d < dim; d += V::kWidth)
        V::load(at.sums + i * dim + d).store(params.grad_query + (first_row + i) * dim + d);
  }
};

// Sixteen keys.
template <typename T>
void run_by_keys(BackwardRoom<T>& at, int64_t row) {
  using Acc = Accumulator<T>;
  using L = Lanes<Acc>;
  const SquareBackwardParams<T>& params = at.params;
  const GroupPlace place(row, params.key_heads, params.keys);
  const int64_t dim = params.head_dim, value_dim = params.value_dim;
  const Acc scale = static_cast<Acc>(params.scale);
  Acc *const key_sums = params.grad_key + row * kSquareSide * dim, *const value_sums =
                                                                       params.grad_value +
                                                                       row * kSquareSide * value_dim;
  std::memset(key_sums, 0, static_cast<size_t>(16 * dim) * sizeof(Acc));
  std::memset(value_sums, 0, static_cast<size_t>(16 * value_dim) * sizeof(Acc));
  const uint32_t keys =
      params.key_bits
          ? place.bits() &
                static_cast<uint32_t>(params.key_bits[place.batch * square_groups(params.keys) + place.group])
          : place.bits();
  if (!keys) return;
  at.left.take(params.key.head(place.batch, place.head), params.key.row_stride, place.first, keys, false);
  at.right.take(params.value.head(place.batch, place.head), params.value.row_stride, place.first, keys,
                false);
  const int64_t shared = params.heads / params.key_heads;
  for (int64_t head = place.head * shared; head < (place.head + 1) * shared; ++head) {
    const int64_t head_index = place.batch * params.heads + head;
    const int64_t list = head_index * square_groups(params.keys) + place.group;
    const T *const queries = params.query.head(place.batch, head), *const grads = params.grad_output.head(
                                                                       place.batch, head);
    const int64_t begin = params.squares_by_keys.begin[list];
    for (int64_t n = begin; n < begin + params.squares_by_keys.count[list]; ++n) {
      const int64_t group = params.squares_by_keys.groups[n], first = group * kSquareSide;
      SquareBits bits;
      pairs_of(params, place.batch, group, place.group, bits);
      if (!bits.any()) continue;
      const int64_t count = smaller(params.queries - first, kSquareSide);
      const GroupRows<T> query_rows = rows_of_group(queries, params.query.row_stride, first,
                                                    first_bits(count), dim, at.visit.key_rows),
                         grad_rows = rows_of_group(grads, params.grad_output.row_stride, first,
                                                   first_bits(count), value_dim, at.visit.value_rows);
      dot_rows<T>(query_rows, dim, at.left.transposed, at.visit.tile);
      dot_rows<T>(grad_rows, value_dim, at.right.transposed, at.visit.other_tile);
      uint16_t pairs[16], kept[16];
      if (!bits.whole) transpose_bits(bits.queries, pairs);
      if (at.dropout.drops()) {
        uint16_t by_key[16];
        at.dropout.kept(params.dropout.head_keys[head_index], group, place.group, by_key);
        transpose_bits(by_key, kept);
      }
      const auto line = [&](int i) EDGEWISE_INLINE_LAMBDA {
        constexpr Acc kInfinity = std::numeric_limits<Acc>::infinity();
        RowTerms<Acc> terms{L::broadcast(kInfinity), L::zero()};
        if (i < count) {
          const int64_t query = head_index * params.queries + first + i;
          const Acc lse = params.lse[query];
          terms.lse = L::broadcast(lse == -kInfinity ? kInfinity : lse);
          terms.ubar = L::broadcast(params.ubar[query]);
        }
        return pair_terms(at.visit.tile + 16 * i, at.visit.other_tile + 16 * i, scale, terms,
                          bits.whole ? nullptr : pairs + i, at.dropout.drops() ? kept + i : nullptr,
                          static_cast<Acc>(at.dropout.kept_scale));
      };
      for (int i = 0; i < 16; i += 2) {
        const PairTerms<Acc> a = line(i), b = line(i + 1);
        const L factor = L::broadcast(scale);
        set_weights<false, T>(at.visit.weights, i, a.logit_grad * factor, b.logit_grad * factor);
        set_weights<false, T>(at.weights_by_sum, i, a.dropped, b.dropped);
      }
      const SumRows<T> query_sums = rows_to_add<T>(query_rows, dim, at.visit.key_sums),
                       grad_sums = rows_to_add<T>(grad_rows, value_dim, at.visit.value_sums);
      add_rows<false, T>(at.visit.weights, query_sums.base, query_sums.stride, dim, key_sums);
      add_rows<false, T>(at.weights_by_sum, grad_sums.base, grad_sums.stride, value_dim, value_sums);
    }
  }
}

}  // namespace

template <typename T>
void square_backward_by_queries(const SquareBackwardParams<T>& params, int64_t begin, int64_t end) {
  QueryWalk<false, T> walk(params);
  for (int64_t row = begin; row < end; ++row) walk.run(row);
}

template <typename T>
void square_backward_by_keys(const SquareBackwardParams<T>& params, int64_t begin, int64_t end) {
  BackwardRoom<T> room(params);
  for (int64_t row = begin; row < end; ++row) run_by_keys(room, row);
}

template <typename T>
void square_backward_whole_heads(const SquareBackwardParams<T>& params, int64_t begin, int64_t end) {
  QueryWalk<true, T> walk(params);
  const int64_t rows = square_groups(params.queries), shared = params.heads / params.key_heads;
  const int64_t keys = square_groups(params.keys) * kSquareSide;
  for (int64_t head = begin; head < end; ++head) {
    std::memset(params.grad_key + head * keys * params.head_dim, 0,
                static_cast<size_t>(keys * params.head_dim) * sizeof(Accumulator<T>));
    std::memset(params.grad_value + head * keys * params.value_dim, 0,
                static_cast<size_t>(keys * params.value_dim) * sizeof(Accumulator<T>));
    // b*Hk + h reads for the query heads b*H + h*shared ..: head * shared ..
    for (int64_t row = head * shared * rows; row < (head + 1) * shared * rows; ++row) walk.run(row);
  }
}

#define EDGEWISE_SQUARE_BACKWARD(T)                                                              \
  template void square_backward_by_queries<T>(const SquareBackwardParams<T>&, int64_t, int64_t); \
  template void square_backward_by_keys<T>(const SquareBackwardParams<T>&, int64_t, int64_t);    \
  template void square_backward_whole_heads<T>(const SquareBackwardParams<T>&, int64_t, int64_t)
EDGEWISE_SQUARE_BACKWARD(float);
#if defined(EDGEWISE_PORTABLE_LEVEL)
EDGEWISE_SQUARE_BACKWARD(double);
#endif
#if defined(__AVX512BF16__)
EDGEWISE_SQUARE_BACKWARD(Bf16);
#endif
#undef EDGEWISE_SQUARE_BACKWARD

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
