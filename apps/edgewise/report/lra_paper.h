// The figures of the SBM-Transformer paper (arXiv 2210.15541, Tables 1, 8 and 9): Long Range Arena, test
// accuracy and density in percent.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::app {

struct LraTask {
  const char* name;           // in recipes
  const char* title;          // for people
  double published_examples;  // steps times batch of the published recipe
  int64_t test_size;          // of the official data
};
inline constexpr std::array<LraTask, 5> kLraTasks = {{{"listops", "ListOps", 5'000.0 * 128, 2'000},
                                                      {"text", "Text", 20'000.0 * 128, 25'000},
                                                      {"retrieval", "Retrieval", 30'000.0 * 32, 17'437},
                                                      {"image", "Image", 35'000.0 * 1024, 10'000},
                                                      {"pathfinder", "Pathfinder", 62'400.0 * 1024, 20'000}}};

// In the order of kLraTasks.
using LraFigures = std::array<double, 5>;

struct PaperAttention {
  const char* kind;  // attention.kind of a recipe
  const char* title;
  LraFigures accuracy;
};
// Table 1.
inline constexpr std::array<PaperAttention, 6> kPaperAttentions = {
    {{"dense", "full attention", {37.22, 64.93, 79.55, 40.38, 74.26}},
     {"linear", "Linear", {37.46, 64.90, 81.10, 38.48, 74.61}},
     {"reformer", "Reformer", {22.92, 64.70, 77.25, 43.65, 70.28}},
     {"performer", "Performer", {18.25, 65.00, 79.01, 39.80, 70.79}},
     {"linformer", "Linformer", {38.44, 56.28, 78.09, 39.53, 67.62}},
     {"nystromformer", "Nystromformer", {37.22, 65.46, 79.35, 43.07, 71.97}}}};

struct PaperSbm {
  double penalty;  // lambda
  bool self_loops;
  LraFigures accuracy, density;
};
// Table 9, its first row being Table 1's, and the row with self-loops of Table 8.
inline constexpr std::array<PaperSbm, 6> kPaperSbm = {
    {{0, false, {37.45, 65.79, 80.00, 41.31, 75.12}, {20.09, 26.10, 29.46, 20.49, 18.56}},
     {1e-4, false, {37.76, 65.48, 79.93, 41.35, 75.46}, {10.48, 26.26, 24.62, 10.70, 5.16}},
     {1e-3, false, {38.23, 65.18, 80.00, 41.17, 74.49}, {10.46, 26.03, 21.70, 24.60, 3.82}},
     {1e-2, false, {38.20, 65.59, 80.44, 42.20, 72.79}, {2.95, 22.43, 6.99, 3.95, 3.76}},
     {1e-1, false, {37.76, 64.48, 79.46, 41.35, 73.79}, {1.15, 10.62, 2.49, 1.33, 2.61}},
     {0, true, {37.60, 64.09, 79.74, 40.64, 74.93}, {24.64, 25.64, 24.26, 24.54, 23.84}}}};

// A predictor that sees only ListOps' root operator, on the distribution of the generator.
inline constexpr double kListOpsFirstToken = 36.2;

}  // namespace edgewise::app
