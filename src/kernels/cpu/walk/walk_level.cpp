// The rooted walk of SacEdges in one pass per block of rows, compiled once per CPU level (simd.h).
//
//   h, c = LSTM(w of the node chosen last);  s_j = h . w_j + distance[j - i];  p = softmax over the
//   candidates left log p(chosen) = s_chosen - l,  H = l - sum_j p_j s_j,  l = log sum_j exp s_j
//
// Eight rows step side by side, so that a key's numbers are read once for all of them; keys lie transposed,
// one key a lane. Nothing but the chosen keys, their log-probabilities, entropies, normalisers and, where
// somebody asks, states leaves the kernel. The backward pass walks again along the chosen keys and forms,
// step by step from the last,
//
//   ds_j = dlogp (1[j chosen] - p_j) - dH p_j (log p_j + H),   dh = sum_j ds_j w_j,   dw_j += ds_j h
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

constexpr int R = static_cast<int>(kWalkRows);
// One block of rows of one item and group: candidates, scores and shares of a step.
template <typename T>
class Block {
  using V = Vec<T>;
  static constexpr int W = V::kWidth;

 public:
  Block(const RootedWalkParams<T>& params, const T* transposed_keys)
      : p_(params),
        all_keys_(transposed_keys),
        padded_(padded_keys(params.keys)),
        scores_(static_cast<size_t>(R * padded_)),
        mask_(static_cast<size_t>(padded_)) {}

  void open(int64_t unit, int64_t first_row) {  // unit = item * G + group
    if (unit / p_.groups != item_) open_item(unit / p_.groups);
    group_ = unit % p_.groups;
    first_row_ = first_row;
    rows_ = static_cast<int>(std::min<int64_t>(R, p_.queries - first_row));
    keys_ = all_keys_ + unit * p_.width * padded_;
    begin_ = padded_;
    end_ = 0;
    for (int r = 0; r < rows_; ++r) {
      begin_ = std::min(begin_, first(r));
      end_ = std::max(end_, last(r));
    }
    begin_ = begin_ / W * W;
    end_ = std::min((end_ + W - 1) / W * W, padded_);
  }

  int rows() const { return rows_; }
  int64_t row(int r) const { return first_row_ + r; }
  int64_t first(int r) const { return std::max<int64_t>(p_.first[row(r)], 0); }
  int64_t last(int r) const { return std::min(p_.last[row(r)], p_.keys); }
  int64_t limit(int r) const { return p_.limits[item_ * p_.queries + row(r)]; }
  // Of [B, G, L, T]: where the predictions of row r begin.
  int64_t place(int r) const { return ((item_ * p_.groups + group_) * p_.queries + row(r)) * p_.steps; }
  T* scores(int r) { return scores_.data() + r * padded_; }
  const T* keys() const { return keys_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t padded() const { return padded_; }

  bool is_candidate(int r, int64_t j) const {
    return j >= first(r) && j < last(r) && mask_[static_cast<size_t>(j)] == 0 && !p_.excludes(row(r), j);
  }
  int64_t candidates(int r) const {
    const auto open = [&](int64_t from, int64_t to) {
      int64_t count = 0;
      for (int64_t j = from; j < to; ++j) count += mask_[static_cast<size_t>(j)] == 0;
      return count;
    };
    const int64_t own = p_.excluded[row(r)], lo = first(r), hi = last(r);
    return open(lo, hi) - (own < 0 ? 0 : open(std::max(own - p_.gap, lo), std::min(own + p_.gap + 1, hi)));
  }

  // scores(r)[j] = h_r . w_j for all rows, hidden [R, P].
  void score(const T* hidden) {
    for (int64_t j = begin_; j < end_; j += W) {
      V sums[R];
      for (V& sum : sums) sum = V::zero();
      for (int64_t p = 0; p < p_.width; ++p) {
        const V key = V::load(keys_ + p * padded_ + j);
        for (int r = 0; r < R; ++r) sums[r] = fma(V::broadcast(hidden[r * p_.width + p]), key, sums[r]);
      }
      for (int r = 0; r < R; ++r) sums[r].store(scores(r) + j);
    }
  }

  // Adds distance and masks; keys that row r chose at steps before `step` are gone.
  void mask(int r, int64_t step) {
    T* s = scores(r);
    const int64_t lo = first(r), hi = last(r);
    for (int64_t j = begin_; j < lo; ++j) s[j] = kForbidden<T>;
    for (int64_t j = std::max(hi, begin_); j < end_; ++j) s[j] = kForbidden<T>;
    const T* add =
        p_.distance ? p_.distance + group_ * (p_.queries + p_.keys - 1) + p_.queries - 1 - row(r) : nullptr;
    if (add) {
      for (int64_t j = lo; j < hi; ++j) s[j] += add[j] + mask_[static_cast<size_t>(j)];
    } else {
      for (int64_t j = lo; j < hi; ++j) s[j] += mask_[static_cast<size_t>(j)];
    }
    const int64_t own = p_.excluded[row(r)];
    if (own >= 0)
      for (int64_t j = std::max(own - p_.gap, begin_); j < std::min(own + p_.gap + 1, end_); ++j)
        s[j] = kForbidden<T>;
    if (p_.duplicates) return;
    for (int64_t t = 0; t < step; ++t) s[p_.destination[place(r) + t]] = kForbidden<T>;
  }

  struct Softmax {
    T top;
    double total;     // sum of exp(s - top)
    double weighted;  // sum of exp(s - top) s
  };
  // Sums in lanes over runs of kRun keys, runs in double.
  Softmax softmax(int r, std::vector<double>& runs) {
    const T* s = scores(r);
    V most = V::broadcast(kForbidden<T>);
    for (int64_t j = begin_; j < end_; j += W) most = max(most, V::load(s + j));
    const T top = largest(most);
    runs.clear();
    double total = 0, weighted = 0;
    for (int64_t from = begin_; from < end_; from += kRun) {
      V shares = V::zero(), products = V::zero();
      for (int64_t j = from; j < std::min(from + kRun, end_); j += W) {
        const V score = V::load(s + j), share = exp(score - V::broadcast(top));
        shares = shares + share;
        products = fma(share, score, products);
      }
      total += static_cast<double>(sum(shares));
      weighted += static_cast<double>(sum(products));
      runs.push_back(total);
    }
    return {top, total, weighted};
  }
  // The first key whose running sum of shares passes u * total.
  int64_t draw(int r, const Softmax& softmax, const std::vector<double>& runs, double u) {
    const T* s = scores(r);
    const double target = u * softmax.total;
    const auto run = std::upper_bound(runs.begin(), runs.end(), target) - runs.begin();
    if (run == static_cast<std::ptrdiff_t>(runs.size())) return greedy(r);
    double sum = run == 0 ? 0 : runs[static_cast<size_t>(run) - 1];
    int64_t passed = -1;
    for (int64_t j = begin_ + run * kRun; j < std::min(begin_ + (run + 1) * kRun, end_); ++j) {
      if (s[j] <= kForbidden<T> / 2) continue;
      passed = j;
      sum += static_cast<double>(std::exp(s[j] - softmax.top));
      if (sum > target) return j;
    }
    // Rounding left the run's end just below the target: its last candidate.
    return passed >= 0 ? passed : greedy(r);
  }
  int64_t greedy(int r) {
    const T* s = scores(r);
    return std::max_element(s + begin_, s + end_) - s;
  }

 private:
  void open_item(int64_t item) {
    item_ = item;
    for (int64_t j = 0; j < padded_; ++j) {
      const bool open = j < p_.keys && (!p_.key_mask || p_.key_mask[item * p_.keys + j]);
      mask_[static_cast<size_t>(j)] = open ? T{0} : kForbidden<T>;
    }
  }

  static constexpr int64_t kRun = kWalkPadding;

  const RootedWalkParams<T>& p_;
  const T* all_keys_;
  int64_t padded_;
  std::vector<T> scores_, mask_;
  int64_t item_ = -1, group_ = 0, first_row_ = 0, begin_ = 0, end_ = 0;
  int rows_ = 0;
  const T* keys_ = nullptr;
};

template <typename T>
LstmWeights<T> weights_of(const RootedWalkParams<T>& p, int64_t group) {
  const int64_t wide = 4 * p.width;
  return {p.weight_ih + group * p.width * wide, p.weight_hh + group * p.width * wide, p.bias + group * wide,
          p.width};
}

// A row that takes all its candidates.
template <typename T>
void take_all(const RootedWalkParams<T>& p, const Block<T>& block, int r) {
  int64_t t = 0;
  for (int64_t j = block.first(r); j < block.last(r); ++j) {
    if (!block.is_candidate(r, j)) continue;
    p.destination[block.place(r) + t] = j;
    p.taken[block.place(r) + t++] = true;
  }
}

template <typename T>
void forward(const RootedWalkParams<T>& p, const T* transposed_keys, int64_t begin, int64_t end) {
  const int64_t blocks = walk_blocks(p.queries), width = p.width;
  Block<T> block(p, transposed_keys);
  const auto size = static_cast<size_t>(R * width);
  std::vector<T> hidden(size), cell(size), input(size), next_hidden(size), next_cell(size), gates(4 * size);
  std::vector<double> runs;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t unit = n / blocks, group = unit % p.groups;
    block.open(unit, n % blocks * R);
    const LstmWeights<T> weights = weights_of(p, group);
    bool choosing[R] = {};
    int64_t longest = 0;
    for (int r = 0; r < block.rows(); ++r) {
      for (int64_t t = 0; t < p.steps; ++t)
        p.taken[block.place(r) + t] = p.chosen[block.place(r) + t] = false;
      const int64_t limit = block.limit(r), count = limit > 0 ? block.candidates(r) : 0;
      if (count == 0) continue;
      if (count <= (p.duplicates ? 1 : limit)) {
        take_all(p, block, r);
      } else {
        choosing[r] = true;
        longest = std::max(longest, limit);
      }
    }
    std::fill(hidden.begin(), hidden.end(), T{0});
    std::fill(cell.begin(), cell.end(), T{0});
    std::fill(input.begin(), input.end(), T{0});
    for (int r = 0; r < block.rows(); ++r)
      std::copy_n(p.query_nodes + (unit * p.queries + block.row(r)) * width, width, input.data() + r * width);
    for (int64_t t = 0; t < longest; ++t) {
      for (int r = 0; r < block.rows(); ++r) {
        const int64_t at = r * width;
        lstm_step<T>(weights, input.data() + at, hidden.data() + at, cell.data() + at,
                     {gates.data() + 4 * at, next_cell.data() + at, next_hidden.data() + at});
      }
      hidden.swap(next_hidden);
      cell.swap(next_cell);
      block.score(hidden.data());
      for (int r = 0; r < block.rows(); ++r) {
        if (!choosing[r] || t >= block.limit(r)) continue;
        const int64_t at = block.place(r) + t;
        block.mask(r, t);
        const auto softmax = block.softmax(r, runs);
        int64_t j = 0;
        if (p.choice == WalkChoice::kGreedy) {
          j = block.greedy(r);
        } else {
          const Words words =
              philox({static_cast<uint32_t>(block.row(r)), static_cast<uint32_t>(t), 0, kWalkLane},
                     std::bit_cast<uint64_t>(p.stream_keys[unit]));
          j = block.draw(r, softmax, runs, open_uniform(words[0], words[1]));
        }
        const T normaliser = softmax.top + static_cast<T>(std::log(softmax.total));
        p.destination[at] = j;
        p.taken[at] = p.chosen[at] = true;
        p.normaliser[at] = normaliser;
        p.log_prob[at] = block.scores(r)[j] - normaliser;
        p.entropy[at] = normaliser - static_cast<T>(softmax.weighted / softmax.total);
        if (p.states) std::copy_n(hidden.data() + r * width, width, p.states + at * width);
        std::copy_n(p.key_nodes + (unit * p.keys + j) * width, width, input.data() + r * width);
      }
    }
  }
}

// ---- backward ----

// The gradients of one chunk.
template <typename T>
struct ChunkGrads {
  T *keys, *distance;
  LstmGrads<T> lstm;
};

template <typename T>
class BackwardBlock {
  using V = Vec<T>;
  static constexpr int W = V::kWidth;

 public:
  BackwardBlock(const RootedWalkGradParams<T>& params, const T* transposed_keys)
      : g_(params),
        p_(params.walk),
        block_(params.walk, transposed_keys),
        width_(p_.width),
        ds_(static_cast<size_t>(R * block_.padded())),
        traces_(R, LstmTrace<T>(p_.steps, p_.width)) {}

  void run(int64_t unit, int64_t first_row, const ChunkGrads<T>& out) {
    block_.open(unit, first_row);
    unit_ = unit;
    weights_ = weights_of(p_, unit % p_.groups);
    const int64_t steps = walk_again();
    std::vector<T> dh(static_cast<size_t>(R * width_), T{0}), dc = dh, dx = dh;
    for (int64_t t = steps - 1; t >= 0; --t) {
      if (!score_grads(t, out)) continue;
      key_grads(t, out, dh.data());
      for (int r = 0; r < block_.rows(); ++r) {
        if (!acts(r, t)) continue;
        const int64_t at = r * width_;
        if (g_.grad_states) {
          const T* const grad = g_.grad_states + (block_.place(r) + t) * width_;
          for (int64_t p = 0; p < width_; ++p) dh[static_cast<size_t>(at + p)] += grad[p];
        }
        trace(r).backward(t, weights_, dh.data() + at, dc.data() + at, dx.data() + at, out.lstm);
        // The input was the node chosen before, or the query itself.
        if (t == 0) {
          std::copy_n(dx.data() + at, width_,
                      g_.grad_query_nodes + (unit * p_.queries + block_.row(r)) * width_);
        } else {
          const int64_t j = p_.destination[block_.place(r) + t - 1];
          for (int64_t p = 0; p < width_; ++p)
            out.keys[p * block_.padded() + j] += dx[static_cast<size_t>(at + p)];
        }
      }
    }
  }

 private:
  bool acts(int r, int64_t t) const { return p_.chosen[block_.place(r) + t]; }
  LstmTrace<T>& trace(int r) { return traces_[static_cast<size_t>(r)]; }

  int64_t walk_again() {
    int64_t steps = 0;
    for (int r = 0; r < block_.rows(); ++r) {
      trace(r).restart();
      for (int64_t t = 0; t < p_.steps && acts(r, t); ++t) {
        const T* node =
            t == 0 ? p_.query_nodes + (unit_ * p_.queries + block_.row(r)) * width_
                   : p_.key_nodes + (unit_ * p_.keys + p_.destination[block_.place(r) + t - 1]) * width_;
        trace(r).step(t, weights_, node);
        steps = std::max(steps, t + 1);
      }
    }
    return steps;
  }

  // ds of every row; rows that do not act get 0. False when none acts.
  bool score_grads(int64_t t, const ChunkGrads<T>& out) {
    std::vector<T> all(static_cast<size_t>(R * width_), T{0});
    bool any = false;
    for (int r = 0; r < block_.rows(); ++r) {
      if (!acts(r, t)) continue;
      any = true;
      std::copy_n(trace(r).hidden(t), width_, all.data() + r * width_);
    }
    if (!any) return false;
    block_.score(all.data());
    const int64_t begin = block_.begin(), end = block_.end();
    for (int r = 0; r < R; ++r) {
      T* ds = ds_.data() + r * block_.padded();
      if (r >= block_.rows() || !acts(r, t)) {
        std::fill(ds + begin, ds + end, T{0});
        continue;
      }
      block_.mask(r, t);
      const int64_t at = block_.place(r) + t;
      const T* s = block_.scores(r);
      const V dlogp = V::broadcast(g_.grad_log_prob[at]), dentropy = V::broadcast(g_.grad_entropy[at]),
              normaliser = V::broadcast(p_.normaliser[at]), entropy = V::broadcast(p_.entropy[at]);
      for (int64_t j = begin; j < end; j += W) {
        const V log_p = V::load(s + j) - normaliser, share = exp(log_p);
        (V::zero() - share * fma(dentropy, log_p + entropy, dlogp)).store(ds + j);
      }
      ds[p_.destination[at]] += g_.grad_log_prob[at];
      if (out.distance) {
        T* to = out.distance + p_.queries - 1 - block_.row(r);
        for (int64_t j = block_.first(r); j < block_.last(r); ++j) to[j] += ds[j];
      }
    }
    return true;
  }

  // dh += sum_j ds_j w_j;  dw_j += sum over rows of ds_j h.
  void key_grads(int64_t t, const ChunkGrads<T>& out, T* dh) {
    constexpr int64_t kTile = 4 * kWalkPadding;
    const int64_t padded = block_.padded();
    for (int64_t from = block_.begin(); from < block_.end(); from += kTile) {
      const int64_t to = std::min(from + kTile, block_.end());
      for (int64_t p = 0; p < width_; ++p) {
        V sums[R], h[R];
        for (int r = 0; r < R; ++r) {
          sums[r] = V::zero();
          h[r] = V::broadcast(r < block_.rows() && acts(r, t) ? trace(r).hidden(t)[p] : T{0});
        }
        const T* key = block_.keys() + p * padded;
        T* key_grad = out.keys + p * padded;
        for (int64_t j = from; j < to; j += W) {
          const V w = V::load(key + j);
          V grad = V::load(key_grad + j);
          for (int r = 0; r < R; ++r) {
            const V ds = V::load(ds_.data() + r * padded + j);
            sums[r] = fma(ds, w, sums[r]);
            grad = fma(ds, h[r], grad);
          }
          grad.store(key_grad + j);
        }
        for (int r = 0; r < R; ++r) dh[r * width_ + p] += sum(sums[r]);
      }
    }
  }

  const RootedWalkGradParams<T>& g_;
  const RootedWalkParams<T>& p_;
  Block<T> block_;
  int64_t width_, unit_ = 0;
  LstmWeights<T> weights_{};
  std::vector<T> ds_;
  std::vector<LstmTrace<T>> traces_;  // one per row
};

template <typename T>
void backward(const RootedWalkGradParams<T>& g, const T* transposed_keys, int64_t begin, int64_t end) {
  const RootedWalkParams<T>& p = g.walk;
  const int64_t blocks = walk_blocks(p.queries), width = p.width, wide = 4 * width,
                distances = p.queries + p.keys - 1;
  BackwardBlock<T> block(g, transposed_keys);
  for (int64_t n = begin; n < end; ++n) {
    const int64_t unit = n / g.chunks, chunk = n % g.chunks;
    const ChunkGrads<T> out{
        g.grad_key_nodes + n * width * padded_keys(p.keys),
        g.grad_distance ? g.grad_distance + n * distances : nullptr,
        {g.grad_weight_ih + n * width * wide, g.grad_weight_hh + n * width * wide, g.grad_bias + n * wide}};
    for (int64_t b = blocks * chunk / g.chunks; b < blocks * (chunk + 1) / g.chunks; ++b)
      block.run(unit, b * R, out);
  }
}

}  // namespace

template <typename T>
WalkKernels<T> walk_kernels() {
  return {forward<T>, backward<T>};
}
template WalkKernels<float> walk_kernels<float>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template WalkKernels<double> walk_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
