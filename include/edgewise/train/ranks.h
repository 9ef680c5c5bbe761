// Ranks: the processes that train one model together, each on its share of every batch (data parallel).
//
// They meet at torch's TCPStore, send small numbers on the host by Gloo, and gradients by Gloo or, between
// GPUs, by NCCL. All of them call the same functions in the same order; every function here waits until all
// have come. Where one of them is missing the others throw an error that names it
// (src/train/ranks/rank_watch.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <edgewise/train/rank_place.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::train {

class Ranks {
 public:
  // Meets the others; throws, naming those that are missing, when they do not come within place.timeout.
  explicit Ranks(const RankPlace& place);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  bool is_first() const { return place_.rank == 0; }
  const RankPlace& place() const { return place_; }
  // "rank 1 (process 77 on host)"
  const std::string& name(int64_t rank) const;
  bool on_one_host() const;

  // The device of this rank where a recipe says `name`: of several GPUs that with the number LOCAL_RANK.
  // From then on gradients on it are summed by NCCL, or, with EDGEWISE_RANK_BACKEND=gloo, on the host.
  at::Device take_device(const std::string& name);
  // "gloo" or "nccl": what carries gradients.
  std::string backend() const;

  // Of tensors on the host, in place. `what` the ranks do, for errors.
  void sum(at::Tensor& values, const std::string& what);
  void largest(at::Tensor& values, const std::string& what);
  // Of all ranks, one after the other, along dimension 0, where their numbers of rows may differ. On the
  // device of the tensor.
  at::Tensor gather_rows(const at::Tensor& rows, const std::string& what);
  std::vector<std::string> gather(const std::string& text, const std::string& what);
  // What rank 0 has, on the host; what the others give does not count.
  std::string from_first(const std::string& text, const std::string& what);
  std::map<std::string, at::Tensor> from_first(const std::map<std::string, at::Tensor>& tensors,
                                               const std::string& what);
  // Throws, naming the first rank that differs from rank 0, unless all say the same of `what`.
  void expect_same(const std::string& text, const std::string& what);

  // The sum of a tensor on the device of gradients over all ranks, begun at once; done, in place, when the
  // result is called. In an order of its own beside that of all other functions.
  std::function<void()> begin_sum(const at::Tensor& values, const std::string& what);

  // A sign that this rank gets on with what it does alone. Cheap.
  void note();
  // What torchrun's store remembers for later attempts: the value of the first who says it.
  std::string remember(const std::string& key, const std::string& value);

  // When this rank cannot go on: tells the others why.
  void fail(const std::string& why);
  // Once, when all is done: waits for the others.
  void leave();

 private:
  struct State;
  RankPlace place_;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::train
