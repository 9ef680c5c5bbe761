// Arithmetic of eight walkers side by side: small products, the LSTM's gates, a softmax and a draw from it.
// Included by the kernels of every CPU level, in a namespace of the level's own (simd.h). Every width is a
// multiple of kWalkLanes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/walk/walk_lstm.h"
#include "kernels/walk_params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <int Rows, int N, typename T, typename From>
EDGEWISE_INLINE void product_tile(const From& from, int64_t c, const T* left, int64_t stride, int64_t depth,
                                  const T* right, int64_t columns, T* out) {
  using V = Vec<T>;
  constexpr int W = V::kWidth;
  V sums[Rows][N];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[r][n] = V::load(from(r) + c + n * W);
  int64_t k = 0;
  if constexpr (Rows == 1) {  // one row alone would wait for its own sums: two of them, in turn
    V odd[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) odd[n] = V::zero();
    for (; k + 2 <= depth; k += 2) {
      const V a = V::broadcast(left[k]), b = V::broadcast(left[k + 1]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        sums[0][n] = fma(a, V::load(right + k * columns + c + n * W), sums[0][n]);
        odd[n] = fma(b, V::load(right + (k + 1) * columns + c + n * W), odd[n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[0][n] = sums[0][n] + odd[n];
  }
  for (; k < depth; ++k) {
    V b[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) b[n] = V::load(right + k * columns + c + n * W);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const V a = V::broadcast(left[r * stride + k]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[r][n] = fma(a, b[n], sums[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[r][n].store(out + r * columns + c + n * W);
}

// out[r][c] = from(r)[c] + sum_k left[r][k] right[k][c]; rows of `left` are `stride` apart, `right` is
// [depth, columns]. from(r) may be row r of out.
template <int Rows, typename T, typename From>
void add_product_to(const From& from, const T* left, int64_t stride, int64_t depth, const T* right,
                    int64_t columns, T* out) {
  constexpr int W = Vec<T>::kWidth, kWide = Rows == 1 ? 4 : W == 16 ? 2 : 1;  // what registers hold
  int64_t c = 0;
  for (; c + kWide * W <= columns; c += kWide * W)
    product_tile<Rows, kWide>(from, c, left, stride, depth, right, columns, out);
  for (; c < columns; c += W) product_tile<Rows, 1>(from, c, left, stride, depth, right, columns, out);
}
template <int Rows, typename T>
void add_product(const T* from, const T* left, int64_t stride, int64_t depth, const T* right, int64_t columns,
                 T* out) {
  add_product_to<Rows>([=](int r) EDGEWISE_INLINE_LAMBDA { return from + r * columns; }, left, stride, depth,
                       right, columns, out);
}

// out[k][c] += sum over rows of left[r][k] right[r][c], k < count.
template <int Rows, typename T>
void add_outer(const T* left, int64_t stride, int64_t count, const T* right, int64_t columns, T* out) {
  using V = Vec<T>;
  for (int64_t c = 0; c < columns; c += V::kWidth) {
    V b[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) b[r] = V::load(right + r * columns + c);
    for (int64_t k = 0; k < count; ++k) {
      V even = V::load(out + k * columns + c), odd = V::zero();
#pragma GCC unroll 8
      for (int r = 0; r < Rows; r += 2) {
        even = fma(V::broadcast(left[r * stride + k]), b[r], even);
        odd = fma(V::broadcast(left[(r + 1) * stride + k]), b[r + 1], odd);
      }
      (even + odd).store(out + k * columns + c);
    }
  }
}

template <typename T>
T dot(const T* a, const T* b, int64_t width) {
  Vec<T> result = Vec<T>::zero();
  for (int64_t p = 0; p < width; p += Vec<T>::kWidth)
    result = fma(Vec<T>::load(a + p), Vec<T>::load(b + p), result);
  return sum(result);
}

// to += factor * from.
template <typename T>
void add_scaled(T factor, const T* from, int64_t width, T* to) {
  const Vec<T> f = Vec<T>::broadcast(factor);
  for (int64_t p = 0; p < width; p += Vec<T>::kWidth)
    fma(f, Vec<T>::load(from + p), Vec<T>::load(to + p)).store(to + p);
}

// gates [rows, 4P]: i, f, g, o before their functions, and after them. cell_before, cell, hidden [rows, P].
//   c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
template <typename T>
void lstm_gates(int rows, int64_t width, T* gates, const T* cell_before, T* cell, T* hidden) {
  using V = Vec<T>;
  for (int r = 0; r < rows; ++r) {
    T* gate = gates + r * 4 * width;
    for (int64_t p = 0; p < width; p += V::kWidth) {
      const V i = sigmoid_of(V::load(gate + p)), f = sigmoid_of(V::load(gate + width + p)),
              g = tanh_of(V::load(gate + 2 * width + p)), o = sigmoid_of(V::load(gate + 3 * width + p));
      const V c = fma(f, V::load(cell_before + r * width + p), i * g);
      i.store(gate + p);
      f.store(gate + width + p);
      g.store(gate + 2 * width + p);
      o.store(gate + 3 * width + p);
      c.store(cell + r * width + p);
      (o * tanh_of(c)).store(hidden + r * width + p);
    }
  }
}

// The same state without the gates: divisions are what is slow, and two are enough. With a = e^-i, b = e^-f,
// d = e^2g:  c' = (c (1 + a)(1 + d) + (d - 1)(1 + b)) / ((1 + a)(1 + b)(1 + d)), and h' likewise. Arguments
// stop at 29, where a sigmoid is 3e-13, so that no product overflows.
template <typename T>
void lstm_state(int rows, int64_t width, const T* gates, const T* cell_before, T* cell, T* hidden) {
  using V = Vec<T>;
  const V one = V::broadcast(1), least = V::broadcast(-29);
  const auto exp_minus = [&](V x) EDGEWISE_INLINE_LAMBDA { return exp(V::zero() - max(least, x)); };
  const auto exp_twice = [&](V x) EDGEWISE_INLINE_LAMBDA { return exp_minus(V::zero() - (x + x)); };
  for (int r = 0; r < rows; ++r) {
    const T* gate = gates + r * 4 * width;
    for (int64_t p = 0; p < width; p += V::kWidth) {
      const V a = one + exp_minus(V::load(gate + p)), b = one + exp_minus(V::load(gate + width + p)),
              d = exp_twice(V::load(gate + 2 * width + p)),
              e = one + exp_minus(V::load(gate + 3 * width + p));
      const V ad = a * (one + d);
      const V c = fma(V::load(cell_before + r * width + p), ad, (d - one) * b) / (ad * b);
      const V bent = exp_twice(c);
      c.store(cell + r * width + p);
      ((bent - one) / (e * (bent + one))).store(hidden + r * width + p);
    }
  }
}

// d [rows, 4P]: gradients of the gates before their functions; dc becomes that of cell_before.
template <typename T>
void lstm_gate_grads(int rows, int64_t width, const T* gates, const T* cell_before, const T* cell,
                     const T* dh, T* dc, T* d) {
  using V = Vec<T>;
  const V one = V::broadcast(1);
  for (int r = 0; r < rows; ++r) {
    const T* gate = gates + r * 4 * width;
    T* to = d + r * 4 * width;
    for (int64_t p = 0; p < width; p += V::kWidth) {
      const V i = V::load(gate + p), f = V::load(gate + width + p), g = V::load(gate + 2 * width + p),
              o = V::load(gate + 3 * width + p), bent = tanh_of(V::load(cell + r * width + p)),
              up = V::load(dh + r * width + p);
      const V along = fma(up * o, one - bent * bent, V::load(dc + r * width + p));
      (along * g * i * (one - i)).store(to + p);
      (along * V::load(cell_before + r * width + p) * f * (one - f)).store(to + width + p);
      (along * i * (one - g * g)).store(to + 2 * width + p);
      (up * bent * o * (one - o)).store(to + 3 * width + p);
      (along * f).store(dc + r * width + p);
    }
  }
}

// A softmax over `count` scores. shares [count] and runs [count / lanes] belong to it: e^(s - top), and their
// sums up to the end of each vector. top is 0 unless scores are so large or small that e^s would not do.
template <typename T>
struct Softmax {
  T top;
  double total, weighted;  // sums of shares, and of shares times scores

  T normaliser() const { return top + static_cast<T>(std::log(total)); }
};
// kWeighted: whether the sum of shares times scores is wanted.
template <bool kWeighted, typename T>
EDGEWISE_INLINE Softmax<T> softmax_from(T top, const T* scores, int64_t count, T* shares, double* runs) {
  using V = Vec<T>;
  constexpr int W = V::kWidth;
  V products = V::zero();
#pragma GCC unroll 4
  for (int64_t j = 0; j < count; j += W) {
    const V score = V::load(scores + j), share = exp(score - V::broadcast(top));
    share.store(shares + j);
    if constexpr (kWeighted) products = fma(share, score, products);
  }
  double total = 0;
  for (int64_t from = 0; from < count; from += W * W) {  // the sums of W vectors at once
    const int vectors = static_cast<int>(std::min<int64_t>(W, (count - from) / W));
    T sums[W];
    transpose_reduce<T>(
        [&](int n)
            EDGEWISE_INLINE_LAMBDA { return n < vectors ? V::load(shares + from + n * W) : V::zero(); },
        vectors)
        .store(sums);
    for (int n = 0; n < vectors; ++n) *runs++ = total += static_cast<double>(sums[n]);
  }
  return {top, total, kWeighted ? static_cast<double>(sum(products)) : 0};
}
template <typename T>
T largest_of(const T* scores, int64_t count) {
  using V = Vec<T>;
  V most = V::load(scores);
  for (int64_t j = V::kWidth; j < count; j += V::kWidth) most = max(most, V::load(scores + j));
  return largest(most);
}
template <bool kWeighted = true, typename T>
Softmax<T> softmax(const T* scores, int64_t count, T* shares, double* runs) {
  const Softmax<T> result = softmax_from<kWeighted>(T{0}, scores, count, shares, runs);
  if (result.total > 1e-20 && result.total < 1e35) [[likely]]
    return result;
  return softmax_from<kWeighted>(largest_of(scores, count), scores, count, shares, runs);
}

// The place of the largest score; 0 when there is no number at all, which is always a valid place.
template <typename T>
int64_t likeliest(const T* scores, int64_t count) {
  const T top = largest_of(scores, count);
  for (int64_t j = 0; j < count; ++j)
    if (scores[j] == top) return j;
  return 0;
}
// The first place where the running sum of shares passes target = uniform * total. Without branches on the
// way: where it ends is random, and a wrong guess would hold up the next rows.
template <typename T>
int64_t draw(const T* scores, int64_t count, const Softmax<T>& softmax, const T* shares, const double* runs,
             double uniform) {
  constexpr int W = Vec<T>::kWidth;
  const double target = uniform * softmax.total;
  int64_t run = 0;
  for (int64_t n = 0; n < count / W; ++n) run += runs[n] <= target;
  if (run == count / W) return likeliest(scores, count);
  double running = run == 0 ? 0 : runs[run - 1];
  int64_t lane = 0;
  for (int k = 0; k < W; ++k) {
    running += static_cast<double>(shares[run * W + k]);
    lane += running <= target;
  }
  if (lane < W) return run * W + lane;
  // Rounding left the vector's end just below the target: its last share.
  for (lane = W - 1; shares[run * W + lane] == 0;) --lane;
  return run * W + lane;
}

// ds_j = dlogp (1[j chosen] - p_j) - dH p_j (log p_j + H), for log p of the chosen one and the entropy H.
template <typename T>
void prediction_grads(const T* scores, int64_t count, int64_t chosen, T dlogp, T dentropy, T normaliser,
                      T entropy, T* ds) {
  using V = Vec<T>;
  const V l = V::broadcast(normaliser), h = V::broadcast(entropy), dl = V::broadcast(dlogp),
          de = V::broadcast(dentropy);
  for (int64_t j = 0; j < count; j += V::kWidth) {
    const V log_p = V::load(scores + j) - l;
    (V::zero() - exp(log_p) * fma(de, log_p + h, dl)).store(ds + j);
  }
  ds[chosen] += dlogp;
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
