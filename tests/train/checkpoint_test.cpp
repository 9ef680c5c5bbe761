// Checkpoints: what goes in comes out bit for bit, and a file that does not fit is refused with the reason.
#include <edgewise/train/checkpoint.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/io/safetensors.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::message_of;

class CheckpointTest : public testing::Test {
 protected:
  kit::ScratchFolder folder_;
  std::string path_ = folder_.file("last.safetensors");
};

torch::nn::Sequential make_network(uint64_t seed, int64_t hidden = 5) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(3, hidden), torch::nn::Linear(hidden, 2));
}

void train_step(torch::nn::Sequential& model, Optimizer& optimizer, uint64_t seed) {
  torch::manual_seed(seed);
  optimizer.zero_grad();
  model->forward(torch::randn({4, 3})).square().sum().backward();
  optimizer.step({.learning_rate = 1e-2, .beta1 = 0.9});
}

bool equal(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_parameters()) {
    if (!torch::equal(item.value(), b.named_parameters()[item.key()])) return false;
  }
  return true;
}

TEST_F(CheckpointTest, TrainingContinuesBitForBit) {
  auto model = make_network(1);
  Optimizer optimizer(*model);
  for (uint64_t step = 0; step < 3; ++step) train_step(model, optimizer, step);
  save_checkpoint(path_, *model, &optimizer,
                  {.step = 3,
                   .best_metric = 0.1 + 0.2,
                   .best_step = 2,
                   .evaluation_pending = true,
                   .recipe = "[train]\nseed = 1\n"});

  auto other = make_network(2);
  Optimizer other_optimizer(*other);
  const CheckpointInfo info = load_checkpoint(path_, *other, &other_optimizer);
  EXPECT_EQ(info.step, 3);
  EXPECT_EQ(info.best_metric, 0.1 + 0.2);
  EXPECT_EQ(info.best_step, 2);
  EXPECT_TRUE(info.evaluation_pending);
  EXPECT_EQ(info.recipe, "[train]\nseed = 1\n");
  EXPECT_TRUE(equal(*model, *other));
  for (uint64_t step = 3; step < 6; ++step) {
    train_step(model, optimizer, step);
    train_step(other, other_optimizer, step);
  }
  EXPECT_TRUE(equal(*model, *other));
}

TEST_F(CheckpointTest, OptimizerStateIsNamedByParameter) {
  auto model = make_network(1);
  Optimizer optimizer(*model);
  train_step(model, optimizer, 0);
  save_checkpoint(path_, *model, &optimizer, {});
  const auto file = io::load_safetensors(path_);
  EXPECT_EQ(file.tensors.at("optimizer/exp_avg/0.weight").sizes(), (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(file.tensors.at("optimizer/step/1.bias").item<int64_t>(), 1);
  EXPECT_EQ(file.metadata.count("best_metric"), 0u);
}

TEST_F(CheckpointTest, AModelOnlyFileLoadsAsAModelButNotAsARun) {
  auto model = make_network(1), other = make_network(2);
  save_checkpoint(path_, *model, nullptr,
                  {.step = 7, .best_metric = {}, .best_step = 0, .evaluation_pending = false, .recipe = ""});
  load_checkpoint(path_, *other);
  EXPECT_TRUE(equal(*model, *other));
  Optimizer optimizer(*other);
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *other, &optimizer); }),
              testing::HasSubstr("holds a model only"));
  EXPECT_EQ(read_checkpoint_info(path_).step, 7);
}

TEST_F(CheckpointTest, TheFirstMismatchIsNamedAndNothingIsChanged) {
  auto model = make_network(1), larger = make_network(2, 6), before = make_network(2, 6);
  save_checkpoint(path_, *model, nullptr, {});
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *larger); }),
              testing::AllOf(testing::HasSubstr("'0.bias' [6]"), testing::HasSubstr("got [5]")));
  EXPECT_TRUE(equal(*larger, *before));

  torch::nn::Sequential shorter(torch::nn::Linear(3, 5));
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *shorter); }), testing::HasSubstr("got '1.bias' too"));
  save_checkpoint(path_, *shorter, nullptr, {});
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *model); }),
              testing::HasSubstr("expected tensor '1.bias'"));

  auto wide = make_network(1);
  wide->to(torch::kDouble);
  save_checkpoint(path_, *wide, nullptr, {});
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *model); }), testing::HasSubstr("as Float"));
}

TEST_F(CheckpointTest, OtherFilesAreRefused) {
  auto model = make_network(1);
  io::save_safetensors(path_, {{{"0.weight", torch::zeros({5, 3})}}, {}});
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *model); }),
              testing::HasSubstr("not an edgewise checkpoint"));
  std::ofstream(path_) << "{}";
  EXPECT_ANY_THROW(load_checkpoint(path_, *model));
  io::save_safetensors(path_, {{}, {{"format", "edgewise-checkpoint"}, {"format_version", "99"}}});
  EXPECT_THAT(message_of([&] { load_checkpoint(path_, *model); }), testing::HasSubstr("another version"));
}

// Optimiser state of another model must not be half loaded.
TEST_F(CheckpointTest, OptimizerStateIsChecked) {
  auto model = make_network(1);
  Optimizer optimizer(*model);
  train_step(model, optimizer, 0);
  auto state = optimizer.state();
  state.erase("step/0.weight");
  EXPECT_THAT(message_of([&] { optimizer.load_state(state); }), testing::HasSubstr("incomplete"));
  state = optimizer.state();
  state["exp_avg/0.weight"] = torch::zeros({1});
  EXPECT_THAT(message_of([&] { optimizer.load_state(state); }), testing::HasSubstr("exp_avg/0.weight"));
  state = optimizer.state();
  state["exp_avg/9.weight"] = torch::zeros({1});
  EXPECT_THAT(message_of([&] { optimizer.load_state(state); }), testing::HasSubstr("other names"));
}

}  // namespace
}  // namespace edgewise::train
