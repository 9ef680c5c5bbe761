// The kinds of attention that the library brings, file by file.
#pragma once

#include <edgewise/edges/indexer_edges.h>
#include <edgewise/train/attention_kinds.h>

#include <vector>

namespace edgewise::train {

std::vector<AttentionKind> pattern_kinds();        // dense, full, window, segments, random
std::vector<AttentionKind> sbm_kinds();            // sbm, window+sbm
std::vector<AttentionKind> sac_kinds();            // sac, window+sac
std::vector<AttentionKind> indexer_kinds();        // indexer, window+indexer
std::vector<AttentionKind> graph_kinds();          // graph, and with edges beside it
std::vector<AttentionKind> approximation_kinds();  // linear .. nystromformer
std::vector<AttentionKind> decoder_kinds();        // transformer_xl, adaptive_span, tree

// The options of [indexer].
IndexerEdgesOptions indexer_options(const Recipe& recipe);

// A policy's edges, in squares where attention.unit says so.
EdgeSourceFactory in_unit(const Recipe& recipe, EdgeSourceFactory single);
// Why such a policy, alone, has no causal form in squares; empty where it has one.
std::string squares_causal_refusal(const Recipe& recipe);
// The edges of [window], united with those of `learned`.
EdgeSourceFactory with_window(const Recipe& recipe, EdgeSourceFactory learned);
EdgeSourcePtr window_of(const Recipe& recipe);
Operations edges_alone(const Recipe& recipe, const HeadSize& size);  // AttentionKind::cost

}  // namespace edgewise::train
