// The message of the c10::Error that a call throws.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace edgewise::kit {

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

}  // namespace edgewise::kit
