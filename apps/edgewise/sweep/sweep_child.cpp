#include "sweep/sweep_child.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/file_descriptor.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace edgewise::app {
namespace {

// The environment as it is, with one GPU to be seen.
std::vector<std::string> environment_for(const std::string& device) {
  constexpr std::string_view kVisible = "CUDA_VISIBLE_DEVICES=";
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry)
    if (device.empty() || !std::string_view(*entry).starts_with(kVisible)) result.emplace_back(*entry);
  if (!device.empty()) result.push_back(std::string(kVisible) + device);
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

SweepChild::SweepChild(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                       const std::string& device) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words = {program}, environment = environment_for(device);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers_to(words), envp = pointers_to(environment);
  const io::FileDescriptor out = io::open_file("sweep", log, O_WRONLY | O_CREAT | O_TRUNC);
  const io::FileDescriptor in = io::open_file("sweep", "/dev/null", O_RDONLY);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  TORCH_CHECK(process_ >= 0, "sweep: cannot start a process");
  if (process_ > 0) return;
  // In the child, up to execve, only what may be called between fork and exec. A group of its own, so that
  // Ctrl-C comes once, from here, and not twice.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  ::dup2(in.get(), STDIN_FILENO);
  ::dup2(out.get(), STDOUT_FILENO);
  ::dup2(out.get(), STDERR_FILENO);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

SweepChild::SweepChild(SweepChild&& other) noexcept
    : process_(std::exchange(other.process_, -1)), asked_(other.asked_) {}

SweepChild& SweepChild::operator=(SweepChild&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(asked_, other.asked_);
  return *this;
}

SweepChild::~SweepChild() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void SweepChild::ask_to_stop() {
  if (process_ >= 0 && !std::exchange(asked_, true)) ::kill(process_, SIGTERM);
}

void SweepChild::kill() {
  if (process_ >= 0) ::kill(process_, SIGKILL);
}

std::optional<int> SweepChild::poll() {
  int status = 0;
  if (process_ < 0 || ::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_line(const std::filesystem::path& log) {
  std::string text = std::filesystem::exists(log) ? io::read_file(log) : "";
  while (text.ends_with('\n')) text.pop_back();
  std::string line = text.substr(text.rfind('\n') + 1);
  if (line.starts_with("edgewise: ")) line.erase(0, std::string("edgewise: ").size());
  return line;
}

}  // namespace edgewise::app
