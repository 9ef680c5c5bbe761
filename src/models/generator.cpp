#include <edgewise/models/generator.h>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace edgewise {

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, double uniform) {
  TORCH_CHECK_VALUE(options.greedy || options.temperature > 0,
                    "sample_token: expected a temperature above 0; got ", options.temperature,
                    ". For the likeliest token use greedy.");
  TORCH_CHECK_VALUE(options.top_k >= 0 && options.top_p > 0 && options.top_p <= 1,
                    "sample_token: expected top_k of at least 0 and top_p in (0, 1]; got ", options.top_k,
                    " and ", options.top_p);
  const at::Tensor wide = logits.detach().to(at::kCPU, at::kDouble).contiguous();
  TORCH_CHECK_VALUE(wide.dim() == 1 && wide.numel() > 0, "sample_token: expected logits [vocabulary]; got ",
                    logits.sizes());
  const double* const values = wide.const_data_ptr<double>();
  TORCH_CHECK_VALUE(
      std::all_of(values, values + wide.numel(), [](double v) { return v < HUGE_VAL; }),
      "sample_token: expected finite logits; some are not a number, or infinite. The model's parameters or "
      "its "
      "input may not be finite: evaluate the run (edgewise eval), or take an earlier checkpoint.");
  std::vector<int64_t> order(static_cast<size_t>(wide.numel()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  if (options.greedy) return order.front();
  std::vector<double> shares;
  for (const int64_t token : order)
    shares.push_back(std::exp((values[token] - values[order.front()]) / options.temperature));
  if (options.top_k > 0) shares.resize(std::min(shares.size(), static_cast<size_t>(options.top_k)));
  if (options.top_p < 1) {
    const double wanted = options.top_p * std::accumulate(shares.begin(), shares.end(), 0.0);
    double sum = 0;
    size_t kept = 0;
    while (kept < shares.size() && sum < wanted) sum += shares[kept++];
    shares.resize(std::max<size_t>(kept, 1));
  }
  const double target = uniform * std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  for (size_t n = 0; n < shares.size(); ++n)
    if ((sum += shares[n]) > target) return order[n];
  return order[shares.size() - 1];  // rounding
}

Generator::Generator(LanguageModel model, SamplingOptions options, uint64_t seed, RandomStream random,
                     GeneratorCache cache)
    : model_(std::move(model)),
      options_(options),
      seed_(seed),
      random_(random),
      cached_(cache == GeneratorCache::kWhereExact && model_->cache_refusal().empty()) {
  model_->eval();
}

at::Tensor Generator::as_batch(const std::vector<int64_t>& tokens) const {
  return torch::tensor(tokens, at::kLong).unsqueeze(0).to(model_->token_embedding->weight.device());
}

// The whole window anew.
void Generator::read_window(const std::vector<int64_t>& tokens) {
  const torch::NoGradGuard no_grad;
  window_ = tokens;
  if (cached_) {
    cache_ = {};
    logits_ = model_->read(as_batch(window_), cache_, random_)[0][-1];
    return;
  }
  ModelInput input;
  input.batch.towers = {{.tokens = as_batch(window_)}};
  input.random = random_;
  logits_ = model_->forward(input).logits[0][-1];
}

void Generator::read(const std::vector<int64_t>& tokens) {
  const auto context = static_cast<size_t>(model_->options.context);
  for (size_t first = 0; first < tokens.size();) {
    const size_t free = window_.size() < context ? context - window_.size() : 0;
    const bool forgets = cached_ && model_->forgets();
    if (!forgets && free == 0) {
      // Half of the window, then on: as much room as history.
      const size_t kept = std::max<size_t>(context / 2, 1) - (context == 1 ? 1 : 0);
      std::vector<int64_t> last(window_.end() - static_cast<std::ptrdiff_t>(kept), window_.end());
      if (last.empty()) {
        window_.clear();
        cache_ = {};
      } else {
        read_window(last);
      }
      continue;
    }
    const size_t count = std::min(tokens.size() - first, forgets ? context : free);
    const std::vector<int64_t> part(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                    tokens.begin() + static_cast<std::ptrdiff_t>(first + count));
    if (cached_) {
      logits_ = model_->read(as_batch(part), cache_, random_)[0][-1];
      if (!forgets) window_.insert(window_.end(), part.begin(), part.end());
    } else {
      std::vector<int64_t> all = window_;
      all.insert(all.end(), part.begin(), part.end());
      read_window(all);
    }
    first += count;
  }
}

int64_t Generator::next() {
  TORCH_CHECK_VALUE(logits_.defined(), "Generator: expected tokens to go on from; read() at least one first");
  // One number per token made: the same seed gives the same text, however it is read.
  constexpr uint32_t kLayer = 0xFFFFFFFE;
  kernels::RowStream stream(
      kernels::stream_key(seed_, static_cast<uint64_t>(made_), kLayer, 0, 0, kernels::Purpose::kShuffle), 0);
  const int64_t token = sample_token(logits_, options_, stream.next_uniform());
  ++made_;
  read({token});
  return token;
}

}  // namespace edgewise
