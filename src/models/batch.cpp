#include <edgewise/models/batch.h>

#include <algorithm>

#include <edgewise/edges/edge_source.h>
#include <torch/types.h>

namespace edgewise {
namespace {

// Every tensor of a batch: a field that is added is added here, and nowhere else.
template <typename AnyBatch, typename Use>
void for_each_tensor(AnyBatch& batch, const Use& use) {
  const auto each = [&](auto& tensor) {
    if (tensor.defined()) use(tensor);
  };
  for (auto& tower : batch.towers) {
    each(tower.tokens);
    each(tower.features);
    each(tower.mask);
    each(tower.positions);
    each(tower.relations);
  }
  each(batch.labels);
  for (auto& item : batch.more) each(item.second);
}

// Columns up to the last valid token of any row, rounded up. A mask may have holes, so the last one counts.
int64_t trimmed_length(const at::Tensor& mask, int64_t multiple) {
  const at::Tensor used = mask.any(0).nonzero();  // [columns, 1], ascending
  const int64_t longest = used.numel() == 0 ? 1 : used[-1].item<int64_t>() + 1;
  return std::min((longest + multiple - 1) / multiple * multiple, mask.size(1));
}

void trim(Tower& tower, int64_t multiple) {
  if (!tower.mask.defined()) return;
  const int64_t length = trimmed_length(tower.mask, multiple);
  for (at::Tensor* tensor : {&tower.tokens, &tower.features, &tower.mask, &tower.positions})
    if (tensor->defined()) *tensor = tensor->narrow(1, 0, length).contiguous();
}

}  // namespace

const at::Tensor* Batch::places() const {
  const auto found = more.find("places");
  return found == more.end() ? nullptr : &found->second;
}

Batch Batch::map(const std::function<at::Tensor(const at::Tensor&)>& change) const {
  Batch result = *this;
  for_each_tensor(result, [&](at::Tensor& tensor) { tensor = change(tensor); });
  return result;
}

std::vector<at::Tensor> Batch::tensors() const {
  std::vector<at::Tensor> result;
  for_each_tensor(*this, [&](const at::Tensor& tensor) { result.push_back(tensor); });
  return result;
}

Batch to_device(const Batch& batch, at::Device device) {
  return batch.map([&](const at::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/true); });
}

Batch pinned(const Batch& batch) {
  return batch.map([](const at::Tensor& tensor) { return tensor.pin_memory(); });
}

Batch slice_items(const Batch& batch, int64_t first, int64_t count) {
  Batch result = batch.map([&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); });
  if (batch.trim_multiple == 0 || count == batch.size() || batch.labels.dim() == 2) return result;
  for (Tower& tower : result.towers) trim(tower, batch.trim_multiple);
  return result;
}

std::optional<EdgeRelations> relations_of(const Tower& tower) {
  const at::Tensor& list = tower.relations;
  if (!list.defined()) return std::nullopt;
  const int64_t items = tower.items(), length = tower.length();
  TORCH_CHECK_VALUE(
      list.dim() == 3 && list.size(0) == items && list.size(2) == 3 && list.scalar_type() == at::kLong,
      "relations_of: expected relations [", items, ", R, 3] as int64: query, key and id; got ",
      list.scalar_type(), " ", list.sizes());
  const at::Tensor present = list.select(2, 2) > 0;  // [B, R]
  const at::Tensor pairs = list.slice(2, 0, 2).index({present});
  TORCH_CHECK_INDEX(((pairs >= 0) & (pairs < length)).all().item<bool>(),
                    "relations_of: expected queries and keys in [0, ", length, "); found ",
                    pairs.amin().item<int64_t>(), " to ", pairs.amax().item<int64_t>(),
                    ". Relations are between tokens, padding excluded.");
  const at::Tensor item = at::arange(items, list.options()).unsqueeze(1).expand_as(present).index({present});
  const auto [places, order] =
      ((item * length + pairs.select(1, 0)) * length + pairs.select(1, 1)).sort();  // by query, then key
  const int64_t count = places.size(0);
  TORCH_CHECK_VALUE(count < 2 || (places.slice(0, 1) > places.slice(0, 0, count - 1)).all().item<bool>(),
                    "relations_of: expected one relation for a pair of tokens at most; found two. Give the "
                    "pair an id of its own.");
  const EdgeShape shape{items, 1, length, length};
  const at::Tensor rows = places.div(length, "floor");
  const at::Tensor offsets = at::searchsorted(rows, at::arange(shape.rows() + 1, list.options()));
  return EdgeRelations{EdgeSet::from_csr(shape, offsets, places.remainder(length).to(at::kInt)),
                       list.select(2, 2).index({present}).index_select(0, order)};
}

}  // namespace edgewise
