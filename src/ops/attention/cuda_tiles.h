// Attention over bit tiles on CUDA, for all heads but those that windows have. Only files that are built with
// CUDA include this.
#pragma once

#include "graph/edge_windows.h"
#include "ops/attention/cuda_inputs.h"

namespace edgewise::ops {

struct TileState : KernelState {
  at::Tensor dropped;           // bit tiles of the edges that dropout removed
  double dropped_missing = -1;  // there: heads with at most so many edges are left out
};

void forward_by_tiles(const AttentionInputs& in, const graph::SparseHeads& others, AttentionForward& result,
                      TileState& state);
// learner: null without memberships.
void backward_by_tiles(CudaBackward& pass, const TileState* state, const LearnerTensors* learner,
                       const graph::SparseHeads& others);

}  // namespace edgewise::ops
