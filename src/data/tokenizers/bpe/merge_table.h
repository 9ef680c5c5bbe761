// Which pairs of symbols merge, in which order, into what: a flat hash table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgewise::data {

using Symbol = uint32_t;
inline constexpr Symbol kNoSymbol = 0xFFFFFFFF;  // takes part in no merge

struct Merge {
  uint32_t rank = 0xFFFFFFFF;  // the lowest goes first; this one: no merge
  Symbol product = kNoSymbol;

  explicit operator bool() const { return product != kNoSymbol; }
};

class MergeTable {
 public:
  // At most `merges` will be added.
  explicit MergeTable(size_t merges = 0)
      : slots_(std::bit_ceil(2 * merges + 2)), mask_(static_cast<uint64_t>(slots_.size()) - 1) {}

  // False when the pair is there already.
  bool add(Symbol left, Symbol right, const Merge& merge) {
    Slot& slot = slots_[place(left, right)];
    if (slot.merge) return false;
    slot = {key(left, right), merge};
    ++size_;
    return true;
  }
  Merge find(Symbol left, Symbol right) const {
    if (left == kNoSymbol || right == kNoSymbol) return {};
    return slots_[place(left, right)].merge;
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };

  static uint64_t key(Symbol left, Symbol right) { return uint64_t{left} << 32 | right; }
  size_t place(Symbol left, Symbol right) const {
    const uint64_t wanted = key(left, right);
    uint64_t hash = wanted * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    uint64_t at = hash & mask_;
    while (slots_[at].merge && slots_[at].key != wanted) at = (at + 1) & mask_;
    return at;
  }

  std::vector<Slot> slots_;
  uint64_t mask_;
  size_t size_ = 0;
};

}  // namespace edgewise::data
