// EdgeSet on disk: a safetensors file with row_offsets, col_indices and shape [4] = (B, H, L, S), and
// metadata that says so.
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>

#include <ATen/ops/tensor.h>

#include "graph/checks.h"

namespace edgewise {
namespace {

constexpr const char* kFormat = "edgewise.edge_set.1";
constexpr std::string_view kAnyVersion = "edgewise.edge_set.";

void check_format(const std::string& path, const std::map<std::string, std::string>& metadata) {
  const auto found = metadata.find("format");
  const std::string format = found == metadata.end() ? "" : found->second;
  TORCH_CHECK_VALUE(format == kFormat || !format.starts_with(kAnyVersion), "EdgeSet::load: expected format '",
                    kFormat, "' in ", path, "; found '", format,
                    "'. It was written by another version of edgewise; write it anew with this one");
  TORCH_CHECK_VALUE(format == kFormat, "EdgeSet::load: expected a file of edges (metadata format = '",
                    kFormat, "') in ", path, "; found ",
                    format.empty() ? "no format" : "format '" + format + "'",
                    ". EdgeSet::save and edgewise sample --out write such files");
}

}  // namespace

void EdgeSet::save(const std::string& path) const {
  const EdgeShape& s = shape();
  io::TensorFile file;
  file.tensors["row_offsets"] = row_offsets();
  file.tensors["col_indices"] = col_indices();
  file.tensors["shape"] = at::tensor({s.batch, s.heads, s.queries, s.keys}, at::kLong);
  file.metadata["format"] = kFormat;
  io::save_safetensors(path, file);
}

EdgeSet EdgeSet::load(const std::string& path) {
  const io::TensorFile file = io::load_safetensors(path);
  check_format(path, file.metadata);
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
  const EdgeShape found{sizes[0], sizes[1], sizes[2], sizes[3]};
  const at::Tensor row_offsets = get("row_offsets"), col_indices = get("col_indices");
  const std::string where = "EdgeSet::load: " + path;
  graph::check_shape(where.c_str(), found);
  graph::check_csr(where.c_str(), found, row_offsets, col_indices);
  return from_trusted_csr(found, row_offsets, col_indices);
}

}  // namespace edgewise
