// CIFAR-10 into grey byte sequences.
#include <edgewise/data/lra_import.h>

#include <array>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

#include "data/readers/compressed.h"
#include "data/readers/raw_images.h"

namespace edgewise::data {

namespace {

constexpr int64_t kClasses = 10;
constexpr size_t kColourBytes = 3 * kImagePixels;  // a plane of red, one of green, one of blue
constexpr std::array<const char*, 6> kBatches = {"data_batch_1", "data_batch_2", "data_batch_3",
                                                 "data_batch_4", "data_batch_5", "test_batch"};

// In whole numbers: floor(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255).
uint8_t grey(int64_t red, int64_t green, int64_t blue) {
  return static_cast<uint8_t>((2989 * red + 5870 * green + 1140 * blue) * 511 / 5'100'000);
}

// Appends images of the training batches, then of the test batch.
class Collector {
 public:
  void add_colour(std::span<const uint8_t> planes, int64_t label) {
    for (size_t i = 0; i < kImagePixels; ++i) {
      images.pixels.push_back(grey(planes[i], planes[i + kImagePixels], planes[i + 2 * kImagePixels]));
    }
    images.labels.push_back(static_cast<uint8_t>(label));
  }

  RawImages images;
};

void read_binary(const std::filesystem::path& path, Collector& collector) {
  const std::string text = io::read_file(path);
  constexpr size_t kRecord = 1 + kColourBytes;
  TORCH_CHECK_VALUE(!text.empty() && text.size() % kRecord == 0, path.string(), ": expected records of ",
                    kRecord, " bytes (a label and 3 x 1024 pixels); found ", text.size(),
                    " bytes, which is no multiple");
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t offset = 0; offset < text.size(); offset += kRecord) {
    TORCH_CHECK_VALUE(bytes[offset] < kClasses, path.string(), ": expected a label in 0..9 at byte ", offset,
                      "; found ", int{bytes[offset]});
    collector.add_colour({bytes + offset + 1, kColourBytes}, bytes[offset]);
  }
}

struct Split2 {
  RawImages images;
  int64_t test = 0;  // the last ones
};

std::optional<Split2> read_official(const std::filesystem::path& folder, const ImportProgress& progress) {
  if (!std::filesystem::exists(folder / "data_batch_1.bin")) {
    TORCH_CHECK_VALUE(
        !std::filesystem::exists(folder / "data_batch_1"),
        "image: expected the binary version of CIFAR-10; found its Python version (pickles) in ",
        folder.string(),
        ". Get https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, unpack it, and name its folder "
        "cifar-10-batches-bin.");
    return std::nullopt;
  }
  Collector collector;
  int64_t train = 0;
  for (const char* name : kBatches) {
    const std::filesystem::path path = folder / (std::string(name) + ".bin");
    TORCH_CHECK_VALUE(std::filesystem::exists(path), "image: expected the six files of CIFAR-10 in ",
                      folder.string(), "; ", path.filename().string(), " is missing");
    train = collector.images.size();
    read_binary(path, collector);
    if (progress) progress(collector.images.size(), 60'000);
  }
  const int64_t test = collector.images.size() - train;
  return Split2{std::move(collector.images), test};
}

Split2 read_any(const std::filesystem::path& folder, const ImportProgress& progress) {
  for (const char* below : {"", "cifar-10-batches-bin", "cifar-10-batches-py"}) {
    if (auto found = read_official(below[0] ? folder / below : folder, progress)) return *std::move(found);
  }
  auto raw = read_raw_images(folder);
  TORCH_CHECK_VALUE(raw.has_value(),
                    "image: expected data_batch_1.bin .. 5, test_batch.bin (CIFAR-10, binary version) or "
                    "images-Nx32x32.u8[.xz] in ",
                    folder.string(), "; found none of them");
  for (const uint8_t label : raw->labels) {
    TORCH_CHECK_VALUE(label < kClasses, "image: expected labels in 0..9; found ", int{label}, " in ",
                      folder.string());
  }
  const int64_t test = raw->size() / 6;
  return {*std::move(raw), test};
}

}  // namespace

ByteExamples import_image(const std::filesystem::path& folder, const ImportProgress& progress) {
  const Split2 read = read_any(folder, progress);
  const int64_t all = read.images.size(), learn = all - read.test, train = learn * 9 / 10;
  ByteExamples examples("image");
  examples.source = folder.string();
  examples.bytes.reserve(read.images.pixels.size());
  for (int64_t i = 0; i < all; ++i) {
    const Split split = i < train ? Split::kTrain : i < learn ? Split::kValidation : Split::kTest;
    examples.add_example(split, read.images.image(i), read.images.labels[static_cast<size_t>(i)]);
  }
  if (progress) progress(all, all);
  return examples;
}

}  // namespace edgewise::data
