#include "ops/step_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ops/step_graph.h"

namespace edgewise::ops {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 18, kAlignment = 256;

std::atomic<StepInputs*> current = nullptr;

// A 0-dim tensor of the type of x.
at::Tensor recorded_number(const at::Tensor& x, const std::function<double()>& compute, bool inverse) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble,
                   "recorded_number: expected float or double; got ", type);
  return StepInputs::recording()->add([=](const StreamShift&) {
    const double value = compute();
    if (!inverse) return at::scalar_tensor(value, type);
    // In the type of x, as torch's kernel does it.
    return type == at::kFloat ? at::scalar_tensor(1.0f / static_cast<float>(value), type)
                              : at::scalar_tensor(1.0 / value, type);
  });
}

bool is_recorded(const HostNumber& number) {
  return number.again && StepInputs::recording();
}

}  // namespace

at::Tensor StepInputs::add(StepInput compute) {
  const at::Tensor host = compute({}).contiguous();
  const int64_t bytes = std::max<int64_t>(static_cast<int64_t>(host.nbytes()), 1);
  if (chunks_.empty() || chunks_.back().used + bytes > chunks_.back().memory.size(0))
    chunks_.push_back({step_memory(std::max(kChunkBytes, bytes), device_), 0, {}});
  Chunk& chunk = chunks_.back();
  const int64_t offset = chunk.used;
  chunk.used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  chunk.used = std::min(chunk.used, chunk.memory.size(0));
  chunk.places.push_back({std::move(compute), offset, static_cast<int64_t>(host.nbytes())});
  return chunk.memory.narrow(0, offset, static_cast<int64_t>(host.nbytes()))
      .view(host.scalar_type())
      .view(host.sizes());
}

void StepInputs::refresh(const StreamShift& shift) {
  // All are worked out before any is copied: some look at what the host knows of a mask, which holds until
  // the mask is written to.
  std::vector<at::Tensor> stages;
  for (const Chunk& chunk : chunks_) {
    // The allocator of pinned memory gives a buffer to nobody else before its copy is done.
    const at::Tensor& staged = stages.emplace_back(
        at::empty({chunk.used}, at::TensorOptions().dtype(at::kByte).pinned_memory(device_.is_cuda())));
    auto* const bytes = static_cast<uint8_t*>(staged.mutable_data_ptr());
    for (const Place& place : chunk.places) {
      const at::Tensor host = place.compute(shift).contiguous();
      TORCH_CHECK(static_cast<int64_t>(host.nbytes()) == place.bytes,
                  "StepInputs: expected as many bytes as were recorded, ", place.bytes, "; got ",
                  host.nbytes());
      std::memcpy(bytes + place.offset, host.const_data_ptr(), host.nbytes());
    }
  }
  for (size_t n = 0; n < chunks_.size(); ++n)
    chunks_[n].memory.narrow(0, 0, chunks_[n].used).copy_(stages[n], /*non_blocking=*/true);
}

StepInputs* StepInputs::recording() {
  return current;
}

StepInputs::Recording::Recording(StepInputs& inputs) {
  StepInputs* none = nullptr;
  TORCH_CHECK(current.compare_exchange_strong(none, &inputs),
              "StepInputs: expected one recording at a time; another is under way");
}
StepInputs::Recording::~Recording() {
  current = nullptr;
}

at::Tensor on_device(at::Device device, const StepInput& compute) {
  if (StepInputs* inputs = StepInputs::recording()) return inputs->add(compute);
  return compute({}).to(device, /*non_blocking=*/true);
}

HostNumber at_least_one(const HostNumber& number) {
  HostNumber result{std::max(number.value, 1.0)};
  if (number.again) result.again = [again = number.again] { return std::max(again(), 1.0); };
  return result;
}

HostNumber pairs_per_head(const EdgeLearner& learner) {
  return {learner.pairs_per_head, learner.replayed ? learner.replayed->pairs_per_head : nullptr};
}

std::function<std::vector<double>()> probe_rates_now(const std::vector<double>& rates,
                                                     const std::shared_ptr<const ReplayedNumbers>& replayed) {
  if (replayed && replayed->probe_rates) return replayed->probe_rates;
  return [rates] { return rates; };
}

at::Tensor times(const at::Tensor& x, const HostNumber& number) {
  return is_recorded(number) ? x * recorded_number(x, number.again, /*inverse=*/false) : x * number.value;
}

at::Tensor over(const at::Tensor& x, const HostNumber& number) {
  return is_recorded(number) ? x * recorded_number(x, number.again, /*inverse=*/true) : x / number.value;
}

}  // namespace edgewise::ops
