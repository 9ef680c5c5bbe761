// One run of a sweep under way: a process of this program that trains, in a process group of its own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

class SweepChild {
 public:
  // What it prints goes to `log`. A `device` is the number of the GPU that it sees alone; empty: all of them.
  // It is asked to stop when this process ends, however that happens.
  SweepChild(const std::vector<std::string>& arguments, const std::filesystem::path& log,
             const std::string& device);
  SweepChild(SweepChild&& other) noexcept;
  SweepChild& operator=(SweepChild&& other) noexcept;
  ~SweepChild();  // ends and waits for one that still runs

  void ask_to_stop();  // once: a second signal would end it at once
  void kill();
  // Its exit status once it has ended, 128 + number where a signal ended it.
  std::optional<int> poll();

 private:
  pid_t process_ = -1;
  bool asked_ = false;
};

// What a program that failed says last, for a message.
std::string last_line(const std::filesystem::path& log);

}  // namespace edgewise::app
