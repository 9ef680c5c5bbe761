// The random numbers of pairs (pair_numbers.h) for a lane that has two rows and many columns of them.
#pragma once

#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {

// Keeps a value in a register, so that the compiler does not compute it anew in every turn.
__device__ inline void keep(uint32_t& value) {
  asm volatile("" : "+r"(value));
}

// philox7(row, call, 0, kPairHighLane, key) for many calls of two rows: the first three rounds have most of
// their work in common.
class RowNumbers {
 public:
  __device__ RowNumbers(uint64_t key, uint32_t row) {
    const uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
    const auto round_key = [](uint32_t first, uint32_t step, int round) { return first + step * round; };
    first_key_ = key0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const WideProduct one = multiply_wide(kFirst, row + 8 * half);
      const WideProduct two = multiply_wide(kSecond, one.high ^ kPairHighLane ^ key1);
      const WideProduct three = multiply_wide(kFirst, two.high ^ round_key(key0, kStep0, 1));
      rows_[half][0] = one.low ^ round_key(key1, kStep1, 1);
      rows_[half][1] = two.low ^ round_key(key0, kStep0, 2);
      rows_[half][2] = three.high ^ round_key(key1, kStep1, 2);
      rows_[half][3] = three.low;
#pragma unroll
      for (uint32_t& x : rows_[half]) keep(x);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      keys_[n][0] = round_key(key0, kStep0, 3 + n), keys_[n][1] = round_key(key1, kStep1, 3 + n);
      keep(keys_[n][0]), keep(keys_[n][1]);
    }
    keep(first_key_);
  }

  // The words of `call` for row + 8 half.
  __device__ PairWords words(uint32_t call, int half) const {
    const uint32_t(&row)[4] = rows_[half];
    const WideProduct two = multiply_wide(kFirst, call ^ first_key_);  // the same for both rows
    const WideProduct three = multiply_wide(kSecond, two.high ^ row[0]);
    uint32_t c0 = three.high ^ row[1], c1 = three.low, c2 = two.low ^ row[2], c3 = row[3];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const WideProduct first = multiply_wide(kFirst, c0), second = multiply_wide(kSecond, c2);
      c0 = second.high ^ c1 ^ keys_[n][0], c1 = second.low;
      c2 = first.high ^ c3 ^ keys_[n][1], c3 = first.low;
    }
    return {{c0, c1, c2, c3}};
  }

 private:
  static constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u, kStep0 = 0x9E3779B9u,
                            kStep1 = 0xBB67AE85u;
  uint32_t rows_[2][4], keys_[4][2], first_key_;
};

}  // namespace edgewise::kernels::cuda
