// Parameters of the kernels that check a CSR on the device (csr_check.cu). Torch-free and CUDA-free.
#pragma once

#include "kernels/csr_fault.h"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

// A fault of some call, for a host that looks at it whenever it likes.
struct CsrReport {
  CsrFault fault;             // its kind is written last
  const char* function;       // what the call was; never read on the device
  uint32_t acknowledged = 0;  // reports that the host has read: it counts them
};

struct CsrCheckParams {
  int64_t rows = 0, edges = 0, keys = 0;  // edges <= rows * keys
  const int64_t* row_offsets = nullptr;   // [rows + 1]
  const int32_t* columns = nullptr;       // [edges]
  uint64_t* fault_place = nullptr;        // 0 before; after: 0 = no fault, else where the first one is
  // What may be read without fear: the CSR itself, or one with as many edges if it has a fault.
  int64_t* safe_offsets = nullptr;  // [rows + 1] out
  int32_t* safe_columns = nullptr;  // [edges] out
  // A fault goes to `report`, host memory that the device may write, if the host has read the one before.
  const char* function = nullptr;
  uint32_t* reported = nullptr;  // device memory: reports so far
  CsrReport* report = nullptr;
};
int launch_csr_check(const CsrCheckParams& params, Stream stream);  // a cudaError_t

// Makes `bytes` not-a-number, whatever their type, if there is a fault.
int launch_spoil(const uint64_t* fault_place, void* data, int64_t bytes, Stream stream);

}  // namespace edgewise::kernels::cuda
