// Folders of classes: SPLIT/CLASS/picture, or CLASS/picture. Classes are the sorted names of the folders of
// train, and pictures come in the order of their names.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "data/images/import_parts.h"
#include "data/images/resize.h"

namespace edgewise::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{32} << 30;  // of pixels of a split

struct Item {
  std::string file;  // below the root
  int32_t label = 0;
};

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with('.')) result.push_back(entry.path());
  std::ranges::sort(result);
  return result;
}

std::vector<std::string> class_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : sorted_entries(folder))
    if (fs::is_directory(entry)) names.push_back(entry.filename().string());
  return names;
}

bool is_picture_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<Item> items_below(const fs::path& folder, const fs::path& root,
                              const std::vector<std::string>& classes) {
  std::vector<Item> items;
  for (const std::string& name : class_folders(folder)) {
    const auto found = std::ranges::find(classes, name);
    TORCH_CHECK_VALUE(found != classes.end(), "data images: expected the classes of train in ",
                      folder.string(), "; ", name, " is none of them");
    const size_t before = items.size();
    for (const fs::path& entry : sorted_entries(folder / name)) {
      if (!is_picture_name(entry)) continue;
      const std::string file = fs::relative(entry, root).string();
      TORCH_CHECK_VALUE(file.find('\n') == std::string::npos,
                        "data images: expected file names without line breaks in ", (folder / name).string());
      items.push_back({file, static_cast<int32_t>(found - classes.begin())});
    }
    TORCH_CHECK_VALUE(items.size() > before,
                      "data images: expected pictures (.jpg, .jpeg, .png) in every class; ",
                      (folder / name).string(), " has none");
  }
  return items;
}

// The pictures of a split, decoded side by side. What cannot be read is told in `faults`.
ImagePart read_pixels(const std::vector<Item>& items, const fs::path& root, const PictureSize& size,
                      bool resize, std::vector<std::string>& faults,
                      const std::function<void(int64_t)>& done) {
  const int64_t count = std::ssize(items), bytes = 3 * size.height * size.width;
  TORCH_CHECK_VALUE(count == 0 || bytes <= kMostBytes / count, "data images: expected at most ",
                    kMostBytes >> 30, " GiB of pixels; ", count, " pictures of ", size.height, " x ",
                    size.width,
                    " are more. Choose a smaller --size, or --keep-files, which reads them while training");
  ImagePart part{.pixels = at::zeros({count, size.height, size.width, 3}, at::kByte),
                 .files = {},
                 .labels = at::empty({count}, at::kInt)};
  uint8_t* const pixels = part.pixels.mutable_data_ptr<uint8_t>();
  int32_t* const labels = part.labels.mutable_data_ptr<int32_t>();
  faults.assign(items.size(), {});
  constexpr int64_t kBlock = 4096;  // between two signs of progress
  for (int64_t first = 0; first < count; first += kBlock) {
    at::parallel_for(first, std::min(first + kBlock, count), 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const Item& item = items[static_cast<size_t>(n)];
        labels[n] = item.label;
        try {
          Picture picture = read_picture(root / item.file);
          if (resize) picture = resized_middle(picture, size);
          TORCH_CHECK_VALUE(picture.size == size, (root / item.file).string(), ": expected ", size.height,
                            " x ", size.width, " pixels, as the first picture has; found ",
                            picture.size.height, " x ", picture.size.width,
                            ". Give them one size with --size N");
          std::ranges::copy(picture.pixels, pixels + n * bytes);
        } catch (const c10::Error& error) {
          faults[static_cast<size_t>(n)] = error.what_without_backtrace();
        }
      }
    });
    done(std::min(first + kBlock, count));
  }
  return part;
}

// The same where only names are kept: every picture is read once, so that training finds no surprises.
ImagePart read_names(const std::vector<Item>& items, const fs::path& root, std::vector<std::string>& faults,
                     const std::function<void(int64_t)>& done) {
  ImagePart part{.pixels = {}, .files = {}, .labels = at::empty({std::ssize(items)}, at::kInt)};
  for (size_t n = 0; n < items.size(); ++n) {
    part.files.push_back(items[n].file);
    part.labels.mutable_data_ptr<int32_t>()[n] = items[n].label;
  }
  faults.assign(items.size(), {});
  constexpr int64_t kBlock = 4096;
  const int64_t count = std::ssize(items);
  for (int64_t first = 0; first < count; first += kBlock) {
    at::parallel_for(first, std::min(first + kBlock, count), 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) try {
          read_picture(root / items[static_cast<size_t>(n)].file);
        } catch (const c10::Error& error) {
          faults[static_cast<size_t>(n)] = error.what_without_backtrace();
        }
    });
    done(std::min(first + kBlock, count));
  }
  return part;
}

// Without the pictures that have a fault; or, unless they may be left out, throws for the first one.
void leave_out(ImagePart& part, const std::vector<std::string>& faults, const ImageImportOptions& options,
               ImportedImages& result) {
  std::vector<int64_t> kept;
  for (size_t n = 0; n < faults.size(); ++n) {
    if (faults[n].empty()) {
      kept.push_back(static_cast<int64_t>(n));
      continue;
    }
    TORCH_CHECK_VALUE(options.skip_faulty, faults[n], " (--skip-faulty leaves such pictures out)");
    if (result.left_out++ == 0) result.first_fault = faults[n];
  }
  if (kept.size() == faults.size()) return;
  const at::Tensor index = at::tensor(kept, at::kLong);
  part.labels = part.labels.index_select(0, index);
  if (part.pixels.defined()) part.pixels = part.pixels.index_select(0, index);
  if (part.files.empty()) return;
  std::vector<std::string> files;
  for (const int64_t n : kept) files.push_back(part.files[static_cast<size_t>(n)]);
  part.files = std::move(files);
}

fs::path split_folder(const fs::path& root, Split split) {
  if (split == Split::kValidation && !fs::is_directory(root / "validation")) return root / "val";
  return root / std::string(to_string(split));
}

}  // namespace

ImportedImages import_folders(const ImageImportOptions& options) {
  const fs::path root = fs::absolute(options.from).lexically_normal();
  const bool has_splits = fs::is_directory(root / "train");
  const fs::path train = has_splits ? root / "train" : root;
  ImportedImages result;
  ImageData& images = result.images;
  images.name = (root.has_filename() ? root : root.parent_path()).filename().string();
  images.classes = class_folders(train);
  TORCH_CHECK_VALUE(images.classes.size() >= 2, "data images: expected folders of at least two classes in ",
                    train.string(), ", or the binary version of CIFAR-10 or CIFAR-100; found ",
                    images.classes.size());
  for (const std::string& name : images.classes)
    TORCH_CHECK_VALUE(name.find('\n') == std::string::npos,
                      "data images: expected names of classes without line breaks in ", train.string());

  std::array<std::vector<Item>, 3> items;
  int64_t total = 0, before = 0;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const fs::path folder = split == Split::kTrain ? train : split_folder(root, split);
    if (split != Split::kTrain && (!has_splits || !fs::is_directory(folder))) continue;
    std::vector<Item>& found = items[static_cast<size_t>(split)];
    found = items_below(folder, root, images.classes);
    total += std::ssize(found);
  }
  const bool resize = options.size > 0;
  TORCH_CHECK_VALUE(resize || !options.keep_files,
                    "data images: expected --size N with --keep-files, the size "
                    "that a network reads");
  const PictureSize size =
      resize ? PictureSize{options.size, options.size} : picture_size(root / items[0].front().file);
  images.height = size.height, images.width = size.width;
  if (options.keep_files) images.root = root;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const std::vector<Item>& of_split = items[static_cast<size_t>(split)];
    const auto done = [&](int64_t count) {
      if (options.progress) options.progress(before + count, total);
    };
    std::vector<std::string> faults;
    ImagePart& part = images.part(split);
    part = options.keep_files ? read_names(of_split, root, faults, done)
                              : read_pixels(of_split, root, size, resize, faults, done);
    leave_out(part, faults, options, result);
    before += std::ssize(of_split);
  }
  return result;
}

}  // namespace edgewise::data
