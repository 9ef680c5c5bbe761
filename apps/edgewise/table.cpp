#include "table.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ostream>

namespace edgewise::app {
namespace {

// Columns a terminal needs for UTF-8 text: one per code point (enough for what we print).
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-' || text[0] == '<');
}

}  // namespace

namespace {

// Columns of which every cell that has something has a number.
std::vector<bool> numeric_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<bool> numeric(rows[0].size(), true);
  for (size_t r = 1; r < rows.size(); ++r)
    for (size_t c = 0; c < rows[r].size(); ++c)
      if (!rows[r][c].empty() && !is_number(rows[r][c])) numeric[c] = false;
  return numeric;
}

}  // namespace

Table::Table(std::vector<std::string> header) : rows_{std::move(header)} {}

void Table::add(std::vector<std::string> row) {
  row.resize(rows_[0].size());
  rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out) const {
  std::vector<size_t> widths(rows_[0].size());
  const std::vector<bool> numeric = numeric_columns(rows_);
  for (const std::vector<std::string>& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      const std::string padding(widths[c] - width_of(rows_[r][c]), ' ');
      const bool last = c + 1 == rows_[r].size();
      if (numeric[c])
        out << padding << rows_[r][c];
      else
        out << rows_[r][c] << (last ? "" : padding);
      out << (last ? "\n" : "  ");
    }
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      out << std::string(widths[c], '-') << (c + 1 == widths.size() ? "\n" : "  ");
  }
}

void Table::print_markdown(std::ostream& out) const {
  const std::vector<bool> numeric = numeric_columns(rows_);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (const std::string& cell : rows_[r]) out << "| " << cell << (cell.empty() ? "" : " ");
    out << "|\n";
    if (r > 0) continue;
    for (const bool right : numeric) out << (right ? "| ---: " : "| --- ");
    out << "|\n";
  }
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string percent(double share, int digits) {
  return fixed(share * 100, digits) + " %";
}

std::string bytes(double count) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (count >= 1024 && unit < 4) {
    count /= 1024;
    ++unit;
  }
  return fixed(count, unit == 0 ? 0 : 1) + " " + units[unit];
}

std::string counted(int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string shown(const tasks::Metric& metric, double value) {
  return metric.is_share ? percent(value) : fixed(value, 4);
}

}  // namespace edgewise::app
