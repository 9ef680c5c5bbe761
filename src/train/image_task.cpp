#include "train/image_task.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <ATen/Context.h>

#include <edgewise/tasks/images.h>
#include <edgewise/train/attention_kinds.h>

namespace edgewise::train {
namespace {

std::vector<OwnOption> image_options() {
  return {
      {.key = "network",
       .value = std::string("wide"),
       .meaning =
           "wide (WRN-depth-widen), resnet (of depth 18, 34 or 50), or transformer, whose layers, dim, "
           "heads and hidden are those of [model]",
       .allowed = {"wide", "resnet", "transformer"}},
      {.key = "depth", .value = int64_t{28}, .meaning = "wide: 6 n + 4; resnet: 18, 34 or 50", .low = 10},
      {.key = "widen", .value = int64_t{2}, .meaning = "wide: times the channels of a narrow one", .low = 1},
      {.key = "stem",
       .value = std::string("small"),
       .meaning = "resnet: begins with 3 x 3 (small), or with 7 x 7 and a quarter of the size (large)",
       .allowed = {"small", "large"}},
      {.key = "patch",
       .value = int64_t{4},
       .meaning = "transformer: pixels on each side of a token",
       .low = 1},
      {.key = "augmented",
       .value = false,
       .meaning = "wide, resnet: attention of model.heads heads, over the edges of [attention], beside the "
                  "first 3 x 3 convolution of every block"},
      {.key = "first_stage",
       .value = int64_t{0},
       .meaning = "augmented: the stage of blocks from which on, the first is 0",
       .low = 0},
      {.key = "key_share",
       .value = 0.2,
       .meaning = "augmented: channels of queries over those of the convolution's output",
       .low = 0},
      {.key = "value_share", .value = 0.1, .meaning = "augmented: the same of values", .low = 0},
      {.key = "least_head_dim",
       .value = int64_t{20},
       .meaning = "augmented: a head has at least so many channels of queries",
       .low = 1},
      {.key = "crop",
       .value = std::string("padding"),
       .meaning =
           "of training pictures: none; shifted by up to images.padding pixels; or a part of 8 to 100 % "
           "of the area scaled to the size (resized)",
       .allowed = {"none", "padding", "resized"}},
      {.key = "padding", .value = int64_t{4}, .meaning = "crop = padding: pixels", .low = 0},
      {.key = "flip", .value = true, .meaning = "training pictures are mirrored every other time"}};
}

// A value of [images], or its default where the recipe was not read from anywhere.
template <typename Value>
Value value_of(const Recipe& recipe, const std::string& key) {
  if (const auto found = recipe.own.find("images." + key); found != recipe.own.end())
    return std::get<Value>(found->second);
  const std::vector<OwnOption> options = image_options();
  return std::get<Value>(std::ranges::find(options, key, &OwnOption::key)->value);
}

// One attention for all layers of a size: they share what its kind has them share.
ImageEdgeFactory edges_of(const Recipe& recipe) {
  using Size = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  auto made = std::make_shared<std::map<Size, LayerAttention>>();
  return [recipe, made](const ImageEdgePlace& place) -> EdgeSourcePtr {
    const Size size{place.grid.rows, place.grid.columns, place.heads, place.head_dim};
    auto found = made->find(size);
    if (found == made->end()) {
      Recipe of = recipe;
      of.grid = place.grid;
      of.model.heads = place.heads;
      of.model.dim = place.heads * place.head_dim;
      found = made->emplace(size, attention_kind(of).make(of, place.grid.tokens())).first;
    }
    return found->second.edges ? found->second.edges(place.layer) : nullptr;
  };
}

DatasetPtr open_images(const Recipe& recipe) {
  const data::ImageDatasetOptions options{
      .crop = data::parse_image_crop(value_of<std::string>(recipe, "crop")),
      .padding = value_of<int64_t>(recipe, "padding"),
      .flip = value_of<bool>(recipe, "flip"),
      .seed = static_cast<uint64_t>(recipe.train.seed),
      .validation_is_test = recipe.data.validation == "test"};
  return std::make_shared<data::ImageDataset>(data::load_images(recipe.data.path), options);
}

tasks::TaskPtr make_images(DatasetPtr data, const Recipe& recipe) {
  // So that cuDNN's convolutions add up gradients in one order, and a run repeats.
  at::globalContext().setDeterministicCuDNN(true);
  const auto whole = [&](const char* key) { return value_of<int64_t>(recipe, key); };
  const auto number = [&](const char* key) { return value_of<double>(recipe, key); };
  tasks::ImagesOptions options{
      .network = tasks::parse_image_architecture(value_of<std::string>(recipe, "network")),
      .depth = whole("depth"),
      .widen = whole("widen"),
      .stem = parse_image_stem(value_of<std::string>(recipe, "stem")),
      .patch = whole("patch"),
      .token_patch = recipe.attention.unit == 16 ? 4 : 1,
      .augmentation = std::nullopt,
      .edges = {}};
  const bool is_transformer = options.network == tasks::ImageArchitecture::kTransformer,
             is_augmented = value_of<bool>(recipe, "augmented");
  TORCH_CHECK_VALUE(!is_augmented || !is_transformer,
                    "images: expected images.augmented = false with network = transformer, which has no "
                    "convolutions to augment; found it true");
  if (is_augmented) {
    ImageAugmentation& augmentation = options.augmentation.emplace();
    augmentation.key_share = number("key_share");
    augmentation.value_share = number("value_share");
    augmentation.least_head_dim = whole("least_head_dim");
    augmentation.first_stage = whole("first_stage");
  }
  const AttentionKind& kind = attention_kind(recipe);
  TORCH_CHECK_VALUE(
      is_transformer || is_augmented || kind.name == "dense",
      "images: expected images.augmented = true, or attention.kind = dense, which then stands for "
      "none; found attention.kind = ",
      kind.name, " with a network that has no attention");
  const LayerAttention made = kind.make(recipe, data->max_length());
  TORCH_CHECK_VALUE(
      !is_augmented || made.edges || made.is_dense(),
      "images: expected an attention.kind that chooses edges, or dense, beside convolutions; found ",
      kind.name, ", whose scores leave no room for relative positions");
  TORCH_CHECK_VALUE(!made.edges || !recipe.sac.candidate_window,
                    "images: expected no sac.candidate_window, which counts pixels along rows; use "
                    "attention.kind = window+sac for near pixels");
  if (made.edges) options.edges = [recipe] { return edges_of(recipe); };
  return std::make_shared<tasks::Images>(std::move(data), std::move(options));
}

std::string describe_network(const Recipe& recipe) {
  const auto network = value_of<std::string>(recipe, "network");
  const auto heads = std::to_string(recipe.model.heads),
             depth = std::to_string(value_of<int64_t>(recipe, "depth"));
  if (network == "transformer")
    return "vision Transformer of " + std::to_string(recipe.model.layers) + " layers, " + heads +
           " heads of " + std::to_string(recipe.model.head_dim());
  const std::string name = network == "wide"
                               ? "WRN-" + depth + "-" + std::to_string(value_of<int64_t>(recipe, "widen"))
                               : "ResNet-" + depth;
  return name + (value_of<bool>(recipe, "augmented") ? " with attention of " + heads + " heads"
                                                     : " without attention");
}

}  // namespace

TaskKind image_kind() {
  return {
      .name = "images",
      .meaning = "the class of a picture: CIFAR, ImageNet, your own",
      .open = open_images,
      .keys = {"validation"},
      .options = image_options(),
      .path = "the folder that 'edgewise data images' filled; found none; set it with --set data.path=DATA",
      .task_of = make_images,
      .describe_model = describe_network};
}

}  // namespace edgewise::train
