// In place of csr_cuda.cpp, lists_cuda.cpp and tiles_cuda.cpp in a build without CUDA.
#include <c10/util/Exception.h>

#include "graph/csr_cuda.h"
#include "graph/edge_windows.h"
#include "graph/lists_cuda.h"
#include "graph/tiles/tiles_cuda.h"

namespace edgewise::graph {
namespace {

[[noreturn]] void not_built() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "EdgeSet: bit tiles of CUDA tensors need a build with CUDA kernels; this one has none. Install "
      "the CUDA toolkit (nvcc) and configure again with -DEDGEWISE_CUDA=ON");
}

}  // namespace

void cuda_tiles_from_csr(const EdgeShape&, const at::Tensor&, const at::Tensor&, at::Tensor&) {
  not_built();
}
at::Tensor cuda_tile_degrees(const EdgeShape&, const at::Tensor&) {
  not_built();
}
std::pair<at::Tensor, at::Tensor> cuda_csr_from_tiles(const EdgeShape&, const at::Tensor&) {
  not_built();
}
at::Tensor cuda_transposed_tiles(const EdgeShape&, const at::Tensor&, const SparseHeads&) {
  not_built();
}

bool cuda_is_recording(at::Device) {
  return false;
}

void cuda_clear_outside(const EdgeShape&, const EdgeUnits&, const SparseHeads&, at::Tensor&) {
  not_built();
}

at::Tensor cuda_used_tiles(const EdgeShape&, const at::Tensor&) {
  not_built();
}

EdgeWindows edge_windows(const EdgeShape&, const at::Tensor&, const SparseHeads&, bool) {
  not_built();
}

std::optional<TransposedEdges> cuda_transposed_lists(const EdgeShape&, const at::Tensor&, const at::Tensor&) {
  return std::nullopt;
}

std::optional<TransposedSquares> cuda_transposed_squares(const Squares&) {
  return std::nullopt;
}

std::optional<Squares> cuda_united_squares(const Squares&, const Squares&) {
  return std::nullopt;
}
std::optional<Squares> cuda_squares_without(const Squares&, const Squares&) {
  return std::nullopt;
}

std::optional<at::Tensor> cuda_pairs_per_head(const Squares&, const SquarePairs&) {
  return std::nullopt;
}

std::optional<SafeCsr> cuda_safe_csr(const char*, const EdgeShape&, const at::Tensor&, const at::Tensor&) {
  return std::nullopt;
}
void raise_csr_fault(at::Device) {}
void wait_for_csr_faults() {}
void spoil_results(const SafeCsr&, at::TensorList) {
  not_built();
}

}  // namespace edgewise::graph
