// EXPECT_ERROR(statement, text): the statement throws a c10::Error whose message contains the text, on one
// line.
#pragma once

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#define EXPECT_ERROR(statement, text)                                          \
  do {                                                                         \
    std::string message_ = "(no error)";                                       \
    try {                                                                      \
      statement;                                                               \
    } catch (const c10::Error& error) {                                        \
      message_ = error.what_without_backtrace();                               \
    }                                                                          \
    EXPECT_THAT(message_, testing::HasSubstr(text));                           \
    EXPECT_EQ(message_.find('\n'), std::string::npos) << "more than one line"; \
  } while (false)
