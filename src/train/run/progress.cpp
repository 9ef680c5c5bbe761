// Drawing and pacing; the text itself is made in progress_format.cpp.
#include <edgewise/train/progress.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

namespace edgewise::train {
namespace {

constexpr double kBarSeconds = 0.1;        // between redraws
constexpr double kRateMemorySeconds = 20;  // how far back the rate looks

bool variable_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool terminal_redraws() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!variable_set(name)) continue;
    const std::string_view value = std::getenv(name);
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(ProgressOptions options) : options_(std::move(options)), style_(options_.style) {
  if (options_.out == nullptr) options_.out = &std::cerr;
  if (style_ == ProgressStyle::kAuto)
    style_ = terminal_redraws() ? ProgressStyle::kBar : ProgressStyle::kPlain;
  look_.colour = !variable_set("NO_COLOR");
  look_.unicode = locale_is_utf8();
  view_.label = options_.label;
  view_.unit = options_.unit;
  view_.total = options_.total;
  view_.done = rate_done_ = options_.start;
  started_ = last_draw_ = last_update_ = now();
}

Progress::~Progress() {
  if (!bar_visible_ || finished_) return;
  if (options_.transient)
    hide();
  else
    *options_.out << '\n' << std::flush;
}

double Progress::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An exponential average over time, divided by the weight it has gathered, so that it is right from the first
// update on.
void Progress::track_rate(int64_t done) {
  const double time = now(), passed = time - last_update_;
  view_.elapsed = time - started_;
  view_.done = done;
  if (passed <= 0) return;  // counted with the next update
  const double weight = -std::expm1(-passed / kRateMemorySeconds);
  smoothed_ += weight * (static_cast<double>(done - rate_done_) / passed - smoothed_);
  const double stepping = view_.elapsed - phase_seconds_;
  view_.rate = std::max(0.0, smoothed_ / -std::expm1(-stepping / kRateMemorySeconds));
  rate_done_ = done;
  last_update_ = time;
}

void Progress::update(int64_t done, const ProgressFields& fields) {
  if (finished_ || style_ == ProgressStyle::kNone) return;
  track_rate(done);
  if (!fields.empty()) view_.fields = fields;
  const double wait = style_ == ProgressStyle::kBar ? kBarSeconds : options_.plain_seconds;
  if (last_update_ - last_draw_ < wait && (drawn_ || style_ == ProgressStyle::kPlain)) return;
  draw();
}

void Progress::draw() {
  last_draw_ = now();
  drawn_ = true;
  drawn_done_ = view_.phase.empty() ? view_.done : -1;  // a phase is not the last to be heard of a step
  if (style_ == ProgressStyle::kPlain) {
    *options_.out << format_progress_line(view_) << '\n' << std::flush;
  } else {
    draw_bar();
  }
}

void Progress::draw_bar() {
  ProgressLook look = look_;
  // One column is left free: a terminal that wraps after the last one would scroll at every redraw.
  look.width = (options_.out == &std::cerr ? terminal_width() : look.width) - 1;
  *options_.out << '\r' << format_progress_bar(view_, look) << "\x1b[K" << std::flush;
  bar_visible_ = true;
}

void Progress::erase_bar() {
  if (bar_visible_ && !finished_) *options_.out << "\r\x1b[K";
}

void Progress::hide() {
  erase_bar();
  *options_.out << std::flush;
  bar_visible_ = false;
  if (style_ == ProgressStyle::kBar) drawn_ = false;  // the next update draws at once
}

void Progress::begin_phase(std::string_view name) {
  phase_ = name;
  phase_started_ = now();
  if (style_ == ProgressStyle::kBar) drawn_ = false;  // shown at once
}

void Progress::update_phase(int64_t done, int64_t total) {
  if (finished_ || style_ == ProgressStyle::kNone || phase_.empty()) return;
  view_.phase = format_phase(phase_, done, total);
  const double time = now();
  view_.elapsed = time - started_;
  const bool due = style_ == ProgressStyle::kBar
                       ? !drawn_ || time - last_draw_ >= kBarSeconds
                       : time - std::max(last_draw_, phase_started_) >= options_.plain_seconds;
  if (due) draw();
}

void Progress::end_phase() {
  if (phase_.empty()) return;
  const double time = now();
  phase_seconds_ += time - phase_started_;
  last_update_ += time - phase_started_;
  phase_.clear();
  view_.phase.clear();
  if (bar_visible_ && !finished_) draw_bar();
}

void Progress::message(std::string_view line) {
  if (style_ == ProgressStyle::kNone) return;
  erase_bar();
  *options_.out << line << '\n' << std::flush;
  if (bar_visible_ && !finished_) draw_bar();
}

void Progress::finish() {
  if (finished_ || style_ == ProgressStyle::kNone) return;
  // The whole job's rate is what the last line should say.
  view_.over = true;
  view_.elapsed = now() - started_;
  const double stepping = view_.elapsed - phase_seconds_;
  view_.rate = stepping > 0 ? static_cast<double>(view_.done - options_.start) / stepping : 0;
  if (options_.transient && style_ == ProgressStyle::kBar) {
    hide();
  } else if (!options_.transient || drawn_) {
    // A log need not hear the same twice.
    if (style_ == ProgressStyle::kBar || !drawn_ || drawn_done_ != view_.done) draw();
    if (bar_visible_) *options_.out << '\n' << std::flush;
  }
  finished_ = true;
}

}  // namespace edgewise::train
