// Several processes of the built program that are the ranks of one run, as torchrun would start them.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kit/scratch_folder.h"

namespace edgewise::distributed {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One that nobody listens at.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

struct Ended {
  int status =
      -1;  // exit status; 128 + number when a signal ended it; -1 when it had to be killed by the test
  std::string out, err;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

class RankProcesses {
 public:
  RankProcesses(const kit::ScratchFolder& scratch, int ranks, const std::vector<std::string>& arguments,
                const Variables& more = {})
      : scratch_(scratch), port_(free_port()) {
    for (int rank = 0; rank < ranks; ++rank) start(rank, ranks, arguments, more);
  }
  ~RankProcesses() {
    for (const pid_t process : processes_)
      if (process > 0) ::kill(process, SIGKILL), ::waitpid(process, nullptr, 0);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t process(int rank) const { return processes_[static_cast<size_t>(rank)]; }
  std::string err(int rank) const { return scratch_.read(name(rank, "err")); }

  // Whether the rank ends within so many seconds.
  Ended wait(int rank, double seconds = 60) {
    pid_t& process = processes_[static_cast<size_t>(rank)];
    const auto start = Clock::now();
    int status = 0;
    while (::waitpid(process, &status, WNOHANG) == 0) {
      if (seconds_since(start) > seconds) return {-1, scratch_.read(name(rank, "out")), err(rank)};
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    process = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            scratch_.read(name(rank, "out")), err(rank)};
  }
  // All of them.
  std::vector<Ended> wait_all(double seconds = 60) {
    std::vector<Ended> result;
    for (size_t rank = 0; rank < processes_.size(); ++rank)
      result.push_back(wait(static_cast<int>(rank), seconds));
    return result;
  }

 private:
  static std::string name(int rank, const char* stream) {
    return "rank" + std::to_string(rank) + "." + stream;
  }

  void start(int rank, int ranks, const std::vector<std::string>& arguments, const Variables& more) {
    Variables variables = {{"RANK", std::to_string(rank)},         {"WORLD_SIZE", std::to_string(ranks)},
                           {"LOCAL_RANK", std::to_string(rank)},   {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port_)}, {"OMP_NUM_THREADS", "1"}};
    for (const auto& each : more) {
      std::erase_if(variables, [&](const auto& known) { return known.first == each.first; });
      if (!each.second.empty()) variables.push_back(each);
    }
    std::vector<std::string> words = {EDGEWISE_BINARY}, environment;
    words.insert(words.end(), arguments.begin(), arguments.end());
    for (const auto& [key, value] : variables) environment.push_back(key + "=" + value);
    for (char** each = environ; *each; ++each) environment.emplace_back(*each);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (std::string& text : texts) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, scratch_.file(name(rank, "out")).c_str(), flags,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, scratch_.file(name(rank, "err")).c_str(), flags,
                                     0600);
    pid_t process = 0;
    if (posix_spawn(&process, EDGEWISE_BINARY, &actions, nullptr, pointers(words).data(),
                    pointers(environment).data()) != 0)
      process = 0;
    posix_spawn_file_actions_destroy(&actions);
    processes_.push_back(process);
  }

  const kit::ScratchFolder& scratch_;
  int port_;
  std::vector<pid_t> processes_;
};

}  // namespace edgewise::distributed
