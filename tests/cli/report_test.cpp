// compare and report: runs side by side, baselines of their own data, a run as one HTML file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/call.h"
#include "cli/written_runs.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

TEST(Compare, MakesOneRowOfRunsThatDifferInTheirSeed) {
  const ScratchFolder scratch;
  write_run(scratch, "dense-0", listops_recipe("kind = \"dense\"", 0), "0.37", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "dense-1", listops_recipe("kind = \"dense\"", 1), "0.38", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "full-0", listops_recipe("kind = \"full\"", 0), "0.39", "[1.0, 1.0, 1.0, 1.0]");
  const std::vector<std::string> runs = {scratch.file("dense-0"), scratch.file("dense-1"),
                                         scratch.file("full-0")};
  const auto compare = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"compare"};
    arguments.insert(arguments.end(), runs.begin(), runs.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(scratch, arguments);
  };
  const Call together = compare({"--seeds", "--svg", scratch.file("curves.svg")});
  ASSERT_EQ(together.status, 0) << together.err;
  EXPECT_THAT(together.out, testing::ContainsRegex("dense  +5000  +37.50 ± 0.71 \\(2\\)"));
  EXPECT_THAT(together.out, testing::ContainsRegex("full-0  +5000  +39.00 "));
  EXPECT_THAT(together.out, testing::Not(HasSubstr("dense-0")));
  EXPECT_THAT(scratch.read("curves.svg"), HasSubstr(">dense<"));
  const Call alone = compare({});
  EXPECT_THAT(alone.out, testing::AllOf(HasSubstr("dense-0"), HasSubstr("dense-1")));
  const Call twice = compare({scratch.file("dense-1")});
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.err, HasSubstr("twice"));
  // Seeds that begin with the same digit.
  write_run(scratch, "seed-10", listops_recipe("kind = \"dense\"", 10), "0.37", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "seed-11", listops_recipe("kind = \"dense\"", 11), "0.38", "[1.0, 1.0, 1.0, 1.0]");
  const Call tens = call(scratch, {"compare", scratch.file("seed-10"), scratch.file("seed-11"), "--seeds"});
  EXPECT_THAT(tens.out, testing::Not(HasSubstr("seed-1 ")));
}

// Where a recipe says that its data lies, other data may lie by now.
TEST(Baselines, AreOfTheRunsOwnData) {
  const ScratchFolder scratch;
  ASSERT_EQ(call(scratch, {"data", "listops", "--out", scratch.file("data"), "--train", "3", "--validation",
                           "2", "--test", "4", "--jobs", "1"})
                .status,
            0);
  std::string recipe = listops_recipe("kind = \"dense\"", 0);
  recipe.replace(recipe.find("none"), 4, scratch.file("data"));
  write_run(scratch, "run", recipe, "0.37", "[1.0, 1.0, 1.0, 1.0]");
  const auto compare = [&] { return call(scratch, {"compare", scratch.file("run")}); };
  const auto reproduce = [&] { return call(scratch, {"reproduce", "lra", scratch.file("run")}); };
  const std::string on_test_set = "% (on the test set in " + scratch.file("data") + ")";
  const auto expect_baselines = [&] {
    const Call compared = compare();
    EXPECT_THAT(compared.out, HasSubstr("(first token only)"));
    EXPECT_EQ(compared.err, "");
    EXPECT_THAT(reproduce().out, HasSubstr(on_test_set));
  };
  expect_baselines();  // a run that did not note its data
  scratch.write("run/data.json", "{\"name\": \"listops\", \"train\": 3, \"validation\": 2, \"test\": 4}\n");
  expect_baselines();

  scratch.write("run/data.json",
                "{\"name\": \"listops\", \"train\": 96000, \"validation\": 2000, \"test\": 2000}\n");
  const Call compared = compare(), reproduced = reproduce();
  EXPECT_EQ(compared.status, 0);
  EXPECT_THAT(compared.out, testing::AllOf(HasSubstr("37.00"), testing::Not(HasSubstr("first token"))));
  EXPECT_THAT(compared.err, testing::AllOf(HasSubstr("no baselines: "), HasSubstr("expected the data of "),
                                           HasSubstr("\"test\": 2000}"), HasSubstr("\"test\": 4}")));
  EXPECT_EQ(reproduced.status, 0);
  EXPECT_THAT(reproduced.out, HasSubstr("the first token alone: 36.20 % (of the distribution)"));
  EXPECT_THAT(reproduced.err, HasSubstr("\"test\": 4}"));

  // Files that cannot be read keep nobody from the table.
  std::filesystem::remove(scratch / "data/basic_train.tsv");
  const Call unreadable = compare();
  EXPECT_EQ(unreadable.status, 0);
  EXPECT_THAT(unreadable.out, HasSubstr("37.00"));
  EXPECT_THAT(unreadable.err, HasSubstr("no baselines: no ListOps data in "));
}

// The report of a run of a Pathfinder recipe, a few steps on 40 pictures.
std::string pathfinder_report(const ScratchFolder& scratch, const std::string& recipe,
                              const std::vector<std::string>& settings) {
  EXPECT_EQ(call(scratch, {"data", "pathfinder", "--generate", "--size", "40", "--out", scratch.file("data")})
                .status,
            0);
  std::vector<std::string> train = {"train", EDGEWISE_SOURCE_DIR "/recipes/lra/pathfinder/" + recipe, "--run",
                                    scratch.file("run"), "--quiet"};
  std::vector<std::string> all = {"data.path=" + scratch.file("data"), "train.warmup_steps=0",
                                  "train.batch=2", "train.threads=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  for (const std::string& setting : all) train.insert(train.end(), {"--set", setting});
  const Call trained = call(scratch, train);
  EXPECT_EQ(trained.status, 0) << trained.err;
  const Call reported = call(scratch, {"report", scratch.file("run"), "--show", "1"});
  EXPECT_EQ(reported.status, 0) << reported.err;
  EXPECT_EQ(reported.out, scratch.file("run/report.html") + "\n");
  return scratch.read("run/report.html");
}

TEST(Report, HasCurvesDensitiesSettingsAndPictures) {
  const ScratchFolder scratch;
  const std::string html = pathfinder_report(scratch, "sbm-edgewise.toml",
                                             {"train.steps=2", "train.log_every=1", "sbm.clusters=4"});
  for (const char* part :
       {"<!DOCTYPE html>", "Training loss", "Validation accuracy", "Density by layer and head",
        "layer 1, head 1", "best on validation", "most frequent label", "<h3>Easy</h3>", "<h3>Hard</h3>",
        "data:image/png;base64,iVBOR", "density_weight = 0.01", "torch_version", "</html>"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_EQ(html.find("http://www.w3.org/2000/svg"), html.find("http"));  // nothing is loaded from elsewhere
  EXPECT_EQ(html.find("https:"), std::string::npos);
}

// At its start a head has a quarter of the pairs: of those of lit pixels, when black ones are masked.
TEST(Report, PicturesCountPairsOfUnmaskedPixels) {
  const ScratchFolder scratch;
  const std::string html =
      pathfinder_report(scratch, "best-sbm-edgewise.toml",
                        {"train.steps=1", "train.density_start=0", "train.density_warmup=0"});
  const std::string caption = "<figcaption>layer 1, head 1: ";
  const size_t at = html.find(caption);
  ASSERT_NE(at, std::string::npos);
  EXPECT_NEAR(std::stod(html.substr(at + caption.size())), 25, 3);
}

TEST(Report, SaysWhyThereAreNoPictures) {
  const ScratchFolder scratch;
  write_run(scratch, "run", listops_recipe("kind = \"sbm\"", 0), "0.4", "[0.1, 0.1, 0.1, 0.1]");
  const Call result = call(scratch, {"report", scratch.file("run"), "--out", scratch.file("r.html")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the inputs of listops are no pictures"));
  EXPECT_THAT(scratch.read("r.html"),
              testing::AllOf(HasSubstr("40.00 %"), HasSubstr("There is no env.json")));
}

}  // namespace
}  // namespace edgewise::cli
