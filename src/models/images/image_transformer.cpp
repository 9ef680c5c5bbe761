#include <edgewise/models/image_network.h>

#include <torch/types.h>

#include <edgewise/edges/grid_edges.h>

namespace edgewise {
namespace {

ClassifierOptions classifier_of(const ImageTransformerOptions& options) {
  TORCH_CHECK_VALUE(options.patch > 0 && options.rows % options.patch == 0 &&
                        options.columns % options.patch == 0 && options.rows > 0 && options.columns > 0,
                    "ImageTransformer: expected pictures of whole patches of ", options.patch, " x ",
                    options.patch, " pixels; got ", options.rows, " x ", options.columns);
  ClassifierOptions result = options.classifier;
  result.encoder.vocabulary = 0;
  result.encoder.features = 3 * options.patch * options.patch;
  result.encoder.max_length = (options.rows / options.patch) * (options.columns / options.patch);
  return result;
}

}  // namespace

ImageTransformerImpl::ImageTransformerImpl(ImageTransformerOptions given)
    : SequenceClassifierImpl(classifier_of(given)), image_options(std::move(given)) {
  check_grid("ImageTransformer", grid());
}

PixelGrid ImageTransformerImpl::grid() const {
  return {image_options.rows / image_options.patch, image_options.columns / image_options.patch,
          image_options.token_patch};
}

ModelOutput ImageTransformerImpl::forward(const ModelInput& input) {
  const at::Tensor& pixels = input.batch.towers.at(0).features;
  const int64_t patch = image_options.patch;
  TORCH_CHECK_VALUE(pixels.defined() && pixels.dim() == 3 &&
                        pixels.size(1) == image_options.rows * image_options.columns && pixels.size(2) == 3,
                    "ImageTransformer: expected pictures [B, ", image_options.rows, " * ",
                    image_options.columns, ", 3]; got ",
                    pixels.defined() ? c10::str(pixels.sizes()) : "none");
  const PixelGrid of_tokens = grid();
  const int64_t group = of_tokens.patch;
  // Rows and columns of a pixel: of the group of tokens, of the token in it, of the pixel in that.
  const at::Tensor tokens = pixels
                                .view({pixels.size(0), of_tokens.rows / group, group, patch,
                                       of_tokens.columns / group, group, patch, 3})
                                .permute({0, 1, 4, 2, 5, 3, 6, 7})
                                .reshape({pixels.size(0), of_tokens.tokens(), 3 * patch * patch});
  ModelInput cut = input;
  cut.batch.towers[0].features = tokens;
  ModelOutput result = SequenceClassifierImpl::forward(cut);
  const double count = static_cast<double>(of_tokens.tokens());
  result.layer_pairs =
      at::full({result.densities.size(0)}, static_cast<double>(pixels.size(0)) * count * count, at::kDouble);
  return result;
}

}  // namespace edgewise
