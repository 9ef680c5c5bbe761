// TensorBoardWriter: scalars in TensorBoard's event format, without TensorFlow or protobuf.
//
// A file is a row of records: u64 length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes;
// the bytes are one tensorflow.Event message. Every call appends whole records and hands them to the kernel
// before it returns.
#pragma once

#include <edgewise/io/append_file.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace edgewise::io {

class TensorBoardWriter {
 public:
  using Scalar = std::pair<std::string, double>;  // tag, value (stored as float32: the format has no more)

  // Creates `folder` if needed and a new event file in it; event files already there stay and are shown with
  // it.
  explicit TensorBoardWriter(const std::filesystem::path& folder);

  void add_scalar(std::string_view tag, double value, int64_t step);
  void add_scalars(std::span<const Scalar> scalars, int64_t step);

  // Says that a run was resumed: TensorBoard forgets what earlier files said about `first_step` and later
  // steps.
  void mark_restart(int64_t first_step);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace edgewise::io
