// edgewise data images: pictures with classes, from CIFAR's binary version or folders of JPEG and PNG files.
#include "data/data_images.h"

#include <edgewise/data/images/image_dataset.h>
#include <edgewise/data/images/import_images.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/progress.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "data/data_lra.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ImagesArguments {
  std::string from, out;
  bool overwrite = false;
  data::ImageImportOptions options;
};

// Of what was written.
void describe(const data::ImageDataset& images) {
  Table table({"split", "pictures", "most frequent label of train"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest})
    table.add({std::string(data::to_string(split)), std::to_string(images.size(split)),
               images.size(split) > 0 ? percent(images.baselines(split)[0].value) : "-"});
  table.print(std::cout);
  const data::ImageData& data = images.images();
  std::cout << data.classes.size() << " classes; pictures of " << data.height << " x " << data.width
            << (data.has_pixels() ? " pixels" : " pixels, cut out of files below " + data.root.string())
            << "; mean " << fixed(data.mean[0], 4) << " " << fixed(data.mean[1], 4) << " "
            << fixed(data.mean[2], 4) << ", deviation " << fixed(data.std[0], 4) << " "
            << fixed(data.std[1], 4) << " " << fixed(data.std[2], 4) << "\n";
}

int run(const ImagesArguments& arguments) {
  const std::filesystem::path file = data::images_path(arguments.out);
  check_overwrites("images", file, arguments.overwrite);
  std::error_code failure;
  std::filesystem::create_directories(arguments.out, failure);
  TORCH_CHECK(!failure, "data images: cannot make the folder '", arguments.out, "': ", failure.message(),
              ". Choose one that can be written.");
  { const io::AtomicFile probe(file); }  // known before the work; gone again without a commit
  train::ProgressOptions bar;
  bar.label = "images";
  bar.unit = "picture";
  bar.transient = true;
  train::Progress progress(bar);
  data::ImageImportOptions options = arguments.options;
  options.from = arguments.from;
  progress.begin_phase("read");
  options.progress = [&](int64_t done, int64_t total) { progress.update_phase(done, total); };
  const data::ImportedImages made = data::import_images(options);
  progress.end_phase();
  progress.finish();
  data::save_images(arguments.out, made.images);
  if (made.left_out > 0)
    std::cerr << counted(made.left_out, "picture") << " left out; the first: " << made.first_fault << "\n";
  describe(data::ImageDataset(data::load_images(arguments.out), {.padding = 0}));
  return 0;
}

}  // namespace

void add_data_images(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<ImagesArguments>();
  data::ImageImportOptions& options = arguments->options;
  CLI::App* command =
      data.add_subcommand("images", "Pictures with classes: CIFAR-10, CIFAR-100, folders of JPEG or PNG");
  command
      ->add_option("--from", arguments->from,
                   "folder with CIFAR's binary version, or with train/CLASS/*, and where there are any "
                   "validation/CLASS/* (or val) and test/CLASS/*; or with CLASS/* alone")
      ->required();
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command
      ->add_option(
          "--size", options.size,
          "scale the shorter side of every picture to so many pixels and cut out the middle; default: as "
          "they are, all of one size")
      ->check(whole_number(1));
  command->add_flag(
      "--keep-files", options.keep_files,
      "write the names of the files in place of pixels; training then reads them, at --size: for sets "
      "that do not fit into memory");
  command
      ->add_option("--hold-out", options.hold_out,
                   "share of every class of train for validation, and for test, where there is none")
      ->capture_default_str()
      ->check(number_between(0.001, 0.4));
  command->add_option("--seed", options.seed, "which pictures are held out")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--coarse", options.coarse, "CIFAR-100: its 20 groups of classes");
  command->add_flag("--skip-faulty", options.skip_faulty,
                    "leave out pictures that cannot be read, and say how many");
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
