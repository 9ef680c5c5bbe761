// The fuzz targets without libFuzzer, for the tests: what was found before, the seeds, and mutations of them,
// the same ones every time. An input that crashes is kept in the current folder.
//
//   edgewise_fuzz_replay [--target NAME] [--inputs N] [--seconds S] [--found FOLDER] [--log FILE]
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "fuzz_target.h"

namespace {

using namespace edgewise::fuzz;

constexpr int64_t kMostMemoryMb = 2048;
constexpr unsigned kMostSeconds = 20;  // for one input

std::string current, current_target;

// Only what a signal handler may call.
void keep_input(int signal) {
  const std::string& name = current_target;
  char path[128] = "crash-";
  std::strncat(path, name.c_str(), sizeof path - std::strlen(path) - 1);
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
  constexpr char kText[] = "\nfuzz: the input that did it is in crash-TARGET\n";
  if (::write(2, kText, sizeof kText - 1) < 0) ::_exit(1);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(const std::vector<std::string>& from) {
    std::string bytes = from[below(from.size())];
    for (size_t times = 1 + below(4); times > 0; --times) change(bytes, from);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }

 private:
  static constexpr size_t kLongest = 1 << 16;

  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string& bytes, const std::vector<std::string>& from) {
    static const std::vector<std::string> words = {"0",
                                                   "-1",
                                                   "1e308",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "4294967296",
                                                   "nan",
                                                   "null",
                                                   "[",
                                                   "{",
                                                   "]",
                                                   "\"",
                                                   "\\u0000",
                                                   std::string(1, '\0'),
                                                   "\n",
                                                   "\t",
                                                   "\x7F",
                                                   "\xFF\xFF\xFF\xFF",
                                                   std::string(8, '\0'),
                                                   "\xF4\x8F\xBF\xBF",
                                                   "=====",
                                                   "\r\n"};
    const size_t at = below(bytes.size() + 1),
                 count = below(std::min<size_t>(bytes.size() - std::min(at, bytes.size()), 32) + 1);
    switch (below(9)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, count);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, count));
        break;
      case 4:
        bytes.insert(at, words[below(words.size())]);
        break;
      case 5:
        bytes.replace(at, count, words[below(words.size())]);
        break;
      case 6:
        bytes.resize(at);
        break;
      case 7: {
        const std::string& other = from[below(from.size())];
        bytes.insert(at, other.substr(below(other.size() + 1), below(64)));
        break;
      }
      default: {  // a number, to another
        const size_t digit = bytes.find_first_of("0123456789", at);
        if (digit != std::string::npos) bytes[digit] = static_cast<char>('0' + below(10));
      }
    }
  }

  std::mt19937_64 random_;
};

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    files.push_back(bytes.str());
  }
  return files;
}

}  // namespace

int main(int count, char** words) {
  std::map<std::string, std::string> options = {
      {"--target", ""}, {"--inputs", "1000"}, {"--seconds", "1"}, {"--found", ""}};
  for (int n = 1; n + 1 < count; n += 2) {
    must(options.contains(words[n]), "--target, --inputs, --seconds or --found");
    options[words[n]] = words[n + 1];
  }
  c10::SetStackTraceFetcher(std::function<std::string()>([] { return std::string(); }));
  std::set_terminate([] {
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fuzz: a reader of '%s' ended with something else than a refusal: %.500s\n",
                   current_target.c_str(), error.what());
    } catch (...) {
    }
    std::abort();
  });
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGALRM}) ::signal(signal, keep_input);
  const size_t most = std::stoul(options["--inputs"]);
  const std::chrono::duration<double> patience(std::stod(options["--seconds"]));
  size_t done = 0, targets = 0;
  for (const Target& target : all_targets()) {
    if (!options["--target"].empty() && target.name != options["--target"]) continue;
    ++targets;
    current_target = target.name;
    const auto run = [&](const std::string& input) {
      current = input;
      ::alarm(kMostSeconds);
      target.run(current);
      ::alarm(0);
      ++done;
    };
    std::vector<std::string> seeds = target.seeds();
    for (const std::string& seed : seeds) run(seed);
    if (!options["--found"].empty())
      for (std::string& found : files_in(std::filesystem::path(options["--found"]) / target.name)) run(found);
    Mutator mutator(std::hash<std::string>()(target.name));
    const auto start = std::chrono::steady_clock::now();
    size_t inputs = 0;
    for (; inputs < most && std::chrono::steady_clock::now() - start < patience; ++inputs)
      run(mutator.mutate(seeds));
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    std::cout << target.name << ": " << inputs << " inputs, " << usage.ru_maxrss / 1024
              << " MB at most so far\n";
    must(usage.ru_maxrss / 1024 < kMostMemoryMb, "no more than 2 GB for small inputs");
  }
  must(targets > 0, "a target of that name");
  std::cout << done << " inputs of " << targets << " targets\n";
}
