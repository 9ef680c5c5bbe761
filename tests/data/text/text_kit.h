// What the tests of text share: golden files, random bytes, and the message of an error.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace edgewise::data {

// Written by golden/write_golden.py from the packages that are followed.
inline std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(EDGEWISE_SOURCE_DIR) / "tests/data/text/golden" / name;
}
inline std::string golden_text(const std::string& name) {
  std::ifstream stream(golden_path(name), std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  return {std::istreambuf_iterator<char>(stream), {}};
}
inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(golden_text(name));
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "more than one line: " << message;
    return message;
  }
  return "no error";
}

// Bytes of every sort: letters and blanks most of all, so that words arise; UTF-8, whole and cut; anything.
inline std::string random_text(std::mt19937_64& random, size_t most) {
  static const std::string kParts[] = {"the ",   " edges",   "'s",           "'ll",      "  ",   "\n",
                                       "\t",     "12",       " 7",           "é",        "東",   "😀",
                                       "\xC3",   "\xF0\x9F", "\xED\xA0\x80", "\xC0\xAF", "\xF5", "...",
                                       "<mask>", "@@",       "@@ ",          "</w>",     "\r\n", "\xC2\xA0"};
  std::string text;
  const size_t size = random() % (most + 1);
  while (text.size() < size) {
    switch (random() % 4) {
      case 0:
        text += static_cast<char>(static_cast<uint8_t>(random()));
        break;
      case 1:
        text += kParts[random() % std::size(kParts)];
        break;
      default:
        text += static_cast<char>('a' + random() % 6);
    }
  }
  return text;
}

}  // namespace edgewise::data
