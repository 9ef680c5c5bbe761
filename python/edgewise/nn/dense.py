"""Dense attention with the masks of a call: of layers without a source, and of what edges would not change."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .sources import AttentionCall

__all__ = ["attend_dense"]


def attend_dense(call: AttentionCall, forbidden: torch.Tensor | None = None, first_query: int = 0) -> torch.Tensor:
    """[B, H, L, Dv].

    Args:
        forbidden: [B or 1, H or 1, L, S] bool, true = not allowed.
        first_query: the key beside which the first query stands, for causality.
    """
    queries, keys = call.query.shape[2], call.key.shape[2]
    allowed = None if forbidden is None else ~forbidden
    if call.key_mask is not None:
        valid = call.key_mask[:, None, None, :]
        allowed = valid if allowed is None else allowed & valid
    causal = call.is_causal and allowed is None and first_query == 0
    if call.is_causal and not causal:
        past = torch.ones(queries, keys, dtype=torch.bool, device=call.query.device).tril(first_query)
        allowed = past if allowed is None else allowed & past
    return F.scaled_dot_product_attention(call.query, call.key, call.value, allowed, call.dropout_p, causal, scale=call.scale,
                                          enable_gqa=call.key.shape[1] != call.query.shape[1])
