// Tensors as the CUDA kernels of attention take them: raw pointers, aligned rows, what dropout removes. Only
// files that are built with CUDA include this.
#pragma once

#include "graph/cuda_launch.h"
#include "kernels/cuda/lists/gather_params.h"
#include "ops/attention/attention_impl.h"

namespace edgewise::ops {

template <typename T>
kernels::cuda::HeadTensor<const T> view(const at::Tensor& x) {
  return {reinterpret_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename T>
kernels::cuda::HeadTensor<T> mutable_view(const at::Tensor& x) {
  return {reinterpret_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// The kernels read 16 bytes at a time along a row.
inline bool rows_aligned(const at::Tensor& x) {
  const int64_t step = 16 / x.element_size();
  return x.stride(3) == 1 && x.stride(2) % step == 0 && x.stride(1) % step == 0 && x.stride(0) % step == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}
inline at::Tensor aligned(const at::Tensor& x) {
  return rows_aligned(x) ? x : x.clone(at::MemoryFormat::Contiguous);
}

// Edges that were given may have structure; sampled ones leave no tile empty.
inline kernels::cuda::UsedTiles used_tiles(const EdgeSet& edges) {
  if (!edges.has_csr()) return {};
  const at::Tensor& flags = edges.used_tiles();
  return {flags.const_data_ptr<uint8_t>(), flags.stride(0), flags.stride(1), flags.stride(2)};
}

// As the kernels read them: rows aligned, keys of the dropout on the device.
inline AttentionInputs for_kernels(AttentionInputs in) {
  in.query = aligned(in.query);
  in.key = aligned(in.key);
  in.value = aligned(in.value);
  if (in.dropout_p > 0) in.head_keys = in.head_keys.to(in.query.device(), /*non_blocking=*/true);
  return in;
}
inline const uint64_t* stream_keys(const AttentionInputs& in) {
  return reinterpret_cast<const uint64_t*>(in.head_keys.const_data_ptr<int64_t>());
}

// The edges that dropout removes: as tiles, without those of the heads `without`; and of the entries of
// lists.
at::Tensor dropped_edges(const AttentionInputs& in, const graph::SparseHeads& without);
at::Tensor dropped_entries(const AttentionInputs& in, const graph::EdgeWindows& windows, bool by_keys);
inline const uint16_t* dropped_bits(const graph::EdgeWindows& windows) {
  return windows.dropped.defined()
             ? reinterpret_cast<const uint16_t*>(windows.dropped.const_data_ptr<int16_t>())
             : nullptr;
}
inline float keep_scale(const AttentionInputs& in) {
  return in.dropout_p < 1 ? static_cast<float>(1 / (1 - in.dropout_p)) : 0;
}

inline kernels::cuda::GatherDropout gather_dropout(const AttentionInputs& in) {
  if (in.dropout_p == 0) return {};
  return {stream_keys(in), in.dropout_p, keep_scale(in)};
}

inline kernels::cuda::Tf32 tf32_products(const AttentionInputs& in) {
  return in.matmul == Float32Matmul::kTf32 ? kernels::cuda::Tf32::kOnce : kernels::cuda::Tf32::kThrice;
}

}  // namespace edgewise::ops
