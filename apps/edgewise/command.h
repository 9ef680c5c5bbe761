// The command line is one file per subcommand; each adds itself to the application and leaves what is to be
// run.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace edgewise::app {

// What the parsed command line asks for; returns the exit status.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_translate(CLI::App& app, Action& action);
void add_bleu(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_sample(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_cost(CLI::App& app, Action& action);
void add_reproduce(CLI::App& app, Action& action);
void add_explore(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);

}  // namespace edgewise::app
