// The fused rooted walk of SacEdges in blocks as a differentiable op (CPU):
// kernels/cpu/walk/block_walk_level.cpp behind autograd.
#pragma once

#include "ops/walk/rooted_walk.h"

namespace edgewise::ops {

struct BlockWalkBlocks {
  int64_t size = 0;     // keys a block
  at::Tensor distance;  // [G, D], differentiable: of block b for query i, at start[i] + b; undefined = none
  at::Tensor start;     // [L] int64
};

// As rooted_walk(), but log_prob and entropy are zeros unless rules.learns; every prediction is a block, then
// a key inside it.
RootedWalkActions block_walk(const WalkTensors& tensors, const BlockWalkBlocks& blocks,
                             const WalkRules& rules);

}  // namespace edgewise::ops
