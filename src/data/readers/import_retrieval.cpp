// Pairs of documents into byte sequences.
#include <edgewise/data/lra_import.h>

#include <unordered_map>

#include <c10/util/Exception.h>

#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

namespace edgewise::data {

namespace {

constexpr size_t kKept = 4000;  // bytes of a document that the task reads

std::span<const uint8_t> start_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), std::min(text.size(), kKept)};
}

// A document that occurs in many pairs is kept once.
class Documents {
 public:
  explicit Documents(ByteExamples& examples) : examples_(examples) {}

  int32_t index_of(std::string_view text) {
    const std::string start(text.substr(0, kKept));
    const auto [entry, is_new] = known_.try_emplace(start, -1);
    if (is_new) entry->second = examples_.add_sequence(start_of(start));
    return entry->second;
  }

 private:
  ByteExamples& examples_;
  std::unordered_map<std::string, int32_t> known_;
};

// AAN writes labels as 0.0 and 1.0, or as 0 and 1.
int64_t aan_label(const TableLines& lines, std::string_view field) {
  if (field.ends_with(".0")) field.remove_suffix(2);
  return lines.number(field, 2, "a label");
}

void read_aan(const std::filesystem::path& path, Split split, Documents& documents, ByteExamples& examples,
              const ImportProgress& progress, int64_t& done) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(path);
  TableLines lines(as_text(bytes), path.string());
  std::vector<std::string_view> fields;
  while (lines.next_row(fields, 5, '\t', "label, id1, id2, text1, text2")) {
    const std::array<int32_t, 2> pair = {documents.index_of(fields[3]), documents.index_of(fields[4])};
    examples.add_example(split, pair, aan_label(lines, fields[0]));
    if (++done % 1000 == 0 && progress) progress(done, 0);
  }
}

void read_documents(const std::filesystem::path& path, ByteExamples& examples) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(path);
  TableLines lines(as_text(bytes), path.string());
  std::vector<std::string_view> fields;
  while (lines.next_row(fields, 2, '\t', "index, text")) {
    const int64_t index = lines.number(fields[0], int64_t{1} << 31, "an index");
    if (index != examples.sequences()) {
      lines.fail("expected document ", examples.sequences(),
                 " (documents are numbered from 0 in order); found ", index);
    }
    examples.add_sequence(start_of(fields[1]));
  }
}

void read_pairs(const std::filesystem::path& path, ByteExamples& examples, const ImportProgress& progress) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(path);
  TableLines lines(as_text(bytes), path.string());
  std::vector<std::string_view> fields;
  int64_t done = 0;
  while (lines.next_row(fields, 4, '\t', "split, label, index1, index2")) {
    Split split = Split::kTrain;
    if (fields[0] == "dev") {
      split = Split::kValidation;
    } else if (fields[0] == "test") {
      split = Split::kTest;
    } else if (fields[0] != "train") {
      lines.fail("expected train, dev or test; found ", shown(fields[0]));
    }
    const auto document = [&](std::string_view field) {
      return static_cast<int32_t>(lines.number(field, examples.sequences(), "the index of a document"));
    };
    const std::array<int32_t, 2> pair = {document(fields[2]), document(fields[3])};
    examples.add_example(split, pair, lines.number(fields[1], 2, "a label"));
    if (++done % 1000 == 0 && progress) progress(done, 0);
  }
}

}  // namespace

ByteExamples import_retrieval(const std::filesystem::path& folder, const ImportProgress& progress) {
  ByteExamples examples("retrieval", 2);
  examples.source = folder.string();
  if (find_plain_or_xz(folder / "new_aan_pairs.train.tsv")) {
    Documents documents(examples);
    int64_t done = 0;
    for (const auto& [name, split] :
         {std::pair("train", Split::kTrain), std::pair("eval", Split::kValidation),
          std::pair("test", Split::kTest)}) {
      const std::filesystem::path path = folder / ("new_aan_pairs." + std::string(name) + ".tsv");
      const auto found = find_plain_or_xz(path);
      TORCH_CHECK_VALUE(found, "retrieval: expected new_aan_pairs.{train,eval,test}.tsv; ", path.string(),
                        " is missing");
      read_aan(*found, split, documents, examples, progress, done);
    }
  } else {
    const auto docs = find_plain_or_xz(folder / "docs.tsv"), pairs = find_plain_or_xz(folder / "pairs.tsv");
    TORCH_CHECK_VALUE(docs && pairs,
                      "retrieval: expected new_aan_pairs.{train,eval,test}.tsv (AAN), or docs.tsv[.xz] and "
                      "pairs.tsv[.xz] in ",
                      folder.string(), "; found neither");
    read_documents(*docs, examples);
    read_pairs(*pairs, examples, progress);
  }
  TORCH_CHECK_VALUE(examples.size(Split::kTrain) > 0, "retrieval: expected pairs to train on in ",
                    folder.string(), "; found none");
  return examples;
}

}  // namespace edgewise::data
