// The commands that need no training: doctor, sample, data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>
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
              testing::AllOf(HasSubstr(version()), HasSubstr("self-test"), HasSubstr("ok (largest")));
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
}

// Before the trees are made, or there would be a line of progress.
TEST(DataListOps, AFolderThatCannotBeWrittenIsRefusedAtOnce) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("file", "x");
  const auto generate_into = [&](const std::string& folder) {
    return call(scratch,
                {"data", "listops", "--out", folder, "--train", "1", "--validation", "0", "--test", "0"});
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

}  // namespace
}  // namespace edgewise::cli
