// InputGraph: a graph as a model reads it: sparse features of the nodes, and edges. What a device or a dtype
// has asked for is kept, so that a graph that is trained on again and again is moved once.
#pragma once

#include <edgewise/edges/edge_source.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/graph/sparse_matrix.h>

#include <map>
#include <mutex>
#include <string>

namespace edgewise {

// Ids of InputGraph's relations.
inline constexpr int64_t kEdgeRelation = 1, kLoopRelation = 2;

class InputGraph {
 public:
  struct Parts {
    SparseMatrix features;    // of N nodes
    EdgeRelations relations;  // [1, 1, N, N] the edges, and a loop at every node
  };

  // features: [N, F] on the CPU. edges: [E, 2] int64 or int32, the node that attends and the one that it
  // attends to; without loops, once each. Throws for a pair outside of the nodes, a loop or a repeated pair.
  InputGraph(SparseMatrix features, const at::Tensor& edges);

  int64_t nodes() const { return features_.rows.shape().queries; }
  int64_t features() const { return features_.rows.shape().keys; }
  // Thread-safe.
  const Parts& on(at::Device device, at::ScalarType dtype = at::kFloat) const;

 private:
  SparseMatrix features_;
  EdgeRelations relations_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Parts> parts_;  // by device and dtype
};

}  // namespace edgewise
