#include "python/calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/repeat_interleave.h>

namespace edgewise::python {

void check_heads(const char* function, const at::Tensor& query, const at::Tensor& key,
                 const at::Tensor& value) {
  TORCH_CHECK_VALUE(query.dim() == 4 && key.dim() == 4 && value.dim() == 4, function,
                    ": expected query [B, H, L, D], key [B, Hk, S, D] and value [B, Hk, S, Dv]; got ",
                    query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK_VALUE(query.device() == key.device() && query.device() == value.device(), function,
                    ": expected query, key and value on one device; got ", query.device(), ", ", key.device(),
                    " and ", value.device(), ". Move them together with .to()");
  TORCH_CHECK_TYPE(query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(),
                   function, ": expected query, key and value of one dtype; got ", query.scalar_type(), ", ",
                   key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK_VALUE(key.size(0) == query.size(0) && value.size(0) == query.size(0) &&
                        key.size(2) == value.size(2) && key.size(3) == query.size(3),
                    function, ": expected key [", query.size(0), ", Hk, S, ", query.size(3), "] and value [",
                    query.size(0), ", Hk, S, Dv] to match query ", query.sizes(), "; got ", key.sizes(),
                    " and ", value.sizes());
  const int64_t heads = query.size(1), key_heads = key.size(1);
  TORCH_CHECK_VALUE(
      value.size(1) == key_heads && (key_heads == heads || (key_heads > 0 && heads % key_heads == 0)),
      function, ": expected key and value of ", heads, " heads, or of a number that divides it; got ",
      key_heads, " and ", value.size(1));
}

at::Tensor widened(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
}

at::Tensor with_heads(const at::Tensor& x, int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

RandomStream stream_of(const char* function, const std::optional<at::Tensor>& seed) {
  RandomStream result;
  if (!seed) return result;
  TORCH_CHECK_TYPE(seed->scalar_type() == at::kLong, function, ": expected an int64 seed; got ",
                   seed->scalar_type());
  TORCH_CHECK_VALUE(seed->is_cpu() && seed->dim() <= 1 && seed->numel() >= 1 && seed->numel() <= 4, function,
                    ": expected a seed on the CPU of 1 to 4 numbers (seed, step, layer, first item); got ",
                    seed->sizes(), " on ", seed->device());
  const at::Tensor numbers = seed->contiguous();
  const int64_t* const data = numbers.const_data_ptr<int64_t>();
  const auto number = [&](int64_t n) { return n < numbers.numel() ? data[n] : 0; };
  result.seed = static_cast<uint64_t>(number(0));
  result.step = static_cast<uint64_t>(number(1));
  result.layer = static_cast<uint32_t>(number(2));
  result.first_item = number(3);
  return result;
}

void check_key_mask(const char* function, const std::optional<at::Tensor>& mask, int64_t batch,
                    int64_t keys) {
  if (!mask) return;
  TORCH_CHECK_TYPE(mask->scalar_type() == at::kBool, function,
                   ": expected a bool key mask, true = valid key; got ", mask->scalar_type());
  TORCH_CHECK_VALUE(mask->dim() == 2 && mask->size(0) == batch && mask->size(1) == keys, function,
                    ": expected a key mask [", batch, ", ", keys, "]; got ", mask->sizes());
}

}  // namespace edgewise::python
