// Characters: a text file as a data set for language models, byte by byte.
//
// The vocabulary are the bytes that occur in the file, in order; text8 has 27, enwik8 205. A file of
// 100,000,000 bytes (enwik8, text8) is split 90 / 5 / 5 million, as is usual; any other 90 / 5 / 5 per cent.
// Example i of a split are its bytes i N .. i N + N - 1, its labels the bytes one further on.
#pragma once

#include <edgewise/data/dataset.h>

#include <array>
#include <filesystem>

namespace edgewise::data {

class Characters : public Dataset {
 public:
  // A file, or FILE.xz beside that name, or an .xz file itself.
  Characters(const std::filesystem::path& file, int64_t context);
  Characters(std::string name, std::vector<uint8_t> text, int64_t context);

  std::string name() const override { return name_; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return static_cast<int64_t>(bytes_.size()); }
  int64_t classes() const override { return vocabulary(); }
  int64_t max_length() const override { return context_; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;  // without masks

  const std::vector<uint8_t>& bytes() const override { return bytes_; }  // token id -> byte
  std::vector<Baseline> baselines(Split split) const override;
  std::string summary() const override;
  int64_t characters(Split split) const;  // bytes of the split
  // Bits per character of a split under the frequencies of train.
  double unigram_bits(Split split = Split::kTest) const;

 private:
  std::string name_;
  int64_t context_;
  bool is_enwik8_ = false;       // byte for byte
  std::vector<uint8_t> tokens_;  // of the whole text
  std::vector<uint8_t> bytes_;
  std::array<int64_t, 4> begin_ = {};  // where each split begins; the last is the end
};

}  // namespace edgewise::data
