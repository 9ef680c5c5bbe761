#include <edgewise/edges/edge_source.h>

namespace edgewise {

EdgeShape EdgeRequest::shape() const {
  return {query.size(0), query.size(1), query.size(2), key.size(2)};
}

std::optional<at::Tensor> EdgeRequest::query_mask() const {
  if (!key_mask || key.size(2) != query_offset + query.size(2)) return std::nullopt;
  return query_offset == 0 ? key_mask : key_mask->narrow(1, query_offset, query.size(2));
}

}  // namespace edgewise
