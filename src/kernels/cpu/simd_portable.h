// Vectors of 16 bytes by the compiler's vector extension: SSE2 on any x86-64, NEON on Arm. The only level
// with fp64.
#pragma once

#include <cmath>
#include <type_traits>

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <typename Acc>
struct Vec {
  static constexpr int kWidth = 16 / sizeof(Acc);
  typedef Acc Register __attribute__((vector_size(16)));
  Register v;

  EDGEWISE_INLINE static Vec zero() { return {Register{}}; }
  EDGEWISE_INLINE static Vec broadcast(Acc x) { return {Register{} + x}; }
  template <typename T>
  EDGEWISE_INLINE static Vec load(const T* from) {
    if constexpr (!std::is_same_v<T, Acc>) return load_first(from, kWidth);
    Vec result;
    __builtin_memcpy(&result.v, from, sizeof(Register));
    return result;
  }
  template <typename T>
  EDGEWISE_INLINE static Vec load_first(const T* from, int count) {
    Vec result = zero();
    for (int lane = 0; lane < count; ++lane) result.v[lane] = to_accumulator(from[lane]);
    return result;
  }
  template <typename T>
  EDGEWISE_INLINE void store(T* to) const {
    if constexpr (std::is_same_v<T, Acc>)
      __builtin_memcpy(to, &v, sizeof(Register));
    else
      store_first(to, kWidth);
  }
  template <typename T>
  EDGEWISE_INLINE void store_first(T* to, int count) const {
    for (int lane = 0; lane < count; ++lane) to[lane] = from_accumulator<T>(v[lane]);
  }
  EDGEWISE_INLINE friend Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
  EDGEWISE_INLINE friend Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
  EDGEWISE_INLINE friend Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
  EDGEWISE_INLINE friend Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
};

template <typename Acc>
EDGEWISE_INLINE Vec<Acc> fma(Vec<Acc> a, Vec<Acc> b, Vec<Acc> c) {
  return {a.v * b.v + c.v};
}
template <typename Acc>
EDGEWISE_INLINE Vec<Acc> max(Vec<Acc> a, Vec<Acc> b) {
  return {a.v > b.v ? a.v : b.v};
}
template <typename Acc>
EDGEWISE_INLINE Vec<Acc> keep_first(Vec<Acc> v, int count, Vec<Acc> other) {
  for (int lane = count; lane < Vec<Acc>::kWidth; ++lane) v.v[lane] = other.v[lane];
  return v;
}
template <typename Acc>
EDGEWISE_INLINE Acc sum(Vec<Acc> v) {
  Acc result = 0;
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane) result += v.v[lane];
  return result;
}
template <typename Acc>
EDGEWISE_INLINE Acc largest(Vec<Acc> v) {
  Acc result = v.v[0];
  for (int lane = 1; lane < Vec<Acc>::kWidth; ++lane) result = v.v[lane] > result ? v.v[lane] : result;
  return result;
}
template <typename Acc>
EDGEWISE_INLINE Vec<Acc> exp(Vec<Acc> x) {
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane) x.v[lane] = std::exp(x.v[lane]);
  return x;
}

template <typename Acc>
EDGEWISE_INLINE Vec<Acc> log(Vec<Acc> x) {
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane) x.v[lane] = std::log(x.v[lane]);
  return x;
}

template <typename Acc, typename F>
EDGEWISE_INLINE Vec<Acc> transpose_reduce(const F& f, int count) {
  Vec<Acc> result = Vec<Acc>::zero();
  for (int lane = 0; lane < count; ++lane) result.v[lane] = sum(f(lane));
  return result;
}

template <typename Acc, typename F>
EDGEWISE_INLINE void for_lanes(Vec<Acc> v, const F& f) {
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane) f(lane, Vec<Acc>::broadcast(v.v[lane]));
}

template <int N, typename Acc, typename T>
EDGEWISE_INLINE void load_row(const T* from, Vec<Acc> (&row)[N]) {
  for (int n = 0; n < N; ++n) row[n] = Vec<Acc>::load(from + n * Vec<Acc>::kWidth);
}
template <int N, typename Acc, typename T>
EDGEWISE_INLINE void store_row(T* to, const Vec<Acc> (&row)[N]) {
  for (int n = 0; n < N; ++n) row[n].store(to + n * Vec<Acc>::kWidth);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
