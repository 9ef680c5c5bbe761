// edgewise data images, train and eval on pictures, as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "call.h"
#include "kit/picture_files.h"

namespace edgewise::cli {
namespace {

using testing::HasSubstr;

TEST(DataImages, MakesTrainsAndEvaluates) {
  const kit::ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 16, 40, 10);
  kit::write_file(scratch / "bars" / "train" / "lying" / "ink.jpg",
                  kit::jpeg_of(16, 16, 4, std::vector<uint8_t>(16 * 16 * 4, 3)));
  const std::vector<std::string> make = {
      "data", "images", "--from", scratch.file("bars"), "--out", scratch.file("data")};
  const Call faulty = call(scratch, make);
  EXPECT_EQ(faulty.status, 1);
  EXPECT_THAT(faulty.err,
              HasSubstr("ink.jpg: expected a grey picture or one of red, green and blue; found four inks"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "data" / "images.safetensors"));
  std::vector<std::string> skipping = make;
  skipping.push_back("--skip-faulty");
  const Call made = call(scratch, skipping);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 classes; pictures of 16 x 16 pixels"));
  EXPECT_THAT(made.err, HasSubstr("1 picture left out"));
  EXPECT_THAT(call(scratch, skipping).err, HasSubstr("Choose another --out, or replace it with --overwrite"));

  const Call trained = call(scratch, {"train", EDGEWISE_SOURCE_DIR "/recipes/images/tiny.toml", "--run",
                                      scratch.file("run"), "--set", "data.path=" + scratch.file("data"),
                                      "--set", "train.steps=4", "--set", "train.warmup_steps=0"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("WRN-10-1 with attention of 2 heads"));
  const Call evaluated = call(scratch, {"eval", scratch.file("run")});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("accuracy"));
}

}  // namespace
}  // namespace edgewise::cli
