// A reader under fuzzing: bytes in, and nothing but an orderly refusal may come out.
//
// What several files are read together is one input, its parts divided by kPartMark. The same targets run
// under libFuzzer (libfuzzer_main.cpp) and, with mutations of their own, in the tests (replay_main.cpp).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::fuzz {

struct Target {
  std::string name;
  std::string what;                                 // one line
  std::function<std::vector<std::string>()> seeds;  // small valid inputs
  std::function<void(std::string_view)> run;
};

std::vector<Target> file_targets();  // safetensors and what is made of them
std::vector<Target> run_targets();   // recipes, metrics, run folders, sweeps
std::vector<Target> text_targets();  // tables, texts, ListOps
std::vector<Target> tokenizer_targets();
std::vector<Target> graph_targets();
std::vector<Target> picture_targets();  // PNG, xz, npy, pickles
std::vector<Target> explorer_targets();
std::vector<Target> all_targets();

inline constexpr std::string_view kPartMark = "\n=====\n";
// Exactly `count` parts; those that are missing are empty.
std::vector<std::string_view> parts_of(std::string_view input, size_t count);
std::string join_parts(const std::vector<std::string>& parts);

// A folder in memory of this process, gone at its end.
const std::filesystem::path& scratch();
// A file there with these bytes.
std::filesystem::path write_scratch(const std::string& name, std::string_view bytes);
std::string read_scratch(const std::string& name);

// Calls a reader. A refusal is c10::ValueError, c10::IndexError, std::invalid_argument or std::system_error
// with a sentence of bounded length; everything else is a finding and passes on.
void refuses_or_reads(const std::function<void()>& read);
// Ends the process, with what was expected, where something does not hold.
void must(bool holds, const char* what);

}  // namespace edgewise::fuzz
