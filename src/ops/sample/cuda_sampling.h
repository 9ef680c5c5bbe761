// What the CUDA samplers over tiles and over lists share.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/ops/sample.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::ops {

// The clusters that a kernel is built for and that hold so many.
int64_t sampling_clusters(int64_t clusters);

// A block of rows thins up to this bound in the mean.
float thinning_bound(Sampler sampler, int64_t clusters, bool fp32);

at::Tensor mask_bytes(const std::optional<at::Tensor>& mask, at::Device device);

// Bit tiles, or lists where there are too many pairs for them. `refusal` is empty when the samplers take the
// call.
std::string cuda_sample_refusal(const at::Tensor& query_membership, const EdgeShape& shape, Sampler sampler);
EdgeSet cuda_sample(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                    const SampleOptions& options);
std::string cuda_probe_refusal(const EdgeSet& edges, int64_t probe_unit);
EdgeSet cuda_sample_probes(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options);

// The tensors of a call, in the form that the kernels read, for as long as they run.
class SamplingTensors {
 public:
  SamplingTensors(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                  const SampleOptions& options);

  bool split() const { return queries_.scalar_type() == at::kFloat; }  // fp32: two bf16 terms on tensor cores
  // Shape, clusters, memberships, law, masks and stream keys; no output and no scratch.
  kernels::cuda::TileSampleParams params() const;

 private:
  EdgeShape shape_;
  at::Tensor queries_, keys_, query_mask_, key_mask_, streams_;
  bool poisson_, is_causal_;
  float exploration_;
};

// Edges as lists (cuda_list_sample.cpp): where there are so many pairs, and so few of them edges, that lists
// are cheaper than a bit a pair. Asks the device how many edges to expect when there are many pairs.
bool cuda_samples_lists(const at::Tensor& query_membership, const at::Tensor& key_side,
                        const EdgeShape& shape, const SampleOptions& options);
EdgeSet cuda_sample_lists(const at::Tensor& query_membership, const at::Tensor& key_side,
                          const EdgeShape& shape, const SampleOptions& options);
// Probes in units, of edges that are lists.
EdgeSet cuda_list_probes(const EdgeSet& edges, const std::vector<double>& rates,
                         const SampleOptions& options);

}  // namespace edgewise::ops
