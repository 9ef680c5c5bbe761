// Calls the built program as a user does, in a folder of the test.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "kit/scratch_folder.h"

namespace edgewise::cli {

struct Call {
  int status = -1;  // exit status; 128 + number when a signal ended it
  std::string out, err;
};

// A program that is running; its output lies in the scratch folder until it is waited for.
class Running {
 public:
  Running(const kit::ScratchFolder& scratch, const std::vector<std::string>& arguments) : scratch_(scratch) {
    std::vector<std::string> words = {EDGEWISE_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, scratch.file("stdout").c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, scratch.file("stderr").c_str(), flags, 0600);
    if (posix_spawn(&process_, EDGEWISE_BINARY, &actions, nullptr, pointers.data(), environ) != 0)
      process_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }

  pid_t process() const { return process_; }

  Call wait() const {
    int status = 0;
    if (process_ < 0 || ::waitpid(process_, &status, 0) != process_) return {};
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), scratch_.read("stdout"),
            scratch_.read("stderr")};
  }

 private:
  const kit::ScratchFolder& scratch_;
  pid_t process_ = -1;
};

inline Call call(const kit::ScratchFolder& scratch, const std::vector<std::string>& arguments) {
  return Running(scratch, arguments).wait();
}

// A run of a second or so; `steps` and more can be changed with --set.
inline std::string write_tiny_recipe(const kit::ScratchFolder& scratch) {
  return scratch.write("tiny.toml", R"([data]
name = "repeated_tokens"
length = 8
train_size = 64
validation_size = 16
test_size = 16
[model]
layers = 1
dim = 16
heads = 2
hidden = 16
[attention]
kind = "sbm"
clusters = 4
[train]
steps = 3
batch = 4
eval_every = 2
log_every = 1
threads = 1
)");
}

}  // namespace edgewise::cli
