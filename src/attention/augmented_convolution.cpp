#include <edgewise/attention/augmented_convolution.h>

#include <cmath>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <edgewise/edges/grid_edges.h>

#include "attention/attend_choice.h"
#include "attention/grid_positions.h"

namespace edgewise {
namespace {

torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

at::Tensor padded_width(const at::Tensor& heads, int64_t width) {
  return width > heads.size(3) ? at::constant_pad_nd(heads, {0, width - heads.size(3)}) : heads;
}

// A 1 x 1 convolution of rows of channels: [B, rows, columns, in] -> [.., out].
at::Tensor by_pixel(const at::Tensor& rows, const torch::nn::Conv2d& layer) {
  return at::linear(rows, layer->weight.flatten(1));
}

// The width that query, key and value get with zeros: on CUDA the next that kernels over edges are built for,
// or a multiple of 8, as torch's fast dense ones want it. The wider ones of edges, and all on a CPU, stay.
int64_t kernel_width(const at::Tensor& query, bool over_edges) {
  const int64_t width = query.size(3);
  if (!query.is_cuda()) return 0;
  if (!over_edges) return (width + 7) / 8 * 8;
  for (const int64_t built : {32, 64, 128})
    if (width <= built) return built;
  return 0;
}

}  // namespace

AugmentedConvolutionImpl::AugmentedConvolutionImpl(AugmentedConvolutionOptions options_)
    : options(std::move(options_)) {
  const AugmentedConvolutionOptions& o = options;
  TORCH_CHECK_VALUE(o.in_channels > 0 && o.heads > 0 && o.stride > 0,
                    "AugmentedConvolution: expected positive in_channels, heads and stride; got ",
                    o.in_channels, ", ", o.heads, " and ", o.stride);
  TORCH_CHECK_VALUE(o.key_channels > 0 && o.key_channels % o.heads == 0 && o.value_channels > 0 &&
                        o.value_channels % o.heads == 0,
                    "AugmentedConvolution: expected key_channels and value_channels that heads, ", o.heads,
                    ", divide; got ", o.key_channels, " and ", o.value_channels);
  TORCH_CHECK_VALUE(o.value_channels < o.out_channels,
                    "AugmentedConvolution: expected fewer value_channels than out_channels, whose rest the "
                    "convolution has; got ",
                    o.value_channels, " of ", o.out_channels);
  check_grid("AugmentedConvolution", o.grid);
  conv = register_module("conv",
                         plain_convolution(o.in_channels, o.out_channels - o.value_channels, 3, o.stride));
  qkv = register_module("qkv", plain_convolution(o.in_channels, 2 * o.key_channels + o.value_channels, 1, 1));
  out = register_module("out", plain_convolution(o.value_channels, o.value_channels, 1, 1));
  const int64_t dim = o.key_channels / o.heads;
  column_table = register_parameter("column_table", torch::empty({2 * o.grid.columns - 1, dim}));
  row_table = register_parameter("row_table", torch::empty({2 * o.grid.rows - 1, dim}));
  if (o.source) register_module("edges", o.source);
  reset_parameters();
}

void AugmentedConvolutionImpl::reset_parameters() {
  for (torch::nn::Conv2d* each : {&conv, &qkv, &out})
    torch::nn::init::kaiming_normal_((*each)->weight, 0, torch::kFanOut, torch::kReLU);
  const double deviation = std::pow(static_cast<double>(options.key_channels / options.heads), -0.5);
  torch::nn::init::normal_(column_table, 0, deviation);
  torch::nn::init::normal_(row_table, 0, deviation);
}

AugmentedOutput AugmentedConvolutionImpl::forward(const at::Tensor& x, const RandomStream& random,
                                                  bool keep_edges) {
  const PixelGrid& grid = options.grid;
  TORCH_CHECK_VALUE(x.dim() == 4 && x.size(1) == options.in_channels, "AugmentedConvolution: expected x [B, ",
                    options.in_channels, ", rows, columns]; got ", x.sizes());
  const at::Tensor convolved = conv->forward(x);
  TORCH_CHECK_VALUE(convolved.size(2) == grid.rows && convolved.size(3) == grid.columns,
                    "AugmentedConvolution: expected an output of ", grid.rows, " x ", grid.columns,
                    " pixels; got ", convolved.size(2), " x ", convolved.size(3));
  const at::Tensor seen = options.stride == 1
                              ? x
                              : at::avg_pool2d(x, {3, 3}, {options.stride, options.stride}, {1, 1},
                                               /*ceil_mode=*/false, /*count_include_pad=*/false);
  const int64_t batch = x.size(0), heads = options.heads, dim = options.key_channels / heads;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const std::vector<at::Tensor> parts =  // [B, rows, columns, 2 d_k + d_v]
      by_pixel(seen.permute({0, 2, 3, 1}), qkv)
          .split_with_sizes({options.key_channels, options.key_channels, options.value_channels}, 3);
  const auto by_head = [&](const at::Tensor& part) {  // [B, H, rows, columns, D]
    return part.unflatten(3, {heads, part.size(3) / heads}).permute({0, 3, 1, 2, 4});
  };
  const at::Tensor pixels = by_head(parts[0]);
  if (!marks_.defined() || marks_.device() != x.device()) {
    const auto ordered = [&](const at::Tensor& rows) {  // [N, W], row by row -> in the order of tokens
      return as_tokens(rows.view({1, 1, grid.rows, grid.columns, -1}), grid)
          .squeeze(0)
          .squeeze(0)
          .to(x.device());
    };
    marks_ = ordered(position_marks(grid, at::kFloat));
    waves_ = ordered(position_waves(grid, dim));
  }
  const at::Tensor own_query = as_tokens(pixels, grid), own_key = as_tokens(by_head(parts[1]), grid),
                   value = as_tokens(by_head(parts[2]), grid);
  // [B, H, N, D + columns + rows]
  const at::Tensor terms = position_terms(pixels, column_table, row_table).to(own_query.scalar_type());
  const at::Tensor query = at::cat({own_query, as_tokens(terms, grid)}, 3),
                   key =
                       at::cat({own_key, marks_.to(own_key.scalar_type()).expand({batch, heads, -1, -1})}, 3);

  const int64_t width = kernel_width(query, static_cast<bool>(options.source));
  const auto wide = [width](const at::Tensor& part) { return padded_width(part, width); };
  AugmentedOutput result;
  AttentionOutput& attended = result.attention;
  at::Tensor rows;
  if (options.source) {
    const at::Tensor waves = waves_.to(own_query.scalar_type());
    EdgeRequest request{own_query + waves, own_key + waves, std::nullopt, /*is_causal=*/false, random};
    const EdgeChoice choice = allowed_choice(*options.source, request);
    functional::EdgeAttentionOptions attention;
    attention.scale = scale;
    attention.random = random;
    attended = attend_choice(wide(query), wide(key), wide(value), request, choice, attention);
    rows = attended.output;
    if (keep_edges) {
      attended.edges = choice.edges;
      attended.view.emplace();
      if (choice.learner && choice.learner->query_membership.defined()) {
        attended.view->query_membership = choice.learner->query_membership.detach();
        attended.view->key_side = choice.learner->key_side.detach();
      }
    }
  } else {
    rows = at::scaled_dot_product_attention(wide(query), wide(key), wide(value), std::nullopt, 0.0, false,
                                            scale);
    attended.density = at::ones({heads}, at::TensorOptions().dtype(at::kDouble).device(x.device()));
    attended.edge_count = at::full({}, batch * heads * grid.tokens() * grid.tokens(), at::kLong);
  }
  if (keep_edges) {
    if (!attended.view) attended.view.emplace();
    // The scores of a view are products over the root of their width.
    attended.view->query = query.detach() * (scale * std::sqrt(static_cast<double>(query.size(3))));
    attended.view->key = key.detach();
  }
  attended.output = at::Tensor();
  rows = rows.narrow(3, 0, value.size(3));
  // [B, H, rows, columns, D] -> [B, rows, columns, d_v]
  const at::Tensor values = as_pixels(rows, grid).permute({0, 2, 3, 1, 4}).flatten(3);
  result.x = at::cat({convolved, by_pixel(values, out).permute({0, 3, 1, 2})}, 1);
  return result;
}

}  // namespace edgewise
