// Pathfinder (Linsley et al. 2018, as in Long Range Arena): two dashed paths and some shorter distractors on
// a dark picture, and two round marks; are the marks the two ends of one path? This file: the generator of
// the 32 x 32 pictures of the hard set.
//
// A path is a row of dashes ("paddles"). Each next dash is drawn at random near the straight continuation,
// off everything drawn before; when a path runs into a corner the whole picture is begun again.
// src/data/generators/pathfinder_generator.cpp has the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <edgewise/data/byte_examples.h>

namespace edgewise::data {

struct PathfinderOptions {
  int64_t size = 200'000;  // pictures; eight tenths train, one validates, one tests
  int64_t contour_length = 14;
  uint64_t seed = 0;
  int64_t jobs = 1;  // threads; changes the speed, never the result
};

inline constexpr int64_t kPathfinderSide = 32;

struct PathfinderPicture {
  std::vector<uint8_t> pixels;  // [32 * 32], row-major
  int64_t label = 0;            // 1 = the marks are on one path
  int64_t restarts = 0;         // how often the two paths were begun again
  int64_t distractors = 0;      // that found room
};

// Picture `index` of the set, a function of (options.seed, index) only.
PathfinderPicture draw_pathfinder(const PathfinderOptions& options, int64_t index);

// All of them. `progress`, when given, hears the number drawn so far and the number wanted.
ByteExamples generate_pathfinder(const PathfinderOptions& options = {},
                                 const std::function<void(int64_t done, int64_t wanted)>& progress = {});

}  // namespace edgewise::data
