// The rooted walk of SacEdges in blocks, compiled once per CPU level (simd.h).
//
//   h, c = LSTM(node chosen last)
//   p(b) = softmax_b( h . mean_b + block bias ),   p(j | b) = softmax_{j in b}( h . w_j + distance bias )
//   log p = log p(b) + log p(j | b),   H = H(p(b)) + H(p(. | chosen b))
//
// mean_b is over the row's candidates in b: most blocks lie wholly inside of what a row may choose and share
// one mean; a row has at most three others (the ends of its range, the key it excludes) with means of its
// own. Eight rows step side by side through the LSTM and the blocks' scores; of the keys each touches the
// block it chose. The backward pass walks again along the chosen keys. The gradient of H counts that the
// block was drawn: d log p(b) gets dH H(p(. | b)) beside dlogp, so that on average it is the gradient of the
// entropy of both decisions together.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/walk/block_walk_kernels.h"
#include "kernels/cpu/walk/walk_lstm.h"
#include "kernels/cpu/walk/walk_rows.h"
#include "kernels/philox.h"
#include "kernels/walk_lanes.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

constexpr int R = static_cast<int>(kWalkRows);
constexpr int kMostPartial = 3;

// Eight rows of one item and group: what they may choose, and the scores of a step.
template <typename T>
class BlockRows {
 public:
  explicit BlockRows(const BlockWalkParams<T>& params)
      : p_(params),
        padded_blocks_(padded_lanes(params.blocks)),
        padded_block_(padded_lanes(params.block)),
        closed_(static_cast<size_t>(params.blocks * padded_block_)),
        base_(static_cast<size_t>(R * padded_blocks_)),
        scores_(base_.size()),
        key_scores_(static_cast<size_t>(R * padded_block_)),
        partial_means_(static_cast<size_t>(R * kMostPartial * params.width)),
        counts_(static_cast<size_t>(params.blocks)),
        before_(counts_.size() + 1),
        left_(static_cast<size_t>(R * params.blocks)) {}

  struct Partial {
    int64_t block;
    T share;  // 1 / candidates
  };

  void open(int64_t unit, int64_t first_row) {  // unit = item * G + group
    if (unit / p_.groups != item_) open_item(unit / p_.groups);
    unit_ = unit;
    group_ = unit % p_.groups;
    first_row_ = first_row;
    rows_ = static_cast<int>(std::min<int64_t>(R, p_.queries - first_row));
    std::fill(base_.begin(), base_.end(), kForbidden<T>);
    for (int r = 0; r < R; ++r) {
      partial_count_[r] = 0;
      candidates_[r] = 0;
      if (r < rows_ && limit(r) > 0) open_row(r);
    }
  }

  int rows() const { return rows_; }
  int64_t unit() const { return unit_; }
  int64_t row(int r) const { return first_row_ + r; }
  int64_t first(int r) const { return std::max<int64_t>(p_.first[row(r)], 0); }
  int64_t last(int r) const { return std::min(p_.last[row(r)], p_.keys); }
  int64_t limit(int r) const { return p_.limits[item_ * p_.queries + row(r)]; }
  int64_t candidates(int r) const { return candidates_[r]; }
  // Of [B, G, L, T]: where the predictions of row r begin.
  int64_t place(int r) const { return (unit_ * p_.queries + row(r)) * p_.steps; }
  int64_t padded_blocks() const { return padded_blocks_; }
  int64_t padded_block() const { return padded_block_; }
  const T* scores(int r) const { return scores_.data() + r * padded_blocks_; }
  const T* key_scores(int r) const { return key_scores_.data() + r * padded_block_; }
  int partials(int r) const { return partial_count_[r]; }
  const Partial& partial(int r, int k) const { return partial_[r][k]; }
  const T* partial_mean(int r, int k) const {
    return partial_means_.data() + (r * kMostPartial + k) * p_.width;
  }
  int64_t begin_of(int64_t block) const { return block * p_.block; }
  int64_t end_of(int64_t block) const { return std::min((block + 1) * p_.block, p_.keys); }
  const T* distance(int r) const {  // at j
    return p_.distance ? p_.distance + group_ * (p_.queries + p_.keys - 1) + p_.queries - 1 - row(r)
                       : nullptr;
  }

  bool is_candidate(int r, int64_t j) const {
    return j >= first(r) && j < last(r) && j != p_.excluded[row(r)] &&
           (!p_.key_mask || p_.key_mask[item_ * p_.keys + j]);
  }

  void score_blocks(const T* hidden) {  // [R, P]
    add_product<R>(base_.data(), hidden, p_.width, p_.width,
                   p_.transposed_means + unit_ * p_.width * padded_blocks_, padded_blocks_, scores_.data());
    for (int r = 0; r < rows_; ++r)
      for (int k = 0; k < partial_count_[r]; ++k) {
        const int64_t at = r * padded_blocks_ + partial_[r][k].block;
        scores_[static_cast<size_t>(at)] =
            base_[static_cast<size_t>(at)] + dot(hidden + r * p_.width, partial_mean(r, k), p_.width);
      }
  }

  // Keys that row r chose at steps before `step` are gone.
  void score_keys(int r, int64_t block, const T* hidden, int64_t step) {
    T* s = key_scores_.data() + r * padded_block_;
    const int64_t begin = begin_of(block), end = end_of(block);
    const T* from = closed_.data() + block * padded_block_;
    if (const T* add = distance(r)) {
      using V = Vec<T>;
      int64_t k = 0;
      for (; k + V::kWidth <= end - begin; k += V::kWidth)
        (V::load(from + k) + V::load(add + begin + k)).store(s + k);
      for (; k < padded_block_; ++k) s[k] = from[k] + (k < end - begin ? add[begin + k] : T{0});
      from = s;
    }
    add_product<1>(from, hidden, p_.width, p_.width,
                   p_.transposed_keys + (unit_ * p_.blocks + block) * p_.width * padded_block_, padded_block_,
                   s);
    for (int64_t j = begin; j < std::min(first(r), end); ++j) s[j - begin] = kForbidden<T>;
    for (int64_t j = std::max(last(r), begin); j < end; ++j) s[j - begin] = kForbidden<T>;
    const int64_t own = p_.excluded[row(r)];
    if (own >= begin && own < end) s[own - begin] = kForbidden<T>;
    if (p_.duplicates) return;
    for (int64_t t = 0; t < step; ++t) {
      const int64_t gone = p_.destination[place(r) + t];
      if (gone >= begin && gone < end) s[gone - begin] = kForbidden<T>;
    }
  }

  // A block whose last candidate is taken closes; in the backward pass it opens again.
  void take(int r, int64_t j) {
    if (p_.duplicates) return;
    const int64_t block = j / p_.block;
    if (--left_[static_cast<size_t>(r * p_.blocks + block)] == 0) base(r, block) = kForbidden<T>;
  }
  void give_back(int r, int64_t j) {
    if (p_.duplicates) return;
    const int64_t block = j / p_.block;
    if (++left_[static_cast<size_t>(r * p_.blocks + block)] == 1) base(r, block) = bias(r, block);
  }

 private:
  T& base(int r, int64_t block) { return base_[static_cast<size_t>(r * padded_blocks_ + block)]; }
  T bias(int r, int64_t block) const {
    return p_.block_distance ? p_.block_distance[group_ * p_.block_distances + p_.block_start[row(r)] + block]
                             : T{0};
  }

  void open_item(int64_t item) {
    item_ = item;
    empty_.clear();
    for (int64_t b = 0; b < p_.blocks; ++b) {
      T* closed = closed_.data() + b * padded_block_;
      std::fill_n(closed, padded_block_, kForbidden<T>);
      int32_t count = 0;
      for (int64_t j = begin_of(b); j < end_of(b); ++j) {
        if (p_.key_mask && !p_.key_mask[item * p_.keys + j]) continue;
        closed[j - begin_of(b)] = 0;
        ++count;
      }
      counts_[static_cast<size_t>(b)] = count;
      before_[static_cast<size_t>(b) + 1] = before_[static_cast<size_t>(b)] + count;
      if (count == 0) empty_.push_back(b);
    }
  }

  void open_row(int r) {
    const int64_t lo = first(r), hi = last(r), own = p_.excluded[row(r)];
    int32_t* left = left_.data() + r * p_.blocks;
    std::fill_n(left, p_.blocks, 0);
    if (lo >= hi) return;
    const int64_t begin = lo / p_.block, end = (hi - 1) / p_.block + 1;
    std::copy(counts_.begin() + begin, counts_.begin() + end, left + begin);
    candidates_[r] = before_[static_cast<size_t>(end)] - before_[static_cast<size_t>(begin)];
    T* base = base_.data() + r * padded_blocks_;
    if (p_.block_distance)
      std::copy_n(p_.block_distance + group_ * p_.block_distances + p_.block_start[row(r)] + begin,
                  end - begin, base + begin);
    else
      std::fill(base + begin, base + end, T{0});
    for (const int64_t b : empty_) base[b] = kForbidden<T>;
    if (lo % p_.block != 0) open_partial(r, lo / p_.block);
    if (hi % p_.block != 0 && hi < p_.keys) open_partial(r, hi / p_.block);
    if (own >= lo && own < hi) open_partial(r, own / p_.block);
  }
  void open_partial(int r, int64_t block) {
    for (int k = 0; k < partial_count_[r]; ++k)
      if (partial_[r][k].block == block) return;
    int32_t& left = left_[static_cast<size_t>(r * p_.blocks + block)];
    candidates_[r] -= left;
    left = 0;
    T* mean = partial_means_.data() + (r * kMostPartial + partial_count_[r]) * p_.width;
    const int64_t begin = std::max(begin_of(block), first(r)), end = std::min(end_of(block), last(r));
    using V = Vec<T>;
    for (int64_t p = 0; p < p_.width; p += V::kWidth) {
      const T* nodes = p_.key_nodes + unit_ * p_.keys * p_.width + p;
      V sum = V::zero();
      for (int64_t j = begin; j < end; ++j)
        if (is_candidate(r, j)) sum = sum + V::load(nodes + j * p_.width);
      sum.store(mean + p);
    }
    for (int64_t j = begin; j < end; ++j) left += is_candidate(r, j);
    candidates_[r] += left;
    if (left == 0) {
      base(r, block) = kForbidden<T>;
      return;
    }
    const T share = T{1} / static_cast<T>(left);
    for (int64_t p = 0; p < p_.width; ++p) mean[p] *= share;
    partial_[r][partial_count_[r]++] = {block, share};
  }

  const BlockWalkParams<T>& p_;
  int64_t padded_blocks_, padded_block_;
  std::vector<T> closed_;         // [N, M']: 0, or forbidden by the mask or the end of the keys
  std::vector<T> base_, scores_;  // [R, N']: bias or forbidden; scores
  std::vector<T> key_scores_;     // [R, M']
  std::vector<T> partial_means_;  // [R, 3, P]
  std::vector<int32_t> counts_;   // [N] keys that the mask allows
  std::vector<int64_t> before_;   // [N + 1] such keys in the blocks before
  std::vector<int64_t> empty_;    // blocks without
  std::vector<int32_t> left_;     // [R, N] candidates that are left
  Partial partial_[R][kMostPartial] = {};
  int partial_count_[R] = {};
  int64_t candidates_[R] = {};
  int64_t item_ = -1, unit_ = 0, group_ = 0, first_row_ = 0;
  int rows_ = 0;
};

// The gates of one LSTM step of eight rows, before their functions; what the inputs give to them is given.
template <typename T>
void gates_of_rows(const BlockWalkParams<T>& p, int64_t group, const T* const* inputs, const T* hidden_before,
                   bool at_start, T* gates) {
  const int64_t wide = 4 * p.width;
  if (at_start)  // the state is 0 before the first step
    for (int r = 0; r < R; ++r) std::copy_n(inputs[r], wide, gates + r * wide);
  else
    add_product_to<R>([&](int r) EDGEWISE_INLINE_LAMBDA { return inputs[r]; }, hidden_before, p.width,
                      p.width, p.weight_hh + group * p.width * wide, wide, gates);
}

// The softmax of one decision of each row, and the choice from it.
template <typename T>
class Choices {
 public:
  Choices(const BlockWalkParams<T>& params, int64_t count)
      : p_(params),
        count_(count),
        runs_a_row_(count / Vec<T>::kWidth),
        shares_(static_cast<size_t>(R * count)),
        runs_(static_cast<size_t>(R * runs_a_row_)) {}

  void prepare(int r, const T* scores) {
    T* const shares = shares_.data() + r * count_;
    double* const runs = runs_.data() + r * runs_a_row_;
    softmax_[r] =
        p_.log_prob ? softmax(scores, count_, shares, runs) : softmax<false>(scores, count_, shares, runs);
  }
  int64_t choose(int r, const T* scores, double uniform) const {
    if (p_.choice == WalkChoice::kGreedy) return likeliest(scores, count_);
    return draw(scores, count_, softmax_[r], shares_.data() + r * count_, runs_.data() + r * runs_a_row_,
                uniform);
  }
  void levels(int r, T* to) const {  // normaliser and entropy
    to[0] = softmax_[r].normaliser();
    to[1] = to[0] - static_cast<T>(softmax_[r].weighted / softmax_[r].total);
  }

 private:
  const BlockWalkParams<T>& p_;
  int64_t count_, runs_a_row_;
  std::vector<T> shares_;
  std::vector<double> runs_;
  Softmax<T> softmax_[R] = {};
};

template <typename T>
void forward(const BlockWalkParams<T>& p, int64_t begin, int64_t end) {
  const int64_t blocks = walk_blocks(p.queries), wide = 4 * p.width;
  BlockRows<T> rows(p);
  const auto size = static_cast<size_t>(R * p.width);
  std::vector<T> hidden(size), cell(size), next_hidden(size), next_cell(size), gates(4 * size);
  Choices<T> block_choices(p, rows.padded_blocks()), key_choices(p, rows.padded_block());
  for (int64_t n = begin; n < end; ++n) {
    const int64_t unit = n / blocks;
    rows.open(unit, n % blocks * R);
    const T* inputs[R];
    bool choosing[R] = {};
    int64_t longest = 0;
    for (int r = 0; r < R; ++r) {
      // Rows beyond the last walk along with the last; what they predict is not looked at.
      const int64_t i = rows.row(std::min(r, rows.rows() - 1));
      inputs[r] = p.query_gates + (unit * p.queries + i) * wide;
      if (r >= rows.rows()) continue;
      std::fill_n(p.taken + rows.place(r), p.steps, false);
      std::fill_n(p.chosen + rows.place(r), p.steps, false);
      const int64_t limit = rows.limit(r), count = rows.candidates(r);
      if (count == 0) continue;
      if (count <= (p.duplicates ? 1 : limit)) {
        int64_t t = rows.place(r);
        for (int64_t j = rows.first(r); j < rows.last(r); ++j) {
          if (!rows.is_candidate(r, j)) continue;
          p.destination[t] = j;
          p.taken[t++] = true;
        }
      } else {
        choosing[r] = true;
        longest = std::max(longest, limit);
      }
    }
    std::fill(cell.begin(), cell.end(), T{0});
    for (int64_t t = 0; t < longest; ++t) {
      gates_of_rows(p, unit % p.groups, inputs, hidden.data(), t == 0, gates.data());
      lstm_state(R, p.width, gates.data(), cell.data(), next_cell.data(), next_hidden.data());
      hidden.swap(next_hidden);
      cell.swap(next_cell);
      rows.score_blocks(hidden.data());
      // Decision by decision over all rows, so that the rows' chains of dependent work overlap.
      int live[R], count = 0;
      for (int r = 0; r < rows.rows(); ++r)
        if (choosing[r] && t < rows.limit(r)) live[count++] = r;
      int64_t block[R], key[R];
      double block_uniform[R] = {}, key_uniform[R] = {};
      for (int k = 0; k < count && p.choice == WalkChoice::kSample; ++k) {
        const Words words =
            philox({static_cast<uint32_t>(rows.row(live[k])), static_cast<uint32_t>(t), 0, kWalkLane},
                   std::bit_cast<uint64_t>(p.stream_keys[unit]));
        key_uniform[k] = open_uniform(words[0], words[1]);
        block_uniform[k] = open_uniform(words[2], words[3]);
      }
      for (int k = 0; k < count; ++k) block_choices.prepare(live[k], rows.scores(live[k]));
      for (int k = 0; k < count; ++k)
        block[k] = block_choices.choose(live[k], rows.scores(live[k]), block_uniform[k]);
      for (int k = 0; k < count; ++k) {
        rows.score_keys(live[k], block[k], hidden.data() + live[k] * p.width, t);
        key_choices.prepare(live[k], rows.key_scores(live[k]));
      }
      for (int k = 0; k < count; ++k)
        key[k] = key_choices.choose(live[k], rows.key_scores(live[k]), key_uniform[k]);
      for (int k = 0; k < count; ++k) {
        const int r = live[k];
        const int64_t at = rows.place(r) + t, j = rows.begin_of(block[k]) + key[k];
        rows.take(r, j);
        p.destination[at] = j;
        p.taken[at] = p.chosen[at] = true;
        if (p.log_prob) {
          T* levels = p.levels + 4 * at;
          block_choices.levels(r, levels);
          key_choices.levels(r, levels + 2);
          p.log_prob[at] = rows.scores(r)[block[k]] - levels[0] + (rows.key_scores(r)[key[k]] - levels[2]);
          p.entropy[at] = levels[1] + levels[3];
        }
        inputs[r] = p.key_gates + (unit * p.keys + j) * wide;
        for (int64_t c = 0; c < wide; c += kWalkLanes) __builtin_prefetch(inputs[r] + c);
      }
    }
  }
}

// ---- backward ----

template <typename T>
struct ChunkGrads {
  T *key_gates, *key_nodes, *means, *weight_hh, *distance, *block_distance;
};

template <typename T>
class BackwardRows {
 public:
  explicit BackwardRows(const BlockWalkGradParams<T>& params)
      : g_(params),
        p_(params.walk),
        rows_(params.walk),
        width_(p_.width),
        wide_(4 * p_.width),
        hidden_(static_cast<size_t>((p_.steps + 1) * R * width_)),
        cell_(hidden_.size()),
        gates_(4 * hidden_.size()),
        ds_(static_cast<size_t>(R * rows_.padded_blocks())),
        dk_(static_cast<size_t>(rows_.padded_block())),
        dh_(static_cast<size_t>(R * width_)),
        dc_(dh_.size()),
        d_(4 * dh_.size()),
        partial_grads_(static_cast<size_t>(R * kMostPartial * width_)) {}

  void run(int64_t unit, int64_t first_row, const ChunkGrads<T>& out) {
    rows_.open(unit, first_row);
    const int64_t steps = walk_again();
    for (std::vector<T>* zero : {&dh_, &dc_, &partial_grads_}) std::fill(zero->begin(), zero->end(), T{0});
    const T* weight = p_.transposed_weight + unit % p_.groups * wide_ * width_;
    for (int64_t t = steps - 1; t >= 0; --t) {
      prediction_step(t, out);
      lstm_gate_grads(R, width_, gates(t), cell(t - 1), cell(t), dh_.data(), dc_.data(), d_.data());
      for (int r = 0; r < rows_.rows(); ++r) {
        if (!acts(r, t)) continue;
        const T* d = d_.data() + r * wide_;
        if (t == 0) {
          std::copy_n(d, wide_, g_.grad_query_gates + (unit * p_.queries + rows_.row(r)) * wide_);
        } else {
          add_scaled<T>(1, d, wide_, out.key_gates + p_.destination[rows_.place(r) + t - 1] * wide_);
        }
      }
      if (t == 0) break;
      add_outer<R>(hidden(t - 1), width_, width_, d_.data(), wide_, out.weight_hh);
      std::fill(dh_.begin(), dh_.end(), T{0});
      add_product<R>(dh_.data(), d_.data(), wide_, wide_, weight, width_, dh_.data());
    }
    spread_partials(out);
  }

 private:
  bool acts(int r, int64_t t) const { return p_.chosen[rows_.place(r) + t]; }
  T* hidden(int64_t t) { return hidden_.data() + (t + 1) * R * width_; }  // t = -1: the start
  T* cell(int64_t t) { return cell_.data() + (t + 1) * R * width_; }
  T* gates(int64_t t) { return gates_.data() + t * R * wide_; }

  // All rows step to the end of the longest walk: what a finished row then does has no gradient.
  int64_t walk_again() {
    int64_t steps = 0;
    for (int r = 0; r < rows_.rows(); ++r)
      for (int64_t t = 0; t < p_.steps && acts(r, t); ++t) steps = std::max(steps, t + 1);
    const int64_t unit = rows_.unit();
    const T* inputs[R];
    for (int r = 0; r < R; ++r)
      inputs[r] = p_.query_gates + (unit * p_.queries + rows_.row(std::min(r, rows_.rows() - 1))) * wide_;
    std::fill_n(cell(-1), R * width_, T{0});
    for (int64_t t = 0; t < steps; ++t) {
      gates_of_rows<T>(p_, unit % p_.groups, inputs, hidden(t - 1), t == 0, gates(t));
      lstm_gates(R, width_, gates(t), cell(t - 1), cell(t), hidden(t));
      for (int r = 0; r < rows_.rows(); ++r) {
        if (!acts(r, t)) continue;
        const int64_t j = p_.destination[rows_.place(r) + t];
        rows_.take(r, j);
        inputs[r] = p_.key_gates + (unit * p_.keys + j) * wide_;
      }
    }
    return steps;
  }

  // dh += what the scores of step t give; gradients of keys, means and distances.
  void prediction_step(int64_t t, const ChunkGrads<T>& out) {
    const int64_t padded = rows_.padded_blocks();
    for (int r = 0; r < rows_.rows(); ++r)
      if (acts(r, t)) rows_.give_back(r, p_.destination[rows_.place(r) + t]);
    rows_.score_blocks(hidden(t));
    std::fill(ds_.begin(), ds_.end(), T{0});
    for (int r = 0; r < rows_.rows(); ++r)
      if (acts(r, t)) row_step(r, t, out);
    // Means that all rows share.
    add_product<R>(dh_.data(), ds_.data(), padded, p_.blocks, p_.means + rows_.unit() * p_.blocks * width_,
                   width_, dh_.data());
    add_outer<R>(ds_.data(), padded, p_.blocks, hidden(t), width_, out.means);
  }

  void row_step(int r, int64_t t, const ChunkGrads<T>& out) {
    const int64_t at = rows_.place(r) + t, j = p_.destination[at], block = j / p_.block;
    const T dlogp = g_.grad_log_prob[at], dentropy = g_.grad_entropy[at];
    const T *levels = p_.levels + 4 * at, *h = hidden(t) + r * width_;
    T *ds = ds_.data() + r * rows_.padded_blocks(), *dh = dh_.data() + r * width_;
    prediction_grads(rows_.scores(r), rows_.padded_blocks(), block, dlogp + dentropy * levels[3], dentropy,
                     levels[0], levels[1], ds);
    if (out.block_distance) {
      T* to = out.block_distance + p_.block_start[rows_.row(r)];
      for (int64_t b = 0; b < p_.blocks; ++b) to[b] += ds[b];
    }
    for (int k = 0; k < rows_.partials(r); ++k) {
      T& own = ds[rows_.partial(r, k).block];
      add_scaled(own, rows_.partial_mean(r, k), width_, dh);
      add_scaled(own, h, width_, partial_grads_.data() + (r * kMostPartial + k) * width_);
      own = 0;
    }
    rows_.score_keys(r, block, h, t);
    const int64_t begin = rows_.begin_of(block), size = rows_.end_of(block) - begin;
    prediction_grads(rows_.key_scores(r), rows_.padded_block(), j - begin, dlogp, dentropy, levels[2],
                     levels[3], dk_.data());
    if (out.distance) {
      T* to = out.distance + p_.queries - 1 - rows_.row(r) + begin;
      for (int64_t k = 0; k < size; ++k) to[k] += dk_[static_cast<size_t>(k)];
    }
    add_product<1>(dh, dk_.data(), size, size, p_.key_nodes + (rows_.unit() * p_.keys + begin) * width_,
                   width_, dh);
    for (int64_t k = 0; k < size; ++k)
      add_scaled(dk_[static_cast<size_t>(k)], h, width_, out.key_nodes + (begin + k) * width_);
  }

  void spread_partials(const ChunkGrads<T>& out) {
    for (int r = 0; r < rows_.rows(); ++r)
      for (int k = 0; k < rows_.partials(r); ++k) {
        const auto& partial = rows_.partial(r, k);
        for (int64_t j = rows_.begin_of(partial.block); j < rows_.end_of(partial.block); ++j)
          if (rows_.is_candidate(r, j))
            add_scaled(partial.share, partial_grads_.data() + (r * kMostPartial + k) * width_, width_,
                       out.key_nodes + j * width_);
      }
  }

  const BlockWalkGradParams<T>& g_;
  const BlockWalkParams<T>& p_;
  BlockRows<T> rows_;
  int64_t width_, wide_;
  std::vector<T> hidden_, cell_;  // [T + 1, R, P]
  std::vector<T> gates_;          // [T + 1, R, 4P]
  std::vector<T> ds_, dk_;        // [R, N'], [M']
  std::vector<T> dh_, dc_, d_;    // [R, P], [R, P], [R, 4P]
  std::vector<T> partial_grads_;  // [R, 3, P]
};

template <typename T>
void backward(const BlockWalkGradParams<T>& g, int64_t begin, int64_t end) {
  const BlockWalkParams<T>& p = g.walk;
  const int64_t blocks = walk_blocks(p.queries), wide = 4 * p.width;
  BackwardRows<T> rows(g);
  for (int64_t n = begin; n < end; ++n) {
    const int64_t unit = n / g.chunks, chunk = n % g.chunks;
    const ChunkGrads<T> out{g.grad_key_gates + n * p.keys * wide,
                            g.grad_key_nodes + n * p.keys * p.width,
                            g.grad_means + n * p.blocks * p.width,
                            g.grad_weight_hh + n * p.width * wide,
                            g.grad_distance ? g.grad_distance + n * (p.queries + p.keys - 1) : nullptr,
                            g.grad_block_distance ? g.grad_block_distance + n * p.block_distances : nullptr};
    for (int64_t b = blocks * chunk / g.chunks; b < blocks * (chunk + 1) / g.chunks; ++b)
      rows.run(unit, b * R, out);
  }
}

}  // namespace

template <typename T>
BlockWalkKernels<T> block_walk_kernels() {
  return {forward<T>, backward<T>};
}
template BlockWalkKernels<float> block_walk_kernels<float>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template BlockWalkKernels<double> block_walk_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
