// Decodes what the writer wrote with a reader of its own; tests/python/test_tensorboard.py asks the real
// package.
#include <edgewise/io/tensorboard.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include <edgewise/io/atomic_file.h>

#include "io/crc32c.h"
#include "kit/scratch_folder.h"

namespace edgewise::io {
namespace {

using kit::ScratchFolder;

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("record cut short");
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(bytes);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
}

// Field number to raw payloads (little-endian bytes for numbers).
std::multimap<uint64_t, std::string> decode(std::string_view message) {
  std::multimap<uint64_t, std::string> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    uint64_t size = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = take_varint(message);
        fields.emplace(key >> 3, std::string(reinterpret_cast<const char*>(&value), 8));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(message);
        break;
      case 5:
        size = 4;
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    fields.emplace(key >> 3, message.substr(0, size));
    message.remove_prefix(size);
  }
  return fields;
}

std::vector<std::string> read_records(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<std::string> records;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<uint64_t>(rest);
    EXPECT_EQ(take<uint32_t>(rest), masked_crc32c(length_bytes));
    const std::string_view data = rest.substr(0, length);
    rest.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(rest), masked_crc32c(data));
    records.emplace_back(data);
  }
  return records;
}

template <typename T>
T number(const std::string& raw) {
  std::string_view bytes = raw;
  return take<T>(bytes);
}

TEST(Crc32c, KnownAnswers) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5u);  // rotated by 15 to the right, and 0xA282EAD8 more
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
}

TEST(TensorBoard, RecordsDecode) {
  ScratchFolder folder;
  TensorBoardWriter writer(folder / "new/folder");
  EXPECT_THAT(writer.path().filename().string(), ::testing::HasSubstr("tfevents"));
  writer.add_scalar("loss", 0.5, 7);
  writer.add_scalars(std::vector<TensorBoardWriter::Scalar>{{"a", 1.25}, {"b", NAN}}, -1);
  writer.add_scalars({}, 8);
  writer.mark_restart(300);

  const auto records = read_records(writer.path());
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(decode(records[0]).find(3)->second, "brain.Event:2");

  const auto loss = decode(records[1]);
  EXPECT_GT(number<double>(loss.find(1)->second), 1.6e9);
  EXPECT_EQ(number<int64_t>(loss.find(2)->second), 7);
  const auto value = decode(decode(loss.find(5)->second).find(1)->second);
  EXPECT_EQ(value.find(1)->second, "loss");
  EXPECT_EQ(number<float>(value.find(2)->second), 0.5f);

  const auto pair = decode(records[2]);
  EXPECT_EQ(number<int64_t>(pair.find(2)->second), -1);
  const auto values = decode(pair.find(5)->second);
  ASSERT_EQ(values.count(1), 2u);
  const auto second = decode(std::next(values.find(1))->second);
  EXPECT_EQ(second.find(1)->second, "b");
  EXPECT_TRUE(std::isnan(number<float>(second.find(2)->second)));

  const auto restart = decode(records[3]);
  EXPECT_EQ(number<int64_t>(restart.find(2)->second), 300);
  EXPECT_EQ(number<int64_t>(decode(restart.find(7)->second).find(1)->second), 1);
}

TEST(TensorBoard, EachWriterHasItsOwnFileInOrder) {
  ScratchFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(TensorBoardWriter(folder.path()).path().string());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 20);
}

}  // namespace
}  // namespace edgewise::io
