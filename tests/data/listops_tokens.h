// listops("[MIN 2 9 X"): tokens from their names, for tests.
#pragma once

#include <edgewise/data/listops.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgewise::data {

inline std::vector<uint8_t> listops(const std::string& names) {
  std::istringstream words(names);
  std::vector<uint8_t> tokens;
  for (std::string word; words >> word;) {
    uint8_t token = 1;
    while (token < kListOpsTokens && listops_token_name(token) != word) ++token;
    if (token == kListOpsTokens) throw std::invalid_argument(word);
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace edgewise::data
