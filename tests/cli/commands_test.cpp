// The commands that need no run folder: doctor, sample, data, bench, cost; and the profile of a run.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/ops/sample.h>
#include <edgewise/version.h>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

TEST(Doctor, FindsNothingWrong) {
  const ScratchFolder scratch;
  const Call result = call(scratch, {"doctor"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              testing::AllOf(HasSubstr(version()), HasSubstr("self-test"),
                             testing::ContainsRegex("ok \\(largest [a-z ]+ [0-9.]+e[-+][0-9]+\\)")));
}

TEST(Doctor, ExplainsTheChoiceForAShape) {
  const ScratchFolder scratch;
  const Call sparse = call(scratch, {"doctor", "--explain", "--n", "64", "--density", "0.1"});
  EXPECT_EQ(sparse.status, 0) << sparse.err;
  EXPECT_THAT(sparse.out,
              testing::AllOf(HasSubstr("cpu gather on "), testing::ContainsRegex("cpu gather +runs"),
                             testing::ContainsRegex("cpu dense +some pairs are no edges"),
                             testing::ContainsRegex("cuda tiles +the tensors are not on a GPU")));
  const Call full = call(scratch, {"doctor", "--explain", "--n", "64", "--density", "1"});
  EXPECT_THAT(full.out, testing::AllOf(testing::ContainsRegex("cpu dense +runs"),
                                       testing::ContainsRegex("cpu gather +would run")));
  const auto in_bf16 = [&](const char* density) {
    return call(scratch, {"doctor", "--explain", "--n", "1024", "--density", density, "--dtype", "bf16"}).out;
  };
  EXPECT_THAT(in_bf16("0.01"), HasSubstr("read as bf16, not widened to fp32: a key is read 10"));
  EXPECT_THAT(in_bf16("0.95"), HasSubstr("widened to fp32 once per call"));
  EXPECT_EQ(full.out.find("bf16 rows"), std::string::npos);
  const Call wrong = call(scratch, {"doctor", "--explain", "--density", "1.5"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("expected a number from 0 to 1; got '1.5'"));
  // About 21 edges of two million pairs: 0.0010 %.
  EXPECT_THAT(call(scratch, {"doctor", "--explain", "--n", "1024", "--density", "0.00001"}).out,
              testing::ContainsRegex("\\(0\\.00[0-2][0-9]+ %\\)"));
  EXPECT_EQ(call(scratch, {"doctor", "--explain", "--n", "64", "--density", "0"}).status, 0);
}

TEST(Doctor, ExplainsAsOneObject) {
  const ScratchFolder scratch;
  const Call result = call(scratch, {"doctor", "--explain", "--n", "2048", "--density", "0.25", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  EXPECT_THAT(result.out, testing::AllOf(testing::StartsWith("{\"n\": 2048, \"dim\": 32, \"heads\": 2, "),
                                         HasSubstr("\"implementation\": \"cpu gather\""),
                                         HasSubstr("\"cpu gather\": \"runs\""),
                                         HasSubstr("\"cpu dense\": \"some pairs are no edges\"")));
}

// What shapes and dtypes decide needs no GPU to be told, nor a build with CUDA.
TEST(Doctor, KnowsWithoutAGpuWhatOneWouldRun) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU here";
  const ScratchFolder scratch;
  const auto doctor = [&](const char* dtype, const char* dim, const char* density) {
    return call(scratch, {"doctor", "--explain", "--json", "--device", "cuda", "--n", "1024", "--dtype",
                          dtype, "--dim", dim, "--heads", "256", "--density", density})
        .out;
  };
  EXPECT_THAT(doctor("bf16", "32", "0.1"), HasSubstr("\"implementation\": \"cuda tiles\""));
  EXPECT_THAT(doctor("bf16", "32", "0.025"), HasSubstr("\"implementation\": \"cuda windows and tiles\""));
  EXPECT_THAT(doctor("fp32", "32", "0.01"), HasSubstr("\"cuda gather\": \"runs\""));
  EXPECT_THAT(doctor("bf16", "80", "0.1"),
              HasSubstr("\"cuda tiles\": \"head dim 80 with 0 clusters is not built\""));
  EXPECT_THAT(doctor("fp64", "32", "0.1"),
              testing::AllOf(HasSubstr("the kernels take bfloat16 and float32"),
                             HasSubstr("\"reference, masked matrices\": \"runs\"")));
  EXPECT_THAT(call(scratch, {"doctor", "--explain", "--device", "cuda"}).out, HasSubstr("as on an H200"));
  const Call large = call(scratch, {"doctor", "--explain", "--device", "cuda", "--n", "9000000000"});
  EXPECT_EQ(large.status, 1);
  EXPECT_THAT(large.err, HasSubstr("expected at most 2^31 - 1 queries and keys"));
}

TEST(Bench, StepAndTrainPrintTheKeysOfEveryComparison) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch);
  const std::vector<std::vector<std::string>> commands = {
      {"bench", "attention", "--n", "32", "--dim", "8", "--density", "0.5", "--seconds", "0.01", "--json"},
      {"bench", "attention", "--n", "40", "--dim", "8", "--density", "0.5", "--seconds", "0.01", "--unit",
       "16", "--backward", "--json"},
      {"bench", "step", "--n", "32", "--dim", "8", "--density", "0.5", "--seconds", "0.01", "--json"},
      {"bench", "sac", "--n", "40", "--dim", "8", "--alpha", "2", "--pairs-n", "8", "--seconds", "0.01",
       "--json"},
      {"bench", "sac", "--n", "40", "--dim", "8", "--alpha", "2", "--source", "sac", "indexer", "--pairs-n",
       "0", "--causal", "--backward", "--seconds", "0.01", "--json"},
      {"bench", "train", recipe, "--seconds", "0.01", "--json"}};
  for (const auto& command : commands) {
    SCOPED_TRACE(command[1]);
    const Call result = call(scratch, command);
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* key :
         {"case", "n", "dim", "density", "dtype", "edgewise_ms", "dense_ms", "speedup", "threads"})
      EXPECT_THAT(result.out, HasSubstr("\"" + std::string(key) + "\": "));
  }
}

TEST(BenchTrain, MeasuresAtTheDensityThatWasAskedFor) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch);
  const auto bench = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench", "train",     recipe, "--n",
                                          "64",    "--seconds", "0.01", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(scratch, arguments);
  };
  const Call found = bench({"--density", "0.1"});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("\"n\": 64"));
  const size_t at = found.out.find("\"density\": ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NEAR(std::stod(found.out.substr(at + 11)), 0.1, 0.02);
  EXPECT_THAT(bench({"--density", "2"}).err, HasSubstr("a number from"));
  const Call dense = bench({"--density", "0.1", "--set", "attention.kind=dense"});
  EXPECT_EQ(dense.status, 1);
  EXPECT_THAT(dense.err, HasSubstr("learns its density"));
}

TEST(Train, ProfileNamesPhasesAndOperations) {
  const ScratchFolder scratch;
  const Call result = call(
      scratch, {"train", write_tiny_recipe(scratch), "--run", scratch.file("run"), "--quiet", "--profile"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* name :
       {"forward", "backward", "optimizer", "evaluation", "checkpoint", "\nthe rest ",
        "edgewise::sample_sbm_edges", "edgewise::edge_attention_backward", "AttentionFunction, backward"})
    EXPECT_THAT(result.err, HasSubstr(name));
  EXPECT_THAT(result.err, testing::Not(HasSubstr("CppNode")));
  // stdout has the result alone, and the phases add up.
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  std::istringstream lines(result.err);
  double sum = 0;
  for (std::string line; std::getline(lines, line) && !line.starts_with("operation");)
    if (line.ends_with(" %")) sum += std::stod(line.substr(line.find_last_of(' ', line.size() - 3)));
  EXPECT_NEAR(sum, 100, 1);
}

TEST(Sample, WritesTheEdgesOfAFile) {
  const ScratchFolder scratch;
  io::TensorFile file;
  file.tensors["query_membership"] = torch::full({1, 2, 5, 3}, 0.5);
  file.tensors["key_side"] = torch::full({1, 2, 7, 3}, 2.0 / 3);  // p = 1: every edge
  io::save_safetensors(scratch / "in.safetensors", file);
  const Call result =
      call(scratch, {"sample", scratch.file("in.safetensors"), "--out", scratch.file("out.safetensors")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("100.00 %"));
  const EdgeSet edges = EdgeSet::load(scratch.file("out.safetensors"));
  EXPECT_EQ(edges.shape(), (EdgeShape{1, 2, 5, 7}));
  EXPECT_EQ(edges.edge_count(), 70);

  // What cannot be read or written is named as it was given.
  EXPECT_THAT(
      call(scratch, {"sample", scratch.file("in.safetensors"), "--out", scratch.file("no/out")}).err,
      HasSubstr("edgewise: cannot write '" + scratch.file("no/out") + "': No such file or directory"));
  const Call other = call(scratch, {"sample", scratch.file("out.safetensors")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("has no tensor 'query_membership'"));
}

TEST(DataListOps, WritesTheThreeFiles) {
  const ScratchFolder scratch;
  const Call result = call(scratch, {"data", "listops", "--out", scratch.file("new/listops"), "--train", "2",
                                     "--validation", "1", "--test", "1", "--jobs", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* name : {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"})
    EXPECT_THAT(scratch.read(std::string("new/listops/") + name), testing::StartsWith("Source\tTarget\r\n"));
  EXPECT_EQ(call(scratch, {"data", "listops", "--out", scratch.file("none"), "--validation", "0"}).status, 2);
}

// Found before anything is trained, not at the first validation.
TEST(Train, AnEmptySplitIsAnError) {
  const ScratchFolder scratch;
  ASSERT_EQ(call(scratch, {"data", "listops", "--out", scratch.file("data"), "--train", "2", "--validation",
                           "1", "--test", "1", "--jobs", "1"})
                .status,
            0);
  scratch.write("data/basic_val.tsv", "Source\tTarget\r\n");
  const std::string recipe = EDGEWISE_SOURCE_DIR "/recipes/lra/listops/fast-dense.toml";
  const Call result = call(scratch, {"train", recipe, "--run", scratch.file("run"), "--set",
                                     "data.path=" + scratch.file("data"), "--set", "train.batch=2"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("its validation split has none"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

TEST(Data, IsNotOverwrittenUnasked) {
  const ScratchFolder scratch;
  const std::vector<std::string> make = {"data", "pathfinder", "--generate",     "--size",
                                         "10",   "--out",      scratch.file("d")};
  ASSERT_EQ(call(scratch, make).status, 0);
  const std::string before = scratch.read("d/pathfinder.safetensors");
  std::vector<std::string> again = make;
  again[4] = "20";
  const Call refused = call(scratch, again);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
  EXPECT_EQ(scratch.read("d/pathfinder.safetensors"), before);
  again.push_back("--overwrite");
  EXPECT_EQ(call(scratch, again).status, 0);
  EXPECT_NE(scratch.read("d/pathfinder.safetensors"), before);
}

// From the files of a distribution to a trained model.
TEST(DataImage, IsConvertedAndTrained) {
  const ScratchFolder scratch;
  std::string pixels, labels;
  for (int i = 0; i < 24; ++i) {
    pixels += std::string(1024, static_cast<char>(i * 10));
    labels += static_cast<char>(i % 10);
  }
  scratch.write("images-24x32x32.u8", pixels);
  scratch.write("labels-24.u8", labels);
  const Call made =
      call(scratch, {"data", "image", "--from", scratch.path(), "--out", scratch.file("new/image"), "--xz"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out,
              testing::AllOf(HasSubstr("train"), HasSubstr("18"), HasSubstr("CRC-32 of the 24576 bytes")));
  const Call trained =
      call(scratch,
           {"train", EDGEWISE_SOURCE_DIR "/recipes/lra/image/sbm-edgewise.toml", "--run", scratch.file("run"),
            "--quiet", "--set", "data.path=" + scratch.file("new/image"), "--set", "train.steps=1", "--set",
            "train.warmup_steps=0", "--set", "train.batch=2", "--set", "train.threads=1"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, testing::AllOf(HasSubstr("test accuracy"), HasSubstr("most frequent label")));
  const Call missing = call(scratch, {"train", EDGEWISE_SOURCE_DIR "/recipes/lra/text/dense.toml", "--run",
                                      scratch.file("run2"), "--set", "data.path=" + scratch.file("none")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("make it with: edgewise data text --from FOLDER --out"));
}

TEST(DataText, RefusesAFolderThatIsNone) {
  const ScratchFolder scratch;
  const Call result =
      call(scratch, {"data", "text", "--from", scratch.file("none"), "--out", scratch.file("out")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("expected a folder to read"));
}

// Before the trees are made, or there would be a line of progress.
TEST(DataListOps, AFolderThatCannotBeWrittenIsRefusedAtOnce) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("file", "x");
  const auto generate_into = [&](const std::string& folder) {
    return call(scratch,
                {"data", "listops", "--out", folder, "--train", "1", "--validation", "1", "--test", "1"});
  };
  const Call below_a_file = generate_into(file + "/listops");
  EXPECT_EQ(below_a_file.status, 1);
  EXPECT_EQ(below_a_file.err, "edgewise: ListOps: cannot make the folder '" + file +
                                  "/listops': Not a directory. Choose one that can be written.\n");
  // /proc refuses new files even to root, whom permissions do not stop.
  const Call unwritable = generate_into("/proc");
  EXPECT_EQ(unwritable.status, 1);
  EXPECT_THAT(unwritable.err,
              testing::MatchesRegex("edgewise: cannot write '/proc/basic_train.tsv': [^\n]*\n"));
}

TEST(Cost, PrintsFlopsAndMemoryBesideDense) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch);
  const Call table = call(scratch, {"cost", recipe, "--density", "0.5", "--operations"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.err, testing::MatchesRegex("memory is of an untrained model, [^\n]*\n"))
      << "a log hears of long measurements only";
  EXPECT_EQ(call(scratch, {"cost", recipe}).err, "");
  EXPECT_THAT(call(scratch, {"cost", EDGEWISE_SOURCE_DIR "/recipes/lra/pathfinder/best-sbm-edgewise.toml",
                             "--density", "0.03", "--no-memory"})
                  .err,
              HasSubstr("--length (Pathfinder: 349)"));
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("edge scores"), HasSubstr("E d"), HasSubstr("sbm edgewise"),
                                        HasSubstr("50.00 %"), HasSubstr("KiB")));
  const Call json =
      call(scratch, {"cost", recipe, recipe, "--no-memory", "--set", "attention.kind=dense", "--json"});
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(std::count(json.out.begin(), json.out.end(), '\n'), 2);
  EXPECT_THAT(json.out, HasSubstr("\"attention_flops_of_dense\": 1"));
  EXPECT_EQ(json.out.find("memory_bytes"), std::string::npos);
  // A recipe without formulas does not keep the others from their rows.
  const std::string sac = scratch.write("sac.toml", "[attention]\nkind = \"sac\"\n");
  const Call mixed = call(scratch, {"cost", sac, recipe, "--no-memory", "--density", "0.5"});
  EXPECT_EQ(mixed.status, 0) << mixed.err;
  EXPECT_THAT(mixed.out, testing::AllOf(HasSubstr("not counted"), HasSubstr("tiny")));
  EXPECT_THAT(mixed.err, HasSubstr("which has no formula here yet"));
  EXPECT_EQ(call(scratch, {"cost", recipe, "--density", "2"}).status, 2);
  EXPECT_THAT(call(scratch, {"cost", recipe, "--run", scratch.file("")}).err,
              HasSubstr("is not a run folder"));
}

}  // namespace
}  // namespace edgewise::cli
