// What snapshots keep beside edges: a second text, edges that came with the input, pieces of a tokeniser.
// Written, read and refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/io/safetensors.h>
#include <edgewise/train/snapshot.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using kit::ScratchFolder;
using ::testing::HasSubstr;

at::Tensor ints(std::vector<int64_t> values) {
  return at::tensor(values, at::kInt);
}

// Every query looks at the first key.
LayerSnapshot first_key_layer(int64_t queries, int64_t keys) {
  LayerSnapshot layer;
  layer.queries = queries;
  layer.keys = keys;
  HeadSnapshot head;
  head.offsets = at::arange(queries + 1, at::kInt);
  head.keys = at::zeros({queries}, at::kInt);
  head.weights = at::ones({queries}, at::kHalf);
  head.edges = head.chosen = queries;
  head.density = 1.0 / static_cast<double>(keys);
  layer.heads.push_back(head);
  return layer;
}

// Three tokens with two given edges, and two of a translation.
Snapshot translation() {
  InputSnapshot input;
  input.name = "text 1";
  input.length = 3;
  input.tokens = ints({4, 5, 6});
  input.given.offsets = ints({0, 1, 1, 2});
  input.given.keys = ints({2, 0});
  input.target = {.length = 2, .tokens = ints({7, 8}), .valid = ints({1, 0}).to(at::kBool)};
  input.labels = input.predicted = ints({8, 9});
  input.layers = {first_key_layer(3, 3), first_key_layer(2, 3)};
  input.layers[0].name = "encoder 0";
  input.layers[1].name = "across 0";
  input.layers[1].is_of_target = true;
  Snapshot snapshot;
  snapshot.task = "translation";
  snapshot.pieces = {{4, "Haus"}, {7, "\xC3"}};  // half of a character
  snapshot.inputs.push_back(input);
  return snapshot;
}

TEST(SnapshotFile, GivesBackBothTextsAndTheirLayers) {
  const ScratchFolder scratch;
  save_snapshot(scratch / "s", translation());
  const SnapshotFile file(scratch / "s");
  const InputSnapshot input = file.input(0);
  EXPECT_EQ(input.name, "text 1");
  EXPECT_EQ(input.target.length, 2);
  EXPECT_TRUE(at::equal(input.target.tokens, ints({7, 8})));
  EXPECT_TRUE(at::equal(input.target.valid, ints({1, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(input.given.keys, ints({2, 0})));
  EXPECT_TRUE(at::equal(input.labels, ints({8, 9})));
  ASSERT_EQ(input.layers.size(), 2);
  EXPECT_EQ(input.layers[1].name, "across 0");
  EXPECT_TRUE(input.layers[1].is_of_target);
  EXPECT_FALSE(input.layers[1].looks_at_target);
  EXPECT_FALSE(input.layers[0].is_of_target);
  EXPECT_EQ(file.head(0, 1, 0).offsets.size(0), 3);
  EXPECT_EQ(file.about().pieces.at(4), "Haus");
  EXPECT_EQ(file.about().pieces.at(7), "\xEF\xBF\xBD") << "what is no text becomes U+FFFD";
}

TEST(SnapshotFile, RefusesWhatDoesNotFit) {
  const ScratchFolder scratch;
  const auto refusal = [&](auto&& change) {
    Snapshot snapshot = translation();
    change(snapshot.inputs[0]);
    save_snapshot(scratch / "s", snapshot);
    return message_of([&] { SnapshotFile(scratch / "s").input(0); });
  };
  EXPECT_THAT(refusal([](InputSnapshot& input) { input.target.tokens = ints({7}); }),
              HasSubstr("expected 'input.0.target.tokens' to be Int [2]"));
  EXPECT_THAT(refusal([](InputSnapshot& input) {
                input.given.keys = ints({3, 0});
              }),
              HasSubstr("below the nodes"));
  EXPECT_THAT(refusal([](InputSnapshot& input) { input.name = std::string(300, 'x'); }),
              HasSubstr("expected 'name' to be a text of at most 256 bytes"));
  EXPECT_THAT(refusal([](InputSnapshot& input) { input.target.length = int64_t{1} << 60; }),
              HasSubstr("expected 'target_length' from 0"));
  const auto described = [&](const std::string& about) {
    io::save_safetensors(scratch / "s",
                         {.tensors = {}, .metadata = {{"format", "edgewise.snapshot.1"}, {"about", about}}});
    return message_of([&] { SnapshotFile(scratch / "s"); });
  };
  const std::string start =
      R"({"step": 0, "task": "x", "causal": false, "picture_width": 0, "token_names": [], "inputs": [])";
  EXPECT_THAT(described(start + R"(, "pieces": [3]})"), HasSubstr("pairs of an id and a text"));
  EXPECT_THAT(described(start + R"(, "pieces": [["a", "b"]]})"), HasSubstr("pairs of an id and a text"));
  EXPECT_THAT(described(start + R"(, "pieces": [[1, 2]]})"), HasSubstr("expected 'pieces' to be a text"));
}

}  // namespace
}  // namespace edgewise::train
