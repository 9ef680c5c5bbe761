// What a run recorded, without what differs from one machine or moment to the next.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <edgewise/train/metrics.h>

namespace edgewise::kit {

// The lines of metrics.jsonl in a run folder, without times and memory.
inline std::string recorded_without_timings(const std::filesystem::path& folder) {
  std::string all;
  for (train::MetricRecord& record : train::read_metrics(folder / "metrics.jsonl")) {
    std::erase_if(record, [](const auto& field) {
      return field.first.starts_with("time_") || field.first.starts_with("memory_");
    });
    all += train::to_json_line(record) + "\n";
  }
  return all;
}

}  // namespace edgewise::kit
