// Which CUDA kernel takes a call of edge_attention: what the forward pass, the backward pass and `edgewise
// doctor --explain` all ask.
#pragma once

#include <optional>
#include <string>

#include "ops/attention/cuda_choice_shape.h"
#include "ops/attention/cuda_impl.h"

namespace edgewise::ops {

// Edges one by one, both ways.
bool by_gather(const AttentionInputs& in);
// Forward: heads with few edges by windows, as the device finds, the others by tiles. Edges that go one by
// one do so both ways: windows are no faster there, and their log-sum-exp is of weights rounded to bf16,
// which the backward pass one by one would not share.
bool by_windows(const AttentionInputs& in);
// Whether there is room for the lists of windows, which take up to six times that of tiles: by queries, by
// keys, and what is dropped of each.
bool windows_fit(const EdgeShape& shape, at::Device device);
// The same backward; else why not.
std::string window_backward_refusal(const AttentionInputs& in, const EdgeCredit* credit);

// Heads with at most this part of all pairs go by windows (docs/kernels/cuda-windows.md): backward, where the
// lists count against them; and forward, where they do only if no backward pass needs them anyway. With
// dropout both are the same: a head that goes one way forward and the other back draws what is dropped twice.
double backward_window_density(int64_t head_dim, int64_t clusters, bool dropout);
double forward_window_density(const AttentionInputs& in);
// Up to which density the backward pass that may follow wants lists, if it does.
std::optional<double> backward_lists(const AttentionInputs& in);

}  // namespace edgewise::ops
