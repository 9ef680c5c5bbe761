// Metrics of a run: metrics.jsonl in the run folder, one JSON object per line, mirrored to TensorBoard.
//
// A record is on its way to the disk before write() returns. Doubles are printed so that they read back
// exactly; JSON has no NaN or infinity, so these are written as the strings "nan", "inf" and "-inf" and read
// back as doubles.
#pragma once

#include <edgewise/io/append_file.h>
#include <edgewise/io/tensorboard.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace edgewise::train {

using MetricValue = std::variant<double, int64_t, std::string, std::vector<double>>;
using MetricRecord =
    std::vector<std::pair<std::string, MetricValue>>;  // in order; every record has an int64 "step"

class MetricsWriter {
 public:
  // Creates the folder if needed. metrics.jsonl is continued if it is there; a last line that a kill tore is
  // dropped.
  explicit MetricsWriter(const std::filesystem::path& run_folder);

  // Numbers become TensorBoard scalars of the same name (KIND/name in a record with a "kind"), vectors
  // name/0, name/1, ...; strings go to the file only. Throws c10::ValueError if "step" is missing or a name
  // appears twice, std::system_error if the disk is full.
  void write(const MetricRecord& record);

  // For resuming: drops the records of later steps, here and in TensorBoard. The file is replaced atomically.
  void truncate_after(int64_t step);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  io::AppendFile file_;
  io::TensorBoardWriter tensorboard_;
};

// All records, in order. A last line without its newline counts if it is complete and is ignored if not; any
// other malformed line throws c10::ValueError that names file and line.
std::vector<MetricRecord> read_metrics(const std::filesystem::path& path);

std::string to_json_line(const MetricRecord& record);  // without the newline

// The value of that name, or nullptr.
const MetricValue* find_metric(const MetricRecord& record, std::string_view name);

}  // namespace edgewise::train
