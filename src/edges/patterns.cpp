// Full, window, random and given edges, and unions.
#include <edgewise/edges/patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <ostream>

#include "edges/range_edges.h"
#include "edges/square_patterns.h"
#include "graph/squares/squares.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"

namespace edgewise {

FullEdges::FullEdges(int64_t unit) : unit_(unit) {
  check_unit("FullEdges", unit);
}

EdgeChoice FullEdges::choose(const EdgeRequest& request) {
  if (unit_ > 1) return plain_choice(full_squares(request));
  return plain_choice(restricted(EdgeSet::full(request.shape(), request.query.device()), request));
}

WindowEdges::WindowEdges(int64_t width, int64_t unit) : width_(width), unit_(unit) {
  check_unit("WindowEdges", unit);
  TORCH_CHECK_VALUE(width >= 0, "WindowEdges: expected a width of 0 or more tokens on each side; got ",
                    width);
}

EdgeChoice WindowEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const at::Device device = request.query.device();
  // A growing sequence never asks again.
  const bool keep = !request.key_mask && !request.query_mask() && !request.known_keys;
  // What is made in inference mode, here or later of these edges, cannot serve training.
  const bool inference = c10::InferenceMode::is_enabled();
  if (keep && last_ && last_->edges.shape() == shape && last_->edges.device() == device &&
      last_->is_causal == request.is_causal && last_->query_offset == request.query_offset &&
      last_->inference == inference)
    return plain_choice(last_->edges);
  const auto single = [&] {
    const at::Tensor queries =
        at::arange(shape.queries, at::TensorOptions().dtype(at::kLong).device(device)) + request.query_offset;
    const int64_t ahead = request.is_causal ? 0 : width_;
    const EdgeSet edges =
        range_edges(shape, (queries - width_).unsqueeze(0), (queries + ahead + 1).unsqueeze(0));
    return keep ? edges : restricted(edges, request);
  };
  EdgeSet edges = unit_ > 1 ? window_squares(request, width_) : single();
  if (!keep) return plain_choice(std::move(edges));
  last_ = Answer{edges, request.is_causal, request.query_offset, inference};
  return plain_choice(std::move(edges));
}

void WindowEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::WindowEdges(width=" << width_ << (unit_ > 1 ? ", unit=16)" : ")");
}

SinkEdges::SinkEdges(int64_t count, int64_t unit) : count_(count), unit_(unit) {
  check_unit("SinkEdges", unit);
  TORCH_CHECK_VALUE(count >= 1, "SinkEdges: expected at least 1 key; got ", count);
}

EdgeChoice SinkEdges::choose(const EdgeRequest& request) {
  if (unit_ > 1) return plain_choice(first_squares(request, count_));
  const EdgeShape shape = request.shape();
  const at::Tensor last = at::full({1, shape.queries}, std::min(count_, shape.keys),
                                   at::TensorOptions().dtype(at::kLong).device(request.query.device()));
  return plain_choice(restricted(range_edges(shape, at::zeros_like(last), last), request));
}

void SinkEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SinkEdges(count=" << count_ << (unit_ > 1 ? ", unit=16)" : ")");
}

RandomEdges::RandomEdges(int64_t alpha, int64_t unit) : alpha_(alpha), unit_(unit) {
  check_unit("RandomEdges", unit);
  TORCH_CHECK_VALUE(alpha >= 1, "RandomEdges: expected alpha of at least 1 edge per query; got ", alpha);
}

EdgeChoice RandomEdges::choose(const EdgeRequest& request) {
  if (unit_ > 1) return plain_choice(random_squares(request, alpha_));
  const EdgeShape shape = request.shape();
  const at::Tensor keys = ops::stream_keys(request.random, kernels::Purpose::kEdges, shape);
  // The alpha largest of one number per pair; pairs that are not allowed come last and are dropped.
  const at::Tensor allowed = request.allowed().expand({shape.batch, shape.heads, shape.queries, shape.keys});
  const at::Tensor numbers =
      ops::reference::pair_numbers(keys, shape, request.query.device(), request.first_row())
          .masked_fill(allowed.logical_not(), -1);
  const at::Tensor chosen = std::get<1>(numbers.topk(std::min(alpha_, shape.keys), -1));
  return plain_choice(EdgeSet::from_mask(at::zeros_like(allowed).scatter(-1, chosen, true) & allowed));
}

std::string RandomEdges::growth_refusal() const {
  if (unit_ == 1) return {};
  return "groups of queries draw their groups of keys together; use attention.unit = 1";
}

void RandomEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::RandomEdges(alpha=" << alpha_ << (unit_ > 1 ? ", unit=16)" : ")");
}

GivenEdges::GivenEdges(EdgeSet edges) : edges_(std::move(edges)) {}

EdgeChoice GivenEdges::choose(const EdgeRequest& request) {
  TORCH_CHECK_VALUE(edges_.shape() == request.shape(), "GivenEdges: expected edges of shape ",
                    to_string(request.shape()), "; the given ones are ", to_string(edges_.shape()));
  return plain_choice(restricted(edges_.to(request.query.device()), request));
}

UnionEdges::UnionEdges(std::vector<EdgeSourcePtr> sources) : sources_(std::move(sources)) {
  TORCH_CHECK_VALUE(!sources_.empty(), "UnionEdges: expected at least one source; got none");
  for (size_t n = 0; n < sources_.size(); ++n) {
    register_module("source" + std::to_string(n), sources_[n]);
    // Who has parameters learns, whatever it says in evaluation.
    if (!sources_[n]->parameters().empty()) last_ = n;
  }
}

EdgeChoice UnionEdges::choose(const EdgeRequest& request) {
  std::optional<EdgeSet> fixed;
  std::optional<EdgeChoice> learned;
  const auto ask = [&](EdgeSource& source, const EdgeRequest& asked) {
    EdgeChoice choice = allowed_choice(source, asked);
    if (choice.learner || choice.policy) {
      TORCH_CHECK_VALUE(!learned, "UnionEdges: expected at most one source that learns; got two");
      learned = std::move(choice);
    } else {
      fixed = fixed ? fixed->united_with(choice.edges) : choice.edges;
    }
  };
  for (size_t n = 0; n < sources_.size(); ++n)
    if (n != last_) ask(*sources_[n], request);
  EdgeRequest rest = request;
  if (fixed && fixed->squares()) rest.present = fixed;
  ask(*sources_[last_], rest);
  if (!learned) return plain_choice(*fixed);
  return fixed ? with_fixed_edges(*learned, *fixed) : *learned;
}

std::string UnionEdges::first_refusal(std::string (EdgeSource::*refusal)() const) const {
  for (const EdgeSourcePtr& source : sources_)
    if (std::string reason = ((*source).*refusal)(); !reason.empty()) return reason;
  return {};
}

std::string UnionEdges::causal_refusal() const {
  return first_refusal(&EdgeSource::causal_refusal);
}
std::string UnionEdges::growth_refusal() const {
  return first_refusal(&EdgeSource::growth_refusal);
}
std::string UnionEdges::cross_refusal() const {
  return first_refusal(&EdgeSource::cross_refusal);
}
std::string UnionEdges::cross_growth_refusal() const {
  return first_refusal(&EdgeSource::cross_growth_refusal);
}

EdgeChoice with_fixed_edges(const EdgeChoice& learned, const EdgeSet& fixed) {
  EdgeChoice result = learned;
  result.edges = learned.edges.united_with(fixed);
  if (!result.learner) return result;
  TORCH_CHECK_VALUE(
      !learned.edges.squares() || result.edges.squares(),
      "with_fixed_edges: expected squares of the same pairs beside a source that learns squares; "
      "got single edges. Give the pattern the unit 16 as well");
  EdgeLearner& learner = *result.learner;
  // Of squares the learner has a number each, not one of every pair.
  const auto numbered = [](const EdgeSet& edges) -> const EdgeSet& {
    return edges.squares() ? edges.square_groups() : edges;
  };
  if (learner.values.defined()) {
    // Edges that are there anyway owe nothing to the action that chose them.
    const EdgeSet& all = numbered(result.edges);
    const auto pair_numbers = [](const EdgeSet& edges) {
      return edges.edge_rows() * edges.shape().keys + edges.col_indices();
    };
    // All of them are there: nothing need be counted, which a device would have to be waited for.
    const at::Tensor places = at::searchsorted(pair_numbers(all), pair_numbers(numbered(learned.edges)));
    learner.values = at::zeros({all.edge_count()}, learner.values.options())
                         .index_put({places}, learner.values)
                         .masked_fill(all.contained_in(numbered(fixed)), 0);
  }
  learner.fixed = learner.fixed ? learner.fixed->united_with(fixed) : fixed;
  if (learner.probes && learner.probe_values.defined()) {
    const EdgeSet& probes = numbered(*learner.probes);
    const at::Tensor is_fixed = probes.contained_in(numbered(fixed));
    if (learner.probes->squares()) {  // a source that heeds EdgeRequest::present has probed none of these
      learner.probe_values = learner.probe_values.masked_fill(is_fixed, 0);
    } else {
      learner.probe_values = learner.probe_values.masked_select(is_fixed.logical_not());
      learner.probes = probes.kept(is_fixed.logical_not());
    }
  } else if (learner.probes) {
    learner.probes = learner.probes->minus(fixed);
  }
  return result;
}

}  // namespace edgewise
