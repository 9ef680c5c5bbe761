// The few protobuf messages needed, encoded by hand (field numbers from tensorflow's event.proto and
// summary.proto):
//   Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog
//   session_log = 7 } Summary { repeated Value value = 1 }   Value { string tag = 1; float simple_value = 2 }
//   SessionLog { enum status = 1 }
#include <edgewise/io/tensorboard.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "io/crc32c.h"

namespace edgewise::io {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class Message {
 public:
  void put_double(uint32_t field, double value) { put_key(field, kFixed64), put_raw(value); }
  void put_float(uint32_t field, float value) { put_key(field, kFixed32), put_raw(value); }
  // A negative int64 takes ten bytes, as protobuf has it.
  void put_int64(uint32_t field, int64_t value) {
    put_key(field, kVarint), put_varint(static_cast<uint64_t>(value));
  }
  void put_bytes(uint32_t field, std::string_view value) {
    put_key(field, kBytes), put_varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put_key(uint32_t field, WireType type) { put_varint(field << 3 | type); }
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <typename T>
  void put_raw(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }

  std::string bytes_;
};

template <typename T>
std::string raw_bytes(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string make_record(const Message& event) {
  const std::string length = raw_bytes(static_cast<uint64_t>(event.bytes().size()));
  return length + raw_bytes(masked_crc32c(length)) + event.bytes() + raw_bytes(masked_crc32c(event.bytes()));
}

std::chrono::nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

Message new_event() {
  Message event;
  event.put_double(1, std::chrono::duration<double>(now()).count());
  return event;
}

// TensorBoard reads the files of a folder in the order of their names, so the name starts with the time, to
// the nanosecond: a run resumed within the same second still comes after the one before.
AppendFile create_event_file(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  while (true) {
    const int64_t time = now().count();
    char name[64];
    std::snprintf(name, sizeof(name), "events.out.tfevents.%010lld.%09lld.edgewise",
                  static_cast<long long>(time / 1'000'000'000), static_cast<long long>(time % 1'000'000'000));
    try {
      return AppendFile(folder / name, AppendFile::Open::kCreateNew);
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::file_exists) throw;
    }
  }
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) : file_(create_event_file(folder)) {
  Message event = new_event();
  event.put_bytes(3, "brain.Event:2");
  file_.append(make_record(event));
}

void TensorBoardWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  const Scalar scalar{tag, value};
  add_scalars(std::span(&scalar, 1), step);
}

void TensorBoardWriter::add_scalars(std::span<const Scalar> scalars, int64_t step) {
  if (scalars.empty()) return;
  Message summary;
  for (const auto& [tag, value] : scalars) {
    Message entry;
    entry.put_bytes(1, tag);
    entry.put_float(2, static_cast<float>(value));
    summary.put_bytes(1, entry.bytes());
  }
  Message event = new_event();
  event.put_int64(2, step);
  event.put_bytes(5, summary.bytes());
  file_.append(make_record(event));
}

void TensorBoardWriter::mark_restart(int64_t first_step) {
  constexpr int64_t kStart = 1;
  Message session;
  session.put_int64(1, kStart);
  Message event = new_event();
  event.put_int64(2, first_step);
  event.put_bytes(7, session.bytes());
  file_.append(make_record(event));
}

}  // namespace edgewise::io
