// JSON is parsed with nlohmann/json and printed by hand: the order of names is the writer's, and each number
// keeps its type (1.0 stays a double).
#include <edgewise/train/metrics.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

#include "io/durable.h"
#include "train/run/metric_lines.h"

namespace edgewise::train {
namespace {

using Json = nlohmann::ordered_json;

std::string print_double(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;  // shortest text that reads back exactly
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string print_string(const std::string& text) {
  // A name or note with stray bytes must not stop a training run.
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct ValuePrinter {
  std::string operator()(double value) const { return print_double(value); }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(const std::string& value) const { return print_string(value); }
  std::string operator()(const std::vector<double>& values) const {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text += ", ";
      text += print_double(values[i]);
    }
    text += "]";
    return text;
  }
};

std::optional<double> parse_special(const std::string& text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<double> parse_double(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return parse_special(json.get_ref<const std::string&>());
  return std::nullopt;
}

std::optional<MetricValue> parse_value(const Json& json) {
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return json.get<double>();
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (const auto number = parse_double(json)) return *number;
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) return std::nullopt;
  std::vector<double> values;
  for (const Json& item : json) {
    const auto number = parse_double(item);
    if (!number) return std::nullopt;
    values.push_back(*number);
  }
  return values;
}

// Nothing if the line is not one JSON object of metric values.
std::optional<MetricRecord> parse_line(std::string_view line) {
  // The parser takes a zero byte (what a power cut leaves in a file) for the end of the text.
  if (line.find('\0') != std::string_view::npos) return std::nullopt;
  // Metrics are flat; refusing deeper nesting while parsing keeps a hostile file from using up memory.
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= 2; };
  const Json json = Json::parse(line.begin(), line.end(), shallow, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  MetricRecord record;
  for (const auto& [name, item] : json.items()) {
    auto value = parse_value(item);
    if (!value) return std::nullopt;
    record.emplace_back(name, std::move(*value));
  }
  return record;
}

struct Line {
  std::string_view text;
  MetricRecord record;
};

// The complete lines of a metrics file. `text` must outlive them.
std::vector<Line> parse_lines(const std::string& file, std::string_view text) {
  std::vector<Line> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    auto record = parse_line(line);
    if (!record && end == std::string_view::npos) break;
    TORCH_CHECK_VALUE(
        record, "read_metrics: '", file, "' line ", number,
        ": expected one JSON object of numbers, texts and lists of numbers; correct or delete the line");
    const auto check_type = [&]<typename T>(const char* name, const char* what, const T*) {
      const MetricValue* const value = find_metric(*record, name);
      TORCH_CHECK_VALUE(!value || std::holds_alternative<T>(*value), "read_metrics: '", file, "' line ",
                        number, ": expected ", what, " as \"", name, "\"; correct or delete the line");
    };
    check_type("kind", "a text", static_cast<const std::string*>(nullptr));
    check_type("step", "a whole number", static_cast<const int64_t*>(nullptr));
    lines.push_back({line, std::move(*record)});
  }
  return lines;
}

// Calls use(line, record) for every line; the record is empty of a line that is not one.
template <typename Use>
void each_line_of(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.empty()) use(line, parse_line(line));
  }
}

// Rewrites the file with its lines up to `last_step`. What is damaged behind them was on its way to the disk
// when the power went, and goes; damage among them is an error.
void keep_lines(const std::filesystem::path& path, int64_t last_step) {
  const std::string text = io::read_file(path);
  std::string kept;
  bool damaged = false;
  each_line_of(text, [&](std::string_view line, const std::optional<MetricRecord>& record) {
    damaged = damaged || !record;
    const MetricValue* step = record ? find_metric(*record, "step") : nullptr;
    const auto* number = step == nullptr ? nullptr : std::get_if<int64_t>(step);
    if (number == nullptr || *number > last_step) return;
    if (damaged) parse_lines(path.string(), text);  // which names the line
    kept += line;
    kept += '\n';
  });
  if (kept != text) io::write_file_atomically(path, kept);
}

// Appending to half a line would make two bad records of one.
void mend_last_line(const std::filesystem::path& path) {
  const std::string text = io::read_file(path);
  if (text.empty() || text.back() == '\n') return;
  const size_t begin = text.rfind('\n') + 1;  // 0 without any
  const bool is_whole = parse_line(std::string_view(text).substr(begin)).has_value();
  io::write_file_atomically(path, is_whole ? text + '\n' : text.substr(0, begin));
}

io::AppendFile open_metrics(const std::filesystem::path& folder) {
  io::create_durable_folders(folder);
  const auto path = folder / "metrics.jsonl";
  if (std::filesystem::exists(path)) mend_last_line(path);
  return io::AppendFile(path);
}

// Records of several kinds share names ("loss"); TensorBoard keeps them apart as "train/loss" and
// "eval/loss".
std::vector<io::TensorBoardWriter::Scalar> as_scalars(const MetricRecord& record) {
  const MetricValue* kind = find_metric(record, "kind");
  const std::string prefix =
      kind && std::holds_alternative<std::string>(*kind) ? std::get<std::string>(*kind) + "/" : "";
  std::vector<io::TensorBoardWriter::Scalar> scalars;
  for (const auto& [name, value] : record) {
    if (name == "step") continue;
    const std::string tag = prefix + name;
    if (const auto* number = std::get_if<double>(&value)) scalars.emplace_back(tag, *number);
    if (const auto* number = std::get_if<int64_t>(&value))
      scalars.emplace_back(tag, static_cast<double>(*number));
    if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
      for (size_t i = 0; i < numbers->size(); ++i) scalars.emplace_back(c10::str(tag, "/", i), (*numbers)[i]);
    }
  }
  return scalars;
}

int64_t checked_step(const MetricRecord& record) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : record) {
    TORCH_CHECK_VALUE(names.insert(name).second, "MetricsWriter::write: '", name,
                      "' appears twice in one record");
  }
  const MetricValue* step = find_metric(record, "step");
  TORCH_CHECK_VALUE(
      step != nullptr && std::holds_alternative<int64_t>(*step),
      "MetricsWriter::write: expected an int64 named 'step' in the record; resuming and plotting need it");
  return std::get<int64_t>(*step);
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& run_folder)
    : file_(open_metrics(run_folder)), tensorboard_(run_folder) {}

void MetricsWriter::write(const MetricRecord& record) {
  const int64_t step = checked_step(record);
  std::string line = to_json_line(record);
  line += '\n';
  file_.append(line);
  tensorboard_.add_scalars(as_scalars(record), step);
}

void MetricsWriter::truncate_after(int64_t step) {
  const std::filesystem::path file = path();
  keep_lines(file, step);
  // The name may now stand for a new file; the old one must not be appended to.
  file_ = io::AppendFile(file);
  tensorboard_.mark_restart(step + 1);
}

std::vector<MetricRecord> parse_metrics(const std::string& text, const std::string& name) {
  std::vector<MetricRecord> records;
  for (Line& line : parse_lines(name, text)) records.push_back(std::move(line.record));
  return records;
}

std::vector<MetricRecord> read_whole_metrics(const std::filesystem::path& path) {
  std::vector<MetricRecord> records;
  each_line_of(io::read_file(path), [&](std::string_view, const std::optional<MetricRecord>& record) {
    if (record) records.push_back(*record);
  });
  return records;
}

std::vector<MetricRecord> read_metrics(const std::filesystem::path& path) {
  return parse_metrics(io::read_file(path), path.string());
}

std::string to_json_line(const MetricRecord& record) {
  std::string text = "{";
  for (const auto& [name, value] : record) {
    if (text.size() > 1) text += ", ";
    text += print_string(name);
    text += ": ";
    text += std::visit(ValuePrinter{}, value);
  }
  text += "}";
  return text;
}

const MetricValue* find_metric(const MetricRecord& record, std::string_view name) {
  const auto it =
      std::find_if(record.begin(), record.end(), [&](const auto& item) { return item.first == name; });
  return it == record.end() ? nullptr : &it->second;
}

}  // namespace edgewise::train
