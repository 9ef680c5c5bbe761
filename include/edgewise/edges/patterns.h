// Edge sources that do not learn, and the union of sources.
//
// `unit`: edges come one by one (1), or in squares of 16 queries and 16 keys (16,
// <edgewise/graph/square_lists.h>), of which a request leaves the pairs that it allows.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <vector>

namespace edgewise {

// Every valid pair.
class FullEdges : public EdgeSource {
 public:
  explicit FullEdges(int64_t unit = 1);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }

 private:
  int64_t unit_;
};

// Keys within `width` tokens on each side of the query: |i - j| <= width. width = 0 is self-loops. In
// squares: all that such a window of one of their queries touches; width = 0 is a query's own group.
class WindowEdges : public EdgeSource {
 public:
  explicit WindowEdges(int64_t width, int64_t unit = 1);
  int64_t width() const { return width_; }
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  int64_t width_, unit_;
  // The answer to the last request without a mask: steps of one size ask for the same again, and what has
  // been made of the edges (tiles, columns) is there already.
  struct Answer {
    EdgeSet edges;
    bool is_causal;
    int64_t query_offset;
    bool inference;  // made in torch's inference mode
  };
  std::optional<Answer> last_;
};

// The first `count` keys of the sequence, for every query: where attention puts the weight that it has no
// better use for. In squares: their groups.
class SinkEdges : public EdgeSource {
 public:
  explicit SinkEdges(int64_t count, int64_t unit = 1);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  int64_t count_, unit_;
};

// `alpha` keys per query (groups of keys per group of queries), drawn uniformly among the allowed ones, anew
// at every step and for every head. Looks at every pair: a yardstick, not a way to save time.
class RandomEdges : public EdgeSource {
 public:
  explicit RandomEdges(int64_t alpha, int64_t unit = 1);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string growth_refusal() const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  int64_t alpha_, unit_;
};

// Edges given by the caller, e.g. of an input graph; must have the shape of every request.
class GivenEdges : public EdgeSource {
 public:
  explicit GivenEdges(EdgeSet edges);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }

 private:
  EdgeSet edges_;
};

// Adds edges that are there whatever the learner decides: it gets no credit for them, and does not probe
// them. Beside a learner of squares they must come in squares too.
EdgeChoice with_fixed_edges(const EdgeChoice& learned, const EdgeSet& fixed);

// The union of sources, of which at most one learns. It is asked last: in squares it is told what the others
// have chosen (EdgeRequest::present).
class UnionEdges : public EdgeSource {
 public:
  explicit UnionEdges(std::vector<EdgeSourcePtr> sources);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string causal_refusal() const override;
  std::string growth_refusal() const override;
  std::string cross_refusal() const override;
  std::string cross_growth_refusal() const override;

 private:
  std::string first_refusal(std::string (EdgeSource::*refusal)() const) const;

  std::vector<EdgeSourcePtr> sources_;
  size_t last_ = 0;  // to be asked: the one that learns, if any
};

}  // namespace edgewise
