// edgewise: the command line. Results on stdout, everything else on stderr; errors are one line; exit 1, or 2
// for usage.
#include <c10/util/Exception.h>
#include <edgewise/version.h>

#include <malloc.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "command.h"
#include "errors.h"
#include "usage.h"

namespace {

// A message may quote a file: what is no text must not reach the terminal as a command.
std::string printable(std::string text) {
  for (size_t n = 0; n < text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[n]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) text[n] = '?';
    // U+0080 to U+009F in UTF-8: some terminals take them for commands too.
    if (byte == 0xC2 && n + 1 < text.size() && static_cast<unsigned char>(text[n + 1]) < 0xA0)
      text[n] = text[n + 1] = '?';
  }
  return text;
}

// Results that were not written, to a full disk or a reader that went away, are no success.
int after_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  std::cerr << "edgewise: cannot write to standard output" << (errno ? ": " : "")
            << (errno ? std::strerror(errno) : "") << "; what it was to show is not complete\n";
  return status != 0 ? status : 1;
}

int report(const std::string& message, const CLI::App& app) {
  const edgewise::app::Explained error =
      edgewise::app::explain_error(message, app.get_subcommands().front()->get_name());
  std::cerr << "edgewise: " << printable(error.message) << "\n";
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
  // A write that cannot be done is an error of that write: whoever reads the progress of a run may go away.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
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
  edgewise::app::add_translate(app, action);
  edgewise::app::add_bleu(app, action);
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
    return after_output(action());
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), app);
  } catch (const std::exception& error) {
    return report(error.what(), app);
  }
}
