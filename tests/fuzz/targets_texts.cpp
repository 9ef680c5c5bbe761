// Tables and texts of one's own, GLUE's, translations, and the text formats of the Long Range Arena.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/import_plain_text.h>
#include <edgewise/data/examples/import_table.h>
#include <edgewise/data/examples/import_translation.h>
#include <edgewise/data/examples/table_rows.h>
#include <edgewise/data/listops_file.h>
#include <edgewise/data/lra_import.h>

#include "fuzz_target.h"

namespace edgewise::fuzz {
namespace {

// The first two bytes choose how the rest is read.
void run_table(std::string_view input, data::TableForm form) {
  const bool skips = !input.empty() && (input[0] & 1), any = !input.empty() && (input[0] & 2),
             numbers = !input.empty() && (input[0] & 4);
  if (!input.empty()) input.remove_prefix(1);
  const auto path = write_scratch("input.table", input);
  data::TableImportOptions options;
  options.train = {.file = path, .form = form, .pair = ""};
  options.hold_out = 0.25;
  options.answer = numbers ? data::AnswerKind::kNumber : data::AnswerKind::kClass;
  options.tokenizer = std::make_shared<data::BytesTokenizer>();
  options.any_bytes = any;
  options.skip_faulty = skips;
  refuses_or_reads([&] { data::import_table(options); });
  const data::TableOptions by_number{
      .form = form, .columns = {"1"}, .has_header = false, .any_bytes = any, .skip_faulty = skips};
  refuses_or_reads([&] { data::each_row(path, by_number, [](const data::TableRow&) {}); });
}

std::vector<std::string> tsv_seeds() {
  std::string table = "text\tlabel\n";
  for (int n = 0; n < 8; ++n)
    table += "words of row " + std::to_string(n) + "\t" + std::to_string(n % 2) + "\n";
  return {"0" + table, "1" + table + "\nbroken\n", "4" + table, "2text\tlabel\r\n\xFF\t1\r\n"};
}

std::vector<std::string> jsonl_seeds() {
  std::string rows;
  for (int n = 0; n < 8; ++n)
    rows += R"({"text": "row )" + std::to_string(n) + R"(", "label": )" + (n % 2 ? "true" : "1.5") + "}\n";
  return {"0" + rows, "4" + rows, "1{\"text\": \"\\u00e9\", \"label\": null}\n" + rows};
}

void run_plain_text(std::string_view input) {
  data::PlainTextOptions options;
  options.train = {write_scratch("input.text", input)};
  options.vocabulary = 300;
  options.max_length = 16;
  refuses_or_reads([&] { data::import_plain_text(options); });
}

// Two files of lines, to be pairs.
void run_translation(std::string_view input) {
  const auto parts = parts_of(input, 2);
  const data::ParallelFiles files{"test", write_scratch("input.de", parts[0]),
                                  write_scratch("input.en", parts[1])};
  data::TranslationImportOptions options;
  options.train = options.validation = files;
  options.tests = {files};
  options.tokenizer = std::make_shared<data::BytesTokenizer>();
  refuses_or_reads([&] { data::import_translation(options); });
  options.subword_merges = 5;
  options.tokenizer = nullptr;
  options.skip_empty = true;
  refuses_or_reads([&] { data::import_translation(options); });
}

void run_listops(std::string_view input) {
  const auto path = write_scratch("input.tsv", input);
  refuses_or_reads([&] {
    const data::ListOpsExamples examples =
        data::read_listops(path.string(), {.max_length = 64, .verify = true});
    data::write_listops((scratch() / "again.tsv").string(), examples);
    must(data::read_listops((scratch() / "again.tsv").string()).size() == examples.size(),
         "as many examples again");
  });
}

// Tables of reviews and of pairs, as the Long Range Arena has them.
void run_lra(std::string_view input) {
  const auto parts = parts_of(input, 2);
  for (const char* folder : {"imdb", "aan", "docs"}) std::filesystem::create_directories(scratch() / folder);
  write_scratch("imdb/train.tsv", parts[0]);
  write_scratch("imdb/test.tsv", parts[1]);
  for (const char* name : {"train", "eval", "test"})
    write_scratch("aan/new_aan_pairs." + std::string(name) + ".tsv", parts[1]);
  refuses_or_reads([] { data::import_text(scratch() / "imdb"); });
  write_scratch("docs/docs.tsv", parts[0]);
  write_scratch("docs/pairs.tsv", parts[1]);
  refuses_or_reads([] { data::import_retrieval(scratch() / "aan"); });
  refuses_or_reads([] { data::import_retrieval(scratch() / "docs"); });
}

}  // namespace

std::vector<Target> text_targets() {
  return {
      {"tsv", "tables of tab-separated fields", tsv_seeds,
       [](std::string_view input) { run_table(input, data::TableForm::kTsv); }},
      {"jsonl", "tables of JSON lines", jsonl_seeds,
       [](std::string_view input) { run_table(input, data::TableForm::kJsonLines); }},
      {"plain_text", "import_plain_text",
       [] {
         std::string text;
         for (int n = 0; n < 40; ++n) text += "a line of words, " + std::to_string(n) + "\n";
         return std::vector<std::string>{text, "\xC3\xA9t\xC3\xA9 \xF0\x9F\x98\x80\n" + text};
       },
       run_plain_text},
      {"translation", "import_translation",
       [] {
         return std::vector<std::string>{
             join_parts({"ein Satz\nzwei S@@ \xC3\xA4tze\n", "a sentence\ntwo sent@@ ences\n"})};
       },
       run_translation},
      {"listops", "read_listops",
       [] {
         return std::vector<std::string>{
             "Source\tTarget\r\n( ( ( [MAX 2 ) 9 ) ] )\t9\r\n5\t5\r\n( ( ( ( [SM 1 ) 2 ) 3 ) ] )\t6\r\n"};
       },
       run_listops},
      {"lra_tables", "import_text and import_retrieval",
       [] {
         return std::vector<std::string>{
             join_parts({"0\t1\t3\tbad film\n1\t2\t9\tgood film\n", "0.0\t1\t2\tone text\tanother\n"}),
             join_parts({"0\t1\t3\tbad film\n", "1\t2\t9\tgood\n"})};
       },
       run_lra},
  };
}

}  // namespace edgewise::fuzz
