// Files that were made to harm: deeper, larger or longer than any of their kind.
#include <edgewise/data/lra_import.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/TensorIndexing.h>

#include "data/graphs/npy.h"
#include "data/graphs/pickle.h"
#include "data/graphs/planetoid_kit.h"
#include "data/readers/compressed.h"
#include "kit/message_of.h"
#include "kit/scratch_folder.h"

#include <edgewise/data/graphs/import_graph.h>

namespace edgewise::data {
namespace {

using kit::message_of;
using testing::HasSubstr;

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string little_endian(int64_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

TEST(HostileFiles, APickleOfAnyDepthIsReadAndLetGo) {
  std::string deep = "\x80\x02)";
  for (int n = 0; n < 300'000; ++n) deep += '\x85';  // a tuple of the value before
  int levels = 0;
  {
    const auto value = read_pickle(bytes_of(deep + "."), "deep");
    for (const PickleValue* at = value.get(); !at->items.empty(); at = at->items[0]) ++levels;
  }
  EXPECT_EQ(levels, 300'000);
  // A list in itself, which counted references would never let go.
  const std::string circle = std::string("\x80\x02]q\0h\0a.", 9);
  const auto value = read_pickle(bytes_of(circle), "circle");
  EXPECT_EQ(value->items.at(0), value.get());
}

TEST(HostileFiles, ArraysOfPicklesClaimNoMoreThanTheyHold) {
  // Sizes whose product, times the size of an element, does not fit 64 bits.
  const std::string size = "J" + little_endian(0x7FFFFFFF);
  const auto array = [&](const std::string& kind) {
    return "\x80\x02"
           "cnumpy.core.multiarray\n_reconstruct\n)R(K\x01(" +
           size + size + "tcnumpy\ndtype\nU\x02" + kind + std::string("K\0\x86R(K\x03U\x01<tb\x89U\x04", 15) +
           "1234tb.";
  };
  for (const char* kind : {"f4", "f9", "f\xFF", "i8"}) {
    const auto value = read_pickle(bytes_of(array(kind)), "array");
    EXPECT_THAT(message_of([&] { pickled_array(*value, "array"); }), HasSubstr("array: expected an array of"))
        << kind;
  }
}

TEST(HostileFiles, APickleTakesNothingFromBelowItsMark) {
  const std::string below = "\x80\x02K\x01(\x85.";  // a number, a mark, a tuple of one
  EXPECT_THAT(message_of([&] { read_pickle(bytes_of(below), "below"); }),
              HasSubstr("expected a value on the stack"));
}

TEST(HostileFiles, RowsOfAMatrixDoNotEndBeforeTheyBegin) {
  const std::string falling =
      "\x80\x02"
      "cscipy.sparse.csr\ncsr_matrix\n)\x81}(" +
      text("_shape") + number(3) + number(4) + "\x86" + text("indptr") +
      array({4}, "i4", raw(std::vector<int32_t>{0, 2, 1, 3})) + text("indices") +
      array({3}, "i4", raw(std::vector<int32_t>{0, 1, 2})) + text("data") +
      array({3}, "f4", raw(std::vector<float>{1, 1, 1})) + "ub.";
  EXPECT_THAT(message_of([&] { pickled_matrix(*read_pickle(bytes_of(falling), "falling"), "falling"); }),
              HasSubstr("row 1 of the matrix ends before it begins"));
}

TEST(HostileFiles, AFeatureOfANodeOccursOnce) {
  const kit::ScratchFolder scratch;
  scratch.write("e", "0 1\n"), scratch.write("f", "1 2\n3 4\n5 6\n7 8\n"), scratch.write("l", "a\na\na\nb\n");
  GraphData graph =
      import_graph_files({.edges = scratch / "e", .features = scratch / "f", .labels = scratch / "l"}).graph;
  EXPECT_EQ(message_of([&] { check_graph(graph, "graph"); }), "no error");
  graph.feature_columns[1] = 0;
  EXPECT_THAT(message_of([&] { check_graph(graph, "graph"); }),
              HasSubstr("node 0 has feature 0 behind feature 0"));
}

std::string npy(const std::string& header) {
  return "\x93NUMPY\x02" + std::string(1, '\0') + little_endian(static_cast<int64_t>(header.size())) + header;
}

TEST(HostileFiles, ANumpyHeaderHasABound) {
  EXPECT_THAT(
      message_of([&] { read_npy(bytes_of(npy("{'descr': '" + std::string(1 << 20, 'x') + "'")), "long"); }),
      HasSubstr("expected a header of at most 4096 bytes"));
  const std::string huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999, 999999999999)}";
  EXPECT_THAT(message_of([&] { read_npy(bytes_of(npy(huge)), "huge"); }),
              HasSubstr("at most two dimensions, each below 2^31"));
}

TEST(HostileFiles, WhatIsCompressedUnfoldsToABound) {
  const std::vector<uint8_t> zeros(std::size_t{65} << 20), packed = xz_compress(zeros);
  EXPECT_LT(packed.size(), 20'000u);
  EXPECT_THAT(message_of([&] { xz_decompress(packed, "bomb"); }),
              HasSubstr("bomb: expected at most 67108864 bytes"));
  EXPECT_EQ(xz_decompress(packed, "sound", zeros.size()).size(), zeros.size());
  EXPECT_THAT(message_of([&] { xz_decompress(packed, "short", 100); }),
              HasSubstr("short: expected at most 100 bytes"));
}

TEST(HostileFiles, JsonOfAGraphHasABound) {
  const kit::ScratchFolder scratch;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  scratch.write("g-G.json", "{\"nodes\": [{\"id\": " + deep + "}], \"links\": []}");
  scratch.write("g-class_map.json", "{}");
  scratch.write("g-feats.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 0), }"));
  EXPECT_THAT(message_of([&] { import_graphsage(scratch.path(), "g"); }),
              HasSubstr("g-G.json: expected JSON of at most 32 levels"));
}

TEST(HostileFiles, PathfinderReadsNoPictureOfAnotherFolder) {
  const kit::ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "metadata");
  for (const char* line : {"../.. secret.png 0 1", "imgs /etc/passwd 0 1"}) {
    scratch.write("metadata/0.npy", line);
    EXPECT_THAT(message_of([&] { import_pathfinder(scratch.path()); }),
                HasSubstr("expected a picture below"));
  }
}

}  // namespace
}  // namespace edgewise::data
