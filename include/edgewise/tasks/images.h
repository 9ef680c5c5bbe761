// Images: the class of a picture (edgewise/data/images/image_dataset.h), by a residual network or a vision
// Transformer.
#pragma once

#include <edgewise/data/images/image_dataset.h>
#include <edgewise/models/image_network.h>
#include <edgewise/tasks/task.h>

#include <optional>
#include <string_view>

namespace edgewise::tasks {

enum class ImageArchitecture { kWide, kResidual, kTransformer };
ImageArchitecture parse_image_architecture(std::string_view name);  // "wide" | "resnet" | "transformer"

struct ImagesOptions {
  ImageArchitecture network = ImageArchitecture::kWide;
  int64_t depth = 28, widen = 2;       // kWide, kResidual; kWide
  ImageStem stem = ImageStem::kSmall;  // kResidual
  int64_t patch = 4;                   // kTransformer: pixels on each side of a token
  int64_t token_patch = 1;             // PixelGrid::patch of whatever asks for edges
  // Attention beside the convolutions, without heads, patch and edges; none: none.
  std::optional<ImageAugmentation> augmentation;
  // Makes the edges of one model, layer after layer; empty: dense attention, or what ModelPlan says.
  std::function<ImageEdgeFactory()> edges;
};

class Images : public Task {
 public:
  Images(std::shared_ptr<const data::Dataset> data, ImagesOptions options);

  // Pass n of the training pictures has the indices from n * size on, which crop and flip them anew.
  std::unique_ptr<data::Order> training_order(int64_t batch, uint64_t seed) const override;
  ModelPtr make_model(const ModelPlan& plan) const override;
  std::string recording_refusal() const override;

  const ImagesOptions& options() const { return options_; }

 private:
  const data::ImageDataset& images_;
  ImagesOptions options_;
};

}  // namespace edgewise::tasks
