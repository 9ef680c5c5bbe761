// Tiny models and batches that the model tests share.
#pragma once

#include <functional>

#include <torch/torch.h>

#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/classifier.h>

namespace edgewise::testing_kit {

inline ClassifierOptions tiny_options(EdgeSourceFactory edges = {}) {
  ClassifierOptions options;
  options.encoder.vocabulary = 11;
  options.encoder.max_length = 32;
  options.encoder.dim = 16;
  options.encoder.heads = 2;
  options.encoder.hidden = 24;
  options.encoder.embedding_std = 1;  // large enough that mistakes show in the logits
  options.encoder.edges = std::move(edges);
  options.hidden = 20;
  options.classes = 3;
  return options;
}

inline EdgeSourceFactory sbm_factory() {
  return [](int64_t) {
    SbmEdgesOptions options(2, 8);
    options.clusters = 6;
    options.cluster_std = 0.5;
    return SbmEdges(options).ptr();
  };
}

template <typename Model>
Model tiny_model(EdgeSourceFactory edges = {}, uint64_t seed = 5) {
  torch::manual_seed(seed);
  Model model(tiny_options(std::move(edges)));
  model->eval();
  return model;
}

inline at::Tensor random_tokens(int64_t batch, int64_t length, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randint(1, 11, {batch, length}, torch::kLong);
}

// lengths[b] valid tokens in item b.
inline at::Tensor length_mask(const std::vector<int64_t>& lengths, int64_t length) {
  const at::Tensor counts = torch::tensor(lengths).unsqueeze(1);
  return torch::arange(length).unsqueeze(0) < counts;
}

}  // namespace edgewise::testing_kit
