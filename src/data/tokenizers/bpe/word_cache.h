// Words that were encoded before, with their ids. A word has one place; another word of that place pushes it
// out. So a look-up is one cache line, the memory is fixed, and no text can make it slow.
//
// Encoders are used from several threads: a call borrows a cache and gives it back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe/merge_word.h"

namespace edgewise::data {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 30, kMostIds = 8;

  // The ids of the word, or nothing known (a word has at least one).
  std::span<const int32_t> find(std::string_view word, uint64_t hash) const {
    const Entry& entry = entries_[hash % kEntries];
    if (entry.length != word.size() || std::memcmp(entry.word.data(), word.data(), word.size()) != 0)
      return {};
    return {entry.ids.data(), entry.count};
  }
  void keep(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
    if (word.size() > kLongestWord || ids.size() > kMostIds) return;
    Entry& entry = entries_[hash % kEntries];
    entry.length = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }
  static uint64_t hash(std::string_view word) {
    uint64_t hash = word.size();
    for (size_t at = 0; at < word.size(); at += 8) {
      uint64_t part = 0;
      std::memcpy(&part, word.data() + at, std::min<size_t>(8, word.size() - at));
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash;
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;

  struct alignas(64) Entry {
    uint8_t length = 0, count = 0;  // length 0: nothing here
    std::array<char, kLongestWord> word;
    std::array<int32_t, kMostIds> ids;
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

// What one call of an encoder works with.
struct EncoderState {
  WordCache cache;
  WordMerger merger;
};

class EncoderStates {
 public:
  // Belongs to its holder until it is gone.
  class Borrowed {
   public:
    explicit Borrowed(EncoderStates& owner) : owner_(owner), state_(owner.take()) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() { owner_.give(std::move(state_)); }
    EncoderState& operator*() { return *state_; }

   private:
    EncoderStates& owner_;
    std::unique_ptr<EncoderState> state_;
  };

 private:
  std::unique_ptr<EncoderState> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<EncoderState>();
    std::unique_ptr<EncoderState> state = std::move(free_.back());
    free_.pop_back();
    return state;
  }
  void give(std::unique_ptr<EncoderState> state) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(state));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<EncoderState>> free_;
};

}  // namespace edgewise::data
