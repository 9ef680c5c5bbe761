// SBM edges and probes on CUDA as lists, for sequences that are too long for a bit per pair. The host waits
// for what is expected, for the number of edges and for that of probes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "graph/bool_bytes.h"
#include "graph/cuda_launch.h"
#include "graph/lists_cuda.h"
#include "kernels/cuda/lists/list_params.h"
#include "ops/attention/cuda_limits.h"
#include "ops/sample/cuda_sampling.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;

// Up to this size tiles are never the dearest part of a step.
constexpr int64_t kManyTileBytes = int64_t{256} << 20;
// A step's time on an H200 at work on all its SMs, in picoseconds (docs/kernels/cuda-lists.md): an edge or a
// probe of a list, and a pair of tiles, with windows for what is sparse and without.
constexpr double kListPs = 320, kWindowPairPs = 1.0, kTilePairPs = 3.5;
constexpr double kProbesPerRow = 64;  // the sampler does not know how many there will be

at::Tensor of_tokens_that_take_part(const at::Tensor& membership, const std::optional<at::Tensor>& mask) {
  if (!mask) return membership;
  return membership.masked_fill(
      mask->to(membership.device()).logical_not().view({mask->size(0), 1, mask->size(1), 1}), 0);
}

// Of the memberships of a call: the mean p of its pairs, of which causality leaves about half, and the mean
// of the rows' bounds. Waits for the device.
struct Expected {
  double density, bound;

  Expected(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
           const SampleOptions& options) {
    const at::Tensor queries = of_tokens_that_take_part(query_membership, options.query_mask)
                                   .sum(2, false, at::kFloat);  // [B, H, C]
    const at::Tensor keys = of_tokens_that_take_part(key_side, options.key_mask);
    const at::Tensor sums = (queries * keys.sum(2, false, at::kFloat)).sum(),
                     bounds = (queries * keys.amax(2).to(at::kFloat)).sum();
    const at::Tensor both = at::stack({sums, bounds}).cpu();
    density = both[0].item<double>() / static_cast<double>(shape.pairs()) + options.exploration;
    if (options.is_causal) density /= 2;
    bound = both[1].item<double>() / static_cast<double>(shape.rows()) + options.exploration;
  }
};

// Counts, adds up, writes: `launch` is called once for the degrees and once for the columns.
template <typename Launch>
EdgeSet make_list(const EdgeShape& shape, at::Device device, const Launch& launch) {
  if (shape.pairs() == 0) return EdgeSet::none(shape, device);
  const auto int32 = at::TensorOptions().dtype(at::kInt).device(device);
  const at::Tensor degrees = at::empty({shape.rows()}, int32);
  kernels::cuda::ListOutput out;
  out.degrees = degrees.mutable_data_ptr<int32_t>();
  launch(out);
  const at::Tensor row_offsets = graph::cuda_offsets(degrees);
  const at::Tensor columns = at::empty({row_offsets[-1].item<int64_t>()}, int32);
  out.row_offsets = row_offsets.const_data_ptr<int64_t>();
  out.columns = columns.mutable_data_ptr<int32_t>();
  if (columns.numel() > 0) launch(out);
  return EdgeSet::from_trusted_csr(shape, row_offsets, columns);
}

}  // namespace

bool cuda_samples_lists(const at::Tensor& query_membership, const at::Tensor& key_side,
                        const EdgeShape& shape, const SampleOptions& options) {
  const int64_t bytes = shape.pairs() / 8;
  if (options.sampler == Sampler::kDirect || bytes <= kManyTileBytes ||
      shape.keys > kernels::cuda::kMostListKeys)
    return false;
  // A step that is recorded must not wait for the number of edges.
  const bool recorded = graph::is_capturing();
  if (!fits_tiles(shape)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !recorded,
        "sample_sbm_edges: a bit per pair would take more than 16 GiB, and a list of edges, whose number the "
        "host must wait for, cannot be recorded in a CUDA graph; expected shorter sequences or "
        "train.cuda_graph = false; got ",
        to_string(shape));
    return true;
  }
  if (recorded) return false;
  const Expected expected(query_membership, key_side, shape, options);
  // As the memberships are, so is attention, but for what this cannot know (the head dim: 32 or 64).
  const bool is_float = query_membership.scalar_type() == at::kFloat;
  const double probes = kProbesPerRow / static_cast<double>(shape.keys) / (options.is_causal ? 2 : 1),
               list_ps = kListPs * (expected.density + probes),
               tiles_ps = !is_float && windows_fit(shape, cuda_device(query_membership.device()).bytes)
                              ? kWindowPairPs
                              : kTilePairPs;
  const bool only_lists = is_float && bytes >= kLargestFloatTiles;  // attention would make them of the tiles
  return (only_lists || list_ps < tiles_ps) &&
         expected.bound <=
             thinning_bound(options.sampler, sampling_clusters(query_membership.size(3)), is_float);
}

EdgeSet cuda_sample_lists(const at::Tensor& query_membership, const at::Tensor& key_side,
                          const EdgeShape& shape, const SampleOptions& options) {
  const at::Device device = query_membership.device();
  const c10::cuda::CUDAGuard guard(device);
  const SamplingTensors tensors(query_membership, key_side, shape, options);
  kernels::cuda::ListSampleParams params;
  params.draw = tensors.params();
  const at::Tensor key_tops = at::zeros({shape.batch * shape.heads, params.draw.clusters},
                                        at::TensorOptions().dtype(at::kFloat).device(device));
  params.draw.thin.limit = thinning_bound(options.sampler, params.draw.clusters, tensors.split());
  params.draw.thin.key_tops = key_tops.mutable_data_ptr<float>();
  return make_list(shape, device, [&](const kernels::cuda::ListOutput& out) {
    params.edges = out;
    check_launch("list_sample", kernels::cuda::launch_list_sample(params, current_stream()));
  });
}

EdgeSet cuda_list_probes(const EdgeSet& edges, const std::vector<double>& rates,
                         const SampleOptions& options) {
  const EdgeShape& shape = edges.shape();
  const at::Device device = edges.device();
  const c10::cuda::CUDAGuard guard(device);
  kernels::cuda::ListProbeParams params;
  params.shape = graph::tile_shape(shape);
  params.row_offsets = edges.row_offsets().const_data_ptr<int64_t>();
  params.columns = edges.col_indices().const_data_ptr<int32_t>();
  const at::Tensor streams = stream_keys_on(device, options.random, kernels::Purpose::kProbes, shape);
  params.stream_keys = reinterpret_cast<const uint64_t*>(streams.const_data_ptr<int64_t>());
  const at::Tensor device_rates = at::tensor(rates, at::kDouble).to(device);
  params.rates = device_rates.const_data_ptr<double>();
  const at::Tensor query_mask = mask_bytes(options.query_mask, device),
                   key_mask = mask_bytes(options.key_mask, device);
  params.query_mask = graph::bool_bytes(query_mask);
  params.key_mask = graph::bool_bytes(key_mask);
  params.is_causal = options.is_causal;
  return make_list(shape, device, [&](const kernels::cuda::ListOutput& out) {
    params.probes = out;
    check_launch("list_probes", kernels::cuda::launch_list_probes(params, current_stream()));
  });
}

}  // namespace edgewise::ops
