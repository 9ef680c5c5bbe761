// Graph files that are damaged, hostile, or say what nobody means: an error with the place, never a crash or
// a graph that is silently another.
#include <ATen/ATen.h>

#include <edgewise/io/safetensors.h>

#include <cmath>

#include "data/examples/examples_kit.h"
#include "data/graphs/graph_files_kit.h"

namespace edgewise::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> longs_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// Deeper than a stack is, from the inside out and from the outside in.
TEST(FaultyPickles, DeepOnesAreErrors) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const auto message = [&](const std::string& pickle) {
    scratch.write("ind.tiny.graph", "\x80\x02" + pickle);
    return complaint([&] { import_planetoid(scratch.path(), "tiny"); });
  };
  EXPECT_THAT(message(")" + std::string(1'000'000, '\x85') + "."),
              HasSubstr("expected a list of neighbours for every node"));
  std::string outside_in = "]r" + raw(std::vector<uint32_t>{0});
  for (uint32_t n = 1; n < 300'000; ++n)  // list n - 1 holds list n, which is filled afterwards
    outside_in += "]r" + raw(std::vector<uint32_t>{n}) + "aj" + raw(std::vector<uint32_t>{n});
  EXPECT_THAT(message(outside_in + "."), HasSubstr("expected a list of neighbours for every node"));
  EXPECT_THAT(message("]q\x01h\x01"
                      "a."),
              HasSubstr("expected a list of neighbours for every node"));
}

TEST(FaultyPickles, SizesOfMatricesAreChecked) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const auto message = [&](int64_t rows, const std::vector<int32_t>& offsets) {
    const auto ints = [](const std::vector<int32_t>& values) {
      return array({static_cast<int64_t>(values.size())}, "i4", raw(values));
    };
    scratch.write("ind.tiny.tx",
                  "\x80\x02"
                  "cscipy.sparse.csr\ncsr_matrix\n)\x81}(" +
                      text("_shape") + number(rows) + number(4) + "\x86" + text("indptr") + ints(offsets) +
                      text("indices") + ints({}) + text("data") + ints({}) + "ub.");
    return complaint([&] { import_planetoid(scratch.path(), "tiny"); });
  };
  EXPECT_THAT(message(-1, {}), HasSubstr("fewer than 2^31 rows and columns; found -1"));
  EXPECT_THAT(message(1, {0, -1}), HasSubstr("expected indptr of whole numbers"));
  EXPECT_EQ(message(1, {0, 0}), "(no error)");
}

TEST(FaultyNpy, HeadersAreErrors) {
  const ScratchFolder scratch;
  write_graphsage(scratch);
  const auto message = [&](const std::string& bytes) {
    scratch.write("tiny-feats.npy", bytes);
    return complaint([&] { import_graphsage(scratch.path(), "tiny"); });
  };
  std::string header =
      "{'descr': '" + std::string(60'000, 'x') + "', 'fortran_order': False, 'shape': (4, 1), }";
  const std::string length = raw(std::vector<uint16_t>{static_cast<uint16_t>(header.size())});
  EXPECT_THAT(message(std::string("\x93NUMPY\x01") + '\0' + length + header),
              HasSubstr("expected a header of at most 4096 bytes"));
  EXPECT_THAT(message(npy("<f8", "4294967296, 4294967296", "")), HasSubstr("each below 2^31"));
  EXPECT_THAT(message(npy("<f8", "1234567890123, 1", "")), HasSubstr("each below 2^31"));
  EXPECT_THAT(message(npy("<f8", "2147483647, 2147483647", "")), HasSubstr("found 0 bytes"));
  EXPECT_THAT(message(npy("<f8", "4, 1, 1", "")), HasSubstr("at most two dimensions"));
  EXPECT_THAT(message(npy("<f8", "4; 1", "")), HasSubstr("at most two dimensions"));
}

// What makes another graph of GraphSAGE's files without a word.
TEST(FaultyGraphSage, EveryNodeIsNamedOnceAndLabelled) {
  const ScratchFolder scratch;
  const auto message = [&](const std::string& file, const std::string& text) {
    write_graphsage(scratch);
    scratch.write(file, text);
    return complaint([&] { import_graphsage(scratch.path(), "tiny"); });
  };
  const char* const labels = "tiny-class_map.json";
  EXPECT_THAT(message(labels, R"({"a": [1, 0], "b": [0, 0], "c": [1, 1]})"),
              HasSubstr("expected labels of 4 nodes; found 3"));
  EXPECT_THAT(message(labels, R"({"a": [1, 0], "b": [0, 0], "c": [1, 1], "d": [0, 2]})"),
              HasSubstr("a 0 or 1 for every class of node d; found 2"));
  EXPECT_THAT(message(labels, R"({"a": 0, "b": 1, "c": 4294967296, "d": 0})"), HasSubstr("found 4294967296"));
  EXPECT_EQ(message(labels, R"({"a": [true, false], "b": [0, 0], "c": [1, 1], "d": [0, 1]})"), "(no error)");
  EXPECT_EQ(longs_of(import_graphsage(scratch.path(), "tiny").labels.select(0, 0))[0], 1) << "true is 1";
  const char* const ids = "tiny-id_map.json";
  EXPECT_THAT(message(ids, R"({"a": 0, "b": 0, "c": 2, "d": 3})"),
              HasSubstr("has the number of another one"));
  EXPECT_THAT(message(ids, "[0, 1, 2, 3]"), HasSubstr("expected an object of numbers"));
  const auto nodes = [](const std::string& last) {
    return R"({"nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}, )" + last + R"(], "links": []})";
  };
  EXPECT_THAT(message("tiny-G.json", nodes(R"({"id": "c"})")),
              HasSubstr("node 3: the id \"c\" has the number"));
  EXPECT_THAT(message("tiny-G.json", nodes(R"({"id": "d", "val": "yes"})")),
              HasSubstr("node 3: expected val to be true or false; found \"yes\""));
  EXPECT_EQ(message("tiny-G.json", nodes(R"({"id": "d", "val": 1})")), "(no error)");
  EXPECT_EQ(longs_of(import_graphsage(scratch.path(), "tiny").validation_mask),
            (std::vector<int64_t>{0, 0, 0, 1}));
}

TEST(FaultyGraphSage, GraphsOfAFileAreWholeNumbers) {
  const ScratchFolder scratch;
  write_graphsage(scratch);
  const auto write = [&](const std::vector<double>& ids) {
    scratch.write("tiny-graph_id.npy", npy("<f8", "4,", raw(ids)));
  };
  write({7, 3, 7, 3});
  const GraphData graph = import_graphsage(scratch.path(), "tiny");
  EXPECT_THAT(longs_of(graph.graph_offsets), ElementsAre(0, 2, 4)) << "b and d, then a and c";
  EXPECT_THAT(longs_of(graph.edges), ElementsAre(2, 3));
  EXPECT_THAT(longs_of(graph.validation_mask), ElementsAre(1, 0, 0, 0));
  for (const double id : {double{NAN}, -1.0, 0.5, 1e300}) {
    write({0, 0, id, 0});
    EXPECT_THAT(complaint([&] { import_graphsage(scratch.path(), "tiny"); }), HasSubstr("node 2 has "));
  }
  write({});
  EXPECT_NE(complaint([&] { import_graphsage(scratch.path(), "tiny"); }), "(no error)");
}

// Components of training, validation and test; those of one or two nodes belong to the first of their split.
TEST(GraphSage, ComponentsAreGraphs) {
  const ScratchFolder scratch;
  std::string nodes, labels, links;
  // 0-1-2 and 4-5-6 to train on, 3 alone, 7 to 9 in a row to test; 6-7 joins two splits.
  for (int n = 0; n < 10; ++n) {
    const std::string id = std::to_string(n), comma = n == 0 ? "" : ", ";
    nodes += comma + R"({"id": )" + id + R"(, "test": )" + (n >= 7 ? "true}" : "false}");
    labels += comma + "\"" + id + "\": " + std::to_string(n % 2);
  }
  for (const auto& [i, j] : {std::pair(0, 1), {2, 1}, {4, 5}, {5, 6}, {6, 7}, {7, 8}, {9, 8}})
    links += std::string(links.empty() ? "" : ", ") + R"({"source": )" + std::to_string(i) +
             R"(, "target": )" + std::to_string(j) + "}";
  scratch.write("ten-G.json", R"({"nodes": [)" + nodes + R"(], "links": [)" + links + "]}");
  scratch.write("ten-class_map.json", "{" + labels + "}");
  scratch.write("ten-feats.npy", npy("<f8", "10, 1", raw(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})));
  const GraphData graph = import_graphsage(scratch.path(), "ten");
  EXPECT_THAT(longs_of(graph.graph_offsets), ElementsAre(0, 4, 7, 10)) << "0 1 2 3; 4 5 6; 7 8 9";
  EXPECT_THAT(longs_of(graph.edges), ElementsAre(0, 1, 1, 2, 4, 5, 5, 6, 7, 8, 8, 9));
  EXPECT_THAT(longs_of(graph.labels), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_EQ(graph.train_mask.sum().item<int64_t>(), 7);
}

TEST(FaultyGraphFile, MasksAndKindsOfEdges) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const GraphData good = import_planetoid(scratch.path(), "tiny");
  GraphData none = good;
  for (at::Tensor* mask : {&none.train_mask, &none.validation_mask, &none.test_mask})
    *mask = mask->slice(0, 0, 0);
  EXPECT_THAT(complaint([&] { check_graph(none, "it"); }), HasSubstr("of one split at least; found none"));
  GraphData flat = good;
  for (at::Tensor* mask : {&flat.train_mask, &flat.validation_mask, &flat.test_mask}) *mask = mask->flatten();
  EXPECT_THAT(complaint([&] { check_graph(flat, "it"); }), HasSubstr("expected train_mask as Bool"));
  save_graph(scratch / "made", good);
  const auto with_edges = [&](const std::string& text) {
    io::TensorFile file = io::load_safetensors(graph_path(scratch / "made"));
    file.metadata["edges"] = text;
    io::save_safetensors(scratch / "other.safetensors", file);
    return [&] { load_graph(scratch / "other.safetensors"); };
  };
  EXPECT_THAT(complaint(with_edges("symmetric")),
              HasSubstr("to be undirected or directed; found 'symmetric'"));
  EXPECT_EQ(complaint(with_edges("directed")), "(no error)");
  EXPECT_TRUE(load_graph(scratch / "other.safetensors").is_directed);
}

TEST(FaultyGraphFiles, LinesThatMixOrOverflow) {
  const ScratchFolder scratch;
  const auto message = [&](const std::string& features, const std::string& labels = "a\nb\na\n") {
    GraphFiles files = own_files(scratch, "0 1\n", features, labels);
    files.splits = scratch.write("splits.tsv", "train\ntest\nvalidation\n");
    return complaint([&] { import_graph_files(files); });
  };
  EXPECT_THAT(message("7 2:3\n1:1\n1:1\n"),
              HasSubstr("features.tsv:1: expected numbers alone, or column:number"));
  EXPECT_THAT(message("1\n1e300\n2\n"), HasSubstr("features.tsv:2: expected a feature, a finite number"));
  EXPECT_THAT(message("0:1\n2147483647:1\n\n"), HasSubstr("features.tsv:2: expected a column"));
  EXPECT_EQ(message("1\n1\n2\n",
                    "\xEF\xBB\xBF"
                    "a\nb\na\n"),
            "(no error)");
  GraphFiles files = own_files(scratch, "0 1\n", "1\n1\n2\n",
                               "\xEF\xBB\xBF"
                               "a\nb\na\n");
  files.splits = scratch.write("splits.tsv", "train\ntest\nvalidation\n");
  EXPECT_EQ(import_graph_files(files).graph.classes, 2) << "a mark at the beginning is no part of a class";
}

// Splits of small classes: each has a node to train on, and those of three one of every kind.
TEST(FaultyGraphFiles, SmallClassesKeepTrainingNodes) {
  const ScratchFolder scratch;
  const auto draw = [&](int64_t size, double hold_out) {
    std::string features, labels;
    for (int64_t n = 0; n < 20 * size; ++n) features += "1\n", labels += std::to_string(n % 20) + "\n";
    GraphFiles files = own_files(scratch, "0 1\n", features, labels);
    files.hold_out = hold_out;
    return files;
  };
  EXPECT_THAT(complaint([&] { import_graph_files(draw(2, 0.2)); }),
              HasSubstr("expected a class of three nodes at least, of which one is drawn for validation"));
  for (const double hold_out : {0.1, 0.2, 0.4, 0.49}) {
    const GraphData graph = import_graph_files(draw(3, hold_out)).graph;
    for (const at::Tensor& mask : {graph.train_mask, graph.validation_mask, graph.test_mask})
      for (int64_t of = 0; of < 20; ++of)
        EXPECT_EQ(graph.labels.eq(of).logical_and(mask[0]).sum().item<int64_t>(), 1) << hold_out;
  }
}

}  // namespace
}  // namespace edgewise::data
