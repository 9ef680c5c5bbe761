// What can be wrong with a CSR that comes from outside, found in one order on the CPU and on CUDA: the ends
// of the offsets, then rows whose offsets fall, then columns, edge by edge.
#pragma once

#include <cstdint>

namespace edgewise::kernels {

enum class CsrFaultKind : int64_t { kNone, kFirstOffset, kLastOffset, kFallingOffsets, kColumn, kOrder };

struct CsrFault {
  CsrFaultKind kind = CsrFaultKind::kNone;
  int64_t row = 0;
  int64_t found = 0,
          next =
              0;  // the offset, the offset and the one after it, the column, the column and the one after it
  int64_t limit = 0;  // edges of kLastOffset, keys of kColumn
};

}  // namespace edgewise::kernels
