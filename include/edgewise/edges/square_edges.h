// SquareEdges: a source that chooses among tokens chooses among groups of 16 of them, and its edges become
// squares of 16 x 16 pairs (<edgewise/graph/square_lists.h>). Time and memory of the choice fall by 256.
//
// A group is the mean of its valid tokens. In a causal request the first token of a query group speaks for
// it, since all of its queries know that one, and it chooses among the key groups that lie wholly before it:
// its own must come from a pattern. What request.present has already is not chosen again.
#pragma once

#include <edgewise/edges/edge_source.h>

namespace edgewise {

class SquareEdges : public EdgeSource {
 public:
  // The source must learn by numbers of its own for every edge (EdgeLearner::values), by rewards, or not at
  // all.
  explicit SquareEdges(EdgeSourcePtr source);

  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string causal_refusal() const override { return source_->causal_refusal(); }
  std::string cross_refusal() const override;
  std::string growth_refusal() const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  EdgeSourcePtr source_;
};

}  // namespace edgewise
