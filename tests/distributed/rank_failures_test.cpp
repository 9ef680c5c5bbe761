// A rank that dies, hangs or cannot go on ends the others in bounded time, with its name; and what several
// ranks cannot do is refused.
#include <sys/ptrace.h>

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/rank_runs.h"

namespace edgewise::distributed {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

// Training that is long enough to be disturbed.
std::vector<std::string> endless_training(const ScratchFolder& scratch) {
  std::vector<std::string> arguments = {
      "train", write_recipe(scratch, "endless", "[attention]\nkind = \"sbm\"\nclusters = 4\n", ""), "--run",
      scratch.file("run"), "--quiet"};
  for (const char* key :
       {"batch=12", "steps=1000000", "eval_every=1000000", "log_every=1000000", "checkpoint_every=5"})
    arguments.insert(arguments.end(), {"--set", std::string("train.") + key});
  return arguments;
}

void wait_for_checkpoint(const ScratchFolder& scratch, const std::string& run) {
  const auto start = Clock::now();
  while (!std::filesystem::exists(scratch.file(run) + "/checkpoints/last.safetensors") &&
         seconds_since(start) < 30)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

class LostRank : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(LostRank, EndsTheOthersWithItsName) {
  const auto [lost, signal] = GetParam();
  const ScratchFolder scratch;
  RankProcesses ranks(scratch, 3, endless_training(scratch), {{"EDGEWISE_RANK_TIMEOUT", "4"}});
  wait_for_checkpoint(scratch, "run");
  const pid_t process = ranks.process(lost);
  ASSERT_EQ(::kill(process, signal), 0) << ranks.err(lost);
  const auto start = Clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == lost) continue;
    const Ended ended = ranks.wait(rank, 15);
    EXPECT_EQ(ended.status, 1) << ended.err;
    // Rank 0 holds the store here: without it nobody can tell more than that.
    const std::string name = "rank " + std::to_string(lost);
    EXPECT_THAT(ended.err, HasSubstr(lost == 0 ? name : name + " (process " + std::to_string(process)))
        << rank;
  }
  EXPECT_LT(seconds_since(start), 12);
  ::kill(process, SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(scratch.file("run") + "/checkpoints/last.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Killed, LostRank,
                         testing::Combine(testing::Values(0, 1, 2), testing::Values(SIGKILL)));
INSTANTIATE_TEST_SUITE_P(Stopped, LostRank, testing::Combine(testing::Values(1), testing::Values(SIGSTOP)));

TEST(RankFailures, OneThatHangsEndsTheOthersWithItsName) {
  const ScratchFolder scratch;
  RankProcesses ranks(scratch, 2, endless_training(scratch), {{"EDGEWISE_RANK_TIMEOUT", "3"}});
  wait_for_checkpoint(scratch, "run");
  // Of its threads the one that trains stands still; the one that says that it lives goes on.
  const pid_t process = ranks.process(1);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, process, nullptr, nullptr), 0) << ranks.err(1);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr), 0);
  const auto start = Clock::now();
  const Ended ended = ranks.wait(0, 20);
  EXPECT_EQ(ended.status, 1) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1 (process " + std::to_string(process)), HasSubstr("hangs")));
  EXPECT_GT(seconds_since(start), 2);
  EXPECT_LT(seconds_since(start), 12);
}

// As torchrun does it: --max-restarts.
TEST(RankFailures, TorchrunStartsThemAgainAndTheRunGoesOn) {
  const std::string torchrun = EDGEWISE_SOURCE_DIR "/.venv/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << "no " << torchrun;
  const ScratchFolder scratch;
  const std::string recipe = write_recipe(scratch, "sbm", "[attention]\nkind = \"sbm\"\nclusters = 4\n", "");
  const std::string whole = train(scratch, 0, {recipe, "--set", "train.steps=400"}, "whole");
  const int port = free_port();
  // Once, behind a few steps, a rank kills itself.
  scratch.write("edgewise-once", R"(#!/bin/bash
if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  ")" + std::string(EDGEWISE_BINARY) +
                                     R"(" "$@" & mine=$!
  until [ -e ")" + scratch.file("again") +
                                     R"(/checkpoints/last.safetensors" ]; do sleep 0.02; done
  kill -9 $mine
  exit 1
fi
exec ")" + std::string(EDGEWISE_BINARY) +
                                     R"(" "$@"
)");
  std::filesystem::permissions(scratch.file("edgewise-once"), std::filesystem::perms::owner_all);
  const std::string command = "OMP_NUM_THREADS=1 EDGEWISE_RANK_TIMEOUT=4 " + torchrun +
                              " --nproc-per-node 2 --max-restarts 1 --master-port " + std::to_string(port) +
                              " --no-python -- " + scratch.file("edgewise-once") + " train " + recipe +
                              " --run " + scratch.file("again") + " --quiet --set train.steps=400 > " +
                              scratch.file("log") + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << scratch.read("log");
  EXPECT_THAT(scratch.read("log"), HasSubstr("test accuracy"));
  expect_same_training(whole, scratch.file("again"), 1e-2);
}

TEST(RankFailures, AnErrorOfOneIsToldByTheOthers) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file("run"));
  scratch.write("run/other.txt", "not a run");
  RankProcesses ranks(scratch, 2, endless_training(scratch), {{"EDGEWISE_RANK_TIMEOUT", "4"}});
  const std::vector<Ended> ended = ranks.wait_all(20);
  EXPECT_EQ(ended[0].status, 1);
  EXPECT_EQ(ended[1].status, 1);
  EXPECT_THAT(ended[0].err, HasSubstr("expected an empty run folder"));
  EXPECT_THAT(ended[1].err,
              AllOf(HasSubstr("rank 0 (process"), HasSubstr("ended: "), HasSubstr("an empty run folder")));
}

TEST(RankFailures, ASignalStopsAllAtTheSameStep) {
  const ScratchFolder scratch;
  RankProcesses ranks(scratch, 2, endless_training(scratch));
  wait_for_checkpoint(scratch, "run");
  ASSERT_EQ(::kill(ranks.process(1), SIGTERM), 0);
  for (const Ended& ended : ranks.wait_all(20)) EXPECT_EQ(ended.status, 130) << ended.err;
  EXPECT_THAT(ranks.err(0), HasSubstr("continue with: edgewise train --resume"));
  EXPECT_EQ(ranks.err(1), "");
}

TEST(RankFailures, WhatTheyCannotDoIsRefused) {
  const ScratchFolder scratch;
  const std::string recipe = write_recipe(scratch, "dense", "[attention]\nkind = \"dense\"\n", "");
  const auto refused = [&](const std::vector<std::string>& more, const Variables& variables,
                           const std::string& why) {
    std::vector<std::string> arguments = {"train", recipe, "--run", scratch.file("run"), "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    RankProcesses ranks(scratch, 2, arguments, variables);
    for (const Ended& ended : ranks.wait_all(20)) {
      EXPECT_EQ(ended.status, 1) << ended.err;
      EXPECT_THAT(ended.err, HasSubstr(why));
      EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch.file("run")));
  };
  refused({"--set", "train.batch=7", "--set", "train.micro_batch=7"}, {},
          "expected train.batch to be a multiple of the ranks, 2; got 7");
  refused({}, {{"RANK", "two"}}, "RANK to be a whole number");
  refused({}, {{"RANK", "5"}}, "RANK below WORLD_SIZE");
  refused({}, {{"MASTER_ADDR", ""}}, "MASTER_ADDR");
  refused({}, {{"EDGEWISE_RANK_TIMEOUT", "soon"}}, "EDGEWISE_RANK_TIMEOUT");
}

TEST(RankFailures, MissingRanksAreNamed) {
  const ScratchFolder scratch;
  const std::string recipe = write_recipe(scratch, "dense", "[attention]\nkind = \"dense\"\n", "");
  const std::vector<std::string> arguments = {"train", recipe, "--run", scratch.file("run"), "--quiet"};
  RankProcesses ranks(scratch, 1, arguments, {{"WORLD_SIZE", "3"}, {"EDGEWISE_RANK_TIMEOUT", "2"}});
  const Ended ended = ranks.wait(0, 20);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("missing: 1, 2"));
  RankProcesses lonely(scratch, 1, arguments,
                       {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"EDGEWISE_RANK_TIMEOUT", "2"}});
  const Ended alone = lonely.wait(0, 20);
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.err, AllOf(HasSubstr("rank 1 expected the store that rank 0 at 127.0.0.1"),
                               HasSubstr("MASTER_ADDR")));
}

TEST(RankFailures, TheDoctorSaysWhetherRanksCanTrainTogether) {
  const ScratchFolder scratch;
  RankProcesses ranks(scratch, 2, {"doctor", "--distributed"});
  const std::vector<Ended> ended = ranks.wait_all(30);
  EXPECT_EQ(ended[0].status, 0) << ended[0].err;
  EXPECT_EQ(ended[1].status, 0) << ended[1].err;
  EXPECT_THAT(ended[0].out,
              AllOf(HasSubstr("2 on one machine"), HasSubstr("right on all ranks"), HasSubstr("GB/s")));
  EXPECT_EQ(ended[1].out, "");
}

}  // namespace
}  // namespace edgewise::distributed
