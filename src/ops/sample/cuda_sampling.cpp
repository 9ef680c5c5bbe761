#include "ops/sample/cuda_sampling.h"

#include <ATen/ops/constant_pad_nd.h>

#include "graph/bool_bytes.h"
#include "graph/cuda_launch.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

at::Tensor padded(const at::Tensor& membership) {
  const int64_t missing = sampling_clusters(membership.size(3)) - membership.size(3);
  return (missing > 0 ? at::constant_pad_nd(membership, {0, missing}) : membership).contiguous();
}

template <typename T>
kernels::cuda::HeadTensor<const T> view(const at::Tensor& x) {
  return {reinterpret_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

}  // namespace

int64_t sampling_clusters(int64_t clusters) {
  int64_t wanted = 32;
  while (wanted < clusters) wanted *= 2;
  return wanted;
}

// Up to this bound in the mean thinning beats the products (docs/kernels/cuda-windows.md), which cost more
// with more clusters and three times as much in fp32. The direct sampler can be asked for.
float thinning_bound(Sampler sampler, int64_t clusters, bool fp32) {
  if (sampler == Sampler::kThinning) return 1;
  return (clusters >= 128 ? 0.05f : 0.033f) * (fp32 ? 1.3f : 1);
}

at::Tensor mask_bytes(const std::optional<at::Tensor>& mask, at::Device device) {
  return mask ? mask->to(device).contiguous() : at::Tensor();
}

SamplingTensors::SamplingTensors(const at::Tensor& query_membership, const at::Tensor& key_side,
                                 const EdgeShape& shape, const SampleOptions& options)
    : shape_(shape),
      queries_(padded(query_membership)),
      keys_(padded(key_side)),
      query_mask_(mask_bytes(options.query_mask, query_membership.device())),
      key_mask_(mask_bytes(options.key_mask, query_membership.device())),
      streams_(stream_keys_on(query_membership.device(), options.random, kernels::Purpose::kEdges, shape)),
      poisson_(options.law == EdgeLaw::kPoisson),
      is_causal_(options.is_causal),
      exploration_(static_cast<float>(options.exploration)) {}

kernels::cuda::TileSampleParams SamplingTensors::params() const {
  kernels::cuda::TileSampleParams params;
  params.shape = graph::tile_shape(shape_);
  params.clusters = queries_.size(3);
  if (split()) {
    params.exact_query_membership = view<float>(queries_);
    params.exact_key_side = view<float>(keys_);
  } else {
    params.query_membership = view<kernels::Bf16>(queries_);
    params.key_side = view<kernels::Bf16>(keys_);
  }
  params.poisson = poisson_;
  params.exploration = exploration_;
  params.query_mask = graph::bool_bytes(query_mask_);
  params.key_mask = graph::bool_bytes(key_mask_);
  params.is_causal = is_causal_;
  params.edge_keys = reinterpret_cast<const uint64_t*>(streams_.const_data_ptr<int64_t>());
  return params;
}

}  // namespace edgewise::ops
