#include <edgewise/train/stop_signal.h>

#include <atomic>
#include <csignal>

#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

// The signal may arrive in any thread, and two may arrive at once.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use nothing else");
bool installed = false;
struct sigaction previous_interrupt, previous_terminate;

void on_signal(int number) {
  if (!stop_requested.exchange(true)) return;
  std::signal(number, SIG_DFL);  // the user insists
  std::raise(number);
}

}  // namespace

StopSignal::StopSignal() {
  TORCH_CHECK(!installed,
              "StopSignal: expected one at a time; another training run is active in this process");
  installed = true;
  stop_requested = false;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previous_interrupt);
  sigaction(SIGTERM, &action, &previous_terminate);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &previous_interrupt, nullptr);
  sigaction(SIGTERM, &previous_terminate, nullptr);
  installed = false;
  stop_requested = false;
}

bool StopSignal::requested() {
  return stop_requested;
}

}  // namespace edgewise::train
