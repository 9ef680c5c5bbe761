// Parts of source_attention.h that its two files share.
#pragma once

#include <edgewise/edges/edge_source.h>

#include "attention/attend_choice.h"
#include "python/calls.h"
#include "python/source_attention.h"
#include "python/source_options.h"
#include "python/tape.h"

namespace edgewise::python {

// The request of a call whose query and key are `query` and `key`, of as many heads each.
EdgeRequest request_of(const char* function, const SourceCall& call, const at::Tensor& query,
                       const at::Tensor& key);
// The choice and the window of the options.
EdgeChoice with_window(const EdgeChoice& choice, const SourceOptions& options, const EdgeRequest& request);
// What a layer reports; the output has the call's dtype. key and value may have fewer heads than the query.
AttentionOutput attend_call(const SourceCall& call, const EdgeRequest& request, const EdgeChoice& choice,
                            const at::Tensor& key, const at::Tensor& value);

}  // namespace edgewise::python
