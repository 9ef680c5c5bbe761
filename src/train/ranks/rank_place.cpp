#include <edgewise/train/rank_place.h>

#include <charconv>
#include <cstdlib>
#include <string>

#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

int64_t whole(const char* name, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(
      error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
      "ranks: expected the variable ", name, " to be a whole number from ", least, " to ", most, "; got '",
      text, "'. torchrun sets it");
  return value;
}

std::string needed(const char* name) {
  const auto value = variable(name);
  TORCH_CHECK_VALUE(value, "ranks: expected the variable ", name,
                    ", as RANK or WORLD_SIZE is set and this process is one of several; it is missing. "
                    "Start with torchrun, or take RANK and WORLD_SIZE out of the environment");
  return *value;
}

}  // namespace

std::optional<RankPlace> rank_place() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  constexpr int64_t kMost = 1 << 20;
  RankPlace place;
  place.size = whole("WORLD_SIZE", needed("WORLD_SIZE"), 1, kMost);
  place.rank = whole("RANK", needed("RANK"), 0, kMost);
  TORCH_CHECK_VALUE(place.rank < place.size, "ranks: expected RANK below WORLD_SIZE, ", place.size, "; got ",
                    place.rank);
  place.local_rank = whole("LOCAL_RANK", variable("LOCAL_RANK").value_or("0"), 0, place.rank);
  place.address = needed("MASTER_ADDR");
  place.port = whole("MASTER_PORT", needed("MASTER_PORT"), 1, 65535);
  place.launcher_has_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (const auto attempt = variable("TORCHELASTIC_RESTART_COUNT"))
    place.attempt = whole("TORCHELASTIC_RESTART_COUNT", *attempt, 0, kMost);
  if (const auto timeout = variable("EDGEWISE_RANK_TIMEOUT"))
    place.timeout = static_cast<double>(whole("EDGEWISE_RANK_TIMEOUT", *timeout, 2, 24 * 3600));
  return place;
}

}  // namespace edgewise::train
