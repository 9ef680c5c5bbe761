// SBM edges and probe edges on CUDA, as bit tiles; as lists where those would be too many
// (cuda_list_sample.cpp).
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "graph/bool_bytes.h"
#include "graph/cuda_launch.h"
#include "graph/edge_plan.h"
#include "graph/tiles/tiles.h"
#include "kernels/cuda/lists/list_params.h"
#include "kernels/pair_numbers.h"
#include "ops/attention/cuda_limits.h"
#include "ops/sample/cuda_sampling.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::tile_shape;
using graph::words_of;

// Room for pairs that the products leave open: of random numbers a few in 10^4.
constexpr int64_t kPairsPerOpenPlace = 512;

bool thins(Sampler sampler, int64_t clusters) {
  return sampler != Sampler::kDirect && kernels::cuda::thin_sample_takes(clusters);
}

at::Tensor column_words(const EdgeShape& shape, at::Device device) {
  return at::empty({shape.batch, (shape.keys + 63) / 64, 4},
                   at::TensorOptions().dtype(at::kInt).device(device));
}

}  // namespace

std::string cuda_sample_refusal(const at::Tensor& query_membership, const EdgeShape& shape, Sampler sampler) {
  if (!query_membership.is_cuda()) return "the memberships are not on a CUDA device";
  if (!graph::is_hopper(query_membership.device()))
    return "the kernels are built for Hopper (compute capability 9.0)";
  if (sampler != Sampler::kAuto && sampler != Sampler::kDirect && sampler != Sampler::kThinning)
    return "only the direct sampler and thinning run on CUDA";
  if (!kernels::cuda::tile_sample_takes(sampling_clusters(query_membership.size(3))))
    return "more than 256 clusters";
  if (query_membership.scalar_type() != at::kFloat && query_membership.scalar_type() != at::kBFloat16)
    return "memberships that are neither float32 nor bfloat16";
  if (shape.batch * shape.heads > 65535) return "more than 65,535 items x heads";
  if ((shape.queries + 63) / 64 > 65535) return "more than 4,194,240 queries";
  if (!fits_tiles(shape)) {
    if (sampler == Sampler::kDirect) return "the direct sampler's bit per pair would take more than 16 GiB";
    if (shape.keys > kernels::cuda::kMostListKeys) return "more than 16,777,215 keys";
  }
  return "";
}

EdgeSet cuda_sample(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                    const SampleOptions& options) {
  const at::Device device = query_membership.device();
  const c10::cuda::CUDAGuard guard(device);
  if (cuda_samples_lists(query_membership, key_side, shape, options))
    return cuda_sample_lists(query_membership, key_side, shape, options);
  const auto int64_options = at::TensorOptions().dtype(at::kLong).device(device);
  const SamplingTensors tensors(query_membership, key_side, shape, options);
  kernels::cuda::TileSampleParams params = tensors.params();
  const bool split = tensors.split();
  const auto staged = [&](int64_t tokens) {
    return at::empty({shape.batch * shape.heads, (tokens + 63) / 64, 64, params.clusters * (split ? 2 : 1)},
                     at::TensorOptions().dtype(at::kBFloat16).device(device));
  };
  const at::Tensor query_tiles = split ? staged(shape.queries) : at::Tensor(), key_tiles = staged(shape.keys);
  if (split) params.query_tiles = static_cast<kernels::Bf16*>(query_tiles.mutable_data_ptr());
  params.key_tiles = static_cast<kernels::Bf16*>(key_tiles.mutable_data_ptr());
  const at::Tensor tiles = graph::empty_tiles(shape, device, /*zeroed=*/shape.keys == 0);
  params.tiles = words_of(tiles);
  const at::Tensor counts = at::zeros({shape.batch, shape.heads}, int64_options);
  params.edge_counts = reinterpret_cast<uint64_t*>(counts.mutable_data_ptr<int64_t>());
  const at::Tensor columns = column_words(shape, device);
  params.column_words = words_of(columns);
  params.open_capacity = std::max<int64_t>(shape.pairs() / kPairsPerOpenPlace, 4096);
  const at::Tensor open = at::empty({params.open_capacity}, int64_options),
                   open_count = at::zeros({1}, int64_options);
  params.open_pairs = reinterpret_cast<uint64_t*>(open.mutable_data_ptr<int64_t>());
  params.open_count = reinterpret_cast<unsigned long long*>(open_count.mutable_data_ptr<int64_t>());
  at::Tensor key_tops, thin_blocks, direct_blocks;
  if (thins(options.sampler, params.clusters)) {
    key_tops = at::zeros({shape.batch * shape.heads, params.clusters}, int64_options.dtype(at::kFloat));
    direct_blocks = at::zeros({shape.batch * shape.heads}, int64_options.dtype(at::kInt));
    thin_blocks = at::empty({shape.batch * shape.heads,
                             (shape.queries + kernels::cuda::kThinRows - 1) / kernels::cuda::kThinRows},
                            int64_options.dtype(at::kByte));
    params.thin.limit = thinning_bound(options.sampler, params.clusters, split);
    params.thin.key_tops = key_tops.mutable_data_ptr<float>();
    params.thin.blocks = thin_blocks.mutable_data_ptr<uint8_t>();
    params.thin.direct_blocks = reinterpret_cast<uint32_t*>(direct_blocks.mutable_data_ptr<int32_t>());
  }
  check_launch("tile_sample", kernels::cuda::launch_tile_sample(params, current_stream()));
  return EdgeSet::from_trusted_tiles(shape, tiles, counts);
}

std::string cuda_probe_refusal(const EdgeSet& edges, int64_t probe_unit) {
  if (!edges.device().is_cuda()) return "the edges are not on a CUDA device";
  if (!edges.has_csr()) return "";
  if (!graph::is_hopper(edges.device())) return "the kernels are built for Hopper (compute capability 9.0)";
  if (edges.shape().batch * edges.shape().heads > 65535) return "more than 65,535 items x heads";
  if ((edges.shape().queries + 63) / 64 > 65535) return "more than 4,194,240 queries";
  if (probe_unit == 1 && !fits_tiles(edges.shape()))
    return "probes one by one would take a bit per pair, more than 16 GiB; sbm.probe_unit = 16 does "
           "not";
  return "";
}

EdgeSet cuda_sample_probes(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options) {
  const EdgeShape& shape = edges.shape();
  const at::Device device = edges.device();
  const c10::cuda::CUDAGuard guard(device);
  if (edges.has_csr() && options.probe_unit > 1) return cuda_list_probes(edges, rates, options);
  const at::Tensor streams = stream_keys_on(device, options.random, kernels::Purpose::kProbes, shape);
  const auto rates_now = probe_rates_now(rates, options.replayed);
  const at::Tensor query_mask = mask_bytes(options.query_mask, device),
                   key_mask = mask_bytes(options.key_mask, device);
  const at::Tensor columns = column_words(shape, device);
  const at::Tensor probes = graph::empty_tiles(shape, device, /*zeroed=*/false);
  const auto fill = [&](auto& params) {
    params.shape = tile_shape(shape);
    params.tiles = words_of(edges.tiles());
    params.stream_keys = reinterpret_cast<const uint64_t*>(streams.const_data_ptr<int64_t>());
    params.query_mask = graph::bool_bytes(query_mask);
    params.key_mask = graph::bool_bytes(key_mask);
    params.is_causal = options.is_causal;
    params.column_words = words_of(columns);
    params.probes = words_of(probes);
  };
  if (options.probe_unit > 1) {
    const at::Tensor device_rates =
        on_device(device, [=](const StreamShift&) { return at::tensor(rates_now(), at::kDouble); });
    const auto flags = [&](int64_t outer, int64_t inner) {
      return at::zeros({shape.batch * shape.heads, (outer + 63) / 64 * 4, graph::unit_bytes(inner)},
                       at::TensorOptions().dtype(at::kByte).device(device));
    };
    const graph::EdgeUnits units{flags(shape.queries, shape.keys), flags(shape.keys, shape.queries)};
    kernels::cuda::UnitProbeParams params;
    fill(params);
    params.rates = device_rates.const_data_ptr<double>();
    params.by_queries = units.by_queries.mutable_data_ptr<uint8_t>();
    params.by_keys = units.by_keys.mutable_data_ptr<uint8_t>();
    check_launch("unit_probes", kernels::cuda::launch_unit_probes(params, current_stream()));
    return graph::edges_in_units(shape, probes, units);
  }
  const at::Tensor device_laws = on_device(device, [=](const StreamShift&) {
    const std::vector<double> now = rates_now();
    const at::Tensor laws =
        at::empty({std::ssize(now), static_cast<int64_t>(sizeof(kernels::CoinLaw))}, at::kByte);
    std::ranges::transform(now, static_cast<kernels::CoinLaw*>(laws.mutable_data_ptr()), kernels::coin_law);
    return laws;
  });
  kernels::cuda::TileProbeParams params;
  fill(params);
  params.laws = static_cast<const kernels::CoinLaw*>(device_laws.const_data_ptr());
  check_launch("tile_probes", kernels::cuda::launch_tile_probes(params, current_stream()));
  return EdgeSet::from_trusted_tiles(shape, probes);
}

}  // namespace edgewise::ops
