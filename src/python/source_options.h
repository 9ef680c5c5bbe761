// The options of an edge source as one line of text, "name=value name=value", which an operation can take.
#pragma once

#include <edgewise/edges/sbm_edges.h>

#include <string_view>

namespace edgewise::python {

struct SourceOptions {
  SbmEdgesOptions sbm;
  int64_t window = -1;  // of fixed edges beside the learned ones: |i - j| <= window; -1 = none
};

// heads and head_dim are those of the call. Throws c10::ValueError for a name or a value that it does not
// know.
SourceOptions parse_source_options(std::string_view text, int64_t heads, int64_t head_dim);

}  // namespace edgewise::python
