#include <edgewise/attention/nystromformer.h>

#include <cmath>
#include <ostream>

#include <torch/nn/init.h>
#include <torch/types.h>

#include "attention/masking.h"

namespace edgewise {
namespace {

// The runs of consecutive valid tokens that landmarks are the means of.
struct Runs {
  at::Tensor tokens;  // [B, M, W] int64: the tokens of each run, W the longest run
  at::Tensor member;  // [B, M, W] bool: false where a run is shorter
  at::Tensor exists;  // [B, M] bool: an item has no more landmarks than tokens
};

// The token of rank r among the n valid ones of its item belongs to run floor(r m / n), m = min(M, n). So run
// s has the ranks ceil(s n / m) .. ceil((s + 1) n / m) - 1: n / m of them where that divides.
Runs runs_of(const at::Tensor& mask, int64_t landmarks) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(mask.device());
  const int64_t length = mask.size(1), widest = (length + landmarks - 1) / landmarks;
  const at::Tensor order =
      mask.logical_not().to(at::kByte).argsort(/*stable=*/true, /*dim=*/1);  // valid first
  const at::Tensor count = mask.sum(1, /*keepdim=*/true);                    // [B, 1] n
  const at::Tensor used = count.clamp(1, landmarks);                         // [B, 1] m
  const at::Tensor run = at::arange(landmarks, options).unsqueeze(0);        // [1, M] s
  const auto first_rank = [&](const at::Tensor& s) { return (s * count + used - 1).div(used, "floor"); };
  const at::Tensor first = first_rank(run), last = first_rank(run + 1);      // [B, M]
  const at::Tensor rank = first.unsqueeze(2) + at::arange(widest, options);  // [B, M, W]
  Runs runs;
  runs.exists = (run < used).logical_and(count > 0);
  runs.member = (rank < last.unsqueeze(2)).logical_and(runs.exists.unsqueeze(2));
  runs.tokens = order.gather(1, rank.clamp(0, length - 1).flatten(1)).view_as(rank);
  return runs;
}

// x [B, H, N, D] -> [B, H, M, D].
at::Tensor run_means(const at::Tensor& x, const Runs& runs) {
  const int64_t batch = x.size(0), heads = x.size(1), dim = x.size(3);
  const int64_t landmarks = runs.tokens.size(1), widest = runs.tokens.size(2);
  const at::Tensor index =
      runs.tokens.view({batch, 1, landmarks * widest, 1}).expand({batch, heads, landmarks * widest, dim});
  const at::Tensor member = runs.member.view({batch, 1, landmarks, widest, 1});
  const at::Tensor gathered = x.gather(2, index).view({batch, heads, landmarks, widest, dim});
  return gathered.masked_fill(member.logical_not(), 0).sum(3) /
         member.sum(3).clamp_min(1).to(x.scalar_type());
}

}  // namespace

at::Tensor pseudo_inverse(const at::Tensor& matrix, const at::Tensor& start, int64_t iterations) {
  const at::Tensor identity = at::eye(matrix.size(-1), matrix.options().requires_grad(false));
  at::Tensor inverse = start;
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    const at::Tensor product = at::matmul(matrix, inverse);
    const at::Tensor inner = 15 * identity - at::matmul(product, 7 * identity - product);
    inverse = at::matmul(inverse / 4, 13 * identity - at::matmul(product, inner));
  }
  return inverse;
}

NystromAttentionOptions::NystromAttentionOptions(int64_t num_heads_, MethodMode mode_)
    : num_heads(num_heads_), mode(mode_) {}

NystromAttentionImpl::NystromAttentionImpl(NystromAttentionOptions options_) : options(options_) {
  TORCH_CHECK_VALUE(
      options.num_heads > 0 && options.landmarks > 0 && options.iterations >= 0,
      "NystromAttention: expected num_heads and landmarks of at least 1 and iterations of at least "
      "0; got ",
      options.num_heads, ", ", options.landmarks, " and ", options.iterations);
  TORCH_CHECK_VALUE(options.conv_kernel == 0 || (options.conv_kernel > 0 && options.conv_kernel % 2 == 1),
                    "NystromAttention: expected conv_kernel to be odd, or 0 for no convolution; got ",
                    options.conv_kernel);
  if (options.conv_kernel == 0) return;
  conv_weight =
      register_parameter("conv_weight", torch::empty({options.num_heads, 1, options.conv_kernel, 1}));
  const double bound = 1 / std::sqrt(static_cast<double>(options.conv_kernel));  // as torch's Conv2d starts
  torch::nn::init::uniform_(conv_weight, -bound, bound);
}

at::Tensor NystromAttentionImpl::convolved(const at::Tensor& value) const {
  return at::conv2d(value, conv_weight.to(value.scalar_type()), /*bias=*/{}, /*stride=*/1,
                    /*padding=*/{options.conv_kernel / 2, 0}, /*dilation=*/1, /*groups=*/options.num_heads);
}

at::Tensor NystromAttentionImpl::attend(const MethodInput& input) {
  at::Tensor output = options.mode == MethodMode::kHarness ? attend_harness(input) : attend_paper(input);
  if (options.conv_kernel > 0) output = output + convolved(zero_padding(input.value, input.key_mask));
  return options.mode == MethodMode::kHarness ? output : zero_padding(output, input.key_mask);
}

at::Tensor NystromAttentionImpl::attend_paper(const MethodInput& input) const {
  const int64_t batch = input.query.size(0), length = input.query.size(2);
  const double scale = std::pow(static_cast<double>(input.query.size(3)), -0.25);
  const at::Tensor query = input.query * scale, key = input.key * scale;
  const at::Tensor mask = input.key_mask.value_or(
      at::ones({batch, length}, query.options().dtype(at::kBool).requires_grad(false)));
  const Runs runs = runs_of(mask, options.landmarks);
  const at::Tensor query_mean = run_means(query, runs), key_mean = run_means(key, runs);  // [B, H, M, D]
  const at::Tensor has_landmark = runs.exists.view({batch, 1, 1, options.landmarks});
  const at::Tensor forward = masked_softmax(at::matmul(query, key_mean.transpose(2, 3)), has_landmark);
  const at::Tensor backward = masked_softmax(at::matmul(query_mean, key.transpose(2, 3)),
                                             mask.view({batch, 1, 1, length}));  // [B, H, M, N]
  at::Tensor between = masked_softmax(at::matmul(query_mean, key_mean.transpose(2, 3)), has_landmark);
  // Rows of landmarks that an item has no tokens for are those of the identity: the inverse of the rest stays
  // what it is, and `forward` never uses them.
  const at::Tensor identity = at::eye(options.landmarks, query.options().requires_grad(false));
  between = at::where(has_landmark.transpose(2, 3), between, identity);
  // Rows sum to 1, so the largest column sum is also the product of the two norms in the paper.
  const at::Tensor start = between.transpose(2, 3) / between.sum(-2, true).amax(-1, true);
  const at::Tensor value = zero_padding(input.value, input.key_mask);
  return at::matmul(at::matmul(forward, pseudo_inverse(between, start, options.iterations)),
                    at::matmul(backward, value));
}

at::Tensor NystromAttentionImpl::attend_harness(const MethodInput& input) const {
  const int64_t batch = input.query.size(0), length = input.query.size(2), dim = input.query.size(3);
  TORCH_CHECK_VALUE(
      length % options.landmarks == 0, "NystromAttention: mode harness expected a multiple of ",
      options.landmarks, " landmarks for a length; got ", length,
      ". Pad to a fixed length (data.fixed_length = true), change nystromformer.landmarks, or use "
      "mode paper.");
  const double scale = std::pow(static_cast<double>(dim), -0.25);
  const at::Tensor query = zero_padding(input.query * scale, input.key_mask);
  const at::Tensor key = zero_padding(input.key * scale, input.key_mask);
  const auto without_padding = [&](const at::Tensor& logits) {
    return input.key_mask ? logits - 1e9 * input.key_mask->logical_not().unsqueeze(1).unsqueeze(1) : logits;
  };
  if (length == options.landmarks)
    return at::matmul(without_padding(at::matmul(query, key.transpose(2, 3))).softmax(-1), input.value);
  const auto means = [&](const at::Tensor& x) {
    return x.reshape({batch, x.size(1), options.landmarks, length / options.landmarks, dim}).mean(3);
  };
  const at::Tensor query_mean = means(query), key_mean = means(key);  // [B, H, M, D]
  const at::Tensor forward = at::matmul(query, key_mean.transpose(2, 3)).softmax(-1);
  const at::Tensor between = at::matmul(query_mean, key_mean.transpose(2, 3)).softmax(-1);
  const at::Tensor backward = without_padding(at::matmul(query_mean, key.transpose(2, 3))).softmax(-1);
  const at::Tensor start = between.transpose(2, 3) / between.sum(-2).max();  // over the whole batch
  return at::matmul(at::matmul(forward, pseudo_inverse(between, start, options.iterations)),
                    at::matmul(backward, input.value));
}

void NystromAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::NystromAttention(mode=" << to_string(options.mode)
         << ", landmarks=" << options.landmarks << ", iterations=" << options.iterations
         << ", conv_kernel=" << options.conv_kernel << ")";
}

}  // namespace edgewise
