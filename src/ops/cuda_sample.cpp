// SBM edges and probe edges on CUDA, as bit tiles.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "graph/cuda_launch.h"
#include "graph/tiles.h"
#include "kernels/pair_numbers.h"
#include "ops/cuda_impl.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::tile_shape;
using graph::words_of;
using kernels::cuda::HeadTensor;

// One bit per pair must fit comfortably.
constexpr double kLargestTileBytes = 16.0 * 1024 * 1024 * 1024;
// Room for pairs that the products leave open: of random numbers a few in 10^4.
constexpr int64_t kPairsPerOpenPlace = 512;

// Up to this bound in the mean thinning beats the products (docs/kernels/cuda-windows.md), which cost more
// with more clusters and three times as much in fp32. The direct sampler can be asked for.
float thinning_bound(Sampler sampler, int64_t clusters, bool fp32) {
  if (sampler == Sampler::kThinning) return 1;
  return (clusters >= 128 ? 0.05f : 0.033f) * (fp32 ? 1.3f : 1);
}

bool thins(Sampler sampler, int64_t clusters) {
  return sampler != Sampler::kDirect && kernels::cuda::thin_sample_takes(clusters);
}

int64_t padded_clusters(int64_t clusters) {
  int64_t wanted = 32;
  while (wanted < clusters) wanted *= 2;
  return wanted;
}
at::Tensor padded(const at::Tensor& membership) {
  const int64_t missing = padded_clusters(membership.size(3)) - membership.size(3);
  return (missing > 0 ? at::constant_pad_nd(membership, {0, missing}) : membership).contiguous();
}
template <typename T>
HeadTensor<const T> view(const at::Tensor& x) {
  return {reinterpret_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
at::Tensor mask_bytes(const std::optional<at::Tensor>& mask, at::Device device) {
  return mask ? mask->to(device).contiguous() : at::Tensor();
}
const uint8_t* bytes_of(const at::Tensor& mask) {
  return mask.defined() ? reinterpret_cast<const uint8_t*>(mask.const_data_ptr<bool>()) : nullptr;
}
at::Tensor column_words(const EdgeShape& shape, at::Device device) {
  return at::empty({shape.batch, (shape.keys + 63) / 64, 4},
                   at::TensorOptions().dtype(at::kInt).device(device));
}

}  // namespace

std::string cuda_sample_refusal(const at::Tensor& query_membership, const EdgeShape& shape, Sampler sampler) {
  if (!query_membership.is_cuda()) return "the memberships are not on a CUDA device";
  if (at::cuda::getDeviceProperties(query_membership.get_device())->major != 9)
    return "the kernels are built for Hopper (compute capability 9.0)";
  if (sampler != Sampler::kAuto && sampler != Sampler::kDirect && sampler != Sampler::kThinning)
    return "only the direct sampler and thinning run on CUDA";
  if (!kernels::cuda::tile_sample_takes(padded_clusters(query_membership.size(3))))
    return "more than 256 clusters";
  if (query_membership.scalar_type() != at::kFloat && query_membership.scalar_type() != at::kBFloat16)
    return "memberships that are neither float32 nor bfloat16";
  if (shape.batch * shape.heads > 65535) return "more than 65,535 items x heads";
  if (static_cast<double>(shape.pairs()) / 8 > kLargestTileBytes)
    return "one bit per pair would take more than 16 GiB";
  return "";
}

EdgeSet cuda_sample(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                    const SampleOptions& options) {
  const at::Device device = query_membership.device();
  const c10::cuda::CUDAGuard guard(device);
  const auto int64_options = at::TensorOptions().dtype(at::kLong).device(device);
  kernels::cuda::TileSampleParams params;
  params.shape = tile_shape(shape);
  const at::Tensor queries = padded(query_membership), keys = padded(key_side);
  params.clusters = queries.size(3);
  const bool split = queries.scalar_type() == at::kFloat;
  if (split) {
    params.exact_query_membership = view<float>(queries);
    params.exact_key_side = view<float>(keys);
  } else {
    params.query_membership = view<kernels::Bf16>(queries);
    params.key_side = view<kernels::Bf16>(keys);
  }
  const auto staged = [&](int64_t tokens) {
    return at::empty({shape.batch * shape.heads, (tokens + 63) / 64, 64, params.clusters * (split ? 2 : 1)},
                     at::TensorOptions().dtype(at::kBFloat16).device(device));
  };
  const at::Tensor query_tiles = split ? staged(shape.queries) : at::Tensor(), key_tiles = staged(shape.keys);
  if (split) params.query_tiles = static_cast<kernels::Bf16*>(query_tiles.mutable_data_ptr());
  params.key_tiles = static_cast<kernels::Bf16*>(key_tiles.mutable_data_ptr());
  params.poisson = options.law == EdgeLaw::kPoisson;
  params.exploration = static_cast<float>(options.exploration);
  const at::Tensor query_mask = mask_bytes(options.query_mask, device),
                   key_mask = mask_bytes(options.key_mask, device);
  params.query_mask = bytes_of(query_mask);
  params.key_mask = bytes_of(key_mask);
  params.is_causal = options.is_causal;
  const at::Tensor streams = stream_keys_on(device, options.random, kernels::Purpose::kEdges, shape);
  params.edge_keys = reinterpret_cast<const uint64_t*>(streams.const_data_ptr<int64_t>());
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

std::string cuda_probe_refusal(const EdgeSet& edges) {
  return edges.device().is_cuda() && !edges.has_csr() ? "" : "the edges are not tiles on a CUDA device";
}

EdgeSet cuda_sample_probes(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options) {
  const EdgeShape& shape = edges.shape();
  const at::Device device = edges.device();
  const c10::cuda::CUDAGuard guard(device);
  const at::Tensor streams = stream_keys_on(device, options.random, kernels::Purpose::kProbes, shape);
  const auto rates_now = [rates, again = options.rates_again] { return again ? again() : rates; };
  const at::Tensor query_mask = mask_bytes(options.query_mask, device),
                   key_mask = mask_bytes(options.key_mask, device);
  const at::Tensor columns = column_words(shape, device);
  const at::Tensor probes = graph::empty_tiles(shape, device, /*zeroed=*/false);
  const auto fill = [&](auto& params) {
    params.shape = tile_shape(shape);
    params.tiles = words_of(edges.tiles());
    params.stream_keys = reinterpret_cast<const uint64_t*>(streams.const_data_ptr<int64_t>());
    params.query_mask = bytes_of(query_mask);
    params.key_mask = bytes_of(key_mask);
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
    return EdgeSet::from_trusted_units(shape, probes, units);
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
