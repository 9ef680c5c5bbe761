// Embeddings of tokens and places on CUDA: autograd around the kernels of embed.cu.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "ops/cuda_rows.h"
#include "ops/row_tensors.h"

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

int64_t parts_of(const at::Tensor& table) {
  return std::min(kMostParts, kMostNumbers / std::max<int64_t>(table.numel(), 1));
}

at::Tensor table_grad(const at::Tensor& ids, const at::Tensor& x_grad, const at::Tensor& table) {
  const at::Tensor result = at::empty_like(table);
  if (ids.numel() == 0) return result.zero_();
  const at::Tensor sums = at::empty({parts_of(table), table.size(0), table.size(1)}, table.options());
  cuda::EmbedGradParams params;
  params.tokens = ids.numel(), params.dim = table.size(1), params.rows = table.size(0);
  params.ids = ids.const_data_ptr<int64_t>(), params.x_grad = x_grad.const_data_ptr<float>();
  params.parts = sums.size(0), params.sums = sums.mutable_data_ptr<float>();
  params.result = result.mutable_data_ptr<float>();
  check_launch("embed_grad", cuda::launch_embed_grad(params, current_stream()));
  return result;
}

// Places 0 .. N - 1 of every item.
at::Tensor place_grad(const at::Tensor& x_grad, const at::Tensor& places) {
  const at::Tensor result = at::zeros_like(places);
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
    context->save_for_backward({ids, table, positions.value_or(at::Tensor()), places.value_or(at::Tensor())});
    context->saved_data["dropped"] = c10::IValue::make_capsule(dropped);
    return x;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("embed", grads[0]);
    const auto saved = context->get_saved_variables();
    const at::Tensor &ids = saved[0], &table = saved[1], &positions = saved[2], &places = saved[3];
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
    result[1] = table_grad(ids, x_grad, table);
    if (places.defined())
      result[3] = positions.defined() ? table_grad(positions, x_grad, places) : place_grad(x_grad, places);
    return result;
  }
};

}  // namespace

bool cuda_takes_embed(const EmbedInput& input) {
  const auto fits = [&](const at::Tensor& table) {
    return table.is_cuda() && table.device() == input.tokens.device() && table.dim() == 2 &&
           table.scalar_type() == at::kFloat && is_whole_row_tensor(table) && table.size(1) % 8 == 0 &&
           parts_of(table) >= kFewestParts;
  };
  return input.tokens.is_cuda() && fits(input.table) &&
         (!input.places.defined() || (fits(input.places) && input.places.size(1) == input.table.size(1)));
}

at::Tensor cuda_embed(const EmbedInput& input, double p) {
  const auto given = [](const at::Tensor& x) {
    return x.defined() ? std::optional(x.contiguous()) : std::nullopt;
  };
  return Embed::apply(input.tokens.contiguous(), input.table, given(input.positions), given(input.places),
                      draw_dropped("embed", input.tokens.device(), p));
}

}  // namespace edgewise::ops
