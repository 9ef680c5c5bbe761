// The walk of pairs of SacEdges in one kernel, compiled once per CPU level (simd.h): the equations of
// walk_level.cpp, for one chain per item and group whose predictions are a source and a destination in turn.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/walk/walk.h"
#include "kernels/cpu/walk/walk_lstm.h"
#include "kernels/philox.h"
#include "kernels/walk_lanes.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

// Scores of all nodes of one side and their softmax.
template <typename T>
class Nodes {
  using V = Vec<T>;
  static constexpr int W = V::kWidth;

 public:
  Nodes(const T* transposed, int64_t count, int64_t width)
      : transposed_(transposed),
        padded_(padded_keys(count)),
        width_(width),
        scores_(static_cast<size_t>(padded_)),
        ds_(scores_.size()) {}

  int64_t padded() const { return padded_; }
  T& score(int64_t j) { return scores_[static_cast<size_t>(j)]; }
  T* scores() { return scores_.data(); }
  T* grads() { return ds_.data(); }

  void compute(const T* hidden) {
    for (int64_t j = 0; j < padded_; j += W) {
      V sum = V::zero();
      for (int64_t p = 0; p < width_; ++p)
        sum = fma(V::broadcast(hidden[p]), V::load(transposed_ + p * padded_ + j), sum);
      sum.store(scores() + j);
    }
  }

  struct Prediction {
    int64_t index;
    T log_prob, entropy, normaliser;
  };
  Prediction predict(WalkChoice choice, double uniform) {
    const T top = *std::max_element(scores_.begin(), scores_.end());
    double total = 0, weighted = 0;
    for (int64_t j = 0; j < padded_; j += W) {
      const V s = V::load(scores() + j), share = exp(s - V::broadcast(top));
      share.store(grads() + j);  // kept for the draw
      total += static_cast<double>(sum(share));
      weighted += static_cast<double>(sum(share * s));
    }
    int64_t index = std::max_element(scores_.begin(), scores_.end()) - scores_.begin();
    if (choice == WalkChoice::kSample) {
      double running = 0;
      for (int64_t j = 0; j < padded_; ++j) {
        const auto share = static_cast<double>(ds_[static_cast<size_t>(j)]);
        if (share == 0) continue;
        index = j;  // rounding may leave the sum just below the target: then the last candidate
        running += share;
        if (running > uniform * total) break;
      }
    }
    const T normaliser = top + static_cast<T>(std::log(total));
    return {index, score(index) - normaliser, normaliser - static_cast<T>(weighted / total), normaliser};
  }

  // ds from the scores; dh += sum_j ds_j w_j; node_grads [P, N'] += ds_j h.
  void backward(int64_t index, T dlogp, T dentropy, T normaliser, T entropy, const T* hidden, T* dh,
                T* node_grads) {
    for (int64_t j = 0; j < padded_; j += W) {
      const V log_p = V::load(scores() + j) - V::broadcast(normaliser);
      (V::zero() -
       exp(log_p) * fma(V::broadcast(dentropy), log_p + V::broadcast(entropy), V::broadcast(dlogp)))
          .store(grads() + j);
    }
    ds_[static_cast<size_t>(index)] += dlogp;
    for (int64_t p = 0; p < width_; ++p) {
      V sum_p = V::zero();
      const V h = V::broadcast(hidden[p]);
      T* to = node_grads + p * padded_;
      for (int64_t j = 0; j < padded_; j += W) {
        const V ds = V::load(grads() + j);
        sum_p = fma(ds, V::load(transposed_ + p * padded_ + j), sum_p);
        fma(ds, h, V::load(to + j)).store(to + j);
      }
      dh[p] += sum(sum_p);
    }
  }

 private:
  const T* transposed_;
  int64_t padded_, width_;
  std::vector<T> scores_, ds_;
};

// Which pairs are left, as edges are made and, in the backward pass, unmade.
template <typename T>
class PairsLeft {
 public:
  PairsLeft(const PairsWalkParams<T>& params, int64_t item)
      : p_(params), item_(item), made_(static_cast<size_t>(params.queries)), left_(made_.size()) {
    for (int64_t i = 0; i < p_.queries; ++i)
      for (int64_t j = first(i); j < last(i); ++j) left_[static_cast<size_t>(i)] += allowed(i, j);
    for (const int64_t count : left_) total_ += count;
  }
  int64_t total() const { return total_; }
  int64_t first(int64_t i) const { return std::max<int64_t>(p_.first[i], 0); }
  int64_t last(int64_t i) const { return std::min(p_.last[i], p_.keys); }
  bool allowed(int64_t i, int64_t j) const {
    return (!p_.query_mask || p_.query_mask[item_ * p_.queries + i]) &&
           (!p_.key_mask || p_.key_mask[item_ * p_.keys + j]) && !p_.excludes(i, j);
  }
  void make(int64_t i, int64_t j) {
    if (p_.duplicates) return;
    made_[static_cast<size_t>(i)].push_back(j);
    --left_[static_cast<size_t>(i)];
  }
  void unmake(int64_t i) {
    if (p_.duplicates) return;
    made_[static_cast<size_t>(i)].pop_back();
    ++left_[static_cast<size_t>(i)];
  }
  void mask_sources(Nodes<T>& nodes) const {
    for (int64_t i = 0; i < p_.queries; ++i)
      if (left_[static_cast<size_t>(i)] == 0) nodes.score(i) = kForbidden<T>;
    for (int64_t i = p_.queries; i < nodes.padded(); ++i) nodes.score(i) = kForbidden<T>;
  }
  void mask_destinations(int64_t i, const T* distance, Nodes<T>& nodes) const {
    for (int64_t j = 0; j < nodes.padded(); ++j) {
      if (j < first(i) || j >= last(i) || !allowed(i, j))
        nodes.score(j) = kForbidden<T>;
      else if (distance)
        nodes.score(j) += distance[j - i + p_.queries - 1];
    }
    for (const int64_t j : made_[static_cast<size_t>(i)]) nodes.score(j) = kForbidden<T>;
  }

 private:
  const PairsWalkParams<T>& p_;
  int64_t item_, total_ = 0;
  std::vector<std::vector<int64_t>> made_;
  std::vector<int64_t> left_;
};

template <typename T>
const T* distance_of(const PairsWalkParams<T>& p, int64_t group) {
  return p.distance ? p.distance + group * (p.queries + p.keys - 1) : nullptr;
}
template <typename T>
LstmWeights<T> weights_of(const PairsWalkParams<T>& p, int64_t group) {
  const int64_t wide = 4 * p.width;
  return {p.weight_ih + group * p.width * wide, p.weight_hh + group * p.width * wide, p.bias + group * wide,
          p.width};
}

template <typename T>
void forward(const PairsWalkParams<T>& p, const T* transposed_queries, const T* transposed_keys,
             int64_t begin, int64_t end) {
  const int64_t width = p.width;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t item = unit / p.groups, group = unit % p.groups, limit = p.limits[item];
    std::fill_n(p.taken + unit * p.steps, p.steps, false);
    std::fill_n(p.chosen + unit * p.steps, p.steps, false);
    PairsLeft<T> left(p, item);
    if (limit == 0 || left.total() == 0) continue;
    if (p.duplicates ? left.total() == 1 : left.total() <= limit) {
      int64_t e = unit * p.steps;
      for (int64_t i = 0; i < p.queries; ++i)
        for (int64_t j = left.first(i); j < left.last(i); ++j) {
          if (!left.allowed(i, j)) continue;
          p.source[e] = i;
          p.destination[e] = j;
          p.taken[e++] = true;
        }
      continue;
    }
    Nodes<T> sources(transposed_queries + unit * width * padded_keys(p.queries), p.queries, width);
    Nodes<T> destinations(transposed_keys + unit * width * padded_keys(p.keys), p.keys, width);
    const LstmWeights<T> weights = weights_of(p, group);
    const auto key = p.choice == WalkChoice::kSample ? std::bit_cast<uint64_t>(p.stream_keys[unit]) : 0;
    std::vector<T> hidden(static_cast<size_t>(width)), cell = hidden, next_hidden = hidden,
                                                       next_cell = hidden, gates(4 * hidden.size());
    const T* input = p.start + group * width;
    const auto advance = [&] {
      lstm_step<T>(weights, input, hidden.data(), cell.data(),
                   {gates.data(), next_cell.data(), next_hidden.data()});
      hidden.swap(next_hidden);
      cell.swap(next_cell);
    };
    const auto uniform = [&](int64_t prediction) {
      const Words words = philox({0, static_cast<uint32_t>(prediction), 0, kWalkLane}, key);
      return open_uniform(words[0], words[1]);
    };
    for (int64_t t = 0; t < limit; ++t) {
      const int64_t e = unit * p.steps + t;
      advance();
      sources.compute(hidden.data());
      left.mask_sources(sources);
      const auto source = sources.predict(p.choice, uniform(2 * t));
      input = p.query_nodes + (unit * p.queries + source.index) * width;
      advance();
      destinations.compute(hidden.data());
      left.mask_destinations(source.index, distance_of(p, group), destinations);
      const auto destination = destinations.predict(p.choice, uniform(2 * t + 1));
      input = p.key_nodes + (unit * p.keys + destination.index) * width;
      left.make(source.index, destination.index);
      p.source[e] = source.index;
      p.destination[e] = destination.index;
      p.taken[e] = p.chosen[e] = true;
      p.log_prob[e] = source.log_prob + destination.log_prob;
      p.entropy[e] = source.entropy + destination.entropy;
      p.normaliser[2 * e] = source.normaliser;
      p.normaliser[2 * e + 1] = destination.normaliser;
      p.entropies[2 * e] = source.entropy;
      p.entropies[2 * e + 1] = destination.entropy;
    }
  }
}

template <typename T>
void backward(const PairsWalkGradParams<T>& g, const T* transposed_queries, const T* transposed_keys,
              int64_t begin, int64_t end) {
  const PairsWalkParams<T>& p = g.walk;
  const int64_t width = p.width, wide = 4 * width, distances = p.queries + p.keys - 1;
  const int64_t padded_queries = padded_keys(p.queries), padded = padded_keys(p.keys);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t group = unit % p.groups, first = unit * p.steps;
    int64_t edges = 0;
    while (edges < p.steps && p.chosen[first + edges]) ++edges;
    if (edges == 0) continue;
    // The states of all predictions, walked again.
    LstmTrace<T> trace(2 * edges, width);
    trace.restart();
    const LstmWeights<T> weights = weights_of(p, group);
    PairsLeft<T> left(p, unit / p.groups);
    const T* input = p.start + group * width;
    for (int64_t t = 0; t < edges; ++t) {
      const int64_t i = p.source[first + t], j = p.destination[first + t];
      trace.step(2 * t, weights, input);
      input = p.query_nodes + (unit * p.queries + i) * width;
      trace.step(2 * t + 1, weights, input);
      input = p.key_nodes + (unit * p.keys + j) * width;
      left.make(i, j);
    }
    Nodes<T> sources(transposed_queries + unit * width * padded_queries, p.queries, width);
    Nodes<T> destinations(transposed_keys + unit * width * padded, p.keys, width);
    T *query_grads = g.grad_query_nodes + unit * width * padded_queries,
      *key_grads = g.grad_key_nodes + unit * width * padded;
    const LstmGrads<T> out{g.grad_weight_ih + unit * width * wide, g.grad_weight_hh + unit * width * wide,
                           g.grad_bias + unit * wide};
    std::vector<T> dh(static_cast<size_t>(width), T{0}), dc = dh, dx = dh;
    const auto add_column = [&](T* to, int64_t stride, int64_t column) {
      for (int64_t q = 0; q < width; ++q) to[q * stride + column] += dx[static_cast<size_t>(q)];
    };
    for (int64_t t = edges - 1; t >= 0; --t) {
      const int64_t e = first + t, i = p.source[e], j = p.destination[e];
      left.unmake(i);
      destinations.compute(trace.hidden(2 * t + 1));
      left.mask_destinations(i, distance_of(p, group), destinations);
      destinations.backward(j, g.grad_log_prob[e], g.grad_entropy[e], p.normaliser[2 * e + 1],
                            p.entropies[2 * e + 1], trace.hidden(2 * t + 1), dh.data(), key_grads);
      if (g.grad_distance) {
        T* to = g.grad_distance + unit * distances + p.queries - 1 - i;
        for (int64_t k = left.first(i); k < left.last(i); ++k) to[k] += destinations.grads()[k];
      }
      trace.backward(2 * t + 1, weights, dh.data(), dc.data(), dx.data(), out);
      add_column(query_grads, padded_queries, i);
      sources.compute(trace.hidden(2 * t));
      left.mask_sources(sources);
      sources.backward(i, g.grad_log_prob[e], g.grad_entropy[e], p.normaliser[2 * e], p.entropies[2 * e],
                       trace.hidden(2 * t), dh.data(), query_grads);
      trace.backward(2 * t, weights, dh.data(), dc.data(), dx.data(), out);
      if (t > 0) {
        add_column(key_grads, padded, p.destination[e - 1]);
      } else {
        for (int64_t q = 0; q < width; ++q) g.grad_start[unit * width + q] += dx[static_cast<size_t>(q)];
      }
    }
  }
}

}  // namespace

template <typename T>
PairsWalkKernels<T> pairs_walk_kernels() {
  return {forward<T>, backward<T>};
}
template PairsWalkKernels<float> pairs_walk_kernels<float>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template PairsWalkKernels<double> pairs_walk_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
