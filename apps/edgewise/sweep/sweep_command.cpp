// edgewise sweep: a grid of runs, several at a time, as child processes of this program; what is finished
// stays, what was stopped goes on.
#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/file_descriptor.h>
#include <edgewise/train/stop_signal.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>
#include <span>
#include <thread>

#include "command.h"
#include "runs.h"
#include "sweep/sweep_board.h"
#include "sweep/sweep_child.h"
#include "sweep/sweep_file.h"
#include "sweep/sweep_time.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastSeconds = 15;  // less is gone before a run has made a step
constexpr double kGraceSeconds = 60;  // to end a step and write a checkpoint

struct SweepArguments {
  std::string file, runs;
  std::vector<std::string> overrides, devices;
  int64_t jobs = 1, failures = 5;
  std::optional<double> stop_after;
  bool list = false, quiet = false, time = false;
};

// A place where one run can train: a share of a device.
struct Slot {
  std::string device;  // number of the GPU; empty: whatever is there
  std::optional<SweepChild> child;
  SweepEntry* entry = nullptr;
};

class Sweeper {
 public:
  Sweeper(const SweepArguments& arguments, const Sweep& sweep)
      : arguments_(arguments), sweep_(sweep), board_(sweep, arguments.quiet) {
    for (const SweepRun& run : sweep.runs) {
      SweepEntry& entry = entries_.emplace_back();
      entry.run = &run;
      entry.folder = sweep.folder / run.name;
      entry.state = state_of(run, entry.folder);
      entry.first_step = entry.state.step;
    }
    const std::vector<std::string> one = {""}, &devices = arguments.devices.empty() ? one : arguments.devices;
    for (int64_t n = 0; n < arguments.jobs; ++n)  // few runs are shared among the devices, too
      for (const std::string& device : devices) slots_.push_back({.device = device, .child = {}});
    threads_ = std::max<size_t>(1, std::thread::hardware_concurrency() / slots_.size());
  }

  int run() {
    std::filesystem::create_directories(logs());
    note_command();
    for (const SweepEntry& entry : entries_)  // of a sweep that was killed just then
      if (entry.state.stage == RunStage::kDone) discard_weights(*entry.run, entry.folder);
    // What has begun goes first, so that few are under way at any time.
    for (const RunStage stage : {RunStage::kBegun, RunStage::kLeft})
      for (SweepEntry& entry : entries_)
        if (entry.state.stage == stage) waiting_.push_back(&entry);
    const train::StopSignal signal;
    for (;;) {
      for (Slot& slot : slots_) look_after(slot);
      if (is_stopping()) {
        stop_children();
      } else if (may_start()) {
        for (Slot& slot : slots_)
          if (!slot.child && !waiting_.empty()) start(slot);
      }
      const bool any = std::ranges::any_of(slots_, [](const Slot& slot) { return slot.child.has_value(); });
      if (!any && (waiting_.empty() || is_stopping() || !may_start())) break;
      board_.show(entries_, clock());
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return report();
  }

  // Of every row the first finished run that keeps its weights, one after another, alone on the device.
  int measure_steps() {
    std::filesystem::create_directories(logs());
    const train::StopSignal signal;
    std::vector<std::string> lacking;
    for (const std::string& row : sweep_.rows) {
      if (is_stopping()) return 130;
      if (std::ranges::any_of(entries_, [&](const SweepEntry& entry) {
            return entry.run->row == row && std::filesystem::exists(entry.folder / kStepFile);
          }))
        continue;
      const auto found = std::ranges::find_if(entries_, [&](const SweepEntry& entry) {
        return entry.run->row == row && entry.state.stage == RunStage::kDone &&
               std::filesystem::exists(entry.folder / "checkpoints" / "best.safetensors");
      });
      if (found == entries_.end())
        lacking.push_back(row);
      else if (!measure_step(*found))
        return 130;
    }
    for (const std::string& row : lacking)
      board_.tell(row + ": no finished run with weights to measure (weights in " + arguments_.file + ")");
    return lacking.empty() ? 0 : 1;
  }

  void print(std::ostream& out) const {
    print_table(sweep_, entries_, out);
    out << summary_line(entries_, clock()) << "\n";
  }

 private:
  std::filesystem::path logs() const { return sweep_.folder / ".logs"; }
  std::filesystem::path log_of(const SweepEntry& entry) const { return logs() / (entry.run->name + ".txt"); }

  // What made these runs: a line for every start.
  void note_command() const {
    const io::FileDescriptor file =
        io::open_file("sweep", logs() / "commands", O_WRONLY | O_CREAT | O_APPEND);
    std::string line = io::read_file("/proc/self/cmdline");
    std::ranges::replace(line, '\0', ' ');
    line.back() = '\n';
    io::write_all("sweep", file, logs() / "commands", std::as_bytes(std::span(line)));
  }

  SweepClock clock() const {
    return {std::chrono::duration<double>(Clock::now() - start_).count(), arguments_.stop_after};
  }

  bool is_stopping() const {
    const SweepClock now = clock();
    return train::StopSignal::requested() || (now.stop_after && now.passed >= *now.stop_after);
  }

  // False when it was stopped.
  bool measure_step(const SweepEntry& entry) {
    const std::filesystem::path log = logs() / (entry.run->name + "-step.txt");
    const std::string& device = slots_.front().device;
    SweepChild child({"bench", "train", entry.folder.string(), "--json", "--seconds", "3"}, log, device);
    std::optional<int> status;
    while (!(status = child.poll())) {
      if (is_stopping()) child.ask_to_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (is_stopping() && *status != 0) return false;
    TORCH_CHECK(*status == 0, "sweep --time: ", entry.run->name, " failed: ", last_line(log));
    write_step_file(entry.folder, last_line(log));
    board_.tell(entry.run->name + ": measured");
    return true;
  }

  bool may_start() const {
    const SweepClock now = clock();
    const auto failed = std::ranges::count(entries_, true, &SweepEntry::failed);
    return failed < arguments_.failures &&
           (!now.stop_after || now.passed + std::min(kLeastSeconds, *now.stop_after / 2) < *now.stop_after);
  }

  void start(Slot& slot) {
    SweepEntry& entry = *waiting_.front();
    waiting_.pop_front();
    const SweepRun& run = *entry.run;
    std::vector<std::string> words = {
        "train", run.recipe_file.string(), "--run", entry.folder.string(), "--resume", "--quiet"};
    const auto set = [&](const std::string& text) { words.insert(words.end(), {"--set", text}); };
    for (const std::string& text : run.overrides) set(text);
    if (run.recipe.train.threads == 0) set("train.threads=" + std::to_string(threads_));
    slot.child.emplace(words, log_of(entry), slot.device);
    slot.entry = &entry;
    entry.running = true;
    entry.started = clock().passed;
  }

  // Reads how far the run has come; where it has ended, what came of it.
  void look_after(Slot& slot) {
    if (!slot.child) return;
    SweepEntry& entry = *slot.entry;
    const std::optional<int> status = slot.child->poll();
    if (!status) {
      entry.state.step = std::max(entry.first_step, last_step(entry.folder));
      return;
    }
    slot.child.reset();
    entry.running = false;
    const double seconds = clock().passed - entry.started;
    entry.seconds += seconds;
    entry.state = state_of(*entry.run, entry.folder);
    const std::string name = entry.run->name + ": ";
    if (*status == 0 && entry.state.stage == RunStage::kDone) {
      discard_weights(*entry.run, entry.folder);
      board_.tell(name + "test accuracy " + percent(*entry.state.accuracy) + ", density " +
                  percent(*entry.state.density) + ", " + fixed(seconds, 0) + " s");
    } else if (is_stopping() && *status >= 128) {  // by our signal, before or after it could be caught
      board_.tell(name + "stopped at step " + std::to_string(entry.state.step));
    } else {
      entry.failed = true;
      const std::string said = last_line(log_of(entry));
      entry.failure = "status " + std::to_string(*status) + (said.empty() ? "" : ": " + said);
      board_.tell(name + "failed, " + entry.failure);
    }
  }

  void stop_children() {
    if (!stopping_since_) stopping_since_ = clock().passed;
    const bool late = clock().passed > *stopping_since_ + kGraceSeconds;
    for (Slot& slot : slots_) {
      if (!slot.child) continue;
      slot.child->ask_to_stop();
      if (late) slot.child->kill();
    }
  }

  int report() {
    int64_t failed = 0, left = 0;
    for (const SweepEntry& entry : entries_) {
      failed += entry.failed;
      left += !entry.failed && entry.state.stage != RunStage::kDone;
    }
    if (left > 0)
      board_.tell(failed >= arguments_.failures
                      ? "gave up after " + counted(failed, "failed run") + " (--give-up-after)"
                      : "the same command goes on where this one stopped");
    if (failed > 0) board_.tell("what failed runs said is in " + logs().string());
    print(std::cout);
    return failed > 0 ? 1 : left > 0 ? 130 : 0;
  }

  const SweepArguments& arguments_;
  const Sweep& sweep_;
  SweepBoard board_;
  const Clock::time_point start_ = Clock::now();
  std::vector<SweepEntry> entries_;
  std::vector<Slot> slots_;
  std::deque<SweepEntry*> waiting_;
  std::optional<double> stopping_since_;
  size_t threads_ = 1;
};

int run(const SweepArguments& arguments) {
  Sweep sweep = load_sweep(arguments.file, arguments.overrides);
  if (!arguments.runs.empty()) sweep.folder = arguments.runs;
  Sweeper sweeper(arguments, sweep);
  if (arguments.time) return sweeper.measure_steps();
  if (!arguments.list) return sweeper.run();
  sweeper.print(std::cout);
  return 0;
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<SweepArguments>();
  CLI::App* command =
      app.add_subcommand("sweep", "Train a grid of recipes x seeds x settings, several runs at a time");
  command->add_option("file", arguments->file, "the sweep, e.g. recipes/lra/sweeps/listops.toml")->required();
  command->add_option("--runs", arguments->runs, "folder of the run folders; default: as the sweep says");
  command->add_option("--jobs", arguments->jobs, "runs at a time on each device")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--devices", arguments->devices,
                   "numbers of the GPUs to share the runs, e.g. 0,1; default: the one that torch takes")
      ->delimiter(',');
  command
      ->add_option("--stop-after", arguments->stop_after,
                   "seconds after which runs are saved and stopped; the same command goes on from there")
      ->check(number_above(0));
  command
      ->add_option("--set", arguments->overrides,
                   "override a key of all recipes, e.g. --set train.device=cpu; repeat the flag for more")
      ->allow_extra_args(false);
  command->add_option("--give-up-after", arguments->failures, "failed runs after which no other is started")
      ->capture_default_str()
      ->check(whole_number(1));
  CLI::Option* const list =
      command->add_flag("--list", arguments->list, "print what is done and left, and stop");
  command
      ->add_flag(
          "--time", arguments->time,
          "train nothing; measure the training step of a finished run of each row, one at a time, with "
          "nothing else on the device")
      ->excludes(list);
  command->add_flag("--quiet", arguments->quiet, "only the table at the end");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
