// The lines of metrics.jsonl where they are not a file of their own.
#pragma once

#include <edgewise/train/metrics.h>

namespace edgewise::train {

// As read_metrics() of a file with this text; `name` stands for the file in messages.
std::vector<MetricRecord> parse_metrics(const std::string& text, const std::string& name);

// Those of the lines that are whole: what was written last before a power cut may be damaged.
std::vector<MetricRecord> read_whole_metrics(const std::filesystem::path& path);

}  // namespace edgewise::train
