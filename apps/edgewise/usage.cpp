#include "usage.h"

#include "train/recipe/nearest_name.h"

namespace edgewise::app {
namespace {

// The commands that the arguments went through: edgewise, then e.g. data, then listops.
std::vector<const CLI::App*> parsed_commands(const CLI::App& app) {
  std::vector<const CLI::App*> result = {&app};
  while (!result.back()->get_subcommands().empty())
    result.push_back(result.back()->get_subcommands().front());
  return result;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// What is wrong with an argument that the command did not take.
std::string explain_left_over(const CLI::App& command, const std::string& argument) {
  if (argument.starts_with("-")) {
    const std::string name = argument.substr(0, argument.find('='));
    return "unknown option " + name + did_you_mean(name, option_names(command));
  }
  const std::vector<std::string> commands = command_names(command);
  if (commands.empty()) return "unexpected argument '" + argument + "'";
  const std::string hint = did_you_mean(argument, commands);
  return "unknown command '" + argument + "'" +
         (hint.empty() ? "; expected " + joined(commands, "or") : hint);
}

}  // namespace

std::string explain_usage(const CLI::App& app, const CLI::Error& error) {
  std::string called;  // "edgewise data listops"
  std::string problem;
  for (const CLI::App* command : parsed_commands(app)) {
    called += (called.empty() ? "" : " ") + command->get_name();
    const std::vector<std::string> left_over = command->remaining();
    // A misspelt name also leaves something missing; the name is what is wrong.
    if (!left_over.empty()) {
      problem = explain_left_over(*command, left_over.front());
      break;
    }
    const std::vector<std::string> commands = command_names(*command);
    if (!commands.empty() && command->get_subcommands().empty())
      problem = "expected a command: " + joined(commands, "or");
  }
  if (problem.empty()) problem = error.what();
  // "--draws: 1 required INT missing"
  if (error.get_name() == "ArgumentMismatch" && problem.ends_with("missing"))
    problem = problem.substr(0, problem.find(':')) + ": expected a value";
  return called + ": " + problem + (problem.ends_with("?") ? "" : "; see " + called + " --help") + "\n";
}

std::string joined(const std::vector<std::string>& names, const std::string& last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " " + last + " " : ", ") + names[i];
  return text;
}

std::string did_you_mean(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string nearest = train::nearest_name(wanted, names);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace edgewise::app
