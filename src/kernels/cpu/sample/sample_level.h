// The samplers' inner loops of one CPU level; sample_kernels.h says what each one does. Every file that
// defines them is compiled once per level, as this header is read.
#pragma once

#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sample_lanes.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {

// sample_bounds_level.cpp
bool valid(const MeasureParams& params);
MeasureResult measure(const MeasureParams& params, Terms* terms);
void project(const ProjectParams& params, float* products, float* squares);
FixScales fix(const FixParams& params);

// sample_squeezed_level.cpp
int64_t squeeze(const SqueezeParams& params, const SqueezeRow& row, uint32_t row_index, int64_t count,
                uint64_t* words, OpenPair* open);
int64_t refine(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words, double* numbers);
void decide(const ExactParams& params, const OpenPair* pairs, const double* numbers, int64_t count,
            uint64_t* words);

// sample_products_level.cpp
void round_vector(const RoundParams& params, const float* vector, int16_t* values, float* terms);
int64_t squeeze_products(const ProductParams& params, const ProductRow* rows, int64_t words_per_row,
                         uint64_t* words, OpenPair* open, OpenEstimate* estimates);
int64_t refine_products(const RefineParams& params, const OpenEstimate* estimates, OpenPair* pairs,
                        int64_t count, uint64_t* words, double* numbers);

// sample_thinning_level.cpp
int64_t thin(const ThinParams& params, const ThinRow& row, const double* points, const uint32_t* coins,
             int32_t* positions, int64_t& taken);
void points(uint64_t stream_key, uint32_t sequence, uint32_t block, double sum, double* points,
            uint32_t* coins);
void gaps(uint64_t stream_key, uint32_t sequence, uint32_t block, double* gaps, uint32_t* words);

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
