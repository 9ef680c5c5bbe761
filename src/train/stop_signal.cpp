#include <edgewise/train/stop_signal.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

// The signal may arrive in any thread, and two may arrive at once.
std::atomic<int64_t> requested_at = 0;  // milliseconds; 0 = not
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler may use nothing else");
bool installed = false;
constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};  // SIGHUP: the terminal is gone
std::array<struct sigaction, 3> previous;

int64_t now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);  // may be called in a signal handler
  return int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

// timeout and batch systems signal a process and its group: what arrives twice at once was sent once.
void on_signal(int number) {
  int64_t first = 0;
  if (requested_at.compare_exchange_strong(first, now())) return;
  if (now() - first < 1000) return;
  std::signal(number, SIG_DFL);  // the user insists
  std::raise(number);
}

}  // namespace

StopSignal::StopSignal() {
  TORCH_CHECK(!installed,
              "StopSignal: expected one at a time; another training run is active in this process");
  installed = true;
  requested_at = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t n = 0; n < kSignals.size(); ++n) {
    sigaction(kSignals[n], nullptr, &previous[n]);
    // Under nohup a run outlives its terminal.
    if (kSignals[n] == SIGHUP && previous[n].sa_handler == SIG_IGN) continue;
    sigaction(kSignals[n], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  for (size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &previous[n], nullptr);
  installed = false;
  requested_at = 0;
}

bool StopSignal::requested() {
  return requested_at != 0;
}

}  // namespace edgewise::train
