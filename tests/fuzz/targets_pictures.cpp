// Pictures, compressed bytes, and numpy's and Python's files.
#include <edgewise/data/lra_import.h>

#include "data/graphs/npy.h"
#include "data/graphs/pickle.h"
#include "data/readers/compressed.h"
#include "data/readers/png.h"
#include "fuzz_target.h"
#include "python_bytes.h"

namespace edgewise::fuzz {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void run_png(std::string_view input) {
  const auto path = write_scratch("input.png", input);
  refuses_or_reads([&] { must(data::read_grey_png(path, 4, 4).size() == 16, "16 pixels"); });
}

std::vector<std::string> png_seeds() {
  std::vector<uint8_t> grey(16), colour;
  for (size_t n = 0; n < grey.size(); ++n) grey[n] = static_cast<uint8_t>(n * 16);
  for (const uint8_t value : grey) colour.insert(colour.end(), 3, value);
  const std::vector<uint8_t> large(64 * 64);
  return {data::encode_png(4, 4, 1, grey), data::encode_png(4, 4, 3, colour),
          data::encode_png(64, 64, 1, large)};
}

// What is read of damaged data never has more bytes than the limit.
void run_xz(std::string_view input) {
  constexpr uint64_t kLimit = uint64_t{1} << 20;
  refuses_or_reads([&] {
    must(data::xz_decompress(bytes_of(input), "input", kLimit).size() <= kLimit, "the limit to hold");
  });
}

std::vector<std::string> xz_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& text : {std::string("some text"), std::string(), std::string(2 << 20, 'x')}) {
    const std::vector<uint8_t> packed = data::xz_compress(bytes_of(text));
    seeds.emplace_back(packed.begin(), packed.end());
  }
  seeds.push_back(seeds[0] + seeds[1]);
  return seeds;
}

void run_npy(std::string_view input) {
  refuses_or_reads([&] {
    const data::NpyArray array = data::read_npy(bytes_of(input), "input");
    int64_t count = 1;
    for (const int64_t size : array.shape) count *= size;
    must(count == std::ssize(array.values), "as many numbers as the shape says");
  });
}

void run_pickle(std::string_view input) {
  refuses_or_reads([&] {
    const auto value = data::read_pickle(bytes_of(input), "input");
    refuses_or_reads([&] { data::pickled_array(*value, "input"); });
    refuses_or_reads([&] { data::pickled_matrix(*value, "input"); });
    refuses_or_reads([&] { value->at("indptr", "input"); });
  });
}

// Raw images with their labels, and a batch of CIFAR-10.
void run_images(std::string_view input) {
  const auto parts = parts_of(input, 3);
  for (const char* folder : {"raw", "cifar", "pathfinder/metadata", "pathfinder/imgs"})
    std::filesystem::create_directories(scratch() / folder);
  write_scratch("raw/images-2x32x32.u8.xz", parts[0]);
  write_scratch("raw/labels-2.u8", parts[1]);
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"})
    write_scratch("cifar/" + std::string(name) + ".bin", parts[1]);
  write_scratch("pathfinder/metadata/0.npy", parts[2]);
  write_scratch("pathfinder/imgs/a.png", parts[0]);
  refuses_or_reads([] { data::import_image(scratch() / "raw"); });
  refuses_or_reads([] { data::import_image(scratch() / "cifar"); });
  refuses_or_reads([] { data::import_pathfinder(scratch() / "raw"); });
  refuses_or_reads([] { data::import_pathfinder(scratch() / "pathfinder"); });
}

std::vector<std::string> image_seeds() {
  const std::vector<uint8_t> pixels(2 * 1024, 7), packed = data::xz_compress(pixels);
  const std::string metadata = "imgs a.png 0 1 more\nimgs a.png 1 0\n";
  return {join_parts({{packed.begin(), packed.end()}, std::string("\0\1", 2), metadata}),
          join_parts({data::encode_png(32, 32, 1, std::span(pixels).first(1024)), std::string(3073, '\1'),
                      metadata})};
}

}  // namespace

std::vector<Target> picture_targets() {
  return {{"png", "read_grey_png", png_seeds, run_png},
          {"xz", "xz_decompress", xz_seeds, run_xz},
          {"npy", "read_npy",
           [] {
             return std::vector<std::string>{npy_bytes("<f4", "(2, 2)", std::string(16, '\1')),
                                             npy_bytes("<i8", "(1,)", std::string(8, '\2'))};
           },
           run_npy},
          {"pickle", "read_pickle, pickled_array, pickled_matrix",
           [] {
             return std::vector<std::string>{
                 pickled(pickled_array_bytes({2, 2}, "f4", std::string(16, '\0'))),
                 pickled(pickled_matrix_bytes(2, 3)), pickled(pickled_neighbours(3))};
           },
           run_pickle},
          {"images", "import_image and import_pathfinder", image_seeds, run_images}};
}

}  // namespace edgewise::fuzz
