// EdgeSet on disk: a safetensors file with shape [4] = (B, H, L, S), and either row_offsets and col_indices,
// or, of a set that was born as squares, square_offsets and square_cols (CSR over query groups) and what of
// them takes part: causal [2] = (0 or 1, query_offset), key_bits and query_mask where there are any. Metadata
// says which.
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>

#include <ATen/ops/tensor.h>

#include "graph/checks.h"
#include "graph/squares/squares.h"

namespace edgewise {
namespace {

constexpr const char* kFormat = "edgewise.edge_set.1";
constexpr const char* kSquareFormat = "edgewise.edge_set.squares.1";
constexpr std::string_view kAnyVersion = "edgewise.edge_set.";

// The format, once it is known to be one of ours.
std::string checked_format(const std::string& path, const std::map<std::string, std::string>& metadata) {
  const auto found = metadata.find("format");
  const std::string format = found == metadata.end() ? "" : found->second;
  if (format == kFormat || format == kSquareFormat) return format;
  TORCH_CHECK_VALUE(!format.starts_with(kAnyVersion), "EdgeSet::load: expected format '", kFormat, "' or '",
                    kSquareFormat, "' in ", path, "; found '", format,
                    "'. It was written by another version of edgewise; write it anew with this one");
  TORCH_CHECK_VALUE(false, "EdgeSet::load: expected a file of edges (metadata format = '", kFormat, "') in ",
                    path, "; found ", format.empty() ? "no format" : "format '" + format + "'",
                    ". EdgeSet::save and edgewise sample --out write such files");
}

const at::Tensor& tensor_of(const std::string& path, const io::TensorFile& file, const char* name) {
  const auto found = file.tensors.find(name);
  TORCH_CHECK_VALUE(found != file.tensors.end(), "EdgeSet::load: ", path, " has no tensor '", name,
                    "'; expected one, as EdgeSet::save writes it");
  return found->second;
}

// A vector of so many int64.
const int64_t* numbers_of(const std::string& path, const io::TensorFile& file, const char* name,
                          int64_t count) {
  const at::Tensor& tensor = tensor_of(path, file, name);
  TORCH_CHECK_VALUE(tensor.scalar_type() == at::kLong && tensor.dim() == 1 && tensor.size(0) == count,
                    "EdgeSet::load: ", path, ": expected ", name, " [", count, "] int64; got ",
                    tensor.scalar_type(), " of shape ", tensor.sizes());
  return tensor.const_data_ptr<int64_t>();
}

EdgeSet squares_in(const std::string& path, const io::TensorFile& file, const EdgeShape& shape) {
  const std::string where = "EdgeSet::load: " + path;
  const at::Tensor &offsets = tensor_of(path, file, "square_offsets"),
                   &cols = tensor_of(path, file, "square_cols");
  const EdgeShape nodes{shape.batch, shape.heads, graph::groups_of(shape.queries),
                        graph::groups_of(shape.keys)};
  graph::check_csr((where + ": squares").c_str(), nodes, offsets, cols);
  const int64_t* const causal = numbers_of(path, file, "causal", 2);
  const auto optional = [&](const char* name) {
    const auto found = file.tensors.find(name);
    return found == file.tensors.end() ? at::Tensor() : found->second;
  };
  const EdgeSet groups = EdgeSet::from_trusted_csr(nodes, offsets, cols);
  return EdgeSet::from_squares(graph::squares_from_groups(shape, groups),
                               {optional("key_bits"), causal[0] != 0, causal[1], optional("query_mask")});
}

}  // namespace

void EdgeSet::save(const std::string& path) const {
  const EdgeShape& s = shape();
  io::TensorFile file;
  file.tensors["shape"] = at::tensor({s.batch, s.heads, s.queries, s.keys}, at::kLong);
  file.metadata["format"] = squares() ? kSquareFormat : kFormat;
  if (squares()) {
    const graph::SquarePairs& pairs = square_pairs();
    file.tensors["square_offsets"] = square_groups().row_offsets();
    file.tensors["square_cols"] = square_groups().col_indices();
    file.tensors["causal"] = at::tensor({int64_t{pairs.is_causal}, pairs.query_offset}, at::kLong);
    if (pairs.key_bits.defined()) file.tensors["key_bits"] = pairs.key_bits;
    if (pairs.query_mask.defined()) file.tensors["query_mask"] = pairs.query_mask;
  } else {
    file.tensors["row_offsets"] = row_offsets();
    file.tensors["col_indices"] = col_indices();
  }
  io::save_safetensors(path, file);
}

EdgeSet EdgeSet::load(const std::string& path) {
  const io::TensorFile file = io::load_safetensors(path);
  const std::string format = checked_format(path, file.metadata);
  const int64_t* const sizes = numbers_of(path, file, "shape", 4);
  const EdgeShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
  const std::string where = "EdgeSet::load: " + path;
  graph::check_shape(where.c_str(), shape);
  if (format == kSquareFormat) return squares_in(path, file, shape);
  const at::Tensor &row_offsets = tensor_of(path, file, "row_offsets"),
                   &col_indices = tensor_of(path, file, "col_indices");
  graph::check_csr(where.c_str(), shape, row_offsets, col_indices);
  return from_trusted_csr(shape, row_offsets, col_indices);
}

}  // namespace edgewise
