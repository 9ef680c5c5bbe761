#include "train/snapshot/snapshot_json.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace edgewise::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = int64_t{1} << 24, kMostHeads = 1024, kMostLayers = 1024, kMostInputs = 128;
constexpr size_t kMostHeadsInAll = size_t{1} << 14;
constexpr size_t kMostNames = 1 << 20, kLongestName = 256, kLargestJson = size_t{16} << 20;
constexpr int kDeepest = 12;  // levels; ours has eight

Json head_json(const HeadSnapshot& head) {
  return {{"edges", head.edges},
          {"chosen", head.chosen},
          {"kept", head.keys.defined() ? head.keys.size(0) : 0},
          {"density", head.density},
          {"clusters", head.block_matrix.defined() ? head.block_matrix.size(0) : 0}};
}

Json layer_json(const LayerSnapshot& layer) {
  Json heads = Json::array();
  for (const HeadSnapshot& head : layer.heads) heads.push_back(head_json(head));
  Json json = {{"unit", layer.unit},
               {"queries", layer.queries},
               {"keys", layer.keys},
               {"membership_stride", layer.membership_stride},
               {"heads", heads}};
  if (!layer.name.empty()) json["name"] = layer.name;
  if (layer.is_of_target) json["of_target"] = true;
  if (layer.looks_at_target) json["looks_at_target"] = true;
  return json;
}

Json input_json(const InputSnapshot& input) {
  Json layers = Json::array();
  for (const LayerSnapshot& layer : input.layers) layers.push_back(layer_json(layer));
  Json json = {
      {"example", input.example}, {"tower", input.tower}, {"length", input.length}, {"layers", layers}};
  if (!input.name.empty()) json["name"] = input.name;
  if (input.target.length > 0) json["target_length"] = input.target.length;
  return json;
}

// Reads with every type and range checked; a wrong one is told with its name.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Json parse(const std::string& text) const {
    TORCH_CHECK_VALUE(text.size() <= kLargestJson, "snapshot: '", file_, "' has a description of ",
                      text.size(), " bytes; expected at most ", kLargestJson);
    bool too_deep = false;
    const auto watch = [&](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > kDeepest); };
    Json json;
    try {
      json = Json::parse(text, watch);
    } catch (const nlohmann::json::exception&) {
      TORCH_CHECK_VALUE(false, "snapshot: '", file_, "': expected JSON as its description; found none");
    }
    TORCH_CHECK_VALUE(!too_deep && json.is_object(), "snapshot: '", file_,
                      "': expected a JSON object as its description; found something else");
    return json;
  }

  const Json& member(const Json& object, const char* name) const {
    TORCH_CHECK_VALUE(object.is_object() && object.contains(name), "snapshot: '", file_, "': expected '",
                      name, "' in its description; it is missing");
    return object[name];
  }
  int64_t whole(const Json& object, const char* name, int64_t low, int64_t high) const {
    const Json& value = member(object, name);
    TORCH_CHECK_VALUE(value.is_number_integer() &&
                          !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) &&
                          value.get<int64_t>() >= low && value.get<int64_t>() <= high,
                      "snapshot: '", file_, "': expected '", name, "' from ", low, " to ", high, "; found ",
                      value.is_number() ? value.dump() : std::string(value.type_name()));
    return value.get<int64_t>();
  }
  const Json& list(const Json& object, const char* name, size_t most) const {
    const Json& value = member(object, name);
    TORCH_CHECK_VALUE(value.is_array() && value.size() <= most, "snapshot: '", file_, "': expected '", name,
                      "' to be a list of at most ", most, "; found ", value.type_name(), " of ",
                      value.size());
    return value;
  }
  std::string word(const Json& value, const char* name) const {
    TORCH_CHECK_VALUE(value.is_string() && value.get_ref<const std::string&>().size() <= kLongestName,
                      "snapshot: '", file_, "': expected '", name, "' to be a text of at most ", kLongestName,
                      " bytes");
    return value.get<std::string>();
  }
  double share(const Json& object, const char* name) const {
    const Json& value = member(object, name);
    TORCH_CHECK_VALUE(value.is_number() && value.get<double>() >= 0 && std::isfinite(value.get<double>()),
                      "snapshot: '", file_, "': expected '", name, "' to be a number of at least 0");
    return value.get<double>();
  }
  bool flag(const Json& object, const char* name) const {
    const Json& value = member(object, name);
    TORCH_CHECK_VALUE(value.is_boolean(), "snapshot: '", file_, "': expected '", name,
                      "' to be true or false");
    return value.get<bool>();
  }

  // What later versions of the file may have, and earlier ones need not.
  std::string name_in(const Json& object) const {
    return object.contains("name") ? word(object["name"], "name") : "";
  }
  bool flag_in(const Json& object, const char* name) const {
    return object.contains(name) && flag(object, name);
  }

  HeadSnapshot head(const Json& json, const LayerSnapshot& layer) const {
    HeadSnapshot head;
    head.chosen = whole(json, "chosen", 0, layer.queries * layer.keys);
    head.edges = whole(json, "edges", 0, layer.queries * layer.keys * layer.unit * layer.unit);
    head.density = share(json, "density");
    return head;
  }
  LayerSnapshot layer(const Json& json) const {
    LayerSnapshot layer;
    layer.unit = whole(json, "unit", 1, 16);
    layer.name = name_in(json);
    layer.is_of_target = flag_in(json, "of_target");
    layer.looks_at_target = flag_in(json, "looks_at_target");
    TORCH_CHECK_VALUE(layer.unit == 1 || layer.unit == 16, "snapshot: '", file_,
                      "': expected 'unit' to be 1 or 16; found ", layer.unit);
    layer.queries = whole(json, "queries", 0, kMostTokens);
    layer.keys = whole(json, "keys", 0, kMostTokens);
    layer.membership_stride = whole(json, "membership_stride", 1, kMostTokens);
    for (const Json& each : list(json, "heads", kMostHeads)) layer.heads.push_back(head(each, layer));
    return layer;
  }
  InputSnapshot input(const Json& json) const {
    InputSnapshot input;
    input.example = whole(json, "example", 0, INT64_MAX);
    input.tower = whole(json, "tower", 0, 1);
    input.length = whole(json, "length", 0, kMostTokens);
    input.name = name_in(json);
    if (json.contains("target_length")) input.target.length = whole(json, "target_length", 0, kMostTokens);
    size_t heads = 0;
    for (const Json& each : list(json, "layers", kMostLayers)) {
      input.layers.push_back(layer(each));
      heads += input.layers.back().heads.size();
    }
    TORCH_CHECK_VALUE(heads <= kMostHeadsInAll, "snapshot: '", file_, "': expected at most ", kMostHeadsInAll,
                      " heads in all layers; found ", heads);
    return input;
  }
  Snapshot snapshot(const Json& json) const {
    Snapshot result;
    result.step = whole(json, "step", 0, INT64_MAX);
    result.task = word(member(json, "task"), "task");
    result.is_causal = flag(json, "causal");
    result.view.picture_width = whole(json, "picture_width", 0, 1 << 14);
    for (const Json& name : list(json, "token_names", kMostNames))
      result.view.names.push_back(word(name, "token_names"));
    if (json.contains("pieces"))
      for (const Json& each : list(json, "pieces", kMostNames)) {
        TORCH_CHECK_VALUE(each.is_array() && each.size() == 2 && each[0].is_number_integer(), "snapshot: '",
                          file_, "': expected 'pieces' to be pairs of an id and a text");
        result.pieces[each[0].get<int64_t>()] = word(each[1], "pieces");
      }
    for (const Json& each : list(json, "inputs", kMostInputs)) result.inputs.push_back(input(each));
    return result;
  }

 private:
  std::string file_;
};

}  // namespace

std::string to_json(const Snapshot& snapshot) {
  Json inputs = Json::array();
  for (const InputSnapshot& input : snapshot.inputs) inputs.push_back(input_json(input));
  Json json = {{"step", snapshot.step},
               {"task", snapshot.task},
               {"causal", snapshot.is_causal},
               {"picture_width", snapshot.view.picture_width},
               {"token_names", snapshot.view.names},
               {"inputs", inputs}};
  if (!snapshot.pieces.empty()) {
    json["pieces"] = Json::array();
    for (const auto& [id, text] : snapshot.pieces) json["pieces"].push_back(Json::array({id, text}));
  }
  // Pieces of a tokeniser may end within a character.
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Snapshot snapshot_of_json(const std::string& text, const std::string& file) {
  const Reader reader(file);
  return reader.snapshot(reader.parse(text));
}

}  // namespace edgewise::train
