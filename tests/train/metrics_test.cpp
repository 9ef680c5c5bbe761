// The metrics log: exact numbers, torn lines, resuming.
#include <edgewise/train/metrics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

#include "kit/scratch_folder.h"

#include "train/run/metric_lines.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

MetricRecord at_step(int64_t step) {
  return {{"step", step}, {"loss", 1.0 / static_cast<double>(step + 1)}};
}

std::vector<int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  for (const MetricRecord& record : read_metrics(path))
    steps.push_back(std::get<int64_t>(*find_metric(record, "step")));
  return steps;
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST(Metrics, LineIsOrderedJson) {
  const MetricRecord record = {{"step", int64_t{3}},      {"loss", 0.1},
                               {"split", "a \"b\"\n"},    {"density", std::vector<double>{0.5, 1, NAN}},
                               {"big", int64_t{1} << 62}, {"whole", 2.0}};
  EXPECT_EQ(
      to_json_line(record),
      R"({"step": 3, "loss": 0.1, "split": "a \"b\"\n", "density": [0.5, 1.0, "nan"], "big": 4611686018427387904, "whole": 2.0})");
  EXPECT_EQ(to_json_line({}), "{}");
}

TEST(Metrics, EveryValueReadsBackExactly) {
  ScratchFolder folder;
  std::vector<double> doubles = {0.0,     -0.0, 0.1,         1.0 / 3,   1e300,
                                 -5e-324, 1e21, 123456789.0, kInfinity, -kInfinity};
  MetricRecord record = {
      {"step", std::numeric_limits<int64_t>::max()}, {"name", "text"}, {"values", doubles}};
  for (size_t i = 0; i < doubles.size(); ++i) record.emplace_back("value" + std::to_string(i), doubles[i]);
  MetricsWriter writer(folder.path());
  writer.write(record);
  const auto back = read_metrics(writer.path());
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0], record);
  EXPECT_TRUE(std::signbit(std::get<double>(*find_metric(back[0], "value1"))));
}

TEST(Metrics, NotANumberStaysOne) {
  ScratchFolder folder;
  MetricsWriter writer(folder.path());
  writer.write({{"step", int64_t{0}}, {"loss", NAN}});
  EXPECT_EQ(io::read_file(writer.path()), "{\"step\": 0, \"loss\": \"nan\"}\n");
  EXPECT_TRUE(std::isnan(std::get<double>(*find_metric(read_metrics(writer.path())[0], "loss"))));
}

TEST(Metrics, RecordsAreInTheFileAtOnceAndContinued) {
  ScratchFolder folder;
  {
    MetricsWriter writer(folder / "run/1");
    writer.write(at_step(0));
    EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(0));
  }
  MetricsWriter writer(folder / "run/1");
  writer.write(at_step(1));
  EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(0, 1));
}

TEST(Metrics, RefusesRecordsThatCannotBeResumed) {
  ScratchFolder folder;
  MetricsWriter writer(folder.path());
  EXPECT_THROW(writer.write({{"loss", 1.0}}), c10::ValueError);
  EXPECT_THROW(writer.write({{"step", 1.0}}), c10::ValueError);
  EXPECT_THROW(writer.write({{"step", int64_t{1}}, {"a", 1.0}, {"a", 2.0}}), c10::ValueError);
  EXPECT_EQ(io::read_file(writer.path()), "");
}

TEST(Metrics, TruncateAfter) {
  ScratchFolder folder;
  MetricsWriter writer(folder.path());
  for (int64_t step = 0; step < 10; ++step) writer.write(at_step(step));
  append_text(writer.path(), "{\"step\": 2, \"lo");  // torn, and within the steps to keep
  writer.truncate_after(4);
  EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(0, 1, 2, 3, 4));
  writer.write(at_step(5));  // reaches the new file, not the replaced one
  EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  writer.truncate_after(-1);
  EXPECT_EQ(io::read_file(writer.path()), "");
}

// What a power cut leaves: lines that were not synced may hold anything, one behind another may be whole.
TEST(Metrics, DamageBehindTheKeptLinesGoesAndDamageAmongThemIsNamed) {
  ScratchFolder folder;
  MetricsWriter writer(folder.path());
  const std::string zeros(20, '\0');
  for (int64_t step = 0; step < 3; ++step) writer.write(at_step(step));
  append_text(writer.path(), zeros + "\n{\"step\": 5}\n" + zeros);
  EXPECT_EQ(read_whole_metrics(writer.path()).size(), 4u);
  EXPECT_THROW(read_metrics(writer.path()), c10::ValueError);
  EXPECT_THROW(writer.truncate_after(5), c10::ValueError);
  MetricsWriter(folder.path()).truncate_after(2);
  EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(0, 1, 2));
}

TEST(Metrics, KeptLinesKeepTheirBytes) {
  ScratchFolder folder;
  const std::string text = "{\"loss\":1e0,\"step\":1}\n{ \"step\" : 2 }\n";
  io::write_file_atomically(folder / "metrics.jsonl", text);
  MetricsWriter(folder.path()).truncate_after(2);
  EXPECT_EQ(io::read_file(folder / "metrics.jsonl"), text);
}

TEST(Metrics, TornAtEveryByte) {
  const std::string whole =
      to_json_line({{"step", int64_t{1}}, {"loss", 0.25}, {"v", std::vector<double>{1, 2}}});
  for (size_t size = 0; size <= whole.size(); ++size) {
    ScratchFolder folder;
    io::write_file_atomically(folder / "metrics.jsonl", "{\"step\": 0}\n" + whole.substr(0, size));
    const size_t complete = size == whole.size() ? 2 : 1;
    EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), complete) << size;
    MetricsWriter writer(folder.path());
    writer.write(at_step(2));
    EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), complete + 1) << size;
  }
}

TEST(Metrics, MalformedLineIsNamed) {
  ScratchFolder folder;
  for (const std::string bad : {"nonsense", "[1]", "{\"a\": {}}", "{\"a\": [[1]]}", "{\"a\": null}",
                                "{\"a\": [\"x\"]}", "{\"a\": 1} x", "{\"a\": \"\xff\"}", "{\"a\": true}"}) {
    io::write_file_atomically(folder / "m", "{\"step\": 1}\n\n" + bad + "\n{\"step\": 2}\n");
    try {
      read_metrics(folder / "m");
      ADD_FAILURE() << bad;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr((folder / "m").string() + "' line 3"));
    }
  }
  EXPECT_THROW(read_metrics(folder / "missing"), std::system_error);
}

TEST(Metrics, DeepNestingIsSurvived) {
  ScratchFolder folder;
  io::write_file_atomically(folder / "m", "{\"a\": " + std::string(1'000'000, '[') + "\n");
  EXPECT_THROW(read_metrics(folder / "m"), c10::ValueError);
}

TEST(Metrics, ZeroBytesLeftByAPowerCutAreATornLine) {
  ScratchFolder folder;
  io::write_file_atomically(folder / "metrics.jsonl", "{\"step\": 1}\n" + std::string(100, '\0'));
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), 1u);
  MetricsWriter writer(folder.path());
  writer.write(at_step(2));
  EXPECT_THAT(steps_of(writer.path()), ::testing::ElementsAre(1, 2));
}

TEST(Metrics, MirroredToTensorBoard) {
  ScratchFolder folder;
  MetricsWriter writer(folder.path());
  writer.write({{"step", int64_t{1}},
                {"loss", 0.5},
                {"tokens", int64_t{9}},
                {"note", "x"},
                {"density", std::vector<double>{1, 2}}});
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().string().find("tfevents") != std::string::npos) events = io::read_file(entry.path());
  }
  for (const char* tag : {"loss", "tokens", "density/0", "density/1"}) EXPECT_THAT(events, HasSubstr(tag));
  EXPECT_THAT(events, ::testing::Not(HasSubstr("note")));
}

}  // namespace
}  // namespace edgewise::train
