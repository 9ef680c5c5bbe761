// The CPU kernels behind edge_attention: tensors to raw pointers, rows divided among ATen's threads.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/levels.h"
#include "ops/attention/cpu_costs.h"
#include "ops/attention/kernel_table.h"
#include "ops/attention/kernel_views.h"
#include "ops/attention/reference.h"
#include "ops/cpu_level_variable.h"
#include "ops/kernel_threads.h"

namespace edgewise::ops {
namespace {

using kernels::Accumulator;

// What a row costs beside its edges, in edges; and the least work worth a task.
constexpr int64_t kRowCost = 4, kTaskCost = 4096;
// Tasks per thread: rows are of uneven degree, and a thread may be slowed down by its neighbours.
constexpr int64_t kTasksPerThread = 8;

// What threads have in common while they go through the rows.
enum class Heads {
  kOwn,     // each begins with heads of its own, which stay in its cache
  kShared,  // all are in the same head: one that only the cache they share can hold
};

// The heads' rows that are gathered from, `row_bytes` each.
Heads share_heads(int64_t rows_of_head, int64_t row_bytes) {
  constexpr int64_t kOwnCache = int64_t{1} << 20;
  return rows_of_head * row_bytes > kOwnCache ? Heads::kShared : Heads::kOwn;
}

// body(begin, end) over ranges of rows of about equal work: edges counted, not rows. Threads take ranges from
// a queue, their own first, then those of others. Every row has one owner, so the result does not depend on
// who took it.
template <typename Body>
void for_rows(const int64_t* offsets, int64_t rows, Heads heads, const Body& body) {
  const auto work_before = [&](int64_t row) { return offsets[row] - offsets[0] + kRowCost * row; };
  const int64_t work = work_before(rows), most_threads = at::get_num_threads();
  const int64_t tasks =
      std::clamp<int64_t>(work / kTaskCost, 1, most_threads > 1 ? kTasksPerThread * most_threads : 1);
  const int64_t threads = std::min(tasks, most_threads);
  const auto first_row = [&](int64_t task) {
    const int64_t wanted = work / tasks * task + work % tasks * task / tasks;
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (work_before(middle) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  const int64_t queues = heads == Heads::kOwn ? threads : 1;
  const auto first_task = [&](int64_t queue) { return tasks * queue / queues; };
  struct alignas(64) Next {  // a cache line each
    std::atomic<int64_t> task;
  };
  std::vector<Next> next(static_cast<size_t>(queues));
  for (int64_t queue = 0; queue < queues; ++queue) next[static_cast<size_t>(queue)].task = first_task(queue);
  at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) {
    for (int64_t n = 0; n < queues; ++n) {
      const int64_t queue = (thread + n) % queues, stop = first_task(queue + 1);
      std::atomic<int64_t>& task_of = next[static_cast<size_t>(queue)].task;
      for (int64_t task = task_of++; task < stop; task = task_of++) {
        const int64_t begin = first_row(task), end = task + 1 == tasks ? rows : first_row(task + 1);
        if (begin < end) body(begin, end);
      }
    }
  });
}

// A new tensor for a kernel to fill.
at::Tensor fresh(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return graph::on_huge_pages(at::empty(sizes, options));
}

template <typename T, typename Params>
void set_common(Params& params, const AttentionInputs& in) {
  params.head_dim = in.query.size(3);
  params.value_dim = in.value.size(3);
  params.scale = in.scale;
  params.query = head_view<T>(in.query);
  params.key = head_view<T>(in.key);
  params.value = head_view<T>(in.value);
}

kernels::DropoutParams dropout_params(const AttentionInputs& in) {
  if (in.dropout_p <= 0) return {};
  return {in.dropout_p, reinterpret_cast<const uint64_t*>(in.head_keys.const_data_ptr<int64_t>())};
}

// For the backward pass, if there is one: [E] logits where the learner's rule asks for them, else their
// exponentials. 4 bytes an edge until then, instead of another walk through the keys.
struct KeptNumbers : KernelState {
  at::Tensor scores, exponentials;
};

AttentionInputs widened(AttentionInputs in) {
  for (at::Tensor* x : {&in.query, &in.key, &in.value}) *x = x->to(at::kFloat);
  in.dtype = at::kFloat;
  return in;
}

AttentionInputs row_contiguous(AttentionInputs in) {
  const double degree = mean_degree(in);
  in.query = with_contiguous_rows(in.query);
  if (worth_a_copy(in.key, degree) && worth_a_copy(in.value, degree)) {
    // Side by side: whoever wants a key wants its value next.
    at::Tensor both =
        fresh({in.key.size(0), in.key.size(1), in.key.size(2), in.key.size(3) + in.value.size(3)},
              in.key.options());
    in.key = both.narrow(3, 0, in.key.size(3)).copy_(in.key);
    in.value = both.narrow(3, in.key.size(3), in.value.size(3)).copy_(in.value);
    return in;
  }
  in.key = for_gathering(in.key, degree);
  in.value = for_gathering(in.value, degree);
  return in;
}

// For the passes over queries, which gather keys and values.
template <typename T>
Heads share_heads(const AttentionInputs& in) {
  return share_heads(in.key.size(2), (in.query.size(3) + in.value.size(3)) * static_cast<int64_t>(sizeof(T)));
}

// The kernels of the level in use; throws when EDGEWISE_CPU_LEVEL asks for one that cannot run here.
template <typename T>
kernels::cpu::AttentionKernels<T> level_attention_kernels() {
  read_cpu_level_variable();
  return kernels::cpu::active_attention_kernels<T>();
}
template <typename T>
kernels::cpu::ProductKernels<T> level_product_kernels() {
  read_cpu_level_variable();
  return kernels::cpu::active_product_kernels<T>();
}

// G dense.
template <typename T>
at::Tensor sum_over_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  const EdgeShape& shape = edges.shape();
  const int64_t width = dense.size(3);
  const at::Tensor rows = for_gathering(
      dense, static_cast<double>(edges.edge_count()) /
                 static_cast<double>(std::max<int64_t>(dense.numel() / std::max<int64_t>(width, 1), 1)));
  at::Tensor out = fresh({shape.batch, shape.heads, shape.queries, width}, dense.options());
  kernels::GatherSumParams<T> params;
  params.heads = shape.heads;
  params.rows_per_head = shape.queries;
  params.dense_rows = dense.size(2);
  params.width = width;
  params.offsets = edges.row_offsets().const_data_ptr<int64_t>();
  params.indices = edges.col_indices().const_data_ptr<int32_t>();
  params.coefficients = values.const_data_ptr<Accumulator<T>>();
  params.dense = head_view<T>(rows);
  params.out = data_of<T>(out);
  const auto kernel = level_product_kernels<T>().gather_sum;
  for_rows(params.offsets, shape.rows(), share_heads(dense.size(2), width * static_cast<int64_t>(sizeof(T))),
           [&](int64_t begin, int64_t end) { kernel(params, begin, end); });
  return out;
}

// Whether threads have about equal shares of whole heads.
bool heads_divide(int64_t heads) {
  const int64_t threads = at::get_num_threads();
  return heads % threads == 0 || heads >= 4 * threads;
}

// body(task) for tasks 0 .. count, each by who is free.
template <typename Body>
void for_tasks(int64_t count, const Body& body) {
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), count), 1, [&](int64_t, int64_t) {
    for (int64_t task = next++; task < count; task = next++) body(task);
  });
}

// [B, H, S, width of `dense`]
at::Tensor like_columns(const EdgeSet& edges, const at::Tensor& dense) {
  const EdgeShape& shape = edges.shape();
  return fresh({shape.batch, shape.heads, shape.keys, dense.size(3)}, dense.options());
}

// out = factor * G^T dense. A range of columns walks through the rows of its head, so heads are cut only
// where there are too few of them for the threads.
template <typename T>
void sum_over_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense,
                      at::Tensor& out, double factor = 1) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor rows = with_contiguous_rows(dense);
  kernels::ScatterSumParams<T> params;
  params.edges = csr_view(edges);
  params.width = dense.size(3);
  params.factor = factor;
  params.coefficients = values.const_data_ptr<Accumulator<T>>();
  params.dense = head_view<T>(rows);
  params.out = data_of<T>(out);
  const auto kernel = level_product_kernels<T>().scatter_sum;
  const int64_t heads = shape.batch * shape.heads, threads = at::get_num_threads();
  const bool divides = heads_divide(heads) || edges.edge_count() < kTaskCost;
  const int64_t cuts = divides ? 1
                               : std::clamp<int64_t>(2 * threads / std::max<int64_t>(heads, 1), 1,
                                                     std::max<int64_t>(shape.keys / 64, 1));
  for_tasks(heads * cuts, [&](int64_t task) {
    const int64_t first = task / cuts * shape.keys, cut = task % cuts;
    kernel(params, first + shape.keys * cut / cuts, first + shape.keys * (cut + 1) / cuts);
  });
}

}  // namespace

double mean_degree(const AttentionCall& call) {
  return static_cast<double>(*call.edge_count) /
         static_cast<double>(std::max<int64_t>(call.shape.columns(), 1));
}

Widening choose_widening(const AttentionCall& call) {
  if (call.dtype != at::kBFloat16) return {};
  const int64_t row_bytes = (call.head_dim + call.value_dim) * static_cast<int64_t>(sizeof(float));
  Widening result{mean_degree(call), call.shape.keys * row_bytes};
  result.worth = result.reads >= Widening::kLeastReads && result.head_bytes <= Widening::kLargestHead;
  return result;
}

std::string cpu_gather_refusal(const AttentionCall& call) {
  return not_for(call, at::kCPU);
}

AttentionForward cpu_gather_forward(const AttentionInputs& given) {
  if (choose_widening(given).worth) {
    AttentionForward result = cpu_gather_forward(widened(given));
    result.output = result.output.to(given.dtype);
    return result;
  }
  const AttentionInputs in = row_contiguous(given);
  const EdgeShape& shape = in.shape;
  AttentionForward result;
  result.output = fresh({shape.batch, shape.heads, shape.queries, in.value_dim}, in.query.options());
  result.lse = fresh({shape.batch, shape.heads, shape.queries}, in.query.options().dtype(in.accumulator()));
  const auto kept = std::make_shared<KeptNumbers>();
  if (in.gradients_follow) {
    (kernels::needs_scores(in.learns.rule) ? kept->scores : kept->exponentials) =
        fresh({in.edges.edge_count()}, result.lse.options());
    result.state = kept;
  }
  dispatch_kernel_type(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    kernels::AttentionForwardParams<T> params;
    set_common<T>(params, in);
    params.edges = csr_view(in.edges);
    params.dropout = dropout_params(in);
    params.output = data_of<T>(result.output);
    params.lse = result.lse.mutable_data_ptr<Accumulator<T>>();
    if (kept->scores.defined()) params.scores = kept->scores.mutable_data_ptr<Accumulator<T>>();
    if (kept->exponentials.defined())
      params.exponentials = kept->exponentials.mutable_data_ptr<Accumulator<T>>();
    const auto kernel = level_attention_kernels<T>().forward;
    for_rows(params.edges.row_offsets, shape.rows(), share_heads<T>(in),
             [&](int64_t begin, int64_t end) { kernel(params, begin, end); });
  });
  return result;
}

AttentionBackward cpu_gather_backward(const AttentionInputs& given, const AttentionForward& forward,
                                      const at::Tensor& grad_output, const at::Tensor& density_grad) {
  if (choose_widening(given).worth) {
    AttentionForward wide = forward;
    wide.output = forward.output.to(at::kFloat);
    AttentionBackward result =
        cpu_gather_backward(widened(given), wide, grad_output.to(at::kFloat), density_grad);
    for (at::Tensor* grad : {&result.query, &result.key, &result.value}) *grad = grad->to(given.dtype);
    return result;
  }
  const AttentionInputs in = row_contiguous(given);
  const EdgeShape& shape = in.shape;
  const kernels::CreditRule rule = in.learns.rule;
  const at::Tensor grad = grad_output.contiguous(), output = forward.output.contiguous();
  const auto per_edge = [&](int64_t count) {
    return fresh({count}, in.query.options().dtype(in.accumulator()));
  };
  // Taken, since they are overwritten: another backward pass forms its own.
  KeptNumbers kept;
  if (auto* state = static_cast<KeptNumbers*>(forward.state.get())) std::swap(kept, *state);
  const bool has_exponentials = kept.exponentials.defined() && !kernels::needs_scores(rule);
  AttentionBackward result;
  result.query = fresh({shape.batch, shape.heads, shape.queries, in.head_dim}, in.query.options());
  result.key = like_columns(in.edges, in.query);
  result.value = like_columns(in.edges, grad);
  if (rule != kernels::CreditRule::kNone) result.credit = per_edge(in.edges.edge_count());
  dispatch_kernel_type(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    kernels::AttentionBackwardParams<T> params;
    set_common<T>(params, in);
    params.edges = csr_view(in.edges);
    params.dropout = dropout_params(in);
    params.grad_output = const_data_of<T>(grad);
    params.output = const_data_of<T>(output);
    if (kept.scores.defined()) params.scores = kept.scores.const_data_ptr<Accumulator<T>>();
    if (has_exponentials) params.exponentials = kept.exponentials.const_data_ptr<Accumulator<T>>();
    params.grad_query = data_of<T>(result.query);
    params.rule = rule;
    if (result.credit.defined()) params.credit = result.credit.mutable_data_ptr<Accumulator<T>>();
    const auto kernels = level_attention_kernels<T>();
    // Weights take the place of what was kept, whose memory is in the cache by then.
    const at::Tensor weights = kept.scores.defined() ? kept.scores
                               : has_exponentials    ? kept.exponentials
                                                     : per_edge(in.edges.edge_count()),
                     logit_grads = per_edge(in.edges.edge_count());
    params.weights = weights.mutable_data_ptr<Accumulator<T>>();
    params.logit_grads = logit_grads.mutable_data_ptr<Accumulator<T>>();
    for_rows(params.edges.row_offsets, shape.rows(), share_heads<T>(in),
             [&](int64_t begin, int64_t end) { kernels.backward_rows(params, begin, end); });
    sum_over_columns<T>(in.edges, logit_grads, in.query, result.key, in.scale);
    sum_over_columns<T>(in.edges, weights, grad, result.value);

    if (in.learns.has_probes) {
      const EdgeSet& probes = *in.learner->probes;
      result.probe_credit = per_edge(probes.edge_count());
      kernels::ProbeCreditParams<T> probe;
      set_common<T>(probe, in);
      probe.probes = csr_view(probes);
      probe.grad_output = params.grad_output;
      probe.output = params.output;
      probe.lse = forward.lse.const_data_ptr<Accumulator<T>>();
      probe.credit = result.probe_credit.mutable_data_ptr<Accumulator<T>>();
      for_rows(probe.probes.row_offsets, shape.rows(), share_heads<T>(in),
               [&](int64_t begin, int64_t end) { kernels.probe_credit(probe, begin, end); });
    }
  });
  return result;
}

int count_kernel_threads() {
  std::atomic<int> arrived = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) { ++arrived; });
  return arrived;
}

at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (!dense.is_cpu()) return reference::multiply_rows(edges, values, dense);
  return dispatch_kernel_type(dense.scalar_type(),
                              [&](auto tag) { return sum_over_rows<decltype(tag)>(edges, values, dense); });
}

at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (!dense.is_cpu()) return reference::multiply_columns(edges, values, dense);
  at::Tensor out = like_columns(edges, dense);
  dispatch_kernel_type(dense.scalar_type(),
                       [&](auto tag) { sum_over_columns<decltype(tag)>(edges, values, dense, out); });
  return out;
}

at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right) {
  if (!left.is_cpu()) return reference::edge_dot(edges, left, right);
  const at::Tensor left_rows = with_contiguous_rows(left), right_rows = with_contiguous_rows(right);
  return dispatch_kernel_type(left.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    at::Tensor out =
        fresh({edges.edge_count()}, left.options().dtype(c10::CppTypeToScalarType<Accumulator<T>>::value));
    kernels::EdgeDotParams<T> params;
    params.edges = csr_view(edges);
    params.width = left.size(3);
    params.left = head_view<T>(left_rows);
    params.right = head_view<T>(right_rows);
    params.out = out.mutable_data_ptr<Accumulator<T>>();
    const auto kernel = level_product_kernels<T>().edge_dot;
    for_rows(params.edges.row_offsets, edges.shape().rows(),
             share_heads(right.size(2), right.size(3) * static_cast<int64_t>(sizeof(T))),
             [&](int64_t begin, int64_t end) { kernel(params, begin, end); });
    return out;
  });
}

}  // namespace edgewise::ops
