"""Edgewise: attention over learned sparse graphs.

Importing loads the compiled library, which registers ``torch.ops.edgewise.*``:

- ``edge_attention(query, key, value, row_offsets, col_indices, scale=None)``: differentiable attention over edges;
- ``sample_sbm_edges(query_membership, key_side, *, law, exploration, key_mask, self_loops, seed, step, sampler)``;
- ``edge_credit(grad_output, query, key, value, row_offsets, col_indices, scale=None, *, estimator, present_form)``;
- ``synchronize()``: waits for the GPUs and raises what was wrong with edges there.

Edges are checked where they lie. On a Hopper GPU no call waits for that (other GPUs copy them to the host first): a call with bad edges reads nothing out of bounds,
its results are NaN, and the error is raised by a later call or by ``synchronize()``; with ``CUDA_LAUNCH_BLOCKING=1``
by the call itself.

The library is looked for in ``EDGEWISE_LIBRARY`` (a file), beside this package, then in the build folders of the source
tree (``build/cuda``, ``build/release``, ``build/dev``; the newest wins).
"""

import os
from pathlib import Path

import torch

from . import _fake

__all__ = ["edge_attention", "edge_credit", "library_path", "sample_sbm_edges", "synchronize"]


def _find_library() -> Path:
    named = os.environ.get("EDGEWISE_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ImportError(f"edgewise: EDGEWISE_LIBRARY names {path}, which is not a file")
        return path
    here = Path(__file__).resolve().parent
    candidates = [here / "libedgewise.so"]
    candidates += [here.parents[1] / "build" / preset / "lib" / "libedgewise.so" for preset in ("cuda", "release", "dev")]
    found = [path for path in candidates if path.is_file()]
    if not found:
        tried = ", ".join(str(path) for path in candidates)
        raise ImportError(f"edgewise: no built library found (tried {tried}). Run ./run build, or set EDGEWISE_LIBRARY")
    return max(found, key=lambda path: path.stat().st_mtime)


library_path = _find_library()
torch.ops.load_library(str(library_path))
_fake.register()

edge_attention = torch.ops.edgewise.edge_attention
edge_credit = torch.ops.edgewise.edge_credit
sample_sbm_edges = torch.ops.edgewise.sample_sbm_edges


@torch.compiler.disable  # an op without tensors would be taken out of a traced program
def synchronize():
    """Waits for the GPUs and raises what was wrong with edges that earlier calls were given there."""
    torch.ops.edgewise.synchronize()
