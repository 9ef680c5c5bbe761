// The parts of a run's report that need the model: where its heads look on single pictures.
#pragma once

#include <edgewise/train/recipe.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

// One test picture and what the model made of it.
struct PictureFigures {
  int64_t index = 0, label = 0, predicted = 0;
  double loss = 0;
  std::vector<uint8_t> pixels;                  // [side * side]
  std::vector<std::vector<double>> key_shares;  // [layers * heads][side * side]: share of the unmasked
                                                // queries that have an edge to a pixel
  std::vector<double> densities;                // [layers * heads], of the pairs of unmasked pixels
};

struct Pictures {
  std::vector<PictureFigures> easy, hard;  // least and most loss of the pictures looked at
  int64_t side = 0, looked_at = 0;
  std::string checkpoint;
};

struct PicturesOptions {
  int64_t look_at = 128;  // the first test examples
  int64_t show = 4;       // of each kind
};

// Nothing, with the reason in `why_not`, when the run has no edges, no checkpoint, no pictures or no data at
// hand.
std::optional<Pictures> look_at_pictures(const std::filesystem::path& run, const train::Recipe& recipe,
                                         const PicturesOptions& options, std::string& why_not);

// Self-contained HTML for them.
std::string pictures_html(const Pictures& pictures, const std::string& task, int64_t heads);
std::string html_escape(const std::string& text);

}  // namespace edgewise::app
