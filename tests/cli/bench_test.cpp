// bench: what its JSON has and leaves out, and what is left of a benchmark whose last cell fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Too long for any tensor, and so refused at once on every machine.
const std::string kTooLong = "9000000000000000000";

// The number behind a key of a line of JSON.
double number_at(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\": ");
  return at == std::string::npos ? -1 : std::stod(json.substr(at + key.size() + 4));
}

TEST(Bench, KeepsTheRowsBeforeACellThatFails) {
  const ScratchFolder scratch;
  for (const char* what : {"attention", "step", "sample"}) {
    SCOPED_TRACE(what);
    const Call result =
        call(scratch, {"bench", what, "--n", "32", kTooLong, "--density", "0.5", "--seconds", "0.01"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.out, AllOf(HasSubstr(" 32 "), Not(HasSubstr(kTooLong))));
    EXPECT_THAT(result.err, AllOf(HasSubstr("bench " + std::string(what) + ": failed at "),
                                  HasSubstr("n = " + kTooLong)));
  }
}

TEST(BenchScaling, KeepsTheLengthsBeforeOneThatFails) {
  const ScratchFolder scratch;
  const Call result = call(scratch, {"bench", "scaling", "--n", "32", "64", kTooLong, "--rounds", "2",
                                     "--dense-up-to", "32", "--seconds", "0.01", "--json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("after 2 of 6 cells"));
  EXPECT_THAT(result.err, HasSubstr("the measurement of n = " + kTooLong + " failed: "));
  const size_t end = result.out.find('\n');
  const std::string first = result.out.substr(0, end), second = result.out.substr(end + 1);
  EXPECT_GT(number_at(first, "dense_ms"), 0);
  EXPECT_THAT(second, AllOf(HasSubstr("\"n\": 64"), Not(HasSubstr("dense_ms"))));
  EXPECT_THAT(second, ContainsRegex("\"peak_bytes\": [0-9]+[,}]")) << "a whole number";
}

TEST(BenchScaling, CountsSquaresOfAGroup) {
  const ScratchFolder scratch;
  const Call result =
      call(scratch, {"bench", "scaling", "--n", "512", "1000", "--unit", "16", "--edges-per-row", "4",
                     "--rounds", "1", "--dense-up-to", "0", "--seconds", "0.01", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NEAR(number_at(result.out, "edges_per_row"), 4, 2);
  EXPECT_EQ(number_at(result.out, "unit"), 16);
}

TEST(BenchSac, KeepsTheRowsBeforeALengthThatFails) {
  const ScratchFolder scratch;
  const Call result = call(scratch, {"bench", "sac", "--n", "40", kTooLong, "--dim", "8", "--alpha", "2",
                                     "--unit", "1", "--pairs-n", "0", "--seconds", "0.01", "--json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("bench sac: failed at n = " + kTooLong));
  EXPECT_THAT(result.out, ContainsRegex("\"peak_bytes\": [0-9]+, \"dense_peak_bytes\": [0-9]+,"));
}

TEST(BenchSample, TellsTheDensityDrawnFromTheOneAskedFor) {
  const ScratchFolder scratch;
  const auto bench = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench", "sample", "--model",   "sharp", "--density", "0.25",
                                          "--n",   "256",    "--seconds", "0.01",  "--sampler"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(scratch, arguments);
  };
  const Call clamped = bench({"auto", "--json"});
  ASSERT_EQ(clamped.status, 0) << clamped.err;
  EXPECT_EQ(number_at(clamped.out, "density"), 0.25);
  EXPECT_LT(number_at(clamped.out, "edge_density"), 0.22);
  EXPECT_GT(number_at(clamped.out, "edge_density"), 0.05);
  for (const char* key : {"fastrg_ms", "direct_ms", "speedup", "dense_ms"})
    EXPECT_THAT(clamped.out, Not(HasSubstr(key)));
  const Call half = bench({"auto", "--valid", "0.5", "--exploration", "1", "--json"});
  EXPECT_EQ(number_at(half.out, "edge_density"), 1) << "of the pairs that are not padding";
  // A sampler that is left out for its length takes no other's edges away.
  const Call skipped = bench({"direct", "fastrg", "--direct-up-to", "10", "--dim", "4", "--json"});
  ASSERT_EQ(skipped.status, 0) << skipped.err;
  EXPECT_GT(number_at(skipped.out, "edge_density"), 0.05);
  EXPECT_EQ(number_at(skipped.out, "speedup"), 1);
  EXPECT_GT(number_at(skipped.out, "step_speedup"), 0);
  EXPECT_THAT(bench({"auto"}).out, AllOf(HasSubstr("density asked"), HasSubstr("drawn")));
}

// The rows of a GPU can be read where there is none.
TEST(BenchCuda, DrawsWhatWasMeasuredBefore) {
  const ScratchFolder scratch;
  const auto row = [](int n, const char* graph) {
    return "{\"case\": \"training step\", \"n\": " + std::to_string(n) +
           R"(, "dim": 32, "clusters": 32, "density": 0.01, "dtype": "fp32", "edgewise_ms": 0.5, "dense_ms": 2, "ratio": 0.25)" +
           graph + "}\n";
  };
  const auto read = [&](const std::string& rows, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"bench",
                                          "cuda",
                                          "--from",
                                          scratch.write("rows.jsonl", rows),
                                          "--json",
                                          "--plot",
                                          scratch.file("plot.svg")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(scratch, arguments);
  };
  const std::string replayed = row(2048, ", \"graph\": 1") + row(4096, ", \"graph\": 1");
  const Call found = read(replayed);
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(found.out, replayed);
  EXPECT_THAT(found.err, HasSubstr("plot: "));
  EXPECT_THAT(scratch.read("plot.svg"),
              AllOf(HasSubstr("32 clusters, fp32, CUDA graphs"), HasSubstr("1 % of all pairs")));
  ASSERT_EQ(read(row(2048, "")).status, 0);
  EXPECT_THAT(scratch.read("plot.svg"),
              AllOf(testing::Not(HasSubstr("CUDA graphs")), testing::Not(HasSubstr("of all pairs"))));
  const Call other = read("{\"case\": \"train\", \"n\": 64, \"dense_ms\": 1.5}\n");
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("this one has no dim"));
  const Call filtered = read(replayed, {"--n", "2048"});
  EXPECT_EQ(filtered.status, 2);
  EXPECT_THAT(filtered.err, HasSubstr("excludes --from"));
}

TEST(BenchTrain, DrawsWhatWasMeasuredBefore) {
  const ScratchFolder scratch;
  const std::string plot = scratch.file("plot.svg");
  const Call measured = call(scratch, {"bench", "train", write_tiny_recipe(scratch), "--n", "32", "64",
                                       "--seconds", "0.01", "--json", "--plot", plot});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const std::string drawn = scratch.read("plot.svg");
  EXPECT_THAT(drawn, AllOf(HasSubstr("tiny.toml"), HasSubstr("time / dense attention")));

  const std::string rows = scratch.write("rows.jsonl", measured.out), again = scratch.file("again.svg");
  const Call read = call(scratch, {"bench", "train", "--from", rows, "--json", "--plot", again});
  ASSERT_EQ(read.status, 0) << read.err;
  EXPECT_EQ(scratch.read("again.svg"), drawn);
  EXPECT_EQ(number_at(read.out, "n"), 32);
  EXPECT_EQ(number_at(read.out, "edgewise_ms"), number_at(measured.out, "edgewise_ms"));

  const Call other =
      call(scratch, {"bench", "train", "--from", scratch.write("other.jsonl", "{\"n\": 3}\n")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("bench train --json` wrote; line 1 of "));
  const Call nothing = call(scratch, {"bench", "train", "--plot", plot});
  EXPECT_NE(nothing.status, 0);
  EXPECT_THAT(nothing.err, HasSubstr("a recipe, or --from"));
}

}  // namespace
}  // namespace edgewise::cli
