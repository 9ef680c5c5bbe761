// What a sweep shows: a row for each row of its file, and a line about the whole. On a terminal the table is
// redrawn in place; in a log there is a line for every run that ends and one about the whole now and then.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "sweep/sweep_file.h"
#include "sweep/sweep_state.h"

namespace edgewise::app {

// A run as this process sees it.
struct SweepEntry {
  const SweepRun* run = nullptr;
  std::filesystem::path folder;
  RunState state;
  bool running = false, failed = false;
  std::string failure;     // what it said last
  int64_t first_step = 0;  // where it stood when this process began
  double started = 0;      // seconds since the sweep began, of a running one
  double seconds = 0;      // that it has trained in this process
};

struct SweepClock {
  double passed = 0;  // seconds since this process began
  std::optional<double> stop_after;
};

void print_table(const Sweep& sweep, const std::vector<SweepEntry>& entries, std::ostream& out);

// "12 of 60 done, 8 running, 1 failed, 39 left; 5:12 passed, about 22:10 to go".
std::string summary_line(const std::vector<SweepEntry>& entries, const SweepClock& clock);

class SweepBoard {
 public:
  SweepBoard(const Sweep& sweep, bool quiet);
  ~SweepBoard();  // takes a table on a terminal away
  void show(const std::vector<SweepEntry>& entries, const SweepClock& clock);
  void tell(const std::string& line);  // a line of its own

 private:
  void erase();
  const Sweep& sweep_;
  bool quiet_, terminal_;
  double drawn_ = 0;
  int lines_ = 0;  // of the table on the terminal
};

}  // namespace edgewise::app
