// What the host works out anew for every pass of training and a device reads: tokens, stream keys, counts of
// a mask, weights of the loss. Ordinarily it is worked out and copied, or given to a kernel as a number. A
// pass that is recorded to be replayed (ops/step_graph.h) may do neither, since a replay would repeat the old
// ones: there everything gets a place of its own in device memory and says how it is worked out, and before a
// replay all places are filled again, with one copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/random_stream.h>

#include <functional>
#include <memory>
#include <vector>

namespace edgewise::ops {

// From the random streams of the recorded pass to those of the replayed one.
struct StreamShift {
  RandomStream recorded, now;

  RandomStream operator()(RandomStream stream) const {
    stream.seed += now.seed - recorded.seed;
    stream.step += now.step - recorded.step;
    stream.layer += now.layer - recorded.layer;
    stream.first_item += now.first_item - recorded.first_item;
    return stream;
  }
};

// A tensor on the CPU, of the same size and type every time.
using StepInput = std::function<at::Tensor(const StreamShift&)>;

class StepInputs {
 public:
  explicit StepInputs(at::Device device) : device_(device) {}
  // A place on the device for what `compute` gives: filled by refresh(), not before.
  at::Tensor add(StepInput compute);
  // Fills all places, in the order of the current stream.
  void refresh(const StreamShift& shift);

  // The one that a pass is being recorded into, or null. One for all threads: autograd's record too.
  static StepInputs* recording();
  class Recording {
   public:
    explicit Recording(StepInputs& inputs);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
  };

 private:
  struct Place {
    StepInput compute;
    int64_t offset, bytes;
  };
  struct Chunk {
    at::Tensor memory;  // bytes on the device
    int64_t used = 0;
    std::vector<Place> places;
  };

  at::Device device_;
  std::vector<Chunk> chunks_;
};

// What `compute` gives, on the device.
at::Tensor on_device(at::Device device, const StepInput& compute);

// A number that the host knows. `again` works it out for another pass of the same shape; empty: it is the
// same there.
struct HostNumber {
  double value = 0;
  std::function<double()> again = {};
};
HostNumber at_least_one(const HostNumber& number);

// Of a learner: its numbers that follow from what stands in a mask, worked out again. Empty: they are the
// same for every batch.
struct ReplayedNumbers {
  std::function<double()> pairs_per_head = {};
  std::function<std::vector<double>()> probe_rates = {};
};
HostNumber pairs_per_head(const EdgeLearner& learner);
// probe_rates as they are for the batch of a replay: a function, to be called whenever one begins.
std::function<std::vector<double>()> probe_rates_now(const std::vector<double>& rates,
                                                     const std::shared_ptr<const ReplayedNumbers>& replayed);

// x * number and x / number, x of float or double. The same bits whether recorded or not: torch divides by a
// number of the host, on a GPU, by multiplying with its inverse.
at::Tensor times(const at::Tensor& x, const HostNumber& number);
at::Tensor over(const at::Tensor& x, const HostNumber& number);

}  // namespace edgewise::ops
