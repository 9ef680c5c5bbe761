// The vector that kernels are written in, one per level. A kernel source is compiled once per level with the
// level's compiler flags and EDGEWISE_LEVEL set to its name; everything lives in a namespace of that name, so
// that no function compiled for one CPU is ever linked into the code of another.
//
// A level offers, for Vec<float> (the portable one also for Vec<double>):
//   kWidth                     lanes W
//   zero, broadcast, load, load_first, store, store_first    memory; *_first touch only `count` lanes
//   + - * fma max               arithmetic; fma(a, b, c) = a b + c
//   exp                        e^x, at most 2 ulp from exact, denormal results and -inf included
//   log                        ln x of normal positive numbers, at most 3 ulp from exact
//   keep_first(v, count, w)    v in the first `count` lanes, w in the others
//   sum, largest               over lanes, once per row and never per edge
//   transpose_reduce(f, count) lane i = sum over lanes of f(i) for i < count; f is called below count rounded
//                              up to 4
//   for_lanes(v, f)            f(i, lane i of v in every lane) for all i, without a load
//   load_row, store_row        N vectors of a row, in an order of the level's own choice (bf16 loads are
//                              cheaper in even-odd order): rows of one type and N meet only rows of the same
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

#define EDGEWISE_INLINE [[gnu::always_inline]] inline
#define EDGEWISE_INLINE_LAMBDA __attribute__((always_inline))

#if defined(__AVX512F__)
#include "kernels/cpu/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_portable.h"
#endif
