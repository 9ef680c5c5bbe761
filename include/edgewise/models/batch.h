// Batch: what a model reads and a task scores. Every tensor has one entry per item first, so that moving,
// pinning and slicing are the same for all of them: Batch::map.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace edgewise {

struct EdgeRelations;  // edgewise/edges/edge_source.h
class InputGraph;      // edgewise/models/input_graph.h

// One sequence, picture or graph per item: tokens, or features, or both.
struct Tower {
  at::Tensor tokens = {};     // [B, N] int64
  at::Tensor features = {};   // [B, N, F] floating point
  at::Tensor mask = {};       // [B, N] bool, true = valid token; undefined = all valid
  at::Tensor positions = {};  // [B, N] int64: where each token stands; undefined = token n stands at n
  // [B, R, 3] int64: query, key and id of pairs known beforehand, such as the edges of an input graph. An id
  // is 1 or more; 0 fills up the rows of items that have fewer.
  at::Tensor relations = {};
  // Of graphs: the graph whose nodes the tokens number, with its features and edges. One item alone has it.
  std::shared_ptr<const InputGraph> graph = {};

  int64_t items() const { return defined().size(0); }
  int64_t length() const { return defined().size(1); }  // N
  std::optional<at::Tensor> key_mask() const { return mask.defined() ? std::optional(mask) : std::nullopt; }

 private:
  const at::Tensor& defined() const { return tokens.defined() ? tokens : features; }
};

struct Batch {
  std::vector<Tower> towers = {};  // one, or two for pairs of sequences
  // [B] int64, or [B, N] for labels of tokens, -1 = no target; with places() [B, M], one for each of them.
  at::Tensor labels = {};
  std::map<std::string, at::Tensor> more = {};  // [B, ...] by name: what else a task is scored by
  // A part of the batch may be cut to its own longest item, rounded up to a multiple of this; 0 = the length
  // is fixed, padding is part of the task.
  int64_t trim_multiple = 0;
  int64_t sequence_length = 0;  // with positions: of the whole sequence, for means over all of it

  int64_t size() const { return towers.empty() ? 0 : towers[0].items(); }
  // more["places"], [B, M] int64: the only tokens that a model of tokens answers for, where they are few.
  const at::Tensor* places() const;
  // The same batch with every tensor that it has changed, always in the same order.
  Batch map(const std::function<at::Tensor(const at::Tensor&)>& change) const;
  std::vector<at::Tensor> tensors() const;  // in the order of map()
};

Batch to_device(const Batch& batch, at::Device device);
// In memory that a GPU fetches from by itself while the host goes on.
Batch pinned(const Batch& batch);
// Items first .. first + count of the batch, without the padding that only the other items needed (where the
// batch allows it: Batch::trim_multiple).
Batch slice_items(const Batch& batch, int64_t first, int64_t count);

// A tower's relations as edges among its N tokens, for EdgeRequest::relations; none without. Throws for a
// pair outside of the sequence and for two relations of one pair.
std::optional<EdgeRelations> relations_of(const Tower& tower);

}  // namespace edgewise
