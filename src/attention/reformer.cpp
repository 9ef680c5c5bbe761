#include <edgewise/attention/reformer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include <torch/types.h>

#include "ops/normal_numbers.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

constexpr double kSelf = -5e4;  // logit of a token's own key

// x [B, H, R*C, m, ...] with the chunk before appended to every chunk: [B, H, R*C, 2m, ...].
at::Tensor with_chunk_before(const at::Tensor& x) {
  return at::cat({x, x.roll(1, 2)}, 3);
}

// Rows of x [B, H, N, ...] in the order of `tokens` [B, H, K].
at::Tensor select_tokens(const at::Tensor& x, const at::Tensor& tokens) {
  return x.gather(2, tokens.unsqueeze(-1).expand({-1, -1, -1, x.size(3)}));
}

}  // namespace

ReformerAttentionOptions::ReformerAttentionOptions(int64_t num_heads_, int64_t head_dim_)
    : num_heads(num_heads_), head_dim(head_dim_) {}

ReformerAttentionImpl::ReformerAttentionImpl(ReformerAttentionOptions options_) : options(options_) {
  TORCH_CHECK_VALUE(options.num_heads > 0 && options.head_dim > 0 && options.rounds > 0 && options.chunk > 0,
                    "ReformerAttention: expected num_heads, head_dim, rounds and chunk of at least 1; got ",
                    options.num_heads, ", ", options.head_dim, ", ", options.rounds, " and ", options.chunk);
  const int64_t embed_dim = options.num_heads * options.head_dim;
  out = register_module("out", torch::nn::Linear(embed_dim, embed_dim));
}

double ReformerAttentionImpl::density(int64_t length) const {
  if (length <= options.chunk) return 1;
  return std::min(1.0, static_cast<double>(2 * options.chunk * options.rounds) / static_cast<double>(length));
}

at::Tensor ReformerAttentionImpl::buckets(const at::Tensor& query, const RandomStream& random) const {
  const at::NoGradGuard no_grad;
  const int64_t half = query.size(2) / options.chunk / 2;
  RandomStream stream = random;
  stream.first_item = 0;  // one set of rotations for every item and head
  const EdgeShape shape{1, 1, options.head_dim, options.rounds * half};
  const at::Tensor rotations =
      ops::normal_numbers(ops::stream_keys(stream, kernels::Purpose::kEdges, shape), shape, query.device())
          .to(query.scalar_type())
          .view({options.head_dim, options.rounds * half});
  const at::Tensor projected = at::matmul(query, rotations)
                                   .view({query.size(0), query.size(1), query.size(2), options.rounds, half})
                                   .transpose(2, 3);  // [B, H, R, N, b/2]
  return at::cat({projected, -projected}, -1).argmax(-1);
}

at::Tensor ReformerAttentionImpl::attend(const MethodInput& input) {
  const at::Tensor& query = input.query;
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2), dim = query.size(3);
  // Up to one chunk is a single round of a single chunk, with nothing before it.
  const bool whole = length <= options.chunk;
  const int64_t rounds = whole ? 1 : options.rounds, chunk = whole ? length : options.chunk;
  TORCH_CHECK_VALUE(whole || length % (2 * chunk) == 0,
                    "ReformerAttention: mode harness expected a multiple of ", 2 * chunk,
                    " tokens (two chunks); got ", length,
                    ". Pad to a fixed length (data.fixed_length = true), change reformer.chunk, or use mode "
                    "paper.");
  const at::Tensor positions = at::arange(length, query.options().dtype(at::kLong).requires_grad(false));
  at::Tensor tokens;  // [B, H, R*N]: round by round, sorted by bucket, then position
  if (whole) {
    tokens = positions.expand({batch, heads, length});
  } else {
    tokens = (buckets(query, input.random) * length + positions)
                 .argsort(/*stable=*/true, /*dim=*/-1)
                 .view({batch, heads, rounds * length});
  }
  const int64_t chunks = rounds * length / chunk;
  const auto cut = [&](const at::Tensor& x) { return x.view({batch, heads, chunks, chunk, dim}); };
  const auto keys_of = [&](const at::Tensor& x) { return whole ? x : with_chunk_before(x); };

  const at::Tensor sorted_query = select_tokens(query, tokens);
  const at::Tensor norm = sorted_query.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
  const at::Tensor key = keys_of(cut(sorted_query / norm));                   // [B, H, C, 2m, D]
  const at::Tensor value = keys_of(cut(select_tokens(input.value, tokens)));  // [B, H, C, 2m, D]
  const at::Tensor query_token = tokens.view({batch, heads, chunks, chunk});
  const at::Tensor key_token = keys_of(query_token);
  at::Tensor logits =
      at::matmul(cut(sorted_query), key.transpose(-2, -1)) / std::sqrt(static_cast<double>(dim));
  if (input.key_mask) {
    const at::Tensor valid =
        input.key_mask->unsqueeze(1).expand({batch, heads, length}).gather(2, tokens).view_as(query_token);
    const at::Tensor allowed = valid.unsqueeze(-1).logical_and(keys_of(valid).unsqueeze(-2));
    logits = logits.masked_fill(allowed.logical_not(), std::numeric_limits<float>::lowest());
  }
  logits = logits.masked_fill(query_token.unsqueeze(-1) == key_token.unsqueeze(-2), kSelf);

  const at::Tensor lse = logits.logsumexp(-1, /*keepdim=*/true);  // [B, H, C, m, 1]
  const at::Tensor sorted_output = at::matmul((logits - lse).exp(), value);
  // Back to the order of the tokens, round by round, and the mix of the rounds.
  const at::Tensor place = tokens.view({batch, heads, rounds, length}).argsort(/*stable=*/true, /*dim=*/-1) +
                           (at::arange(rounds, positions.options()) * length).view({rounds, 1});
  const auto unsorted = [&](const at::Tensor& x) {
    return select_tokens(x.reshape({batch, heads, rounds * length, -1}), place.view({batch, heads, -1}))
        .view({batch, heads, rounds, length, -1});
  };
  const at::Tensor output = (unsorted(sorted_output) * unsorted(lse).softmax(2)).sum(2);  // [B, H, N, D]
  const at::Tensor merged = output.transpose(1, 2).reshape({batch, length, heads * dim});
  return at::linear(merged, out->weight, out->bias).view({batch, length, heads, dim}).transpose(1, 2);
}

void ReformerAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::ReformerAttention(mode=harness, rounds=" << options.rounds
         << ", chunk=" << options.chunk << ")";
}

}  // namespace edgewise
