// edgewise: the command line. Results on stdout, everything else on stderr; errors are one line; exit 1, or 2
// for usage.
#include <c10/util/Exception.h>
#include <edgewise/version.h>

#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "command.h"
#include "errors.h"
#include "usage.h"

namespace {

int report(const std::string& message, const CLI::App& app) {
  const edgewise::app::Explained error =
      edgewise::app::explain_error(message, app.get_subcommands().front()->get_name());
  std::cerr << "edgewise: " << error.message << "\n";
  return error.status;
}

}  // namespace

int main(int argc, char** argv) {
  // Large tensors on large pages, before torch asks: rows are gathered from all over them, which at tens of
  // thousands of tokens is more small pages than the TLB holds (docs/kernels/cpu-attention.md).
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  // What one step used stays for the next. By default every large tensor goes back to the system, which
  // clears its pages when the next step asks for them: a tenth of a step on 64K tokens.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  CLI::App app{
      "Edgewise: attention over learned sparse graphs.\n"
      "Start with: edgewise train recipes/demo/edgewise.toml",
      "edgewise"};
  app.set_version_flag("--version", edgewise::version());
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* parsed, const CLI::Error& error) {
    return edgewise::app::explain_usage(*parsed, error);
  });
  edgewise::app::Action action;
  edgewise::app::add_train(app, action);
  edgewise::app::add_sweep(app, action);
  edgewise::app::add_eval(app, action);
  edgewise::app::add_predict(app, action);
  edgewise::app::add_generate(app, action);
  edgewise::app::add_compare(app, action);
  edgewise::app::add_cost(app, action);
  edgewise::app::add_reproduce(app, action);
  edgewise::app::add_explore(app, action);
  edgewise::app::add_report(app, action);
  edgewise::app::add_data(app, action);
  edgewise::app::add_sample(app, action);
  edgewise::app::add_bench(app, action);
  edgewise::app::add_doctor(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return action();
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), app);
  } catch (const std::exception& error) {
    return report(error.what(), app);
  }
}
