#include <edgewise/train/profile.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

struct Sums {
  std::mutex mutex;
  std::map<std::string, ProfileLine> phases, operations;
  double phase_seconds = 0;  // of phases inside no other
};
Sums* listener = nullptr;  // of the one Profile

// What is open on this thread, outermost first.
struct Open {
  Clock::time_point begin;
  bool is_phase = false;
  double inside = 0;  // seconds in operations that this one called
};
thread_local std::vector<Open> open_operations;

// What a reader needs of a name: the node of a function of our own, whose type torch spells out
// ("torch::autograd::CppNode<edgewise::functional::(anonymous namespace)::AttentionFunction>"), is
// "AttentionFunction, backward".
std::string readable(std::string_view name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  if (!name.starts_with(kNode) || !name.ends_with('>')) return std::string(name);
  std::string_view type = name.substr(kNode.size(), name.size() - kNode.size() - 1);
  const size_t own_name = type.substr(0, type.find('<')).rfind("::");  // not that of a template's argument
  if (own_name != std::string_view::npos) type.remove_prefix(own_name + 2);
  return std::string(type) + ", backward";
}

void add(std::map<std::string, ProfileLine>& lines, const char* name, double seconds) {
  ProfileLine& line = lines[name];
  line.name = name;
  ++line.calls;
  line.seconds += seconds;
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  open_operations.push_back({Clock::now(), function.scope() == at::RecordScope::USER_SCOPE});
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (!listener || open_operations.empty()) return;  // it began before the profile did
  const Open done = open_operations.back();
  open_operations.pop_back();
  const double seconds = seconds_between(done.begin, Clock::now());
  const std::lock_guard lock(listener->mutex);
  if (done.is_phase) {
    // A phase takes nothing from the operation around it: it only tells where in a run we are.
    add(listener->phases, function.name(), seconds);
    const bool is_inner =
        std::any_of(open_operations.begin(), open_operations.end(), [](const Open& o) { return o.is_phase; });
    if (!is_inner) listener->phase_seconds += seconds;
    if (!open_operations.empty()) open_operations.back().inside += done.inside;
    return;
  }
  add(listener->operations, function.name(), seconds - done.inside);
  if (!open_operations.empty()) open_operations.back().inside += seconds;
}

std::vector<ProfileLine> sorted(const std::map<std::string, ProfileLine>& lines) {
  std::vector<ProfileLine> result;
  for (const auto& [name, line] : lines) result.push_back(line);
  std::sort(result.begin(), result.end(),
            [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace

struct Profile::State {
  Clock::time_point start = Clock::now();
  Sums sums;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
};

Profile::Profile() : state_(std::make_unique<State>()) {
  TORCH_CHECK(!listener, "Profile: expected one at a time; another one is listening");
  listener = &state_->sums;
  state_->handle =
      at::addGlobalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                         at::RecordScope::USER_SCOPE}));
}

Profile::~Profile() {
  at::removeCallback(state_->handle);
  listener = nullptr;
}

std::vector<ProfileLine> Profile::phases() const {
  const std::lock_guard lock(state_->sums.mutex);
  return sorted(state_->sums.phases);
}

std::vector<ProfileLine> Profile::operations() const {
  const std::lock_guard lock(state_->sums.mutex);
  std::vector<ProfileLine> result = sorted(state_->sums.operations);
  for (ProfileLine& line : result) line.name = readable(line.name);
  return result;
}

double Profile::phase_seconds() const {
  const std::lock_guard lock(state_->sums.mutex);
  return state_->sums.phase_seconds;
}

double Profile::seconds() const {
  return seconds_between(state_->start, Clock::now());
}

}  // namespace edgewise::train
