// Answers of a model as lines of JSON.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/data/examples/text_reader.h>

#include <nlohmann/json.hpp>

#include <string>

namespace edgewise::app {

// How the answers of a run are told.
struct AnswerForm {
  const data::TextReader* reader = nullptr;  // null: classes are numbers
  int64_t most_classes = 10;                 // probabilities of the likeliest are told
};

// "label" and "probabilities", the likeliest first; or "number". logits: [classes] double on the CPU, of
// numbers [1] in their own units.
void add_answer(nlohmann::ordered_json& line, const at::Tensor& logits, const AnswerForm& form);

// The name of a class, or its number.
nlohmann::ordered_json class_json(int64_t number, const AnswerForm& form);

// One line with its end; bytes that are no UTF-8 become U+FFFD.
std::string line_of(const nlohmann::ordered_json& line);

}  // namespace edgewise::app
