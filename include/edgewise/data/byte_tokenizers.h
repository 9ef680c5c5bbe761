// Bytes as tokens, numbered as the data sets number them.
#pragma once

#include <edgewise/data/tokenizer.h>

#include <array>

namespace edgewise::data {

// Id 1 + byte, 0 is padding: texts of ByteDataset (byte_dataset.h).
class BytesTokenizer : public Tokenizer {
 public:
  BytesTokenizer() { special_.pad = 0; }

  using Tokenizer::encode;
  std::string_view kind() const override { return "bytes"; }
  int64_t size() const override { return 257; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool leave_out_special = false) const override;
  std::string piece(int32_t id) const override;

 protected:
  void save_files(const std::filesystem::path&) const override {}
};

// The bytes of a vocabulary, without special ids: Characters (characters.h), whose bytes() this takes.
// Another byte is an error.
class CharactersTokenizer : public Tokenizer {
 public:
  explicit CharactersTokenizer(std::vector<uint8_t> bytes);

  using Tokenizer::encode;
  std::string_view kind() const override { return "characters"; }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool leave_out_special = false) const override;
  std::string piece(int32_t id) const override;
  const std::vector<uint8_t>& bytes() const { return bytes_; }  // id -> byte

 protected:
  void save_files(const std::filesystem::path&) const override {}

 private:
  std::vector<uint8_t> bytes_;
  std::array<int32_t, 256> ids_;
};

}  // namespace edgewise::data
