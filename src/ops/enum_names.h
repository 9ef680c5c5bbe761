// One table per enum serves both directions; an unknown name lists the known ones.
#pragma once

#include <c10/util/Exception.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace edgewise {

template <typename Enum, size_t N>
struct EnumNames {
  const char* what;
  std::array<std::pair<std::string_view, Enum>, N> entries;

  Enum parse(std::string_view name) const {
    std::string known;
    for (const auto& [text, value] : entries) {
      if (text == name) return value;
      known += (known.empty() ? "" : ", ") + std::string(text);
    }
    TORCH_CHECK_VALUE(false, what, ": expected one of ", known, "; got '", name, "'");
  }
  std::string_view name(Enum wanted) const {
    for (const auto& [text, value] : entries)
      if (value == wanted) return text;
    TORCH_INTERNAL_ASSERT(false, what, " has no name for ", static_cast<int>(wanted));
  }
};

}  // namespace edgewise
