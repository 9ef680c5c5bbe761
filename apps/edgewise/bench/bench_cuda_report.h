// What `bench cuda` found: a table, JSON lines, pictures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "table.h"

namespace edgewise::app {

struct CudaRow {
  std::string name;
  int64_t n = 0, dim = 0, clusters = 0;  // clusters: 0 = nobody learns
  double density = 0, ms = 0, dense_ms = 0;
  std::string dtype = "bf16";
  bool graph = false;  // both replayed as CUDA graphs
};

// What a training step holds at its peak, ours and the published path's, beyond its inputs.
struct MemoryRow {
  int64_t n = 0, dim = 0, clusters = 0;
  double density = 0, bytes = 0, published_bytes = 0;
};

class CudaReport {
 public:
  explicit CudaReport(bool json);

  void add(CudaRow row);               // as a JSON line at once
  void read(const std::string& path);  // lines that add() wrote; lines of other cases are left out
  void add_memory(const MemoryRow& row);
  void print() const;  // the table, unless the lines were JSON
  // Time over dense attention, over the density at one length and over the length at the largest and the
  // smallest density: the smallest head dim, the largest number of clusters.
  void plot(const std::string& path) const;

 private:
  bool json_;
  Table table_;
  std::vector<std::string> memory_;  // sentences
  std::vector<CudaRow> rows_;
};

}  // namespace edgewise::app
