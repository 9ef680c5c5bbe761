// Charts: what must be in the text, and that no input breaks it. How they look is for eyes, not for tests.
#include <edgewise/plot/svg_plot.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <c10/util/Exception.h>

#include "plot/svg_heat_map.h"
#include "plot/svg_labels.h"
#include "plot/svg_scale.h"
#include "plot/svg_text.h"

namespace edgewise::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

std::vector<double> rising(size_t size) {
  std::vector<double> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<double>(i);
  return values;
}

std::vector<std::string> labels(const svg::Scale& scale, int about = 5) {
  std::vector<std::string> result;
  for (const auto& tick : svg::make_ticks(scale, about)) result.push_back(tick.label);
  return result;
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Tags open and close in order, and no number went wrong.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(count(tag, "\"") % 2, 0u) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  for (const char* bad : {"\"nan", "nan ", "\"inf", "-inf", "e+"}) EXPECT_THAT(svg, Not(HasSubstr(bad)));
}

TEST(SvgScale, RoundTicks) {
  using ::testing::ElementsAre;
  EXPECT_THAT(labels({0, 1, false}), ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels({0, 50000, false}), ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
  EXPECT_THAT(labels({-1, 1, false}, 4), ElementsAre("\u22121.0", "\u22120.5", "0", "0.5", "1.0"));
  EXPECT_THAT(labels({0, 2.5e6, false}), ElementsAre("0", "0.5M", "1.0M", "1.5M", "2.0M", "2.5M"));
  EXPECT_THAT(labels({0.001, 1000, true}, 8), ElementsAre("0.001", "0.01", "0.1", "1", "10", "100", "1000"));
  EXPECT_THAT(labels({0.1, 1, true}), ElementsAre("0.1", "0.2", "0.5", "1"));
  EXPECT_THAT(labels({1e-9, 1e-5, true}), ElementsAre("10\u207b\u2079", "10\u207b\u2078", "10\u207b\u2077",
                                                      "10\u207b\u2076", "10\u207b\u2075"));
  EXPECT_GE(labels({2.1, 2.4, true}).size(), 3u);  // no power of ten in sight
}

TEST(SvgScale, AnyRangeGivesAFewTicks) {
  for (const bool log : {false, true}) {
    for (double low : {1e-290, 1e-30, 1e-3, 1.0, 12345.678, 1e30, 1e290}) {
      for (double factor : {1.0, 1 + 1e-12, 1.0001, 1.5, 7.0, 1e4, 1e9}) {
        const svg::Scale scale = svg::make_scale(low, low * factor, log, 0.05);
        const auto ticks = svg::make_ticks(scale, 5);
        EXPECT_LE(ticks.size(), 14u) << low << " " << factor << " " << log;
        for (const auto& tick : ticks) {
          EXPECT_GE(scale.position(tick.value), -0.01);
          EXPECT_LE(scale.position(tick.value), 1.01);
          EXPECT_LT(tick.label.size(), 24u) << tick.label;
        }
      }
    }
  }
}

TEST(SvgScale, ThinningKeepsExtremesAndEnds) {
  const std::vector<double> x = rising(100'000);
  std::vector<double> y(x.size(), 0.5);
  y[31'415] = 9;
  y[77'777] = -9;
  const auto kept = svg::thin_series(x, y, false, 1000);
  EXPECT_LE(kept.size(), 1002u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  for (const long index : {0L, 31'415L, 77'777L, 99'999L}) EXPECT_THAT(kept, ::testing::Contains(index));
}

TEST(SvgScale, ThinningKeepsInterruptions) {
  std::vector<double> y = rising(10'000);
  std::fill(y.begin() + 4000, y.begin() + 5000, NAN);
  const auto kept = svg::thin_series(rising(10'000), y, false, 1000);
  EXPECT_THAT(kept, ::testing::Contains(-1));
  for (const long index : kept) EXPECT_TRUE(index < 4000 || index >= 5000);
  EXPECT_THAT(svg::thin_series({0, 1, 2}, {1, -1, 1}, true, 1000), ::testing::ElementsAre(0, -1, 2));
}

TEST(SvgText, Escapes) {
  EXPECT_EQ(svg::escape("a<b>&\"c'\n"), "a&lt;b&gt;&amp;&quot;c&#39; ");
  EXPECT_EQ(svg::escape("\u00fc\u6a21"), "\u00fc\u6a21");
  for (const char* bad : {"\xff", "\xc0", "\xed\xa0", "\xe2\x82", "\xef\xbf\xbf"})
    EXPECT_THAT(svg::escape(bad), HasSubstr("\uFFFD"));
}

TEST(SvgPlot, HasEverythingItWasGiven) {
  Panel panel{.title = "Loss <train>", .x_label = "step", .y_label = "loss & more", .log_y = true};
  panel.series = {{"sbm", rising(50), rising(50)}, {"dense", rising(50), std::vector<double>(50, 3.0)}};
  panel.reference_lines = {{2.0, "paper"}};
  const std::string svg = render_svg({panel, panel}, {.title = "Two panels"});
  expect_well_formed(svg);
  for (const char* part : {"Two panels", "Loss &lt;train&gt;", "loss &amp; more", ">step<", ">sbm<",
                           ">dense<", ">paper<", "stroke-dasharray"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
}

TEST(SvgPlot, UnusualData) {
  const std::vector<Series> cases = {
      {"none", {}, {}},
      {"one", {1}, {1}},
      {"flat", {0, 1}, {0, 0}},
      {"same x", {1, 1}, {0, 5}},
      {"missing", {0, 1, 2, 3}, {NAN, kUnbounded, -kUnbounded, NAN}},
      {"gap", {0, 1, 2, 3, 4}, {1, NAN, 2, 3, NAN}},
      {"huge", {0, 1}, {-1e308, 1e308}},
      {"tiny", {0, 1}, {5e-324, 1e-310}},
      {"negative", {-5, -1}, {-3, -2}},
      {"far x", {1e17, 1e17 + 64}, {1, 2}},
  };
  for (const Series& series : cases) {
    for (const bool log : {false, true}) {
      SCOPED_TRACE(series.name);
      expect_well_formed(render_svg({{.title = "t", .log_y = log, .series = {series}}}));
      expect_well_formed(render_svg({{.log_y = log, .y_range = std::pair(0.1, 0.2), .series = {series}}},
                                    {.panel_width = 1, .panel_height = 1}));
    }
  }
  EXPECT_THAT(render_svg({{.series = {cases[0]}}}), HasSubstr("no data"));
  expect_well_formed(render_svg({}));
}

TEST(SvgPlot, PointsHaveTheirOwnShapesAndLabels) {
  Panel panel;
  panel.log_x = true;
  for (const char* name : {"first", "second"}) {
    panel.series.push_back(
        {.name = name, .x = {1, 10, 0}, .y = {1, 2, 3}, .marks = Marks::kPoints, .labels = {"a", "", "c"}});
  }
  panel.series.push_back({.name = "line", .x = {1, 100}, .y = {1, 2}, .marks = Marks::kLineAndPoints});
  const std::string svg = render_svg({panel});
  EXPECT_EQ(count(svg, "<circle"), 3u);       // two points (0 has no place on a log axis) and the legend's
  EXPECT_EQ(count(svg, "<polygon"), 3u + 3);  // squares and triangles
  EXPECT_EQ(count(svg, ">a</text>"), 2u);
  EXPECT_EQ(count(svg, ">c</text>"), 0u);
  EXPECT_EQ(count(svg, "<path"), 1u);
  panel.series[0].labels.pop_back();
  EXPECT_THROW(render_svg({panel}), c10::ValueError);
}

// Neither on one another nor beyond the axes while there is room.
TEST(SvgPlot, PointsHaveBarsOfTheirErrors) {
  Series series{
      .name = "seeds", .x = {1, 2, 3}, .y = {10, 12, 11}, .marks = Marks::kPoints, .errors = {0.5, 0, 3}};
  const auto lines_of = [&] {
    const std::string svg = render_svg({{.series = {series}}});
    expect_well_formed(svg);
    return count(svg, "stroke=\"#0072b2\"");
  };
  EXPECT_EQ(lines_of(), 6u) << "a bar and two caps for each error but 0";
  // The axis reaches to the ends of the bars.
  const std::string tall = render_svg({{.series = {series}}});
  EXPECT_THAT(tall, HasSubstr(">14<"));
  series.errors = {};
  EXPECT_EQ(lines_of(), 0u);
  series.errors = {kUnbounded, std::nan(""), -1};
  EXPECT_EQ(lines_of(), 0u);
  series.errors = {0.5, 0.5, 0.5};
  series.marks = Marks::kLine;
  EXPECT_EQ(lines_of(), 2u) << "the line and its legend";
  series.errors = {1, 2};
  EXPECT_THROW(render_svg({{.series = {series}}}), c10::ValueError);
}

TEST(SvgLabels, KeepApart) {
  using namespace svg;  // NOLINT: as svg_plot.cpp has it
  std::vector<LabelledPoint> points;
  for (const double x : {100.0, 104.0, 108.0, 297.0})
    points.push_back({.x = x, .y = x < 200 ? 100.0 : 3.0, .label = "0.0001"});
  points.push_back({.x = 118, .y = 97, .label = ""});  // in the way of what stands to the right
  const std::vector<Label> labels = place_labels(points, 11, 300, 200);
  ASSERT_EQ(labels.size(), points.size());
  const double width = text_width("0.0001", 11);
  const auto left = [&](const Label& label) {
    const std::string anchor = label.anchor;
    return label.x - (anchor == "start" ? 0 : anchor == "end" ? width : width / 2);
  };
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(left(labels[i]), 0) << i;
    EXPECT_LE(left(labels[i]) + width, 300) << i;
    EXPECT_GE(labels[i].y, 8) << i;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(std::abs(left(labels[i]) - left(labels[j])) >= width ||
                  std::abs(labels[i].y - labels[j].y) >= 0.85 * 11)
          << i << " on " << j;
    }
    for (const LabelledPoint& point : points) {
      EXPECT_TRUE(point.x + 5 <= left(labels[i]) || point.x - 5 >= left(labels[i]) + width ||
                  point.y + 5 <= labels[i].y - 0.75 * 11 || point.y - 5 >= labels[i].y + 0.1 * 11)
          << i << " on the point at " << point.x;
    }
  }
  EXPECT_TRUE(place_labels({}, 11, 300, 200).empty());
  // With nothing in the way, above on the right, wherever rounding leaves the corners.
  for (const double x : {50.1, 128.7, 141.63})
    EXPECT_STREQ(place_labels({{.x = x, .y = x, .label = "0.2"}}, 11, 300, 200)[0].anchor, "start") << x;
}

TEST(SvgPlot, LongSeriesStaySmall) {
  std::vector<double> y = rising(1'000'000);
  for (double& value : y) value = std::sin(value);
  EXPECT_LT(render_svg({{.series = {{"long", rising(y.size()), y}}}}).size(), 30'000u);
}

TEST(SvgPlot, RefusesNonsense) {
  EXPECT_THROW(render_svg({{.series = {{"a", {1, 2}, {1}}}}}), c10::ValueError);
  EXPECT_THROW(render_svg({{.y_range = std::pair(1.0, 1.0)}}), c10::ValueError);
  EXPECT_THROW(render_svg({{.log_y = true, .y_range = std::pair(0.0, 1.0)}}), c10::ValueError);
  EXPECT_THROW(render_svg({{.heat_map = HeatMap{2, 2, {1, 2, 3}}}}), c10::ValueError);
  EXPECT_THROW(render_svg({}, {.panel_width = 0}), c10::ValueError);
}

TEST(SvgHeatMap, ThinsByAveraging) {
  HeatMap map{512, 1024, std::vector<double>(512 * 1024, 0.0)};
  map.values[0] = 1;
  map.values[4] = NAN;
  const HeatMap thin = svg::thin_heat_map(map, 256);
  EXPECT_EQ(thin.rows, 256);
  EXPECT_EQ(thin.columns, 256);
  EXPECT_DOUBLE_EQ(thin.values[0], 1.0 / 8);
  EXPECT_DOUBLE_EQ(thin.values[1], 0);
  EXPECT_EQ(svg::thin_heat_map({2, 3, {0, 0, 0, 0, 0, 0}}, 256).columns, 3);
}

TEST(SvgHeatMap, MergesCellsOfARow) {
  const std::string svg = svg::draw_heat_map({2, 4, {1, 1, 0, 1, 0, 0, 0, NAN}}, 0, 0, 40, 20);
  EXPECT_THAT(svg, HasSubstr("M0 0h2v1h-2zM3 0h1v1h-1z"));
  EXPECT_THAT(svg, HasSubstr("#d9d9d9"));
  expect_well_formed(svg);
}

TEST(SvgHeatMap, PanelOfAMask) {
  HeatMap map{64, 48, std::vector<double>(64 * 48, 0.0)};
  for (size_t i = 0; i < 48; ++i) map.values[i * 48 + i] = 1;
  const std::string svg =
      render_svg({{.title = "edges", .x_label = "key", .y_label = "query", .heat_map = map}});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr(">edges<"));
}

}  // namespace
}  // namespace edgewise::train
