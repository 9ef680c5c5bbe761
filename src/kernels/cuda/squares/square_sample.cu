// Squares drawn from a block model over groups (square_choice_params.h). A warp has 16 rows of groups and
// goes through the key groups 32 at a time. Lane 4 g + t forms p_IJ of rows g and g + 8 and columns 8 w + 2 t
// + h, as a tile of the tensor cores deals them out, and as pair_numbers.h deals out random numbers. Every
// pair is decided by the number by which the direct sampler on CPU decides it; the four lanes of a row put
// their bits together and write the groups where those before them leave off. Probes are decided on the way.
//
// fp32 sums are those of the direct sampler, number by number; bf16 sums are those of tensor cores.
#include <type_traits>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/squares/square_choice_params.h"
#include "kernels/pair_numbers.h"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 4, kTile = 16, kColumns = 32;
constexpr unsigned kEvery = ~0u;

// Of rows g and g + 8 of a tile and columns 8 w + 2 t + h of 32: [half][w][h].
using LaneSums = float[2][4][2];

// Where a warp reads: rows g and g + 8 of Q^, and T of its head.
template <typename T>
struct ChoiceRows {
  const T* query[2];
  const T* side;
  int64_t side_stride;
  int clusters, key_groups;

  __device__ const T* column(int j) const { return side + min(j, key_groups - 1) * side_stride; }
};

__device__ inline uint4 read_16_bytes(const void* from) {
  return __ldg(reinterpret_cast<const uint4*>(from));
}

__device__ inline void form_sums(LaneSums& sums, const ChoiceRows<Bf16>& rows, int first) {
  const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
  float tiles[4][4];
#pragma unroll
  for (int w = 0; w < 4; ++w)
#pragma unroll
    for (int e = 0; e < 4; ++e) tiles[w][e] = sums[e / 2][w][e % 2];
#pragma unroll 1
  for (int c = 8 * t; c - 8 * t < rows.clusters; c += 32) {
    const bool is_there = c < rows.clusters;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const uint4 top = is_there ? read_16_bytes(rows.query[0] + c) : zeros,
                bottom = is_there ? read_16_bytes(rows.query[1] + c) : zeros;
    uint4 columns[4];
#pragma unroll
    for (int w = 0; w < 4; ++w)
      columns[w] = is_there ? read_16_bytes(rows.column(first + 8 * w + g) + c) : zeros;
    const uint32_t low[4] = {top.x, bottom.x, top.y, bottom.y}, high[4] = {top.z, bottom.z, top.w, bottom.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      multiply(tiles[w], low, columns[w].x, columns[w].y);
      multiply(tiles[w], high, columns[w].z, columns[w].w);
    }
  }
#pragma unroll
  for (int w = 0; w < 4; ++w)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e / 2][w][e % 2] = tiles[w][e];
}
__device__ inline void form_sums(LaneSums& sums, const ChoiceRows<float>& rows, int first) {
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll 1
  for (int c = 0; c < rows.clusters; c += 4) {
    const uint4 own[2] = {read_16_bytes(rows.query[0] + c), read_16_bytes(rows.query[1] + c)};
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 other = read_16_bytes(rows.column(first + 8 * w + 2 * t + h) + c);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto add = [&](uint32_t a, uint32_t b) {
            sums[half][w][h] = __fadd_rn(sums[half][w][h], __fmul_rn(__uint_as_float(a), __uint_as_float(b)));
          };
          add(own[half].x, other.x), add(own[half].y, other.y);
          add(own[half].z, other.z), add(own[half].w, other.w);
        }
      }
  }
}

// The law's probability times 2^16. Of the Bernoulli law this is a float, exactly.
__device__ inline float limit_of(float p, std::false_type) {
  return fminf(p, 1.0f) * 65536.0f;
}
__device__ inline double limit_of(float p, std::true_type) {
  return -expm1(-fmin(static_cast<double>(p), 1.0)) * 65536.0;
}

// Which of a lane's pairs of one row are chosen: bit 8 w + h. The 16 high bits of a pair's number decide, the
// low ones where these leave it open. What is left over of a limit near them is exact, also in floats.
template <typename IsPoisson>
__device__ inline uint32_t decide(const float (&sums)[4][2], uint64_t key, uint32_t row, uint32_t call,
                                  IsPoisson is_poisson) {
  const PairWords high = philox7(row, call, 0, kPairHighLane, key);
  uint32_t chosen = 0, open = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto limit = limit_of(sums[w][h], is_poisson);
      using Real = std::remove_const_t<decltype(limit)>;
      const Real over = limit - static_cast<Real>(high.word[w] >> (16 * h) & 0xFFFF);
      const uint32_t bit = 1u << (8 * w + h);
      if (over > static_cast<Real>(65535.0 / 65536))
        chosen |= bit;
      else if (over > 0)
        open |= bit;
    }
  if (open) {
    const PairWords low = philox7(row, call, 0, kPairLowLane, key);
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t bit = 1u << (8 * w + h);
        const double least = static_cast<double>(high.word[w] >> (16 * h) & 0xFFFF),
                     rest = static_cast<double>(low.word[w] >> (16 * h) & 0xFFFF) / 65536;
        if (open & bit && least + rest < static_cast<double>(limit_of(sums[w][h], is_poisson))) chosen |= bit;
      }
  }
  return chosen;
}

// Which of them a probe's number takes: bit 8 w + h. Two neighbouring lanes need the same four calls, so each
// makes two.
__device__ inline uint32_t decide_probes(uint64_t key, uint32_t row, uint32_t first_call, double limit) {
  const int t = static_cast<int>(threadIdx.x % 4);
  const bool is_odd = t % 2;
  uint32_t taken = 0;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const PairWords numbers =
        unit_numbers(key, row, first_call + 2 * ((is_odd ? 2 : 0) + k) + static_cast<uint32_t>(t / 2));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t mine = is_odd ? numbers.word[2 + h] : numbers.word[h],
                     theirs = is_odd ? numbers.word[h] : numbers.word[2 + h];
      const uint32_t given = __shfl_xor_sync(kEvery, theirs, 1);
      taken |= static_cast<uint32_t>(static_cast<double>(mine) < limit) << (8 * (is_odd ? 2 + k : k) + h);
      taken |= static_cast<uint32_t>(static_cast<double>(given) < limit) << (8 * (is_odd ? k : 2 + k) + h);
    }
  }
  return taken;
}

// A row's list, written by the four lanes that have its pairs.
struct RowWriter {
  int32_t* to;
  int count = 0;

  // mine: this lane's columns of the 32 from `first` on.
  __device__ void add(uint32_t mine, int first) {
    uint32_t all = mine | __shfl_xor_sync(kEvery, mine, 1);
    all |= __shfl_xor_sync(kEvery, all, 2);
    for (; mine; mine &= mine - 1) {
      const int column = __ffs(static_cast<int>(mine)) - 1;
      to[count + __popc(all & ((1u << column) - 1))] = first + column;
    }
    count += __popc(all);
  }
};

// The first so many of 32 columns.
__device__ inline uint32_t first_columns(int count) {
  return count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1;
}

template <typename T, typename IsPoisson>
__global__ void __launch_bounds__(kWarps * 32)
    sample_squares(const __grid_constant__ SquareSampleParams<T> p, IsPoisson is_poisson) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            g = lane / 4, t = lane % 4;
  const int query_groups = static_cast<int>(p.query_groups), key_groups = static_cast<int>(p.key_groups);
  const int tiles = (query_groups + kTile - 1) / kTile;
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (tile >= p.batch * p.heads * tiles) return;
  const int head_index = static_cast<int>(tile / tiles), first_group = static_cast<int>(tile % tiles) * kTile;
  const int item = head_index / static_cast<int>(p.heads), head = head_index % static_cast<int>(p.heads);

  ChoiceRows<T> rows;
  rows.side = p.key_side.head(item, head), rows.side_stride = p.key_side.row_stride;
  rows.clusters = static_cast<int>(p.clusters), rows.key_groups = key_groups;
  uint32_t drawn_row[2];
  int allowed[2];
  RowWriter squares[2], probes[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int wanted = first_group + g + 8 * half, group = min(wanted, query_groups - 1);
    const int64_t row = static_cast<int64_t>(head_index) * query_groups + group;
    rows.query[half] = p.query_membership.head(item, head) + group * p.query_membership.row_stride;
    const int drawn = group + static_cast<int>(p.first_row);
    drawn_row[half] = static_cast<uint32_t>(drawn);
    allowed[half] = p.is_causal ? min(key_groups, drawn + 1) : key_groups;
    if (wanted >= query_groups) allowed[half] = 0;
    if (p.query_mask && !p.query_mask[static_cast<int64_t>(item) * query_groups + group]) allowed[half] = 0;
    squares[half].to = p.cols + row * key_groups;
    probes[half].to = p.probe_keys ? p.probe_cols + row * key_groups : nullptr;
  }
  const int last_drawn = min(first_group + kTile, query_groups) - 1 + static_cast<int>(p.first_row);
  const int end = p.is_causal ? min(key_groups, last_drawn + 1) : key_groups;
  const uint64_t key = p.edge_keys[head_index], probe_key = p.probe_keys ? p.probe_keys[head_index] : 0;
  const double probe_limit = p.probe_keys ? unit_limit(p.probe_rates[item]) : 0;
#pragma unroll 1
  for (int first = 0; first < end; first += kColumns) {
    uint32_t valid = first_columns(key_groups - first);
    if (p.key_mask) {
      const int column = first + lane;
      valid = __ballot_sync(
          kEvery, column < key_groups && p.key_mask[static_cast<int64_t>(item) * key_groups + column]);
    }
    LaneSums sums;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int w = 0; w < 4; ++w) sums[half][w][0] = sums[half][w][1] = p.exploration;
    form_sums(sums, rows, first);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t may_be = valid & first_columns(allowed[half] - first);
      const uint32_t chosen =
          decide(sums[half], key, drawn_row[half], static_cast<uint32_t>(first / 8 + t), is_poisson)
          << (2 * t);
      squares[half].add(chosen & may_be, first);
      if (!p.probe_keys) continue;
      const uint32_t taken =
          decide_probes(probe_key, drawn_row[half], static_cast<uint32_t>(first / 4), probe_limit) << (2 * t);
      probes[half].add(taken & ~chosen & may_be, first);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int group = first_group + g + 8 * half;
    if (t > 0 || group >= query_groups) continue;
    const int64_t row = static_cast<int64_t>(head_index) * query_groups + group;
    p.count[row] = squares[half].count;
    if (p.probe_keys) p.probe_count[row] = probes[half].count;
  }
}

template <typename T>
int start(const SquareSampleParams<T>& p, Stream stream) {
  const int64_t tiles = p.batch * p.heads * ((p.query_groups + kTile - 1) / kTile);
  if (tiles == 0) return cudaSuccess;
  const auto start_law = [&](auto is_poisson) {
    launch(sample_squares<T, decltype(is_poisson)>,
           dim3(static_cast<unsigned>((tiles + kWarps - 1) / kWarps)), kWarps * 32,
           static_cast<cudaStream_t>(stream), p, is_poisson);
  };
  if (p.is_poisson)
    start_law(std::true_type{});
  else
    start_law(std::false_type{});
  return cudaGetLastError();
}

}  // namespace

bool square_choice_takes(int64_t clusters, int64_t bytes_of_number) {
  return clusters <= kMostChoiceClusters && clusters > 0 && clusters * bytes_of_number % 16 == 0;
}

int launch_sample_squares(const SquareSampleParams<Bf16>& params, Stream stream) {
  return start(params, stream);
}
int launch_sample_squares(const SquareSampleParams<float>& params, Stream stream) {
  return start(params, stream);
}

}  // namespace edgewise::kernels::cuda
