// Stands in for sentencepiece.cpp where libsentencepiece was not found at configure time.
#include <edgewise/data/sentencepiece.h>

#include "data/text/failure.h"

namespace edgewise::data {

bool has_sentencepiece() {
  return false;
}

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model) {
  fail("load_tokenizer: expected a build with SentencePiece to read ", model.string(),
       "; this one has none. Install libsentencepiece-dev (Debian, Ubuntu), then run cmake and build again.");
}

}  // namespace edgewise::data
