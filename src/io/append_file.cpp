// A log file: whole records or nothing.
#include <edgewise/io/append_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <system_error>

#include "io/durable.h"

namespace edgewise::io {

AppendFile::AppendFile(std::filesystem::path path, Open mode)
    : path_(std::move(path)),
      file_(open_file("", path_, O_WRONLY | O_CREAT | O_APPEND | (mode == Open::kCreateNew ? O_EXCL : 0))) {}

void AppendFile::append(std::string_view bytes) {
  struct stat before {};
  const bool known = ::fstat(file_.get(), &before) == 0 && S_ISREG(before.st_mode);
  note_appended(path_);
  try {
    write_all("", file_, path_, std::as_bytes(std::span(bytes.data(), bytes.size())));
  } catch (const std::system_error&) {
    // Best effort: if this fails too, readers still drop a torn last line.
    if (known && ::ftruncate(file_.get(), before.st_size) != 0) throw;
    throw;
  }
}

}  // namespace edgewise::io
