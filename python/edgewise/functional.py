"""Attention over edges, as functions."""

from __future__ import annotations

import torch

from ._ops import call, cast_together, draw_seed, is_plain, keeps_tape, ops, refuse_tangents
from .edge_set import EdgeSet

__all__ = ["edge_attention"]


def edge_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, edges: EdgeSet, dropout_p: float = 0.0,
                   is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
                   key_mask: torch.Tensor | None = None, seed: torch.Tensor | None = None) -> torch.Tensor:
    """``scaled_dot_product_attention`` over the edges of ``edges``, in place of a mask.

    A query without edges gets output 0 and gradient 0.

    Args:
        query: [B, H, L, D], float32, float64, bfloat16 or float16.
        key: [B, H, S, D]; with ``enable_gqa`` of fewer heads, a number that divides H.
        value: [B, H, S, Dv], of as many heads as the key.
        edges: of shape (B or 1, H or 1, L, S), on the same device.
        dropout_p: of the attention weights. Applied whenever it is above 0, as in ``scaled_dot_product_attention``.
        is_causal: leaves out edges with key > query.
        scale: of the products; 1 / sqrt(D) by default.
        key_mask: [B, S] bool, true = the key takes part.
        seed: int64 [1] on the CPU, of the dropout. Drawn from torch's generator by default.

    >>> query, key, value = (torch.randn(2, 4, 32, 8) for _ in range(3))
    >>> out = edge_attention(query, key, value, EdgeSet.window(32, 3))
    >>> mask = EdgeSet.window(32, 3).to_dense()
    >>> dense = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    >>> torch.allclose(out, dense, atol=1e-6)
    True
    """
    if not isinstance(edges, EdgeSet):
        raise TypeError(f"edge_attention: expected an edgewise.EdgeSet; got {type(edges).__name__}. EdgeSet.from_mask and "
                        "EdgeSet.from_csr make one")
    check_heads("edge_attention", query, key, enable_gqa)
    if dropout_p > 0 and seed is None:
        seed = draw_seed()
    query, key, value = cast_together(query, key, value)
    known = (edges._plan, edges._shape, key_mask, seed if dropout_p > 0 else None, is_causal, scale, dropout_p)
    refuse_tangents(query, key, value)
    if is_plain(query, key, value):
        return ops.attend_plan(query, key, value, *known)
    output, _ = call("plan_attention", query, key, value, *known, keeps_tape(query, key, value))
    return output


def check_heads(function: str, query: torch.Tensor, key: torch.Tensor, enable_gqa: bool) -> None:
    if not enable_gqa and query.dim() == 4 and key.dim() == 4 and key.shape[1] != query.shape[1]:
        raise ValueError(f"{function}: expected key and value of {query.shape[1]} heads, as the query has; got "
                         f"{key.shape[1]}. Fewer heads want enable_gqa=True")
