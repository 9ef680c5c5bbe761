// Functions that a CPU kernel and a CUDA kernel share.
#pragma once

#if defined(__CUDACC__)
#define EDGEWISE_BOTH __host__ __device__ inline
#else
#define EDGEWISE_BOTH inline
#endif
