// Snapshots: the graphs that a model's heads choose on a few inputs, at one moment of training. `edgewise
// explore` shows them.
//
// A head has its edges (or, in squares, its squares), the attention weight on each, and, where a block model
// chose them, memberships and block matrix. Its size is bounded: see SnapshotLimits. docs/reference/files.md
// describes the file.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/models/model.h>
#include <edgewise/train/precision.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::io {
class SafetensorsReader;
}

namespace edgewise::train {

struct SnapshotLimits {
  int64_t head_edges = int64_t{1} << 20;  // of a head; beyond that each query keeps its heaviest
  int64_t all_edges = int64_t{1} << 23;   // of all heads and inputs together
  int64_t membership_rows = 1024;         // queries, and keys, whose memberships are kept
  int64_t dense_tokens = 1024;            // dense attention is shown for inputs up to this length
  int64_t right_tokens = 4096;            // and so are right edges
};

// Nodes are tokens, or groups of 16 tokens where the layer's unit is 16.
struct HeadSnapshot {
  at::Tensor offsets;  // [query nodes + 1] int32: where each query's edges begin
  at::Tensor keys;     // [kept] int32, ascending in a row
  // [kept] float16, undefined without: softmax over the query's edges; of a square the share of its queries'
  // attention that it takes, on average.
  at::Tensor weights;
  int64_t edges = 0;                      // pairs that attention computed, kept or not
  int64_t chosen = 0;                     // edges, or squares, before the limit
  double density = 0;                     // pairs over valid pairs
  at::Tensor query_membership, key_side;  // [rows, C] float16: those of every membership_stride-th node
  at::Tensor block_matrix;                // [C, C] float32
};

struct LayerSnapshot {
  std::string name;               // "encoder 0", "across 1"; empty: its number says all
  bool is_of_target = false;      // queries are tokens of InputSnapshot::target
  bool looks_at_target = false;   // keys are
  int64_t unit = 1;               // 1 or 16
  int64_t queries = 0, keys = 0;  // nodes
  int64_t membership_stride = 1;
  std::vector<HeadSnapshot> heads;
};

// What a decoder reads beside the sequence that its encoder reads.
struct TargetSnapshot {
  int64_t length = 0;  // T; 0: there is none
  at::Tensor tokens;   // [T] int32
  at::Tensor valid;    // [T] bool; undefined: all are
};

// One sequence; of a pair, one of the two; of a translation, both.
struct InputSnapshot {
  int64_t example = 0, tower = 0;
  std::string name;      // of an input that is no example: "text 1"
  at::Tensor tokens;     // [N] int32; undefined for data without ids
  at::Tensor valid;      // [N] bool; undefined: all are
  at::Tensor positions;  // [N] int32: where each token stands; undefined: token n stands at n
  at::Tensor labels;     // [N] int32 of tokens, or [1] of the sequence; -1 = no target
  at::Tensor predicted;  // the likeliest, in the same form
  HeadSnapshot right;    // offsets and keys of the right edges, for tasks that know them; else undefined
  HeadSnapshot given;    // offsets and keys of the edges that came with the input: of a graph; else undefined
  int64_t length = 0;    // N
  TargetSnapshot target;
  std::vector<LayerSnapshot> layers;
};

struct Snapshot {
  int64_t step = 0;
  std::string task;
  bool is_causal = false;
  data::TokenView view;
  // Pieces of a tokeniser that occur in the inputs, by id; where the view has no names.
  std::map<int64_t, std::string> pieces = {};
  std::vector<InputSnapshot> inputs;
};

struct SnapshotRequest {
  int64_t step = 0;
  std::vector<int64_t> examples = {};  // of validation
  uint64_t seed = 0;                   // of the edges: those of an evaluation with this seed
  at::Device device = at::kCPU;
  Precision precision = Precision::kFp32;
  bool is_causal = false;
  SnapshotLimits limits = {};
};

// Runs the model on every example in evaluation mode, without gradients; leaves it in the mode it was in.
// Takes no random number that training would take.
Snapshot take_snapshot(Model& model, const data::Dataset& dataset, const SnapshotRequest& request);

// The same of inputs that are in no data set; request.examples is not looked at.
struct SnapshotItem {
  Batch batch = {};       // of one item
  int64_t example = 0;    // the item that its edges are drawn as
  std::string name = {};  // InputSnapshot::name
  at::Tensor right = {};  // data::Dataset::right_edges
};
struct SnapshotTask {
  std::string name = {};
  data::TokenView view = {};
  const data::TextReader* reader = nullptr;  // whose pieces are told; none: the view says all
};
Snapshot take_snapshot(Model& model, const SnapshotTask& task, const std::vector<SnapshotItem>& items,
                       const SnapshotRequest& request);

// Written aside, synced and renamed. Equal snapshots give equal bytes.
void save_snapshot(const std::filesystem::path& path, const Snapshot& snapshot);

// A file of snapshots, part by part. Whatever the file holds, a part is right in sizes, order and checksum,
// or c10::ValueError says which is not. Thread-safe.
class SnapshotFile {
 public:
  explicit SnapshotFile(const std::filesystem::path& path);

  // Everything but tensors: figures of heads are there, their edges are not.
  const Snapshot& about() const { return about_; }
  // The same input with its tokens, labels and right edges.
  InputSnapshot input(size_t index) const;
  HeadSnapshot head(size_t input, size_t layer, size_t head) const;

 private:
  // A size of -1 is any. Undefined where there is none of that name and it may be missing.
  at::Tensor tensor(const std::string& name, at::ScalarType dtype, std::vector<int64_t> sizes,
                    bool may_miss = false) const;
  void read_edges(const std::string& name, int64_t queries, int64_t keys, HeadSnapshot& head) const;

  std::shared_ptr<const io::SafetensorsReader> reader_;
  std::map<std::string, uint32_t> checksums_;
  Snapshot about_;
};

}  // namespace edgewise::train
