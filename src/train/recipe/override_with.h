// Options from a recipe: what is set there replaces the default.
#pragma once

#include <optional>
#include <string>

namespace edgewise::train {

template <typename Value>
void override_with(Value& value, const std::optional<Value>& other) {
  if (other) value = *other;
}

template <typename Value, typename Parse>
void override_with(Value& value, const std::optional<std::string>& name, Parse parse) {
  if (name) value = parse(*name);
}

}  // namespace edgewise::train
