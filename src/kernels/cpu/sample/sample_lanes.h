// Vector primitives of the samplers, one set per CPU level. The file that includes this is compiled once per
// level; everything here is in that level's namespace, so that no two levels share an inline function.
//
// Integer operations, and floating-point operations in an order that does not depend on the level: every
// level gives the same bits. Files that include this are compiled with -ffp-contract=off.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512BW__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
#define EDGEWISE_LEVEL_NAMESPACE avx512
#elif defined(__AVX2__)
#define EDGEWISE_LEVEL_NAMESPACE avx2
#else
#define EDGEWISE_LEVEL_NAMESPACE scalar
#endif

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {

// ---- vectors: 64, 32 or 16 bytes ----

#if defined(__AVX512BW__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
typedef uint64_t Wide __attribute__((vector_size(kVectorBytes), may_alias));    // 64-bit lanes
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes), may_alias));  // 16-bit lanes
typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes), may_alias));
inline constexpr int kWideLanes = kVectorBytes / 8, kHalfLanes = kVectorBytes / 2;

template <typename V>
inline V load(const void* from) {
  V result;
  std::memcpy(&result, from, sizeof(V));
  return result;
}
template <typename V>
inline void store(void* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

inline Halves splat(uint16_t value) {
  return Halves{} + value;
}
inline Halves splat_word(uint32_t value) {  // every 32 bits
  typedef uint32_t Words32 __attribute__((vector_size(kVectorBytes), may_alias));
  return reinterpret_cast<Halves>(Words32{} + value);
}
typedef int16_t SignedHalves __attribute__((vector_size(kVectorBytes), may_alias));
inline Halves not_negative(Halves a) {
  return a & ~reinterpret_cast<Halves>(reinterpret_cast<SignedHalves>(a) >> 15);
}

#if defined(__AVX512BW__)
// The numbers of a table of 32 at the places that the lanes of `at` name.
inline Halves look_up(const uint16_t* table, Halves at) {
  return reinterpret_cast<Halves>(
      _mm512_permutexvar_epi16(reinterpret_cast<__m512i>(at), _mm512_load_si512(table)));
}
// Signed lanes, all by the same number of bits.
inline Halves shift_signed(Halves a, Halves bits) {
  return reinterpret_cast<Halves>(
      _mm512_srav_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(bits)));
}
inline Wide multiply_low(Wide a, Wide b) {  // 32 x 32 -> 64 of the low halves
  return reinterpret_cast<Wide>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Wide high_half(Wide a) {  // bits 32..63 in the low half; the high half is not used
  return reinterpret_cast<Wide>(
      _mm512_shuffle_epi32(reinterpret_cast<__m512i>(a), static_cast<_MM_PERM_ENUM>(0xF5)));
}
inline Halves multiply_high(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm512_mulhi_epu16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Halves multiply_high_signed(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm512_mulhi_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Halves add_saturated(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm512_adds_epu16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Halves subtract_saturated(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm512_subs_epu16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Halves add_signed(Halves a, Halves b) {  // saturated
  return reinterpret_cast<Halves>(
      _mm512_adds_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Bytes narrow(Halves a, Halves b) {  // signed x, clamped to 0 .. 255, in the order of block_position
  return reinterpret_cast<Bytes>(
      _mm512_packus_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline uint64_t less(Bytes a, Bytes b) {
  return _mm512_cmplt_epu8_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
}
inline uint64_t less_or_equal(Bytes a, Bytes b) {
  return _mm512_cmple_epu8_mask(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
}
#else
inline Halves look_up(const uint16_t* table, Halves at) {
  Halves result;
  for (int n = 0; n < kHalfLanes; ++n) result[n] = table[at[n]];
  return result;
}
inline Halves shift_signed(Halves a, Halves bits) {
  return reinterpret_cast<Halves>(reinterpret_cast<SignedHalves>(a) >> static_cast<int>(bits[0]));
}
#endif

#if defined(__AVX512BW__)
#elif defined(__AVX2__)
inline Wide multiply_low(Wide a, Wide b) {
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Wide high_half(Wide a) {
  return reinterpret_cast<Wide>(_mm256_shuffle_epi32(reinterpret_cast<__m256i>(a), 0xF5));
}
inline Halves multiply_high(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm256_mulhi_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Halves multiply_high_signed(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm256_mulhi_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Halves add_saturated(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm256_adds_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Halves subtract_saturated(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm256_subs_epu16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Halves add_signed(Halves a, Halves b) {
  return reinterpret_cast<Halves>(
      _mm256_adds_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Bytes narrow(Halves a, Halves b) {
  return reinterpret_cast<Bytes>(
      _mm256_packus_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline uint64_t less_or_equal(Bytes a, Bytes b) {
  const __m256i x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(b);
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(x, y), x)));
}
inline uint64_t less(Bytes a, Bytes b) {
  return less_or_equal(b, a) ^ 0xFFFFFFFFu;
}
#else
inline Wide multiply_low(Wide a, Wide b) {
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
}
inline Wide high_half(Wide a) {
  return a >> 32;
}
inline Halves multiply_high(Halves a, Halves b) {
  Halves result;
  for (int n = 0; n < kHalfLanes; ++n) result[n] = static_cast<uint16_t>(uint32_t{a[n]} * b[n] >> 16);
  return result;
}
inline Halves multiply_high_signed(Halves a, Halves b) {
  Halves result;
  for (int n = 0; n < kHalfLanes; ++n)
    result[n] = static_cast<uint16_t>(int32_t{static_cast<int16_t>(a[n])} * static_cast<int16_t>(b[n]) >> 16);
  return result;
}
inline Halves add_saturated(Halves a, Halves b) {
  const Halves sum = a + b;
  return sum | reinterpret_cast<Halves>(sum < a);
}
inline Halves subtract_saturated(Halves a, Halves b) {
  return (a - b) & reinterpret_cast<Halves>(a >= b);
}
inline Halves add_signed(Halves a, Halves b) {
  Halves result;
  for (int n = 0; n < kHalfLanes; ++n) {
    const int sum = static_cast<int16_t>(a[n]) + static_cast<int16_t>(b[n]);
    result[n] = static_cast<uint16_t>(sum < -32768 ? -32768 : sum > 32767 ? 32767 : sum);
  }
  return result;
}
inline Bytes narrow(Halves a, Halves b) {
  const auto clamped = [](uint16_t half) {
    const int x = static_cast<int16_t>(half);
    return static_cast<uint8_t>(x < 0 ? 0 : x > 255 ? 255 : x);
  };
  Bytes result;
  for (int n = 0; n < kHalfLanes; ++n) {
    result[n] = clamped(a[n]);
    result[n + kHalfLanes] = clamped(b[n]);
  }
  return result;
}
inline uint64_t less(Bytes a, Bytes b) {
  uint64_t result = 0;
  for (int n = 0; n < kVectorBytes; ++n) result |= uint64_t{a[n] < b[n]} << n;
  return result;
}
inline uint64_t less_or_equal(Bytes a, Bytes b) {
  uint64_t result = 0;
  for (int n = 0; n < kVectorBytes; ++n) result |= uint64_t{a[n] <= b[n]} << n;
  return result;
}
#endif

// ---- products of pairs of 16-bit integers ----

typedef int32_t Sums __attribute__((vector_size(kVectorBytes), may_alias));
inline constexpr int kSumLanes = kVectorBytes / 4;

// sum + a0 b0 + a1 b1 in every 32-bit lane
inline Sums add_products(Sums sum, Halves a, Halves b) {
#if defined(__AVX512BW__)
  return sum + reinterpret_cast<Sums>(
                   _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return sum + reinterpret_cast<Sums>(
                   _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  for (int n = 0; n < kSumLanes; ++n)
    sum[n] += static_cast<int16_t>(a[2 * n]) * static_cast<int16_t>(b[2 * n]) +
              static_cast<int16_t>(a[2 * n + 1]) * static_cast<int16_t>(b[2 * n + 1]);
  return sum;
#endif
}

inline Halves splat_pair(const int16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof(both));
  return reinterpret_cast<Halves>(Sums{} + both);
}

// ---- Philox4x32, eight counters at a time ----

struct PhiloxKeys {
  std::array<uint64_t, 10> first, second;  // round keys, in the low halves

  explicit PhiloxKeys(uint64_t key) {
    uint32_t a = static_cast<uint32_t>(key), b = static_cast<uint32_t>(key >> 32);
    for (size_t round = 0; round < 10; ++round) {
      first[round] = a;
      second[round] = b;
      a += 0x9E3779B9u;
      b += 0xBB67AE85u;
    }
  }
};

// Philox of {c0(n), c1(n), 0, lane} for n = 0..7, where c0 and c1 give the counters of lanes n on. `low`
// receives words 0 and 1 of each, eight bytes by eight, `high` words 2 and 3. The products stay in 64-bit
// lanes: the high half is the word to mix, the low half waits one round.
template <size_t kRounds, typename First, typename Second>
inline void philox8(const PhiloxKeys& keys, const First& c0, const Second& c1, uint32_t lane, void* low,
                    void* high) {
  const Wide factor0 = Wide{} + uint64_t{0xD2511F53u}, factor1 = Wide{} + uint64_t{0xCD9E8D57u};
#pragma GCC unroll 4
  for (int n = 0; n < 8; n += kWideLanes) {
    Wide product0 = multiply_low(c0(n), factor0), product1 = Wide{};
    Wide mixed0 = c1(n) ^ keys.first[0];
    Wide mixed2 = high_half(product0) ^ (uint64_t{lane} ^ keys.second[0]);
#pragma GCC unroll 9
    for (size_t round = 1; round < kRounds; ++round) {
      const Wide next1 = multiply_low(mixed2, factor1), next0 = multiply_low(mixed0, factor0);
      mixed0 = high_half(next1) ^ product1 ^ keys.first[round];
      mixed2 = high_half(next0) ^ product0 ^ keys.second[round];
      product1 = next1;
      product0 = next0;
    }
    store(static_cast<uint64_t*>(low) + n, (mixed0 & 0xFFFFFFFFu) | (product1 << 32));
    store(static_cast<uint64_t*>(high) + n, (mixed2 & 0xFFFFFFFFu) | (product0 << 32));
  }
}

// ---- floats: sixteen lanes on every level, summed in one fixed order ----

typedef float Lanes __attribute__((vector_size(64)));

inline Lanes load_lanes(const float* from, int64_t count) {  // the rest is 0
  Lanes result{};
  std::memcpy(&result, from, static_cast<size_t>(count < 16 ? count : 16) * sizeof(float));
  return result;
}

inline float sum_lanes(const Lanes& lanes) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  const Eight eight = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
  const Four four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

inline float lane_dot(const float* a, const float* b, int64_t width) {
  Lanes sum{};
  int64_t c = 0;
  for (; c + 16 <= width; c += 16) sum += load<Lanes>(a + c) * load<Lanes>(b + c);
  if (c < width) sum += load_lanes(a + c, width - c) * load_lanes(b + c, width - c);
  return sum_lanes(sum);
}

#if defined(__AVX512BW__)

// Sixteen entries of four floats, transposed: vectors of their first, second and third numbers. `entry(n)`
// loads one. Sixteen loads: the gather instruction costs more than they do.
struct Transposed {
  Lanes first, second, third;

  template <typename Entry>
  explicit Transposed(const Entry& entry) {
    const auto four = [&](int n) {
      return _mm512_insertf32x4(
          _mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(entry(n)), entry(n + 1), 1),
                             entry(n + 2), 2),
          entry(n + 3), 3);
    };
    const __m512 a = four(0), b = four(4), c = four(8), d = four(12);
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i pick_third = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 2, 6, 10, 14, 18, 22, 26, 30);
    const __m512 ab = _mm512_permutex2var_ps(a, pick, b), cd = _mm512_permutex2var_ps(c, pick, d),
                 ab3 = _mm512_permutex2var_ps(a, pick_third, b),
                 cd3 = _mm512_permutex2var_ps(c, pick_third, d);
    first = reinterpret_cast<Lanes>(_mm512_shuffle_f32x4(ab, cd, 0x44));
    second = reinterpret_cast<Lanes>(_mm512_shuffle_f32x4(ab, cd, 0xEE));
    third = reinterpret_cast<Lanes>(_mm512_shuffle_f32x4(ab3, cd3, 0x44));
  }
};

#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
