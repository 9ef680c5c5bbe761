"""The edges of new tokens whose predecessors lie in a cache, as when text is generated."""

from __future__ import annotations

import torch

from ..edge_set import SQUARE
from ..nn.dense import attend_dense
from ..nn.sources import AttentionCall, EdgeSource, FullEdges, WindowEdges
from ..recording import unseen

__all__ = ["CACHED", "attend_last"]

#: What a new token attends to: the edges it would have in a pass over the whole text, or every key.
CACHED = ("edges", "dense")


def attend_last(source: EdgeSource, call: AttentionCall, cached: str) -> torch.Tensor:
    """Output [B, H, L, Dv] of the last L of S causal queries; the others have been answered before.

    The source is asked for the edges of all S, of which the last count: a draw depends on the places of query and key alone,
    so that each of them gets the edges that it has without a cache. Of squares, the first query of a group speaks for it; if
    it is no longer there, the first new one does.
    """
    queries, keys = call.query.shape[2], call.key.shape[2]
    first = keys - queries
    if cached == "dense" or isinstance(source, FullEdges):
        return attend_dense(call, first_query=first)
    if isinstance(source, WindowEdges) and source.sinks == 0 and queries == 1:
        return attend_dense(_last_keys(call, source.width, source.unit))
    group = first - first % SQUARE if source.unit > 1 else first
    absent = call.query.new_zeros(*call.query.shape[:2], group, call.query.shape[3])
    stand_in = call.query[:, :, :1].expand(-1, -1, first - group, -1)
    query = torch.cat([absent, stand_in, call.query], 2)
    with unseen():
        output, _ = source.attend(AttentionCall(query, call.key, call.value, call.key_mask, True, call.scale, call.dropout_p))
    return output[:, :, first:]


def _last_keys(call: AttentionCall, width: int, unit: int) -> AttentionCall:
    """The one query and the keys of its window. A window of squares begins at a group's first token."""
    position = call.key.shape[2] - 1
    begin = position - width if unit == 1 else (position // SQUARE - (width + SQUARE - 1) // SQUARE) * SQUARE
    kept = slice(max(begin, 0), None)
    mask = None if call.key_mask is None else call.key_mask[:, kept]
    return AttentionCall(call.query, call.key[:, :, kept], call.value[:, :, kept], mask, False, call.scale, call.dropout_p)
