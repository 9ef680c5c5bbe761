// SentencePiece models, through the library of that name. It is optional: without it, loading a model is an
// error that says how to get it.
#pragma once

#include <edgewise/data/tokenizer.h>

namespace edgewise::data {

bool has_sentencepiece();

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model);

}  // namespace edgewise::data
