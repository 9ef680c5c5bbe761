// Progress with a clock of its own, so that every line is known.
#include <edgewise/train/progress.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace edgewise::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int64_t count(const std::string& text, char c) {
  return std::count(text.begin(), text.end(), c);
}

ProgressView example() {
  return {.label = "train",
          .done = 1200,
          .total = 5000,
          .rate = 35.2,
          .elapsed = 34.1,
          .fields = {{"loss", "1.234"}, {"density", "0.21"}}};
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(7.9), "0:07");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(11109), "3:05:09");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 4 * 60), "2d 03:04");
  EXPECT_EQ(format_duration(-1), "0:00");
  EXPECT_EQ(format_duration(1e300), "--:--");
}

TEST(Progress, Rates) {
  EXPECT_EQ(format_rate(35.24, "step"), "35.2 step/s");
  EXPECT_EQ(format_rate(1234.5, "item"), "1234 item/s");
  EXPECT_EQ(format_rate(0.08, "step"), "12.5 s/step");
  EXPECT_EQ(format_rate(0, "step"), "");
}

TEST(Progress, PlainLine) {
  EXPECT_EQ(format_progress_line(example()),
            "train 1200/5000 (24%), 35.2 step/s, 1:48 left, loss=1.234, density=0.21");
  EXPECT_EQ(format_progress_line({.label = "read", .done = 7, .unit = "file"}), "read 7 file, 0:00");
}

TEST(Progress, BarAsText) {
  EXPECT_EQ(
      format_progress_bar(example(), {.width = 100}),
      "train  1200/5000 24% [=====>                      ]  1:48 left  35.2 step/s  loss=1.234 density=0.21");
  ProgressView done = example();
  done.done = 5000;
  EXPECT_THAT(format_progress_bar(done, {.width = 100}), HasSubstr("[====="));
  EXPECT_THAT(format_progress_bar(done, {.width = 100}), HasSubstr("in 0:34"));
}

TEST(Progress, NeverWiderThanTheTerminal) {
  ProgressView view = example();
  view.label = "\u00fcben";
  for (const bool unicode : {false, true}) {
    for (int width = 0; width < 130; ++width) {
      const std::string line = format_progress_bar(view, {.width = width, .unicode = unicode});
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, width) << line;
    }
  }
  EXPECT_EQ(format_progress_bar(view, {.width = 22}), "\u00fcben  1200/5000 24%");
}

TEST(Progress, ColourOnlyWhenAsked) {
  EXPECT_THAT(format_progress_bar(example(), {.width = 100, .unicode = true}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(format_progress_bar(example(), {.width = 100, .colour = true, .unicode = true}),
              HasSubstr("\x1b[32m"));
}

TEST(Progress, ControlCharactersDoNotBreakTheLine) {
  ProgressView view = example();
  view.fields = {{"a\nb", "1\r2\x1b"}};
  EXPECT_THAT(format_progress_line(view), HasSubstr("a b=1 2 "));
}

TEST(Progress, PlainLinesEveryFewSeconds) {
  std::ostringstream out;
  double time = 0;
  Progress progress({.label = "train",
                     .total = 1000,
                     .style = ProgressStyle::kPlain,
                     .plain_seconds = 10,
                     .out = &out,
                     .clock = [&] { return time; }});
  for (int step = 1; step <= 1000; ++step) {
    time = 0.1 * step;
    progress.update(step, {{"loss", "0.5"}});
  }
  progress.finish();
  progress.finish();  // once is enough
  EXPECT_NEAR(static_cast<double>(count(out.str(), '\n')), 10, 1);
  EXPECT_THAT(out.str(), ::testing::StartsWith("train 100/1000 (10%), 10.0 step/s, 1:30 left"));
  EXPECT_THAT(out.str(), HasSubstr("train 1000/1000 (100%), 10.0 step/s, in 1:40, loss=0.5\n"));
  EXPECT_EQ(count(out.str(), '\r'), 0);
  EXPECT_EQ(count(out.str(), '\x1b'), 0);
}

TEST(Progress, ResumedRunDoesNotCountOldSteps) {
  std::ostringstream out;
  double time = 0;
  Progress progress({.label = "train",
                     .total = 1000,
                     .start = 900,
                     .style = ProgressStyle::kPlain,
                     .out = &out,
                     .clock = [&] { return time; }});
  time = 10;
  progress.update(950);
  EXPECT_EQ(out.str(), "train 950/1000 (95%), 5.0 step/s, 0:10 left\n");
}

TEST(Progress, RateFollowsAChange) {
  std::ostringstream out;
  double time = 0;
  Progress progress(
      {.total = 100000, .style = ProgressStyle::kPlain, .out = &out, .clock = [&] { return time; }});
  for (int i = 1; i <= 100; ++i) time = i, progress.update(i);
  for (int i = 1; i <= 100; ++i) time = 100 + i, progress.update(100 + 50 * i);
  const std::string last = out.str().substr(out.str().rfind("5100"));
  EXPECT_THAT(last, ::testing::AnyOf(HasSubstr("49."), HasSubstr("50.")));
}

TEST(Progress, BarRedrawsAtMostTenTimesASecond) {
  std::ostringstream out;
  double time = 0;
  Progress progress(
      {.label = "train", .total = 10000, .style = ProgressStyle::kBar, .out = &out, .clock = [&] {
         return time;
       }});
  for (int step = 1; step <= 10000; ++step) {
    time = 0.001 * step;
    progress.update(step);
  }
  progress.finish();
  EXPECT_LE(count(out.str(), '\r'), 103);
  EXPECT_GE(count(out.str(), '\r'), 80);
  EXPECT_EQ(count(out.str(), '\n'), 1);
}

TEST(Progress, MessageMovesTheBarDown) {
  std::ostringstream out;
  {
    Progress progress({.label = "train", .total = 10, .style = ProgressStyle::kBar, .out = &out});
    progress.update(1);
    progress.message("saved a checkpoint");
  }
  EXPECT_THAT(out.str(), HasSubstr("\r\x1b[Ksaved a checkpoint\n\rtrain"));
  EXPECT_EQ(out.str().back(), '\n');  // an unfinished bar still ends its line
}

TEST(Progress, ATransientBarLeavesNothing) {
  for (const bool finished : {true, false}) {  // false: what it showed the progress of has failed
    std::ostringstream out;
    {
      Progress progress(
          {.label = "eval", .total = 10, .style = ProgressStyle::kBar, .transient = true, .out = &out});
      progress.update(1);
      EXPECT_THAT(out.str(), HasSubstr("eval  1/10"));
      if (finished) progress.finish();
    }
    EXPECT_THAT(out.str(), ::testing::EndsWith("\r\x1b[K"));
    EXPECT_EQ(count(out.str(), '\n'), 0);
  }
}

TEST(Progress, ATransientJobIsLoggedOnlyWhenItIsLong) {
  const auto log_of = [](double seconds) {
    std::ostringstream out;
    double time = 0;
    Progress progress({.label = "eval",
                       .total = 100,
                       .unit = "example",
                       .style = ProgressStyle::kPlain,
                       .transient = true,
                       .out = &out,
                       .clock = [&] { return time; }});
    for (int done = 1; done <= 100; ++done) {
      time = seconds * done / 100;
      progress.update(done);
    }
    progress.finish();
    return out.str();
  };
  EXPECT_EQ(log_of(9.9), "");
  EXPECT_EQ(log_of(16),
            "eval 63/100 (63%), 6.2 example/s, 0:06 left\neval 100/100 (100%), 6.2 example/s, in 0:16\n");
}

TEST(Progress, HiddenUntilTheNextUpdate) {
  std::ostringstream out;
  Progress progress(
      {.label = "cost", .total = 10, .style = ProgressStyle::kBar, .out = &out, .clock = [] { return 0.; }});
  progress.update(1);
  progress.hide();
  EXPECT_THAT(out.str(), ::testing::EndsWith("\r\x1b[K"));
  progress.message("a line");
  EXPECT_THAT(out.str(), ::testing::EndsWith("\r\x1b[Ka line\n"));
  progress.update(2);  // at once, although no time has passed
  EXPECT_THAT(out.str(), HasSubstr("cost  2/10"));
}

TEST(Progress, APhaseIsShownInTheLineOfItsJob) {
  ProgressView view = example();
  view.phase = format_phase("validating", 640, 1600);
  EXPECT_EQ(format_progress_line(view),
            "train 1200/5000 (24%), validating 40%, 35.2 step/s, 1:48 left, loss=1.234, density=0.21");
  EXPECT_THAT(format_progress_bar(view, {.width = 90}),
              HasSubstr(">            ]  validating 40%  1:48 left  loss=1.234 density=0.21"));

  std::ostringstream out;
  Progress progress({.label = "train", .total = 10, .style = ProgressStyle::kBar, .out = &out});
  progress.update(1);
  progress.begin_phase("validating");
  progress.update_phase(0, 0);
  progress.end_phase();
  progress.message("step 1: validation accuracy 0.5");
  EXPECT_THAT(out.str(), ::testing::EndsWith("\x1b[K"));
  EXPECT_THAT(out.str().substr(out.str().find("accuracy 0.5")), Not(HasSubstr("validating")));
  EXPECT_EQ(count(out.str(), '\n'), 1);
}

// Neither the rate nor the time left hear of a phase, and a log hears of long ones only.
TEST(Progress, APhaseDoesNotCountInTheRate) {
  std::ostringstream out;
  double time = 0;
  Progress progress(
      {.label = "train", .total = 1000, .style = ProgressStyle::kPlain, .out = &out, .clock = [&] {
         return time;
       }});
  const auto validate = [&](int seconds) {
    progress.begin_phase("validating");
    for (int second = 1; second <= seconds; ++second) {
      time += 1;
      progress.update_phase(second, seconds);
    }
    progress.end_phase();
  };
  for (int step = 1; step <= 18; ++step) time = 0.5 * step, progress.update(step);
  validate(9);
  EXPECT_EQ(out.str(), "");
  time += 1;
  progress.update(20);
  EXPECT_EQ(out.str(), "train 20/1000 (2%), 2.0 step/s, 8:10 left\n");
  validate(25);
  EXPECT_THAT(out.str(), HasSubstr("\ntrain 20/1000 (2%), validating 40%, 2.0 step/s, 8:10 left\n"
                                   "train 20/1000 (2%), validating 80%, 2.0 step/s, 8:10 left\n"));
  progress.finish();
  EXPECT_THAT(out.str(), ::testing::EndsWith("train 20/1000 (2%), 2.0 step/s, in 0:44\n"))
      << "nothing is left";
}

TEST(Progress, NoneSaysNothing) {
  std::ostringstream out;
  Progress progress({.total = 10, .style = ProgressStyle::kNone, .out = &out});
  progress.update(5);
  progress.message("x");
  progress.finish();
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace edgewise::train
