// edgewise explore: a run's learned graphs in a browser, from a server on this machine.
#include <c10/util/Exception.h>
#include <stdlib.h>
#include <unistd.h>

#include <edgewise/train/stop_signal.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "command.h"
#include "explore/answers.h"
#include "explore/given_inputs.h"
#include "folders.h"
#include "runs.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ExploreArguments {
  std::string run, beside, checkpoint;
  GivenInputs given;
  int64_t port = 0;
};

// A snapshot that is there while the server runs, in a folder of its own that only this user may read.
class PassingFile {
 public:
  PassingFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "edgewise-explore-XXXXXX").string();
    TORCH_CHECK(::mkdtemp(pattern.data()), "explore: expected to make a folder in ",
                std::filesystem::temp_directory_path().string(), "; it cannot be written");
    folder_ = pattern;
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  ~PassingFile() {
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::filesystem::path path() const { return folder_ / "inputs.safetensors"; }

 private:
  std::filesystem::path folder_;
};

// What is shown of one run: its snapshots, a snapshot of new inputs, or a snapshot alone.
class Shown {
 public:
  Shown(const std::string& place, const ExploreArguments& arguments,
        const std::vector<train::NewInput>& inputs) {
    const bool is_file = std::filesystem::is_regular_file(place);
    TORCH_CHECK_VALUE(!is_file || inputs.empty(), "explore: expected a run folder with new inputs; ", place,
                      " is a file");
    if (is_file) {
      view_.emplace(std::filesystem::path(), place);
      return;
    }
    expect_run_folder(place, "config.toml", "explore");
    if (inputs.empty()) {
      view_.emplace(place);
      view_->run();  // what is wrong with the run is told here rather than in the browser
      TORCH_CHECK_VALUE(!view_->steps().empty(), "explore: expected snapshots in ", place,
                        "; it has none. Train with --set train.snapshot_every=100, which a run that is "
                        "resumed may set too, or show it an input of your own: --text, --image or --input");
      return;
    }
    const std::string checkpoint = checkpoint_file(place, arguments.checkpoint, "explore");
    file_.emplace();
    train::save_snapshot(file_->path(), train::snapshot_of_inputs(place, checkpoint, inputs));
    view_.emplace(place, file_->path());
    view_->run();
  }
  const RunView& view() const { return *view_; }

 private:
  std::optional<PassingFile> file_;
  std::optional<RunView> view_;
};

int run(const ExploreArguments& arguments) {
  const std::vector<train::NewInput> inputs = read_given_inputs(arguments.given);
  TORCH_CHECK_VALUE(arguments.checkpoint.empty() || !inputs.empty(),
                    "explore: expected --checkpoint with new inputs, which it computes; snapshots were taken "
                    "in training");
  const Shown first(arguments.run, arguments, inputs);
  std::optional<Shown> second;
  if (!arguments.beside.empty()) second.emplace(arguments.beside, arguments, inputs);
  const Served served{.run = first.view(), .beside = second ? &second->view() : nullptr};
  const train::StopSignal signal;
  int port = 0;
  serve_http({.port = static_cast<int>(arguments.port),
              .answer = [&](const HttpRequest& request) { return answer(served, port, request); },
              .ready =
                  [&](int chosen) {
                    port = chosen;
                    std::cout << "http://127.0.0.1:" << chosen << "/" << std::endl;
                    std::cerr << "open this address in a browser; Ctrl-C ends the server\n";
                  },
              .stop = [] { return train::StopSignal::requested(); }});
  return 0;
}

}  // namespace

void add_explore(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ExploreArguments>();
  CLI::App* command = app.add_subcommand("explore", "Look at the graphs of a run in a browser");
  command
      ->add_option(
          "run", arguments->run,
          "run folder with snapshots (train.snapshot_every), or with a checkpoint and new inputs; or a "
          "snapshot file")
      ->required();
  command->add_option("--beside", arguments->beside, "another run, to compare with side by side");
  add_given_inputs(*command, arguments->given);
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "of new inputs: mean, best or last; default: mean where there is one, else best")
      ->check(one_of({"mean", "best", "last"}));
  command->add_option("--port", arguments->port, "of 127.0.0.1; default: a free one")
      ->check(number_between(1, 65535));
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
