#include <edgewise/edges/edge_source.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

namespace edgewise {

EdgeShape EdgeRequest::shape() const {
  return {query.size(0), query.size(1), query.size(2), key.size(2)};
}

std::optional<at::Tensor> EdgeRequest::query_mask() const {
  if (is_cross) return cross_mask;
  if (!key_mask || key.size(2) != query_offset + query.size(2)) return std::nullopt;
  return query_offset == 0 ? key_mask : key_mask->narrow(1, query_offset, query.size(2));
}

at::Tensor EdgeRequest::allowed() const {
  const EdgeShape of = shape();
  const auto on_device = at::TensorOptions().device(query.device());
  at::Tensor result = at::ones({of.batch, 1, of.queries, of.keys}, on_device.dtype(at::kBool));
  if (key_mask) result = result & key_mask->view({of.batch, 1, 1, of.keys});
  if (const auto mask = query_mask()) result = result & mask->view({of.batch, 1, of.queries, 1});
  if (!is_causal) return result;
  const at::Tensor place = at::arange(of.queries, on_device.dtype(at::kLong)) + query_offset;
  return result & (at::arange(of.keys, place.options()) <= place.unsqueeze(1));
}

}  // namespace edgewise
