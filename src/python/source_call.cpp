#include "python/source_call.h"

#include <edgewise/edges/patterns.h>

#include <map>
#include <memory>

namespace edgewise::python {
namespace {

// A window gives the same edges for every call of one size: kept between calls, on each thread.
EdgeSet window_edges(int64_t width, int64_t unit, const EdgeRequest& request) {
  thread_local std::map<std::pair<int64_t, int64_t>, std::unique_ptr<WindowEdges>> windows;
  std::unique_ptr<WindowEdges>& window = windows[{width, unit}];
  if (!window) window = std::make_unique<WindowEdges>(width, unit);
  return window->choose(request).edges;
}

}  // namespace

EdgeRequest request_of(const char* function, const SourceCall& call, const at::Tensor& query,
                       const at::Tensor& key) {
  check_key_mask(function, call.key_mask, key.size(0), key.size(2));
  TORCH_CHECK_VALUE(!call.key_mask || query.size(2) == key.size(2), function,
                    ": expected as many queries as keys with a key mask, which marks both; got ",
                    query.size(2), " and ", key.size(2));
  TORCH_CHECK_VALUE(!call.is_causal || query.size(2) == key.size(2), function,
                    ": expected as many queries as keys in a causal call; got ", query.size(2), " and ",
                    key.size(2));
  EdgeRequest request;
  request.query = query;
  request.key = key;
  request.key_mask = call.key_mask;
  request.is_causal = call.is_causal;
  request.random = stream_of(function, call.seed);
  return request;
}

EdgeChoice with_window(const EdgeChoice& choice, const SourceOptions& options, const EdgeRequest& request) {
  if (options.window < 0) return choice;
  return with_fixed_edges(choice, window_edges(options.window, options.sbm.unit, request));
}

AttentionOutput attend_call(const SourceCall& call, const EdgeRequest& request, const EdgeChoice& choice,
                            const at::Tensor& key, const at::Tensor& value) {
  const int64_t heads = request.query.size(1);
  const bool fewer_heads = choice.edges.squares() != nullptr;  // those kernels take
  functional::EdgeAttentionOptions options;
  options.dropout_p = call.dropout_p;
  options.scale = call.scale;
  options.random = request.random;
  AttentionOutput result =
      attend_choice(request.query, fewer_heads ? key : request.key,
                    fewer_heads ? value : with_heads(value, heads), request, choice, options);
  result.output = result.output.to(call.query.scalar_type()).contiguous();
  return result;
}

}  // namespace edgewise::python
