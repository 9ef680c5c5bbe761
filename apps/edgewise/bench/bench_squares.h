// What `bench cuda --unit 16` measures: attention over squares, given and learned.
#pragma once

#include <string>
#include <vector>

#include "bench/device_timing.h"
#include "ops/squares/square_attention.h"

namespace edgewise::app {

struct SquareTime {
  std::string name;
  bool backward = false;  // forward and backward, else forward alone
  double ms = 0;
};

// Over squares drawn at `density`, each query group by itself and four neighbours alike: forward, forward and
// backward, and the latter with credit and probes at 5 % of the absent squares; and the list by keys alone.
// `call` has the tensors and the dropout, `grad` is like the output.
std::vector<SquareTime> time_squares(const DeviceTiming& timing, ops::SquareCall call, const at::Tensor& grad,
                                     double density);

// The training step of a layer whose heads learn their squares, everything between projections included:
// means of groups, MLP, memberships, block matrix, penalty, the draw of squares and probes, attention, and
// all gradients.
SquareTime time_learned_squares(const DeviceTiming& timing, const ops::SquareCall& call,
                                const at::Tensor& grad, int64_t clusters, double density);

// A sequence of n tokens, so many squares a query group spread over it.
graph::Squares spread_squares(int64_t n, int64_t squares_of_row, at::Device device);
std::vector<SquareTime> time_given_squares(const DeviceTiming& timing, const ops::SquareCall& call,
                                           const at::Tensor& grad);

}  // namespace edgewise::app
