// Pictures as batches: normalised, and cropped and flipped by streams of their own.
#include <edgewise/data/images/image_dataset.h>

#include <edgewise/data/images/import_images.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "data/expect_error.h"
#include "kit/picture_files.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

constexpr int64_t kSide = 8;

ImageData random_images(int64_t train = 6) {
  torch::manual_seed(4);
  ImageData images;
  images.name = "random";
  images.classes = {"a", "b", "c"};
  images.height = images.width = kSide;
  for (ImagePart& part : images.parts) {
    part.pixels = torch::randint(1, 256, {train, kSide, kSide, 3}, torch::kByte);
    part.labels = torch::arange(train, torch::kInt).remainder(3);
    train = 4;
  }
  measure_colours(images);
  return images;
}

TEST(ImageDataset, NormalisesByTheTrainingPixels) {
  const ImageData images = random_images();
  const at::Tensor all = images.part(Split::kTrain).pixels.to(at::kDouble).view({-1, 3}) / 255;
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(images.mean[static_cast<size_t>(c)], all.select(1, c).mean().item<double>(), 1e-12);
    EXPECT_NEAR(images.std[static_cast<size_t>(c)], all.select(1, c).std(false).item<double>(), 1e-12);
  }
  const ImageDataset data(images);
  const std::vector<int64_t> every = {0, 1, 2, 3, 4, 5};
  const Batch batch = data.batch(Split::kTrain, every);
  const at::Tensor& features = batch.towers[0].features;
  EXPECT_EQ(features.sizes(), (std::vector<int64_t>{6, kSide * kSide, 3}));
  const at::Tensor flat = features.flatten(0, 1);
  EXPECT_LT(flat.mean(0).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(flat.std(0, false).mean().item<double>(), 1, 1e-5);
  EXPECT_EQ(batch.labels.scalar_type(), at::kLong);
  EXPECT_TRUE(torch::equal(batch.labels, torch::arange(6).remainder(3)));
  // Pass 0 is the pictures as they are, row by row.
  const double first = images.part(Split::kTrain).pixels[2][1][3][0].item<double>() / 255;
  EXPECT_NEAR(features[2][kSide + 3][0].item<double>(), (first - images.mean[0]) / images.std[0], 1e-5);
}

// Every later pass is a shift with black behind it, mirrored or not; what it is depends on seed, pass and
// picture alone.
TEST(ImageDataset, CropsAreShiftsAndFlipsOfThePicture) {
  const ImageData images = random_images();
  const ImageDataset data(images, {.padding = 2, .seed = 3});
  std::set<std::tuple<int64_t, int64_t, bool>> seen;
  for (int64_t pass = 1; pass <= 200; ++pass) {
    const at::Tensor found = data.pixels(Split::kTrain, 6 * pass + 1);
    const at::Tensor padded = at::constant_pad_nd(images.part(Split::kTrain).pixels[1], {0, 0, 2, 2, 2, 2});
    int64_t matches = 0;
    for (int64_t y = 0; y <= 4; ++y)
      for (int64_t x = 0; x <= 4; ++x)
        for (const bool flipped : {false, true}) {
          const at::Tensor part = padded.narrow(0, y, kSide).narrow(1, x, kSide);
          if (!torch::equal(flipped ? part.flip({1}) : part, found)) continue;
          seen.insert({y, x, flipped});
          ++matches;
        }
    ASSERT_EQ(matches, 1) << "pass " << pass;
  }
  EXPECT_EQ(seen.size(), 50u) << "200 draws of 50: each is missed with a chance below 2 %";
}

TEST(ImageDataset, BatchesDependOnTheirIndicesAlone) {
  const ImageDataset data(random_images(), {.seed = 3}), same(random_images(), {.seed = 3}),
      other(random_images(), {.seed = 4});
  const std::vector<int64_t> some = {13, 6, 29}, reversed = {29, 6, 13};
  const at::Tensor a = data.batch(Split::kTrain, some).towers[0].features,
                   b = same.batch(Split::kTrain, reversed).towers[0].features.flip({0});
  EXPECT_TRUE(torch::equal(a, b));
  EXPECT_FALSE(torch::equal(a, other.batch(Split::kTrain, some).towers[0].features));
}

TEST(ImageDataset, EvaluationSeesPicturesAsTheyAre) {
  const ImageData images = random_images();
  const ImageDataset data(images);
  for (const Split split : {Split::kValidation, Split::kTest})
    for (int64_t n = 0; n < data.size(split); ++n)
      EXPECT_TRUE(torch::equal(data.pixels(split, n), images.part(split).pixels[n]));
  EXPECT_ERROR(data.batch(Split::kTest, std::array<int64_t, 1>{4}),
               "images: expected an index in 0..3 of split test");
  EXPECT_ERROR(data.batch(Split::kTrain, std::array<int64_t, 1>{-1}), "images: expected an index in 0..5");
}

TEST(ImageDataset, TheTestMayValidateAsPublished) {
  const ImageData images = random_images();
  const ImageDataset data(images, {.validation_is_test = true});
  EXPECT_EQ(data.size(Split::kTrain), 10);
  EXPECT_TRUE(torch::equal(data.pixels(Split::kTrain, 7), images.part(Split::kValidation).pixels[1]));
  EXPECT_TRUE(torch::equal(data.pixels(Split::kValidation, 2), images.part(Split::kTest).pixels[2]));
}

// Files are decoded while training, to the same pictures as those that were imported, and drawn from as a
// part of them.
TEST(ImageDataset, ReadsFilesWhileTraining) {
  const kit::ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 16, 8, 4);
  const ImageImportOptions from{.from = scratch / "bars", .size = 16};
  ImageImportOptions names = from;
  names.keep_files = true;
  const ImageDataset pixels(import_images(from).images), files(import_images(names).images, {.middle = 1});
  for (int64_t n = 0; n < 8; ++n)
    EXPECT_TRUE(torch::equal(pixels.pixels(Split::kTrain, n), files.pixels(Split::kTrain, n)));
  const ImageDataset drawn(import_images(names).images,
                           {.crop = ImageCrop::kResized, .flip = false, .seed = 1});
  const at::Tensor a = drawn.pixels(Split::kTrain, 8), b = drawn.pixels(Split::kTrain, 16);
  EXPECT_EQ(a.sizes(), (std::vector<int64_t>{16, 16, 3}));
  EXPECT_FALSE(torch::equal(a, b));
  EXPECT_TRUE(torch::equal(a, drawn.pixels(Split::kTrain, 8)));
  std::filesystem::remove(scratch / "bars" / "train" / "lying" / "0.png");
  EXPECT_ERROR(drawn.batch(Split::kTrain, std::array<int64_t, 2>{0, 1}), "lying/0.png: expected a picture");
}

}  // namespace
}  // namespace edgewise::data
