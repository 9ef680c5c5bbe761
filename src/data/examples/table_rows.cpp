#include <edgewise/data/examples/table_rows.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "data/text/each_line.h"
#include "data/text/failure.h"
#include "data/text/utf8.h"

namespace edgewise::data {
namespace {

void split_fields(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (size_t begin = 0;;) {
    const size_t end = line.find('\t', begin);
    fields.push_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return;
    begin = end + 1;
  }
}

std::string listed(const std::vector<std::string_view>& names) {
  constexpr size_t kMost = 12;
  std::string text;
  for (size_t n = 0; n < std::min(names.size(), kMost); ++n) text += (n ? ", " : "") + in_quotes(names[n]);
  return names.size() > kMost ? text + ", ..." : text;
}

std::optional<size_t> column_number(const std::string& name) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number == 0) return std::nullopt;
  return number;
}

std::string_view without_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

void check_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value >= kLooseByte) {
      constexpr char kDigits[] = "0123456789ABCDEF";
      const uint32_t byte = point.value - kLooseByte;
      fail("expected text in UTF-8; found the byte 0x", kDigits[byte >> 4], kDigits[byte & 15], " at ",
           at + 1, " of the line, which belongs to no character");
    }
    at += point.length;
  }
}

void RowReader::find_columns(const std::vector<std::string_view>& fields, bool are_names) {
  places_.clear();
  fields_ = fields.size();
  for (const std::string& wanted : options_.columns) {
    const auto found = are_names ? std::ranges::find(fields, wanted) : fields.end();
    const auto number = column_number(wanted);
    if (found != fields.end()) {
      if (std::find(found + 1, fields.end(), wanted) != fields.end())
        fail("expected one column ", in_quotes(wanted), "; found several. Choose it by its number");
      places_.push_back(static_cast<size_t>(found - fields.begin()));
    } else if (number && *number <= fields_) {
      places_.push_back(*number - 1);
    } else if (are_names) {
      fail("expected a column ", in_quotes(wanted), "; the first line names ", listed(fields));
    } else {
      fail("expected the column ", in_quotes(wanted), " as a number from 1 to ", fields_,
           ", as no line names the columns");
    }
  }
}

void RowReader::read_header(std::string_view line) {
  std::vector<std::string_view> fields;
  split_fields(line, fields);
  find_columns(fields, /*are_names=*/true);
}

void check_line_length(std::string_view line) {
  if (line.size() > kLongestLine)
    fail("expected lines of at most ", kLongestLine, " bytes; this one is longer. Are its line ends lost?");
}

void RowReader::read(std::string_view line, std::vector<std::string>& values) {
  if (line.empty()) fail("expected a row; found an empty line");
  if (!options_.any_bytes) check_utf8(line);
  if (options_.form == TableForm::kJsonLines)
    read_object(line, values);
  else
    read_fields(line, values);
}

void RowReader::read_fields(std::string_view line, std::vector<std::string>& values) {
  std::vector<std::string_view> fields;
  split_fields(line, fields);
  if (places_.empty()) find_columns(fields, /*are_names=*/false);
  if (fields.size() != fields_)
    fail("expected ", fields_, " fields, as the first line has; found ", fields.size(), " in ",
         in_quotes(line));
  values.resize(places_.size());
  for (size_t n = 0; n < places_.size(); ++n) values[n].assign(fields[places_[n]]);
}

void RowReader::read_object(std::string_view line, std::vector<std::string>& values) const {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail("expected an object of JSON; found ", in_quotes(line));
  values.resize(options_.columns.size());
  for (size_t n = 0; n < values.size(); ++n) {
    const std::string& key = options_.columns[n];
    const auto found = object.find(key);
    if (found == object.end()) {
      std::vector<std::string_view> keys;
      for (auto item = object.begin(); item != object.end(); ++item) keys.push_back(item.key());
      fail("expected the key ", in_quotes(key), "; the object has ", keys.empty() ? "none" : listed(keys));
    }
    if (found->is_string())
      values[n] = found->get<std::string>();
    else if (found->is_number() || found->is_boolean())
      values[n] = found->dump();
    else
      fail("expected a text or a number as ", in_quotes(key), "; found ", in_quotes(found->dump()));
  }
}

TableFaults each_row(const std::filesystem::path& file, const TableOptions& options,
                     const std::function<void(const TableRow& row)>& use) {
  TableFaults faults;
  TableRow row;
  RowReader reader(options);
  bool needs_header = options.form == TableForm::kTsv && options.has_header;
  int64_t first_empty = 0;  // of the empty lines just before; at the end of a file they mean nothing
  const auto place = [&](int64_t line) { return file.string() + ":" + std::to_string(line) + ": "; };
  const auto fault = [&](int64_t line, const std::string& what) {
    if (!options.skip_faulty) fail(place(line), what);
    if (faults.count++ == 0) faults.first = place(line) + what;
  };
  const auto take = [&](std::string_view whole) {
    ++row.line;
    std::string_view line = without_end(whole);
    try {
      check_line_length(line);  // before a fault may be skipped: what is cut has no rows
    } catch (const std::invalid_argument& error) {
      fail(place(row.line), error.what());
    }
    if (row.line == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte order mark
    if (needs_header) {
      try {
        if (!options.any_bytes) check_utf8(line);
        reader.read_header(line);
      } catch (const std::invalid_argument& error) {
        fail(place(row.line), error.what());
      }
      needs_header = false;
      return;
    }
    if (line.empty()) {
      if (first_empty == 0) first_empty = row.line;
      return;
    }
    if (first_empty != 0) fault(std::exchange(first_empty, 0), "expected a row; found an empty line");
    try {
      reader.read(line, row.values);
      use(row);
    } catch (const std::invalid_argument& error) {
      fault(row.line, error.what());
    }
  };
  each_line(file, take, kLongestLine + 1);
  if (needs_header) fail(file.string(), ": expected a first line that names the columns; the file is empty");
  return faults;
}

}  // namespace edgewise::data
