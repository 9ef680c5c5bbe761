// Translator: the translations that a trained run gives of new texts. It needs the run folder alone.
#pragma once

#include <edgewise/data/examples/text_reader.h>
#include <edgewise/models/encoder_decoder.h>
#include <edgewise/tasks/translation.h>
#include <edgewise/train/recipe.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::train {

struct TranslatorOptions {
  std::string checkpoint;              // a file
  std::string device;                  // empty: the recipe's
  std::vector<std::string> overrides;  // of the recipe, e.g. translation.beam=1
};

class Translator {
 public:
  // Throws where the run was not trained on translations.
  Translator(const std::filesystem::path& run, const TranslatorOptions& options);

  const Recipe& recipe() const { return recipe_; }
  // The ids of a text, without marks; throws std::invalid_argument for one that is empty or too long.
  std::vector<int32_t> read(const std::string& text) const;
  // Of texts as read() reads them, text n of all being item first + n for edges that are drawn.
  std::vector<std::string> translate(const std::vector<std::vector<int32_t>>& texts, int64_t first) const;

 private:
  Recipe recipe_;
  std::shared_ptr<const data::TextReader> reader_;
  std::shared_ptr<EncoderDecoderImpl> model_;
  BeamSearchOptions search_;
  at::Device device_ = at::kCPU;
};

}  // namespace edgewise::train
