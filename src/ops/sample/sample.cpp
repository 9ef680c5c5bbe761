// Sampling SBM edges: checks, choice of sampler per item and head, CSR assembly. The law itself is in
// src/kernels/cpu/sample*.cpp.
#include <edgewise/ops/sample.h>
#include <edgewise/ops/sampler_costs.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "graph/bool_bytes.h"
#include "graph/checks.h"
#include "graph/huge_pages.h"
#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sample_cost.h"
#include "kernels/cpu/sample/sample_scratch.h"
#include "kernels/cpu/sample/sampler.h"
#include "kernels/probe_units.h"
#include "ops/attention/reference.h"
#include "ops/cpu_level_variable.h"
#include "ops/sample/cuda_sampling.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

using kernels::cpu::SampledRows;
using kernels::cpu::SampleHead;
using kernels::cpu::SampleScratch;

// Rows per task: a fixed number, so that what a task does never depends on the number of threads.
constexpr int64_t kChunkRows = 64;
// Keys of a head that take this much are read at random often enough to be copied to huge pages.
constexpr int64_t kHugeKeyBytes = int64_t{4} << 20;
// Threads keep their scratch memory, a few hundred bytes a key, up to this many keys.
constexpr int64_t kKeptScratchKeys = 16384;
// Sampler tables of a group of heads may take this much memory before the next group starts.
constexpr int64_t kTableBytes = int64_t{64} << 20;

EdgeShape check_memberships(const at::Tensor& query_membership, const at::Tensor& key_side,
                            const SampleOptions& options) {
  const char* const name = "sample_sbm_edges";
  TORCH_CHECK_VALUE(
      query_membership.dim() == 4 && key_side.dim() == 4 && query_membership.size(0) == key_side.size(0) &&
          query_membership.size(1) == key_side.size(1) && query_membership.size(3) == key_side.size(3),
      name, ": expected query_membership [B, H, L, C] and key_side [B, H, S, C]; got ",
      query_membership.sizes(), " and ", key_side.sizes());
  TORCH_CHECK_VALUE(query_membership.size(3) >= 1, name, ": expected at least one cluster; got ",
                    query_membership.sizes());
  TORCH_CHECK_TYPE(at::isFloatingType(query_membership.scalar_type()) &&
                       query_membership.scalar_type() == key_side.scalar_type(),
                   name, ": expected floating memberships of one dtype; got ", query_membership.scalar_type(),
                   " and ", key_side.scalar_type());
  TORCH_CHECK_VALUE(query_membership.device() == key_side.device(), name,
                    ": expected memberships on one device; got ", query_membership.device(), " and ",
                    key_side.device());
  const EdgeShape shape{query_membership.size(0), query_membership.size(1), query_membership.size(2),
                        key_side.size(2)};
  graph::check_shape(name, shape);
  if (options.key_mask) graph::check_token_mask(name, "key_mask", *options.key_mask, shape.batch, shape.keys);
  if (options.query_mask)
    graph::check_token_mask(name, "query_mask", *options.query_mask, shape.batch, shape.queries);
  TORCH_CHECK_VALUE(options.exploration >= 0 && options.exploration <= 1, name,
                    ": expected exploration in [0, 1]; got ", options.exploration);
  TORCH_CHECK_VALUE(options.query_offset >= 0, name, ": expected a query_offset of at least 0; got ",
                    options.query_offset);
  TORCH_CHECK_VALUE(
      options.query_offset == 0 || options.sampler == Sampler::kAuto || options.sampler == Sampler::kDirect,
      name, ": expected the sampler direct (or auto) with a query_offset; got ", to_string(options.sampler),
      ", whose rows share their random numbers");
  TORCH_CHECK_VALUE(!options.self_loops || shape.queries == shape.keys, name,
                    ": self_loops needs as many queries as keys; got ", to_string(shape));
  return shape;
}

// Tokens that take part count; what stands in masked ones is never used.
void check_values(const char* which, const at::Tensor& membership, const std::optional<at::Tensor>& mask) {
  const at::Tensor good = membership.ge(0).logical_and(membership.isfinite()).all(3);  // [B, H, N]
  const at::Tensor matters = mask ? good.logical_or(mask->logical_not().unsqueeze(1)) : good;
  if (matters.all().item<bool>()) return;
  const auto where = matters.logical_not().nonzero()[0];
  const auto at_index = [&](int64_t n) { return where[n].item<int64_t>(); };
  const at::Tensor row = membership[at_index(0)][at_index(1)][at_index(2)];
  const at::Tensor bad = row.ge(0).logical_and(row.isfinite()).logical_not().nonzero()[0][0];
  TORCH_CHECK_VALUE(false, "sample_sbm_edges: expected ", which, " to be finite and not negative; item ",
                    at_index(0), ", head ", at_index(1), ", token ", at_index(2), ", cluster ",
                    bad.item<int64_t>(), " has ", row[bad.item<int64_t>()].item<double>());
}

// The parts of a head that do not depend on memberships: masks and random stream.
struct HeadPlan {
  std::vector<std::vector<int32_t>> valid_keys;  // per item; without a key mask one for all
  at::Tensor query_mask;                         // [B, L] bool contiguous, or undefined
  std::vector<int64_t> valid_queries;            // per item, with a query mask
  at::Tensor keys;                               // [B*H] stream keys

  HeadPlan(const EdgeShape& shape, const SampleOptions& options, kernels::Purpose purpose) {
    if (options.key_mask) {
      const at::Tensor mask = options.key_mask->cpu().contiguous();
      valid_keys.resize(static_cast<size_t>(shape.batch));
      for (int64_t b = 0; b < shape.batch; ++b) {
        const uint8_t* const valid = graph::bool_bytes(mask) + b * shape.keys;
        std::vector<int32_t>& list = valid_keys[static_cast<size_t>(b)];
        list.resize(static_cast<size_t>(shape.keys));
        size_t count = 0;
        for (int64_t j = 0; j < shape.keys; ++j) {
          list[count] = static_cast<int32_t>(j);
          count += valid[j] != 0;
        }
        list.resize(count);
      }
    } else {
      valid_keys.resize(1);
      valid_keys[0].resize(static_cast<size_t>(shape.keys));
      std::iota(valid_keys[0].begin(), valid_keys[0].end(), 0);
    }
    if (options.query_mask) {
      query_mask = options.query_mask->cpu().contiguous();
      const uint8_t* const valid = graph::bool_bytes(query_mask);
      for (int64_t b = 0; b < shape.batch; ++b)
        valid_queries.push_back(shape.queries -
                                std::count(valid + b * shape.queries, valid + (b + 1) * shape.queries, 0));
    }
    keys = ops::stream_keys(options.random, purpose, shape);
  }

  SampleHead head(const EdgeShape& shape, const SampleOptions& options, int64_t index) const {
    const int64_t item = index / shape.heads;
    SampleHead result;
    result.queries = shape.queries;
    result.keys = shape.keys;
    const std::vector<int32_t>& list = valid_keys[valid_keys.size() > 1 ? static_cast<size_t>(item) : 0];
    result.valid_keys = list.data();
    result.valid_key_count = static_cast<int64_t>(list.size());
    result.valid_query_count = shape.queries;
    if (query_mask.defined()) {
      result.query_mask = graph::bool_bytes(query_mask) + item * shape.queries;
      result.valid_query_count = valid_queries[static_cast<size_t>(item)];
    }
    result.is_causal = options.is_causal;
    result.first_row = options.query_offset;
    result.law =
        options.law == EdgeLaw::kBernoulli ? kernels::cpu::Law::kBernoulli : kernels::cpu::Law::kPoisson;
    result.exploration = options.exploration;
    result.stream_key = static_cast<uint64_t>(keys.const_data_ptr<int64_t>()[index]);
    return result;
  }
};

// body(n) for every n in [begin, end). Each thread has its share of neighbours, so that what it wrote it
// finds in its own cache again, and helps the others when it is done: rows cost what they have of keys and
// edges, and a thread may be late.
template <typename Body>
void share_tasks(int64_t begin, int64_t end, const Body& body) {
  const int64_t count = end - begin, threads = std::min<int64_t>(at::get_num_threads(), count);
  const auto share_begin = [&](int64_t thread) { return begin + count * thread / threads; };
  std::vector<std::atomic<int64_t>> next(static_cast<size_t>(std::max<int64_t>(threads, 0)));
  for (int64_t thread = 0; thread < threads; ++thread)
    next[static_cast<size_t>(thread)] = share_begin(thread);
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t) {
    for (int64_t n = 0; n < threads; ++n) {
      const int64_t whose = (first + n) % threads, stop = share_begin(whose + 1);
      std::atomic<int64_t>& task = next[static_cast<size_t>(whose)];
      for (int64_t mine = task++; mine < stop; mine = task++) body(mine);
    }
  });
}

// Draws chunks of rows in parallel and joins them in order.
class RowCollector {
 public:
  explicit RowCollector(const EdgeShape& shape)
      : shape_(shape),
        chunks_per_head_((shape.queries + kChunkRows - 1) / kChunkRows),
        chunks_(static_cast<size_t>(shape.batch * shape.heads * chunks_per_head_)) {}

  template <typename Body>  // body(head index, row begin, row end, SampleScratch&, SampledRows&)
  void draw(int64_t head_begin, int64_t head_end, const Body& body) {
    share_tasks(head_begin * chunks_per_head_, head_end * chunks_per_head_, [&](int64_t chunk) {
      // Kept from call to call, unless the rows are so long that it may hold tens of megabytes.
      thread_local SampleScratch kept;
      SampleScratch own;
      SampleScratch& scratch = shape_.keys <= kKeptScratchKeys ? kept : own;
      const int64_t first = chunk % chunks_per_head_ * kChunkRows;
      body(chunk / chunks_per_head_, first, std::min(first + kChunkRows, shape_.queries), scratch,
           chunks_[static_cast<size_t>(chunk)]);
    });
  }

  template <typename HeadOf>  // head_of(head index): the SampleHead its rows were drawn from
  EdgeSet join(const HeadOf& head_of) const {
    std::vector<int64_t> starts(chunks_.size() + 1, 0);
    for (size_t n = 0; n < chunks_.size(); ++n) starts[n + 1] = starts[n] + chunks_[n].edge_count();
    at::Tensor row_offsets = at::empty({shape_.rows() + 1}, at::kLong);
    at::Tensor col_indices = graph::on_huge_pages(at::empty({starts.back()}, at::kInt));
    int64_t* offsets = row_offsets.mutable_data_ptr<int64_t>();
    int32_t* columns = col_indices.mutable_data_ptr<int32_t>();
    offsets[0] = 0;
    share_tasks(0, static_cast<int64_t>(chunks_.size()), [&](int64_t n) {
      const SampledRows& rows = chunks_[static_cast<size_t>(n)];
      rows.write_columns(head_of(n / chunks_per_head_), columns + starts[static_cast<size_t>(n)]);
      int64_t row = n / chunks_per_head_ * shape_.queries + n % chunks_per_head_ * kChunkRows;
      int64_t offset = starts[static_cast<size_t>(n)];
      for (const int32_t degree : rows.degrees) offsets[++row] = offset += degree;
    });
    return EdgeSet::from_trusted_csr(shape_, row_offsets, col_indices);
  }

 private:
  EdgeShape shape_;
  int64_t chunks_per_head_;
  std::vector<SampledRows> chunks_;
};

// What one head needs before its rows can be drawn.
class HeadSampler {
 public:
  HeadSampler() = default;
  HeadSampler(const SampleHead& head, Sampler wanted) : head_(head), sampler_(wanted) {
    if (sampler_ == Sampler::kDirect || sampler_ == Sampler::kFastRg) {
      valid_ = kernels::cpu::valid_memberships(head_);
    } else {
      bounds_ = kernels::cpu::sample_bounds(head_);
      valid_ = bounds_.valid;
      if (valid_) choose();
    }
    if (!valid_) return;
    if (sampler_ == Sampler::kFastRg) fastrg_ = kernels::cpu::fastrg_tables(head_);
    if (sampler_ == Sampler::kDirect) transposed_ = kernels::cpu::transpose_valid_keys(head_);
  }

  bool valid() const { return valid_; }  // are its memberships finite and not negative?

  void draw(int64_t begin, int64_t end, SampleScratch& scratch, SampledRows& out) const {
    switch (sampler_) {
      case Sampler::kSqueezed:
        return kernels::cpu::sample_squeezed(head_, squeeze_, products_, scratch, begin, end, out);
      case Sampler::kThinning:
        return kernels::cpu::sample_thinning(head_, bounds_, squeeze_, scratch, begin, end, out);
      case Sampler::kFastRg:
        return kernels::cpu::sample_fastrg(head_, fastrg_, begin, end, out);
      default:
        return kernels::cpu::sample_direct(head_, transposed_, begin, end, out);
    }
  }

 private:
  // The cheapest by prediction, from what is true of the head alone: the sampler, if that is open, and the
  // bounds of the squeezed one, which decide nothing but what it costs.
  void choose() {
    const kernels::cpu::SamplerCosts costs = kernels::cpu::sampler_costs(head_, bounds_, groups_);
    if (sampler_ == Sampler::kAuto)
      sampler_ = costs.fastrg < std::min(costs.squeezed(), costs.thinning) ? Sampler::kFastRg
                 : costs.thinning < costs.squeezed()                       ? Sampler::kThinning
                                                                           : Sampler::kSqueezed;
    if (sampler_ == Sampler::kFastRg) return;
    const bool squeezed = sampler_ == Sampler::kSqueezed;
    if (squeezed && costs.squeezed() == costs.groups) {
      kernels::cpu::measure_groups(head_, groups_);
      squeeze_ = kernels::cpu::squeeze_bounds(groups_);
    } else if (squeezed && costs.squeezed() == costs.products) {
      products_ = kernels::cpu::product_bounds(head_);
    } else {
      squeeze_ = kernels::cpu::squeeze_bounds(head_, bounds_);
    }
  }

  SampleHead head_;
  Sampler sampler_ = Sampler::kDirect;
  bool valid_ = true;
  kernels::cpu::SampleBounds bounds_;
  kernels::cpu::GroupBounds groups_;
  kernels::cpu::ProductBounds products_;
  kernels::cpu::SqueezeBounds squeeze_;  // points into bounds_ or groups_
  kernels::cpu::FastRgTables fastrg_;
  std::vector<float> transposed_;
};

// Keys of a head as fp32 in a row; on huge pages if there are many, because they are read at random.
at::Tensor readable_keys(const at::Tensor& key_side) {
  const int64_t bytes_per_head = key_side.size(2) * key_side.size(3) * int64_t{sizeof(float)};
  if (bytes_per_head < kHugeKeyBytes) return key_side.to(at::kFloat).contiguous();
  return graph::on_huge_pages(at::empty(key_side.sizes(), key_side.options().dtype(at::kFloat)))
      .copy_(key_side);
}

// Memberships as the CPU samplers read them, and their heads.
struct HeadInputs {
  HeadInputs(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
             const SampleOptions& options)
      : shape_(shape),
        options_(options),
        queries_(query_membership.to(at::kFloat).contiguous()),
        keys_(readable_keys(key_side)),
        plan_(shape, options, kernels::Purpose::kEdges) {}

  int64_t clusters() const { return queries_.size(3); }
  SampleHead head(int64_t index) const {
    SampleHead head = plan_.head(shape_, options_, index);
    head.clusters = clusters();
    head.query_membership = queries_.const_data_ptr<float>() + index * shape_.queries * clusters();
    head.key_side = keys_.const_data_ptr<float>() + index * shape_.keys * clusters();
    return head;
  }

 private:
  const EdgeShape& shape_;
  const SampleOptions& options_;
  at::Tensor queries_, keys_;
  HeadPlan plan_;
};

EdgeSet sample_on_cpu(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                      const SampleOptions& options) {
  const HeadInputs inputs(query_membership, key_side, shape, options);
  const int64_t heads = shape.batch * shape.heads;
  RowCollector rows(shape);
  std::atomic<bool> all_valid = true;
  const Sampler sampler = options.query_offset > 0 ? Sampler::kDirect : options.sampler;
  const int64_t bytes_per_head = std::max<int64_t>(shape.keys * inputs.clusters() * 8, 1);
  const int64_t group = std::max<int64_t>(kTableBytes / bytes_per_head, at::get_num_threads());
  for (int64_t first = 0; first < heads; first += group) {
    const int64_t last = std::min(first + group, heads);
    std::vector<HeadSampler> samplers(static_cast<size_t>(last - first));
    share_tasks(first, last, [&](int64_t index) {
      HeadSampler& mine = samplers[static_cast<size_t>(index - first)];
      mine = HeadSampler(inputs.head(index), sampler);
      if (!mine.valid()) all_valid = false;
    });
    if (!all_valid) {  // says which value it was
      check_values("query_membership", query_membership, options.query_mask);
      check_values("key_side", key_side, options.key_mask);
      TORCH_CHECK_VALUE(false, "sample_sbm_edges: expected memberships that fit fp32; got larger ones");
    }
    rows.draw(first, last,
              [&](int64_t index, int64_t begin, int64_t end, SampleScratch& scratch, SampledRows& out) {
                samplers[static_cast<size_t>(index - first)].draw(begin, end, scratch, out);
              });
  }
  return rows.join([&](int64_t index) { return inputs.head(index); });
}

// Pairs that the masks and causality allow: [B, 1, L, S] bool (broadcastable).
at::Tensor allowed_pairs(const EdgeShape& shape, const SampleOptions& options, at::Device device) {
  at::Tensor allowed = at::ones({1, 1, 1, 1}, at::TensorOptions().dtype(at::kBool).device(device));
  if (options.key_mask)
    allowed = allowed.logical_and(options.key_mask->to(device).view({shape.batch, 1, 1, shape.keys}));
  if (options.query_mask)
    allowed = allowed.logical_and(options.query_mask->to(device).view({shape.batch, 1, shape.queries, 1}));
  if (options.is_causal) {
    const auto int64_options = at::TensorOptions().dtype(at::kLong).device(device);
    allowed = allowed.logical_and(
        (at::arange(shape.queries, int64_options) + options.query_offset).view({1, 1, -1, 1}) >=
        at::arange(shape.keys, int64_options).view({1, 1, 1, -1}));
  }
  return allowed;
}

// The direct sampler in plain ATen, with the same random words as the CPU kernel.
EdgeSet sample_by_reference(const at::Tensor& query_membership, const at::Tensor& key_side,
                            const EdgeShape& shape, const SampleOptions& options) {
  const at::Device device = query_membership.device();
  const at::Tensor p = (at::matmul(query_membership.to(at::kFloat), key_side.to(at::kFloat).transpose(2, 3)) +
                        options.exploration)
                           .clamp_max(1)
                           .to(at::kDouble);
  const at::Tensor probability = options.law == EdgeLaw::kBernoulli ? p : -(-p).expm1();
  const at::Tensor numbers = ops::reference::pair_numbers(
      ops::stream_keys(options.random, kernels::Purpose::kEdges, shape), shape, device, options.query_offset);
  return EdgeSet::from_mask((numbers.to(at::kDouble) < probability * 4294967296.0)
                                .logical_and(allowed_pairs(shape, options, device)));
}

EdgeSet self_loop_edges(const EdgeShape& shape, const SampleOptions& options, at::Device device) {
  EdgeSet loops = EdgeSet::from_trusted_csr(
      shape, at::arange(shape.rows() + 1, at::TensorOptions().dtype(at::kLong).device(device)),
      at::arange(shape.keys, at::TensorOptions().dtype(at::kInt).device(device))
          .repeat({shape.batch * shape.heads}));
  if (options.key_mask) loops = loops.restricted_to_keys(*options.key_mask);
  if (options.query_mask) loops = loops.restricted_to_queries(*options.query_mask);
  return loops;
}

}  // namespace

EdgeSet sample_sbm_edges(const at::Tensor& query_membership, const at::Tensor& key_side,
                         const SampleOptions& options) {
  RECORD_FUNCTION("edgewise::sample_sbm_edges", {});
  ops::read_cpu_level_variable();
  const EdgeShape shape = check_memberships(query_membership, key_side, options);
  const at::Tensor queries = query_membership.detach(), keys = key_side.detach();
  const bool on_cpu = queries.is_cpu();
  if (!on_cpu && options.check_values) {  // the CPU samplers look at every value themselves
    check_values("query_membership", queries, options.query_mask);
    check_values("key_side", keys, options.key_mask);
  }
  const auto sample = [&] {
    if (on_cpu) return sample_on_cpu(queries, keys, shape, options);
    if (options.query_offset == 0 && ops::cuda_sample_refusal(queries, shape, options.sampler).empty())
      return ops::cuda_sample(queries, keys, shape, options);
    return sample_by_reference(queries, keys, shape, options);
  };
  const EdgeSet sampled = sample();
  return options.self_loops ? sampled.united_with(self_loop_edges(shape, options, sampled.device()))
                            : sampled;
}

double SamplerCosts::of(Sampler sampler) const {
  switch (sampler) {
    case Sampler::kSqueezed:
      return squeezed;
    case Sampler::kThinning:
      return thinning;
    case Sampler::kFastRg:
      return fastrg;
    case Sampler::kDirect:
      return direct;
    case Sampler::kAuto:
      return chosen;
  }
  return 0;
}

SamplerCosts predict_sampler_costs(const at::Tensor& query_membership, const at::Tensor& key_side,
                                   const SampleOptions& options) {
  const EdgeShape shape = check_memberships(query_membership, key_side, options);
  TORCH_CHECK_VALUE(query_membership.is_cpu(), "predict_sampler_costs: expected memberships on CPU; got ",
                    query_membership.device());
  const HeadInputs inputs(query_membership, key_side, shape, options);
  SamplerCosts sum;
  for (int64_t index = 0; index < shape.batch * shape.heads; ++index) {
    const SampleHead head = inputs.head(index);
    kernels::cpu::GroupBounds groups;
    const kernels::cpu::SamplerCosts costs =
        kernels::cpu::sampler_costs(head, kernels::cpu::sample_bounds(head), groups);
    sum.squeezed += (costs.bounds + costs.squeezed()) * 1e-6;
    sum.thinning += (costs.bounds + costs.thinning) * 1e-6;
    sum.fastrg += costs.fastrg * 1e-6;
    sum.direct += kernels::cpu::direct_cost(head) * 1e-6;
    sum.chosen += (costs.bounds + std::min({costs.squeezed(), costs.thinning, costs.fastrg})) * 1e-6;
  }
  return sum;
}

EdgeSet sample_probe_edges(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options) {
  RECORD_FUNCTION("edgewise::sample_probe_edges", {});
  ops::read_cpu_level_variable();
  const EdgeShape& shape = edges.shape();
  TORCH_CHECK_VALUE(static_cast<int64_t>(rates.size()) == shape.batch,
                    "sample_probe_edges: expected one rate per item (", shape.batch, "); got ", rates.size());
  for (const double rate : rates)
    TORCH_CHECK_VALUE(rate >= 0 && rate <= 1, "sample_probe_edges: expected rates in [0, 1]; got ", rate);
  TORCH_CHECK_VALUE(options.probe_unit == 1 || options.probe_unit == kernels::kProbeUnit,
                    "sample_probe_edges: expected probe_unit 1 or 16; got ", options.probe_unit);
  const bool units = options.probe_unit > 1;
  if (options.query_offset == 0 && ops::cuda_probe_refusal(edges, options.probe_unit).empty())
    return ops::cuda_sample_probes(edges, rates, options);
  if (!edges.device().is_cpu()) {
    const at::Tensor streams = ops::stream_keys(options.random, kernels::Purpose::kProbes, shape);
    const at::Tensor words =
        units ? ops::reference::unit_numbers(streams, shape, edges.device(), options.query_offset)
              : ops::reference::pair_words(streams, shape, edges.device());
    const at::Tensor limits =
        at::tensor(rates, at::kDouble).to(edges.device()).view({-1, 1, 1, 1}) * 4294967296.0;
    return EdgeSet::from_mask((words.to(at::kDouble) < limits)
                                  .logical_and(allowed_pairs(shape, options, edges.device()))
                                  .logical_and(edges.to_mask().logical_not()));
  }
  const HeadPlan plan(shape, options, kernels::Purpose::kProbes);
  const int64_t* const offsets = edges.row_offsets().const_data_ptr<int64_t>();
  const int32_t* const columns = edges.col_indices().const_data_ptr<int32_t>();
  RowCollector rows(shape);
  rows.draw(0, shape.batch * shape.heads,
            [&](int64_t index, int64_t begin, int64_t end, SampleScratch&, SampledRows& out) {
              const double rate = rates[static_cast<size_t>(index / shape.heads)];
              const kernels::cpu::ExistingEdges existing{offsets + index * shape.queries, columns};
              (units ? kernels::cpu::sample_absent_units : kernels::cpu::sample_absent)(
                  plan.head(shape, options, index), existing, rate, begin, end, out);
            });
  return rows.join([&](int64_t index) { return plan.head(shape, options, index); });
}

}  // namespace edgewise
