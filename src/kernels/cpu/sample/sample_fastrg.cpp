// Row-wise fastRG (Rohe et al., JMLR 2018), with the block matrix folded into the key side so that an edge
// has one latent cluster: row degree ~ Poisson(c * sum_u Q^_iu * sum_j T_ju), then a cluster u, then a key j
// from column u of T. Rows come out in order: no global sort.
//
// Poisson counts collapsed to a set give P(edge) = 1 - exp(-c p). Each distinct edge is then kept with
// probability law(p) / (1 - exp(-c p)), which makes the law exact; c >= -log(1 - b) / b keeps that ratio at
// most 1 for every p <= b.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sampler.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu {
namespace {

// Above this bound on p the oversampling factor c passes 14 and grows without limit: such a row is drawn
// directly.
constexpr double kLargestBound = 1 - 1e-6;
// Likewise under the Poisson law, where rates above 1 are drawn only to be thinned away again.
constexpr double kLargestRate = 4;

int64_t small_poisson(double mean, RowStream& random) {
  // Inversion: walk up the distribution. The uniforms reach further into the tail than doubles can sum.
  const double u = random.next_uniform();
  double term = std::exp(-mean), total = term;
  int64_t k = 0;
  while (u > total && k < 200) {
    ++k;
    term *= mean / static_cast<double>(k);
    total += term;
  }
  return k;
}

double log_factorial(int64_t k) {
  int sign = 0;
  return ::lgamma_r(static_cast<double>(k) + 1, &sign);
}

// Transformed rejection with squeeze, PTRS (Hormann 1993), for mean >= 10.
int64_t large_poisson(double mean, RowStream& random) {
  const double b = 0.931 + 2.53 * std::sqrt(mean);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double squeeze = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = random.next_uniform() - 0.5, v = random.next_uniform();
    const double distance = 0.5 - std::abs(u);
    const double candidate = std::floor((2 * a / distance + b) * u + mean + 0.43);
    if (distance >= 0.07 && v <= squeeze) return static_cast<int64_t>(candidate);
    if (candidate < 0 || (distance < 0.013 && v > distance)) continue;
    const int64_t k = static_cast<int64_t>(candidate);
    const double left = std::log(v) + std::log(inverse_alpha) - std::log(a / (distance * distance) + b);
    if (left <= -mean + candidate * std::log(mean) - log_factorial(k)) return k;
  }
}

int64_t poisson(double mean, RowStream& random) {
  if (mean <= 0) return 0;
  return mean < 10 ? small_poisson(mean, random) : large_poisson(mean, random);
}

// Sorts and makes unique the columns from `begin` on. Many draws over few keys: a bitset is cheaper than
// sorting.
void collapse(std::vector<int32_t>& columns, size_t begin, int64_t keys, std::vector<uint64_t>& bits) {
  const size_t draws = columns.size() - begin;
  if (draws < 2) return;
  if (static_cast<int64_t>(draws) * 8 < keys / 64) {
    std::sort(columns.begin() + static_cast<int64_t>(begin), columns.end());
    columns.erase(std::unique(columns.begin() + static_cast<int64_t>(begin), columns.end()), columns.end());
    return;
  }
  bits.assign(static_cast<size_t>((keys + 63) / 64), 0);
  for (size_t n = begin; n < columns.size(); ++n)
    bits[static_cast<size_t>(columns[n] / 64)] |= uint64_t{1} << (columns[n] % 64);
  columns.resize(begin);
  for (size_t word = 0; word < bits.size(); ++word)
    for (uint64_t rest = bits[word]; rest; rest &= rest - 1)
      columns.push_back(static_cast<int32_t>(word * 64) + __builtin_ctzll(rest));
}

// Nanoseconds: an entry of an alias table, and one more proposal.
constexpr double kAliasEntry = 13, kProposal = 12;

// Proposals per draw are top * count / sum. Edges from a cluster: what its memberships promise.
bool rejection_is_cheaper(int64_t count, double sum, float top, double membership) {
  const double proposals = top * static_cast<double>(count) / sum;
  return (proposals - 1) * kProposal * membership * sum < kAliasEntry * static_cast<double>(count);
}

}  // namespace

FastRgTables fastrg_tables(const SampleHead& head) {
  const int64_t count = head.valid_key_count;
  FastRgTables tables;
  tables.threshold.resize(static_cast<size_t>(head.clusters * count));
  tables.alias.resize(static_cast<size_t>(head.clusters * count));
  tables.sum.resize(static_cast<size_t>(head.clusters));
  tables.top.resize(static_cast<size_t>(head.clusters));
  const std::vector<float> transposed = transpose_valid_keys(head);       // a column of T is a row here
  std::vector<double> membership(static_cast<size_t>(head.clusters), 0);  // summed over the rows
  for (int64_t row = 0; row < head.queries; ++row)
    if (!head.query_mask || head.query_mask[row])
      for (int64_t u = 0; u < head.clusters; ++u)
        membership[static_cast<size_t>(u)] += head.query_membership[row * head.clusters + u];
  tables.rejects.assign(static_cast<size_t>(head.clusters), 0);
  std::vector<double> scaled(static_cast<size_t>(count));
  std::vector<int32_t> small(static_cast<size_t>(count)), large(static_cast<size_t>(count));
  for (int64_t cluster = 0; cluster < head.clusters; ++cluster) {
    const float* weight = transposed.data() + cluster * count;
    float* threshold = tables.threshold.data() + cluster * count;
    int32_t* alias = tables.alias.data() + cluster * count;
    double sum = 0;
    float top = 0;
    for (int64_t n = 0; n < count; ++n) {
      sum += weight[n];
      top = std::max(top, weight[n]);
    }
    tables.sum[static_cast<size_t>(cluster)] = sum;
    tables.top[static_cast<size_t>(cluster)] = top;
    if (!(sum > 0)) continue;  // never drawn
    if (rejection_is_cheaper(count, sum, top, membership[static_cast<size_t>(cluster)])) {
      tables.rejects[static_cast<size_t>(cluster)] = 1;
      for (int64_t n = 0; n < count; ++n) threshold[n] = weight[n] / top;
      continue;
    }

    // Walker's alias method in Vose's form: slot n keeps itself with probability threshold[n], else gives
    // alias[n].
    size_t smalls = 0, larges = 0;
    const double scale = static_cast<double>(count) / sum;
    for (int64_t n = 0; n < count; ++n) {
      const double share = weight[n] * scale;
      scaled[static_cast<size_t>(n)] = share;
      threshold[n] = 1;
      alias[n] = static_cast<int32_t>(n);
      small[smalls] = large[larges] = static_cast<int32_t>(n);
      smalls += share < 1;
      larges += share >= 1;
    }
    while (smalls > 0 && larges > 0) {
      const int32_t poor = small[--smalls], rich = large[larges - 1];
      threshold[poor] = static_cast<float>(scaled[static_cast<size_t>(poor)]);
      alias[poor] = rich;
      scaled[static_cast<size_t>(rich)] -= 1 - scaled[static_cast<size_t>(poor)];
      if (scaled[static_cast<size_t>(rich)] < 1) {
        --larges;
        small[smalls++] = rich;
      }
    }
  }
  return tables;
}

void sample_fastrg(const SampleHead& head, const FastRgTables& tables, int64_t row_begin, int64_t row_end,
                   SampledRows& out) {
  const SampleKernels& kernels = sample_kernels();
  const int64_t clusters = head.clusters, count = head.valid_key_count;
  std::vector<double> cumulative(static_cast<size_t>(clusters + 1));
  std::vector<uint64_t> bits;
  std::vector<float> transposed;  // made only if some row must be drawn directly
  for (int64_t row = row_begin; row < row_end; ++row) {
    if ((head.query_mask && !head.query_mask[row]) || count == 0) {
      out.degrees.push_back(0);
      continue;
    }
    const float* membership = head.query_membership + row * clusters;
    double total = 0, bound = head.exploration;
    for (int64_t u = 0; u < clusters; ++u) {
      total += membership[u] * tables.sum[static_cast<size_t>(u)];
      bound += static_cast<double>(membership[u]) * tables.top[static_cast<size_t>(u)];
      cumulative[static_cast<size_t>(u)] = total;
    }
    total += head.exploration *
             static_cast<double>(count);  // exploration: one more cluster, uniform over the keys
    cumulative[static_cast<size_t>(clusters)] = total;

    const bool bernoulli = head.law == Law::kBernoulli;
    if (bound > (bernoulli ? kLargestBound : kLargestRate)) {
      if (transposed.empty()) transposed = transpose_valid_keys(head);
      sample_direct(head, transposed, row, row + 1, out);
      continue;
    }
    const double oversampling = bernoulli && bound > 1e-9 ? -std::log1p(-bound) / bound : 1;
    RowStream random(head.stream_key, row);
    const size_t begin = out.columns.size();
    const int64_t draws = poisson(oversampling * total, random);
    for (int64_t n = 0; n < draws; ++n) {
      const double where = random.next_uniform() * total;
      int64_t u = std::upper_bound(cumulative.begin(), cumulative.end(), where) - cumulative.begin();
      u = std::min(u, clusters);
      const auto any_slot = [&] {
        return static_cast<int64_t>((uint64_t{random.next32()} * static_cast<uint64_t>(count)) >> 32);
      };
      int64_t slot = any_slot();
      if (u < clusters && tables.rejects[static_cast<size_t>(u)]) {
        while ((random.next32() + 0.5) * 0x1.0p-32 >= tables.threshold[static_cast<size_t>(u * count + slot)])
          slot = any_slot();
      } else if (u < clusters) {
        const float coin = static_cast<float>(random.next32() >> 8) * 0x1.0p-24f;
        if (coin >= tables.threshold[static_cast<size_t>(u * count + slot)])
          slot = tables.alias[static_cast<size_t>(u * count + slot)];
      }
      out.columns.push_back(head.valid_keys[slot]);
    }
    collapse(out.columns, begin, head.keys, bits);
    // Thin to the law, and drop what causality forbids.
    const bool thin = bernoulli || bound > 1;
    size_t kept = begin;
    for (size_t n = begin; n < out.columns.size(); ++n) {
      const int32_t key = out.columns[n];
      if (thin) {
        const double p = head.exploration + kernels.dot(membership, head.key_side + key * clusters, clusters);
        const double keep = edge_probability(head.law, p) / -std::expm1(-oversampling * p);
        if (random.next_uniform() >= keep) continue;
      }
      if (head.is_causal && key > row) continue;
      out.columns[kept++] = key;
    }
    out.columns.resize(kept);
    out.degrees.push_back(static_cast<int32_t>(kept - begin));
  }
}

}  // namespace edgewise::kernels::cpu
