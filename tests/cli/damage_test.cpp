// What the world does to files: damage, links that lead elsewhere, disks that are full, terminals that go.
#include <signal.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include <ATen/ops/full_like.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/safetensors.h>

#include "call.h"
#include "pages.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

std::string trained(const ScratchFolder& scratch) {
  const std::string run = scratch.file("run");
  const Call call_of_train = call(scratch, {"train", write_tiny_recipe(scratch), "--run", run, "--quiet"});
  EXPECT_EQ(call_of_train.status, 0) << call_of_train.err;
  return run;
}

void expect_refused(const Call& result, const std::string& says) {
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(says));
}

TEST(Damage, ARecipeIsATextFile) {
  const ScratchFolder scratch;
  const auto printed = [&](const std::string& recipe) {
    return call(scratch, {"train", recipe, "--print-recipe"});
  };
  const std::string tiny = write_tiny_recipe(scratch);
  EXPECT_EQ(printed(tiny).status, 0);
  std::string cut = io::read_file(tiny);
  std::fill(cut.begin() + static_cast<std::ptrdiff_t>(cut.find("[train]")), cut.end(), '\0');
  expect_refused(printed(scratch.write("cut.toml", cut)), "has a NUL at byte");
  expect_refused(printed("/dev/zero"), "is a pipe or a device");
  ASSERT_EQ(::mkfifo(scratch.file("pipe").c_str(), 0600), 0);
  expect_refused(printed(scratch.file("pipe")), "is a pipe or a device");
  expect_refused(printed(scratch.write("long.toml", std::string(5'000'000, '#'))), "expected at most");
  // What the file quotes does not command the terminal.
  const Call quoted = printed(scratch.write("escape.toml", "a\x1b[31m = 1"));
  EXPECT_EQ(quoted.err.find('\x1b'), std::string::npos);
}

TEST(Damage, ARunWhoseRecipeLostItsEndIsNotResumed) {
  const ScratchFolder scratch;
  const std::string run = trained(scratch), config = run + "/config.toml";
  std::string text = io::read_file(config);
  const auto half = static_cast<std::ptrdiff_t>(text.find('\n', text.size() / 2) + 1);
  std::fill(text.begin() + half, text.end(), '\0');
  io::write_file_atomically(config, text);
  expect_refused(call(scratch, {"train", "--resume", run}), "has a NUL at byte");
}

TEST(Damage, AFlippedBitInACheckpointIsNoticed) {
  const ScratchFolder scratch;
  const std::string run = trained(scratch), last = run + "/checkpoints/last.safetensors",
                    best = run + "/checkpoints/best.safetensors";
  const auto flip = [](const std::string& path, size_t at) {
    std::string bytes = io::read_file(path);
    bytes[at < bytes.size() ? at : bytes.size() - 50] ^= 4;
    io::write_file_atomically(path, bytes);
  };
  flip(last, std::string::npos);
  expect_refused(call(scratch, {"train", "--resume", run, "--set", "train.steps=5"}),
                 "does not have the checksum");
  flip(best, io::read_file(best).find("repeated_tokens"));
  expect_refused(call(scratch, {"eval", run}), "header does not have the checksum");
}

TEST(Damage, WeightsThatAreNoNumbersGiveNoFigures) {
  const ScratchFolder scratch;
  const std::string run = trained(scratch), best = run + "/checkpoints/best.safetensors";
  io::TensorFile file = io::load_safetensors(best);
  file.tensors.at("head.weight") = at::full_like(file.tensors.at("head.weight"), std::nan(""));
  io::save_safetensors(best, file, /*checksums=*/true);
  for (const char* form : {"--json", "--split=test"}) {
    const Call found = call(scratch, {"eval", run, form});
    expect_refused(found, "expected a finite loss; got nan");
    EXPECT_EQ(found.out, "");
  }
}

TEST(Damage, MetricsOfOtherTypesSayTheLine) {
  const ScratchFolder scratch;
  const std::string run = trained(scratch), metrics = run + "/metrics.jsonl";
  io::write_file_atomically(metrics, io::read_file(metrics) + "{\"kind\": 1}\n");
  for (const char* command : {"report", "compare"})
    expect_refused(call(scratch, {command, run}), ": expected a text as \"kind\"");
}

TEST(Damage, NothingIsWrittenThroughALinkInARun) {
  const ScratchFolder scratch;
  const std::string run = trained(scratch), victim = scratch.write("victim", "keep\n");
  const auto link = [&](const std::string& path) {
    std::filesystem::remove(path);
    std::filesystem::create_symlink(victim, path);
  };
  link(run + "/report.html");
  expect_refused(call(scratch, {"report", run}), "report.html is a symbolic link");
  EXPECT_EQ(call(scratch, {"report", run, "--out", scratch.file("elsewhere.html")}).status, 0);
  std::filesystem::remove(run + "/report.html");
  for (const char* name : {"/checkpoints/last.safetensors", "/.lock"}) {
    const std::string kept = io::read_file(run + name);
    link(run + name);
    const Call resumed = call(scratch, {"train", "--resume", run, "--set", "train.steps=5"});
    EXPECT_EQ(resumed.status, 1);
    EXPECT_THAT(resumed.err, HasSubstr(std::string(name).substr(name[1] == '.' ? 1 : 13)));
    std::filesystem::remove(run + name);
    io::write_file_atomically(run + name, kept);
  }
  EXPECT_EQ(scratch.read("victim"), "keep\n");
  EXPECT_EQ(call(scratch, {"train", "--resume", run, "--set", "train.steps=5"}).status, 0);
}

TEST(Damage, LostOutputIsAnError) {
  const ScratchFolder scratch;
  trained(scratch);
  // A descriptor that cannot be written to, and, where the system has it, the device that is always full.
  std::vector<std::string> outputs = {"1< /dev/null"};
  if (shell(scratch, "true > /dev/full && ! echo full > /dev/full").status == 0 &&
      std::filesystem::is_character_file("/dev/full"))
    outputs.emplace_back("> /dev/full");
  for (const std::string command :
       {"eval run --json", "compare run", "doctor --json", "train run/config.toml --print-recipe"}) {
    for (const std::string& output : outputs) {
      const Call result = shell(scratch, "edgewise " + command + " " + output);
      EXPECT_EQ(result.status, 1) << command << " " << output;
      EXPECT_THAT(result.err, HasSubstr("cannot write to standard output")) << command << " " << output;
    }
  }
}

TEST(Damage, ARunIsSavedWhenItsTerminalGoes) {
  const ScratchFolder scratch;
  const std::string run = scratch.file("run");
  const Running running(scratch, {"train", write_tiny_recipe(scratch), "--run", run, "--set",
                                  "train.steps=10000000", "--set", "train.checkpoint_every=10000000"});
  for (int n = 0; n < 3000; ++n) {  // at most a minute
    if (std::filesystem::exists(run + "/metrics.jsonl") && !io::read_file(run + "/metrics.jsonl").empty())
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(running.process(), SIGHUP);
  const Call result = running.wait();
  EXPECT_THAT(result.err, HasSubstr("stopped at step"));
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/last.safetensors"));
}

}  // namespace
}  // namespace edgewise::cli
