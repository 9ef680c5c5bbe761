// The inside of a heat-map panel.
#pragma once

#include <edgewise/plot/svg_plot.h>

#include <string>

namespace edgewise::train::svg {

// `map` averaged down to at most `most` rows and columns; NaN cells do not count, a block of only NaN stays
// NaN.
HeatMap thin_heat_map(const HeatMap& map, int64_t most);

// Fills width x height at (x, y). One path per colour, its cells merged along rows.
std::string draw_heat_map(const HeatMap& map, double x, double y, double width, double height);

// A vertical bar of the colours from 1 (top) to 0, with labels on its right.
std::string draw_colour_bar(double x, double y, double width, double height);

}  // namespace edgewise::train::svg
