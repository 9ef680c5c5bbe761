// SentencePiece models through libsentencepiece: a library of its own, which sentencepiece.cpp loads.
#include <edgewise/data/tokenizer.h>
#include <edgewise/io/atomic_file.h>

#include <sentencepiece_processor.h>

#include "data/text/failure.h"
#include "data/tokenizers/tokenizer_files.h"

namespace edgewise::data {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& name, std::string model) : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) fail(name, ": expected a model of SentencePiece; the library says: ", status.message());
    const auto id = [&](int value) { return value < 0 ? std::nullopt : std::optional<int32_t>(value); };
    special_ = {.begin = id(processor_.bos_id()),
                .pad = id(processor_.pad_id()),
                .end = id(processor_.eos_id()),
                .unknown = id(processor_.unk_id()),
                .mask = std::nullopt};
    if (processor_.PieceToId("<mask>") != processor_.unk_id()) special_.mask = processor_.PieceToId("<mask>");
  }

  using Tokenizer::encode;
  std::string_view kind() const override { return "sentencepiece"; }
  int64_t size() const override { return processor_.GetPieceSize(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> found;
    const auto status = processor_.Encode({text.data(), text.size()}, &found);
    if (!status.ok())
      fail("sentencepiece: cannot encode a text of ", text.size(), " bytes: ", status.message());
    ids.insert(ids.end(), found.begin(), found.end());
  }
  // Special pieces divide the text: what is between them is decoded by itself.
  std::string decode(std::span<const int32_t> ids, bool leave_out_special) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      const auto status = processor_.Decode(run, &part);
      if (!status.ok()) fail("sentencepiece: cannot decode ", run.size(), " ids: ", status.message());
      text += part;
      run.clear();
    };
    for (const int32_t id : ids) {
      check_id(id, "sentencepiece");
      if (!special_.contains(id) || id == special_.unknown) {
        run.push_back(id);
      } else if (!leave_out_special) {
        flush();
        text += processor_.IdToPiece(id);
      }
    }
    flush();
    return text;
  }
  std::string piece(int32_t id) const override {
    check_id(id, "sentencepiece");
    return processor_.IdToPiece(id);
  }

 protected:
  void save_files(const std::filesystem::path& folder) const override {
    io::write_file_atomically(folder / "sentencepiece.model", model_);
  }

 private:
  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace
}  // namespace edgewise::data

// The caller owns the result.
extern "C" __attribute__((visibility("default"))) edgewise::data::Tokenizer* edgewise_sentencepiece(
    const std::string& name, const std::string& model) {
  return new edgewise::data::SentencePieceTokenizer(name, model);
}
