// RankPlace: where a process stands among those that train one model together, as torchrun and its relatives
// tell it in the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace edgewise::train {

struct RankPlace {
  int64_t rank = 0;        // RANK, among all processes
  int64_t size = 1;        // WORLD_SIZE
  int64_t local_rank = 0;  // LOCAL_RANK, among those of this machine
  std::string address;     // MASTER_ADDR and MASTER_PORT: where the store is that all of them reach
  int64_t port = 0;
  // torchrun holds the store itself (TORCHELASTIC_USE_AGENT_STORE); else rank 0 does.
  bool launcher_has_store = false;
  int64_t attempt = 0;  // TORCHELASTIC_RESTART_COUNT: how often torchrun has started the processes anew
  // EDGEWISE_RANK_TIMEOUT, seconds: so long may a rank be without a sign of getting on.
  double timeout = 300;
};

// None where neither RANK nor WORLD_SIZE is set. Throws when one of the variables is missing or no sense can
// be made of it.
std::optional<RankPlace> rank_place();

}  // namespace edgewise::train
