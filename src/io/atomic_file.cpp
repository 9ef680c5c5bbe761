// The temporary name is fixed (".NAME.tmp"), so what a killed process left behind is reused by the next write
// instead of piling up; a lock keeps two writers of one target apart.
#include <edgewise/io/atomic_file.h>

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include "io/durable.h"
#include "io/file_error.h"

namespace edgewise::io {
namespace {

std::filesystem::path behind_links(std::filesystem::path target) {
  std::error_code ignored;  // a broken or looping link shows itself when the file is opened
  if (!std::filesystem::is_symlink(target, ignored)) return target;
  auto resolved = std::filesystem::weakly_canonical(target, ignored);
  return ignored ? target : resolved;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// Calls that a signal may interrupt on network file systems.
template <typename Call>
int uninterrupted(const Call& call) {
  int result;
  do {
    result = call();
  } while (result != 0 && errno == EINTR);
  return result;
}

// NFS repeats a request whose answer was lost, and then says of a rename that was done that there is no such
// file.
bool is_same_file(const FileDescriptor& file, const std::filesystem::path& name) {
  struct stat ours {
  }, named{};
  return ::fstat(file.get(), &ours) == 0 && ::stat(name.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor handle = open_file("", folder, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync a folder and say so with EINVAL; nothing more can be done there.
  if (uninterrupted([&] { return ::fsync(handle.get()); }) != 0 && errno != EINVAL)
    throw_file_error(errno, "", "cannot sync folder", folder);
}

namespace {

struct Appended {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;
};
Appended& appended() {
  static Appended all;
  return all;
}

// Once for a folder in the life of a process: it may be new, and its own name not durable yet.
void sync_parent_once(const std::filesystem::path& folder) {
  static std::mutex mutex;
  static std::set<std::filesystem::path> done;
  const std::filesystem::path parent = std::filesystem::absolute(folder).lexically_normal() / "..";
  const std::lock_guard lock(mutex);
  if (!done.insert(parent).second) return;
  // A folder that may be entered and not read is somebody else's, and not new.
  if (::access(parent.c_str(), R_OK) == 0) sync_folder(parent.lexically_normal());
}

}  // namespace

void note_appended(const std::filesystem::path& path) {
  const std::lock_guard lock(appended().mutex);
  appended().paths.insert(path);
}

void sync_appended() {
  std::set<std::filesystem::path> paths;
  {
    const std::lock_guard lock(appended().mutex);
    paths.swap(appended().paths);
  }
  for (const std::filesystem::path& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;  // or removed since
    const FileDescriptor handle = open_file("", path, O_RDONLY);
    if (uninterrupted([&] { return ::fsync(handle.get()); }) != 0 && errno != EINVAL) {
      const int error = errno;
      note_appended(path);
      throw_file_error(error, "", "cannot write", path);
    }
  }
}

void create_durable_folders(const std::filesystem::path& folder) {
  std::filesystem::path missing = std::filesystem::absolute(folder).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();
  std::vector<std::filesystem::path> parents;
  for (; !std::filesystem::exists(missing); missing = missing.parent_path())
    parents.push_back(missing.parent_path());
  std::filesystem::create_directories(folder);
  for (const std::filesystem::path& parent : parents) sync_folder(parent);
}

AtomicFile::AtomicFile(std::filesystem::path target) : target_(behind_links(std::move(target))) {
  if (!target_.has_filename()) throw_file_error(EISDIR, "", "cannot write", target_);
  struct stat existing {};
  const bool exists = ::stat(target_.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) throw_file_error(EISDIR, "", "cannot write", target_);
  temporary_ = folder_of(target_) / ".";
  temporary_ += target_.filename();
  temporary_ += ".tmp";
  open_temporary();
  // Failing to keep the mode is no reason to refuse the data.
  if (exists && ::fchmod(file_.get(), existing.st_mode & 07777) != 0) errno = 0;
}

// The temporary name is ours; a message speaks of the file that was asked for.
FileDescriptor AtomicFile::open_for_target() const {
  try {
    return open_file("", temporary_, O_WRONLY | O_CREAT | O_NOFOLLOW);
  } catch (const std::system_error& error) {
    throw_file_error(error.code().value(), "", "cannot write", target_);
  }
}

void AtomicFile::open_temporary() {
  while (true) {
    FileDescriptor file = open_for_target();
    // File systems without locks are used without.
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw_file_error(EBUSY, "", "another process is writing", target_);
    }
    // Between our open and our lock the previous holder may have renamed this very file to the target.
    struct stat ours {
    }, named{};
    if (::fstat(file.get(), &ours) != 0) throw_file_error(errno, "", "cannot write", target_);
    if (::stat(temporary_.c_str(), &named) != 0 || ours.st_ino != named.st_ino || ours.st_dev != named.st_dev)
      continue;
    file_ = std::move(file);
    if (uninterrupted([&] { return ::ftruncate(file_.get(), 0); }) != 0) {
      const int error = errno;
      discard();
      throw_file_error(error, "", "cannot write", target_);
    }
    return;
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (!file_.is_open()) return;
  // Unlinked while still locked, so that it cannot be another writer's file.
  ::unlink(temporary_.c_str());
  file_.close();
}

void AtomicFile::check_open(const char* caller) const {
  if (!file_.is_open()) {
    throw std::logic_error(std::string(caller) + ": '" + target_.string() +
                           "' was already committed or failed; make a new AtomicFile");
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check_open("AtomicFile::write");
  try {
    write_all("", file_, target_, bytes);
  } catch (...) {
    discard();
    throw;
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  check_open("AtomicFile::commit");
  try {
    sync_appended();
  } catch (...) {
    discard();
    throw;
  }
  if (uninterrupted([&] { return ::fsync(file_.get()); }) != 0 ||
      (::rename(temporary_.c_str(), target_.c_str()) != 0 &&
       !(errno == ENOENT && is_same_file(file_, target_)))) {
    const int error = errno;
    discard();
    throw_file_error(error, "", "cannot write", target_);
  }
  // Some network file systems report a full disk only here; fsync above has already asked them.
  const int error = file_.close();
  if (error != 0) throw_file_error(error, "", "cannot write", target_);
  sync_folder(folder_of(target_));
  sync_parent_once(folder_of(target_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

namespace {

std::string all_of(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat info {};
  const bool sized = ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode);
  // The size is a first guess only: pipes and /proc files say 0, and a file may grow while it is read.
  std::string contents(sized ? static_cast<std::size_t>(info.st_size) + 1 : 4096, '\0');
  std::size_t used = 0;
  while (true) {
    used += read_up_to("", file, path,
                       std::as_writable_bytes(std::span(contents.data() + used, contents.size() - used)));
    if (used < contents.size()) break;
    contents.resize(contents.size() * 2);
  }
  contents.resize(used);
  return contents;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  return all_of(open_file("", path, O_RDONLY), path);
}

std::string read_text(const std::filesystem::path& path, uint64_t most) {
  // Non-blocking only so that a named pipe is refused instead of waited for.
  const FileDescriptor file = open_file("", path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_file_error(errno, "", "cannot inspect", path);
  if (S_ISDIR(info.st_mode)) throw_file_error(EISDIR, "", "cannot read", path);
  TORCH_CHECK_VALUE(S_ISREG(info.st_mode), "read_text: expected a regular file; ", path.string(),
                    " is a pipe or a device");
  TORCH_CHECK_VALUE(static_cast<uint64_t>(info.st_size) <= most, "read_text: expected at most ", most,
                    " bytes of text; ", path.string(), " has ", info.st_size);
  std::string text = all_of(file, path);
  const size_t zero = text.find('\0');
  TORCH_CHECK_VALUE(zero == std::string::npos, "read_text: expected text; ", path.string(),
                    " has a NUL at byte ", zero, ". It is damaged, or not a text file");
  return text;
}

}  // namespace edgewise::io
