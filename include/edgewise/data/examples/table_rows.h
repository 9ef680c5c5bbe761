// Rows of a table that a person wrote, one a line: fields divided by tabs, or objects of JSON. Nothing is
// quoted or escaped in fields. Files may be xz-compressed; they are read as they come, never as a whole.
//
// What is wrong with a file is a std::invalid_argument of one line that names the file and the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

enum class TableForm { kTsv, kJsonLines };

struct TableOptions {
  TableForm form = TableForm::kTsv;
  // What to read of each row: names of the first line, or keys of the objects. Of tab-separated fields a
  // number counts from 1, where no column has that name.
  std::vector<std::string> columns = {};
  bool has_header = true;    // the first line names the columns, of tab-separated fields
  bool any_bytes = false;    // else text that is not UTF-8 is an error
  bool skip_faulty = false;  // rows that cannot be read are left out and counted, instead of an error
};

struct TableRow {
  std::vector<std::string> values;  // as TableOptions::columns
  int64_t line = 0;                 // from 1
};

// Rows that were left out.
struct TableFaults {
  int64_t count = 0;
  std::string first;  // what is wrong with the first of them
};

// The longest line: more is a file whose line ends are lost.
inline constexpr size_t kLongestLine = size_t{8} << 20;

// Calls use(row) for every row. What use() throws as std::invalid_argument is a fault of that row, of which
// it needs to say neither file nor line.
TableFaults each_row(const std::filesystem::path& file, const TableOptions& options,
                     const std::function<void(const TableRow& row)>& use);

// The same for one line of a table, without its end: a text that stands alone is the only value of a row.
// Throws what is wrong with it, without a place.
class RowReader {
 public:
  explicit RowReader(TableOptions options) : options_(std::move(options)) {}
  // The columns' places, from the first line.
  void read_header(std::string_view line);
  // Without a header, or after it.
  void read(std::string_view line, std::vector<std::string>& values);

 private:
  void find_columns(const std::vector<std::string_view>& fields, bool are_names);
  void read_fields(std::string_view line, std::vector<std::string>& values);
  void read_object(std::string_view line, std::vector<std::string>& values) const;

  TableOptions options_;
  std::vector<size_t> places_;  // of the columns among the fields
  size_t fields_ = 0;           // of every row
};

void check_line_length(std::string_view line);

// Throws unless `text` is UTF-8.
void check_utf8(std::string_view text);

}  // namespace edgewise::data
