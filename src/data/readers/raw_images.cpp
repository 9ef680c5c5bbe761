#include "data/readers/raw_images.h"

#include <charconv>
#include <string>

#include <c10/util/Exception.h>

#include "data/readers/compressed.h"

namespace edgewise::data {

namespace {

// N of images-Nx32x32.u8 or images-Nx32x32.u8.xz.
std::optional<int64_t> count_in_name(std::string name) {
  if (name.ends_with(".xz")) name.resize(name.size() - 3);
  constexpr std::string_view kBefore = "images-", kAfter = "x32x32.u8";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return std::nullopt;
  int64_t count = 0;
  const char *first = name.data() + kBefore.size(), *last = name.data() + name.size() - kAfter.size();
  const auto [end, error] = std::from_chars(first, last, count);
  if (error != std::errc() || end != last || count < 1) return std::nullopt;
  return count;
}

}  // namespace

std::optional<RawImages> read_raw_images(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::optional<int64_t> count = count_in_name(entry.path().filename().string());
    if (!count) continue;
    RawImages result;
    result.pixels = read_plain_or_xz(entry.path());
    const auto expected = static_cast<size_t>(*count * kImagePixels);
    TORCH_CHECK_VALUE(result.pixels.size() == expected, entry.path().string(), ": expected ", expected,
                      " bytes, as its name says; found ", result.pixels.size());
    const std::filesystem::path labels = folder / ("labels-" + std::to_string(*count) + ".u8");
    const auto found = find_plain_or_xz(labels);
    TORCH_CHECK_VALUE(found, entry.path().string(), ": expected its labels in ", labels.string(),
                      "; there is no such file");
    result.labels = read_plain_or_xz(*found);
    TORCH_CHECK_VALUE(static_cast<int64_t>(result.labels.size()) == *count, found->string(), ": expected ",
                      *count, " bytes, one per image; found ", result.labels.size());
    return result;
  }
  return std::nullopt;
}

}  // namespace edgewise::data
