// Places for the labels of points, so that they cover neither one another nor a point if there is room.
#pragma once

#include <string>
#include <vector>

namespace edgewise::train::svg {

struct LabelledPoint {
  double x = 0, y = 0;  // pixels from the upper left corner of the axes
  std::string label;    // may be empty: the point is in the way all the same
  const char* fill = "#444";
};

struct Label {
  double x = 0, y = 0;           // of the baseline
  const char* anchor = "start";  // start | middle | end
};

// One for each point, in their order; those of empty labels mean nothing. Takes for each the first of eight
// places around its point where nothing is, or the one that covers least; width and height are the axes'.
std::vector<Label> place_labels(const std::vector<LabelledPoint>& points, double text_size, double width,
                                double height);

}  // namespace edgewise::train::svg
