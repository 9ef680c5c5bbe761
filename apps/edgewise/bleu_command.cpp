// edgewise bleu: how close translations are to references, and how sure that is.
#include <c10/util/Exception.h>
#include <edgewise/data/bleu.h>

#include <nlohmann/json.hpp>

#include <iostream>

#include "command.h"
#include "data/text/each_line.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct BleuArguments {
  std::string hypotheses, tokens = "13a";
  std::vector<std::string> references;
  std::string other;  // a second system
  data::BleuOptions options;
  data::BootstrapOptions bootstrap;
  bool json = false;
};

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  data::each_line(file, [&](std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  });
  return lines;
}

// As many lines as the first file has.
std::vector<std::string> lines_beside(const std::string& file, const std::vector<std::string>& first,
                                      const std::string& of) {
  std::vector<std::string> lines = lines_of(file);
  TORCH_CHECK_VALUE(lines.size() == first.size(), "bleu: expected as many lines in ", file, " as in ", of,
                    ", ", first.size(), "; found ", lines.size());
  return lines;
}

data::BleuTokens tokens_named(const std::string& name) {
  return name == "13a"    ? data::BleuTokens::k13a
         : name == "intl" ? data::BleuTokens::kInternational
                          : data::BleuTokens::kNone;
}

std::string interval_text(const data::BleuInterval& interval) {
  return fixed(interval.low, 2) + " to " + fixed(interval.high, 2);
}

int run(const BleuArguments& arguments) {
  data::BleuOptions options = arguments.options;
  options.tokens = tokens_named(arguments.tokens);
  const std::vector<std::string> hypotheses = lines_of(arguments.hypotheses);
  TORCH_CHECK_VALUE(!hypotheses.empty(), "bleu: expected lines in ", arguments.hypotheses, "; it is empty");
  std::vector<std::vector<std::string>> references(hypotheses.size());
  for (const std::string& file : arguments.references) {
    const std::vector<std::string> lines = lines_beside(file, hypotheses, arguments.hypotheses);
    for (size_t n = 0; n < lines.size(); ++n) references[n].push_back(lines[n]);
  }
  const auto counts = data::corpus_counts(hypotheses, references, options);
  const data::BleuScore score = data::corpus_bleu(hypotheses, references, options);
  const bool draws = arguments.bootstrap.draws > 0;
  data::BleuInterval interval;
  if (draws) interval = data::bootstrap_bleu(counts, options, arguments.bootstrap);
  std::optional<data::PairedBleu> paired;
  data::BleuScore other;
  if (!arguments.other.empty()) {
    const std::vector<std::string> lines = lines_beside(arguments.other, hypotheses, arguments.hypotheses);
    other = data::corpus_bleu(lines, references, options);
    TORCH_CHECK_VALUE(draws, "bleu --against: expected --draws of at least 1; got 0");
    paired = data::paired_bootstrap_bleu(counts, data::corpus_counts(lines, references, options), options,
                                         arguments.bootstrap);
  }
  if (arguments.json) {
    nlohmann::ordered_json told = {{"bleu", score.score},
                                   {"precisions", score.precisions},
                                   {"brevity_penalty", score.brevity_penalty},
                                   {"words", score.hypothesis_length},
                                   {"reference_words", score.reference_length},
                                   {"lines", hypotheses.size()}};
    if (draws) told["low"] = interval.low, told["high"] = interval.high;
    if (paired)
      told["against"] = {{"bleu", other.score},           {"difference", score.score - other.score},
                         {"low", paired->difference.low}, {"high", paired->difference.high},
                         {"wins", paired->wins},          {"p_value", paired->p_value}};
    std::cout << told.dump() << "\n";
    return 0;
  }
  Table table({"quantity", "value"});
  table.add({"BLEU", fixed(score.score, 2)});
  if (draws)
    table.add({"  95 % of " + std::to_string(arguments.bootstrap.draws) + " draws", interval_text(interval)});
  std::string precisions;
  for (const double each : score.precisions) precisions += (precisions.empty() ? "" : " / ") + fixed(each, 1);
  table.add({"precisions of 1 to 4 words", precisions});
  table.add({"brevity penalty", fixed(score.brevity_penalty, 3)});
  table.add({"words over those of the reference",
             std::to_string(score.hypothesis_length) + " / " + std::to_string(score.reference_length)});
  table.add({"lines", std::to_string(hypotheses.size())});
  if (paired) {
    table.add({"BLEU of " + arguments.other, fixed(other.score, 2)});
    table.add({"difference", fixed(score.score - other.score, 2)});
    table.add({"  95 % of the draws", interval_text(paired->difference)});
    table.add({"  draws in which the first is better", percent(paired->wins)});
    table.add({"  p-value", fixed(paired->p_value, 4)});
  }
  table.print(std::cout);
  return 0;
}

}  // namespace

void add_bleu(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<BleuArguments>();
  CLI::App* command = app.add_subcommand(
      "bleu", "Compare translations with references: BLEU as sacrebleu counts it, with intervals");
  command->add_option("translations", arguments->hypotheses, "a line each, plain or .xz")->required();
  command->add_option("references", arguments->references, "one file or more, line by line beside it")
      ->required();
  command
      ->add_option("--tokens", arguments->tokens,
                   "how a line is divided into words: 13a (as WMT's scores), intl, or none (at white space)")
      ->capture_default_str()
      ->check(one_of({"13a", "intl", "none"}));
  command->add_flag("--lower-case", arguments->options.lower_case, "upper and lower case are alike");
  command->add_option("--against", arguments->other,
                      "translations of another system: the difference of both by paired bootstrap");
  command
      ->add_option("--draws", arguments->bootstrap.draws,
                   "corpora drawn with replacement, for the intervals; 0 = none")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--seed", arguments->bootstrap.seed, "the same seed draws the same lines")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--json", arguments->json, "one JSON object instead of a table");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
