// The Pathfinder generator against what was measured on 6,000 pictures of the original one: mean 20.16,
// standard deviation 51.05, 161.1 pixels above level 20, about 320 restarts and 1.15 distractors a picture,
// 30 of 360 directions that can begin a path.
#include <edgewise/data/pathfinder.h>

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "data/expect_error.h"
#include "data/generators/pathfinder_shapes.h"
#include "data/readers/lanczos.h"

namespace edgewise::data {
namespace {

double direction(int degrees) {
  return degrees * std::acos(-1.0) / 180;
}

TEST(PathfinderShapes, FewDirectionsCanBeginAPath) {
  int usable = 0;
  std::set<pathfinder::Shape> different;
  for (int degrees = -180; degrees < 180; ++degrees) {
    usable += pathfinder::paddle(direction(degrees)).is_usable;
    different.insert(pathfinder::paddle(direction(degrees)).ink);
  }
  EXPECT_EQ(usable, 30);
  EXPECT_EQ(different.size(), 30u);
}

// Levels of a vertical dash (174, 220, 153) as they stand in the original's pictures, where 1.5 times the ink
// is 255.
TEST(PathfinderShapes, ADashHasTheInkOfTheOriginal) {
  const auto level = [](const pathfinder::Shape& ink, int y, int x) {
    return 255 * 1.5 *
           ink[static_cast<size_t>((y + pathfinder::kReach) * pathfinder::kShapeSide + x +
                                   pathfinder::kReach)];
  };
  const pathfinder::Shape& up = pathfinder::paddle(direction(-90)).ink;
  EXPECT_NEAR(level(up, -2, 0), 174, 1);
  EXPECT_NEAR(level(up, -1, 0), 220, 1);
  EXPECT_NEAR(level(up, 0, 0), 153, 1);
  EXPECT_EQ(level(up, -1, 1), 0);
}

TEST(Lanczos, KeepsAnEvenPictureAndPillowsPeak) {
  EXPECT_EQ(shrink_lanczos(std::vector<uint8_t>(17 * 17, 200), 17, 9), std::vector<uint8_t>(81, 200));
}

TEST(Pathfinder, MatchesTheOriginalsFigures) {
  constexpr int64_t kPictures = 3000;
  const PathfinderOptions options;
  double sum = 0, squares = 0, lit = 0, restarts = 0, distractors = 0, related = 0;
  for (int64_t i = 0; i < kPictures; ++i) {
    const PathfinderPicture picture = draw_pathfinder(options, i);
    ASSERT_EQ(picture.pixels.size(), 1024u);
    ASSERT_EQ(*std::ranges::max_element(picture.pixels), 255);
    for (const uint8_t level : picture.pixels) {
      sum += level;
      squares += static_cast<double>(level) * level;
      lit += level > 20;
    }
    restarts += static_cast<double>(picture.restarts);
    distractors += static_cast<double>(picture.distractors);
    related += static_cast<double>(picture.label);
  }
  // The bounds are four standard errors of so many pictures.
  const double pixels = kPictures * 1024.0, mean = sum / pixels;
  EXPECT_NEAR(mean, 20.16, 0.18);
  EXPECT_NEAR(std::sqrt(squares / pixels - mean * mean), 51.06, 0.25);
  EXPECT_NEAR(lit / kPictures, 161.1, 1.4);
  EXPECT_NEAR(restarts / kPictures, 322, 25);
  EXPECT_NEAR(distractors / kPictures, 1.15, 0.08);
  EXPECT_NEAR(related / kPictures, 0.5, 0.037);
}

TEST(Pathfinder, ThreadsDoNotChangeTheSet) {
  PathfinderOptions options;
  options.size = 30;
  const ByteExamples one = generate_pathfinder(options);
  options.jobs = 3;
  int64_t told = 0;
  const ByteExamples three = generate_pathfinder(options, [&](int64_t done, int64_t wanted) {
    told = done;
    EXPECT_EQ(wanted, 30);
  });
  EXPECT_EQ(told, 30);
  EXPECT_EQ(one.bytes, three.bytes);
  EXPECT_EQ(one.size(Split::kTrain), 24);
  EXPECT_EQ(one.size(Split::kTest), 3);
  EXPECT_EQ(one.part(Split::kTrain).labels, three.part(Split::kTrain).labels);
  options.seed = 1;
  EXPECT_NE(one.bytes, generate_pathfinder(options).bytes);
  options.contour_length = 99;
  EXPECT_ERROR(generate_pathfinder(options), "expected contour_length in 3..14");
}

}  // namespace
}  // namespace edgewise::data
