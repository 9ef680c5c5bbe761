// CIFAR-10 and CIFAR-100 in their binary versions: records of one label, or of a coarse and a fine one, and
// planes of 32 x 32 red, green and blue bytes.
#include <c10/util/Exception.h>

#include <ATen/Functions.h>

#include <edgewise/io/atomic_file.h>

#include "data/images/import_parts.h"

namespace edgewise::data {
namespace {

constexpr int64_t kSide = 32, kPixels = kSide * kSide;

struct Layout {
  std::string name;
  std::vector<std::string> train;
  std::string test, class_names;
  int64_t labels = 1;  // bytes before the pixels
  int64_t used = 0;    // which of them
  int64_t classes = 10;
};

Layout cifar10() {
  return {.name = "cifar10",
          .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                    "data_batch_5.bin"},
          .test = "test_batch.bin",
          .class_names = "batches.meta.txt"};
}

Layout cifar100(bool coarse) {
  return {.name = coarse ? "cifar100-coarse" : "cifar100",
          .train = {"train.bin"},
          .test = "test.bin",
          .class_names = coarse ? "coarse_label_names.txt" : "fine_label_names.txt",
          .labels = 2,
          .used = coarse ? 0 : 1,
          .classes = coarse ? 20 : 100};
}

ImagePart read_records(const std::filesystem::path& path, const Layout& layout) {
  TORCH_CHECK_VALUE(std::filesystem::exists(path), "data images: expected the files of ", layout.name, " in ",
                    path.parent_path().string(), "; ", path.filename().string(), " is missing");
  const std::string text = io::read_file(path);
  const int64_t record = layout.labels + 3 * kPixels, size = std::ssize(text);
  TORCH_CHECK_VALUE(size > 0 && size % record == 0, path.string(), ": expected records of ", record,
                    " bytes (", layout.labels, layout.labels == 1 ? " label" : " labels", " and 3 x ",
                    kPixels, " pixels); found ", size, " bytes, which is no multiple");
  const int64_t count = size / record;
  ImagePart part{.pixels = at::empty({count, kSide, kSide, 3}, at::kByte),
                 .files = {},
                 .labels = at::empty({count}, at::kInt)};
  uint8_t* to = part.pixels.mutable_data_ptr<uint8_t>();
  int32_t* const labels = part.labels.mutable_data_ptr<int32_t>();
  const auto* from = reinterpret_cast<const uint8_t*>(text.data());
  for (int64_t n = 0; n < count; ++n, from += record) {
    labels[n] = from[layout.used];
    TORCH_CHECK_VALUE(labels[n] < layout.classes, path.string(), ": expected a label in 0..",
                      layout.classes - 1, " at byte ", n * record + layout.used, "; found ", labels[n]);
    const uint8_t* const planes = from + layout.labels;
    for (int64_t pixel = 0; pixel < kPixels; ++pixel)
      for (int64_t colour = 0; colour < 3; ++colour) *to++ = planes[colour * kPixels + pixel];
  }
  return part;
}

std::vector<std::string> class_names(const std::filesystem::path& path, int64_t classes) {
  std::vector<std::string> names;
  if (std::filesystem::exists(path)) {
    std::string line;
    for (const char each : io::read_text(path) + "\n") {
      if (each != '\n') {
        if (each != '\r') line += each;
        continue;
      }
      if (!line.empty()) names.push_back(line);
      line.clear();
    }
  }
  // Without the file, or with another one, classes are called by their numbers.
  if (std::ssize(names) == classes) return names;
  names.clear();
  for (int64_t n = 0; n < classes; ++n) names.push_back(std::to_string(n));
  return names;
}

ImageData read_all(const std::filesystem::path& folder, const Layout& layout,
                   const ImageImportOptions& options) {
  TORCH_CHECK_VALUE(!options.keep_files,
                    "data images: expected a folder of picture files with --keep-files; ", folder.string(),
                    " holds the binary version of ", layout.name);
  TORCH_CHECK_VALUE(options.size == 0 || options.size == kSide, "data images: expected --size ", kSide,
                    " or none with the binary version of ", layout.name, "; got ", options.size);
  ImageData images;
  images.name = layout.name;
  images.height = images.width = kSide;
  images.classes = class_names(folder / layout.class_names, layout.classes);
  std::vector<at::Tensor> pixels, labels;
  for (const std::string& name : layout.train) {
    ImagePart part = read_records(folder / name, layout);
    pixels.push_back(part.pixels), labels.push_back(part.labels);
    if (options.progress) options.progress(std::ssize(pixels), std::ssize(layout.train) + 1);
  }
  images.part(Split::kTrain) = {.pixels = at::cat(pixels), .files = {}, .labels = at::cat(labels)};
  images.part(Split::kTest) = read_records(folder / layout.test, layout);
  return images;
}

}  // namespace

std::optional<ImageData> import_cifar(const ImageImportOptions& options) {
  for (const char* below : {"", "cifar-10-batches-bin", "cifar-100-binary"}) {
    const std::filesystem::path folder = *below ? options.from / below : options.from;
    if (std::filesystem::exists(folder / "data_batch_1.bin")) return read_all(folder, cifar10(), options);
    if (std::filesystem::exists(folder / "train.bin"))
      return read_all(folder, cifar100(options.coarse), options);
  }
  return std::nullopt;
}

}  // namespace edgewise::data
