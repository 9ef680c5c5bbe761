// Keys of former versions, which run folders and checkpoints still hold: what they are called now, or that
// they are gone.
#pragma once

#include <edgewise/train/recipe.h>

#include <string>

namespace edgewise::train {

struct OldKey {
  std::string section, key;  // as it is called now
  bool was_renamed = false;
  bool is_gone = false;
  bool is_head_dim = false;
  bool is_snapshot_switch = false;
  std::string only_value = {};  // of a key that is gone: what now always holds, as TOML; "" = the preset's
  std::string instead = {};     // what to do, as a sentence
};

// For any key; `kind` is the recipe's attention.kind, which once shared keys with others.
OldKey old_key(const std::string& section, const std::string& key, const std::string& kind);

// train.snapshot_edges once asked for snapshots at every validation. After all other keys.
void apply_snapshot_switch(Recipe& recipe, const std::string& where, const std::string& value);

// model.head_dim once stood beside what it follows from.
struct OldHeadDim {
  std::string where, value;
};
void check_old_head_dim(const Recipe& recipe, const OldHeadDim& given);

}  // namespace edgewise::train
