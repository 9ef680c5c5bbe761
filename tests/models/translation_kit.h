// Tiny encoder-decoders and batches that the tests of translation share.
#pragma once

#include <torch/torch.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/encoder_decoder.h>

#include "tiny_model.h"

namespace edgewise::testing_kit {

inline constexpr int64_t kWords = 9;  // 0 begins and ends a sentence, 1 is padding

inline EncoderDecoderOptions tiny_translator_options(const EdgeSourceFactory& edges = {}) {
  EncoderDecoderOptions options;
  options.encoder.vocabulary = kWords;
  options.encoder.max_length = 16;
  options.encoder.layers = 2;
  options.encoder.dim = 16;
  options.encoder.heads = 2;
  options.encoder.hidden = 24;
  options.encoder.dropout = 0;
  options.encoder.attention_dropout = 0;
  options.encoder.positions = Positions::kSinusoidal;
  options.encoder.style.norm_first = false;
  options.encoder.style.activation = Activation::kRelu;
  options.encoder.edges = options.decoder_edges = options.cross_edges = edges;
  options.padding = 1;
  return options;
}

inline EncoderDecoder tiny_translator(const EncoderDecoderOptions& options, uint64_t seed = 3) {
  torch::manual_seed(seed);
  EncoderDecoder model(options);
  model->to(torch::kDouble);
  model->eval();
  return model;
}

// Sentences of these lengths, their translations of those; both with marks.
inline Batch translation_batch(const std::vector<int64_t>& sources, const std::vector<int64_t>& targets,
                               uint64_t seed = 8) {
  torch::manual_seed(seed);
  const auto tower = [](const std::vector<int64_t>& lengths) {
    const int64_t longest = *std::ranges::max_element(lengths), items = std::ssize(lengths);
    const at::Tensor mask = length_mask(lengths, longest);
    return Tower{
        .tokens =
            torch::randint(2, kWords, {items, longest}, torch::kLong).masked_fill(mask.logical_not(), 1),
        .mask = mask};
  };
  Batch batch;
  batch.towers = {tower(sources), tower(targets)};
  batch.towers[1].tokens.select(1, 0).zero_();
  batch.labels =
      torch::cat({batch.towers[1].tokens.slice(1, 1), torch::zeros({std::ssize(sources), 1}, torch::kLong)},
                 1)
          .masked_fill(batch.towers[1].mask.logical_not(), -1);
  return batch;
}

inline EdgeSourceFactory edges_named(const std::string& name) {
  return [name](int64_t) -> EdgeSourcePtr {
    if (name == "full") return std::make_shared<FullEdges>();
    if (name == "window") return std::make_shared<WindowEdges>(2);
    if (name == "window in squares") return std::make_shared<WindowEdges>(2, 16);
    if (name == "random") return std::make_shared<RandomEdges>(2);
    SbmEdgesOptions options(2, 8);
    options.clusters = 4;
    options.cluster_std = 0.5;
    options.sampler = Sampler::kDirect;
    return SbmEdges(options).ptr();
  };
}

}  // namespace edgewise::testing_kit
