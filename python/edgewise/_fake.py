"""What tracing needs to know of ops whose output size depends on the data: only Python can say 'some size'."""

import torch


def register() -> None:
    @torch.library.register_fake("edgewise::sample_sbm_edges")
    def _(query_membership, key_side, *, law="bernoulli", exploration=0.0, key_mask=None, self_loops=False, seed=0, step=0,
          sampler="auto"):
        devices = {t.device for t in (query_membership, key_side, key_mask) if t is not None}
        if len(devices) > 1:
            raise ValueError(f"sample_sbm_edges: expected all tensors on one device; got {sorted(map(str, devices))}")
        batch, heads, queries, _ = query_membership.shape
        edges = torch.library.get_ctx().new_dynamic_size()
        row_offsets = query_membership.new_empty(batch * heads * queries + 1, dtype=torch.int64)
        return row_offsets, query_membership.new_empty(edges, dtype=torch.int32)
