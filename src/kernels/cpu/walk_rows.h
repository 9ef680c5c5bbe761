// Arithmetic of eight walkers side by side: small products, the LSTM's gates, a softmax and a draw from it.
// Included by the kernels of every CPU level, in a namespace of the level's own (simd.h). Every width is a
// multiple of kWalkLanes.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/walk_lstm.h"
#include "kernels/walk_params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <int Rows, int N, typename T>
EDGEWISE_INLINE void product_tile(const T* left, int64_t stride, int64_t depth, const T* right,
                                  int64_t columns, T* out) {
  using V = Vec<T>;
  constexpr int W = V::kWidth;
  V sums[Rows][N];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[r][n] = V::load(out + r * columns + n * W);
  for (int64_t k = 0; k < depth; ++k) {
    V b[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) b[n] = V::load(right + k * columns + n * W);
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
    for (int n = 0; n < N; ++n) sums[r][n].store(out + r * columns + n * W);
}

// out[r][c] += sum_k left[r][k] right[k][c]; rows of `left` are `stride` apart, `right` is [depth, columns].
template <int Rows, typename T>
void add_product(const T* left, int64_t stride, int64_t depth, const T* right, int64_t columns, T* out) {
  constexpr int W = Vec<T>::kWidth, kWide = Rows == 1 ? 4 : W == 16 ? 2 : 1;  // what registers hold
  int64_t c = 0;
  for (; c + kWide * W <= columns; c += kWide * W)
    product_tile<Rows, kWide>(left, stride, depth, right + c, columns, out + c);
  for (; c < columns; c += W) product_tile<Rows, 1>(left, stride, depth, right + c, columns, out + c);
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

template <typename T>
struct Prediction {
  int64_t index;
  T log_prob, entropy, normaliser;
};

// Softmax over `count` scores and the choice of one: the likeliest, or the first whose running sum of shares
// passes `uniform` times the total. `shares` is scratch of the same size.
template <typename T>
Prediction<T> predict(const T* scores, int64_t count, WalkChoice choice, double uniform, T* shares) {
  using V = Vec<T>;
  constexpr int W = V::kWidth;
  V most = V::load(scores);
  for (int64_t j = W; j < count; j += W) most = max(most, V::load(scores + j));
  const T top = largest(most);
  double total = 0;
  V products = V::zero();
  for (int64_t j = 0; j < count; j += W) {
    const V score = V::load(scores + j), share = exp(score - V::broadcast(top));
    share.store(shares + j);
    total += static_cast<double>(sum(share));
    products = fma(share, score, products);
  }
  int64_t index = -1;
  if (choice == WalkChoice::kSample) {
    const double target = uniform * total;
    double running = 0;
    for (int64_t j = 0; j < count && index < 0; j += W) {
      const double next = running + static_cast<double>(sum(V::load(shares + j)));
      if (next > target) {
        for (int64_t k = j; k < j + W; ++k) {
          if (shares[k] == 0) continue;
          index = k;  // rounding may leave the sum just below the target: then the last of these
          running += static_cast<double>(shares[k]);
          if (running > target) break;
        }
      }
      running = next;
    }
  }
  if (index < 0) {
    for (index = 0; index < count && scores[index] != top;) ++index;
    if (index == count) index = 0;  // no number at all: any valid place
  }
  const T normaliser = top + static_cast<T>(std::log(total));
  return {index, scores[index] - normaliser,
          normaliser - static_cast<T>(static_cast<double>(sum(products)) / total), normaliser};
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
