#include <edgewise/tasks/images.h>

namespace edgewise::tasks {
namespace {

// Shuffled anew in every pass, whose number goes into the indices: pass 0 would be the pictures as they are.
class PassOrder : public data::Order {
 public:
  PassOrder(int64_t size, int64_t batch, uint64_t seed)
      : size_(size), batch_(batch), shuffled_(size, batch, seed) {}
  std::vector<int64_t> indices(int64_t step) override {
    std::vector<int64_t> result = shuffled_.indices(step);
    int64_t place = step * batch_;
    for (int64_t& index : result) index += (1 + place++ / size_) * size_;
    return result;
  }

 private:
  int64_t size_, batch_;
  data::BatchOrder shuffled_;
};

const data::ImageDataset& images_in(const data::Dataset& data) {
  const auto* const images = dynamic_cast<const data::ImageDataset*>(&data);
  TORCH_CHECK_VALUE(images, "Images: expected pictures; got the data ", data.name());
  return *images;
}

}  // namespace

ImageArchitecture parse_image_architecture(std::string_view name) {
  if (name == "wide") return ImageArchitecture::kWide;
  if (name == "resnet") return ImageArchitecture::kResidual;
  if (name == "transformer") return ImageArchitecture::kTransformer;
  TORCH_CHECK_VALUE(false, "network: expected wide, resnet or transformer; got '", name, "'");
}

Images::Images(std::shared_ptr<const data::Dataset> data, ImagesOptions options)
    : Task(std::move(data)), images_(images_in(this->data())), options_(std::move(options)) {}

std::unique_ptr<data::Order> Images::training_order(int64_t batch, uint64_t seed) const {
  return std::make_unique<PassOrder>(images_.size(data::Split::kTrain), batch, seed);
}

ModelPtr Images::make_model(const ModelPlan& plan) const {
  const ImageEdgeFactory edges = options_.edges ? options_.edges() : ImageEdgeFactory();
  if (options_.network == ImageArchitecture::kTransformer) {
    ImageTransformerOptions options{
        .rows = images_.height(),
        .columns = images_.width(),
        .patch = options_.patch,
        .token_patch = options_.token_patch,
        .classifier = {.encoder = plan.encoder, .classes = images_.classes(), .pooling = plan.pooling}};
    EncoderOptions& encoder = options.classifier.encoder;
    const PixelGrid grid{options.rows / options.patch, options.columns / options.patch, options.token_patch};
    if (edges)
      encoder.edges = [edges, grid, heads = encoder.heads, dim = encoder.dim](int64_t layer) {
        return edges({.grid = grid, .heads = heads, .head_dim = dim / heads, .layer = layer});
      };
    return ImageTransformer(std::move(options)).ptr();
  }
  ResidualNetworkOptions options = options_.network == ImageArchitecture::kWide
                                       ? wide_network(options_.depth, options_.widen)
                                       : residual_network(options_.depth, options_.stem);
  options.rows = images_.height();
  options.columns = images_.width();
  options.classes = images_.classes();
  options.dropout = plan.encoder.dropout;
  if (options_.augmentation) {
    options.augmentation = options_.augmentation;
    options.augmentation->heads = plan.encoder.heads;
    options.augmentation->patch = options_.token_patch;
    options.augmentation->edges = edges;
  }
  return ResidualNetwork(std::move(options)).ptr();
}

std::string Images::recording_refusal() const {
  if (options_.network == ImageArchitecture::kTransformer) return {};
  return "batch normalisation changes its running means in every pass, which recording would repeat";
}

}  // namespace edgewise::tasks
