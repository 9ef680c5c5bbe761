// Is one row better than another? Compared seed by seed: runs of one seed share the order of batches, the
// test set, and the initial weights of what they have in common. The mean of n differences d has the standard
// error s(d) / sqrt(n); p is Student's, two-sided, with n - 1 degrees of freedom.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/lra_rows.h"

namespace edgewise::app {

struct LraDifference {
  const LraRow* row = nullptr;
  const LraRow* against = nullptr;
  std::string question;              // "than dense", "than random of its density"
  size_t seeds = 0;                  // that both have
  double mean = 0;                   // points of accuracy
  std::optional<double> error = {};  // none of a single seed
  std::optional<double> p = {};

  // "above", "below", "level", or "not known" of fewer than three seeds.
  std::string verdict() const;
};

LraDifference difference_of(const LraRow& row, const LraRow& against, const std::string& question);

// Of every row that learns its edges: against dense attention, against random edges of the nearest density,
// of ours also against `published`, of squares against single edges. Rows of one protocol only, and densities
// within a factor of two.
std::vector<LraDifference> lra_differences(const std::vector<LraRow>& rows, size_t task);

}  // namespace edgewise::app
