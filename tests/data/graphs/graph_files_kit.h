// Files of small graphs: Planetoid's, GraphSAGE's, and lines of one's own.
#pragma once

#include <edgewise/data/graphs/import_graph.h>

#include <map>
#include <string>
#include <vector>

#include "data/graphs/planetoid_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {

using kit::ScratchFolder;

// 505 nodes: 3 to train on, 500 to validate, test.index 504 and no 503.
inline void write_planetoid(const ScratchFolder& scratch, const std::string& test_index = "504\n") {
  SmallMatrix all{4, std::vector<std::map<int, float>>(503)};
  all.rows[1] = {{0, 0.5f}, {3, 2.f}};
  std::map<int, std::vector<int>> lists;
  for (int node = 0; node < 505; ++node) lists[node] = {};
  lists[0] = {1, 1, 0};  // a repeated citation, and a loop
  lists[1] = {0, 504};
  scratch.write("ind.tiny.x", matrix({4, {{}, {}, {}}}));
  scratch.write("ind.tiny.y", one_hot({0, 1, 1}, 2));
  scratch.write("ind.tiny.allx", matrix(all));
  scratch.write("ind.tiny.ally", one_hot(std::vector<int>(503, 1), 2));
  scratch.write("ind.tiny.tx", matrix({4, {{{2, 7.f}}}}));
  scratch.write("ind.tiny.ty", one_hot({0}, 2));
  scratch.write("ind.tiny.graph", neighbours(lists));
  scratch.write("ind.tiny.test.index", test_index);
}

// A file of numpy, version 1.
inline std::string npy(const std::string& dtype, const std::string& shape, const std::string& bytes) {
  const std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  return std::string("\x93NUMPY\x01") + '\0' + static_cast<char>(header.size()) + '\0' + header + bytes;
}

// Four nodes: 0 and 2 to train on, 1 to validate, 3 to test; ids are words.
inline void write_graphsage(const ScratchFolder& scratch, const std::string& target = "\"d\"") {
  scratch.write(
      "tiny-G.json",
      R"({"nodes": [{"id": "a", "val": false, "test": false}, {"id": "b", "val": true, "test": false},
                    {"id": "c"}, {"id": "d", "val": false, "test": true}],
                    "links": [{"source": "a", "target": "c"}, {"source": "c", "target": "a"},
                    {"source": "a", "target": )" +
          target + "}]}");
  scratch.write("tiny-id_map.json", R"({"a": 0, "b": 1, "c": 2, "d": 3})");
  scratch.write("tiny-class_map.json", R"({"a": [1, 0], "b": [0, 0], "c": [1, 1], "d": [0, 1]})");
  scratch.write("tiny-feats.npy", npy("<f8", "4, 1", raw(std::vector<double>{1, 2, 3, 0})));
}

inline GraphFiles own_files(const ScratchFolder& scratch, const std::string& edges,
                            const std::string& features, const std::string& labels) {
  return {.edges = scratch.write("edges.tsv", edges),
          .features = scratch.write("features.tsv", features),
          .labels = scratch.write("labels.tsv", labels)};
}

}  // namespace edgewise::data
