#include <edgewise/edges/square_edges.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/graph/mask_counts.h>
#include <edgewise/graph/square_lists.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <deque>
#include <mutex>
#include <ostream>
#include <utility>

#include "edges/bands.h"
#include "edges/kept.h"
#include "edges/range_edges.h"
#include "edges/square_nodes.h"
#include "edges/square_patterns.h"

namespace edgewise {
namespace {

using graph::kSquare;

// The groups at most `width` from each query group (bands.h), under causality none after it.
struct Band {
  EdgeShape groups;
  int64_t query_offset, width;
  bool is_causal;
  at::Device device;
  bool operator==(const Band&) const = default;
};
EdgeSet band_of(const Band& band) {
  return kept<Band, EdgeSet>().get(band, [&] {
    const at::Tensor own =
        at::arange(band.groups.queries, at::TensorOptions().dtype(at::kLong).device(band.device)) +
        band.query_offset;
    const int64_t ahead = band.is_causal ? 0 : band.width;
    const EdgeSet edges =
        range_edges(band.groups, (own - band.width).unsqueeze(0), (own + ahead + 1).unsqueeze(0));
    remember_band(edges, band.width);
    return edges;
  });
}

// What the patterns have of the groups, and in a causal request each query group's own. As a band where it is
// one: nothing need be counted then.
std::optional<EdgeSet> present_groups(const EdgeRequest& request, const EdgeRequest& groups) {
  const auto band = [&](int64_t width) {
    return band_of({groups.shape(), groups.query_offset, width, request.is_causal, request.query.device()});
  };
  if (!request.present) return request.is_causal ? std::optional(band(0)) : std::nullopt;
  TORCH_CHECK_VALUE(request.present->squares(),
                    "SquareEdges: expected edges that are present already in squares; got single edges. Give "
                    "the pattern the unit 16 as well");
  if (const auto width = known_band(*request.present)) return band(*width);
  const EdgeSet& present = request.present->square_groups();
  return request.is_causal ? present.united_with(band(0)) : present;
}

// group_mask() of a mask, kept for the other layers of a pass: who asks how many groups it allows waits for a
// device only where nobody knows that of the tokens (mask_counts.h).
std::optional<at::Tensor> kept_group_mask(const std::optional<at::Tensor>& mask) {
  if (!mask || mask->is_inference()) return group_mask(mask);  // tensors of inference mode have no version
  struct Entry {
    c10::weak_intrusive_ptr<c10::TensorImpl> mask;
    uint32_t version;
    at::Tensor groups;
  };
  static std::mutex mutex;
  static auto& entries = *new std::deque<Entry>;  // never destroyed: at exit the device may be gone before it
  const uint32_t version = mask->unsafeGetTensorImpl()->version_counter().current_version();
  const std::lock_guard lock(mutex);
  std::erase_if(entries, [](const Entry& each) { return each.mask.expired(); });
  for (const Entry& each : entries)
    if (each.mask._unsafe_get_target() == mask->unsafeGetTensorImpl() && each.version == version)
      return each.groups;
  constexpr size_t kMost = 16;
  if (entries.size() == kMost) entries.pop_front();
  const c10::InferenceMode training(false);  // what is made in inference serves training too
  const at::Tensor groups = group_mask(*mask);
  if (groups.is_cuda()) {  // as many as there are, which is all that is asked
    const at::Tensor counts = mask_group_counts(*mask);
    remember_mask_counts(groups, at::arange(groups.size(1)) < counts.unsqueeze(1));
  }
  entries.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(mask->getIntrusivePtr()), version, groups});
  return groups;
}

// [B, N, width] -> [B, groups(N), width].
at::Tensor speakers(const at::Tensor& tokens, const std::optional<at::Tensor>& mask, bool first) {
  const at::Tensor one_head = tokens.unsqueeze(1);
  return (first ? first_of_groups(one_head, mask) : mean_of_groups(one_head, mask)).squeeze(1);
}

EdgeRequest request_of_groups(const EdgeRequest& request) {
  const std::optional<at::Tensor> query_mask = request.query_mask();
  EdgeRequest groups;
  groups.query = request.is_causal ? first_of_groups(request.query, query_mask)
                                   : mean_of_groups(request.query, query_mask);
  groups.key = mean_of_groups(request.key, request.key_mask);
  groups.key_mask = kept_group_mask(request.key_mask);
  groups.is_causal = request.is_causal;
  groups.random = request.random;
  groups.query_offset = request.query_offset / kSquare;
  if (request.tokens.defined()) {
    groups.tokens = speakers(request.tokens, query_mask, request.is_causal);
    const bool one_side = !request.key_tokens.defined();
    if (!one_side || request.is_causal)
      groups.key_tokens =
          speakers(one_side ? request.tokens : request.key_tokens, request.key_mask, /*first=*/false);
  }
  groups.present = present_groups(request, groups);
  return groups;
}

// The numbers of groups become those of their squares.
EdgeLearner learner_of_squares(EdgeLearner learner, const EdgeRequest& request,
                               const graph::SquarePairs& pairs) {
  TORCH_CHECK_VALUE(learner.values.defined(),
                    "SquareEdges: expected a source that learns by values, one number per edge; got one with "
                    "memberships");
  if (learner.probes) learner.probes = EdgeSet::from_square_groups(request.shape(), *learner.probes, pairs);
  return learner;
}

}  // namespace

SquareEdges::SquareEdges(EdgeSourcePtr source) : source_(std::move(source)) {
  TORCH_CHECK_VALUE(source_, "SquareEdges: expected a source; got none");
  register_module("groups", source_);
}

EdgeChoice SquareEdges::choose(const EdgeRequest& request) {
  TORCH_CHECK_VALUE(!request.known_keys, "SquareEdges: expected no growing sequence; got one. ",
                    growth_refusal());
  TORCH_CHECK_VALUE(!request.relations,
                    "SquareEdges: expected no relations, which are between tokens; got some. Use unit 1");
  TORCH_CHECK_VALUE(request.query_offset % kSquare == 0,
                    "SquareEdges: expected queries that begin with a group of 16, at a multiple of it; got "
                    "query_offset ",
                    request.query_offset);
  const EdgeRequest groups = request_of_groups(request);
  const EdgeChoice chosen = allowed_choice(*source_, groups);
  const graph::SquarePairs pairs = allowed_square_pairs(request);
  EdgeChoice choice;
  choice.edges = EdgeSet::from_square_groups(request.shape(), chosen.edges, pairs);
  choice.policy = chosen.policy;
  if (choice.policy) choice.policy->unit = kSquare;
  if (chosen.learner) choice.learner = learner_of_squares(*chosen.learner, request, pairs);
  return choice;
}

std::string SquareEdges::cross_refusal() const {
  return "groups of 16 queries choose together, so that a token would hear of those after it; use "
         "attention.unit = 1";
}

std::string SquareEdges::growth_refusal() const {
  return "groups of 16 queries choose together, and a growing sequence ends inside of a group; use "
         "attention.unit = 1";
}

void SquareEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SquareEdges";
}

}  // namespace edgewise
