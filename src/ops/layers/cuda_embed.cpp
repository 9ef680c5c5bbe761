// Embeddings of tokens and places on CUDA: autograd around the kernels of embed.cu.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "ops/layers/cuda_rows.h"
#include "ops/layers/row_tensors.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
namespace cuda = kernels::cuda;

// The tokens are dealt out to so many parts, each with a table of its own, unless these would take more
// memory.
constexpr int64_t kMostParts = 128, kFewestParts = 16, kMostNumbers = 1 << 24;

int64_t parts_of(int64_t numbers) {  // of a table
  return std::min(kMostParts, kMostNumbers / std::max<int64_t>(numbers, 1));
}

// [rows, D]
at::Tensor table_grad(const at::Tensor& ids, const at::Tensor& x_grad, int64_t rows) {
  const int64_t dim = x_grad.size(2);
  if (ids.numel() == 0) return at::zeros({rows, dim}, x_grad.options());
  const at::Tensor result = at::empty({rows, dim}, x_grad.options()),
                   sums = at::empty({parts_of(rows * dim), rows, dim}, x_grad.options());
  cuda::EmbedGradParams params;
  params.tokens = ids.numel(), params.dim = dim, params.rows = rows;
  params.ids = ids.const_data_ptr<int64_t>(), params.x_grad = x_grad.const_data_ptr<float>();
  params.parts = sums.size(0), params.sums = sums.mutable_data_ptr<float>();
  params.result = result.mutable_data_ptr<float>();
  check_launch("embed_grad", cuda::launch_embed_grad(params, current_stream()));
  return result;
}

// Places 0 .. N - 1 of every item.
at::Tensor place_grad(const at::Tensor& x_grad, int64_t rows) {
  const at::Tensor result = at::zeros({rows, x_grad.size(2)}, x_grad.options());
  cuda::PlaceGradParams params;
  params.items = x_grad.size(0), params.length = x_grad.size(1), params.dim = x_grad.size(2);
  params.x_grad = x_grad.const_data_ptr<float>(), params.result = result.mutable_data_ptr<float>();
  check_launch("place_grad", cuda::launch_place_grad(params, current_stream()));
  return result;
}

struct Embed : torch::autograd::Function<Embed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& table,
                            const std::optional<at::Tensor>& positions,
                            const std::optional<at::Tensor>& places,
                            const c10::intrusive_ptr<Dropped>& dropped) {
    const c10::cuda::CUDAGuard device(ids.device());
    const at::Tensor x = at::empty({ids.size(0), ids.size(1), table.size(1)}, table.options());
    cuda::EmbedParams params;
    params.tokens = ids.numel(), params.length = ids.size(1), params.dim = table.size(1);
    params.vocabulary = table.size(0), params.ids = ids.const_data_ptr<int64_t>();
    params.table = table.const_data_ptr<float>();
    if (places) params.places = places->const_data_ptr<float>(), params.most_places = places->size(0);
    if (positions) params.positions = positions->const_data_ptr<int64_t>();
    params.x = x.mutable_data_ptr<float>(), params.limit = dropped->limit, params.stream = dropped->stream;
    check_launch("embed", cuda::launch_embed(params, current_stream()));
    context->save_for_backward({ids, positions.value_or(at::Tensor())});
    context->saved_data["vocabulary"] = table.size(0);
    context->saved_data["places"] = places ? places->size(0) : 0;
    context->saved_data["dropped"] = c10::IValue::make_capsule(dropped);
    return x;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("embed");
    const auto saved = context->get_saved_variables();
    const at::Tensor &ids = saved[0], &positions = saved[1];
    const int64_t vocabulary = context->saved_data["vocabulary"].toInt(),
                  places = context->saved_data["places"].toInt();
    const c10::cuda::CUDAGuard device(ids.device());
    const auto dropped =
        c10::static_intrusive_pointer_cast<Dropped>(context->saved_data["dropped"].toCapsule());
    at::Tensor x_grad = whole_rows(grads[0]);
    if (dropped->limit > 0) {
      const at::Tensor kept = at::empty_like(x_grad);
      launch_dropped_grad(x_grad, *dropped, kept.mutable_data_ptr<float>());
      x_grad = kept;
    }
    tensor_list result(5);
    // Tensors that were not given have no number among those that may need a gradient.
    if (context->needs_input_grad(1)) result[1] = table_grad(ids, x_grad, vocabulary);
    if (places > 0 && context->needs_input_grad(positions.defined() ? 3 : 2))
      result[3] = positions.defined() ? table_grad(positions, x_grad, places) : place_grad(x_grad, places);
    return result;
  }
};

}  // namespace

bool cuda_takes_embed(const EmbedInput& input) {
  const at::Tensor &tokens = input.tokens, &table = input.table, &positions = input.positions,
                   &places = input.places;
  const auto fits = [&](const at::Tensor& x) {
    return x.device() == tokens.device() && x.dim() == 2 && x.scalar_type() == at::kFloat &&
           is_whole_row_tensor(x) && x.size(1) > 0 && x.size(1) % 8 == 0;
  };
  const auto sums_fit = [](const at::Tensor& x) { return parts_of(x.numel()) >= kFewestParts; };
  if (!graph::is_hopper(tokens.device()) || tokens.dim() != 2 || tokens.scalar_type() != at::kLong)
    return false;
  if (!fits(table) || !sums_fit(table)) return false;
  if (!places.defined()) return !positions.defined();
  if (!fits(places) || places.size(1) != table.size(1)) return false;
  if (!positions.defined()) return places.size(0) >= tokens.size(1);
  return sums_fit(places) && positions.device() == tokens.device() && positions.scalar_type() == at::kLong &&
         positions.sizes() == tokens.sizes();
}

at::Tensor cuda_embed(const EmbedInput& input, double p) {
  const auto given = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x.contiguous()) : std::nullopt;
  };
  return Embed::apply(input.tokens.contiguous(), input.table, given(input.positions), given(input.places),
                      draw_dropped("embed", input.tokens.device(), p));
}

}  // namespace edgewise::ops
