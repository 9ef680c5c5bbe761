// What the tests of texts share: the message of an error, on one line.
#pragma once

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace edgewise::data {

template <typename Call>
std::string complaint(Call call) {
  std::string message = "(no error)";
  try {
    call();
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << "more than one line";
  return message;
}

}  // namespace edgewise::data
