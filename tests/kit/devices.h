// Tests that run on CPU and on a GPU: the GPU's skip with a message where there is none.
#pragma once

#include <gtest/gtest.h>

#include <torch/cuda.h>

#include <string>

namespace edgewise::kit {

inline auto devices() {
  return ::testing::Values("cpu", "cuda");
}
inline std::string device_name(const ::testing::TestParamInfo<const char*>& given) {
  return given.param;
}

class DeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
  at::Device device() const { return at::Device(GetParam()); }
};

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};

}  // namespace edgewise::kit
