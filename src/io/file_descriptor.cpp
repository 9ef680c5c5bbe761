// Descriptors: interrupted calls are retried, short writes continued, failures named.
#include <edgewise/io/file_descriptor.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "io/file_error.h"

namespace edgewise::io {
namespace {

// Linux moves at most 2 GiB - 4 KiB per call anyway; asking for less keeps the arithmetic obvious.
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

// read_once(into, count, done) reads as read(2) does; until `bytes` is full or the file ends.
template <typename ReadOnce>
std::size_t read_all(const char* caller, const std::filesystem::path& path, std::span<std::byte> bytes,
                     const ReadOnce& read_once) {
  std::size_t total = 0;
  while (total < bytes.size()) {
    const ssize_t got =
        read_once(bytes.data() + total, std::min(bytes.size() - total, kLargestTransfer), total);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(errno, caller, "cannot read", path);
    if (got == 0) break;
    total += static_cast<std::size_t>(got);
  }
  return total;
}

}  // namespace

int FileDescriptor::close() noexcept {
  if (fd_ < 0) return 0;
  // Not retried on EINTR: on Linux the descriptor is gone either way, and its number may already be someone
  // else's.
  return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

FileDescriptor open_file(const char* caller, const std::filesystem::path& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    throw_file_error(errno, caller, (flags & O_ACCMODE) == O_RDONLY ? "cannot open" : "cannot create", path);
  }
  return FileDescriptor(fd);
}

void write_all(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
               std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), std::min(bytes.size(), kLargestTransfer));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(errno, caller, "cannot write", path);
    // A write of zero bytes sets no errno; a device that takes nothing is full.
    if (written == 0) throw_file_error(ENOSPC, caller, "cannot write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::size_t read_up_to(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
                       std::span<std::byte> bytes) {
  return read_all(caller, path, bytes, [&](std::byte* into, std::size_t count, std::size_t) {
    return ::read(file.get(), into, count);
  });
}

std::size_t read_at(const char* caller, const FileDescriptor& file, const std::filesystem::path& path,
                    std::span<std::byte> bytes, std::uint64_t place) {
  return read_all(caller, path, bytes, [&](std::byte* into, std::size_t count, std::size_t done) {
    return ::pread(file.get(), into, count, static_cast<off_t>(place + done));
  });
}

}  // namespace edgewise::io
