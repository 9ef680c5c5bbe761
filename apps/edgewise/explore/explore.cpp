// edgewise explore: a run's learned graphs in a browser, from a server on this machine.
#include <c10/util/Exception.h>

#include <edgewise/train/stop_signal.h>

#include <iostream>

#include "command.h"
#include "explore/answers.h"
#include "folders.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ExploreArguments {
  std::string run;
  int64_t port = 0;
};

int run(const ExploreArguments& arguments) {
  expect_run_folder(arguments.run, "config.toml", "explore");
  const RunView view(arguments.run);
  view.run();  // what is wrong with the run is told here rather than in the browser
  TORCH_CHECK_VALUE(
      !view.steps().empty(), "explore: expected snapshots in ", arguments.run,
      "; it has none. Train with --set train.snapshot_every=100, which a run that is resumed may "
      "set too");
  const train::StopSignal signal;
  int port = 0;
  serve_http({.port = static_cast<int>(arguments.port),
              .answer = [&](const HttpRequest& request) { return answer(view, port, request); },
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
  command->add_option("run", arguments->run, "run folder with snapshots (train.snapshot_every)")->required();
  command->add_option("--port", arguments->port, "of 127.0.0.1; default: a free one")
      ->check(number_between(1, 65535));
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
