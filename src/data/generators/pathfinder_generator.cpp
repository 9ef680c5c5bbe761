// The rules of Pathfinder's pictures, after the description of the original generator's 32 x 32 hard setting.
//
// A dash lies on the line from its tip back towards the pivot; the next pivot is length + 2 margins further
// on, and the next tip lies on a circle of radius length + margin round it. M is the picture of what is
// taken: 1 on the frame, the masks of all dashes but the newest of each path, 0 where there is room.
#include <edgewise/data/pathfinder.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <numbers>
#include <optional>

#include <c10/util/Exception.h>

#include "data/generators/pathfinder_examples.h"
#include "data/generators/pathfinder_shapes.h"
#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

namespace pathfinder {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr int kSeedDistance = 7;
constexpr double kContinuity = 1.0;
constexpr double kDistractorContrast = 2.0;
constexpr double kPathContrast = 0.75 * kDistractorContrast;
constexpr int kTries = 3;            // of a dash
constexpr int kDistractorTries = 5;  // of a whole distractor
constexpr int kDashesOfDistractors = 20;
constexpr double kFree = 0.3;             // M up to this is room for a first dash
constexpr double kLargestOverlap = 1.8;   // of M and a new mask, exclusive
constexpr double kLeastWeight = 1e-4;     // of all places for the next dash together
constexpr double kLeastFreeShare = 0.01;  // of the picture, to look for room at all
constexpr uint32_t kStreamLayer = 102;    // apart from the streams of other data

using Picture = std::array<double, kSide * kSide>;

size_t place(Point p) {
  return static_cast<size_t>(p.y * kSide + p.x);
}

// picture = max(picture, shape * contrast), the shape's middle at `at`.
void draw(Picture& picture, const Shape& shape, Point at, double contrast) {
  for (int y = std::max(at.y - kReach, 0); y <= std::min(at.y + kReach, kSide - 1); ++y) {
    for (int x = std::max(at.x - kReach, 0); x <= std::min(at.x + kReach, kSide - 1); ++x) {
      const double ink = shape[static_cast<size_t>((y - at.y + kReach) * kShapeSide + x - at.x + kReach)];
      double& here = picture[place({y, x})];
      here = std::max(here, ink * contrast);
    }
  }
}

bool has_room(const Picture& taken, const Shape& mask, Point at) {
  for (int y = std::max(at.y - kReach, 0); y <= std::min(at.y + kReach, kSide - 1); ++y) {
    for (int x = std::max(at.x - kReach, 0); x <= std::min(at.x + kReach, kSide - 1); ++x) {
      const double masked = mask[static_cast<size_t>((y - at.y + kReach) * kShapeSide + x - at.x + kReach)];
      if (taken[place({y, x})] + masked >= kLargestOverlap) return false;
    }
  }
  return true;
}

// The largest value within the margin of a point.
double widened_at(const Picture& taken, Point p) {
  double most = taken[place(p)];
  for (const Point n : {Point{p.y - 1, p.x}, Point{p.y + 1, p.x}, Point{p.y, p.x - 1}, Point{p.y, p.x + 1}}) {
    if (is_inside(n)) most = std::max(most, taken[place(n)]);
  }
  return most;
}

// A path as far as it is drawn.
struct Snake {
  Point start;  // the middle of its first dash
  Point tip;    // of its newest
  Point pivot;
  double direction = 0;
  const Shape* newest_mask = nullptr;
};

struct Canvas {
  Picture image{}, taken{};
};

class Artist {
 public:
  Artist(const PathfinderOptions& options, int64_t index)
      : length_(static_cast<int>(options.contour_length)),
        stream_(kernels::stream_key(options.seed, 0, kStreamLayer, index, 0, kernels::Purpose::kData), 0) {}

  PathfinderPicture draw_all() {
    PathfinderPicture result;
    std::optional<Paths> paths;
    while (!(paths = two_paths())) ++result.restarts;
    Canvas& canvas = paths->canvas;
    result.distractors = add_distractors(canvas);

    result.label = static_cast<int64_t>(below(2));
    const size_t first = below(2);
    const size_t second = result.label == 1 ? first : 1 - first;
    const std::vector<double> marks[2] = {mark(paths->snakes[first].start), mark(paths->snakes[second].tip)};
    for (size_t i = 0; i < canvas.image.size(); ++i) {
      canvas.image[i] = std::max({canvas.image[i], marks[0][i], marks[1][i]});
    }
    result.pixels = scaled(canvas.image);
    return result;
  }

 private:
  struct Paths {
    Canvas canvas;
    std::array<Snake, 2> snakes;
  };

  uint64_t below(uint64_t bound) { return uniform_below(stream_, bound); }
  double random_direction() { return (static_cast<double>(below(360)) - 180) * kPi / 180; }

  static Canvas framed() {
    Canvas canvas;
    for (int i = 0; i < kSide; ++i) {
      for (const Point p : {Point{0, i}, Point{kSide - 1, i}, Point{i, 0}, Point{i, kSide - 1}}) {
        canvas.taken[place(p)] = 1;
      }
    }
    return canvas;
  }

  // A first dash with its middle at `start`; none when it would leave the picture.
  static std::optional<Snake> begin(Point start, double direction) {
    const Point head = step(start, direction, kPaddleLength);
    const Point pivot = step(head, direction + kPi, kPaddleLength + kMargin);
    if (!is_inside(head) || !is_inside(pivot)) return std::nullopt;
    return Snake{start, start, pivot, direction, &paddle(direction).mask};
  }

  // A free place for the middle of a first dash, at least `border` from every edge.
  std::optional<Point> free_place(const Picture& taken, const Paddle& dash, int border) {
    if (!dash.is_usable) return std::nullopt;
    const auto is_blocked = [&](Point p) {
      return is_inside(p) && (p.y < border || p.y >= kSide - border || p.x < border ||
                              p.x >= kSide - border || taken[place(p)] > kFree);
    };
    std::array<Point, kSide * kSide> free;
    size_t count = 0;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        if (std::ranges::none_of(dash.keep_off, [&](Point o) { return is_blocked({y + o.y, x + o.x}); })) {
          free[count++] = {y, x};
        }
      }
    }
    if (count == 0) return std::nullopt;
    return free[below(count)];
  }

  std::optional<Snake> begin_anywhere(const Picture& taken, int border) {
    for (int i = 0; i < kTries; ++i) {
      const double direction = random_direction();
      const std::optional<Point> start = free_place(taken, paddle(direction), border);
      if (!start) return std::nullopt;
      if (const auto snake = begin(*start, direction)) return snake;
    }
    return std::nullopt;
  }

  std::optional<Snake> begin_beside(Point other) {
    for (int i = 0; i < kTries; ++i) {
      const double away = random_direction(), direction = random_direction();
      const Point start{static_cast<int>(std::nearbyint(other.y + kSeedDistance * std::sin(away))),
                        static_cast<int>(std::nearbyint(other.x + kSeedDistance * std::cos(away)))};
      if (const auto snake = begin(start, direction)) return snake;
    }
    return std::nullopt;
  }

  // The next dash; false when there is no room.
  bool extend(Canvas& canvas, Snake& snake, double contrast) {
    constexpr double kRadius = kPaddleLength + kMargin;
    const Point pivot = step(snake.pivot, snake.direction, kPaddleLength + 2 * kMargin);
    std::array<Point, 32> tips;
    size_t count = 0;
    for (double degrees = 0; degrees < 360; degrees += 360 / (2 * kPi * kRadius)) {
      const double y = pivot.y + kRadius * std::sin(degrees * kPi / 180);
      const double x = pivot.x + kRadius * std::cos(degrees * kPi / 180);
      if (y < 0 || y >= kSide || x < 0 || x >= kSide) continue;
      const Point tip{static_cast<int>(y), static_cast<int>(x)};
      if (std::find(tips.begin(), tips.begin() + static_cast<std::ptrdiff_t>(count), tip) ==
          tips.begin() + static_cast<std::ptrdiff_t>(count)) {
        tips[count++] = tip;
      }
    }
    std::array<double, 32> directions, weights;
    double total = 0;
    for (size_t i = 0; i < count; ++i) {
      directions[i] = std::atan2(tips[i].y - pivot.y, tips[i].x - pivot.x);
      double turn = std::fabs(directions[i] - snake.direction);
      turn = std::min(turn, 2 * kPi - turn);
      const double straight = std::max(0.0, std::cos(std::min(kContinuity * turn, kPi / 2)));
      weights[i] = (1 - widened_at(canvas.taken, tips[i])) * straight * straight;
      total += weights[i];
    }
    if (total < kLeastWeight) return false;
    for (int i = 0; i < kTries; ++i) {
      double rest = stream_.next_uniform() * total;
      size_t chosen = 0;
      while (chosen + 1 < count && rest >= weights[chosen]) rest -= weights[chosen++];
      const double back = directions[chosen] < 0 ? directions[chosen] + kPi : directions[chosen] - kPi;
      const Paddle& dash = paddle(back);
      if (!has_room(canvas.taken, dash.mask, tips[chosen])) continue;
      draw(canvas.image, dash.ink, tips[chosen], contrast);
      draw(canvas.taken, *snake.newest_mask, snake.tip, 1);
      snake = {snake.start, tips[chosen], pivot, directions[chosen], &dash.mask};
      return true;
    }
    return false;
  }

  std::optional<Paths> two_paths() {
    Paths paths{framed(), {}};
    const auto first = begin_anywhere(paths.canvas.taken, 2 * kSeedDistance);
    if (!first) return std::nullopt;
    const auto second = begin_beside(first->start);
    if (!second) return std::nullopt;
    paths.snakes = {*first, *second};
    for (const Snake& snake : paths.snakes) {
      draw(paths.canvas.image, paddle(snake.direction).ink, snake.start, kPathContrast);
    }
    for (int dash = 1; dash < length_; ++dash) {
      for (Snake& snake : paths.snakes) {
        if (!extend(paths.canvas, snake, kPathContrast)) return std::nullopt;
      }
    }
    // The first path's newest dash stays out of M, as in the original.
    draw(paths.canvas.taken, *paths.snakes[1].newest_mask, paths.snakes[1].tip, 1);
    return paths;
  }

  bool add_distractor(Canvas& canvas, int length) {
    Canvas drawn = canvas;
    const auto begun = begin_anywhere(drawn.taken, 1);
    if (!begun) return false;
    Snake snake = *begun;
    draw(drawn.image, paddle(snake.direction).ink, snake.start, kDistractorContrast);
    for (int dash = 1; dash < length; ++dash) {
      if (!extend(drawn, snake, kDistractorContrast)) return false;
    }
    draw(drawn.taken, *snake.newest_mask, snake.tip, 1);
    canvas = drawn;
    return true;
  }

  int64_t add_distractors(Canvas& canvas) {
    const int length = length_ / 3, wanted = kDashesOfDistractors / length;
    int64_t added = 0;
    for (int i = 0; i < wanted; ++i) {
      const auto free = std::ranges::count_if(canvas.taken, [](double value) { return value <= kFree; });
      if (static_cast<double>(free) < kLeastFreeShare * kSide * kSide) break;
      for (int attempt = 0; attempt < kDistractorTries; ++attempt) {
        if (add_distractor(canvas, length)) {
          ++added;
          break;
        }
      }
    }
    return added;
  }

  static std::vector<uint8_t> scaled(const Picture& image) {
    const auto [least, most] = std::ranges::minmax(image);
    std::vector<uint8_t> pixels;
    for (const double value : image) {
      const double level = (value - least) * (255 / (most - least));
      pixels.push_back(static_cast<uint8_t>(std::min(level + 0.5, 255.0)));
    }
    return pixels;
  }

  int length_;
  kernels::RowStream stream_;
};

}  // namespace
}  // namespace pathfinder

PathfinderPicture draw_pathfinder(const PathfinderOptions& options, int64_t index) {
  TORCH_CHECK_VALUE(options.contour_length >= 3 && options.contour_length <= 14,
                    "pathfinder: expected contour_length in 3..14 (14 is the hard set); got ",
                    options.contour_length);
  return pathfinder::Artist(options, index).draw_all();
}

ByteExamples generate_pathfinder(const PathfinderOptions& options,
                                 const std::function<void(int64_t done, int64_t wanted)>& progress) {
  TORCH_CHECK_VALUE(options.size >= 1, "generate_pathfinder: expected at least 1 picture; got ",
                    options.size);
  TORCH_CHECK_VALUE(options.jobs >= 1, "generate_pathfinder: expected jobs of at least 1; got ",
                    options.jobs);
  constexpr int64_t kBlock = 500;
  RawImages images;
  const auto draw_block = [&](int64_t first) {
    RawImages block;
    for (int64_t i = first; i < std::min(first + kBlock, options.size); ++i) {
      const PathfinderPicture picture = draw_pathfinder(options, i);
      block.pixels.insert(block.pixels.end(), picture.pixels.begin(), picture.pixels.end());
      block.labels.push_back(static_cast<uint8_t>(picture.label));
    }
    return block;
  };
  for (int64_t first = 0; first < options.size;) {
    std::vector<std::future<RawImages>> blocks;
    for (int64_t job = 0; job < options.jobs && first < options.size; ++job, first += kBlock) {
      blocks.push_back(std::async(std::launch::async, draw_block, first));
    }
    for (auto& future : blocks) {
      const RawImages block = future.get();
      images.pixels.insert(images.pixels.end(), block.pixels.begin(), block.pixels.end());
      images.labels.insert(images.labels.end(), block.labels.begin(), block.labels.end());
    }
    if (progress) progress(images.size(), options.size);
  }
  ByteExamples examples = pathfinder_examples(images, {});
  examples.source = "edgewise data pathfinder --generate --seed " + std::to_string(options.seed);
  return examples;
}

}  // namespace edgewise::data
