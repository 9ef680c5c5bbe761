#include <edgewise/data/byte_dataset.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/Functions.h>

#include "data/check_indices.h"
#include "data/generators/uniform_below.h"
#include "data/padding.h"
#include "data/symmetries.h"
#include "kernels/philox.h"

namespace edgewise::data {

namespace {

constexpr size_t kBlock = 256;          // examples of similar length in evaluation
constexpr uint32_t kStreamLayer = 100;  // apart from the streams of other data

void append(ByteExamples::Part& to, const ByteExamples::Part& from) {
  to.sequences.insert(to.sequences.end(), from.sequences.begin(), from.sequences.end());
  to.labels.insert(to.labels.end(), from.labels.begin(), from.labels.end());
}

// 0 .. count - 1 with blocks of kBlock in random, but always the same, order.
std::vector<size_t> shuffled_blocks(size_t count) {
  std::vector<size_t> first;
  for (size_t block = 0; block < count; block += kBlock) first.push_back(block);
  kernels::RowStream stream(kernels::stream_key(0, 0, kStreamLayer, 0, 0, kernels::Purpose::kShuffle), 0);
  for (size_t i = first.size(); i > 1; --i) std::swap(first[i - 1], first[uniform_below(stream, i)]);
  std::vector<size_t> result;
  for (const size_t begin : first) {
    for (size_t i = begin; i < std::min(begin + kBlock, count); ++i) result.push_back(i);
  }
  return result;
}

}  // namespace

bool is_byte_task(std::string_view task) {
  return task == "image" || task == "text" || task == "pathfinder" || task == "retrieval";
}

ByteDatasetOptions lra_options(std::string_view task) {
  ByteDatasetOptions options;
  if (task == "image") {
    options.classes = 10;
    options.first_id = 0;
  } else if (task == "pathfinder") {
    options.first_id = 0;
  } else if (task == "text") {
    options.max_length = 3000;
    options.pad_to = 3072;
  } else if (task == "retrieval") {
    options.max_length = 4000;
    options.pad_to = 4096;
  } else {
    TORCH_CHECK_VALUE(false, "lra_options: expected image, text, pathfinder or retrieval; got '", task, "'");
  }
  return options;
}

ByteDataset::ByteDataset(ByteExamples examples, const ByteDatasetOptions& options)
    : examples_(std::move(examples)), options_(options) {
  TORCH_CHECK_VALUE(options.max_length >= 1 && options.pad_to >= options.max_length, name(),
                    ": expected 1 <= max_length <= pad_to; got max_length ", options.max_length,
                    " and pad_to ", options.pad_to);
  TORCH_CHECK_VALUE(options.first_id == 0 || options.first_id == 1, name(),
                    ": expected first_id 0 or 1; got ", options.first_id);
  TORCH_CHECK_VALUE(!options.drop_masked || (options.mask_zero && options.first_id == 0), name(),
                    ": expected drop_masked with mask_zero, which says what is masked; found it alone");
  for (const ByteExamples::Part& part : examples_.parts) {
    for (const uint8_t label : part.labels) {
      TORCH_CHECK_VALUE(label < options.classes, name(), ": expected labels below ", options.classes,
                        "; found ", int{label}, " in the data");
    }
  }
  arrange();
  prepare_symmetries();
}

void ByteDataset::arrange() {
  parts_ = examples_.parts;
  if (options_.validation_is_test) {
    append(parts_[0], parts_[1]);
    parts_[1] = parts_[2];
  }
  if (options_.fixed_length) return;
  order_by_length(parts_[1]);
  order_by_length(parts_[2]);
}

void ByteDataset::prepare_symmetries() {
  const int64_t count = options_.symmetries, length = options_.max_length;
  TORCH_CHECK_VALUE(count == 1 || count == 2 || count == 8, name(),
                    ": expected 1, 2 (mirrored too) or 8 symmetries (turned too); got ", count);
  if (count == 1) return;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(length))));
  TORCH_CHECK_VALUE(side * side == length && examples_.towers == 1, name(),
                    ": expected symmetries with square pictures, one an example; found ", examples_.towers,
                    " sequences of ", length);
  for (const int64_t sequence : part(Split::kTrain).sequences) {
    const auto found = static_cast<int64_t>(examples_.sequence(sequence).size());
    TORCH_CHECK_VALUE(found == length, name(), ": expected symmetries with pictures of ", length, " pixels, ",
                      side, " x ", side, "; found one of ", found);
  }
  places_ = symmetric_places(count, side);
}

void ByteDataset::order_by_length(ByteExamples::Part& part) const {
  const auto towers = static_cast<size_t>(examples_.towers);
  const auto longest = [&](size_t index) {
    int64_t result = 0;
    for (size_t t = 0; t < towers; ++t)
      result = std::max(result, kept_length(part.sequences[index * towers + t]));
    return result;
  };
  std::vector<size_t> sorted(part.labels.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  if (std::ranges::all_of(sorted, [&](size_t i) { return longest(i) == longest(0); })) return;
  std::ranges::stable_sort(sorted, {}, longest);
  ByteExamples::Part result;
  for (const size_t place : shuffled_blocks(sorted.size())) {
    const size_t index = sorted[place];
    result.labels.push_back(part.labels[index]);
    for (size_t t = 0; t < towers; ++t) result.sequences.push_back(part.sequences[index * towers + t]);
  }
  part = std::move(result);
}

int64_t ByteDataset::size(Split split) const {
  return static_cast<int64_t>(part(split).labels.size()) * copies(split);
}

int64_t ByteDataset::kept_length(int64_t sequence) const {
  const std::span<const uint8_t> all = examples_.sequence(sequence);
  const auto cut = all.first(std::min(all.size(), static_cast<size_t>(options_.max_length)));
  const int64_t dropped = options_.drop_masked ? std::ranges::count(cut, uint8_t{0}) : 0;
  return static_cast<int64_t>(cut.size()) - dropped;
}

TokenView ByteDataset::token_view() const {
  TokenView view;
  if (options_.first_id == 0) {
    const auto side = std::llround(std::sqrt(static_cast<double>(options_.max_length)));
    if (side * side == options_.max_length) view.picture_width = side;
    return view;
  }
  view.names.emplace_back("(padding)");
  for (int byte = 0; byte < 256; ++byte) view.names.push_back(byte_name(static_cast<uint8_t>(byte)));
  return view;
}

int64_t ByteDataset::length(Split split, int64_t index) const {
  if (options_.fixed_length) return options_.pad_to;
  index /= copies(split);
  int64_t result = 0;
  for (int64_t tower = 0; tower < examples_.towers; ++tower) {
    result = std::max(
        result, kept_length(part(split).sequences[static_cast<size_t>(index * examples_.towers + tower)]));
  }
  return result;
}

std::span<const uint8_t> ByteDataset::sequence(Split split, int64_t index, int64_t tower) const {
  const auto place = static_cast<size_t>(index / copies(split) * examples_.towers + tower);
  return examples_.sequence(part(split).sequences.at(place));
}

Batch ByteDataset::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const bool drop = options_.drop_masked;
  Batch batch;
  // Black pixels at the end of a masked image are no padding: they count in the mean over all positions.
  batch.trim_multiple = options_.fixed_length || (options_.mask_zero && !drop) ? 0 : kPadMultiple;
  if (drop) batch.sequence_length = options_.pad_to;
  for (int64_t tower = 0; tower < examples_.towers; ++tower) {
    std::vector<std::span<const uint8_t>> rows;
    int64_t longest = 1;
    for (const int64_t index : indices) {
      const std::span<const uint8_t> all = sequence(split, index, tower);
      rows.push_back(all.first(std::min(all.size(), static_cast<size_t>(options_.max_length))));
      const auto place = static_cast<size_t>(index / copies(split) * examples_.towers + tower);
      longest = std::max(longest, kept_length(part(split).sequences[place]));
    }
    const int64_t length =
        options_.fixed_length ? options_.pad_to : std::min(padded_length(longest), options_.pad_to);
    const at::Tensor tokens = at::zeros({items, length}, at::kLong);
    const at::Tensor mask = at::zeros({items, length}, at::kBool);
    const at::Tensor positions = drop ? at::zeros({items, length}, at::kLong) : at::Tensor();
    auto* token = tokens.mutable_data_ptr<int64_t>();
    auto* valid = mask.mutable_data_ptr<bool>();
    auto* position = drop ? positions.mutable_data_ptr<int64_t>() : nullptr;
    for (size_t item = 0; item < rows.size(); ++item) {
      const std::span<const uint8_t> row = rows[item];
      const int64_t symmetry = indices[item] % copies(split);
      const int32_t* const places =
          symmetry > 0 ? &places_[static_cast<size_t>(symmetry) * row.size()] : nullptr;
      size_t kept = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        const int64_t id = row[places ? static_cast<size_t>(places[i]) : i] + options_.first_id;
        const bool masked = options_.mask_zero && id == 0;
        if (masked && drop) continue;
        token[kept] = id;
        valid[kept] = !masked;
        if (drop) position[kept] = static_cast<int64_t>(i);
        ++kept;
      }
      token += length;
      valid += length;
      if (drop) position += length;
    }
    batch.towers.push_back({.tokens = tokens, .mask = mask, .positions = positions});
  }
  batch.labels = at::empty({items}, at::kLong);
  auto* label = batch.labels.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices)
    *label++ = part(split).labels[static_cast<size_t>(index / copies(split))];
  return batch;
}

double ByteDataset::majority_accuracy(Split split) const {
  std::vector<int64_t> count(static_cast<size_t>(options_.classes));
  for (const uint8_t label : part(Split::kTrain).labels) ++count[label];
  const auto& scored = part(split).labels;
  TORCH_CHECK_VALUE(!scored.empty(), name(), ": expected examples in split ", to_string(split),
                    "; found none");
  const auto most = std::max_element(count.begin(), count.end()) - count.begin();
  return static_cast<double>(std::ranges::count(scored, static_cast<uint8_t>(most))) /
         static_cast<double>(scored.size());
}

}  // namespace edgewise::data
