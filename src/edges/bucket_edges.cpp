// Buckets, chunks, and from them the edges: all over tensors, so on any device.
#include <edgewise/edges/bucket_edges.h>

#include <limits>
#include <ostream>

#include <ATen/ATen.h>

#include "ops/normal_numbers.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

// [B] int64.
at::Tensor valid_tokens(const EdgeRequest& request) {
  if (request.key_mask) return request.key_mask->sum(1);
  return at::full({request.query.size(0)}, request.query.size(2),
                  at::TensorOptions().dtype(at::kLong).device(request.query.device()));
}

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

BucketEdgesImpl::BucketEdgesImpl(BucketEdgesOptions options_) : options(options_) {
  TORCH_CHECK_VALUE(options.rounds > 0 && options.chunk > 0,
                    "BucketEdges: expected rounds and chunk of at least 1; got ", options.rounds, " and ",
                    options.chunk);
}

at::Tensor BucketEdgesImpl::buckets(const EdgeRequest& request) const {
  const EdgeShape shape = request.shape();
  const int64_t dim = request.query.size(3), rounds = options.rounds;
  const int64_t most = round_up(shape.queries, options.chunk) / options.chunk;  // b/2 of a full-length item
  // Columns (rotation, round), rotation first: an item's numbers do not depend on how far it is padded.
  const EdgeShape numbers{shape.batch, shape.heads, dim, most * rounds};
  const at::Tensor rotations =
      ops::normal_numbers(ops::stream_keys(request.random, kernels::Purpose::kEdges, numbers), numbers,
                          request.query.device())
          .to(at::kFloat);
  const at::Tensor projected = at::matmul(request.query.detach().to(at::kFloat), rotations)
                                   .view({shape.batch, shape.heads, shape.queries, most, rounds})
                                   .permute({0, 1, 4, 2, 3});  // [B, H, R, N, b/2]
  const at::Tensor half =
      (valid_tokens(request) + options.chunk - 1).div(options.chunk, "floor").clamp_min(1);
  const at::Tensor column = at::arange(most, half.options());
  const at::Tensor surplus = (column >= half.unsqueeze(1)).view({shape.batch, 1, 1, 1, most});
  const double lowest = -std::numeric_limits<double>::infinity();
  return at::cat({projected.masked_fill(surplus, lowest), (-projected).masked_fill(surplus, lowest)}, -1)
      .argmax(-1);
}

EdgeChoice BucketEdgesImpl::choose(const EdgeRequest& request) {
  const at::NoGradGuard no_grad;
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.queries == shape.keys,
                    "BucketEdges: expected as many keys as queries, for they are the same vectors; got ",
                    to_string(shape));
  EdgeChoice choice;
  if (shape.pairs() == 0) {
    choice.edges = EdgeSet::none(shape, request.query.device());
    return choice;
  }
  const int64_t length = shape.queries, chunk = options.chunk, rounds = options.rounds;
  const auto numbers = at::TensorOptions().dtype(at::kLong).device(request.query.device());
  const at::Tensor positions = at::arange(length, numbers);
  const at::Tensor valid = request.key_mask
                               ? *request.key_mask
                               : at::ones({shape.batch, length}, numbers.dtype(at::kBool));  // [B, N]

  // Sorted by (bucket, position), padding last, and cut into chunks; what fills the last chunk is no token.
  const at::Tensor bucket =
      buckets(request).masked_fill(valid.logical_not().view({shape.batch, 1, 1, length}), int64_t{1} << 40);
  const at::Tensor order =
      (bucket * length + positions).argsort(/*stable=*/true, /*dim=*/-1);  // [B, H, R, N]
  const int64_t padded = round_up(length, chunk), chunks = padded / chunk;
  const auto cut = [&](const at::Tensor& x, int64_t filler) {
    return at::constant_pad_nd(x, {0, padded - length}, filler)
        .view({shape.batch, shape.heads, rounds, chunks, chunk});
  };
  const at::Tensor tokens = cut(order, 0);
  const at::Tensor token_bucket = cut(bucket.gather(-1, order), -1);
  const at::Tensor is_token =
      cut(valid.view({shape.batch, 1, 1, length}).expand_as(order).gather(-1, order).to(at::kLong), 0);
  // The chunk before; the first chunk has none.
  const auto before = [&](const at::Tensor& x, int64_t filler) {
    return at::constant_pad_nd(x.narrow(3, 0, chunks - 1), {0, 0, 1, 0}, filler);
  };
  const at::Tensor key_token = at::cat({tokens, before(tokens, 0)}, -1);  // [B, H, R, C, 2m]
  const at::Tensor key_bucket = at::cat({token_bucket, before(token_bucket, -1)}, -1);
  const at::Tensor key_is_token = at::cat({is_token, before(is_token, 0)}, -1);

  const at::Tensor query = tokens.unsqueeze(-1), key = key_token.unsqueeze(-2);
  at::Tensor edge = (token_bucket.unsqueeze(-1) == key_bucket.unsqueeze(-2))
                        .logical_and(is_token.unsqueeze(-1).to(at::kBool))
                        .logical_and(key_is_token.unsqueeze(-2).to(at::kBool))
                        .logical_and(request.is_causal ? key < query : key != query);  // [B, H, R, C, m, 2m]

  // Number the pairs over all heads: row * N + column. Rounds may repeat a pair; a set has it once.
  const at::Tensor head =
      at::arange(shape.batch * shape.heads, numbers).view({shape.batch, shape.heads, 1, 1, 1});
  const at::Tensor row = head * length + tokens;  // [B, H, R, C, m]
  const at::Tensor pairs = (row.unsqueeze(-1) * length + key).masked_select(edge);
  // Valid queries without any edge look at themselves.
  at::Tensor lonely = valid.unsqueeze(1).expand({shape.batch, shape.heads, length}).reshape({-1}).clone();
  lonely.index_fill_(0, pairs.div(length, "floor"), false);
  const at::Tensor alone = lonely.nonzero().select(1, 0);
  const at::Tensor all =
      std::get<0>(at::_unique(at::cat({pairs, alone * length + alone.remainder(length)}), /*sorted=*/true));
  const at::Tensor rows = at::arange(shape.rows() + 1, numbers);
  choice.edges = EdgeSet::from_trusted_csr(shape, at::searchsorted(all, rows * length).to(at::kLong),
                                           all.remainder(length).to(at::kInt));
  return choice;
}

std::string BucketEdgesImpl::causal_refusal() const {
  return "chunks are cut from the whole sequence in the order of its buckets, so that which keys a query "
         "meets depends "
         "on tokens after it";
}

void BucketEdgesImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::BucketEdges(rounds=" << options.rounds << ", chunk=" << options.chunk << ")";
}

}  // namespace edgewise
