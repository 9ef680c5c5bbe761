#include "data/text/each_line.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "data/readers/compressed.h"
#include "data/text/failure.h"
#include "io/file_error.h"

namespace edgewise::data {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

// Calls use for the whole lines of `text`; returns where the rest begins.
size_t whole_lines(std::string_view text, const std::function<void(std::string_view)>& use) {
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    use(text.substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  return begin;
}

}  // namespace

int64_t each_line(const std::filesystem::path& file, const std::function<void(std::string_view line)>& use,
                  size_t limit) {
  const auto found = find_plain_or_xz(file);
  if (!found) fail("expected a text file at ", file.string(), " (or ", file.string(), ".xz); there is none");
  if (std::filesystem::is_directory(*found)) fail("expected a text file; ", found->string(), " is a folder");
  if (found->extension() == ".xz") {
    const std::vector<uint8_t> bytes = read_plain_or_xz(*found);
    const std::string_view text = as_text(bytes);
    if (const size_t rest = whole_lines(text, use); rest < text.size()) use(text.substr(rest));
    return static_cast<int64_t>(bytes.size());
  }
  std::ifstream stream(*found, std::ios::binary);
  if (!stream) io::throw_file_error(errno, "", "cannot read", *found);
  int64_t bytes = 0;
  std::string text;  // the lines that are not done yet: of one block, or one long line
  std::string block(kBlock, '\0');
  for (;;) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto got = static_cast<size_t>(stream.gcount());
    if (stream.bad()) io::throw_file_error(errno, "", "cannot read", *found);
    if (got == 0) break;
    bytes += static_cast<int64_t>(got);
    const std::string_view fresh(block.data(), got);
    const size_t last = fresh.rfind('\n');
    if (last == std::string_view::npos) {  // a long line is looked through once only
      text += fresh;
      if (limit > 0 && text.size() > limit) use(std::exchange(text, {}));
      continue;
    }
    text += fresh.substr(0, last + 1);
    whole_lines(text, use);
    text.assign(fresh.substr(last + 1));
  }
  if (!text.empty()) use(text);
  return bytes;
}

}  // namespace edgewise::data
