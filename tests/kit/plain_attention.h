// Attention over edges written as plain loops over pairs in fp64: the oracle for every back end.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <vector>

namespace edgewise::kit {

// query [B, H, L, D], key [B, H, S, D], value [B, H, S, Dv], mask [B, H, L, S]; fp64 -> [B, H, L, Dv].
inline at::Tensor plain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const at::Tensor& mask, double scale) {
  const at::Tensor output =
      at::zeros({query.size(0), query.size(1), query.size(2), value.size(3)}, at::kDouble);
  const auto q = query.accessor<double, 4>(), k = key.accessor<double, 4>(), v = value.accessor<double, 4>();
  const auto m = mask.accessor<bool, 4>();
  auto o = output.accessor<double, 4>();
  for (int64_t b = 0; b < query.size(0); ++b)
    for (int64_t h = 0; h < query.size(1); ++h)
      for (int64_t i = 0; i < query.size(2); ++i) {
        std::vector<double> logits(static_cast<size_t>(key.size(2)));
        double top = -INFINITY, total = 0;
        for (int64_t j = 0; j < key.size(2); ++j) {
          if (!m[b][h][i][j]) continue;
          for (int64_t d = 0; d < query.size(3); ++d) logits[j] += scale * q[b][h][i][d] * k[b][h][j][d];
          top = std::max(top, logits[j]);
        }
        for (int64_t j = 0; j < key.size(2); ++j)
          if (m[b][h][i][j]) total += std::exp(logits[j] - top);
        for (int64_t j = 0; j < key.size(2); ++j)
          if (m[b][h][i][j])
            for (int64_t d = 0; d < value.size(3); ++d)
              o[b][h][i][d] += std::exp(logits[j] - top) / total * v[b][h][j][d];
      }
  return output;
}

}  // namespace edgewise::kit
