#include "explore/run_view.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>

#include "explore/packed.h"
#include "train/run/run_folder.h"
#include "train/snapshot/snapshot_json.h"

namespace edgewise::app {
namespace {

constexpr size_t kMostOpen = 16;
constexpr int64_t kThumbnail = 48;        // pixels on a side
constexpr size_t kMostCurvePoints = 400;  // of a density curve

// Densities of every head in training, thinned out: {"steps": [...], "heads": [[...], ...]}.
Json density_curves(const std::filesystem::path& metrics) {
  std::vector<std::pair<int64_t, std::vector<double>>> points;
  if (std::filesystem::exists(metrics)) {
    for (const train::MetricRecord& record : train::read_metrics(metrics)) {
      const train::MetricValue *kind = train::find_metric(record, "kind"),
                               *step = train::find_metric(record, "step"),
                               *density = train::find_metric(record, "density");
      const auto* name = kind ? std::get_if<std::string>(kind) : nullptr;
      const auto* number = step ? std::get_if<int64_t>(step) : nullptr;
      const auto* values = density ? std::get_if<std::vector<double>>(density) : nullptr;
      if (name && *name == "train" && number && values) points.emplace_back(*number, *values);
    }
  }
  Json steps = Json::array(), heads = Json::array();
  const size_t stride = points.size() / kMostCurvePoints + 1;
  for (size_t at = 0; at < points.size(); at += stride) {
    const auto& [step, values] = points[at];
    steps.push_back(step);
    while (heads.size() < values.size()) heads.push_back(Json::array());
    for (size_t h = 0; h < heads.size(); ++h)  // null where a record has fewer
      heads[h].push_back(h < values.size() && std::isfinite(values[h]) ? Json(values[h]) : Json());
  }
  return {{"steps", steps}, {"heads", heads}};
}

// The pixels of a node among `nodes`: several where there are few nodes, else one that others share.
struct Pixels {
  int64_t begin, end;
};
Pixels pixels_of(int64_t node, int64_t nodes) {
  if (nodes >= kThumbnail) {
    const int64_t pixel = ((node + 1) * kThumbnail - 1) / nodes;
    return {pixel, pixel + 1};
  }
  const auto first = [&](int64_t n) { return (n * kThumbnail + nodes - 1) / nodes; };
  return {first(node), first(node + 1)};
}

// How many pairs of each pixel are edges, on a scale that shows few.
void draw_thumbnail(const train::HeadSnapshot& head, int64_t queries, int64_t keys, uint8_t* pixels) {
  std::vector<float> count(kThumbnail * kThumbnail);
  std::vector<double> rows(kThumbnail), columns(kThumbnail);  // nodes of each pixel
  const auto count_nodes = [](int64_t nodes, std::vector<double>& into) {
    for (int64_t node = 0; node < nodes; ++node)
      for (int64_t p = pixels_of(node, nodes).begin; p < pixels_of(node, nodes).end; ++p)
        into[static_cast<size_t>(p)] += 1;
  };
  count_nodes(queries, rows);
  count_nodes(keys, columns);
  const auto* const offsets = head.offsets.const_data_ptr<int32_t>();
  const auto* const keys_of = head.keys.const_data_ptr<int32_t>();
  for (int64_t row = 0; row < queries; ++row) {
    const Pixels down = pixels_of(row, queries);
    for (int32_t e = offsets[row]; e < offsets[row + 1]; ++e) {
      const Pixels across = pixels_of(keys_of[e], keys);
      for (int64_t y = down.begin; y < down.end; ++y)
        for (int64_t x = across.begin; x < across.end; ++x)
          count[static_cast<size_t>(y * kThumbnail + x)] += 1;
    }
  }
  for (size_t n = 0; n < count.size(); ++n) {
    const double pairs = std::max(1.0, rows[n / kThumbnail] * columns[n % kThumbnail]);
    const double share = std::min(1.0, static_cast<double>(count[n]) / pairs);
    pixels[n] = static_cast<uint8_t>(std::lround(255 * std::sqrt(share)));
  }
}

// Takes "name/123" off the front of an address; nothing when it begins otherwise. Digits only, so that one
// thing has one address.
std::optional<int64_t> take_number(std::string_view& address, std::string_view name) {
  if (!address.starts_with(name) || address.size() <= name.size() || address[name.size()] != '/') return {};
  const std::string_view digits = address.substr(name.size() + 1);
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const auto length = static_cast<size_t>(end - digits.data());
  if (error != std::errc() || value < 0 || !(digits[0] >= '0' && digits[0] <= '9') ||
      (digits[0] == '0' && length > 1) || (length < digits.size() && digits[length] != '/'))
    return {};
  address = digits.substr(std::min(length + 1, digits.size()));
  return value;
}

constexpr const char* kJson = "application/json";
constexpr const char* kBinary = "application/octet-stream";

}  // namespace

RunView::RunView(std::filesystem::path folder) : folder_(std::move(folder)), name_(name_of_folder()) {}

RunView::RunView(std::filesystem::path folder, const std::filesystem::path& file)
    : folder_(std::move(folder)),
      only_(std::make_shared<const train::SnapshotFile>(file)),
      name_(folder_.empty() ? file.stem().string() : name_of_folder()) {}

std::string RunView::name_of_folder() const {
  std::filesystem::path named = std::filesystem::absolute(folder_).lexically_normal();
  if (named.filename().empty()) named = named.parent_path();
  return named.parent_path().filename().string() + "/" + named.filename().string();
}

std::vector<int64_t> RunView::steps() const {
  if (only_) return {only_->about().step};
  return train::RunFolder{.root = folder_}.snapshot_steps();
}

Json RunView::about() const {
  const train::RunFolder folder{.root = folder_};
  const train::Recipe recipe = train::load_recipe(folder.config());
  return {{"name", name_},
          {"task", recipe.data.name},
          {"attention", train::describe_attention(recipe)},
          {"unit", recipe.attention.unit},
          {"layers", recipe.model.layers},
          {"heads", recipe.model.heads},
          {"total_steps", recipe.train.steps},
          {"steps", steps()},
          {"densities", density_curves(folder.metrics())}};
}

Json RunView::about_file() const {
  const train::Snapshot& snapshot = only_->about();
  const std::vector<train::LayerSnapshot> none;
  const auto& layers = snapshot.inputs.empty() ? none : snapshot.inputs[0].layers;
  return {{"name", name_},
          {"task", snapshot.task},
          {"attention", ""},
          {"unit", layers.empty() ? 1 : layers[0].unit},
          {"layers", layers.size()},
          {"heads", layers.empty() ? 0 : layers[0].heads.size()},
          {"total_steps", snapshot.step},
          {"steps", steps()},
          {"densities", {{"steps", Json::array()}, {"heads", Json::array()}}}};
}

std::string RunView::run(const RunView* beside) const {
  Json json = folder_.empty() ? about_file() : about();
  if (beside) json["beside"] = beside->name();
  return dump(json);
}

std::shared_ptr<const train::SnapshotFile> RunView::file(int64_t step) const {
  const std::vector<int64_t> known = steps();
  TORCH_CHECK_INDEX(std::ranges::binary_search(known, step), "explore: there is no snapshot of step ", step);
  if (only_) return only_;
  const std::filesystem::path path = train::RunFolder{.root = folder_}.snapshot(step);
  const auto written = std::filesystem::last_write_time(path);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(opened_, step, &Opened::step);
    if (found != opened_.end() && found->written == written) {
      opened_.splice(opened_.begin(), opened_, found);
      return found->file;
    }
  }
  auto file = std::make_shared<const train::SnapshotFile>(path);
  const std::lock_guard lock(mutex_);
  opened_.remove_if([&](const Opened& other) { return other.step == step; });
  opened_.push_front({step, written, file});
  if (opened_.size() > kMostOpen) opened_.pop_back();
  return file;
}

std::string RunView::step(int64_t step) const {
  return train::to_json(file(step)->about());
}

std::string RunView::input(int64_t step, size_t index) const {
  const train::InputSnapshot input = file(step)->input(index);
  Packed packed;
  packed.add("tokens", input.tokens);
  packed.add("valid", input.valid);
  packed.add("positions", input.positions);
  packed.add("labels", input.labels);
  packed.add("predicted", input.predicted);
  packed.add("right_offsets", input.right.offsets);
  packed.add("right_keys", input.right.keys);
  packed.add("given_offsets", input.given.offsets);
  packed.add("given_keys", input.given.keys);
  packed.add("target_tokens", input.target.tokens);
  packed.add("target_valid", input.target.valid);
  return packed.finish({{"length", input.length}, {"target_length", input.target.length}});
}

std::string RunView::thumbnails(int64_t step, size_t index) const {
  const auto snapshot = file(step);
  TORCH_CHECK_INDEX(index < snapshot->about().inputs.size(), "explore: there is no input ", index);
  const train::InputSnapshot& input = snapshot->about().inputs[index];
  std::vector<uint8_t> pixels;
  for (size_t l = 0; l < input.layers.size(); ++l) {
    const train::LayerSnapshot& layer = input.layers[l];
    for (size_t h = 0; h < layer.heads.size(); ++h) {
      pixels.resize(pixels.size() + kThumbnail * kThumbnail);
      draw_thumbnail(snapshot->head(index, l, h), layer.queries, layer.keys,
                     &pixels[pixels.size() - kThumbnail * kThumbnail]);
    }
  }
  Packed packed;
  packed.add("pixels", pixels);
  return packed.finish({{"size", kThumbnail}});
}

std::string RunView::head(const HeadPlace& place) const {
  const auto snapshot = file(place.step);
  const train::HeadSnapshot head = snapshot->head(place.input, place.layer, place.head);
  const train::LayerSnapshot& layer = snapshot->about().inputs[place.input].layers[place.layer];
  Packed packed;
  packed.add("offsets", head.offsets);
  packed.add("keys", head.keys);
  packed.add("weights", head.weights);
  packed.add("query_membership", head.query_membership);
  packed.add("key_side", head.key_side);
  packed.add("block_matrix", head.block_matrix);
  return packed.finish({{"unit", layer.unit},
                        {"queries", layer.queries},
                        {"keys", layer.keys},
                        {"edges", head.edges},
                        {"chosen", head.chosen},
                        {"density", head.density},
                        {"membership_stride", layer.membership_stride}});
}

ViewReply view_of(const RunView& run, const std::string& address, const RunView* beside) {
  constexpr std::string_view kBeside = "beside/";
  if (beside && address.starts_with(kBeside)) return view_of(*beside, address.substr(kBeside.size()));
  if (address == "run") return {true, kJson, run.run(beside)};
  std::string_view rest = address;
  const auto step = take_number(rest, "step");
  if (!step || address.ends_with('/')) return {};
  if (rest.empty()) return {true, kJson, run.step(*step)};
  const auto input = take_number(rest, "input");
  if (!input) return {};
  const auto index = static_cast<size_t>(*input);
  if (rest.empty()) return {true, kBinary, run.input(*step, index)};
  if (rest == "thumbnails") return {true, kBinary, run.thumbnails(*step, index)};
  const auto layer = take_number(rest, "layer");
  const auto head = layer ? take_number(rest, "head") : std::nullopt;
  if (!head || !rest.empty()) return {};
  return {true, kBinary, run.head({*step, index, static_cast<size_t>(*layer), static_cast<size_t>(*head)})};
}

}  // namespace edgewise::app
