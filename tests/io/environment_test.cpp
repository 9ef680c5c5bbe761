// What the environment report must hold on any machine.
#include <edgewise/io/environment.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include <edgewise/version.h>

namespace edgewise::io {
namespace {

TEST(Environment, SaysWhatIsThere) {
  const Environment environment = describe_environment();
  EXPECT_EQ(environment.edgewise_version, version());
  EXPECT_THAT(environment.git_commit, ::testing::MatchesRegex("unknown|[0-9a-f]{12,40}(-dirty)?"));
  EXPECT_THAT(environment.torch_version, ::testing::StartsWith("2."));
  EXPECT_THAT(environment.cpu_level, ::testing::AnyOf("scalar", "avx2", "avx512", "avx512bf16"));
  EXPECT_FALSE(environment.cpu_model.empty());
  EXPECT_GE(environment.threads, 1);
  EXPECT_EQ(environment.cuda_available, !environment.cuda_devices.empty());
  EXPECT_THAT(environment.cuda_devices, ::testing::Not(::testing::Contains("unknown")));
}

TEST(Environment, JsonIsJson) {
  Environment environment = describe_environment();
  environment.cpu_model = "quotes \" and bad text \xff";
  const auto json = nlohmann::json::parse(to_json(environment));
  EXPECT_EQ(json["edgewise_version"], environment.edgewise_version);
  EXPECT_EQ(json["cuda_available"], environment.cuda_available);
  EXPECT_EQ(json["threads"], environment.threads);
}

TEST(Environment, MemoryGrowsWithUse) {
  const int64_t before = current_memory_bytes();
  std::vector<char> block(64 << 20, 1);
  EXPECT_GT(current_memory_bytes(), before + (32 << 20)) << block.back();
  EXPECT_GE(peak_memory_bytes(), before + (32 << 20));
}

}  // namespace
}  // namespace edgewise::io
