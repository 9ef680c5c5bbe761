#include <edgewise/edges/edge_source.h>

namespace edgewise {

EdgeShape EdgeRequest::shape() const {
  return {query.size(0), query.size(1), query.size(2), key.size(2)};
}

std::optional<at::Tensor> EdgeRequest::query_mask() const {
  return query.size(2) == key.size(2) ? key_mask : std::nullopt;
}

}  // namespace edgewise
