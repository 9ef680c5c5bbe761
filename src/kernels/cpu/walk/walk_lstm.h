// The LSTM of a walk, one row at a time, and its backward pass. Included by the kernels of every CPU level,
// in a namespace of the level's own (simd.h).
//
//   i, f, g, o = x W_ih + h W_hh + b;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// As low as a score can be and finite, so that 0 times it is 0.
template <typename T>
inline constexpr T kForbidden = static_cast<T>(-1e30);

template <typename T>
EDGEWISE_INLINE Vec<T> sigmoid_of(Vec<T> x) {
  const Vec<T> one = Vec<T>::broadcast(1);
  return one / (one + exp(Vec<T>::zero() - x));
}
template <typename T>
EDGEWISE_INLINE Vec<T> tanh_of(Vec<T> x) {
  const Vec<T> one = Vec<T>::broadcast(1);
  return one - Vec<T>::broadcast(2) / (exp(x + x) + one);
}

template <typename T>
struct LstmWeights {
  const T* input_side;   // [P, 4P]
  const T* hidden_side;  // [P, 4P]
  const T* bias;         // [4P]
  int64_t width;         // P
};

// What one step leaves behind: gates after their functions.
template <typename T>
struct LstmRow {
  T* gates;   // [4P] sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
  T* cell;    // [P]
  T* hidden;  // [P]
};

template <typename T>
void lstm_step(const LstmWeights<T>& w, const T* input, const T* hidden_before, const T* cell_before,
               LstmRow<T> out) {
  const int64_t width = w.width, wide = 4 * width;
  std::copy(w.bias, w.bias + wide, out.gates);
  for (int64_t p = 0; p < width; ++p) {
    const T x = input[p], h = hidden_before[p];
    const T *a = w.input_side + p * wide, *b = w.hidden_side + p * wide;
    for (int64_t g = 0; g < wide; ++g) out.gates[g] += x * a[g] + h * b[g];
  }
  using V = Vec<T>;
  for (int64_t p = 0; p < width; p += V::kWidth) {
    const int count = static_cast<int>(std::min<int64_t>(V::kWidth, width - p));
    const auto gate = [&](int n) { return V::load_first(out.gates + n * width + p, count); };
    const V i = sigmoid_of(gate(0)), f = sigmoid_of(gate(1)), g = tanh_of(gate(2)), o = sigmoid_of(gate(3));
    const V c = fma(f, V::load_first(cell_before + p, count), i * g);
    o.store_first(out.gates + 3 * width + p, count);
    g.store_first(out.gates + 2 * width + p, count);
    f.store_first(out.gates + width + p, count);
    i.store_first(out.gates + p, count);
    c.store_first(out.cell + p, count);
    (o * tanh_of(c)).store_first(out.hidden + p, count);
  }
}

template <typename T>
struct LstmGrads {
  T* input_side;   // [P, 4P]
  T* hidden_side;  // [P, 4P]
  T* bias;         // [4P]
};

// The states of one chain of steps, kept for the backward pass.
template <typename T>
class LstmTrace {
 public:
  LstmTrace(int64_t steps, int64_t width)
      : width_(width), states_(static_cast<size_t>((steps + 1) * width * 7)) {}

  T* hidden(int64_t t) { return state(t); }  // after step t; t = -1: the start
  void restart() { std::fill_n(state(-1), 7 * width_, T{0}); }

  void step(int64_t t, const LstmWeights<T>& weights, const T* input) {
    std::copy_n(input, width_, this->input(t));
    lstm_step<T>(weights, this->input(t), hidden(t - 1), cell(t - 1), {gates(t), cell(t), hidden(t)});
  }

  // In: dh and dc of the state after step t. Out: those before it, and dx of its input.
  void backward(int64_t t, const LstmWeights<T>& weights, T* dh, T* dc, T* dx, const LstmGrads<T>& out) {
    const int64_t wide = 4 * width_;
    const T *gate = gates(t), *c = cell(t), *c_before = cell(t - 1), *h_before = hidden(t - 1), *x = input(t);
    std::vector<T> d(static_cast<size_t>(wide));
    for (int64_t p = 0; p < width_; ++p) {
      const T i = gate[p], f = gate[width_ + p], g = gate[2 * width_ + p], o = gate[3 * width_ + p];
      const T bent = std::tanh(c[p]), along = dc[p] + dh[p] * o * (1 - bent * bent);
      d[static_cast<size_t>(p)] = along * g * i * (1 - i);
      d[static_cast<size_t>(width_ + p)] = along * c_before[p] * f * (1 - f);
      d[static_cast<size_t>(2 * width_ + p)] = along * i * (1 - g * g);
      d[static_cast<size_t>(3 * width_ + p)] = dh[p] * bent * o * (1 - o);
      dc[p] = along * f;
    }
    for (int64_t q = 0; q < wide; ++q) out.bias[q] += d[static_cast<size_t>(q)];
    for (int64_t p = 0; p < width_; ++p) {
      const T *a = weights.input_side + p * wide, *b = weights.hidden_side + p * wide;
      T *da = out.input_side + p * wide, *db = out.hidden_side + p * wide;
      T to_x = 0, to_h = 0;
      for (int64_t q = 0; q < wide; ++q) {
        const T dq = d[static_cast<size_t>(q)];
        to_x += a[q] * dq;
        to_h += b[q] * dq;
        da[q] += x[p] * dq;
        db[q] += h_before[p] * dq;
      }
      dx[p] = to_x;
      dh[p] = to_h;
    }
  }

 private:
  T* state(int64_t t) { return states_.data() + (t + 1) * width_ * 7; }
  T* cell(int64_t t) { return state(t) + width_; }
  T* input(int64_t t) { return state(t) + 2 * width_; }
  T* gates(int64_t t) { return state(t) + 3 * width_; }

  int64_t width_;
  std::vector<T> states_;
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
