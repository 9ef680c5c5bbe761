// Where the heads of a trained model look on Image and Pathfinder inputs: for every pixel the share of
// queries that have an edge to it. Masked pixels (data.mask_zero) are neither queries nor keys.
#include <edgewise/data/byte_examples.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/task_kinds.h>
#include <torch/nn/functional.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base64.h"
#include "data/readers/png.h"
#include "report/report.h"
#include "table.h"

namespace edgewise::app {
namespace {

constexpr std::array<const char*, 10> kCifarNames = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                     "dog",      "frog",       "horse", "ship", "truck"};

std::string label_name(const std::string& task, int64_t label) {
  if (task == "image") return kCifarNames[static_cast<size_t>(label) % kCifarNames.size()];
  return label == 1 ? "one path" : "two paths";
}

// Dark blue through orange to light yellow; 0..1.
std::array<uint8_t, 3> heat(double value) {
  constexpr std::array<std::array<double, 3>, 5> kStops = {
      {{13, 8, 60}, {94, 20, 110}, {186, 55, 84}, {249, 142, 9}, {252, 255, 190}}};
  const double at = std::clamp(value, 0.0, 1.0) * (kStops.size() - 1);
  const auto stop = std::min(static_cast<size_t>(at), kStops.size() - 2);
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) {
    const double mixed =
        kStops[stop][c] + (at - static_cast<double>(stop)) * (kStops[stop + 1][c] - kStops[stop][c]);
    colour[c] = static_cast<uint8_t>(std::lround(mixed));
  }
  return colour;
}

std::string image_tag(const std::string& png, const std::string& caption) {
  return "<figure><img alt=\"" + html_escape(caption) + "\" src=\"data:image/png;base64," + base64(png) +
         "\"><figcaption>" + html_escape(caption) + "</figcaption></figure>\n";
}

std::string heat_png(const std::vector<double>& shares, int64_t side, double most) {
  std::vector<uint8_t> pixels;
  for (const double share : shares) {
    for (const uint8_t channel : heat(most > 0 ? share / most : 0)) pixels.push_back(channel);
  }
  return data::encode_png(side, side, 3, pixels);
}

// Adds to the batch's pictures the edges of one layer between their unmasked pixels; `mask` is [B, N] bool.
void count_edges(const EdgeSet& edges, size_t layer, const at::Tensor& mask,
                 std::span<PictureFigures> pictures) {
  const EdgeShape& shape = edges.shape();
  const auto* offsets = edges.row_offsets().const_data_ptr<int64_t>();
  const auto* keys = edges.col_indices().const_data_ptr<int32_t>();
  for (int64_t b = 0; b < shape.batch; ++b) {
    const at::Tensor valid = mask[b].contiguous();
    const bool* is_valid = valid.const_data_ptr<bool>();
    const double tokens = std::max(valid.sum().item<double>(), 1.0);  // a black picture has no edges to count
    for (int64_t h = 0; h < shape.heads; ++h) {
      const size_t head = layer * static_cast<size_t>(shape.heads) + static_cast<size_t>(h);
      PictureFigures& picture = pictures[static_cast<size_t>(b)];
      auto& shares = picture.key_shares[head];
      const int64_t first = (b * shape.heads + h) * shape.queries;
      for (int64_t query = 0; query < shape.queries; ++query) {
        if (!is_valid[query]) continue;
        for (int64_t e = offsets[first + query]; e < offsets[first + query + 1]; ++e) {
          if (is_valid[keys[e]]) shares[static_cast<size_t>(keys[e])] += 1 / tokens;
        }
      }
      picture.densities[head] = std::accumulate(shares.begin(), shares.end(), 0.0) / tokens;
    }
  }
}

std::vector<PictureFigures> look(Model& model, const data::Dataset& dataset, const train::Recipe& recipe,
                                 int64_t count) {
  constexpr int64_t kBatch = 8;
  torch::NoGradGuard no_grad;
  model.eval();
  const auto heads = static_cast<size_t>(recipe.model.layers * recipe.model.heads);
  std::vector<PictureFigures> all;
  for (int64_t first = 0; first < count; first += kBatch) {
    std::vector<int64_t> indices;
    for (int64_t i = first; i < std::min(first + kBatch, count); ++i) indices.push_back(i);
    const Batch batch = dataset.batch(data::Split::kTest, indices);
    const ModelOutput output =
        model.forward({.batch = batch,
                       .random = train::evaluation_stream(static_cast<uint64_t>(recipe.train.seed), 0, first),
                       .keep_edges = true});
    namespace F = torch::nn::functional;
    const at::Tensor losses =
        F::cross_entropy(output.logits, batch.labels, F::CrossEntropyFuncOptions().reduction(torch::kNone));
    const at::Tensor predicted = output.logits.argmax(1);
    const size_t begin = all.size();
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const at::Tensor pixels = batch.towers[0].tokens[at].to(at::kByte).contiguous();  // as they were read
      PictureFigures figures;
      figures.index = indices[i];
      figures.label = batch.labels[at].item<int64_t>();
      figures.predicted = predicted[at].item<int64_t>();
      figures.loss = losses[at].item<double>();
      figures.pixels.assign(pixels.const_data_ptr<uint8_t>(),
                            pixels.const_data_ptr<uint8_t>() + pixels.numel());
      figures.key_shares.assign(heads, std::vector<double>(figures.pixels.size()));
      figures.densities.resize(heads);
      all.push_back(std::move(figures));
    }
    for (size_t layer = 0; layer < output.edges.size(); ++layer)
      count_edges(output.edges[layer], layer, batch.towers[0].mask, std::span(all).subspan(begin));
  }
  return all;
}

}  // namespace

std::optional<Pictures> look_at_pictures(const std::filesystem::path& run, const train::Recipe& recipe,
                                         const PicturesOptions& options, std::string& why_not) {
  const std::string& task = recipe.data.name;
  const auto file = [&](const char* name) {
    return run / "checkpoints" / (std::string(name) + ".safetensors");
  };
  const std::filesystem::path checkpoint =
      std::filesystem::exists(file("best")) ? file("best") : file("last");
  if (!train::task_kind(recipe).reads("symmetries")) {
    why_not = "the inputs of " + task + " are no pictures";
  } else if (!train::attention_kind(recipe).make(recipe, recipe.model.max_length).edges) {
    why_not = "attention of kind " + recipe.attention.kind + " has no edges";
  } else if (!std::filesystem::exists(checkpoint)) {
    why_not = "the run folder has no checkpoint";
  } else if (!std::filesystem::exists(data::byte_examples_path(recipe.data.path, task))) {
    why_not = "there is no data in " + recipe.data.path + " (--set data.path=FOLDER names another place)";
  }
  if (!why_not.empty()) return std::nullopt;
  train::Recipe whole = recipe;
  whole.data.drop_masked = false;  // a token per pixel, in order: what the pictures are made of
  const tasks::TaskPtr opened = train::open_task(whole);
  const data::Dataset& dataset = opened->data();
  const ModelPtr model = train::build_model(recipe, *opened);
  try {
    train::load_checkpoint(checkpoint.string(), *model);
  } catch (const c10::Error& error) {  // the curves are worth a report without it
    why_not = error.what_without_backtrace();
    return std::nullopt;
  }
  const int64_t count = std::min(options.look_at, dataset.size(data::Split::kTest));
  std::vector<PictureFigures> all = look(*model, dataset, recipe, count);
  std::ranges::sort(all, {}, &PictureFigures::loss);
  const auto shown = static_cast<size_t>(std::min(options.show, count / 2));
  Pictures result;
  result.looked_at = count;
  result.side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(dataset.max_length()))));
  result.checkpoint = checkpoint.filename().string();
  result.easy.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown));
  result.hard.assign(all.rbegin(), all.rbegin() + static_cast<std::ptrdiff_t>(shown));
  return result;
}

std::string pictures_html(const Pictures& pictures, const std::string& task, int64_t heads) {
  std::vector<double>
      most;  // [layers * heads]: a scale for each, lest one head that looks hard darkens the rest
  for (const auto* kind : {&pictures.easy, &pictures.hard}) {
    for (const PictureFigures& picture : *kind) {
      most.resize(picture.key_shares.size());
      for (size_t head = 0; head < most.size(); ++head)
        most[head] = std::max(most[head], *std::ranges::max_element(picture.key_shares[head]));
    }
  }
  std::string scales;
  for (const double share : most) scales += (scales.empty() ? "" : ", ") + percent(share, 1);
  std::string html =
      "<p>For every pixel the share of queries that have an edge to it, from 0 (dark) to the most that a "
      "pixel has "
      "from that head (light; " +
      scales + " for the heads in order). Easy and hard: least and most loss among the first " +
      std::to_string(pictures.looked_at) + " test pictures (checkpoint " + html_escape(pictures.checkpoint) +
      ", one draw of the edges; densities are of pairs of unmasked pixels).</p>\n";
  for (const bool easy : {true, false}) {
    html += std::string("<h3>") + (easy ? "Easy" : "Hard") + "</h3>\n";
    for (const PictureFigures& picture : easy ? pictures.easy : pictures.hard) {
      html += "<div class=\"row\">\n" +
              image_tag(data::encode_png(pictures.side, pictures.side, 1, picture.pixels),
                        "test " + std::to_string(picture.index) + ": " + label_name(task, picture.label) +
                            (picture.predicted == picture.label
                                 ? ", recognised"
                                 : ", taken for " + label_name(task, picture.predicted)) +
                            ", loss " + fixed(picture.loss, 3));
      for (size_t head = 0; head < picture.key_shares.size(); ++head) {
        const auto per_layer = static_cast<size_t>(heads);
        html += image_tag(heat_png(picture.key_shares[head], pictures.side, most[head]),
                          "layer " + std::to_string(head / per_layer) + ", head " +
                              std::to_string(head % per_layer) + ": " + percent(picture.densities[head], 2));
      }
      html += "</div>\n";
    }
  }
  return html;
}

}  // namespace edgewise::app
