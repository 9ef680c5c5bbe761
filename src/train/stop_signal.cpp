#include <edgewise/train/stop_signal.h>

#include <csignal>

#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
bool installed = false;
struct sigaction previous_interrupt, previous_terminate;

void on_signal(int number) {
  if (stop_requested) {  // the user insists
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  TORCH_CHECK(!installed,
              "StopSignal: expected one at a time; another training run is active in this process");
  installed = true;
  stop_requested = 0;
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
  stop_requested = 0;
}

bool StopSignal::requested() {
  return stop_requested != 0;
}

}  // namespace edgewise::train
