// Dataset: examples by index, in splits. Batches are padded to one length; padding is token 0 and mask false.
#pragma once

#include <ATen/core/Tensor.h>

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

struct Batch {
  std::vector<at::Tensor> tokens;  // one [B, N] int64 per tower (one tower, or two for retrieval)
  std::vector<at::Tensor> masks;   // one [B, N] bool per tower, true = valid token
  at::Tensor labels;               // [B] int64, or [B, N] int64 for token classification, -1 = no target
  // A part of the batch may be cut to its own longest item, rounded up to a multiple of this; 0 = the length
  // is fixed, padding is part of the task.
  int64_t trim_multiple = 0;
  // Where each token stands in its sequence, one [B, N] int64 per tower; empty = token n stands at n.
  std::vector<at::Tensor> positions = {};
  int64_t sequence_length = 0;  // with positions: of the whole sequence, for means over all of it

  int64_t size() const { return tokens.empty() ? 0 : tokens[0].size(0); }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  virtual int64_t size(Split split) const = 0;  // number of examples
  virtual int64_t vocabulary() const = 0;       // token ids are below this
  virtual int64_t classes() const = 0;
  virtual int64_t max_length() const = 0;  // longest padded length
  virtual bool labels_tokens() const = 0;  // labels are [B, N] instead of [B]
  // Examples follow one another as pieces of one text, labels are the next tokens: a model may carry a memory
  // from one to the next, so that batches are rows of StreamRows (batches.h), and losses are bits per
  // character.
  virtual bool is_text() const { return false; }
  // Tokens of an example before padding (of the longer of two towers): examples of similar length share a
  // micro-batch.
  virtual int64_t length(Split, int64_t /*index*/) const { return max_length(); }
  // Thread-safe. The same indices always give the same batch.
  virtual Batch batch(Split split, std::span<const int64_t> indices) const = 0;
  // Which edges answer the question, for tasks that know: [B, N, N] bool, query by key. Undefined for the
  // others.
  virtual at::Tensor right_edges(const Batch& batch) const;
};

}  // namespace edgewise::data
