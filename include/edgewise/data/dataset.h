// Dataset: examples by index, in splits. Batches are padded to one length; padding is token 0 and mask false.
#pragma once

#include <edgewise/models/batch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

enum class Split { kTrain, kValidation, kTest };
Split parse_split(std::string_view name);  // "train" | "validation" | "test"
std::string_view to_string(Split split);

std::string byte_name(uint8_t byte);  // the character, or an escape such as \n and \xC3

// What a figure is worth: that of an answer that needs no attention at all, by name.
struct Baseline {
  std::string name;
  double value;
};

class TextReader;  // edgewise/data/examples/text_reader.h

// What token ids look like to a person.
struct TokenView {
  std::vector<std::string> names = {};  // of id 0, 1, ... in ASCII; empty: the ids are numbers
  int64_t picture_width = 0;            // of pictures, whose ids are grey values; 0 = a sequence
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  virtual int64_t size(Split split) const = 0;  // number of examples
  virtual int64_t vocabulary() const = 0;       // token ids are below this
  virtual int64_t classes() const = 0;
  virtual int64_t max_length() const = 0;  // longest padded length
  virtual int64_t features() const {
    return 0;
  }  // numbers per token beside its id; without ids: vocabulary 0
  // What token ids stand for in a text, where each is a byte; empty for all other data.
  virtual const std::vector<uint8_t>& bytes() const;
  virtual TokenView token_view() const;  // of language models the characters of bytes()
  // Tokens of an example before padding (of the longer of two towers): examples of similar length share a
  // micro-batch.
  virtual int64_t length(Split, int64_t /*index*/) const { return max_length(); }
  // Thread-safe. The same indices always give the same batch.
  virtual Batch batch(Split split, std::span<const int64_t> indices) const = 0;
  // Which edges answer the question, for tasks that know: [B, N, N] bool, query by key. Undefined for the
  // others.
  virtual at::Tensor right_edges(const Batch& batch) const;
  // In units of the task's metric, on a split.
  virtual std::vector<Baseline> baselines(Split) const { return {}; }
  // What it reads of a text, so that a run can read others; null where it is not made of texts, or of bytes.
  virtual const TextReader* reader() const { return nullptr; }
  // Where an example stood in the file that its split was made from, from 1; without such a file its place in
  // the split.
  virtual int64_t line(Split, int64_t index) const { return index + 1; }
  // For people: its name, and what is special about it.
  virtual std::string summary() const { return name(); }
};

}  // namespace edgewise::data
