#include <edgewise/data/images/image_data.h>

#include <ATen/Functions.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include <edgewise/io/safetensors.h>

namespace edgewise::data {
namespace {

constexpr const char* kFormat = "edgewise-images";
constexpr std::array kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

std::string named(Split split, const char* what) {
  return std::string(to_string(split)) + "." + what;
}

std::string lines_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    names.emplace_back(text.substr(begin, end - begin));
  return names;
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor result = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(result.mutable_data_ptr<uint8_t>()));
  return result;
}

std::string text_of(const at::Tensor& bytes) {
  const auto* const first = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  return {first, first + bytes.numel()};
}

std::string three(const std::array<double, 3>& numbers) {
  char text[100];
  std::snprintf(text, sizeof text, "%.17g %.17g %.17g", numbers[0], numbers[1], numbers[2]);
  return text;
}

// What the metadata of a file says.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : origin_(path.string()), file_(io::load_safetensors(path)) {
    TORCH_CHECK_VALUE(meta("format") == kFormat, origin_,
                      ": expected pictures written by 'edgewise data images'; "
                      "its format is '",
                      meta("format"), "'");
  }

  ImageData read() const {
    ImageData images;
    images.name = meta("name");
    images.classes = names_in(meta("classes"));
    images.height = whole("height");
    images.width = whole("width");
    images.mean = numbers("mean");
    images.std = numbers("std");
    images.root = meta("root");
    for (const Split split : kSplits) {
      ImagePart& part = images.part(split);
      part.labels = tensor(named(split, "labels"), at::kInt, 1);
      if (images.has_pixels())
        part.pixels = tensor(named(split, "pixels"), at::kByte, 4);
      else
        part.files = names_in(text_of(tensor(named(split, "files"), at::kByte, 1)));
    }
    check_images(images, origin_);
    return images;
  }

 private:
  std::string meta(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    return found == file_.metadata.end() ? "" : found->second;
  }

  int64_t whole(const std::string& key) const {
    const std::string text = meta(key);
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size() && value > 0, origin_,
                      ": expected a positive whole number called ", key, " in its metadata; found '", text,
                      "'");
    return value;
  }

  std::array<double, 3> numbers(const std::string& key) const {
    const std::string text = meta(key);
    std::array<double, 3> result{};
    TORCH_CHECK_VALUE(std::sscanf(text.c_str(), "%lf %lf %lf", &result[0], &result[1], &result[2]) == 3,
                      origin_, ": expected three numbers called ", key, " in its metadata; found '", text,
                      "'");
    return result;
  }

  at::Tensor tensor(const std::string& name, at::ScalarType type, int64_t dims) const {
    const auto found = file_.tensors.find(name);
    TORCH_CHECK_VALUE(found != file_.tensors.end(), origin_, ": expected a tensor called ", name,
                      "; there is none");
    TORCH_CHECK_VALUE(found->second.scalar_type() == type && found->second.dim() == dims, origin_,
                      ": expected ", name, " to be ", type, " of ", dims, " dimensions; found ",
                      found->second.scalar_type(), " ", found->second.sizes());
    return found->second;
  }

  std::string origin_;
  io::TensorFile file_;
};

void check_part(const ImageData& images, Split split, const std::string& origin) {
  const ImagePart& part = images.part(split);
  const int64_t count = part.size(), classes = static_cast<int64_t>(images.classes.size());
  if (images.has_pixels()) {
    const std::vector<int64_t> expected = {count, images.height, images.width, 3};
    TORCH_CHECK_VALUE(part.pixels.defined() && part.pixels.sizes() == expected, origin,
                      ": expected pixels of ", to_string(split), " ", at::IntArrayRef(expected), "; found ",
                      part.pixels.defined() ? c10::str(part.pixels.sizes()) : "none");
  } else {
    TORCH_CHECK_VALUE(std::ssize(part.files) == count, origin, ": expected ", count, " files of ",
                      to_string(split), ", one a label; found ", part.files.size());
  }
  if (count == 0) return;
  const int32_t* const labels = part.labels.const_data_ptr<int32_t>();
  for (int64_t n = 0; n < count; ++n)
    TORCH_CHECK_VALUE(labels[n] >= 0 && labels[n] < classes, origin, ": expected labels in 0..", classes - 1,
                      "; picture ", n, " of ", to_string(split), " has ", labels[n]);
}

}  // namespace

std::filesystem::path images_path(const std::filesystem::path& folder) {
  return folder / "images.safetensors";
}

void check_images(const ImageData& images, const std::string& origin) {
  TORCH_CHECK_VALUE(images.classes.size() >= 2, origin, ": expected at least two classes; found ",
                    images.classes.size());
  TORCH_CHECK_VALUE(images.height > 0 && images.width > 0, origin, ": expected a size of pictures; found ",
                    images.height, " x ", images.width);
  for (const Split split : kSplits) check_part(images, split, origin);
  TORCH_CHECK_VALUE(images.part(Split::kTrain).size() > 0, origin,
                    ": expected training pictures; found none");
  for (size_t c = 0; c < 3; ++c)
    TORCH_CHECK_VALUE(std::isfinite(images.mean[c]) && std::isfinite(images.std[c]) && images.std[c] > 0,
                      origin, ": expected a mean and a deviation above 0 of every colour; found ",
                      images.mean[c], " and ", images.std[c], " of colour ", c);
}

void save_images(const std::filesystem::path& folder, const ImageData& images) {
  check_images(images, "save_images");
  io::TensorFile file;
  file.metadata = {{"format", kFormat},
                   {"name", images.name},
                   {"classes", lines_of(images.classes)},
                   {"height", std::to_string(images.height)},
                   {"width", std::to_string(images.width)},
                   {"mean", three(images.mean)},
                   {"std", three(images.std)},
                   {"root", images.root.string()}};
  for (const Split split : kSplits) {
    const ImagePart& part = images.part(split);
    file.tensors[named(split, "labels")] = part.labels;
    if (images.has_pixels())
      file.tensors[named(split, "pixels")] = part.pixels;
    else
      file.tensors[named(split, "files")] = bytes_of(lines_of(part.files));
  }
  std::filesystem::create_directories(folder);
  io::save_safetensors(images_path(folder), file, /*checksums=*/true);
}

ImageData load_images(const std::filesystem::path& folder) {
  const std::filesystem::path path = images_path(folder);
  TORCH_CHECK_VALUE(std::filesystem::exists(path), "expected pictures in ", path.string(),
                    "; there are none. Make them with: edgewise data images --from SOURCE --out ",
                    folder.string());
  return Reader(path).read();
}

void measure_colours(ImageData& images) {
  const at::Tensor& pixels = images.part(Split::kTrain).pixels;
  std::array<int64_t, 3> sums{}, squares{};
  const uint8_t* const first = pixels.const_data_ptr<uint8_t>();
  const int64_t count = pixels.numel();
  for (int64_t n = 0; n < count; n += 3)
    for (size_t c = 0; c < 3; ++c) {
      const int64_t value = first[n + static_cast<int64_t>(c)];
      sums[c] += value;
      squares[c] += value * value;
    }
  const double each = static_cast<double>(count) / 3;
  for (size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(sums[c]) / each;
    images.mean[c] = mean / 255;
    const double variance = static_cast<double>(squares[c]) / each - mean * mean;
    images.std[c] = std::max(std::sqrt(std::max(variance, 0.0)) / 255, 1e-3);  // of pictures of one colour
  }
}

}  // namespace edgewise::data
