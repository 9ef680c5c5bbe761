// How edge_attention on CUDA forms the products of float32 tensors. Torch's own switch decides
// (torch.set_float32_matmul_precision, torch.backends.cuda.matmul.allow_tf32): where it allows TF32 "tf32",
// else "tf32x3", whose error is that of fp32 arithmetic. The environment variable EDGEWISE_FLOAT32_MATMUL or
// set_float32_matmul() choose another. bfloat16 and the CPU are not concerned.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace edgewise {

enum class Float32Matmul {
  kIeee,    // fp32 multiplications, edge by edge
  kTf32x3,  // every operand as the sum of two tf32 numbers, three products on tensor cores
  kTf32,    // every operand rounded to tf32, one product
};

std::string_view to_string(Float32Matmul matmul);          // "ieee", "tf32x3", "tf32"
Float32Matmul float32_matmul_from(std::string_view name);  // throws c10::ValueError for an unknown name

// The one in use. Throws c10::ValueError when EDGEWISE_FLOAT32_MATMUL names none.
Float32Matmul float32_matmul();
// Who chose it: "torch's float32 matmul precision", ...
std::string float32_matmul_reason();
// None: as torch's switch says.
void set_float32_matmul(std::optional<Float32Matmul> matmul);

}  // namespace edgewise
