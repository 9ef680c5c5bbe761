// A library to be preloaded (LD_PRELOAD) into the program: it counts the calls that change files below one
// folder and lets the chosen one go wrong. With EDGEWISE_FAULT_SERVER it also starts the program anew, by a
// fork, for every line of standard input, so that libtorch is loaded once for thousands of runs.
// fault_server.py speaks with it.
//
//   a line: output file, error file, folder, number of the call (0: none), kind, trace file, then the
//   arguments,
//           separated by bytes 0x1F
//   answers: "started PID", then "ended STATUS", the latter as waitpid has it
//
// The trace has a record for each counted call: a line of text (tests/faults/power_cut.py reads it), then the
// bytes of a write.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

enum class Kind {
  kNone,
  kKill,         // SIGKILL instead of the call
  kTorn,         // the same, after the first half of a write
  kFull,         // ENOSPC from this call on, after the first half of a write
  kQuota,        // EDQUOT likewise
  kReadOnly,     // EROFS from this call on
  kBroken,       // EIO, once
  kInterrupted,  // EINTR, once
  kShort,        // half of a write, once: no error
  kLostAnswer  // a rename that succeeds and says ENOENT, as NFS may when an answer is lost; else ESTALE, once
};

struct Settings {
  std::string folder;
  long at = 0;
  Kind kind = Kind::kNone;
  int trace = -1;
} settings;

std::atomic<long> calls{0};
std::mutex mutex;  // of the trace and the table of descriptors
constexpr int kMostFiles = 4096;
std::string* watched_paths[kMostFiles];  // of descriptors below the folder

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name)                                            \
  (static_cast<decltype(&::name)>([] {                        \
    static auto* const found = real<decltype(::name)>(#name); \
    return found;                                             \
  }()))

Kind parse_kind(const std::string& name) {
  const std::pair<const char*, Kind> names[] = {
      {"none", Kind::kNone},     {"kill", Kind::kKill},
      {"torn", Kind::kTorn},     {"full", Kind::kFull},
      {"quota", Kind::kQuota},   {"read-only", Kind::kReadOnly},
      {"broken", Kind::kBroken}, {"interrupted", Kind::kInterrupted},
      {"short", Kind::kShort},   {"lost-answer", Kind::kLostAnswer}};
  for (const auto& [text, kind] : names)
    if (name == text) return kind;
  std::fprintf(stderr, "fault library: no kind '%s'\n", name.c_str());
  std::_Exit(97);
}

bool is_below(const char* path) {
  return !settings.folder.empty() && path &&
         std::strncmp(path, settings.folder.c_str(), settings.folder.size()) == 0;
}

std::string path_of(int fd) {
  if (fd < 0 || fd >= kMostFiles) return {};
  const std::lock_guard lock(mutex);
  return watched_paths[fd] ? *watched_paths[fd] : std::string();
}

void watch(int fd, const char* path) {
  if (fd < 0 || fd >= kMostFiles) return;
  const std::lock_guard lock(mutex);
  delete std::exchange(watched_paths[fd], path ? new std::string(path) : nullptr);
}

void plain_write(int fd, const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const long done = ::syscall(SYS_write, fd, at, count);
    if (done <= 0) std::_Exit(98);
    at += done, count -= static_cast<size_t>(done);
  }
}

[[noreturn]] void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) ::pause();
}

// What becomes of a call.
struct Verdict {
  int error = 0;        // fails with it
  bool happens = true;  // and whether it is done all the same
  bool half = false;    // of a write: its first half is done, then...
  bool then_dies = false;
};

Verdict judge(const std::string& operation) {
  const long number = ++calls;
  if (settings.at == 0 || number < settings.at) return {};
  const bool first = number == settings.at;
  const bool is_write = operation == "write",
             adds = is_write || operation == "create" || operation == "mkdir";
  switch (settings.kind) {
    case Kind::kNone:
      return {};
    case Kind::kKill:
      die();
    case Kind::kTorn:
      if (!is_write) die();
      return {.half = true, .then_dies = true};
    case Kind::kFull:
    case Kind::kQuota: {
      const int error = settings.kind == Kind::kFull ? ENOSPC : EDQUOT;
      if (adds) return {.error = error, .happens = false, .half = is_write && first};
      if (operation == "fsync" && first) return {.error = error};
      return {};
    }
    case Kind::kReadOnly:
      if (operation == "close" || operation == "fsync") return {};
      return {.error = EROFS, .happens = false};
    case Kind::kBroken:
      if (!first) return {};
      return {.error = EIO, .happens = operation == "close"};
    case Kind::kInterrupted:
      // Linux ends a close that is interrupted; renames and the like are not.
      if (!first || !(is_write || operation == "create" || operation == "open" || operation == "fsync" ||
                      operation == "truncate"))
        return {};
      return {.error = EINTR, .happens = false};
    case Kind::kShort:
      return first && is_write ? Verdict{.half = true} : Verdict{};
    case Kind::kLostAnswer:
      if (!first) return {};
      if (operation == "rename") return {.error = ENOENT};
      if (operation == "close") return {};
      return {.error = ESTALE, .happens = false};
  }
  return {};
}

void trace(const std::string& line, const void* bytes = nullptr, size_t count = 0) {
  if (settings.trace < 0) return;
  const std::lock_guard lock(mutex);
  const std::string whole = line + "\n";
  plain_write(settings.trace, whole.data(), whole.size());
  if (count > 0) plain_write(settings.trace, bytes, count);
}

// A call without bytes: counted, judged, done, traced.
template <typename Call>
int changed(const std::string& operation, const std::string& what, const Call& call) {
  const Verdict verdict = judge(operation);
  const int result = verdict.happens ? call() : -1;
  const int error = verdict.error ? verdict.error : errno;
  if (result >= 0)
    trace(operation + "\t" + std::to_string(operation == "create" || operation == "open" ? result : 0) +
          "\t" + what);
  if (verdict.error) {
    if (result >= 0 && (operation == "create" || operation == "open")) REAL(close)(result);
    errno = error;
    return -1;
  }
  errno = error;
  return result;
}

int opened(const char* path, int flags, mode_t mode) {
  static auto* const real_open = real<int(const char*, int, ...)>("open");
  if (!is_below(path)) return real_open(path, flags, mode);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  int fd;
  if (!writes) {  // not counted, but a folder may be synced
    fd = real_open(path, flags, mode);
    if (fd >= 0 && (flags & O_DIRECTORY)) trace("folder\t" + std::to_string(fd) + "\t" + path);
    if (fd >= 0 && !(flags & O_DIRECTORY)) trace("look\t" + std::to_string(fd) + "\t" + path);
  } else {
    const bool creates = (flags & O_CREAT) && ::access(path, F_OK) != 0;
    fd = changed(creates ? "create" : "open", std::string(path) + ((flags & O_TRUNC) ? "\ttruncated" : ""),
                 [&] { return real_open(path, flags, mode); });
  }
  if (fd >= 0) watch(fd, path);
  return fd;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* const real_write = real<decltype(::write)>("write");
  const std::string path = path_of(fd);
  if (path.empty()) return real_write(fd, bytes, count);
  const Verdict verdict = judge("write");
  struct stat info {};
  const bool appends = (::fcntl(fd, F_GETFL) & O_APPEND) != 0;
  const off_t place = appends && ::fstat(fd, &info) == 0 ? info.st_size : ::lseek(fd, 0, SEEK_CUR);
  const size_t wanted = verdict.half ? count / 2 : count;
  ssize_t result = -1;
  if (verdict.happens || (verdict.half && wanted > 0)) {
    result = real_write(fd, bytes, wanted);
    if (result > 0)
      trace("write\t" + std::to_string(fd) + "\t" + std::to_string(place) + "\t" + std::to_string(result),
            bytes, static_cast<size_t>(result));
  }
  if (verdict.then_dies) die();
  if (verdict.error && !(verdict.half && result > 0)) {
    errno = verdict.error;
    return -1;
  }
  return result;
}

int fsync(int fd) {
  const std::string path = path_of(fd);
  if (path.empty()) return REAL(fsync)(fd);
  return changed("fsync", std::to_string(fd), [&] { return REAL(fsync)(fd); });
}
int fdatasync(int fd) {
  const std::string path = path_of(fd);
  if (path.empty()) return REAL(fdatasync)(fd);
  return changed("fsync", std::to_string(fd), [&] { return REAL(fdatasync)(fd); });
}
int ftruncate(int fd, off_t length) noexcept {
  const std::string path = path_of(fd);
  if (path.empty()) return REAL(ftruncate)(fd, length);
  return changed("truncate", std::to_string(fd) + "\t" + std::to_string(length),
                 [&] { return REAL(ftruncate)(fd, length); });
}
int close(int fd) {
  const std::string path = path_of(fd);
  if (path.empty()) return REAL(close)(fd);
  watch(fd, nullptr);
  return changed("close", std::to_string(fd), [&] { return REAL(close)(fd); });
}
int rename(const char* from, const char* to) noexcept {
  if (!is_below(to)) return REAL(rename)(from, to);
  return changed("rename", std::string(from) + "\t" + to, [&] { return REAL(rename)(from, to); });
}
int unlink(const char* path) noexcept {
  if (!is_below(path)) return REAL(unlink)(path);
  return changed("unlink", path, [&] { return REAL(unlink)(path); });
}
int remove(const char* path) noexcept {
  if (!is_below(path)) return REAL(remove)(path);
  return changed("unlink", path, [&] { return REAL(remove)(path); });
}
int rmdir(const char* path) noexcept {
  if (!is_below(path)) return REAL(rmdir)(path);
  return changed("unlink", path, [&] { return REAL(rmdir)(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (!is_below(path)) return REAL(mkdir)(path, mode);
  return changed("mkdir", path, [&] { return REAL(mkdir)(path, mode); });
}

}  // extern "C"

namespace {

using Main = int(int, char**, char**);
Main* program = nullptr;

// A descriptor of a file that is not watched.
int plain_open(const std::string& path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, 0600));
}

int become(const std::vector<std::string>& fields, char** environment) {
  const int out = plain_open(fields[0], O_WRONLY | O_CREAT | O_TRUNC),
            err = plain_open(fields[1], O_WRONLY | O_CREAT | O_TRUNC), in = plain_open("/dev/null", O_RDONLY);
  if (out < 0 || err < 0 || in < 0) std::_Exit(96);
  ::dup2(in, 0), ::dup2(out, 1), ::dup2(err, 2);
  settings.folder = fields[2];
  settings.at = std::stol(fields[3]);
  settings.kind = parse_kind(fields[4]);
  if (!fields[5].empty()) settings.trace = plain_open(fields[5], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  static std::vector<std::string> words;
  static std::vector<char*> pointers;
  words.assign(fields.begin() + 6, fields.end());
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return program(static_cast<int>(words.size()), pointers.data(), environment);
}

int serve(int, char**, char** environment) {
  ::unsetenv("LD_PRELOAD");
  std::string line;
  for (char c; ::read(0, &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    std::vector<std::string> fields(1);
    for (const char each : line) each == '\x1F' ? (void)fields.emplace_back() : (void)(fields.back() += each);
    line.clear();
    if (fields.size() < 7) return 95;
    const pid_t child = ::fork();
    if (child < 0) return 94;
    if (child == 0) return become(fields, environment);
    const std::string started = "started " + std::to_string(child) + "\n";
    plain_write(1, started.data(), started.size());
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
      if (errno != EINTR) return 93;
    const std::string ended = "ended " + std::to_string(status) + "\n";
    plain_write(1, ended.data(), ended.size());
  }
  return 0;
}

}  // namespace

// The name is glibc's. NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" int __libc_start_main(Main* main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  auto* const start =
      real<int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*)>("__libc_start_main");
  program = main;
  return start(std::getenv("EDGEWISE_FAULT_SERVER") ? serve : main, argc, argv, init, fini, rtld_fini,
               stack_end);
}
