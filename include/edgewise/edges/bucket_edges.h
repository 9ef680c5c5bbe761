// BucketEdges: the edges of Reformer (Kitaev et al., arXiv 2001.04451, section 3), for queries that are also
// keys.
//
// Each of `rounds` rounds hashes the n valid tokens of an item by random rotations R [D, b/2]: bucket =
// argmax([xR; -xR]), with b = 2 ceil(n / chunk) buckets. Tokens sorted by (bucket, position) are cut into
// chunks; a query reaches the keys of its own bucket that lie in its own chunk or in the one before. Its
// edges are the union over the rounds; the self-loop is there only for a query that has no other edge.
//
// With shared queries and keys, keys of norm 1 and edge_attention this is the paper's attention: mixing
// rounds by their log-sum-exp, with the correction for pairs met twice, is a softmax over the union.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

struct BucketEdgesOptions {
  int64_t rounds = 2;
  int64_t chunk = 64;  // tokens; a bucket holds half as many on average
};

class BucketEdgesImpl : public EdgeSource {
 public:
  explicit BucketEdgesImpl(BucketEdgesOptions options = {});
  // Hashes request.query. Rotations are drawn per item and head from request.random.
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string causal_refusal() const override;
  std::string cross_refusal() const override { return "queries and keys share their buckets"; }
  // The buckets of every token: [B, H, rounds, N] int64. Numbers of one item and round are ordered but not
  // dense.
  at::Tensor buckets(const EdgeRequest& request) const;
  void pretty_print(std::ostream& stream) const override;

  BucketEdgesOptions options;
};
TORCH_MODULE(BucketEdges);

}  // namespace edgewise
