// New inputs to a trained run: a text, a picture, token ids, read as the run's data are, and the graphs that
// its heads choose on them.
#pragma once

#include <edgewise/train/snapshot.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::train {

struct NewInput {
  std::string name = {};                 // for people: "text 1", the name of a file
  std::optional<std::string> text = {};  // of tasks of texts; an expression of ListOps
  std::optional<std::string> pair = {};  // the second text of a pair, or the translation of the first
  std::optional<std::filesystem::path> picture = {};  // a PNG file in grey, of tasks of pictures
  std::vector<int64_t> tokens = {};                   // ids, of any task whose inputs are tokens
};

// On the CPU, from the run folder alone where its inputs are texts or pictures; else from its data too, if
// only from the seed that made them. Edges that are drawn are drawn for input n as evaluation draws them for
// example n. A translation that is not given is the run's own. Throws where the run's task cannot read an
// input, and says what it reads.
Snapshot snapshot_of_inputs(const std::filesystem::path& run, const std::string& checkpoint,
                            const std::vector<NewInput>& inputs);

}  // namespace edgewise::train
