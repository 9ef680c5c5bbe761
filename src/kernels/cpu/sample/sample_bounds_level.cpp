// Bounds of the samplers (sample_bounds.h), compiled once per CPU level: one look at every membership.
#include <cmath>

#include "kernels/cpu/sample/sample_level.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

typedef uint32_t BitLanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));

constexpr float kLargest = 3.402823466e38f;

// Vectors asked for ahead: the prefetcher of the CPU stops at every page, which is eight vectors at C = 128.
constexpr int64_t kAhead = 6;

// sum + x y, rounded once where the level can.
inline Lanes add_product(const Lanes& sum, float x, const Lanes& y) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Lanes>(_mm512_fmadd_ps(_mm512_set1_ps(x), reinterpret_cast<const __m512&>(y),
                                                 reinterpret_cast<const __m512&>(sum)));
#else
  return sum + x * y;
#endif
}

// add(sum, x, y) = sum + x y
template <typename Add>
void project_by(const ProjectParams& params, float* products, float* squares, const Add& add) {
  constexpr int64_t kVectors = 8;  // share a look at the directions; fewer would wait for their sums
  const int64_t width = params.clusters, lanes = params.lanes;
  for (int64_t n = 0; n < params.count; n += kVectors) {
    const float* vectors[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) {
      const int64_t at = n + k < params.count ? n + k : n;
      vectors[k] = params.vectors + params.tokens[at] * width;
      squares[at] = lane_dot(vectors[k], vectors[k], width);
      if (n + k + kAhead < params.count) {
        const float* next = params.vectors + params.tokens[n + k + kAhead] * width;
        for (int64_t c = 0; c < width; c += 16) __builtin_prefetch(next + c);
      }
    }
    for (int64_t g = 0; g < lanes; g += 16) {
      Lanes sums[kVectors] = {};
      for (int64_t c = 0; c < width; ++c) {
        const Lanes along = load<Lanes>(params.directions + c * lanes + g);
#pragma GCC unroll 8
        for (int64_t k = 0; k < kVectors; ++k) sums[k] = add(sums[k], vectors[k][c], along);
      }
      for (int64_t k = 0; k < kVectors && n + k < params.count; ++k)
        store(products + (n + k) * lanes + g, sums[k]);
    }
  }
}

}  // namespace

bool valid(const MeasureParams& params) {
  IntLanes good = IntLanes{} - 1;
  for (int64_t n = 0; n < params.count; ++n) {
    const float* vector = params.vectors + params.tokens[n] * params.clusters;
    for (int64_t c = 0; c < params.clusters; c += 16) {
      const Lanes x =
          params.clusters - c >= 16 ? load<Lanes>(vector + c) : load_lanes(vector + c, params.clusters - c);
      good &= (x >= 0.0f) & (x <= kLargest);
    }
  }
  for (int n = 0; n < 16; ++n)
    if (!good[n]) return false;
  return true;
}

MeasureResult measure(const MeasureParams& params, Terms* terms) {
  const int64_t width = params.clusters;
  // The rest is a difference of sums, which round by a part in 10^7 of the squared length for every few
  // clusters: this share of it stays on either side.
  const float floor = 4e-6f + 1e-7f * static_cast<float>(width);
  MeasureResult result;
  BitLanes signs{};
  for (int64_t n = 0; n < params.count; ++n) {
    const int64_t token = params.tokens[n];
    const float* vector = params.vectors + token * width;
    if (n + kAhead < params.count) {
      const float* next = params.vectors + params.tokens[n + kAhead] * width;
      for (int64_t c = 0; c < width; c += 16) __builtin_prefetch(next + c);
    }
    Lanes squares{}, along_key{}, along_query{};
    const auto step = [&](const Lanes& v, const Lanes& k, const Lanes& q) {
      signs |= reinterpret_cast<const BitLanes&>(v);
      squares += v * v;
      along_key += v * k;
      along_query += v * q;
    };
    int64_t c = 0;
    for (; c + 16 <= width; c += 16)
      step(load<Lanes>(vector + c), load<Lanes>(params.key_direction + c),
           load<Lanes>(params.query_direction + c));
    if (c < width)
      step(load_lanes(vector + c, width - c), load_lanes(params.key_direction + c, width - c),
           load_lanes(params.query_direction + c, width - c));
    const float square = sum_lanes(squares), query = sum_lanes(along_query);
    Terms out;
    out.first = sum_lanes(along_key);
    out.second = params.keys ? query - out.first * params.between : query;
    float rest = square - out.second * out.second;
    if (params.keys) rest -= out.first * out.first;
    out.rest = std::sqrt((rest > 0 ? rest : 0) + floor * square) * 1.0001f;
    if (!(square <= kLargest)) {  // too large to square, or no number at all: no bound
      out = {0, 0, kLargest};
      result.valid = false;
    }
    terms[params.by_token ? token : n] = out;
    result.first += out.first;
    result.second += out.second;
    result.second_size += std::fabs(out.second);
    result.rest += out.rest;
    result.largest_first = out.first > result.largest_first ? out.first : result.largest_first;
    result.largest_second = out.second > result.largest_second ? out.second : result.largest_second;
    result.largest_rest = out.rest > result.largest_rest ? out.rest : result.largest_rest;
  }
  uint32_t sign = 0;
  for (int n = 0; n < 16; ++n) sign |= signs[n];
  result.valid &= !(sign >> 31);
  return result;
}

void project(const ProjectParams& params, float* products, float* squares) {
  if (params.same_on_all_levels)
    project_by(params, products, squares,
               [](const Lanes& sum, float x, const Lanes& y) { return sum + x * y; });
  else
    project_by(params, products, squares,
               [](const Lanes& sum, float x, const Lanes& y) { return add_product(sum, x, y); });
}

FixScales fix(const FixParams& params) {
  constexpr int64_t kBlock = 64;
  const float fold = params.fold * params.fold;
  const auto rest_of = [&](const Terms& terms) {
    const float rest = std::sqrt(terms.rest * terms.rest + fold * terms.second * terms.second) * 1.0001f;
    return rest < 3e38f ? rest : 3e38f;
  };
  FixScales largest;
  for (int64_t n = 0; n < params.stride; ++n) {
    const float rest = rest_of(params.terms[n]);
    largest.first = params.terms[n].first > largest.first ? params.terms[n].first : largest.first;
    largest.rest = rest > largest.rest ? rest : largest.rest;
  }
  const auto second_of = [&](int64_t n) {
    return params.group_second ? params.group_second[n] : params.terms[n].second;
  };
  for (int64_t n = 0; n < params.stride * params.groups; ++n) {
    const float second = std::fabs(second_of(n));
    largest.second = second > largest.second ? second : largest.second;
  }
  const auto scale = [](float units, float top) { return top > 0 ? units / top : 0.0f; };
  const float first_scale = scale(65535, largest.first), second_scale = scale(32767, largest.second),
              rest_scale = scale(65535, largest.rest);
  // put(where it stands, n) for the n-th number of a block, in the order of block_position.
  const auto ordered = [](const auto& put) {
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t group = 0; group < 4; ++group)
        for (int64_t n = 0; n < 8; ++n) put(half * 32 + group * 8 + n, group * 16 + half * 8 + n);
  };
  for (int64_t block = 0; block < params.stride; block += kBlock) {
    float top = 0;
    for (int64_t n = 0; n < kBlock; ++n) {
      const float rest = rest_of(params.terms[block + n]);
      top = rest > top ? rest : top;
    }
    const float rest = top * rest_scale + 1;
    params.block_rest[block / kBlock] = static_cast<uint16_t>(rest < 65535 ? rest : 65535);
    ordered([&](int64_t to, int64_t n) {
      const float x = params.terms[block + n].first * first_scale;
      params.first[block + to] = static_cast<uint16_t>(static_cast<int32_t>(x < 65535 ? x : 65535));
    });
  }
  for (int64_t at = 0; params.second && at < params.stride * params.groups; at += kBlock)
    ordered([&](int64_t to, int64_t n) {
      const float x = second_of(at + n) * second_scale, y = x < -32766 ? -32766 : x > 32766 ? 32766 : x;
      params.second[at + to] = static_cast<int16_t>(static_cast<int32_t>(y + (y < 0 ? -0.5f : 0.5f)));
    });
  return largest;
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
