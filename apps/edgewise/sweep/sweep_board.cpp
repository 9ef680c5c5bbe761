#include "sweep/sweep_board.h"

#include <edgewise/train/progress.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "report/seeds.h"
#include "table.h"

namespace edgewise::app {
namespace {

constexpr double kTerminalSeconds = 1, kLogSeconds = 30;

bool is_left(const SweepEntry& entry) {
  return !entry.running && !entry.failed && entry.state.stage != RunStage::kDone;
}

int64_t steps_to_go(const SweepEntry& entry) {
  if (entry.state.stage == RunStage::kDone || entry.failed) return 0;
  return std::max<int64_t>(0, entry.run->recipe.train.steps - entry.state.step);
}

struct Counts {
  int64_t done = 0, running = 0, failed = 0, left = 0, made = 0, to_go = 0;
};

Counts count(const std::vector<SweepEntry>& entries) {
  Counts counts;
  for (const SweepEntry& entry : entries) {
    counts.running += entry.running;
    counts.failed += entry.failed;
    counts.left += is_left(entry);
    counts.done += entry.state.stage == RunStage::kDone;
    counts.made += std::max<int64_t>(0, entry.state.step - entry.first_step);
    counts.to_go += steps_to_go(entry);
  }
  return counts;
}

// Of a text of single-column signs and ANSI-free, as ours are.
std::string cut(const std::string& line, size_t width) {
  size_t columns = 0, end = 0;
  for (; end < line.size(); ++end)
    if ((line[end] & 0xC0) != 0x80 && ++columns > width) break;
  return line.substr(0, end);
}

std::string number_or_nothing(int64_t number) {
  return number > 0 ? std::to_string(number) : "";
}

}  // namespace

void print_table(const Sweep& sweep, const std::vector<SweepEntry>& entries, std::ostream& out) {
  Table table({"row", "done", "running", "failed", "left", "test accuracy, %", "density, %", "time"});
  for (const std::string& row : sweep.rows) {
    std::vector<SweepEntry> mine;
    std::vector<double> accuracy, density;
    std::string running;
    double seconds = 0;
    for (const SweepEntry& entry : entries) {
      if (entry.run->row != row) continue;
      mine.push_back(entry);
      seconds += entry.seconds;
      if (entry.state.stage == RunStage::kDone) {
        accuracy.push_back(100 * entry.state.accuracy.value_or(0));
        density.push_back(100 * entry.state.density.value_or(0));
      }
      if (!entry.running) continue;
      const double share =
          static_cast<double>(entry.state.step) / static_cast<double>(entry.run->recipe.train.steps);
      running +=
          (running.empty() ? "seed " : ", ") + std::to_string(entry.run->seed) + " at " + percent(share, 0);
    }
    const Counts counts = count(mine);
    table.add({row, number_or_nothing(counts.done), running, number_or_nothing(counts.failed),
               number_or_nothing(counts.left), accuracy.empty() ? "" : show(spread_of(accuracy)),
               density.empty() ? "" : fixed(spread_of(density).mean, 2),
               seconds > 0 ? train::format_duration(seconds) : ""});
  }
  table.print(out);
}

std::string summary_line(const std::vector<SweepEntry>& entries, const SweepClock& clock) {
  const Counts counts = count(entries);
  std::ostringstream text;
  text << counts.done << " of " << entries.size() << " done, " << counts.running << " running, "
       << counts.failed << " failed, " << counts.left << " left";
  if (clock.passed >= 1) text << "; " << train::format_duration(clock.passed) << " passed";
  if (counts.made > 0 && counts.to_go > 0)
    text << ", about "
         << train::format_duration(clock.passed * static_cast<double>(counts.to_go) /
                                   static_cast<double>(counts.made))
         << " to go";
  if (clock.stop_after && *clock.stop_after > clock.passed)
    text << ", stops in " << train::format_duration(*clock.stop_after - clock.passed);
  return text.str();
}

SweepBoard::SweepBoard(const Sweep& sweep, bool quiet)
    : sweep_(sweep), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {
  if (terminal_) drawn_ = -kTerminalSeconds;  // at once
}

SweepBoard::~SweepBoard() {
  erase();
}

void SweepBoard::erase() {
  if (lines_ > 0) std::cerr << "\x1b[" << lines_ << "A\r\x1b[J" << std::flush;
  lines_ = 0;
}

void SweepBoard::tell(const std::string& line) {
  if (quiet_) return;
  erase();
  std::cerr << line << "\n" << std::flush;
  if (terminal_) drawn_ = -kTerminalSeconds;  // the table comes back at once
}

void SweepBoard::show(const std::vector<SweepEntry>& entries, const SweepClock& clock) {
  if (quiet_ || clock.passed - drawn_ < (terminal_ ? kTerminalSeconds : kLogSeconds)) return;
  drawn_ = clock.passed;
  if (!terminal_) {
    std::cerr << summary_line(entries, clock) << "\n" << std::flush;
    return;
  }
  winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const size_t width = known ? size.ws_col : 80, height = known ? size.ws_row : 24;
  std::ostringstream text;
  // A table that does not fit could not be drawn over.
  if (sweep_.rows.size() + 4 < height) print_table(sweep_, entries, text);
  text << summary_line(entries, clock) << "\n";
  erase();
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line); ++lines_) std::cerr << cut(line, width - 1) << "\n";
  std::cerr << std::flush;
}

}  // namespace edgewise::app
