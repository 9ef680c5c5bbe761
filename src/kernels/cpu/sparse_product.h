// Products of a sparse matrix of edge values with dense rows, and per-edge dot products.
#pragma once

#include "kernels/params.h"

namespace edgewise::kernels::cpu {

template <typename T>
void gather_sum(const GatherSumParams<T>& params, int64_t row_begin, int64_t row_end);

template <typename T>
void edge_dot(const EdgeDotParams<T>& params, int64_t row_begin, int64_t row_end);

}  // namespace edgewise::kernels::cpu
