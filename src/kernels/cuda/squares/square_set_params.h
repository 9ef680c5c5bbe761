// Parameters of the CUDA kernels that join lists of squares row by row. Torch-free and CUDA-free. Nothing is
// counted on the host: every row of what comes out has room for all key groups.
#pragma once

#include "kernels/cuda/squares/square_params.h"

namespace edgewise::kernels::cuda {

enum class SquareSetOperation { kUnion, kDifference };  // squares of a or b; of a alone

struct SquareSetParams {
  int64_t rows = 0, key_groups = 0;
  SquareList a, b;
  SquareSetOperation operation = SquareSetOperation::kUnion;
  int32_t *count = nullptr, *cols = nullptr;  // [rows], [rows, key_groups]
};
int launch_join_squares(const SquareSetParams& params, Stream stream);

// Numbers of those squares of `squares` that `others` has too become 0.
struct SquareClearParams {
  int64_t rows = 0;
  SquareList squares, others;
  float* values = nullptr;  // at the places of `squares`
};
int launch_clear_squares(const SquareClearParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
