// How float32 products on CUDA are chosen: by torch's switch, or by hand. Needs no GPU.
#include <edgewise/ops/float32_matmul.h>

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kit/float32_matmul_guard.h"

namespace edgewise {
namespace {

using ::testing::HasSubstr;

class Float32MatmulTest : public ::testing::Test {
 protected:
  void TearDown() override { at::globalContext().setFloat32MatmulPrecision("highest"); }
};

TEST_F(Float32MatmulTest, FollowsTorchsSwitch) {
  at::globalContext().setFloat32MatmulPrecision("highest");
  EXPECT_EQ(float32_matmul(), Float32Matmul::kTf32x3);
  EXPECT_EQ(float32_matmul_reason(), "torch does not allow TF32");
  for (const char* allowing : {"high", "medium"}) {
    at::globalContext().setFloat32MatmulPrecision(allowing);
    EXPECT_EQ(float32_matmul(), Float32Matmul::kTf32) << allowing;
    EXPECT_EQ(float32_matmul_reason(), "torch allows TF32") << allowing;
  }
}

TEST_F(Float32MatmulTest, IsChosenByHandUntilItIsLeftToTorchAgain) {
  at::globalContext().setFloat32MatmulPrecision("high");
  {
    const kit::ForcedFloat32Matmul forced(Float32Matmul::kIeee);
    EXPECT_EQ(float32_matmul(), Float32Matmul::kIeee);
    EXPECT_EQ(float32_matmul_reason(), "set_float32_matmul");
  }
  EXPECT_EQ(float32_matmul(), Float32Matmul::kTf32);
}

TEST_F(Float32MatmulTest, HasNamesBothWays) {
  for (const Float32Matmul matmul : {Float32Matmul::kIeee, Float32Matmul::kTf32x3, Float32Matmul::kTf32})
    EXPECT_EQ(float32_matmul_from(to_string(matmul)), matmul);
  try {
    float32_matmul_from("fp16");
    FAIL() << "expected an error";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("expected one of ieee, tf32x3, tf32; got 'fp16'"));
  }
}

}  // namespace
}  // namespace edgewise
