#include "doctor/doctor_distributed.h"

#include <edgewise/io/environment.h>
#include <edgewise/ops/cpu_level.h>
#include <edgewise/train/ranks.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <iostream>
#include <sstream>
#include <vector>

#include "table.h"

namespace edgewise::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What all ranks must have alike, a line each.
std::string described() {
  const io::Environment found = io::describe_environment();
  return "edgewise " + found.edgewise_version + " (" + found.git_commit + ")\ntorch " + found.torch_version +
         "\nCPU level " + cpu_level() + "\n";
}

int tell_alone() {
  Table table({"what", "found"});
  table.add({"processes", "this one alone: RANK and WORLD_SIZE are not set"});
  table.add({"on one machine", "torchrun --nproc-per-node N --no-python -- edgewise doctor --distributed"});
  table.add({"on several", "the same with --nnodes, --node-rank, --master-addr and --master-port"});
  table.print(std::cout);
  return 0;
}

// Sums that every rank can foretell; the time of one is that of the slowest rank.
struct Sums {
  bool right = true;
  double small_ms = 0, large_seconds = 0, large_bytes = 0;
};

Sums add_up(train::Ranks& ranks, at::Device device) {
  Sums result;
  const double size = static_cast<double>(ranks.size());
  const double expected = size * (size + 1) / 2, mine = static_cast<double>(ranks.rank() + 1);
  constexpr int kTimes = 50, kLargeTimes = 4;
  at::Tensor number = at::full({1}, mine, at::kDouble);
  ranks.sum(number, "a sum");
  result.right = number.item<double>() == expected;
  const auto start = Clock::now();
  for (int n = 0; n < kTimes; ++n) ranks.sum(number, "a sum");
  result.small_ms = seconds_since(start) / kTimes * 1e3;
  const at::Tensor bucket = at::full({(25 << 20) / 4}, mine, at::TensorOptions(at::kFloat).device(device));
  ranks.begin_sum(bucket, "a sum of 25 MiB")();
  result.right =
      result.right && bucket.min().item<double>() == expected && bucket.max().item<double>() == expected;
  result.large_bytes = static_cast<double>(bucket.nbytes());
  const auto large = Clock::now();
  for (int n = 0; n < kLargeTimes; ++n) ranks.begin_sum(bucket.fill_(1), "a sum of 25 MiB")();
  bucket.max().item<float>();  // done, on a GPU too
  result.large_seconds = seconds_since(large) / kLargeTimes;
  return result;
}

int check(train::Ranks& ranks, const std::string& device_name) {
  const at::Device device = ranks.take_device(device_name);
  const std::vector<std::string> all = ranks.gather(described(), "comparing the ranks");
  const Sums sums = add_up(ranks, device);
  at::Tensor wrong = at::full({1}, sums.right ? 0.0 : 1.0, at::kDouble);
  ranks.sum(wrong, "the end of the check");
  Table table({"what", "found"});
  table.add({"ranks", std::to_string(ranks.size()) +
                          (ranks.on_one_host() ? " on one machine" : " on several machines")});
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    std::string line = all[static_cast<size_t>(rank)];
    for (size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n'))
      line.replace(at, 1, at + 1 < line.size() ? ", " : "");
    table.add({ranks.name(rank), line});
  }
  bool same = true;
  for (const std::string& each : all) same = same && each == all[0];
  table.add({"alike", same ? "yes"
                           : "NO: give all ranks the same edgewise and torch; on CPUs of different kinds set "
                             "EDGEWISE_CPU_LEVEL to the least"});
  table.add({"store", ranks.place().address + ":" + std::to_string(ranks.place().port) + ", held by " +
                          (ranks.place().launcher_has_store ? "torchrun" : "rank 0")});
  table.add({"sums",
             wrong.item<double>() == 0 ? "right on all ranks" : "WRONG on some rank: the backend is broken"});
  table.add({"a small sum", fixed(sums.small_ms, 2) + " ms by gloo"});
  table.add({"25 MiB of gradients", fixed(sums.large_seconds * 1e3, 1) + " ms by " + ranks.backend() + ", " +
                                        fixed(sums.large_bytes / sums.large_seconds / 1e9, 2) + " GB/s"});
  table.add({"a rank without a sign of life", "ends the others after " + fixed(ranks.place().timeout, 0) +
                                                  " s at most (EDGEWISE_RANK_TIMEOUT)"});
  if (ranks.is_first()) table.print(std::cout);
  return same && wrong.item<double>() == 0 ? 0 : 1;
}

}  // namespace

int check_distributed(const std::string& device) {
  const auto place = train::rank_place();
  if (!place) return tell_alone();
  train::Ranks ranks(*place);
  try {
    const int status = check(ranks, device);
    ranks.leave();
    return status;
  } catch (const c10::Error& error) {
    ranks.fail(error.what_without_backtrace());
    throw;
  }
}

}  // namespace edgewise::app
