#include <edgewise/edges/row_buffer.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace edgewise {

at::Tensor RowBuffer::append(const at::Tensor& given) {
  const at::NoGradGuard guard;
  const int64_t count = given.size(2), capacity = data_.defined() ? data_.size(2) : 0;
  TORCH_CHECK_VALUE(!data_.defined() || (given.size(0) == data_.size(0) && given.size(1) == data_.size(1) &&
                                         given.size(3) == data_.size(3)),
                    "RowBuffer: expected rows that fit those before, ", data_.sizes(), "; got ",
                    given.sizes());
  if (end_ + count > capacity) {
    // Into new memory even where the old would do: moving rows within a tensor may not overlap.
    constexpr int64_t kSmallest = 64;
    const at::Tensor old = rows();
    data_ =
        at::empty({given.size(0), given.size(1), std::max(kSmallest, 2 * (size() + count)), given.size(3)},
                  given.options().requires_grad(false));
    if (old.defined()) data_.narrow(2, 0, size()).copy_(old);
    end_ = size();
    begin_ = 0;
  }
  data_.narrow(2, end_, count).copy_(given);
  end_ += count;
  return rows();
}

at::Tensor RowBuffer::rows() const {
  return data_.defined() ? data_.narrow(2, begin_, size()) : at::Tensor();
}

void RowBuffer::select_items(const at::Tensor& items) {
  if (data_.defined()) data_ = data_.index_select(0, items);
}

void RowBuffer::keep_last(int64_t count) {
  begin_ = std::max(begin_, end_ - count);
}

}  // namespace edgewise
