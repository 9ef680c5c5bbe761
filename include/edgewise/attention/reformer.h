// ReformerAttention: hashing attention as the comparison code runs it. (Reformer as printed is attention over
// edges: edges/bucket_edges.h, with shared queries and keys.)
//
// Queries and keys are one projection; keys are divided by their norm. Each of `rounds` rounds hashes the
// tokens into N / chunk buckets, sorts them by bucket and cuts them into chunks; a query attends to its own
// chunk and the one before, whatever their buckets. The chunks of all rounds stand in one ring, so the first
// chunk of a round looks back into the round before. Rounds are mixed by softmax of their log-sum-exp; a pair
// met in two rounds counts twice. A token has itself for a key only when nothing else is left (logit -5e4). N
// must be a multiple of 2 chunk; up to one chunk of tokens attend densely. Then an output projection of its
// own.
//
// Rotations follow the stream (seed, step, layer), one set for all items and heads of a call.
#pragma once

#include <edgewise/attention/attention_method.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

struct ReformerAttentionOptions {
  ReformerAttentionOptions(int64_t num_heads, int64_t head_dim);

  int64_t num_heads;
  int64_t head_dim;
  int64_t rounds = 2;
  int64_t chunk = 64;
};

class ReformerAttentionImpl : public AttentionMethod {
 public:
  explicit ReformerAttentionImpl(ReformerAttentionOptions options);
  // Uses query and value; key is the query's.
  at::Tensor attend(const MethodInput& input) override;
  double density(int64_t length) const override;
  void pretty_print(std::ostream& stream) const override;

  // The buckets of every token: [B, H, rounds, N] int64, for query [B, H, N, D].
  at::Tensor buckets(const at::Tensor& query, const RandomStream& random) const;

  ReformerAttentionOptions options;
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(ReformerAttention);

}  // namespace edgewise
