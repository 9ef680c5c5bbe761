#include "edges/square_nodes.h"

#include <edgewise/graph/square_lists.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>

#include "edges/sbm/sbm_pairs.h"
#include "graph/bool_bytes.h"

namespace edgewise {

using graph::groups_of;
using graph::kSquare;

namespace {

// [B, H, N, D] -> [B, H, groups(N), 16, D]; zeros fill up the last group.
at::Tensor in_groups(const at::Tensor& tokens) {
  const int64_t groups = groups_of(tokens.size(2)), more = groups * kSquare - tokens.size(2);
  return (more == 0 ? tokens : at::constant_pad_nd(tokens, {0, 0, 0, more})).unflatten(2, {groups, kSquare});
}

}  // namespace

at::Tensor tokens_in_groups(int64_t tokens, const std::optional<at::Tensor>& mask,
                            const at::TensorOptions& options) {
  const int64_t groups = groups_of(tokens), more = groups * kSquare - tokens;
  if (mask)
    return at::constant_pad_nd(graph::zeros_and_ones(*mask), {0, more}, 0)
        .view({mask->size(0), groups, kSquare})
        .sum(2)
        .to(options.dtype());
  at::Tensor counts = at::full({1, groups}, kSquare, options);
  if (more > 0) counts.narrow(1, groups - 1, 1).fill_(kSquare - more);
  return counts;
}

at::Tensor first_of_groups(const at::Tensor& tokens, const std::optional<at::Tensor>& mask) {
  const int64_t groups = groups_of(tokens.size(2));
  if (!mask) return tokens.slice(2, 0, tokens.size(2), kSquare);
  const at::Tensor valid =
      at::constant_pad_nd(graph::zeros_and_ones(*mask), {0, groups * kSquare - mask->size(1)}, 0)
          .view({mask->size(0), groups, kSquare});
  const at::Tensor place = at::arange(groups, valid.options().dtype(at::kLong)) * kSquare +
                           valid.to(at::kLong).argmax(2);  // [B, groups]; of equals the first
  const at::Tensor index = place.view({mask->size(0), 1, groups, 1})
                               .expand({tokens.size(0), tokens.size(1), groups, tokens.size(3)});
  return masked_nodes(tokens.gather(2, index), valid.any(2));
}

at::Tensor mean_of_groups(const at::Tensor& tokens, const std::optional<at::Tensor>& mask) {
  if (!mask && tokens.size(2) % kSquare == 0) return in_groups(tokens).mean(3);
  const at::Tensor counts = tokens_in_groups(tokens.size(2), mask, tokens.options().requires_grad(false));
  return in_groups(masked_nodes(tokens, mask)).sum(3) / counts.clamp_min(1).unsqueeze(1).unsqueeze(3);
}

}  // namespace edgewise
