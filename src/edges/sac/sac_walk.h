// The walks of SacEdges in plain ATen: the documentation, the fallback and the oracle of faster ones.
//
// B items, G groups of heads that share edges, L queries, S keys, P the predictor's width, A actions. A
// rooted walk has R = L walkers a group that step side by side; a walk of pairs has one.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/sac_edges.h>

#include <functional>
#include <vector>

namespace edgewise::sac {

// Everything a walk depends on but its random numbers.
struct WalkInputs {
  at::Tensor tokens;       // [B, L, embed_dim], as the predictor saw them
  at::Tensor query_nodes;  // [B, G, L, P]
  at::Tensor key_nodes;    // [B, G, S, P]
  at::Tensor allowed;      // [B, G, L, S] bool: the candidates; undefined when not asked for
  at::Tensor
      limits;  // [B, L] int64: edges of each query (rooted; undefined = alpha each); [B] of each item (pairs)
  at::Tensor buckets;    // [L, S] int64: distance bucket; undefined without distance encoding
  at::Tensor relations;  // [B, L, S] int64; undefined without
  at::Tensor own_rows;   // [B, L] bool: queries with a self-edge that is always there; undefined without
};

// The distributions of one step of a rooted walk.
struct WalkStep {
  at::Tensor log_p;    // [B, G, L, S]
  at::Tensor allowed;  // [B, G, L, S] candidates that were left
  at::Tensor is_live;  // [B, G, L] rows that act
};

struct WalkResult {
  at::Tensor source;       // [B, G, A] int64
  at::Tensor destination;  // [B, G, A] int64
  at::Tensor taken;        // [B, G, A] bool: whether this action took place
  at::Tensor log_prob;     // [B, G, A], 0 where it did not
  at::Tensor entropy;      // [B, G, A] of the prediction (pairs: of both together)
  at::Tensor chosen;       // [B, G, A] bool: ... by choice. Elsewhere the log-probability is 0
  at::Tensor certain;      // [B, G, L, S] bool: more edges, that no choice was needed for; undefined = none
  int64_t steps = 0;       // actions of a source: A = L * steps (rooted), A = steps (pairs)
  // Of a rooted walk whose kernel sorts: keys of each query, S where there is none, and the action of each.
  // `source` may then be undefined, and what belongs to actions where nobody asks for them.
  at::Tensor sorted;       // [B, G, L, steps] int32
  at::Tensor order;        // [B, G, L, steps] int64
  bool all_taken = false;  // known before the walk: every query makes `steps` edges
  // Or how many each makes: the edges of all heads in `sorted`, [E]. Undefined = not known. And where those
  // of a row begin, [B * H * L + 1], known with either.
  at::Tensor places, offsets;
  // Rooted, when asked for: of a plain walk its distributions, of a kernel's the states.
  std::vector<WalkStep> distributions;
  at::Tensor states;  // [B, G, L, steps, P], 0 where nothing was chosen
};

// Picks one node a walker, [B, G, R], from log-probabilities [B, G, R, N]. `prediction` counts the
// predictions of a walker: the step (rooted), or 2 * edge for sources and 2 * edge + 1 for destinations
// (pairs).
using Chooser = std::function<at::Tensor(const at::Tensor& log_p, int64_t prediction)>;
Chooser greedy_chooser();
// By inverse transform from uniforms [B, G, R, predictions].
Chooser sampling_chooser(at::Tensor uniforms);
// The actions of an earlier walk.
Chooser given_chooser(const WalkResult& actions, SacWalk walk);

WalkResult rooted_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const Chooser& choose,
                       bool keep_distributions = false);
WalkResult pairs_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const Chooser& choose);
// The walk of the highest probability that a beam of options.beam finds. No gradients, no log-probabilities.
WalkResult beam_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs);

// ---- shared by the walks ----

// Rows (rooted) or items (pairs) with no more candidates than edges to make take them all, and nothing is
// left to chance. Gives the walkers that do choose, [B, G, R] bool, and fills result.certain.
at::Tensor settle_certain(const SacEdgesOptions& options, const WalkInputs& inputs, WalkResult& result);
int64_t longest_walk(const at::Tensor& limits, const at::Tensor& choosing);

struct LstmState {
  at::Tensor hidden, cell;  // [B, G, R, P]
};
LstmState lstm_start(const at::Tensor& like);  // zeros
LstmState lstm_step(const SacEdgesImpl& predictor, const at::Tensor& input, const LstmState& state);

// Scores of nodes, [B, G, R, N]. `prepared` is prepare_nodes(nodes), made once a walk.
at::Tensor prepare_nodes(const SacEdgesImpl& predictor, const at::Tensor& nodes);
at::Tensor node_scores(const SacEdgesImpl& predictor, const at::Tensor& hidden, const at::Tensor& prepared);
// What distance and relations add to the scores of destinations, for the sources `source` [B, G, R], or for R
// = L walkers that are their own sources when it is undefined.
at::Tensor distance_scores(const SacEdgesImpl& predictor, const WalkInputs& inputs, const at::Tensor& hidden,
                           const at::Tensor& source = {});
// Low enough to vanish in fp32 and fp64, and finite, so that 0 times it is 0.
inline constexpr double kForbidden = -1e30;
// log softmax over the allowed nodes; the others get a log-probability so low that they are never chosen and
// add 0 to sums. Walkers that are not live may be given anything.
at::Tensor log_probabilities(const at::Tensor& scores, const at::Tensor& allowed, const at::Tensor& is_live);
at::Tensor entropy_of(const at::Tensor& log_p);                          // [B, G, R]
at::Tensor pick(const at::Tensor& values, const at::Tensor& index);      // [.., N] at [..] -> [..]
at::Tensor pick_rows(const at::Tensor& nodes, const at::Tensor& index);  // [B, G, N, P] at [B, G, R]

}  // namespace edgewise::sac
