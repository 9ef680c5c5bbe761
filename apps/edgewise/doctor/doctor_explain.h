// edgewise doctor --explain: which kernel a shape takes, why the others do not, and what is predicted of its
// cost.
#pragma once

#include <cstdint>
#include <string>

namespace edgewise::app {

struct ExplainArguments {
  int64_t n = 2048, dim = 32, heads = 2;
  double density = 0.1;
  std::string dtype = "fp32", device = "cpu";
};

int explain(const ExplainArguments& arguments, bool json);

}  // namespace edgewise::app
