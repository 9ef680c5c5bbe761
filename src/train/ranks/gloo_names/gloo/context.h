// Names of Gloo that <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp> mentions. Gloo itself is a part of
// libtorch_cpu, but torch's package brings no headers of it. Nothing here is made, held by value or called by
// us: the backend is reached through torch's own interface, so these declarations need no more than the
// names.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
