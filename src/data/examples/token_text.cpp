#include <edgewise/data/examples/token_text.h>

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>

#include "data/check_indices.h"

namespace edgewise::data {
namespace {

TextReader text_reader_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = token_examples_path(folder);
  TORCH_CHECK_VALUE(std::filesystem::exists(file), "next_tokens: expected ", file.string(),
                    "; there is none. Make it with: edgewise data text FILE --out ", folder.string());
  return TextReader::load(text_reader_path(folder));
}

}  // namespace

TokenText::TokenText(const std::filesystem::path& folder, int64_t context)
    : TokenText(text_reader_of(folder), load_token_examples(folder, text_reader_of(folder)), context) {}

TokenText::TokenText(TextReader reader, TokenExamples examples, int64_t context)
    : reader_(std::move(reader)), examples_(std::move(examples)), context_(context) {
  TORCH_CHECK_VALUE(context >= 1, "next_tokens: expected data.length of at least 1 token; got ", context);
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    TORCH_CHECK_VALUE(size(split) >= 1, "next_tokens: expected at least ", context + 1,
                      " tokens (one context and the token after it) in the ", to_string(split), " part of ",
                      examples_.source, "; it has ", examples_.part(split).tokens.size(),
                      ". Use a longer text or a smaller data.length.");
}

int64_t TokenText::size(Split split) const {
  return (std::ssize(examples_.part(split).tokens) - 1) / context_;  // the last token is a label only
}

Batch TokenText::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = std::ssize(indices);
  const at::Tensor tokens = at::empty({items, context_}, at::kLong), labels = at::empty_like(tokens);
  for (int64_t item = 0; item < items; ++item) {
    const int32_t* const from =
        examples_.part(split).tokens.data() + indices[static_cast<size_t>(item)] * context_;
    std::copy_n(from, context_, tokens.mutable_data_ptr<int64_t>() + item * context_);
    std::copy_n(from + 1, context_, labels.mutable_data_ptr<int64_t>() + item * context_);
  }
  return {.towers = {{.tokens = tokens}}, .labels = labels};
}

std::vector<Baseline> TokenText::baselines(Split split) const {
  return {{"token frequencies alone", frequency_loss(examples_, split, vocabulary())}};
}

std::string TokenText::summary() const {
  const TokenExamples::Part& train = examples_.part(Split::kTrain);
  return examples_.source + ", " + std::to_string(train.tokens.size()) + " tokens (" +
         std::string(reader_.tokenizer().kind()) + " of " + std::to_string(vocabulary()) + " ids) of " +
         std::to_string(train.bytes) + " bytes, in pieces of " + std::to_string(context_);
}

double TokenText::bytes_per_token(Split split) const {
  const TokenExamples::Part& part = examples_.part(split);
  return static_cast<double>(part.bytes) / static_cast<double>(std::max<size_t>(part.tokens.size(), 1));
}

double frequency_loss(const TokenExamples& examples, Split split, int64_t vocabulary) {
  std::vector<double> count(static_cast<size_t>(vocabulary), 1);  // what train lacks is possible
  const std::vector<int32_t>&train = examples.part(Split::kTrain).tokens,
        &scored = examples.part(split).tokens;
  for (const int32_t token : train) count[static_cast<size_t>(token)] += 1;
  const double all = static_cast<double>(train.size()) + static_cast<double>(vocabulary);
  double nats = 0;
  for (const int32_t token : scored) nats -= std::log(count[static_cast<size_t>(token)] / all);
  return nats / static_cast<double>(scored.size());
}

}  // namespace edgewise::data
