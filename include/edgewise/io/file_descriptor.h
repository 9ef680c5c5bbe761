// FileDescriptor: an open POSIX file that closes itself. What every reader and writer of ours stands on,
// because only the descriptor gives fsync, rename-safe replacement and errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace edgewise::io {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int close() noexcept;  // 0, or the errno of close(2); closing twice is harmless

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC, retried on EINTR. Throws std::system_error that names `caller` (unless empty), the
// path and the reason.
FileDescriptor open_file(const char* caller, const std::filesystem::path& path, int flags);

// Writes all bytes, or throws std::system_error that names `caller`, the path and the reason.
void write_all(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
               std::span<const std::byte> bytes);

// Reads until `bytes` is full or the file ends; returns the number of bytes read.
std::size_t read_up_to(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
                       std::span<std::byte> bytes);
// The same from a place in the file, without moving where others read.
std::size_t read_at(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
                    std::span<std::byte> bytes, std::uint64_t place);

}  // namespace edgewise::io
