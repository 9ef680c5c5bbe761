#include <edgewise/data/examples/import_table.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_set>

#include <edgewise/data/train_tokenizer.h>

#include "data/generators/uniform_below.h"
#include "data/text/failure.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

constexpr uint32_t kStreamLayer = 101;  // apart from the streams of other data
constexpr int64_t kTrainedMinCount = 2;
constexpr int64_t kRounding = 16;  // of the longest example

struct Row {
  std::string text, pair, label;
  int64_t line = 0;
  const TableSource* source = nullptr;
};
using Rows = std::vector<Row>;

double number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail("expected a finite number as label; found ", in_quotes(text));
  return value;
}

class TableReader {
 public:
  explicit TableReader(const TableImportOptions& options) : options_(options) {}

  // use() throws what is wrong with a row.
  Rows read(const TableSource& source, const std::function<void(const Row&)>& use) {
    TableOptions table{.form = source.form,
                       .columns = {source.text, source.label},
                       .has_header = source.has_header,
                       .any_bytes = options_.any_bytes,
                       .skip_faulty = options_.skip_faulty};
    if (!source.pair.empty()) table.columns.push_back(source.pair);
    Rows rows;
    const TableFaults found = each_row(source.file, table, [&](const TableRow& given) {
      Row row{.text = given.values[0],
              .pair = source.pair.empty() ? "" : given.values[2],
              .label = given.values[1],
              .line = given.line,
              .source = &source};
      if (row.text.empty()) fail("expected a text in ", in_quotes(source.text), "; it is empty");
      if (!source.pair.empty() && row.pair.empty())
        fail("expected a text in ", in_quotes(source.pair), "; it is empty");
      if (row.label.empty()) fail("expected a label in ", in_quotes(source.label), "; it is empty");
      if (options_.answer == AnswerKind::kNumber) number_of(row.label);
      if (use) use(row);
      rows.push_back(std::move(row));
      if (options_.progress && rows.size() % 1024 == 0)
        options_.progress("reading", static_cast<int64_t>(rows.size()));
    });
    if (faults_.count == 0) faults_.first = found.first;
    faults_.count += found.count;
    if (rows.empty())
      fail(source.file.string(), ": expected rows; found none",
           found.count > 0 ? " that can be read. The first: " + found.first : "");
    return rows;
  }

  // A fault that shows behind the reading of a file.
  void fault(const Row& row, const std::string& what) {
    const std::string message = row.source->file.string() + ":" + std::to_string(row.line) + ": " + what;
    if (!options_.skip_faulty) fail(message);
    if (faults_.count++ == 0) faults_.first = message;
  }

  const TableFaults& faults() const { return faults_; }

 private:
  const TableImportOptions& options_;
  TableFaults faults_;
};

// In the order of numbers where all are whole numbers, else of bytes.
std::vector<std::string> classes_of(const Rows& rows) {
  std::set<std::string> names;
  for (const Row& row : rows) names.insert(row.label);
  constexpr size_t kFew = 20;
  if (rows.size() >= kFew && names.size() == rows.size())
    fail("expected labels that occur again; every one of the ", rows.size(),
         " rows has another. Is it the right column? Numbers are learned with --numbers");
  std::vector<std::string> classes(names.begin(), names.end());
  const auto whole = [](const std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  };
  if (std::ranges::all_of(classes, [&](const std::string& name) { return whole(name).has_value(); }))
    std::ranges::stable_sort(classes, {}, [&](const std::string& name) { return *whole(name); });
  return classes;
}

// 0 .. count - 1, shuffled.
std::vector<size_t> shuffled(size_t count, uint64_t seed) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  kernels::RowStream stream(kernels::stream_key(seed, 0, kStreamLayer, 0, 0, kernels::Purpose::kShuffle), 0);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[uniform_below(stream, i)]);
  return order;
}

// Takes rows out of `rows` for every part wanted: the rows in the order of their answers, those of equal
// ones shuffled, lie along a line, of which each part gets points at equal distances.
void hold_out(Rows& rows, const std::vector<double>& answers, const std::vector<Rows*>& parts, double share,
              uint64_t seed) {
  std::vector<size_t> order = shuffled(rows.size(), seed);
  std::ranges::stable_sort(order, {}, [&](size_t row) { return answers[row]; });
  const double rate = share * static_cast<double>(parts.size());
  std::vector<int> part_of(rows.size(), -1);
  size_t taken = 0;
  for (size_t n = 0; n < order.size(); ++n)
    if (std::floor(static_cast<double>(n + 1) * rate) > std::floor(static_cast<double>(n) * rate))
      part_of[order[n]] = static_cast<int>(taken++ % parts.size());
  if (taken < parts.size())
    fail("expected enough rows to hold out ", share * 100, " % for ",
         parts.size() == 2 ? "validation and test" : "one", "; found ", rows.size(),
         ". Give files for them, or a larger --hold-out");
  Rows left;
  for (size_t n = 0; n < rows.size(); ++n)
    (part_of[n] < 0 ? left : *parts[static_cast<size_t>(part_of[n])]).push_back(std::move(rows[n]));
  rows = std::move(left);
}

std::shared_ptr<const Tokenizer> learned_tokenizer(const TableImportOptions& options, const Rows& rows) {
  ByteLevelBpeTrainer trainer;
  for (const Row& row : rows) {
    trainer.add(row.text);
    if (!row.pair.empty()) trainer.add(row.pair);
  }
  return std::make_shared<ByteLevelBpe>(trainer.train(
      {.vocabulary = options.vocabulary, .min_count = kTrainedMinCount, .progress = [&](int64_t merges) {
         if (options.progress) options.progress("learning pieces", merges);
       }}));
}

int64_t count_seen(const std::array<Rows, 3>& rows) {
  const auto key = [](const Row& row) { return row.text + '\n' + row.pair; };
  std::unordered_set<std::string> train;
  for (const Row& row : rows[0]) train.insert(key(row));
  int64_t seen = 0;
  for (const size_t part : {1, 2})
    seen += std::ranges::count_if(rows[part], [&](const Row& row) { return train.contains(key(row)); });
  return seen;
}

}  // namespace

ImportedTable import_table(const TableImportOptions& options) {
  const bool are_numbers = options.answer == AnswerKind::kNumber;
  if (options.answer == AnswerKind::kNone) fail("import_table: expected labels or numbers");
  TableReader table(options);
  std::array<Rows, 3> rows;
  TextReaderOptions texts{.answer = options.answer,
                          .classes = options.classes,
                          .text_column = options.train.text,
                          .pair_column = options.train.pair,
                          .label_column = options.train.label,
                          .metric = options.metric};
  if (texts.metric.empty()) texts.metric = are_numbers ? "pearson" : "accuracy";
  const auto known = [&](const Row& row) {
    if (!are_numbers && std::ranges::find(texts.classes, row.label) == texts.classes.end()) {
      std::string names;
      for (size_t n = 0; n < std::min<size_t>(texts.classes.size(), 10); ++n)
        names += (n ? ", " : "") + in_quotes(texts.classes[n]);
      fail("expected one of the ", texts.classes.size(), " labels ",
           options.classes.empty() ? "of the training rows, " : "that were given, ", names,
           texts.classes.size() > 10 ? ", ..." : "", "; found ", in_quotes(row.label));
    }
  };
  rows[0] = table.read(options.train, texts.classes.empty() ? std::function<void(const Row&)>() : known);
  if (!are_numbers && texts.classes.empty()) {
    try {
      texts.classes = classes_of(rows[0]);
    } catch (const std::invalid_argument& error) {
      fail(options.train.file.string(), ": ", error.what());
    }
  }
  std::vector<Rows*> held_out;
  for (const size_t part : {1, 2}) {
    const std::vector<TableSource>& given = part == 1 ? options.validation : options.test;
    if (given.empty()) held_out.push_back(&rows[part]);
    for (const TableSource& source : given) {
      Rows more = table.read(source, known);
      std::ranges::move(more, std::back_inserter(rows[part]));
    }
  }
  const auto answer_of = [&](const Row& row) {
    if (are_numbers) return number_of(row.label);
    return static_cast<double>(std::ranges::find(texts.classes, row.label) - texts.classes.begin());
  };
  if (!held_out.empty()) {
    std::vector<double> answers;
    for (const Row& row : rows[0]) answers.push_back(answer_of(row));
    try {
      hold_out(rows[0], answers, held_out, options.hold_out, options.seed);
    } catch (const std::invalid_argument& error) {
      fail(options.train.file.string(), ": ", error.what());
    }
  }
  if (are_numbers) {
    const auto count = static_cast<double>(rows[0].size());
    double sum = 0, squares = 0;
    for (const Row& row : rows[0]) sum += number_of(row.label);
    for (const Row& row : rows[0]) squares += std::pow(number_of(row.label) - sum / count, 2);
    texts.mean = sum / count;
    texts.scale = std::sqrt(squares / count);
    if (!(texts.scale > 0) || !std::isfinite(texts.scale))
      fail(options.train.file.string(), ": expected numbers that differ as labels; all are ", texts.mean);
  }
  const auto tokenizer = options.tokenizer ? options.tokenizer : learned_tokenizer(options, rows[0]);
  texts.max_length = options.max_length;
  const TextReader reader(tokenizer, texts);
  TokenExamples examples;
  examples.source = options.train.file.filename().string();
  std::array<int64_t, 3> cut{};
  int64_t longest = 8, done = 0;
  std::vector<int32_t> ids;
  for (size_t part = 0; part < rows.size(); ++part) {
    for (const Row& row : rows[part]) {
      ids.clear();
      const auto pair = texts.reads_pairs() ? std::optional<std::string_view>(row.pair) : std::nullopt;
      try {
        cut[part] += reader.read(row.text, pair, ids) ? 1 : 0;
      } catch (const std::invalid_argument& error) {
        table.fault(row, error.what());
        continue;
      }
      longest = std::max(longest, std::ssize(ids));
      examples.parts[part].add(ids, row.line);
      examples.parts[part].answers.push_back(answer_of(row));
      examples.parts[part].bytes += static_cast<int64_t>(row.text.size() + row.pair.size());
      if (options.progress && ++done % 1024 == 0) options.progress("encoding", done);
    }
  }
  // No place behind the longest example would ever be learned.
  texts.max_length = std::min(options.max_length, (longest + kRounding - 1) / kRounding * kRounding);
  return {TextReader(tokenizer, texts), std::move(examples), table.faults(), cut, count_seen(rows)};
}

}  // namespace edgewise::data
