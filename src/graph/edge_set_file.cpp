// EdgeSet on disk: a safetensors file with row_offsets, col_indices and shape [4] = (B, H, L, S).
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>

#include <ATen/ops/tensor.h>

namespace edgewise {

void EdgeSet::save(const std::string& path) const {
  const EdgeShape& s = shape();
  io::TensorFile file;
  file.tensors["row_offsets"] = row_offsets();
  file.tensors["col_indices"] = col_indices();
  file.tensors["shape"] = at::tensor({s.batch, s.heads, s.queries, s.keys}, at::kLong);
  file.metadata["format"] = "edgewise.edge_set.1";
  io::save_safetensors(path, file);
}

EdgeSet EdgeSet::load(const std::string& path) {
  const io::TensorFile file = io::load_safetensors(path);
  const auto get = [&](const char* name) {
    const auto found = file.tensors.find(name);
    TORCH_CHECK_VALUE(found != file.tensors.end(), "EdgeSet::load: ", path, " has no tensor '", name,
                      "'; expected row_offsets, col_indices and shape, as EdgeSet::save writes them");
    return found->second;
  };
  const at::Tensor shape = get("shape");
  TORCH_CHECK_VALUE(shape.scalar_type() == at::kLong && shape.dim() == 1 && shape.size(0) == 4,
                    "EdgeSet::load: ", path, ": expected shape [4] int64 (B, H, L, S); got ",
                    shape.scalar_type(), " of shape ", shape.sizes());
  const int64_t* sizes = shape.const_data_ptr<int64_t>();
  return from_csr({sizes[0], sizes[1], sizes[2], sizes[3]}, get("row_offsets"), get("col_indices"));
}

}  // namespace edgewise
