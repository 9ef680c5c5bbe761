// Runs of tiny recipes by several ranks, and what is compared of them.
#pragma once

#include <gtest/gtest.h>

#include <edgewise/train/metrics.h>

#include <cmath>
#include <string>
#include <vector>

#include "distributed/rank_processes.h"

namespace edgewise::distributed {

// `name`.toml in the scratch folder.
inline std::string write_recipe(const kit::ScratchFolder& scratch, const std::string& name,
                                const std::string& attention, const std::string& train) {
  return scratch.write(name + ".toml", R"([data]
name = "repeated_tokens"
length = 12
train_size = 256
validation_size = 20
test_size = 20
[model]
layers = 2
dim = 16
heads = 2
hidden = 32
)" + attention + R"([train]
steps = 12
batch = 8
micro_batch = 2
warmup_steps = 4
learning_rate = 2e-3
grad_clip = 1.0
eval_every = 6
checkpoint_every = 6
log_every = 1
seed = 5
threads = 1
)" + train);
}

// By `ranks` processes; 0: by one that knows nothing of ranks.
inline std::string train(const kit::ScratchFolder& scratch, int ranks, std::vector<std::string> arguments,
                         const std::string& folder) {
  arguments.insert(arguments.begin(), "train");
  arguments.insert(arguments.end(), {"--run", scratch.file(folder), "--quiet"});
  Variables none;
  if (ranks == 0)
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
      none.emplace_back(name, "");
  RankProcesses processes(scratch, std::max(ranks, 1), arguments, none);
  for (const Ended& ended : processes.wait_all(120))
    EXPECT_EQ(ended.status, 0) << ranks << " ranks, " << folder << ": " << ended.err;
  return scratch.file(folder);
}

inline double number(const edgewise::train::MetricRecord& record, const char* name) {
  const auto* const value = edgewise::train::find_metric(record, name);
  if (!value) return std::nan("");
  if (const auto* const whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  return std::get<double>(*value);
}

// Training, validation and test of two runs: numbers agree up to the rounding of sums in fp32, which grows
// with the steps. At the first step, before anything has been rounded otherwise, the edges are the same.
inline void expect_same_training(const std::string& one, const std::string& other, double tolerance) {
  const auto a = edgewise::train::read_metrics(one + "/metrics.jsonl"),
             b = edgewise::train::read_metrics(other + "/metrics.jsonl");
  ASSERT_EQ(a.size(), b.size());
  ASSERT_GT(a.size(), 0u);
  for (size_t n = 0; n < a.size(); ++n) {
    const std::string where = other + ", record " + std::to_string(n);
    for (const auto& [name, value] : a[n]) {
      if (name.starts_with("time_") || name.starts_with("memory_")) continue;
      const auto* const found = edgewise::train::find_metric(b[n], name);
      ASSERT_NE(found, nullptr) << where << " has no " << name;
      if (name == "edges" && n == 0) {
        EXPECT_EQ(*found, value) << where;
      }
      if (name == "density" && n == 0) {
        const auto &x = std::get<std::vector<double>>(value), &y = std::get<std::vector<double>>(*found);
        for (size_t head = 0; head < x.size(); ++head) EXPECT_NEAR(x[head], y[head], 1e-12) << where;
      }
      if (name.find("loss") != std::string::npos || name.starts_with("policy_") ||
          name.starts_with("reward")) {
        EXPECT_NEAR(number(a[n], name.c_str()), number(b[n], name.c_str()),
                    tolerance * std::max(1.0, std::abs(number(a[n], name.c_str()))))
            << where << ", " << name;
      }
    }
  }
}

}  // namespace edgewise::distributed
