#include "train/ranks/gradient_buckets.h"

#include <mutex>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

constexpr const char* kWhat = "the gradients of a step";

// Tells that the gradient of a parameter has got its share of a backward pass.
struct Tell : torch::autograd::PostAccumulateGradHook {
  explicit Tell(std::function<void()> then_) : then(std::move(then_)) {}
  void operator()(const at::Tensor&) override { then(); }
  std::function<void()> then;
};

}  // namespace

struct GradientBuckets::State {
  State(Ranks& ranks_, const torch::nn::Module& model, int64_t bytes);

  struct Bucket {
    std::vector<size_t> parameters;
    std::vector<size_t> sent;  // those in `flat`
    at::Tensor flat;
    std::function<void()> finish;
  };

  // With `mutex` held: sends what is whole, in order.
  void send_whole();
  void send(Bucket& bucket);
  void take(Bucket& bucket, const std::vector<bool>& present);
  // Which parameters have a gradient on any rank.
  std::vector<bool> present();

  Ranks& ranks;
  std::vector<at::Tensor> parameters;
  std::vector<size_t> bucket_of;
  std::vector<Bucket> buckets;
  std::vector<bool> expected;  // parameters that had a gradient on some rank in the step before

  std::mutex mutex;  // of what follows: autograd may run in threads of its own
  bool listening = false;
  std::vector<size_t> missing;  // gradients that a bucket waits for
  std::vector<bool> told;       // parameters
  size_t next = 0;              // bucket to send
  int64_t early = 0;
};

GradientBuckets::State::State(Ranks& ranks_, const torch::nn::Module& model, int64_t bytes)
    : ranks(ranks_),
      parameters(model.parameters()),
      bucket_of(parameters.size()),
      expected(parameters.size()) {
  int64_t filled = 0;
  at::ScalarType type = at::kFloat;
  for (size_t n = parameters.size(); n-- > 0;) {
    const at::Tensor& parameter = parameters[n];
    if (!parameter.requires_grad()) continue;
    if (buckets.empty() || filled >= bytes || parameter.scalar_type() != type) {
      buckets.emplace_back();
      filled = 0;
    }
    type = parameter.scalar_type();
    filled += static_cast<int64_t>(parameter.nbytes());
    buckets.back().parameters.push_back(n);
    bucket_of[n] = buckets.size() - 1;
  }
}

void GradientBuckets::State::send(Bucket& bucket) {
  std::vector<at::Tensor> parts;
  for (const size_t n : bucket.sent) {
    const at::Tensor& gradient = parameters[n].grad();
    parts.push_back(gradient.defined() ? gradient.detach().reshape(-1)
                                       : at::zeros({parameters[n].numel()}, parameters[n].options()));
  }
  bucket.finish = {};
  if (parts.empty()) return;
  bucket.flat = at::cat(parts);
  bucket.finish = ranks.begin_sum(bucket.flat, kWhat);
}

void GradientBuckets::State::send_whole() {
  for (; next < buckets.size() && missing[next] == 0; ++next) {
    send(buckets[next]);
    ++early;
  }
}

void GradientBuckets::State::take(Bucket& bucket, const std::vector<bool>& present) {
  if (!bucket.finish) return;
  bucket.finish();
  // Parts of the bucket, without autograd's marks of views: the optimiser lets go of gradients in place.
  const at::AutoDispatchBelowADInplaceOrView unmarked;
  int64_t first = 0;
  for (const size_t n : bucket.sent) {
    const int64_t count = parameters[n].numel();
    if (present[n])
      parameters[n].mutable_grad() = bucket.flat.narrow(0, first, count).view(parameters[n].sizes());
    first += count;
  }
  bucket.flat = at::Tensor();
  bucket.finish = {};
}

std::vector<bool> GradientBuckets::State::present() {
  at::Tensor has = at::zeros({static_cast<int64_t>(parameters.size())}, at::kByte);
  auto* const data = has.mutable_data_ptr<uint8_t>();
  for (size_t n = 0; n < parameters.size(); ++n) data[n] = parameters[n].grad().defined();
  ranks.largest(has, kWhat);
  return std::vector<bool>(data, data + parameters.size());
}

GradientBuckets::GradientBuckets(Ranks& ranks, const torch::nn::Module& model, int64_t bytes)
    : state_(std::make_unique<State>(ranks, model, bytes)) {
  State& s = *state_;
  for (size_t n = 0; n < s.parameters.size(); ++n) {
    if (!s.parameters[n].requires_grad()) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(s.parameters[n], std::make_unique<Tell>([&s, n] {
                                                     const std::lock_guard lock(s.mutex);
                                                     if (!s.listening || !s.expected[n] || s.told[n]) return;
                                                     s.told[n] = true;
                                                     --s.missing[s.bucket_of[n]];
                                                     const torch::NoGradGuard no_grad;
                                                     s.send_whole();
                                                   }));
  }
}

GradientBuckets::~GradientBuckets() {
  for (const at::Tensor& parameter : state_->parameters)
    if (parameter.requires_grad()) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientBuckets::listen() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.listening = true;
  s.told.assign(s.parameters.size(), false);
  s.missing.assign(s.buckets.size(), 0);
  s.next = 0;
  for (size_t b = 0; b < s.buckets.size(); ++b) {
    s.buckets[b].sent.clear();
    for (const size_t n : s.buckets[b].parameters)
      if (s.expected[n]) s.buckets[b].sent.push_back(n);
    s.missing[b] = s.buckets[b].sent.size();
  }
}

void GradientBuckets::sum() {
  RECORD_USER_SCOPE("sum over ranks");
  const torch::NoGradGuard no_grad;
  State& s = *state_;
  if (!s.listening) listen();  // no last pass has been told of: all is sent now
  {
    const std::lock_guard lock(s.mutex);
    s.listening = false;
    for (; s.next < s.buckets.size(); ++s.next) s.send(s.buckets[s.next]);
  }
  const std::vector<bool> present = s.present();
  // What nobody expected, as in the first step.
  std::vector<State::Bucket> more;
  for (const State::Bucket& bucket : s.buckets) {
    State::Bucket rest;
    for (const size_t n : bucket.parameters)
      if (present[n] && !s.expected[n]) rest.sent.push_back(n);
    if (rest.sent.empty()) continue;
    s.send(rest);
    more.push_back(std::move(rest));
  }
  for (State::Bucket& bucket : s.buckets) s.take(bucket, present);
  for (State::Bucket& bucket : more) s.take(bucket, present);
  s.expected = present;
}

int64_t GradientBuckets::buckets() const {
  return std::ssize(state_->buckets);
}

int64_t GradientBuckets::sent_early() const {
  return state_->early;
}

}  // namespace edgewise::train
