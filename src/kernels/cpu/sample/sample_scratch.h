// Memory of one thread that samples, reused from one range of rows to the next.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {

class SampleScratch {
 public:
  // Room for open pairs. Nearly all of it is never touched, so it is not filled with zeros.
  void reserve(int64_t pairs) {
    if (pairs <= size_) return;
    size_ = pairs;
    open_ = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(pairs));
    estimates_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(2 * pairs));
    numbers_ = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(pairs));
  }
  OpenPair* open() { return reinterpret_cast<OpenPair*>(open_.get()); }
  OpenEstimate* estimates() { return reinterpret_cast<OpenEstimate*>(estimates_.get()); }
  double* numbers() { return numbers_.get(); }

  // Of the thinning sampler.
  std::vector<ThinRow>& thin_rows() { return thin_rows_; }
  std::vector<double>& points() { return points_; }
  std::vector<uint32_t>& coins() { return coins_; }

 private:
  int64_t size_ = 0;
  std::unique_ptr<uint64_t[]> open_;
  std::unique_ptr<float[]> estimates_;
  std::unique_ptr<double[]> numbers_;
  std::vector<ThinRow> thin_rows_;
  std::vector<double> points_;
  std::vector<uint32_t> coins_;
};

}  // namespace edgewise::kernels::cpu
