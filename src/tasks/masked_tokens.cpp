#include <edgewise/tasks/masked_tokens.h>

#include <edgewise/data/examples/masked_text.h>
#include <edgewise/models/masked_language_model.h>

namespace edgewise::tasks {
namespace {

// Index p * size + i stands for piece i in pass p; seeds differ in their passes too.
class MaskedOrder : public data::Order {
 public:
  MaskedOrder(int64_t size, int64_t batch, uint64_t seed)
      : size_(size),
        batch_(batch),
        first_pass_(static_cast<int64_t>(seed % kSeeds) * kPasses),
        shuffled_(size, batch, seed) {}

  std::vector<int64_t> indices(int64_t step) override {
    std::vector<int64_t> result = shuffled_.indices(step);
    for (int64_t n = 0; n < std::ssize(result); ++n)
      result[static_cast<size_t>(n)] += (first_pass_ + (step * batch_ + n) / size_) * size_;
    return result;
  }

 private:
  static constexpr uint64_t kSeeds = 4096;
  static constexpr int64_t kPasses = int64_t{1} << 20;  // of a seed: more than any run makes

  int64_t size_, batch_, first_pass_;
  data::BatchOrder shuffled_;
};

}  // namespace

MaskedTokens::MaskedTokens(std::shared_ptr<const data::Dataset> data) : Task(std::move(data)) {
  TORCH_CHECK_VALUE(dynamic_cast<const data::MaskedText*>(&this->data()),
                    "masked_text: expected a MaskedText; got the data ", this->data().name());
}

std::unique_ptr<data::Order> MaskedTokens::training_order(int64_t batch, uint64_t seed) const {
  return std::make_unique<MaskedOrder>(data().size(data::Split::kTrain), batch, seed);
}

ModelPtr MaskedTokens::make_model(const ModelPlan& plan) const {
  EncoderOptions encoder = plan.encoder;
  encoder.vocabulary = data().vocabulary();
  if (encoder.max_length == 0) encoder.max_length = data().max_length();
  return MaskedLanguageModel(encoder).ptr();
}

Operations MaskedTokens::head_operations(double n, double width) const {
  // At the hidden places, 15 % of all unless the recipe says otherwise.
  constexpr double kHidden = 0.15;
  return {{"dense layer", "0.15 n e e", kHidden * n * width * width},
          {"output layer", "0.15 n e v", kHidden * n * width * static_cast<double>(data().vocabulary())}};
}

const Metric& MaskedTokens::metric() const {
  static const Metric metric = {.name = "masked_loss",
                                .words = "loss per hidden token",
                                .brief = "masked loss",
                                .is_share = false,
                                .of = [](double loss, double) { return loss; }};
  return metric;
}

}  // namespace edgewise::tasks
