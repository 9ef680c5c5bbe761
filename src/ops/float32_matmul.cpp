#include <edgewise/ops/float32_matmul.h>

#include <ATen/Context.h>

#include <atomic>
#include <cstdlib>

#include "ops/enum_names.h"

namespace edgewise {
namespace {

constexpr EnumNames<Float32Matmul, 3> kFloat32MatmulNames{
    "float32 matmul",
    {{{"ieee", Float32Matmul::kIeee}, {"tf32x3", Float32Matmul::kTf32x3}, {"tf32", Float32Matmul::kTf32}}}};

enum class ChosenBy { kTorch, kVariable, kCall };
struct Chosen {
  ChosenBy by = ChosenBy::kTorch;
  Float32Matmul matmul = Float32Matmul::kTf32x3;
};

// Begins with what the environment variable says.
std::atomic<Chosen>& chosen() {
  static std::atomic<Chosen> value = [] {
    const char* name = std::getenv("EDGEWISE_FLOAT32_MATMUL");
    if (!name || !*name) return Chosen{};
    return Chosen{
        ChosenBy::kVariable,
        EnumNames<Float32Matmul, 3>{"EDGEWISE_FLOAT32_MATMUL", kFloat32MatmulNames.entries}.parse(name)};
  }();
  return value;
}

bool torch_allows_tf32() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
         at::Float32Precision::TF32;
}

}  // namespace

std::string_view to_string(Float32Matmul matmul) {
  return kFloat32MatmulNames.name(matmul);
}

Float32Matmul float32_matmul_from(std::string_view name) {
  return kFloat32MatmulNames.parse(name);
}

Float32Matmul float32_matmul() {
  const Chosen now = chosen();
  if (now.by != ChosenBy::kTorch) return now.matmul;
  return torch_allows_tf32() ? Float32Matmul::kTf32 : Float32Matmul::kTf32x3;
}

std::string float32_matmul_reason() {
  switch (chosen().load().by) {
    case ChosenBy::kVariable:
      return "EDGEWISE_FLOAT32_MATMUL";
    case ChosenBy::kCall:
      return "set_float32_matmul";
    case ChosenBy::kTorch:
      break;
  }
  return torch_allows_tf32() ? "torch allows TF32" : "torch does not allow TF32";
}

void set_float32_matmul(std::optional<Float32Matmul> matmul) {
  chosen() = matmul ? Chosen{ChosenBy::kCall, *matmul} : Chosen{};
}

}  // namespace edgewise
