#include "edges/sac/sac_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "edges/bands.h"
#include "edges/kept.h"

namespace edgewise::sac {
namespace {

at::TensorOptions whole_numbers(const EdgeRequest& request) {
  return at::TensorOptions().dtype(at::kLong).device(request.query.device());
}

// j - (query_offset + i): [L, S].
at::Tensor distances(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const at::Tensor queries = at::arange(shape.queries, whole_numbers(request)) + request.query_offset;
  return at::arange(shape.keys, whole_numbers(request)).unsqueeze(0) - queries.unsqueeze(1);
}

}  // namespace

at::Tensor own_pairs(const EdgeRequest& request) {
  return distances(request) == 0;
}

std::optional<int64_t> walk_gap(const SacEdgesOptions& options, const EdgeRequest& request) {
  if (request.present) return known_band(*request.present);
  return options.self_edges == SelfEdges::kAllowed ? -1 : 0;
}

at::Tensor allowed_pairs(const SacEdgesOptions& options, const EdgeRequest& request, int64_t groups) {
  const EdgeShape shape = request.shape();
  at::Tensor allowed = request.allowed();
  if (options.self_edges != SelfEdges::kAllowed) allowed = allowed & own_pairs(request).logical_not();
  if (options.candidates) {
    const at::Tensor given = options.candidates->choose(request).edges.to_mask();  // [B, H, L, S]
    // Heads that share their edges choose among the candidates of all of them.
    allowed = allowed & (groups == 1 ? given.any(1, true) : given);
  }
  if (request.present) {
    const at::Tensor present = request.present->to_mask();
    allowed = allowed & (groups == 1 ? present.all(1, true) : present).logical_not();
  }
  return allowed.expand({shape.batch, groups, shape.queries, shape.keys}).contiguous();
}

at::Tensor walk_limits(const SacEdgesOptions& options, const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const auto mask = request.query_mask();
  const at::Tensor valid =
      mask ? mask->to(at::kLong) : at::ones({shape.batch, shape.queries}, whole_numbers(request));
  const at::Tensor count = valid.sum(1);  // [B]
  if (options.walk == SacWalk::kPairs)
    return options.budget > 0 ? at::full_like(count, options.budget) : count * options.alpha;
  if (options.budget == 0) return valid * options.alpha;
  // The budget is shared out evenly; what is left over goes to the first queries.
  const at::Tensor rank = valid.cumsum(1) - 1, queries = count.clamp_min(1).unsqueeze(1);
  const at::Tensor budget = at::full_like(queries, options.budget);
  return (budget.div(queries, "floor") + (rank < budget.remainder(queries)).to(at::kLong)) * valid;
}

at::Tensor distance_buckets(const EdgeRequest& request, int64_t buckets, int64_t max_distance) {
  return bucket_of_distance(distances(request), buckets, max_distance);
}

DistanceRange distance_range(const SacEdgesImpl& predictor, const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const at::Tensor& table = predictor.distance_table;
  return {1 - shape.queries - request.query_offset, shape.keys - request.query_offset, table.size(1),
          predictor.options.max_distance, table.device()};
}

at::Tensor known_buckets(const DistanceRange& range) {
  return kept<DistanceRange, at::Tensor>().get(range, [&] {
    const at::Tensor distance = at::arange(range.begin, range.end, at::TensorOptions().dtype(at::kLong));
    return bucket_of_distance(distance, range.buckets, range.max_distance).to(range.device);
  });
}

at::Tensor bucket_of_distance(const at::Tensor& distance, int64_t buckets, int64_t max_distance) {
  const at::Tensor far = distance.abs();
  const int64_t half = buckets / 2, exact = std::max<int64_t>(half / 2, 1);
  const double growth =
      std::log(std::max(static_cast<double>(max_distance) / static_cast<double>(exact), 1.0001));
  const at::Tensor logarithmic = ((far.clamp_min(1).to(at::kDouble) / static_cast<double>(exact)).log() /
                                  growth * static_cast<double>(half - exact))
                                     .floor()
                                     .to(at::kLong) +
                                 exact;
  const at::Tensor bucket = at::where(far < exact, far, logarithmic).clamp_max(half - 1);
  return bucket + (distance > 0).to(at::kLong) * half;
}

at::Tensor relation_ids(const EdgeRequest& request, int64_t relations) {
  const EdgeShape shape = request.shape();
  const EdgeRelations& given = *request.relations;
  const EdgeShape expected{shape.batch, 1, shape.queries, shape.keys};
  TORCH_CHECK_VALUE(given.edges.shape() == expected, "SacEdges: expected relations of shape ",
                    to_string(expected), "; got ", to_string(given.edges.shape()));
  TORCH_CHECK_VALUE(given.ids.dim() == 1 && given.ids.size(0) == given.edges.edge_count(),
                    "SacEdges: expected one relation id per edge, [", given.edges.edge_count(), "]; got ",
                    given.ids.sizes());
  if (given.ids.numel() > 0) {
    const int64_t lowest = given.ids.min().item<int64_t>(), highest = given.ids.max().item<int64_t>();
    TORCH_CHECK_INDEX(lowest >= 1 && highest <= relations, "SacEdges: expected relation ids in [1, ",
                      relations, "]; got ids from ", lowest, " to ", highest,
                      ". Raise the option relations.");
  }
  const at::Tensor places = given.edges.edge_rows() * shape.keys + given.edges.col_indices();
  return at::zeros({shape.batch * shape.queries * shape.keys}, whole_numbers(request))
      .index_put({places.to(request.query.device())}, given.ids.to(request.query.device()))
      .view({shape.batch, shape.queries, shape.keys});
}

}  // namespace edgewise::sac
