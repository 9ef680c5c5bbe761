// Whether a shape pays: the numbers are those that were measured, and what was not is not known.
#include "doctor/verdict.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <edgewise/train/metrics.h>

namespace edgewise::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kResults = EDGEWISE_SOURCE_DIR "/results";

VerdictShape on_cpu(int64_t n, int64_t dim, double density) {
  return {n, dim, 2, density, "fp32", "cpu"};
}
VerdictShape on_gpu(int64_t n, int64_t dim, double density) {
  return {n, dim, 262144 / n, density, "bf16", "cuda"};
}

AttentionChoice predicted(double gather_ms, double blocks_ms, double dense_ms) {
  AttentionChoice choice;
  choice.implementation = gather_ms < blocks_ms ? "gather" : "blocks";
  choice.is_calibrated = true;
  choice.gather_ms = gather_ms, choice.blocks_ms = blocks_ms, choice.dense_ms = dense_ms;
  choice.break_even_density = 0.5;
  choice.heads = 2;
  choice.blocks_forward = gather_ms < blocks_ms ? 0 : 2;
  return choice;
}

AttentionChoice by(const std::string& implementation) {
  AttentionChoice choice;
  choice.implementation = implementation;
  return choice;
}

double number(const train::MetricRecord& record, const char* key) {
  const train::MetricValue& value = *train::find_metric(record, key);
  const int64_t* whole = std::get_if<int64_t>(&value);
  return whole ? static_cast<double>(*whole) : std::get<double>(value);
}

// Compares the points with the rows of a file whose cases end like this; returns how many there were.
size_t compared_with(const char* file, VerdictShape shape, const std::string& end, double tolerance) {
  size_t compared = 0;
  for (const train::MetricRecord& record : train::read_metrics(kResults / file)) {
    const auto& name = std::get<std::string>(*train::find_metric(record, "case"));
    const bool step = name == "training step" + end && number(record, "clusters") == 32;
    if (!step && name != "forward, edges given" + end) continue;
    shape.n = static_cast<int64_t>(number(record, "n")), shape.heads = 262144 / shape.n;
    shape.dim = static_cast<int64_t>(number(record, "dim"));
    for (const MeasuredPoint& point : measurements(step ? Part::kStep : Part::kForward, shape).points)
      if (point.n == shape.n && point.density == number(record, "density")) {
        ++compared;
        EXPECT_NEAR(1 / point.speedup, number(record, "ratio"), tolerance) << train::to_json_line(record);
      }
  }
  return compared;
}

TEST(Verdict, HasTheFiguresOfTheGpusResults) {
  VerdictShape shape = {.dtype = "bf16", .device = "cuda"};
  EXPECT_EQ(compared_with("h200/bench.jsonl", shape, "", 0.006), 60u);
  shape.dtype = "fp32";
  for (const auto& [matmul, points] :
       {std::pair{Float32Matmul::kTf32x3, 16u}, {Float32Matmul::kTf32, 16u}, {Float32Matmul::kIeee, 8u}}) {
    shape.matmul = matmul;
    EXPECT_EQ(compared_with("h200/fp32.jsonl", shape, ", fp32 " + std::string(to_string(matmul)), 0.0006),
              points);
  }
}

TEST(Verdict, HasTheFiguresOfOneHead) {
  size_t compared = 0;
  for (const train::MetricRecord& record : train::read_metrics(kResults / "h200/scaling.jsonl")) {
    const double n = number(record, "n");
    for (const MeasuredPoint& point :
         measurements(Part::kStep, {65536, 32, 1, 0.0005, "bf16", "cuda"}).points) {
      if (static_cast<double>(point.n) != n) continue;
      ++compared;
      EXPECT_NEAR(point.density, number(record, "edges") / n / n, 0.002 * point.density);
      const double ours =
          number(record, "sample_ms") + number(record, "forward_ms") + number(record, "backward_ms");
      EXPECT_NEAR(point.speedup, number(record, "dense_ms") / ours, 0.005) << n;
    }
  }
  EXPECT_EQ(compared, 2u);
}

// "step  2048   32   25.0 %  fp32  31.081  14 %  20.500  7 %  0.66  0.70"
TEST(Verdict, HasTheFiguresOfTheCpusResults) {
  std::ifstream file(kResults / "cpu/attention.txt");
  size_t compared = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, sign, dtype;
    double n = 0, dim = 0, density = 0, mine = 0, dense = 0, unused = 0, speedup = 0;
    if (!(words >> name >> n >> dim >> density >> sign >> dtype >> mine >> unused >> sign >> dense >>
          unused >> sign >> speedup) ||
        name != "step")
      continue;
    for (const MeasuredPoint& point :
         measurements(Part::kStep, on_cpu(2048, static_cast<int64_t>(dim), density / 100)).points)
      if (std::abs(point.density - density / 100) < 1e-9) {
        ++compared;
        EXPECT_EQ(static_cast<double>(point.n), n);
        EXPECT_EQ(point.speedup, speedup) << line;
      }
  }
  EXPECT_EQ(compared, 6u);
}

TEST(Verdict, ForwardOnACpuFollowsThePrediction) {
  const Verdict fast = forward_verdict(on_cpu(2048, 32, 0.1), predicted(2, 18, 10));
  EXPECT_EQ(fast.pays, "yes");
  EXPECT_EQ(fast.at_least, 5);
  EXPECT_THAT(fast.why, AllOf(HasSubstr("predicted 5.00 times as fast"), HasSubstr("50 % of the pairs")));
  const Verdict slow = forward_verdict(on_cpu(2048, 32, 0.9), predicted(30, 20, 10));
  EXPECT_EQ(slow.pays, "no");
  EXPECT_EQ(slow.at_most, 0.5) << "blocks run";
  AttentionChoice dense = predicted(30, 20, 10);
  dense.implementation = "dense";
  EXPECT_EQ(forward_verdict(on_cpu(2048, 32, 1), dense).pays, "no");
  const Verdict other = forward_verdict({2048, 32, 2, 0.1, "fp64", "cpu"}, by("gather"));
  EXPECT_EQ(other.pays, "unknown");
  EXPECT_THAT(other.why,
              HasSubstr("edgewise bench attention --n 2048 --dim 32 --density 0.1 --dtype fp64 --heads 2"));
}

TEST(Verdict, AStepOnACpuIsKnownAtOneLength) {
  const AttentionChoice choice = predicted(2, 18, 10);
  const auto verdict = [&](int64_t n, int64_t dim, double density) {
    return step_verdict(on_cpu(n, dim, density), choice);
  };
  EXPECT_EQ(verdict(2048, 32, 0.1).pays, "yes");
  EXPECT_THAT(verdict(2048, 32, 0.1).why,
              HasSubstr("1.33 times as fast as dense attention with 32 clusters"));
  EXPECT_EQ(verdict(2048, 32, 0.05).pays, "yes");
  EXPECT_EQ(verdict(2048, 32, 0.05).at_least, 1.33);
  EXPECT_EQ(verdict(2048, 32, 0.05).at_most, 3.49);
  EXPECT_EQ(verdict(2048, 32, 0.001).at_most, std::nullopt);
  EXPECT_EQ(verdict(2048, 32, 0.25).pays, "no");
  EXPECT_EQ(verdict(2048, 32, 0.5).pays, "no");
  const Verdict between = verdict(2048, 32, 0.15);
  EXPECT_EQ(between.pays, "unknown");
  EXPECT_THAT(between.why,
              AllOf(HasSubstr("between 0.66 and 1.33"), HasSubstr("edgewise bench step --n 2048")));
  for (const Verdict& unknown : {verdict(1024, 32, 0.01), verdict(4096, 32, 0.01), verdict(2048, 48, 0.01),
                                 step_verdict(on_cpu(2048, 32, 0.01), by("gather"))}) {
    EXPECT_EQ(unknown.pays, "unknown") << unknown.why;
    EXPECT_EQ(unknown.at_least, std::nullopt);
    EXPECT_THAT(unknown.why, HasSubstr("measure it: edgewise bench step"));
  }
}

TEST(Verdict, OnAGpuOtherLengthsAndDensitiesBoundAShape) {
  const auto step = [&](int64_t n, int64_t dim, double density) {
    return step_verdict(on_gpu(n, dim, density), by("tiles"));
  };
  // As docs/performance.md has it: at 1 % from 2,048 tokens on, at 2 % from 8,192 on.
  EXPECT_EQ(step(2048, 32, 0.01).pays, "yes");
  EXPECT_EQ(step(4096, 32, 0.01).pays, "yes");
  EXPECT_EQ(step(2048, 32, 0.02).pays, "no");
  EXPECT_EQ(step(4096, 32, 0.02).pays, "even");
  EXPECT_EQ(step(8192, 32, 0.02).pays, "yes");
  EXPECT_EQ(step(16384, 32, 0.005).pays, "yes");
  EXPECT_EQ(step(32768, 32, 0.005).pays, "yes");
  EXPECT_EQ(step(131072, 32, 0.001).pays, "unknown") << "other kernels than were measured";
  EXPECT_EQ(step(6000, 32, 0.02).pays, "unknown") << "the lengths around it differ";
  EXPECT_EQ(step(1024, 32, 0.1).pays, "no");
  EXPECT_EQ(step(1024, 32, 0.001).pays, "unknown");
  EXPECT_EQ(step(16384, 32, 0.1).pays, "unknown");
  const Verdict forward = forward_verdict(on_gpu(4096, 32, 0.1), by("tiles"));
  EXPECT_EQ(forward.pays, "yes");
  EXPECT_THAT(forward.why, AllOf(HasSubstr("1.20 times as fast"), HasSubstr("H200")));
  EXPECT_EQ(forward_verdict(on_gpu(4096, 64, 0.1), by("tiles")).pays, "no");
  EXPECT_EQ(forward_verdict(on_gpu(4096, 64, 0.02), by("tiles")).pays, "yes");
  const Verdict noisy = forward_verdict(on_gpu(5000, 32, 0.15), by("tiles"));
  EXPECT_LE(*noisy.at_least, *noisy.at_most);
  EXPECT_EQ(forward_verdict(on_gpu(4096, 32, 0.1), by("reference")).pays, "unknown");
  const Verdict other = step_verdict({4096, 16, 64, 0.1, "fp32", "cuda"}, by("tiles"));
  EXPECT_EQ(other.pays, "unknown");
  EXPECT_THAT(
      other.why,
      HasSubstr("edgewise bench cuda --n 4096 --dim 16 --density 0.1 --dtype fp32 --heads 64 --graph"));
  EXPECT_THAT(step_verdict({64, 32, 4096, 0.1, "fp64", "cuda"}, by("reference")).why,
              Not(HasSubstr("bench")));
}

TEST(Verdict, MeasuredIsSaidOfWhatWasMeasuredAlone) {
  const auto why = [](const VerdictShape& shape) { return forward_verdict(shape, by("tiles")).why; };
  EXPECT_THAT(why(on_gpu(4096, 32, 0.1)),
              AllOf(HasSubstr(", measured on an H200"), Not(HasSubstr("expected"))));
  const std::string expected = "expected from n = 2048 to 8192 as measured on an H200";
  EXPECT_THAT(why(on_gpu(4096, 32, 0.005)), HasSubstr(expected));
  EXPECT_THAT(why(on_gpu(16384, 32, 0.01)), HasSubstr(expected));
  EXPECT_THAT(why({4096, 32, 640, 0.1, "bf16", "cuda"}), HasSubstr(expected)) << "ten times the heads";
  const Verdict step = step_verdict(on_cpu(2048, 32, 0.05), predicted(2, 18, 10));
  EXPECT_THAT(step.why, HasSubstr("expected from n = 2048 as measured on two cores"));
}

TEST(Verdict, OnAGpuWhatOtherKernelsRunIsNotKnown) {
  const auto expect_unknown = [](const VerdictShape& shape, const char* why) {
    for (const Verdict& verdict : {forward_verdict(shape, by("gather")), step_verdict(shape, by("gather"))}) {
      EXPECT_EQ(verdict.pays, "unknown") << why;
      EXPECT_EQ(verdict.at_least, std::nullopt);
      EXPECT_THAT(verdict.why, HasSubstr(why));
    }
  };
  expect_unknown({32768, 32, 8, 0.0001, "bf16", "cuda"}, "lists of edges");
  expect_unknown({16384, 32, 1000, 0.002, "bf16", "cuda"}, "lists of edges");
  expect_unknown({4096, 32, 1024, 0.01, "fp32", "cuda"}, "lists of edges");
  expect_unknown({8192, 32, 800, 0.01, "bf16", "cuda"}, "do not fit into an H200");
  expect_unknown({256, 32, 70000, 0.01, "bf16", "cuda"}, "65,535 items x heads");
  // The same lengths where bit tiles are drawn.
  EXPECT_EQ(forward_verdict({32768, 32, 8, 0.005, "bf16", "cuda"}, by("gather")).pays, "yes");
  EXPECT_EQ(forward_verdict({8192, 32, 800, 0.1, "bf16", "cuda"}, by("tiles")).pays, "yes");
}

TEST(Verdict, AdvisesOnlyWhatCanRun) {
  const auto why = [](const VerdictShape& shape, const char* implementation) {
    return step_verdict(shape, by(implementation)).why;
  };
  const auto is_too_large = AllOf(HasSubstr("an H200 has 139.0 GiB"), Not(HasSubstr("bench")));
  EXPECT_THAT(why({100000000, 32, 2, 0.01, "fp32", "cuda"}, "gather"), is_too_large);
  EXPECT_THAT(why({4096, 32, 9000000000, 0.01, "bf16", "cuda"}, "gather"), is_too_large);
  EXPECT_THAT(why({4096, 80, 70000, 0.1, "bf16", "cuda"}, "reference"), is_too_large);
  EXPECT_THAT(why({1000000, 32, 64, 0.00001, "bf16", "cuda"}, "gather"), Not(HasSubstr("bench")))
      << "dense attention beside it would take hours";
  EXPECT_THAT(why({4096, 80, 64, 0.1, "bf16", "cuda"}, "reference"), HasSubstr("edgewise bench cuda"));
  EXPECT_THAT(why({4096, 80, 1000, 0.1, "bf16", "cuda"}, "reference"),
              AllOf(HasSubstr("the reference runs"), Not(HasSubstr("bench"))))
      << "numbers of all pairs would not fit";
  EXPECT_THAT(why({1000000, 32, 2, 0.00001, "bf16", "cpu"}, "gather"), Not(HasSubstr("bench")));
}

TEST(Verdict, OnAGpuFp32IsKnownAtOneLengthByItsProducts) {
  VerdictShape shape = {4096, 64, 64, 0.25, "fp32", "cuda"};
  const auto step = [&] { return step_verdict(shape, by("tiles")); };
  EXPECT_EQ(step().pays, "no");
  EXPECT_THAT(step().why, HasSubstr("tf32x3 products"));
  shape.matmul = Float32Matmul::kTf32;
  EXPECT_EQ(step().pays, "yes");
  shape.density = 0.1;
  shape.matmul = Float32Matmul::kIeee;
  EXPECT_EQ(step().pays, "no");
  EXPECT_EQ(forward_verdict(shape, by("gather")).pays, "yes");
  shape.n = 8192;
  EXPECT_EQ(step().at_most, std::nullopt);
  EXPECT_THAT(step().why, HasSubstr("this length was not measured (n = 4096 was"));
}

// What is true of many heads was measured to be wrong of one (results/h200/scaling.jsonl).
TEST(Verdict, OnAGpuAFewHeadsAreNotKnown) {
  const VerdictShape few = {8192, 32, 2, 0.002, "bf16", "cuda"};
  const Verdict step = step_verdict(few, by("tiles"));
  EXPECT_EQ(step.pays, "unknown");
  EXPECT_EQ(step.at_least, std::nullopt);
  EXPECT_THAT(step.why, AllOf(HasSubstr("these are 16384, too few"),
                              HasSubstr("edgewise bench cuda --n 8192 --dim 32 --density 0.002 --dtype bf16 "
                                        "--heads 2 --tokens 16384")));
  EXPECT_EQ(forward_verdict(few, by("tiles")).pays, "unknown");
  const auto with_heads = [&](int64_t heads) {
    VerdictShape shape = few;
    shape.heads = heads;
    return step_verdict(shape, by("tiles")).pays;
  };
  EXPECT_EQ(with_heads(15), "unknown");
  EXPECT_EQ(with_heads(16), "yes") << "half of what was measured";
  EXPECT_EQ(with_heads(500), "yes");
}

TEST(Verdict, OnAGpuOneHeadWasMeasuredForItself) {
  const auto step = [](int64_t n, double density) {
    return step_verdict({n, 32, 1, density, "bf16", "cuda"}, by("gather"));
  };
  EXPECT_EQ(step(65536, 0.0005).pays, "yes");
  EXPECT_THAT(step(65536, 0.0005).why,
              AllOf(HasSubstr("4.33 times as fast"), HasSubstr("measured on an H200 with one head"),
                    Not(HasSubstr("expected"))));
  EXPECT_EQ(step(16384, 0.002).pays, "no");
  EXPECT_THAT(step(262144, 0.0001).why, HasSubstr("expected from n = 16384 to 65536"));
  EXPECT_EQ(step(32768, 0.001).pays, "unknown");
  EXPECT_EQ(step(65536, 0.01).pays, "unknown");
  EXPECT_EQ(forward_verdict({65536, 32, 1, 0.0005, "bf16", "cuda"}, by("gather")).pays, "unknown");
}

}  // namespace
}  // namespace edgewise::app
