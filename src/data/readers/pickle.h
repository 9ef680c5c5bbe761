// A reader of Python pickles that hold data only: None, numbers, strings, bytes, lists, tuples, dicts and
// numpy arrays. Nothing is ever called: an object of any other kind is an error, so that a file from
// elsewhere can do no harm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace edgewise::data {

struct PickleValue;
using PicklePtr = std::shared_ptr<PickleValue>;

enum class PickleKind { kNone, kNumber, kText, kList, kTuple, kDict, kGlobal, kArray, kOther };

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int64_t number = 0;  // kNumber (True and False are 1 and 0)
  std::string text;    // kText: strings and bytes alike; kGlobal: "module name"; kArray: the elements
  std::vector<PicklePtr> items;  // kList, kTuple; kDict: key, value, key, value ...
  std::vector<int64_t> shape;    // kArray
  std::string dtype;             // kArray: "u1", "i8", "f4"

  const PickleValue* find(const std::string& key) const;  // kDict: the value of a string key, or null
};

// `name` stands for the file in messages.
PicklePtr read_pickle(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace edgewise::data
