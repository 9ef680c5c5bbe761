// Reference versions in plain ATen: the documentation, the fallback on devices without kernels, and the
// oracle of the tests.
//
// `EdgeList` gathers one row per edge (linear in edges); `Dense` works on masked [B, H, L, S] matrices
// (quadratic, fast on a GPU for dense masks). Both compute the equations of
// src/kernels/cpu/attention/edge_attention_level.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <limits>
#include <string>

#include "ops/attention/attention_call.h"

namespace edgewise::ops::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string edge_list_refusal(const AttentionCall& call);
AttentionForward edge_list_forward(const AttentionInputs& in);
AttentionBackward edge_list_backward(const AttentionInputs& in, const AttentionForward& forward,
                                     const at::Tensor& grad_output, const at::Tensor& density_grad);

std::string dense_refusal(const AttentionCall& call);
AttentionForward dense_forward(const AttentionInputs& in);
AttentionBackward dense_backward(const AttentionInputs& in, const AttentionForward& forward,
                                 const at::Tensor& grad_output, const at::Tensor& density_grad);

// The products of attention_call.h.
at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right);

// The numbers by which samplers that visit every pair decide (kernels/pair_numbers.h): [B, H, L, S] int64 in
// [0, 2^32).
// Row i is row first_row + i.
at::Tensor pair_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device,
                        int64_t first_row = 0);
// The numbers by which probes in units (kernels/probe_units.h) are chosen, those of a unit at each of its
// pairs: [B, H, L, S] int64 in [0, 2^32).
at::Tensor unit_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device,
                        int64_t first_row = 0);
// The random words of dropout for all pairs, as the kernels draw them: [B, H, L, S] int64 in [0, 2^32).
at::Tensor pair_words(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device);
// The same for the given edges only: [E].
at::Tensor edge_words(const at::Tensor& head_keys, const EdgeSet& edges);
// The same for pairs (row, column) under a key each: [E] int64 all of them.
at::Tensor words_at(const at::Tensor& keys, const at::Tensor& rows, const at::Tensor& columns);

}  // namespace edgewise::ops::reference
