// Pathfinder pictures into byte sequences.
#include <edgewise/data/lra_import.h>

#include <algorithm>

#include <c10/util/Exception.h>

#include "data/generators/pathfinder_examples.h"
#include "data/generators/uniform_below.h"
#include "data/readers/compressed.h"
#include "data/readers/png.h"
#include "data/readers/table_lines.h"
#include "kernels/philox.h"

namespace edgewise::data {

namespace {

constexpr const char* kHard = "curv_contour_length_14";
constexpr uint32_t kStreamLayer = 101;  // apart from the streams of other data

std::vector<std::filesystem::path> metadata_files(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(root / "metadata")) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  // By number where the name is one: 0.npy, 1.npy, ..., 10.npy.
  std::ranges::sort(files, {}, [](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    return std::pair(name.size(), name);
  });
  return files;
}

// Lines of a metadata file: folder, file, number, label and more that describes the drawing, separated by
// spaces.
void read_metadata(const std::filesystem::path& root, const std::filesystem::path& file, RawImages& images,
                   const ImportProgress& progress) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(file);
  TableLines lines(as_text(bytes), file.string());
  std::string_view line;
  while (lines.next(line)) {
    std::vector<std::string_view> fields;
    for (size_t begin = 0; begin < line.size() && fields.size() < 4;) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      if (end > begin) fields.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    if (fields.size() < 4) {
      lines.fail("expected at least 4 fields (folder, file, number, label); found ", fields.size(), " in ",
                 shown(line));
    }
    const int64_t label = lines.number(fields[3], 2, "a label");
    for (const std::string_view field : {fields[0], fields[1]})
      if (field.starts_with('/') || field.find("..") != std::string_view::npos)
        lines.fail("expected a picture below ", root.string(), "; found ", shown(field));
    const std::filesystem::path picture = root / fields[0] / fields[1];
    if (!std::filesystem::exists(picture))
      lines.fail("expected the picture ", picture.string(), "; there is none");
    // The official release has a few empty files; its own reader leaves them out too.
    if (std::filesystem::file_size(picture) == 0) continue;
    const std::vector<uint8_t> pixels = read_grey_png(picture, kImageSide, kImageSide);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
    images.labels.push_back(static_cast<uint8_t>(label));
    if (progress && images.size() % 500 == 0) progress(images.size(), 0);
  }
}

std::vector<int64_t> shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  kernels::RowStream stream(kernels::stream_key(0, 0, kStreamLayer, 0, 0, kernels::Purpose::kShuffle), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[uniform_below(stream, i)]);
  return order;
}

}  // namespace

ByteExamples pathfinder_examples(const RawImages& images, std::span<const int64_t> order) {
  ByteExamples examples("pathfinder");
  const auto count = images.size();
  const int64_t train = count * 8 / 10, learn = train + count / 10;
  examples.bytes.reserve(images.pixels.size());
  for (int64_t i = 0; i < count; ++i) {
    const Split split = i < train ? Split::kTrain : i < learn ? Split::kValidation : Split::kTest;
    const int64_t index = order.empty() ? i : order[static_cast<size_t>(i)];
    const uint8_t label = images.labels[static_cast<size_t>(index)];
    TORCH_CHECK_VALUE(label < 2, "pathfinder: expected labels 0 and 1; found ", int{label}, " for picture ",
                      index);
    examples.add_example(split, images.image(index), label);
  }
  return examples;
}

ByteExamples import_pathfinder(const std::filesystem::path& folder, const ImportProgress& progress) {
  for (const char* below : {"", kHard}) {
    const std::filesystem::path root = below[0] ? folder / below : folder;
    if (!std::filesystem::is_directory(root / "metadata")) continue;
    RawImages images;
    for (const auto& file : metadata_files(root)) read_metadata(root, file, images, progress);
    TORCH_CHECK_VALUE(images.size() > 0, "pathfinder: expected pictures in ", root.string(), "; found none");
    ByteExamples examples = pathfinder_examples(images, shuffled(images.size()));
    examples.source = root.string();
    if (progress) progress(images.size(), images.size());
    return examples;
  }
  const auto raw = read_raw_images(folder);
  TORCH_CHECK_VALUE(raw.has_value(), "pathfinder: expected metadata/ and imgs/ (the official release), ",
                    kHard, "/ with both, or images-Nx32x32.u8[.xz] in ", folder.string(),
                    "; found none of them");
  ByteExamples examples = pathfinder_examples(*raw, {});
  if (progress) progress(raw->size(), raw->size());
  examples.source = folder.string();
  return examples;
}

}  // namespace edgewise::data
