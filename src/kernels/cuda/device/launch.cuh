// Starts a kernel on a stream: launch(kernel, grid, threads, stream, arguments...). Kernels that are started
// this way and keep to lanes and products of a warp (no wgmma) also run on a CPU, in tests/simt.
#pragma once

#if defined(__CUDACC__)

namespace edgewise::kernels::cuda {

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, cudaStream_t stream,
            const Arguments&... arguments) {
  kernel<<<grid, threads, 0, stream>>>(arguments...);
}
// With `bytes` of shared memory to a block, which finds them at dynamic_shared().
template <typename... Parameters, typename... Arguments>
cudaError_t launch_with_shared(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t bytes,
                               cudaStream_t stream, const Arguments&... arguments) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)))
    return error;
  kernel<<<grid, threads, bytes, stream>>>(arguments...);
  return cudaSuccess;
}
__device__ inline char* dynamic_shared() {
  extern __shared__ __align__(1024) char edgewise_dynamic_shared[];
  return edgewise_dynamic_shared;
}

}  // namespace edgewise::kernels::cuda

#endif
