// CausalAttention: what a decoder asks of its attention beyond SelfAttention. Query i uses tokens up to its
// own: of this sequence, of a memory before it, or of a cache of keys and values while a sequence grows.
#pragma once

#include <edgewise/attention/self_attention.h>
#include <edgewise/edges/row_buffer.h>

#include <string>

namespace edgewise {

// What one layer keeps of the tokens before, so that a new token costs one row.
struct LayerCache {
  RowBuffer key, value;  // [B, H, S, D]
  RowBuffer features;    // what the edge source keeps about keys
  at::Tensor positions;  // a method's own table, e.g. projected distances
};

// The base is virtual, for CausalEdgeAttention shares it with the encoder's attention.
class CausalAttention : public virtual SelfAttention {
 public:
  // Tokens before a segment that it can use.
  virtual int64_t memory() const { return 0; }
  // Knows where tokens stand by itself: no position embedding is needed, and a cache may forget its oldest
  // rows.
  virtual bool is_relative() const { return false; }
  // Rows beside one per token, such as the spans of a tree: x then has `tokens` rows first, then these.
  virtual int64_t extra_rows() const { return 0; }
  // The rows that tokens first .. first + count - 1 add to a cache, the tokens first.
  virtual std::vector<int64_t> new_rows(int64_t first, int64_t count) const;
  // What is added to the training loss; undefined = nothing.
  virtual at::Tensor loss() const { return {}; }
  // After every optimiser step: parameters back into their range.
  virtual void after_step() {}
  // Why it sees tokens after the query's; empty when it does not.
  virtual std::string causal_refusal() const { return {}; }
  // Why a cache would give other edges than the whole sequence at once; empty when it gives the same.
  virtual std::string cache_refusal() const { return {}; }
};
using CausalAttentionPtr = std::shared_ptr<CausalAttention>;

}  // namespace edgewise
