// safetensors, and the files that are made of them: edges, token examples, snapshots.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdio>

#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/token_examples.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/snapshot.h>

#include "fuzz_target.h"
#include "io/crc32c.h"
#include "seeds.h"
#include "train/snapshot/snapshot_json.h"

namespace edgewise::fuzz {
namespace {

std::string saved(const io::TensorFile& file, bool checksums = false) {
  io::save_safetensors(scratch() / "made.safetensors", file, checksums);
  return read_scratch("made.safetensors");
}

io::TensorFile small_file() {
  return {.tensors = {{"a", at::arange(3, at::kFloat)},
                      {"b", at::ones({2, 1}, at::kBool)},
                      {"c", at::zeros({0, 4}, at::kHalf)}},
          .metadata = {{"format", "edgewise-checkpoint"},
                       {"format_version", "1"},
                       {"step", "3"},
                       {"recipe", "[data]\n"},
                       {"best_metric", "0.5"},
                       {"best_step", "2"}}};
}

// What is read is written and read again as the same.
void run_safetensors(std::string_view input) {
  const auto path = write_scratch("input.safetensors", input);
  refuses_or_reads([&] {
    const io::TensorFile file = io::load_safetensors(path);
    const std::string first = saved(file, /*checksums=*/true);
    const io::TensorFile again = io::load_safetensors(scratch() / "made.safetensors");
    must(again.tensors.size() == file.tensors.size(), "as many tensors as were written");
    must(saved(again, /*checksums=*/true) == first, "the same file again");
  });
  refuses_or_reads([&] { train::read_checkpoint_info(path.string()); });
}

void run_edges(std::string_view input) {
  const auto path = write_scratch("input.edges", input);
  refuses_or_reads([&] {
    const EdgeSet edges = EdgeSet::load(path.string());
    edges.save((scratch() / "edges.again").string());
  });
}

std::string edges_seed(bool square) {
  const EdgeShape shape{1, 1, square ? 16 : 3, square ? 16 : 3};
  if (!square)
    EdgeSet::from_csr(shape, at::tensor({0, 1, 1, 3}, at::kLong), at::tensor({2, 0, 1}, at::kInt))
        .save((scratch() / "made.edges").string());
  else
    io::save_safetensors(scratch() / "made.edges",
                         {.tensors = {{"shape", at::tensor({1, 1, 16, 16}, at::kLong)},
                                      {"square_offsets", at::tensor({0, 1}, at::kLong)},
                                      {"square_cols", at::tensor({0}, at::kInt)},
                                      {"causal", at::tensor({0, 0}, at::kLong)}},
                          .metadata = {{"format", "edgewise.edge_set.squares.1"}}});
  return read_scratch("made.edges");
}

// The tensors' checksum as the reader wants it, so that what lies behind it is reached too.
void run_snapshot(std::string_view input) {
  const auto path = write_scratch("input.snapshot", input);
  refuses_or_reads([&] {
    io::TensorFile file = io::load_safetensors(path);
    std::string sums;
    for (const auto& [name, tensor] : file.tensors) {
      char hex[16];
      std::snprintf(hex, sizeof hex, "%08x",
                    io::crc32c({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}));
      sums += name + " " + hex + "\n";
    }
    file.metadata["checksums"] = sums;
    io::save_safetensors(path, file);
    const train::SnapshotFile snapshot(path);
    for (size_t i = 0; i < snapshot.about().inputs.size(); ++i) {
      refuses_or_reads([&] { snapshot.input(i); });
      for (size_t l = 0; l < snapshot.about().inputs[i].layers.size(); ++l)
        for (size_t h = 0; h < snapshot.about().inputs[i].layers[l].heads.size(); ++h)
          refuses_or_reads([&] { snapshot.head(i, l, h); });
    }
  });
}

void run_snapshot_json(std::string_view input) {
  refuses_or_reads([&] {
    const std::string text = train::to_json(train::snapshot_of_json(std::string(input), "input"));
    must(train::to_json(train::snapshot_of_json(text, "input")) == text, "the same description again");
  });
}

data::TextReader byte_reader() {
  data::TextReaderOptions options;
  options.classes = {"no", "yes"};
  return {std::make_shared<data::BytesTokenizer>(), options};
}

std::string token_seed() {
  data::TokenExamples examples;
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest}) {
    const std::vector<int32_t> ids = {5, 6, 7};
    examples.part(split).add(ids, 1);
    examples.part(split).answers.push_back(1);
  }
  data::save_token_examples(scratch() / "tokens", examples, byte_reader());
  return read_scratch("tokens/examples.safetensors");
}

void run_token_examples(std::string_view input) {
  std::filesystem::create_directories(scratch() / "tokens");
  write_scratch("tokens/examples.safetensors", input);
  static const data::TextReader reader = byte_reader();
  refuses_or_reads([&] { data::load_token_examples(scratch() / "tokens", reader); });
}

}  // namespace

train::Snapshot small_snapshot() {
  train::HeadSnapshot head{.offsets = at::tensor({0, 1, 3}, at::kInt),
                           .keys = at::tensor({1, 0, 1}, at::kInt),
                           .weights = at::ones({3}, at::kHalf),
                           .edges = 3,
                           .chosen = 3,
                           .density = 0.75,
                           .query_membership = at::ones({2, 2}, at::kHalf),
                           .key_side = at::ones({2, 2}, at::kHalf),
                           .block_matrix = at::ones({2, 2}, at::kFloat)};
  train::HeadSnapshot right;
  right.offsets = at::tensor({0, 1, 1}, at::kInt);
  right.keys = at::tensor({1}, at::kInt);
  train::LayerSnapshot layer;
  layer.queries = layer.keys = 2;
  layer.heads = {head};
  train::InputSnapshot input;
  input.tokens = at::tensor({1, 2}, at::kInt);
  input.valid = at::ones({2}, at::kBool);
  input.labels = at::tensor({0, -1}, at::kInt);
  input.predicted = at::tensor({1, 1}, at::kInt);
  input.right = right;
  input.length = 2;
  input.layers = {layer};
  return {.step = 3, .task = "repeated_tokens", .view = {.names = {"a", "b"}}, .inputs = {input}};
}

std::vector<Target> file_targets() {
  const auto snapshot_seed = [] {
    train::save_snapshot(scratch() / "made.snapshot", small_snapshot());
    return read_scratch("made.snapshot");
  };
  return {
      {"safetensors", "load_safetensors, SafetensorsReader, read_checkpoint_info",
       [] {
         return std::vector<std::string>{saved(small_file()), saved(small_file(), true), saved({})};
       },
       run_safetensors},
      {"edges", "EdgeSet::load",
       [] {
         return std::vector<std::string>{edges_seed(false), edges_seed(true)};
       },
       run_edges},
      {"snapshot", "SnapshotFile, with checksums made right",
       [=] { return std::vector<std::string>{snapshot_seed()}; }, run_snapshot},
      {"snapshot_json", "the description of a snapshot",
       [] { return std::vector<std::string>{train::to_json(small_snapshot())}; }, run_snapshot_json},
      {"token_examples", "load_token_examples", [] { return std::vector<std::string>{token_seed()}; },
       run_token_examples},
  };
}

}  // namespace edgewise::fuzz
