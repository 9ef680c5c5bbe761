// edgewise data NAME, for every task that says how its data is imported (TaskKind::import): what it is
// distributed as, into one file.
#include <edgewise/data/byte_dataset.h>
#include <edgewise/data/pathfinder.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/task_kinds.h>

#include <filesystem>
#include <iostream>
#include <thread>

#include "data/data_lra.h"
#include "data/data_text.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ImportArguments {
  std::string task, from, out;
  bool xz = false, overwrite = false;
  bool generate = false;  // pathfinder
  data::PathfinderOptions pathfinder;
  PlainTextArguments plain;  // text
};

train::ProgressOptions bar_of(const std::string& task, int64_t total) {
  train::ProgressOptions bar;
  bar.label = task;
  bar.total = total;
  bar.unit = "example";
  return bar;
}

// Makes the folder; throws when the file could not be written there, before the work.
void prepare_folder(const ImportArguments& arguments) {
  const std::string &folder = arguments.out, &task = arguments.task;
  check_overwrites(task, data::byte_examples_path(folder, task), arguments.overwrite);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  TORCH_CHECK(!failure, "data ", task, ": cannot make the folder '", folder, "': ", failure.message(),
              ". Choose one that can be written.");
  const io::AtomicFile probe(data::byte_examples_path(folder, task));  // gone again without a commit
}

// Writes the file, reads it back and prints its splits, size and checksum.
void save_and_describe(const data::ByteExamples& examples, const std::string& folder, bool xz) {
  data::save_byte_examples(folder, examples, {.compress = xz});
  const std::filesystem::path file = data::byte_examples_path(folder, examples.task);
  // What was written is read back, with all its checks: the figures below are those of the file.
  const data::ByteDataset dataset(data::load_byte_examples(folder, examples.task),
                                  data::lra_options(examples.task));
  Table table({"split", "examples", "mean length", "most frequent label of train"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest}) {
    double length = 0;
    for (int64_t i = 0; i < dataset.size(split); ++i) length += static_cast<double>(dataset.length(split, i));
    const bool any = dataset.size(split) > 0;
    table.add({std::string(data::to_string(split)), std::to_string(dataset.size(split)),
               any ? fixed(length / static_cast<double>(dataset.size(split)), 1) : "-",
               any ? percent(dataset.majority_accuracy(split)) : "-"});
  }
  table.print(std::cout);
  std::cout << file.string() << ": " << bytes(static_cast<double>(std::filesystem::file_size(file)))
            << "; CRC-32 of the " << examples.bytes.size()
            << " bytes in it: " << data::byte_examples_checksum(examples) << "\n";
}

int generate(const ImportArguments& arguments) {
  prepare_folder(arguments);
  train::Progress progress(bar_of(arguments.task, arguments.pathfinder.size));
  const data::ByteExamples examples =
      data::generate_pathfinder(arguments.pathfinder, [&](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  save_and_describe(examples, arguments.out, arguments.xz);
  return 0;
}

int run(const ImportArguments& arguments) {
  if (arguments.generate) return generate(arguments);
  if (!arguments.plain.files.empty())
    return import_plain_text(arguments.plain, arguments.out, arguments.overwrite);
  TORCH_CHECK_VALUE(!arguments.from.empty(), "data ", arguments.task, ": expected --from FOLDER",
                    arguments.task == "pathfinder" ? ", or --generate"
                    : arguments.task == "text"     ? ", or text files of your own"
                                                   : "");
  TORCH_CHECK_VALUE(std::filesystem::is_directory(arguments.from), "data ", arguments.task,
                    ": expected a folder to read; '", arguments.from, "' is none");
  prepare_folder(arguments);
  train::Progress progress(bar_of(arguments.task, 0));
  const data::ByteExamples examples =
      train::task_kind(arguments.task).import->read(arguments.from, [&](int64_t done, int64_t) {
        progress.update(done);
      });
  progress.finish();
  save_and_describe(examples, arguments.out, arguments.xz);
  return 0;
}

// The command of a task, with its arguments.
std::pair<CLI::App*, std::shared_ptr<ImportArguments>> add_import(CLI::App& data, Action& action,
                                                                  const train::TaskKind& task) {
  auto arguments = std::make_shared<ImportArguments>();
  arguments->task = task.name;
  CLI::App* command = data.add_subcommand(task.name, task.import->what);
  command->add_option("--from", arguments->from, task.import->layouts);
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command->add_flag("--xz", arguments->xz, "compress: a smaller file that takes seconds to load");
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
  return {command, arguments};
}

// Pathfinder's pictures may be drawn as well.
void add_generator(CLI::App& pathfinder, ImportArguments& arguments) {
  data::PathfinderOptions& options = arguments.pathfinder;
  options.jobs = std::max(1u, std::thread::hardware_concurrency());
  CLI::Option* generate =
      pathfinder.add_flag("--generate", arguments.generate, "draw the pictures instead of reading them");
  generate->excludes("--from");
  pathfinder.add_option("--size", options.size, "pictures: eight tenths train, one validates, one tests")
      ->capture_default_str()
      ->check(whole_number(10))  // fewer would leave a split empty
      ->needs(generate);
  pathfinder
      .add_option("--contour-length", options.contour_length,
                  "dashes of a path: 6 easy, 9 intermediate, 14 hard")
      ->capture_default_str()
      ->check(whole_number(3))
      ->needs(generate);
  pathfinder.add_option("--seed", options.seed, "the same seed gives the same file")
      ->capture_default_str()
      ->check(whole_number(0))
      ->needs(generate);
  pathfinder.add_option("--jobs", options.jobs, "threads; never changes the file")
      ->capture_default_str()
      ->check(whole_number(1))
      ->needs(generate);
}

}  // namespace

void check_overwrites(const std::string& task, const std::filesystem::path& file, bool overwrite) {
  TORCH_CHECK_VALUE(overwrite || !std::filesystem::exists(file), "data ", task, ": expected no ",
                    file.string(),
                    " yet; there is one. Choose another --out, or replace it with --overwrite.");
}

void add_data_lra(CLI::App& data, Action& action) {
  for (const std::string& name : train::task_names()) {
    const train::TaskKind& task = train::task_kind(name);
    if (!task.import) continue;
    const auto [command, arguments] = add_import(data, action, task);
    if (name == "pathfinder") add_generator(*command, *arguments);
    if (name == "text") add_plain_text_options(*command, arguments->plain);
  }
}

}  // namespace edgewise::app
