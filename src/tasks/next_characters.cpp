// Language models over the characters of a text.
#include <edgewise/tasks/task.h>

#include <edgewise/attention/multihead_attention.h>
#include <edgewise/data/examples/token_text.h>

#include <torch/types.h>

#include <algorithm>
#include <numbers>

namespace edgewise::tasks {
namespace {

class TextOrder : public data::Order {
 public:
  TextOrder(const data::StreamRows& rows, int64_t batches) : rows_(rows), batches_(batches) {}
  std::vector<int64_t> indices(int64_t batch) override { return rows_.indices(batch % batches_); }
  bool is_beginning(int64_t batch) const override { return batch % batches_ == 0; }

 private:
  data::StreamRows rows_;
  int64_t batches_;
};

}  // namespace

std::unique_ptr<data::Order> NextCharacters::training_order(int64_t batch, uint64_t /*seed*/) const {
  const data::StreamRows rows(data().size(data::Split::kTrain), batch);
  return std::make_unique<TextOrder>(rows, rows.full_batches());
}

std::unique_ptr<data::Order> NextCharacters::evaluation_order(int64_t size, int64_t batch) const {
  const data::StreamRows rows(size, std::min(size, batch));
  return std::make_unique<TextOrder>(rows, rows.batches());
}

ModelPtr NextCharacters::make_model(const ModelPlan& plan) const {
  ModelPlan sized = plan;
  sized.encoder.max_length = data().max_length();
  return make_language_model(sized, data().bytes()).ptr();
}

void NextCharacters::check_model(const Model& model) const {
  const at::Tensor* const known = model.named_buffers().find("bytes");
  const std::vector<uint8_t> bytes = data().bytes();
  const at::Tensor found = known ? known->cpu() : at::empty({0}, at::kByte);
  TORCH_CHECK_VALUE(found.numel() == std::ssize(bytes) &&
                        std::equal(bytes.begin(), bytes.end(), found.const_data_ptr<uint8_t>()),
                    "expected a text with the bytes that the model was trained on; ", data().name(),
                    " has others. Set data.path to the text of the run, or to one with the same characters.");
}

ModelPtr NextTokens::make_model(const ModelPlan& plan) const {
  ModelPlan sized = plan;
  sized.encoder.max_length = data().max_length();
  return make_language_model(sized, {}, data().vocabulary()).ptr();
}

void NextTokens::check_model(const Model& model) const {
  const auto* const known = dynamic_cast<const LanguageModelImpl*>(&model);
  TORCH_CHECK_VALUE(known && known->vocabulary() == data().vocabulary(),
                    "expected a text in the tokens that the "
                    "model was trained on; ",
                    data().name(), " has ", data().vocabulary(),
                    ". Make the data with the tokeniser of the run");
}

const Metric& NextTokens::metric() const {
  return token_loss();
}

std::vector<Figure> NextTokens::loss_figures(double loss, data::Split split) const {
  const auto* const text = dynamic_cast<const data::TokenText*>(&data());
  if (!text) return {};
  return {{"bits_per_byte", loss / std::numbers::ln2 / text->bytes_per_token(split)}};
}

LanguageModel make_language_model(const ModelPlan& plan, std::vector<uint8_t> bytes, int64_t tokens) {
  const EncoderOptions& encoder = plan.encoder;
  LanguageModelOptions options;
  options.bytes = std::move(bytes);
  options.tokens = tokens;
  options.context = encoder.max_length;
  options.layers = encoder.layers;
  options.dim = encoder.dim;
  options.hidden = encoder.hidden;
  options.dropout = encoder.dropout;
  options.positions = encoder.positions;
  options.embedding_std = encoder.embedding_std;
  options.style = encoder.style;
  options.tied = plan.tied;
  options.attention = plan.decoder;
  if (!options.attention) {
    options.attention = [encoder](int64_t layer) -> CausalAttentionPtr {
      MultiheadEdgeAttentionOptions heads(encoder.dim, encoder.heads);
      heads.dropout_p = encoder.attention_dropout;
      heads.rotary = encoder.positions == Positions::kRotary;
      if (encoder.edges) heads.source = encoder.edges(layer);
      return CausalEdgeAttention(heads).ptr();
    };
  }
  return LanguageModel(options);
}

}  // namespace edgewise::tasks
