// Arrays as the page reads them: u32 N, N bytes of JSON, then the arrays, each at a multiple of 8 bytes.
//
//   {"meta": ..., "parts": [{"name": "keys", "type": "i32", "count": 3}, ...]}
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::app {

using Json = nlohmann::ordered_json;

class Packed {
 public:
  void add(const char* name, const at::Tensor& tensor);  // nothing for an undefined one
  void add(const char* name, std::span<const uint8_t> bytes);
  std::string finish(Json meta) const;

 private:
  void add_part(const char* name, const char* type, int64_t count, std::string_view bytes);

  Json parts_ = Json::array();
  std::string data_;
};

// As text that no markup can end, whatever bytes the names in it hold.
std::string dump(const Json& json);

}  // namespace edgewise::app
