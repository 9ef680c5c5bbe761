// Edges from an input graph (EdgeRequest::relations), and edges beside it that nothing learns: the controls
// that learned edges have to beat at equal numbers.
//
// All but GraphEdges leave out what the graph has already. Nodes have no order: nothing here looks at the
// distance of their numbers.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <optional>

namespace edgewise {

// The relations of the request, for every head. With drop > 0 training leaves out this share of the edges at
// random, anew in every step (DropEdge, arXiv 1907.10903); loops stay.
class GraphEdges : public EdgeSource {
 public:
  explicit GraphEdges(double drop = 0);
  EdgeChoice choose(const EdgeRequest& request) override;

 private:
  double drop_;
  std::optional<EdgeSet> from_, repeated_;  // the last request's relations, and these for every head
};

// `count` nodes to every node.
class ExtraEdges : public EdgeSource {
 public:
  explicit ExtraEdges(int64_t count);
  EdgeChoice choose(const EdgeRequest& request) override;

 protected:
  // [1, 1, N, N] without what the graph has.
  virtual EdgeSet extra(const EdgeRequest& request) = 0;
  virtual bool is_drawn() const { return false; }  // anew in every step

  int64_t count_;

 private:
  std::optional<EdgeSet> from_, made_;
};

// Drawn uniformly, anew in every step.
class RandomExtraEdges : public ExtraEdges {
 public:
  using ExtraEdges::ExtraEdges;

 private:
  EdgeSet extra(const EdgeRequest& request) override;
  bool is_drawn() const override { return true; }
};

// Those whose features (EdgeRequest::features) are nearest by the cosine. Looks at every pair, once.
class NearestEdges : public ExtraEdges {
 public:
  using ExtraEdges::ExtraEdges;

 private:
  EdgeSet extra(const EdgeRequest& request) override;
};

// Neighbours of neighbours, as many of them as there are up to `count`, those that most paths of two edges
// lead to.
class TwoHopEdges : public ExtraEdges {
 public:
  using ExtraEdges::ExtraEdges;

 private:
  EdgeSet extra(const EdgeRequest& request) override;
};

// Pairs that a learner may choose among beside the graph: those that it has not, between nodes at most `hops`
// edges apart; hops = 0: all of them. Looks at every pair, once a graph.
class BeyondGraph : public EdgeSource {
 public:
  explicit BeyondGraph(int64_t hops = 0);
  EdgeChoice choose(const EdgeRequest& request) override;

 private:
  int64_t hops_;
  std::optional<EdgeSet> from_, made_;
};

}  // namespace edgewise
