// Under libFuzzer: edgewise_fuzz --target=NAME [its options]; --list names the targets, --seeds=FOLDER writes
// the seeds.
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "fuzz_target.h"

namespace {

edgewise::fuzz::Target chosen;

std::string option(int count, char** words, const std::string& name) {
  for (int n = 1; n < count; ++n)
    if (const std::string word = words[n]; word.starts_with(name)) return word.substr(name.size());
  return {};
}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  size_t number = 0;
  for (const std::string& seed : chosen.seeds())
    std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  // Refusals by the million: where each came from is not looked up.
  c10::SetStackTraceFetcher(std::function<std::string()>([] { return std::string(); }));
  const std::string wanted = option(*count, *words, "--target=");
  for (edgewise::fuzz::Target& target : edgewise::fuzz::all_targets()) {
    if (wanted.empty()) std::printf("%s\t%s\n", target.name.c_str(), target.what.c_str());
    if (target.name == wanted) chosen = std::move(target);
  }
  if (wanted.empty()) std::exit(0);
  edgewise::fuzz::must(chosen.run != nullptr, "--target=NAME, one of --list");
  if (const std::string folder = option(*count, *words, "--seeds="); !folder.empty()) {
    write_seeds(folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  chosen.run({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
