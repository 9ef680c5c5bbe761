#include <edgewise/train/ranks.h>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Flags.h>

#include "train/ranks/backends.h"
#include "train/ranks/rank_watch.h"

C10_DECLARE_int(caffe2_log_level);  // of c10, without a header of its own

namespace edgewise::train {
namespace {

using Clock = std::chrono::steady_clock;
using c10d::Store;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string store_place(const RankPlace& place) {
  return std::string(place.launcher_has_store ? "torchrun" : "rank 0") + " at " + place.address + ":" +
         std::to_string(place.port);
}

c10::intrusive_ptr<Store> open_store(const RankPlace& place) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.launcher_has_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(place.timeout);
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.address, options);
  } catch (const std::exception& error) {
    const std::string why = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    if (options.isServer)
      TORCH_CHECK(false, "ranks: rank 0 expected to open the port ", place.port,
                  " (MASTER_PORT) of this machine; ", why, ". Choose another port");
    TORCH_CHECK(false, "ranks: rank ", place.rank, " expected the store that ", store_place(place),
                " holds (MASTER_ADDR, MASTER_PORT); it did not answer within ", place.timeout, " s: ", why,
                ". Is the address right, has rank 0 been started, is the port open?");
  }
}

// The address of this machine on the way to another: what the other reaches it by.
std::string own_address_towards(const std::string& host, int64_t port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  std::string result = "127.0.0.1";
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return result;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype, each->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> name{};
    // Of datagrams: nothing is sent.
    const bool known = ::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                       ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, name.data(), name.size(),
                                     nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(socket);
    if (!known) continue;
    result = name.data();
    break;
  }
  ::freeaddrinfo(found);
  return result;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.cpu().contiguous().flatten().view(at::kByte);
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor result = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), result.mutable_data_ptr<uint8_t>());
  return result;
}

std::string text_of(const at::Tensor& bytes) {
  const auto* const first = bytes.const_data_ptr<uint8_t>();
  return {first, first + bytes.numel()};
}

// torch's warnings of a connection that broke, stack traces and all, would stand around the line that says
// which rank it was.
void quieten_torch() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;  // errors
}

}  // namespace

struct Ranks::State {
  c10::intrusive_ptr<Store> whole_store, store;  // of all attempts, and of this one
  std::vector<std::string> names, hosts;
  std::unique_ptr<RankWatch> watch;
  // `gradients` is of the host too: what is sent while a backward pass runs must not meet what is sent
  // beside it. `device` null: gradients go by `gradients`.
  c10::intrusive_ptr<c10d::Backend> host, gradients, device;
  bool failed = false, left = false;

  // Waits for a transfer on the host.
  void finish(c10d::Work& work, const std::string& what);
  [[noreturn]] void give_up(const std::string& why);
  void meet(const RankPlace& place, const std::string& address);
  // Whoever holds the store goes last.
  void wait_for_others(const RankPlace& place, double seconds);
  void reduce(at::Tensor& values, c10d::ReduceOp::RedOpType operation, const std::string& what);
  // Tensors of bytes of different lengths.
  std::vector<at::Tensor> gather_bytes(const at::Tensor& bytes, int64_t size, const std::string& what);
  void broadcast(at::Tensor& bytes, const std::string& what);
};

void Ranks::State::give_up(const std::string& why) {
  failed = true;
  TORCH_CHECK(false, why);
}

void Ranks::State::finish(c10d::Work& work, const std::string& what) {
  const RankWatch::Waiting waiting(*watch, what);
  for (;;) {
    try {
      work.wait(std::chrono::milliseconds(200));
      return;
    } catch (const std::exception& error) {
      if (work.isCompleted()) {
        if (work.isSuccess()) return;
        const std::string text = error.what();
        give_up(watch->explain(text.substr(0, text.find('\n'))));
      }
    }
    if (const auto verdict = watch->verdict()) give_up(*verdict);
  }
}

// Every rank writes who it is; then each waits for all.
void Ranks::State::meet(const RankPlace& place, const std::string& address) {
  const auto key = [](int64_t rank) { return "who/" + std::to_string(rank); };
  const auto life = [](int64_t rank) { return "life/" + std::to_string(rank); };
  store->set(life(place.rank), "lives 0 0 0 0");
  store->set(key(place.rank), host_name() + " " + std::to_string(::getpid()) + " " + address);
  const auto deadline = Clock::now() + milliseconds(place.timeout);
  std::string missing;
  for (int64_t rank = 0; rank < place.size; ++rank) {
    while (!store->check({key(rank)}) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!store->check({key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  TORCH_CHECK(missing.empty(), "ranks: rank ", place.rank, " of ", place.size,
              " expected all others to come within ", place.timeout,
              " s (EDGEWISE_RANK_TIMEOUT); missing: ", missing, ". Have they been started, with ",
              place.address, ":", place.port, " as MASTER_ADDR and MASTER_PORT, and have they ended?");
  std::vector<std::string> addresses;
  for (int64_t rank = 0; rank < place.size; ++rank) {
    std::istringstream in(store->get_to_str(key(rank)));
    std::string machine, process, from;
    in >> machine >> process >> from;
    names.push_back("rank " + std::to_string(rank) + " (process " + process + " on " + machine + ")");
    hosts.push_back(machine);
    addresses.push_back(from);
  }
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    TORCH_CHECK(
        hosts[rank] == hosts[0] || std::getenv("GLOO_SOCKET_IFNAME") ||
            (!is_loopback(addresses[rank]) && !is_loopback(addresses[0])),
        "ranks: expected addresses that other machines reach; ", names[0], " has ", addresses[0], " and ",
        names[rank], " has ", addresses[rank],
        ". Set MASTER_ADDR to the address of rank 0's machine in the network, or GLOO_SOCKET_IFNAME to "
        "the name of the network interface");
}

void Ranks::State::wait_for_others(const RankPlace& place, double seconds) {
  const auto deadline = Clock::now() + milliseconds(seconds);
  try {
    if (place.rank != 0) store->add("left", 1);
    while (place.rank == 0 && store->add("left", 0) < place.size - 1 && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } catch (const std::exception&) {  // rank 0 has gone before; there is nobody left to wait
  }
}

void Ranks::State::reduce(at::Tensor& values, c10d::ReduceOp::RedOpType operation, const std::string& what) {
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  std::vector<at::Tensor> tensors{values};
  const auto work = host->allreduce(tensors, options);
  finish(*work, what);
}

std::vector<at::Tensor> Ranks::State::gather_bytes(const at::Tensor& bytes, int64_t size,
                                                   const std::string& what) {
  const auto all = [&](const at::Tensor& mine) {
    std::vector<at::Tensor> in{mine};
    std::vector<std::vector<at::Tensor>> out(1);
    for (int64_t rank = 0; rank < size; ++rank) out[0].push_back(at::empty_like(mine));
    const auto work = host->allgather(out, in);
    finish(*work, what);
    return out[0];
  };
  std::vector<at::Tensor> result;
  int64_t longest = 0;
  std::vector<int64_t> lengths;
  for (const at::Tensor& length : all(at::full({1}, bytes.numel(), at::kLong)))
    lengths.push_back(length.item<int64_t>()), longest = std::max(longest, lengths.back());
  if (longest == 0) return std::vector<at::Tensor>(static_cast<size_t>(size), bytes);
  at::Tensor padded = at::zeros({longest}, at::kByte);
  padded.narrow(0, 0, bytes.numel()).copy_(bytes);
  result = all(padded);
  for (size_t rank = 0; rank < result.size(); ++rank) result[rank] = result[rank].narrow(0, 0, lengths[rank]);
  return result;
}

void Ranks::State::broadcast(at::Tensor& bytes, const std::string& what) {
  if (bytes.numel() == 0) return;
  std::vector<at::Tensor> tensors{bytes};
  const auto work = host->broadcast(tensors);
  finish(*work, what);
}

Ranks::Ranks(const RankPlace& place) : place_(place), state_(std::make_unique<State>()) {
  State& s = *state_;
  quieten_torch();
  s.whole_store = open_store(place);
  const std::string prefix = "edgewise/attempt_" + std::to_string(place.attempt);
  const auto within = [&](const c10::intrusive_ptr<Store>& store, const char* part) {
    return c10::make_intrusive<c10d::PrefixStore>(prefix + part, store);
  };
  s.store = within(s.whole_store, "/ranks");
  const std::string address = own_address_towards(place.address, place.port);
  s.meet(place, address);
  s.watch = std::make_unique<RankWatch>(
      within(s.whole_store->clone(), "/ranks"),
      RankWatchOptions{
          .rank = place.rank, .names = s.names, .timeout = place.timeout, .store_place = store_place(place)});
  try {
    const RankWatch::Waiting waiting(*s.watch, "the first connections");
    s.host = make_gloo(within(s.whole_store, "/gloo"), place.rank, place.size, address);
    s.gradients = make_gloo(within(s.whole_store, "/gradients"), place.rank, place.size, address);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    s.give_up("ranks: expected connections from " + address + " to all other ranks; " +
              s.watch->explain(text.substr(0, text.find('\n'))));
  }
}

Ranks::~Ranks() {
  if (state_->left || !state_->host) return;
  // Threads of a backend that wait for a rank which will not come cannot be joined: they end with the
  // process.
  for (auto* const backend : {&state_->host, &state_->gradients, &state_->device})
    if (*backend) static_cast<void>(backend->release());
}

const std::string& Ranks::name(int64_t rank) const {
  return state_->names.at(static_cast<size_t>(rank));
}

bool Ranks::on_one_host() const {
  return std::ranges::all_of(state_->hosts,
                             [&](const std::string& host) { return host == state_->hosts[0]; });
}

at::Device Ranks::take_device(const std::string& name) {
  const at::Device asked(name);
  if (!asked.is_cuda()) return asked;
  const char* const chosen = std::getenv("EDGEWISE_RANK_BACKEND");
  const std::string choice = chosen && *chosen ? chosen : "nccl";
  TORCH_CHECK_VALUE(choice == "nccl" || choice == "gloo",
                    "ranks: expected EDGEWISE_RANK_BACKEND to be nccl or gloo; got '", choice, "'");
  const auto gpus = static_cast<int64_t>(torch::cuda::device_count());
  TORCH_CHECK_VALUE(gpus > 0, "ranks: expected a GPU for train.device = ", name, " of ", this->name(rank()),
                    "; torch sees none there. Use --set train.device=cpu");
  TORCH_CHECK_VALUE(choice == "gloo" || place_.local_rank < gpus,
                    "ranks: expected a GPU for every rank of a machine; ", this->name(rank()),
                    " has LOCAL_RANK ", place_.local_rank, " and torch sees ", gpus,
                    " GPUs. Start as many ranks a machine as it has GPUs (--nproc-per-node ", gpus,
                    "), or let ranks share GPUs, slowly, with EDGEWISE_RANK_BACKEND=gloo");
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(place_.local_rank % gpus));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  if (choice == "gloo") return device;
  const std::string refusal = nccl_refusal();
  TORCH_CHECK_VALUE(refusal.empty(), "ranks: expected NCCL for gradients on GPUs; ", refusal,
                    ". EDGEWISE_RANK_BACKEND=gloo sends them through the host instead");
  state_->device =
      make_nccl(c10::make_intrusive<c10d::PrefixStore>(
                    "edgewise/attempt_" + std::to_string(place_.attempt) + "/nccl", state_->whole_store),
                place_.rank, place_.size, device);
  return device;
}

std::string Ranks::backend() const {
  return state_->device ? "nccl" : "gloo";
}

void Ranks::sum(at::Tensor& values, const std::string& what) {
  state_->reduce(values, c10d::ReduceOp::SUM, what);
}

void Ranks::largest(at::Tensor& values, const std::string& what) {
  state_->reduce(values, c10d::ReduceOp::MAX, what);
}

at::Tensor Ranks::gather_rows(const at::Tensor& rows, const std::string& what) {
  std::vector<int64_t> shape = rows.sizes().vec();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& bytes : state_->gather_bytes(bytes_of(rows), size(), what)) {
    shape[0] = bytes.numel() == 0 ? 0 : -1;
    parts.push_back(bytes.clone().view(rows.scalar_type()).reshape(shape));
  }
  return at::cat(parts).to(rows.device());
}

std::vector<std::string> Ranks::gather(const std::string& text, const std::string& what) {
  std::vector<std::string> result;
  for (const at::Tensor& bytes : state_->gather_bytes(bytes_of(text), size(), what))
    result.push_back(text_of(bytes));
  return result;
}

std::string Ranks::from_first(const std::string& text, const std::string& what) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  state_->broadcast(length, what);
  at::Tensor bytes = is_first() ? bytes_of(text) : at::empty({length.item<int64_t>()}, at::kByte);
  state_->broadcast(bytes, what);
  return text_of(bytes);
}

std::map<std::string, at::Tensor> Ranks::from_first(const std::map<std::string, at::Tensor>& tensors,
                                                    const std::string& what) {
  std::ostringstream out;
  for (const auto& [name, tensor] : tensors) {
    out << name << ' ' << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const int64_t size : tensor.sizes()) out << ' ' << size;
    out << '\n';
  }
  std::istringstream in(from_first(out.str(), what));
  std::map<std::string, at::Tensor> result;
  std::string name;
  int type = 0;
  int64_t dims = 0;
  while (in >> name >> type >> dims) {
    std::vector<int64_t> sizes(static_cast<size_t>(dims));
    for (int64_t& size : sizes) in >> size;
    result[name] = at::empty(sizes, static_cast<at::ScalarType>(type));
  }
  // Many small tensors in one message; a large one alone.
  constexpr int64_t kMessage = int64_t{64} << 20;
  for (auto next = result.begin(); next != result.end();) {
    std::vector<std::pair<const std::string*, at::Tensor>> message;
    std::vector<at::Tensor> parts;
    for (int64_t bytes = 0; next != result.end() && (bytes == 0 || bytes < kMessage); ++next) {
      message.emplace_back(&next->first, next->second);
      parts.push_back(bytes_of(is_first() ? tensors.at(next->first) : next->second));
      bytes += parts.back().numel();
    }
    at::Tensor all = at::cat(parts);
    state_->broadcast(all, what);
    note();
    int64_t first = 0;
    for (size_t n = 0; n < message.size(); ++n) {
      const int64_t count = parts[n].numel();
      at::Tensor& target = result[*message[n].first];
      if (count > 0)
        target = all.narrow(0, first, count).clone().view(target.scalar_type()).reshape(target.sizes());
      first += count;
    }
  }
  return result;
}

void Ranks::expect_same(const std::string& text, const std::string& what) {
  const std::vector<std::string> all = gather(text, "comparing " + what);
  for (int64_t other = 1; other < size(); ++other) {
    const std::string &theirs = all[static_cast<size_t>(other)], &first = all[0];
    if (theirs == first) continue;
    // Both from the first line that differs.
    std::istringstream a(first), b(theirs);
    std::string x, y;
    while (std::getline(a, x) && std::getline(b, y) && x == y) {
    }
    TORCH_CHECK_VALUE(false, "ranks: expected the same ", what, " on all ranks; ", name(0), " has '", x,
                      "' and ", name(other), " has '", y, "'");
  }
}

std::function<void()> Ranks::begin_sum(const at::Tensor& values, const std::string& what) {
  const bool direct = values.is_cpu() || state_->device;
  const at::Tensor sent = direct ? values : values.cpu();
  std::vector<at::Tensor> tensors{sent};
  const bool on_device = !values.is_cpu() && state_->device;
  const auto work = (on_device ? state_->device : state_->gradients)->allreduce(tensors);
  return [this, work, sent, values, what, on_device] {
    if (on_device)
      work->wait();  // the stream waits, not the host
    else
      state_->finish(*work, what);
    if (!sent.is_same(values)) values.copy_(sent);
  };
}

void Ranks::note() {
  state_->watch->note();
}

std::string Ranks::remember(const std::string& key, const std::string& value) {
  // Of a store that rank 0 holds nothing outlives it, and nothing needs to.
  const auto answer = state_->whole_store->compareSet("edgewise/" + key, std::string(), value);
  return answer;
}

void Ranks::fail(const std::string& why) {
  State& s = *state_;
  s.failed = true;
  if (!s.watch || !s.watch->end(why) || place_.launcher_has_store) return;
  // The store goes with rank 0: whoever has noticed by then can still read whose fault it was.
  s.wait_for_others(place_, RankWatch::silence_of(place_.timeout).count() / 2);
}

void Ranks::leave() {
  State& s = *state_;
  if (s.failed || s.left) return;
  at::Tensor nothing = at::zeros({1});
  sum(nothing, "the end of the run");
  s.watch->end("");
  s.watch.reset();
  if (!place_.launcher_has_store) s.wait_for_others(place_, std::min(place_.timeout, 10.0));
  s.left = true;
}

}  // namespace edgewise::train
