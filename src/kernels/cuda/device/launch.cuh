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

}  // namespace edgewise::kernels::cuda

#endif
