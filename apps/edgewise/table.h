// Tables for people: columns aligned, numbers to the right.
#pragma once

#include <edgewise/tasks/metric.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace edgewise::app {

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add(std::vector<std::string> row);
  void print(std::ostream& out) const;
  void print_markdown(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

std::string fixed(double value, int digits);                   // "12.35"
std::string percent(double share, int digits = 2);             // 0.1234 -> "12.34 %"
std::string bytes(double count);                               // "1.5 GiB"
std::string counted(int64_t count, const std::string& thing);  // "1 layer", "2 layers"

// A figure of a task's metric: a share in percent, or the number.
std::string shown(const tasks::Metric& metric, double value);

}  // namespace edgewise::app
