"""What tracing needs to know of ops whose output size depends on the data: only Python can say 'some size'."""

import torch


def register() -> None:
    @torch.library.register_fake("edgewise::sample_sbm_edges")
    def _(query_membership, key_side, *, law="bernoulli", exploration=0.0, key_mask=None, self_loops=False, seed=0, step=0,
          sampler="auto"):
        batch, heads, queries, _ = query_membership.shape
        edges = torch.library.get_ctx().new_dynamic_size()
        row_offsets = query_membership.new_empty(batch * heads * queries + 1, dtype=torch.int64)
        return row_offsets, query_membership.new_empty(edges, dtype=torch.int32)
