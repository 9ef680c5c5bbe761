// Progress of a long job on stderr: a bar that redraws itself on a terminal, a plain line now and then in a
// log.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgewise::train {

using ProgressFields = std::vector<std::pair<std::string, std::string>>;  // shown as name=value

// kAuto: a bar if stderr is a terminal that can redraw, plain lines otherwise.
enum class ProgressStyle { kAuto, kBar, kPlain, kNone };

struct ProgressOptions {
  std::string label = {};     // "train"
  int64_t total = 0;          // 0: unknown, no bar and no time left
  int64_t start = 0;          // done before this job began (a resumed run); not counted in the rate
  std::string unit = "step";  // "35.2 step/s"
  ProgressStyle style = ProgressStyle::kAuto;
  double plain_seconds = 10;  // between plain lines
  bool transient = false;  // leaves nothing behind: no bar, and no line of a job shorter than plain_seconds
  std::ostream* out = nullptr;         // nullptr: stderr
  std::function<double()> clock = {};  // seconds, steady; empty: the system's. For tests.
};

// What one line shows.
struct ProgressView {
  std::string label = {};
  int64_t done = 0;
  int64_t total = 0;
  std::string unit = "step";
  double rate = 0;     // units per second; 0: not known yet
  double elapsed = 0;  // seconds
  ProgressFields fields = {};
  std::string phase = {};  // "validating 40%"; empty: the job is at its own steps
  bool over = false;       // nothing is left, though not all may be done
};

struct ProgressLook {
  int width = 80;       // columns; the line is never longer
  bool colour = false;  // ANSI colours
  bool unicode = false;
};

std::string format_progress_bar(const ProgressView& view, const ProgressLook& look);
std::string format_progress_line(const ProgressView& view);
std::string format_phase(std::string_view name, int64_t done, int64_t total);  // "validating 40%"
std::string format_duration(double seconds);                  // "0:07", "12:34", "3:05:09", "2d 03:04"
std::string format_rate(double rate, std::string_view unit);  // "35.2 step/s", "12.5 s/step" when slow

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // ends an unfinished bar's line, so that what is printed next starts at a margin

  void update(int64_t done, const ProgressFields& fields = {});  // cheap: draws at most ten times a second
  void message(std::string_view line);                           // a line of its own; a bar moves below it
  void hide();    // takes the bar away until the next update, so that others can write to the terminal
  void finish();  // draws the last state and ends the line; of a transient job, takes the bar away

  // A part of the job that is none of its steps, a validation say: shown in the job's own line. Its time does
  // not count in the rate, and in a log it is silent for plain_seconds of its own.
  void begin_phase(std::string_view name);
  void update_phase(int64_t done, int64_t total);
  void end_phase();

 private:
  void draw();
  void erase_bar();
  void draw_bar();
  double now() const;
  void track_rate(int64_t done);

  ProgressOptions options_;
  ProgressStyle style_;
  ProgressLook look_;
  ProgressView view_;
  double started_ = 0;
  double last_draw_ = 0;
  double last_update_ = 0;
  std::string phase_;  // its name; empty between phases
  double phase_started_ = 0;
  double phase_seconds_ = 0;  // of all phases that have ended
  int64_t rate_done_ = 0;     // done at last_update_
  double smoothed_ = 0;       // exponential average of the rate, before its start-up correction
  int64_t drawn_done_ = 0;
  bool drawn_ = false;
  bool bar_visible_ = false;
  bool finished_ = false;
};

}  // namespace edgewise::train
