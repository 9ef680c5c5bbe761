// Predictor: the answers of a trained run to new texts. It needs the run folder alone.
#pragma once

#include <edgewise/data/examples/text_reader.h>
#include <edgewise/models/model.h>
#include <edgewise/train/recipe.h>

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace edgewise::train {

struct PredictorOptions {
  std::string checkpoint;  // a file
  std::string device;      // empty: the recipe's
  int64_t draws = 0;       // of the edges, whose logits are averaged; 0: the recipe's
};

class Predictor {
 public:
  // Throws where the run was not trained on labelled texts.
  Predictor(const std::filesystem::path& run, const PredictorOptions& options);

  const data::TextReader& reader() const { return *reader_; }

  // Texts as the reader reads them -> logits [texts, classes] double on the CPU, of numbers [texts, 1] in
  // their own units. Edges that are sampled are drawn for text n of all as item first + n, as evaluation
  // does.
  at::Tensor answer(const std::vector<std::vector<int32_t>>& texts, int64_t first) const;

 private:
  Recipe recipe_;
  std::shared_ptr<const data::TextReader> reader_;
  ModelPtr model_;
  at::Device device_ = at::kCPU;
  int64_t draws_ = 1;
};

}  // namespace edgewise::train
