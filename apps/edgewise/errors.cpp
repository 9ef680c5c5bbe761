#include "errors.h"

#include <algorithm>
#include <cstdlib>

#include "table.h"

namespace edgewise::app {
namespace {

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

std::string after(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  return at == std::string::npos ? "" : text.substr(at + part.size());
}

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string what_to_lower(const std::string& command) {
  if (command == "bench" || command == "doctor") return "--n, --heads or --dim";
  if (command == "train" || command == "eval" || command == "cost")
    return "train.micro_batch, train.batch or the length of the sequences (--set train.micro_batch=...)";
  return "the sizes that were asked for";
}

constexpr const char* kLower = ". Lower ";

// What could not be had; empty when the message is about something else.
std::string lack_of_memory(const std::string& message) {
  if (has(message, "DefaultCPUAllocator")) {
    const std::string count = after(message, "you tried to allocate ");
    return "not enough memory: " + (count.empty() ? "a tensor" : bytes(std::atof(count.c_str()))) +
           " could not be had";
  }
  if (has(message, "Storage size calculation overflowed"))
    return "a tensor would have more bytes than can be counted";
  if (message == "std::bad_alloc" || message == "vector::_M_default_append" ||
      message == "cannot create std::vector larger than max_size()")
    return "not enough memory: a list, of unknown size, could not be had";
  return {};
}

// A device that torch does not know, of which it lists its own twenty. Recipes are checked when they are
// read, so it comes from an option.
std::string unknown_device(const std::string& message) {
  const std::string name = after(message, "device type at start of device string: ");
  return name.empty() ? "" : "expected the device cpu or cuda; got '" + name + "'";
}

}  // namespace

Explained explain_error(std::string message, const std::string& command) {
  message = one_line(std::move(message));
  if (const std::string device = unknown_device(message); !device.empty()) return {device, 2};
  if (message.starts_with("--set ")) return {message, 2};  // a recipe's key or value, from the command line
  const std::string lack = lack_of_memory(message);
  // The message of a child process has been explained there.
  if (lack.empty() || has(message, kLower)) return {message, 1};
  return {lack + kLower + what_to_lower(command) + ". (" + message + ")", 1};
}

}  // namespace edgewise::app
