// Numbers and text for SVG, independent of the locale.
#pragma once

#include <string>
#include <string_view>

namespace edgewise::train::svg {

std::string escape(
    std::string_view text);        // for element content and attribute values; drops what XML forbids
std::string number(double value);  // a coordinate: one decimal at most
std::string fixed(double value, int decimals);
double text_width(std::string_view text, double size);                 // pixels, an estimate on the wide side
std::string shorten(std::string_view text, double size, double room);  // with an ellipsis if it does not fit

struct TextStyle {
  double size = 11;
  const char* anchor = "start";  // start | middle | end
  const char* fill = "#444";
  bool bold = false;
};
std::string text(double x, double y, std::string_view content, const TextStyle& style);
std::string vertical_text(double x, double y, std::string_view content,
                          const TextStyle& style);  // reads upwards
std::string line(double x1, double y1, double x2, double y2, std::string_view attributes);

}  // namespace edgewise::train::svg
