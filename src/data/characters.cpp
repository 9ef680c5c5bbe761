#include <edgewise/data/characters.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "data/check_indices.h"
#include "data/readers/compressed.h"

namespace edgewise::data {
namespace {

constexpr int64_t kStandardSize = 100'000'000;       // enwik8 and text8
constexpr const char* kEnwik8Checksum = "81838409";  // CRC-32 of the official file

std::vector<uint8_t> read_text(const std::filesystem::path& file) {
  const auto found = find_plain_or_xz(file);
  TORCH_CHECK_VALUE(found, "characters: expected a text file at ", file.string(), " (or ", file.string(),
                    ".xz); there is none. Set data.path to any text, for example enwik8.");
  TORCH_CHECK_VALUE(!std::filesystem::is_directory(*found), "characters: expected a text file; ",
                    file.string(), " is a folder. Name the file in it: data.path=", file.string(), "/FILE");
  return read_plain_or_xz(*found);
}

}  // namespace

Characters::Characters(const std::filesystem::path& file, int64_t context)
    : Characters(file.filename().string(), read_text(file), context) {}

Characters::Characters(std::string name, std::vector<uint8_t> text, int64_t context)
    : name_(std::move(name)), context_(context), tokens_(std::move(text)) {
  TORCH_CHECK_VALUE(context >= 1, "characters: expected a context of at least 1 character; got ", context);
  TORCH_CHECK_VALUE(!tokens_.empty(), "characters: expected text in ", name_, "; the file is empty");
  const auto length = static_cast<int64_t>(tokens_.size());
  begin_ = {0, length * 9 / 10, length * 95 / 100, length};
  if (length == kStandardSize) {
    begin_ = {0, 90'000'000, 95'000'000, kStandardSize};
    is_enwik8_ = crc32_text(tokens_) == kEnwik8Checksum;
  }
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    TORCH_CHECK_VALUE(size(split) >= 1, "characters: expected at least ", context + 1,
                      " bytes (one context and the byte after it) in the ", to_string(split), " part of ",
                      name_, "; it has ", characters(split), " of ", length,
                      ". Use a longer text or a smaller data.length.");
  }
  std::array<bool, 256> occurs = {};
  for (const uint8_t byte : tokens_) occurs[byte] = true;
  std::array<uint8_t, 256> token = {};
  for (size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    token[byte] = static_cast<uint8_t>(bytes_.size());
    bytes_.push_back(static_cast<uint8_t>(byte));
  }
  for (uint8_t& byte : tokens_) byte = token[byte];
}

int64_t Characters::characters(Split split) const {
  const auto part = static_cast<size_t>(split);
  return begin_[part + 1] - begin_[part];
}

int64_t Characters::size(Split split) const {
  return (characters(split) - 1) / context_;  // the last byte is a label only
}

Batch Characters::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const at::Tensor tokens = at::empty({items, context_}, at::kLong), labels = at::empty_like(tokens);
  for (int64_t item = 0; item < items; ++item) {
    const uint8_t* const from =
        tokens_.data() + begin_[static_cast<size_t>(split)] + indices[static_cast<size_t>(item)] * context_;
    std::copy_n(from, context_, tokens.mutable_data_ptr<int64_t>() + item * context_);
    std::copy_n(from + 1, context_, labels.mutable_data_ptr<int64_t>() + item * context_);
  }
  return {.towers = {{.tokens = tokens}}, .labels = labels};
}

std::vector<Baseline> Characters::baselines(Split split) const {
  return {{"letter frequencies alone", unigram_bits(split)}};
}

std::string Characters::summary() const {
  return name_ + (is_enwik8_ ? ", the official enwik8, " : ", ") + std::to_string(vocabulary()) +
         " different characters, in pieces of " + std::to_string(context_);
}

double Characters::unigram_bits(Split scored) const {
  std::array<double, 256> count = {};
  const auto each = [&](Split split, auto&& use) {
    const auto part = static_cast<size_t>(split);
    for (int64_t at = begin_[part]; at < begin_[part + 1]; ++at) use(tokens_[static_cast<size_t>(at)]);
  };
  each(Split::kTrain, [&](uint8_t token) { count[token] += 1; });
  // One more of each: what train lacks is possible.
  const double all = static_cast<double>(characters(Split::kTrain) + vocabulary());
  double bits = 0;
  each(scored, [&](uint8_t token) { bits -= std::log2((count[token] + 1) / all); });
  return bits / static_cast<double>(characters(scored));
}

}  // namespace edgewise::data
