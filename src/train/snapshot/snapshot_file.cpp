// The file of a snapshot: safetensors, with its description and the CRC-32C of every tensor as metadata.
#include <edgewise/train/snapshot.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <sstream>

#include <edgewise/io/safetensors.h>

#include "io/crc32c.h"
#include "train/snapshot/snapshot_json.h"

namespace edgewise::train {
namespace {

constexpr const char* kSnapshotFormat = "edgewise.snapshot.1";

std::string input_name(size_t input) {
  return "input." + std::to_string(input) + ".";
}
std::string head_name(size_t input, size_t layer, size_t head) {
  return input_name(input) + "layer." + std::to_string(layer) + ".head." + std::to_string(head) + ".";
}
std::string block_name(size_t layer, size_t head) {  // the same for all inputs
  return "layer." + std::to_string(layer) + ".head." + std::to_string(head) + ".block_matrix";
}

uint32_t checksum_of(const at::Tensor& tensor) {
  return io::crc32c({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

// "NAME HEX\n" for every tensor.
std::string checksums_of(const std::map<std::string, at::Tensor>& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    char hex[16];
    std::snprintf(hex, sizeof(hex), "%08x", checksum_of(tensor));
    text += name + " " + hex + "\n";
  }
  return text;
}

std::map<std::string, uint32_t> parse_checksums(const std::string& text) {
  std::map<std::string, uint32_t> result;
  std::istringstream lines(text);
  std::string name, hex;
  while (lines >> name >> hex) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (error == std::errc() && end == hex.data() + hex.size()) result[name] = value;
  }
  return result;
}

class Tensors {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) all_[name] = tensor.contiguous();
  }
  void add_edges(const std::string& name, const HeadSnapshot& head) {
    add(name + "offsets", head.offsets);
    add(name + "keys", head.keys);
    add(name + "weights", head.weights);
  }
  std::map<std::string, at::Tensor> take() { return std::move(all_); }

 private:
  std::map<std::string, at::Tensor> all_;
};

// Why these are no edges of a graph of so many nodes; empty when they are. O(queries + edges).
std::string edges_problem(const HeadSnapshot& head, int64_t queries, int64_t keys) {
  const std::span offsets(head.offsets.const_data_ptr<int32_t>(), static_cast<size_t>(queries + 1));
  const std::span columns(head.keys.const_data_ptr<int32_t>(), static_cast<size_t>(head.keys.size(0)));
  if (offsets.front() != 0 || offsets.back() != head.keys.size(0))
    return "offsets that go from 0 to the number of keys";
  if (!std::is_sorted(offsets.begin(), offsets.end())) return "offsets that rise";
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    int32_t before = -1;
    for (const int32_t key : columns.subspan(static_cast<size_t>(offsets[row]),
                                             static_cast<size_t>(offsets[row + 1] - offsets[row]))) {
      if (key <= before || key >= keys) return "keys that rise within a row and stay below the nodes";
      before = key;
    }
  }
  return {};
}

}  // namespace

void save_snapshot(const std::filesystem::path& path, const Snapshot& snapshot) {
  Tensors tensors;
  for (size_t i = 0; i < snapshot.inputs.size(); ++i) {
    const InputSnapshot& input = snapshot.inputs[i];
    tensors.add(input_name(i) + "tokens", input.tokens);
    tensors.add(input_name(i) + "valid", input.valid);
    tensors.add(input_name(i) + "positions", input.positions);
    tensors.add(input_name(i) + "labels", input.labels);
    tensors.add(input_name(i) + "predicted", input.predicted);
    tensors.add_edges(input_name(i) + "right.", input.right);
    tensors.add_edges(input_name(i) + "given.", input.given);
    tensors.add(input_name(i) + "target.tokens", input.target.tokens);
    tensors.add(input_name(i) + "target.valid", input.target.valid);
    for (size_t l = 0; l < input.layers.size(); ++l) {
      for (size_t h = 0; h < input.layers[l].heads.size(); ++h) {
        const HeadSnapshot& head = input.layers[l].heads[h];
        tensors.add_edges(head_name(i, l, h), head);
        tensors.add(head_name(i, l, h) + "query_membership", head.query_membership);
        tensors.add(head_name(i, l, h) + "key_side", head.key_side);
        tensors.add(block_name(l, h), head.block_matrix);
      }
    }
  }
  io::TensorFile file{.tensors = tensors.take(), .metadata = {}};
  file.metadata = {
      {"format", kSnapshotFormat}, {"about", to_json(snapshot)}, {"checksums", checksums_of(file.tensors)}};
  io::save_safetensors(path, file);
}

SnapshotFile::SnapshotFile(const std::filesystem::path& path)
    : reader_(std::make_shared<const io::SafetensorsReader>(path)) {
  const auto& metadata = reader_->header().metadata;
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  TORCH_CHECK_VALUE(text("format") == kSnapshotFormat, "snapshot: '", path.string(),
                    "': expected the format ", kSnapshotFormat, "; found '", text("format"),
                    "'. Is it a snapshot of this version?");
  checksums_ = parse_checksums(text("checksums"));
  about_ = snapshot_of_json(text("about"), path.string());
}

at::Tensor SnapshotFile::tensor(const std::string& name, at::ScalarType dtype, std::vector<int64_t> sizes,
                                bool may_miss) const {
  const auto& tensors = reader_->header().tensors;
  const auto found = tensors.find(name);
  if (found == tensors.end() && may_miss) return {};
  const std::string file = reader_->path().string();
  TORCH_CHECK_VALUE(found != tensors.end(), "snapshot: '", file, "': expected a tensor '", name,
                    "'; it is missing");
  const std::vector<int64_t>& shape = found->second.shape;
  const bool fits = std::ranges::equal(
      shape, sizes, [](int64_t is, int64_t wanted) { return wanted == -1 || is == wanted; });
  TORCH_CHECK_VALUE(fits && found->second.dtype == dtype, "snapshot: '", file, "': expected '", name,
                    "' to be ", dtype, " ", at::IntArrayRef(sizes), "; found ", found->second.dtype, " ",
                    at::IntArrayRef(shape));
  at::Tensor tensor = reader_->tensor(name);
  const auto checksum = checksums_.find(name);
  TORCH_CHECK_VALUE(checksum != checksums_.end() && checksum->second == checksum_of(tensor), "snapshot: '",
                    file, "': the bytes of '", name,
                    "' do not have the checksum that they were written with; the file is damaged");
  return tensor;
}

void SnapshotFile::read_edges(const std::string& name, int64_t queries, int64_t keys,
                              HeadSnapshot& head) const {
  head.offsets = tensor(name + "offsets", at::kInt, {queries + 1});
  head.keys = tensor(name + "keys", at::kInt, {-1});
  const std::string problem = edges_problem(head, queries, keys);
  TORCH_CHECK_VALUE(problem.empty(), "snapshot: '", reader_->path().string(), "': expected ", problem,
                    " in '", name, "'; the file is damaged");
  head.weights = tensor(name + "weights", at::kHalf, {head.keys.size(0)}, /*may_miss=*/true);
}

InputSnapshot SnapshotFile::input(size_t index) const {
  TORCH_CHECK_INDEX(index < about_.inputs.size(), "snapshot: expected an input below ", about_.inputs.size(),
                    "; got ", index);
  InputSnapshot input = about_.inputs[index];
  const std::string name = input_name(index);
  const int64_t n = input.length;
  input.tokens = tensor(name + "tokens", at::kInt, {n}, true);
  input.valid = tensor(name + "valid", at::kBool, {n}, true);
  input.positions = tensor(name + "positions", at::kInt, {n}, true);
  input.labels = tensor(name + "labels", at::kInt, {-1}, true);
  input.predicted = tensor(name + "predicted", at::kInt, {-1}, true);
  if (reader_->has(name + "right.offsets")) read_edges(name + "right.", n, n, input.right);
  if (reader_->has(name + "given.offsets")) read_edges(name + "given.", n, n, input.given);
  const int64_t t = input.target.length;
  if (t > 0) input.target.tokens = tensor(name + "target.tokens", at::kInt, {t}, true);
  if (t > 0) input.target.valid = tensor(name + "target.valid", at::kBool, {t}, true);
  return input;
}

HeadSnapshot SnapshotFile::head(size_t input, size_t layer, size_t head) const {
  const bool exists = input < about_.inputs.size() && layer < about_.inputs[input].layers.size() &&
                      head < about_.inputs[input].layers[layer].heads.size();
  TORCH_CHECK_INDEX(exists, "snapshot: there is no head ", head, " of layer ", layer, " of input ", input);
  const LayerSnapshot& of = about_.inputs[input].layers[layer];
  HeadSnapshot result = of.heads[head];
  const std::string name = head_name(input, layer, head);
  read_edges(name, of.queries, of.keys, result);
  const auto rows = [&](int64_t nodes) { return (nodes + of.membership_stride - 1) / of.membership_stride; };
  result.query_membership = tensor(name + "query_membership", at::kHalf, {rows(of.queries), -1}, true);
  if (!result.query_membership.defined()) return result;
  const int64_t clusters = result.query_membership.size(1);
  result.key_side = tensor(name + "key_side", at::kHalf, {rows(of.keys), clusters});
  result.block_matrix = tensor(block_name(layer, head), at::kFloat, {clusters, clusters}, /*may_miss=*/true);
  return result;
}

}  // namespace edgewise::train
