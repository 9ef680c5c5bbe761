#include "fuzz_target.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace edgewise::fuzz {
namespace {

struct ScratchFolder {
  std::filesystem::path path;
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    std::string name =
        ((std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
         "edgewise-fuzz-XXXXXX")
            .string();
    must(::mkdtemp(name.data()) != nullptr, "a scratch folder");
    path = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

constexpr size_t kLongestMessage = 4096;

void check_message(const std::string& message) {
  if (message.find(' ') != std::string::npos && message.size() <= kLongestMessage) return;
  std::fprintf(stderr, "fuzz: expected a sentence of at most %zu bytes; found %zu: %.200s\n", kLongestMessage,
               message.size(), message.c_str());
  std::abort();
}

}  // namespace

const std::filesystem::path& scratch() {
  static const ScratchFolder folder;
  return folder.path;
}

std::filesystem::path write_scratch(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = scratch() / name;
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  must(file != nullptr, "a file in the scratch folder");
  must(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fclose(file) == 0,
       "room for it");
  return path;
}

std::string read_scratch(const std::string& name) {
  std::ifstream file(scratch() / name, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<std::string_view> parts_of(std::string_view input, size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const size_t at = input.find(kPartMark);
    parts.push_back(input.substr(0, at));
    input = at == std::string_view::npos ? std::string_view() : input.substr(at + kPartMark.size());
  }
  parts.push_back(input);
  return parts;
}

std::string join_parts(const std::vector<std::string>& parts) {
  std::string whole;
  for (size_t n = 0; n < parts.size(); ++n) whole.append(n ? kPartMark : "").append(parts[n]);
  return whole;
}

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: expected %s\n", what);
  std::abort();
}

void refuses_or_reads(const std::function<void()>& read) {
  try {
    read();
  } catch (const c10::ValueError& error) {
    check_message(error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    check_message(error.what_without_backtrace());
  } catch (const std::invalid_argument& error) {
    check_message(error.what());
  } catch (const std::system_error& error) {
    check_message(error.what());
  }
}

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (auto* const some : {file_targets, run_targets, text_targets, tokenizer_targets, graph_targets,
                           picture_targets, explorer_targets})
    for (Target& target : some()) all.push_back(std::move(target));
  return all;
}

}  // namespace edgewise::fuzz
