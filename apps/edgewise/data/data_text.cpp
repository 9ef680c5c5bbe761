#include "data/data_text.h"

#include <c10/util/Exception.h>
#include <edgewise/data/examples/import_plain_text.h>
#include <edgewise/train/progress.h>

#include <iostream>

#include "data/data_lra.h"
#include "table.h"

namespace edgewise::app {

void add_plain_text_options(CLI::App& text, PlainTextArguments& arguments) {
  CLI::Option* files = text.add_option(
      "files", arguments.files, "text files of your own, plain or .xz, read one after another, as tokens");
  files->excludes("--from");
  text.add_option("--validation", arguments.validation,
                  "text to choose the best checkpoint by; default: a twentieth near the end of the text")
      ->needs(files);
  text.add_option("--test", arguments.test, "text to test on; default: the last twentieth")->needs(files);
  add_tokenizer_options(text, arguments.tokenizer, arguments.options);
  text.add_flag("--any-bytes", arguments.options.any_bytes, "texts need not be UTF-8");
}

int import_plain_text(const PlainTextArguments& arguments, const std::string& out, bool overwrite) {
  check_overwrites("text", data::token_examples_path(out), overwrite);
  data::PlainTextOptions options;
  options.train.assign(arguments.files.begin(), arguments.files.end());
  if (!arguments.validation.empty()) options.validation = {arguments.validation};
  if (!arguments.test.empty()) options.test = {arguments.test};
  options.tokenizer = tokenizer_named(arguments.tokenizer);
  options.vocabulary = arguments.options.vocabulary;
  options.max_length = arguments.options.max_length;
  options.any_bytes = arguments.options.any_bytes;
  train::ProgressOptions bar;
  bar.label = "text";
  bar.unit = "line";
  bar.transient = true;
  train::Progress progress(bar);
  options.progress = [&](const std::string& doing, int64_t lines) {
    progress.update(lines, {{"doing", doing}});
  };
  const data::ImportedText made = data::import_plain_text(options);
  progress.finish();
  data::save_token_examples(out, made.examples, made.reader);
  // What was written is read back, with all its checks: the figures below are those of the files.
  const data::TextReader reader = data::TextReader::load(data::text_reader_path(out));
  const data::TokenExamples examples = data::load_token_examples(out, reader);
  Table table({"split", "bytes", "tokens", "bytes a token"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest}) {
    const data::TokenExamples::Part& part = examples.part(split);
    table.add({std::string(data::to_string(split)), std::to_string(part.bytes),
               std::to_string(part.tokens.size()),
               fixed(static_cast<double>(part.bytes) / static_cast<double>(part.tokens.size()), 2)});
  }
  table.print(std::cout);
  std::cout << out << ": " << reader.tokenizer().kind() << " of " << reader.vocabulary() << " ids\n";
  return 0;
}

}  // namespace edgewise::app
