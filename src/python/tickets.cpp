#include "python/tickets.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace edgewise::python {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, std::weak_ptr<Kept>> entries;
};

Registry& registry() {
  static Registry* const all = new Registry;  // tensors may outlive static objects
  return *all;
}

}  // namespace

at::Tensor make_ticket(std::shared_ptr<Kept> kept) {
  static std::atomic<int64_t> last{0};
  const int64_t number = ++last;
  {
    const std::lock_guard lock(registry().mutex);
    registry().entries.emplace(number, kept);
  }
  auto* const place = new int64_t(number);
  const auto release = [place, number, kept = std::move(kept)](void*) {
    {
      const std::lock_guard lock(registry().mutex);
      registry().entries.erase(number);
    }
    delete place;
  };
  return at::from_blob(place, {1}, release, at::TensorOptions().dtype(at::kLong));
}

at::Tensor empty_ticket() {
  return at::zeros({1}, at::TensorOptions().dtype(at::kLong));
}

std::shared_ptr<Kept> find_kept(const at::Tensor& ticket) {
  if (!ticket.defined() || !ticket.is_cpu() || ticket.scalar_type() != at::kLong || ticket.numel() != 1)
    return nullptr;
  const int64_t number = *ticket.const_data_ptr<int64_t>();
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().entries.find(number);
  return found == registry().entries.end() ? nullptr : found->second.lock();
}

}  // namespace edgewise::python
