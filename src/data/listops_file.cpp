// Writing ListOps files.
#include <edgewise/data/listops_file.h>

#include <filesystem>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

namespace edgewise::data {

namespace {

// The number of arguments of every operator, in order of appearance.
std::vector<int64_t> argument_counts(std::span<const uint8_t> tokens) {
  std::vector<int64_t> counts;
  std::vector<size_t> open;
  for (const uint8_t token : tokens) {
    if (token == kListOpsEnd) {
      open.pop_back();
      continue;
    }
    if (!open.empty()) ++counts[open.back()];
    if (token < kListOpsEnd) {
      open.push_back(counts.size());
      counts.push_back(0);
    }
  }
  return counts;
}

}  // namespace

std::string listops_text(std::span<const uint8_t> tokens) {
  const ListOpsValue checked = evaluate_listops(tokens);
  TORCH_CHECK_VALUE(checked.problem.empty(),
                    "listops_text: expected a well-formed expression; found at token ", checked.position + 1,
                    ": ", checked.problem);
  const std::vector<int64_t> counts = argument_counts(tokens);
  std::string text;
  text.reserve(tokens.size() * 7);
  size_t next_operator = 0, depth = 0;
  for (const uint8_t token : tokens) {
    if (!text.empty()) text += ' ';
    if (token == kListOpsEnd) {
      text += "] )";
      --depth;
    } else if (token < kListOpsEnd) {
      // One pair per argument and one for the closing token, all opened before the operator.
      for (int64_t i = 0; i <= counts[next_operator]; ++i) text += "( ";
      text += listops_token_name(token);
      ++next_operator;
      ++depth;
      continue;
    } else {
      text += listops_token_name(token);
    }
    if (depth > 0) text += " )";  // an argument is complete
  }
  return text;
}

std::string listops_path(const std::string& folder, Split split) {
  const char* name = split == Split::kTrain        ? "basic_train.tsv"
                     : split == Split::kValidation ? "basic_val.tsv"
                                                   : "basic_test.tsv";
  return (std::filesystem::path(folder) / name).string();
}

void write_listops(const std::string& path, const ListOpsExamples& examples) {
  io::AtomicFile file(path);
  file.write("Source\tTarget\r\n");
  for (int64_t i = 0; i < examples.size(); ++i) {
    file.write(listops_text(examples.tokens(i)) + '\t' + std::to_string(examples.label(i)) + "\r\n");
  }
  file.commit();
}

void prepare_listops_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  TORCH_CHECK(!failure, "ListOps: cannot make the folder '", folder, "': ", failure.message(),
              ". Choose one that can be written.");
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const io::AtomicFile probe(listops_path(folder, split));  // gone again without a commit
  }
}

void write_listops(const std::string& folder, const ListOpsData& data) {
  prepare_listops_folder(folder);
  write_listops(listops_path(folder, Split::kTrain), data.train);
  write_listops(listops_path(folder, Split::kValidation), data.validation);
  write_listops(listops_path(folder, Split::kTest), data.test);
}

}  // namespace edgewise::data
