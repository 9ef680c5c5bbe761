// What a walk of SacEdges may choose from, and how far away it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/sac_edges.h>

#include <optional>

namespace edgewise::sac {

// The pairs that the request and the options allow: [B, G, L, S] bool.
at::Tensor allowed_pairs(const SacEdgesOptions& options, const EdgeRequest& request, int64_t groups);
// Query i chooses no key at most so far from its own place: 0 only that one, -1 not even it. Nothing where
// such a number does not say what request.present has.
std::optional<int64_t> walk_gap(const SacEdgesOptions& options, const EdgeRequest& request);
// Pairs (i, query_offset + i): [L, S] bool.
at::Tensor own_pairs(const EdgeRequest& request);
// Edges to make: per query [B, L] (rooted), or per item [B] (pairs).
at::Tensor walk_limits(const SacEdgesOptions& options, const EdgeRequest& request);
// Bucket of j - (query_offset + i): [L, S] int64. Half of the buckets for keys before the query and itself,
// half for those after it; the nearest distances have a bucket each, farther ones share buckets that grow
// geometrically up to max_distance.
at::Tensor distance_buckets(const EdgeRequest& request, int64_t buckets, int64_t max_distance);
// Buckets of the distances begin .. end - 1, kept: the bucket of j - (query_offset + i) stands at that
// distance less `begin`.
struct DistanceRange {
  int64_t begin, end, buckets, max_distance;
  at::Device device;
  bool operator==(const DistanceRange&) const = default;
};
DistanceRange distance_range(const SacEdgesImpl& predictor, const EdgeRequest& request);
at::Tensor known_buckets(const DistanceRange& range);  // [end - begin] int64
at::Tensor bucket_of_distance(const at::Tensor& distance, int64_t buckets, int64_t max_distance);
// Relation of every pair: [B, L, S] int64.
at::Tensor relation_ids(const EdgeRequest& request, int64_t relations);

}  // namespace edgewise::sac
