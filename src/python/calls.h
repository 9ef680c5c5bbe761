// What the operations of this folder have in common: inputs as the kernels take them, seeds, gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/ops/random_stream.h>

#include <optional>

namespace edgewise::python {

// Four dimensions, one device, one dtype; key and value of as many heads as the query, or of fewer that
// divide them. Throws with a sentence.
void check_heads(const char* function, const at::Tensor& query, const at::Tensor& key,
                 const at::Tensor& value);
// float16, which no kernel has, as float32.
at::Tensor widened(const at::Tensor& x);
// [B, Hk, S, D] -> [B, H, S, D]: query head h reads key head h / (H / Hk).
at::Tensor with_heads(const at::Tensor& x, int64_t heads);
// seed: int64 on the CPU, [] or [1 to 4]: seed, step, layer and first item of a random stream. None: all 0.
RandomStream stream_of(const char* function, const std::optional<at::Tensor>& seed);
void check_key_mask(const char* function, const std::optional<at::Tensor>& mask, int64_t batch, int64_t keys);

}  // namespace edgewise::python
