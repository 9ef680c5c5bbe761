// Tensors on the CPU as the CUDA kernels take them.
#pragma once

#include <ATen/ATen.h>
#include <edgewise/graph/edge_set.h>
#include <gtest/gtest.h>

#include "kernels/cuda/lists/list_params.h"

namespace edgewise::simt_kit {

template <typename T>
kernels::cuda::HeadTensor<const T> view(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename T>
kernels::cuda::HeadTensor<T> mutable_view(const at::Tensor& x) {
  return {static_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
inline kernels::cuda::TileShape tile_shape(const EdgeShape& shape) {
  return {shape.batch, shape.heads, shape.queries, shape.keys};
}
inline const uint64_t* keys_of(const at::Tensor& stream_keys) {
  return reinterpret_cast<const uint64_t*>(stream_keys.const_data_ptr<int64_t>());
}

// launch(ListOutput) counts, then writes.
template <typename Launch>
EdgeSet list_of(const EdgeShape& shape, const Launch& launch) {
  const at::Tensor degrees = at::full({shape.rows()}, -1, at::kInt);
  kernels::cuda::ListOutput out;
  out.degrees = degrees.mutable_data_ptr<int32_t>();
  EXPECT_EQ(launch(out), 0);
  EXPECT_TRUE(degrees.ge(0).all().item<bool>()) << "a row that nobody counted";
  const at::Tensor offsets = at::cat({at::zeros({1}, at::kLong), at::cumsum(degrees, 0, at::kLong)});
  const at::Tensor columns = at::full({offsets[-1].item<int64_t>()}, -1, at::kInt);
  out.row_offsets = offsets.const_data_ptr<int64_t>();
  out.columns = columns.mutable_data_ptr<int32_t>();
  EXPECT_EQ(launch(out), 0);
  return EdgeSet::from_csr(shape, offsets, columns);  // which checks order and range
}

// Norm of the difference over the norm.
inline double error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}
inline void expect_same(const EdgeSet& found, const EdgeSet& expected, const std::string& what) {
  EXPECT_TRUE(at::equal(found.row_offsets(), expected.row_offsets())) << what;
  EXPECT_TRUE(at::equal(found.col_indices(), expected.col_indices())) << what;
}

}  // namespace edgewise::simt_kit
