// What is written comes back, bit for bit, for every dtype, shape and memory layout.
#include <edgewise/io/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include <torch/torch.h>

#include <edgewise/io/atomic_file.h>

#include "io/safetensors_dtype.h"
#include "kit/scratch_folder.h"

namespace edgewise::io {
namespace {

using kit::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes, not values: NaNs must survive, and torch compares few of the unsigned and float8 types.
void expect_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.scalar_type(), b.scalar_type());
  ASSERT_EQ(a.sizes(), b.sizes());
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  if (x.nbytes() == 0) return;  // no data: null pointers
  EXPECT_EQ(std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()), 0);
}

at::Tensor random_bytes(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, dtype);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(dtype == at::kBool ? i % 2 : i * 151 + 7);
  }
  return tensor;
}

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Safetensors, RoundTripOfEveryDtypeAndShape) {
  ScratchFolder folder;
  TensorFile file;
  for (const auto& [name, dtype] : kSafetensorsDtypes) {
    const std::string prefix(name);
    file.tensors[prefix + ".matrix"] = random_bytes({3, 5}, dtype);
    file.tensors[prefix + ".scalar"] = random_bytes({}, dtype);
    file.tensors[prefix + ".empty"] = random_bytes({4, 0, 2}, dtype);
  }
  file.metadata = {{"format", "pt"}, {"", ""}, {"note", "\"quotes\"\n\\ \u00e9 \x01"}};
  save_safetensors(folder / "a.safetensors", file);
  const TensorFile back = load_safetensors(folder / "a.safetensors");
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    SCOPED_TRACE(name);
    expect_same_bytes(back.tensors.at(name), tensor);
    EXPECT_TRUE(back.tensors.at(name).is_contiguous());
  }
}

TEST(Safetensors, NothingAtAll) {
  ScratchFolder folder;
  save_safetensors(folder / "a", {});
  EXPECT_EQ(read_file(folder / "a"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(load_safetensors(folder / "a").tensors.empty());
}

TEST(Safetensors, AnyStridesAndGradients) {
  ScratchFolder folder;
  const at::Tensor base = at::arange(24, at::kFloat).reshape({4, 6});
  TensorFile file;
  file.tensors["transposed"] = base.t();
  file.tensors["strided"] = base.slice(1, 0, 6, 2);
  file.tensors["expanded"] = base.slice(0, 0, 1).expand({3, 6});
  file.tensors["conjugate"] = at::complex(base, base + 1).conj();
  file.tensors["parameter"] = base.clone().requires_grad_();
  save_safetensors(folder / "a", file);
  const TensorFile back = load_safetensors(folder / "a");
  for (const auto& [name, tensor] : file.tensors)
    EXPECT_TRUE(at::equal(back.tensors.at(name), tensor)) << name;
}

TEST(Safetensors, CudaTensorsComeBackOnTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  ScratchFolder folder;
  const at::Tensor tensor = at::arange(10, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  save_safetensors(folder / "a", {{{"x", tensor}}, {}});
  expect_same_bytes(load_safetensors(folder / "a").tensors.at("x"), tensor);
}

TEST(Safetensors, HeaderIsAlignedAndOrderedLikeTheReference) {
  ScratchFolder folder;
  TensorFile file;
  file.tensors["b"] = at::zeros({1}, at::kFloat);
  file.tensors["a"] = at::zeros({1}, at::kFloat);
  file.tensors["z"] = at::zeros({1}, at::kLong);
  file.tensors["m"] = at::zeros({3}, at::kByte);
  save_safetensors(folder / "a", file);
  const SafetensorsHeader header = read_safetensors_header(folder / "a");
  EXPECT_EQ(header.data_offset % 8, 0u);
  EXPECT_EQ(header.tensors.at("z").begin, 0u);
  EXPECT_EQ(header.tensors.at("a").begin, 8u);
  EXPECT_EQ(header.tensors.at("b").begin, 12u);
  EXPECT_EQ(header.tensors.at("m").begin, 16u);
  EXPECT_EQ(header.tensors.at("m").end, 19u);
  EXPECT_THAT(header.tensors.at("m").shape, ElementsAre(3));
  EXPECT_EQ(header.tensors.at("m").dtype, at::kByte);
}

TEST(Safetensors, RefusesWhatTheFormatCannotHold) {
  ScratchFolder folder;
  const auto save = [&](const std::string& name, const at::Tensor& tensor) {
    return error_of([&] { save_safetensors(folder / "a", {{{name, tensor}}, {}}); });
  };
  EXPECT_THAT(save("__metadata__", at::zeros({1})), HasSubstr("__metadata__"));
  EXPECT_THAT(save("x", at::Tensor()), HasSubstr("undefined"));
  EXPECT_THAT(save("x", at::zeros({1}, at::kComplexDouble)), HasSubstr("ComplexDouble"));
  EXPECT_THAT(save("x", at::eye(2).to_sparse()), HasSubstr("to_dense"));
  EXPECT_THAT(save("\xff", at::zeros({1})), HasSubstr("UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(Safetensors, FailedSaveKeepsTheOldFile) {
  ScratchFolder folder;
  save_safetensors(folder / "a", {{{"x", at::ones({2})}}, {}});
  EXPECT_THROW(save_safetensors(folder / "a", {{{"x", at::Tensor()}}, {}}), c10::Error);
  EXPECT_TRUE(at::equal(load_safetensors(folder / "a").tensors.at("x"), at::ones({2})));
}

TEST(Safetensors, LoadedMemoryIsItsOwn) {
  ScratchFolder folder;
  save_safetensors(folder / "a", {{{"x", at::ones({4})}}, {}});
  const at::Tensor x = load_safetensors(folder / "a").tensors.at("x");
  x.zero_();
  EXPECT_TRUE(at::equal(load_safetensors(folder / "a").tensors.at("x"), at::ones({4})));
}

}  // namespace
}  // namespace edgewise::io
