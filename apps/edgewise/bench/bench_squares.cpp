#include "bench/bench_squares.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/ops/functional.h>
#include <torch/csrc/autograd/autograd.h>

namespace edgewise::app {
namespace {

// [B, H, groups(L), groups(S)] uniform numbers, the same for `alike` neighbouring query groups.
at::Tensor numbers(const EdgeShape& shape, int64_t alike, at::Device device) {
  const int64_t rows = graph::groups_of(shape.queries);
  return at::rand({shape.batch, shape.heads, (rows + alike - 1) / alike, graph::groups_of(shape.keys)},
                  at::TensorOptions().device(device))
      .repeat_interleave(alike, 2)
      .narrow(2, 0, rows);
}

double square_ms(const DeviceTiming& timing, const ops::SquareCall& call, const at::Tensor& grad,
                 const ops::SquareCredit* credit) {
  return device_ms(timing, [&] {
    const at::NoGradGuard guard;
    const ops::SquareForward forward = ops::square_forward(call);
    if (credit) ops::square_backward(call, forward, grad, *credit);
  });
}

}  // namespace

std::vector<SquareTime> time_given_squares(const DeviceTiming& timing, const ops::SquareCall& call,
                                           const at::Tensor& grad) {
  const ops::SquareCredit none;
  return {{"forward, squares given", false, square_ms(timing, call, grad, nullptr)},
          {"forward and backward, squares given", true, square_ms(timing, call, grad, &none)}};
}

std::vector<SquareTime> time_squares(const DeviceTiming& timing, ops::SquareCall call, const at::Tensor& grad,
                                     double density) {
  constexpr double kProbes = 0.05;
  const EdgeShape shape{call.query.size(0), call.query.size(1), call.query.size(2), call.key.size(2)};
  std::vector<SquareTime> found;
  for (const int64_t alike : {1, 4}) {
    const at::Tensor draw = numbers(shape, alike, call.query.device());
    call.squares = graph::squares_from_mask(shape, draw < density);
    const std::string what = alike == 1 ? "" : ", four rows alike";
    const auto add = [&](SquareTime time) {
      time.name += what;
      found.push_back(std::move(time));
    };
    for (const SquareTime& time : time_given_squares(timing, call, grad)) add(time);
    if (alike > 1) continue;
    ops::SquareCredit credit{kernels::CreditRule::kLeaveOneOut, {}};
    credit.probes = graph::squares_from_mask(
        shape, (draw >= density).logical_and(draw < density + (1 - density) * kProbes));
    add({"forward and backward with credit and probes, squares given", true,
         square_ms(timing, call, grad, &credit)});
    add({"lists by keys, squares given", false, device_ms(timing, [&] { graph::transposed(call.squares); })});
  }
  return found;
}

SquareTime time_learned_squares(const DeviceTiming& timing, const ops::SquareCall& call,
                                const at::Tensor& grad, int64_t clusters, double density) {
  SbmEdgesOptions options(call.query.size(1), call.query.size(3), SbmPreset::kEdgewise, graph::kSquare);
  options.clusters = clusters;
  options.initial_density = density;
  SbmEdges source(options);
  source->to(call.query.device());
  std::vector<at::Tensor> leaves = source->parameters();
  const auto leaf = [&](const at::Tensor& x) { return leaves.emplace_back(x.detach().requires_grad_()); };
  const at::Tensor query = leaf(call.query), key = leaf(call.key), value = leaf(call.value);
  const at::Tensor weight =
      at::full({call.query.size(1)}, 0.1, at::TensorOptions().device(query.device()).dtype(at::kDouble));
  functional::EdgeAttentionOptions attention;
  attention.dropout_p = call.dropout_p;
  const auto step = [&] {
    for (const at::Tensor& x : leaves) x.mutable_grad() = at::Tensor();
    EdgeRequest request;
    request.query = query, request.key = key;
    ++attention.random.step;
    request.random = attention.random;
    const EdgeChoice choice = source->choose(request);
    const auto read = [](const at::Tensor& of_choice, const at::Tensor& given) {
      return of_choice.defined() ? of_choice : given;
    };
    const at::Tensor output = functional::edge_attention(read(choice.query, query), read(choice.key, key),
                                                         value, choice.edges, *choice.learner, attention)
                                  .output;
    torch::autograd::backward({output, choice.density_penalty},
                              {grad, weight.to(choice.density_penalty.scalar_type())});
  };
  // As a layer in bf16: parameters stay in fp32.
  const bool is_mixed = query.scalar_type() == at::kBFloat16;
  at::autocast::set_autocast_enabled(at::kCUDA, is_mixed);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  at::autocast::set_autocast_cache_enabled(false);  // a step's casts are its own
  const SquareTime found{"training step, squares learned", true, device_ms(timing, step)};
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::set_autocast_cache_enabled(true);
  return found;
}

graph::Squares spread_squares(int64_t n, int64_t squares_of_row, at::Device device) {
  const int64_t groups = graph::groups_of(n), part = groups / squares_of_row;
  TORCH_CHECK_VALUE(part > 0, "bench cuda: expected at most ", groups, " squares a row for ", n,
                    " tokens; got ", squares_of_row);
  // Column r of a row is somewhere in the r-th of equal parts: ascending by construction.
  const auto options = at::TensorOptions().dtype(at::kInt).device(device);
  const at::Tensor cols = at::randint(part, {groups, squares_of_row}, options) +
                          at::arange(squares_of_row, options).view({1, -1}) * part;
  return {{1, 1, n, n},
          at::arange(groups, options) * squares_of_row,
          at::full({groups}, squares_of_row, options),
          cols.reshape(-1)};
}

}  // namespace edgewise::app
