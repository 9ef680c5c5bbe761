// CUDA kernels on a CPU: every thread of a block is a fiber that runs until it has to wait for others, which
// it does where lanes exchange values and where the block meets. Blocks run one after the other. What a GPU
// does at once is done in turn here, so it shows wrong results, lanes that do not meet, and places outside a
// buffer (under a tool that looks for them), but no races.
//
// This header comes before a .cu file that is compiled as C++ and stands for what nvcc would know.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block at a time

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) {
  return {x, y};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
using cudaError_t = int;
using cudaStream_t = void*;
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1;
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

inline dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace simt {

// Where some lanes of a warp, or all threads of a block, wait for each other and leave a value each.
struct Meeting {
  uint32_t arrived = 0;  // lanes
  unsigned count = 0;    // threads
  uint64_t rounds = 0;
  uint64_t left[32] = {}, found[32] = {};
};

// The block that runs.
class Block {
 public:
  Block(unsigned threads, std::function<void()> body) : body_(std::move(body)) {
    for (unsigned t = 0; t < threads; ++t) fibers_.push_back(std::make_unique<Fiber>());
  }

  void run() {
    current_block() = this;
    for (auto& fiber : fibers_) {
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.get();
      fiber->context.uc_stack.ss_size = kStackBytes;
      fiber->context.uc_link = nullptr;
      makecontext(&fiber->context, begin, 0);
    }
    running_ = static_cast<unsigned>(fibers_.size());
    while (running_ > 0) {
      const uint64_t before = progress_;
      for (unsigned t = 0; t < fibers_.size(); ++t) {
        if (fibers_[t]->done) continue;
        current_ = t;
        threadIdx = dim3(t);
        resume(*fibers_[t]);
      }
      if (!error_.empty()) throw std::runtime_error(error_);
      if (progress_ == before) throw std::runtime_error("simt: threads wait for some that do not come");
    }
  }

  // In a fiber: what the lanes of `mask` left, in the order of lanes, once all have come.
  const uint64_t* meet(uint32_t mask, uint64_t value) {
    const unsigned lane = threadIdx.x % 32;
    Meeting& meeting = warps_[{threadIdx.x / 32, mask}];
    if (!(mask >> lane & 1)) error_ = "simt: a lane takes part that is not in the mask";
    if (meeting.arrived >> lane & 1) error_ = "simt: a lane comes twice";
    meeting.left[lane] = value;
    meeting.arrived |= 1u << lane;
    const uint64_t round = meeting.rounds;
    if (meeting.arrived == mask) {
      std::memcpy(meeting.found, meeting.left, sizeof meeting.found);
      meeting.arrived = 0;
      ++meeting.rounds;
      ++progress_;
    } else {
      while (meeting.rounds == round) wait();
    }
    return meeting.found;
  }
  void meet_all() {
    const uint64_t round = all_.rounds;
    if (++all_.count == fibers_.size()) {
      all_.count = 0;
      ++all_.rounds;
      ++progress_;
    } else {
      while (all_.rounds == round) wait();
    }
  }

  static Block*& current_block() {
    static Block* block = nullptr;
    return block;
  }

 private:
  static constexpr size_t kStackBytes = 64 * 1024;
  struct Fiber {
    ucontext_t context{};  // to begin with
    jmp_buf place;         // and to go on, without the system calls of swapcontext
    std::unique_ptr<char[]> stack{new char[kStackBytes]};  // not cleared
    bool begun = false, done = false;
  };

  static void begin() {
    Block& block = *current_block();
    block.body_();
    block.fibers_[block.current_]->done = true;
    --block.running_;
    ++block.progress_;
    _longjmp(block.scheduler_, 1);
  }
  void resume(Fiber& fiber) {
    if (_setjmp(scheduler_)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
  }
  void wait() {
    const dim3 mine = threadIdx;
    if (_setjmp(fibers_[current_]->place) == 0) _longjmp(scheduler_, 1);
    threadIdx = mine;
  }

  std::function<void()> body_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::map<std::pair<unsigned, uint32_t>, Meeting> warps_;
  Meeting all_;
  jmp_buf scheduler_;
  unsigned current_ = 0, running_ = 0;
  uint64_t progress_ = 0;
  std::string error_;
};

template <typename T>
uint64_t packed(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <typename T>
T unpacked(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline constexpr size_t kMostSharedBytes = 227 * 1024;
alignas(1024) inline char dynamic_memory[kMostSharedBytes];  // one block at a time

// What lane `from` of the mask has.
template <typename T>
T exchange(uint32_t mask, T value, unsigned from) {
  return unpacked<T>(Block::current_block()->meet(mask, packed(value))[from % 32]);
}

}  // namespace simt

namespace edgewise::kernels::cuda {

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, cudaStream_t,
            const Arguments&... arguments) {
  gridDim = grid;
  blockDim = dim3(threads);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        simt::Block(threads, [&] { kernel(arguments...); }).run();
      }
}

inline char* dynamic_shared() {
  return simt::dynamic_memory;
}
template <typename... Parameters, typename... Arguments>
cudaError_t launch_with_shared(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t bytes,
                               cudaStream_t stream, const Arguments&... arguments) {
  if (bytes > simt::kMostSharedBytes) return cudaErrorInvalidValue;
  // What blocks before left there is nothing to rely on.
  std::memset(simt::dynamic_memory, 0xFF, sizeof simt::dynamic_memory);
  launch(kernel, grid, threads, stream, arguments...);
  return cudaSuccess;
}

}  // namespace edgewise::kernels::cuda

inline unsigned __ballot_sync(uint32_t mask, unsigned predicate) {
  const uint64_t* const found = simt::Block::current_block()->meet(mask, predicate != 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) bits |= static_cast<unsigned>(found[lane] != 0) << lane;
  return bits;
}
inline bool __all_sync(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
inline bool __any_sync(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
template <typename T>
T __shfl_sync(uint32_t mask, T value, int from) {
  return simt::exchange(mask, value, static_cast<unsigned>(from));
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int other) {
  return simt::exchange(mask, value, threadIdx.x % 32 ^ static_cast<unsigned>(other));
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, int step) {
  const unsigned lane = threadIdx.x % 32, by = static_cast<unsigned>(step);
  return simt::exchange(mask, value, lane >= by ? lane - by : lane);
}
inline void __syncwarp() {
  simt::Block::current_block()->meet(~0u, 0);
}
inline void __threadfence_system() {}
inline void __syncthreads() {
  simt::Block::current_block()->meet_all();
}

template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline int __popc(uint32_t x) {
  return __builtin_popcount(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = x | uint64_t{y} << 32;
  uint32_t result = 0;
  for (int n = 0; n < 4; ++n)
    result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * n) & 7)) & 0xFF) << (8 * n);
  return result;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((low | uint64_t{high} << 32) >> (shift % 32));
}
inline uint32_t __float_as_uint(float x) {
  return simt::unpacked<uint32_t>(simt::packed(x));
}
inline float __uint_as_float(uint32_t x) {
  return simt::unpacked<float>(simt::packed(x));
}
inline float __uint2float_rn(uint32_t x) {
  return static_cast<float>(x);
}
inline float __uint2float_rz(uint32_t x) {
  const float near = static_cast<float>(x);
  return static_cast<double>(near) > static_cast<double>(x) ? std::nextafter(near, 0.0f) : near;
}
inline uint32_t __float2uint_rn(float x) {
  return static_cast<uint32_t>(std::llrint(x));
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
template <typename T, typename U>
T atomicAdd(T* at, U value) {
  return std::exchange(*at, static_cast<T>(*at + value));
}
template <typename T>
T atomicCAS(T* at, T expected, T value) {
  return std::exchange(*at, *at == expected ? value : *at);
}
template <typename T, typename U>
T atomicOr(T* at, U value) {
  return std::exchange(*at, *at | value);
}
template <typename T, typename U>
T atomicMax(T* at, U value) {
  return std::exchange(*at, std::max<T>(*at, value));
}
using std::isfinite, std::max, std::min;
