"""EdgeSet: which query-key pairs attention computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._ops import ops

__all__ = ["EdgeSet"]

SQUARE = 16


def _groups(tokens: int) -> int:
    return (tokens + SQUARE - 1) // SQUARE


def _lists_of_ranges(first: torch.Tensor, counts: torch.Tensor, edges: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of nodes with ``counts`` keys from ``first`` on: where each one's list begins, and the keys, ``edges`` in all."""
    begin = counts.cumsum(0) - counts
    keys = torch.arange(edges, dtype=torch.int64, device=first.device)
    return begin, keys - torch.repeat_interleave(begin - first, counts, output_size=edges)


def _window_lists(nodes: int, width: int, device, causal: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Beginning, number and keys of every node's window, and how many there are in all."""
    width = min(width, max(nodes - 1, 0))
    edges = nodes * (width + 1) - width * (width + 1) // 2 if causal else nodes * (2 * width + 1) - width * (width + 1)
    node = torch.arange(nodes, dtype=torch.int64, device=device)
    first = (node - width).clamp_min(0)
    counts = (node if causal else (node + width).clamp_max(nodes - 1)) - first + 1
    begin, keys = _lists_of_ranges(first, counts, edges)
    return begin, counts, keys, edges


class EdgeSet:
    """The edges of B x H graphs between L queries and S keys, as plain tensors that never change.

    Edges come one by one, or in squares of 16 neighbouring queries and 16 neighbouring keys, for which the kernels are
    several times faster. A shape is ``(B, H, L, S)``; ``B = 1`` serves every item of a batch, ``H = 1`` every head.

    They are checked once, when the set is made. What kernels derive from them is kept with it: make a set once and use it
    in every step.

    >>> edges = EdgeSet.window(6, 1)
    >>> edges
    EdgeSet(shape=(1, 1, 6, 6), 16 edges, density 0.44)
    >>> edges.to_dense()[0, 0, 2].tolist()
    [False, True, True, True, False, False]
    >>> (EdgeSet.full(6) - edges).density
    0.5555555555555556
    """

    def __init__(self, plan: Sequence[torch.Tensor], shape: Sequence[int]):
        self._plan = list(plan)
        self._shape = list(shape)

    # ---- making ----

    @classmethod
    def from_mask(cls, mask: torch.Tensor) -> EdgeSet:
        """From a boolean mask [B, H, L, S], or [L, S] for all items and heads; true = edge."""
        if mask.dtype != torch.bool or mask.dim() not in (2, 4):
            raise ValueError(f"EdgeSet.from_mask: expected a bool mask [B, H, L, S] or [L, S], true = edge; got {mask.dtype} of "
                             f"shape {tuple(mask.shape)}")
        mask = mask if mask.dim() == 4 else mask[None, None]
        return cls(ops.edge_plan_from_mask(mask), mask.shape)

    @classmethod
    def from_csr(cls, row_offsets: torch.Tensor, col_indices: torch.Tensor, shape: Sequence[int]) -> EdgeSet:
        """From CSR over all B*H*L rows: row_offsets [B*H*L + 1], col_indices [E], ascending within a row."""
        return cls(ops.edge_plan(row_offsets, col_indices, list(shape)), shape)

    @classmethod
    def from_edge_index(cls, edge_index: torch.Tensor, length: int, keys: int | None = None) -> EdgeSet:
        """From pairs [2, E] of one graph, as in PyTorch Geometric: row 0 the sources (keys), row 1 the targets (queries)."""
        keys = length if keys is None else keys
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
            raise ValueError(f"EdgeSet.from_edge_index: expected integers [2, E]; got {edge_index.dtype} of shape "
                             f"{tuple(edge_index.shape)}")
        key, query = edge_index.to(torch.int64)
        if edge_index.numel() and not (0 <= int(query.min()) and int(query.max()) < length and 0 <= int(key.min())
                                       and int(key.max()) < keys):
            raise IndexError(f"EdgeSet.from_edge_index: expected targets in [0, {length}) and sources in [0, {keys}); got "
                             f"targets from {int(query.min())} to {int(query.max())} and sources from {int(key.min())} to "
                             f"{int(key.max())}")
        pairs = torch.unique(query * keys + key)
        offsets = torch.zeros(length + 1, dtype=torch.int64, device=pairs.device)
        offsets[1:] = torch.bincount(pairs // max(keys, 1), minlength=length).cumsum(0)
        return cls.from_csr(offsets, pairs % max(keys, 1), (1, 1, length, keys))

    @classmethod
    def from_squares(cls, mask: torch.Tensor, shape: Sequence[int]) -> EdgeSet:
        """Squares: mask [B, H, ceil(L/16), ceil(S/16)] bool, true = all 16 x 16 pairs; shape = (B, H, L, S) in tokens."""
        return cls(ops.square_plan(mask, list(shape)), shape)

    @classmethod
    def window(cls, length: int, width: int, *, causal: bool = False, unit: int = 1, device=None) -> EdgeSet:
        """Keys within ``width`` tokens on each side of the query; before it alone with ``causal``.

        With ``unit=16``: all squares that such a window touches.
        """
        if length < 0 or width < 0 or unit not in (1, SQUARE):
            raise ValueError(f"EdgeSet.window: expected length and width of at least 0 and unit 1 or 16; got {length}, {width} "
                             f"and {unit}")
        if causal and unit == SQUARE:
            raise ValueError("EdgeSet.window: expected unit 1 with causal, since squares hold whole 16 x 16 pairs; pass "
                             "is_causal=True to edge_attention instead")
        shape = (1, 1, length, length)
        if unit == 1:
            begin, counts, keys, edges = _window_lists(length, width, device, causal)
            offsets = torch.cat([begin, torch.full((1,), edges, dtype=torch.int64, device=device)])
            return cls(ops.edge_plan(offsets, keys.to(torch.int32), list(shape)), shape)
        begin, counts, keys, _ = _window_lists(_groups(length), _groups(width), device)
        return cls(ops.plan_of_layout([x.to(torch.int32) for x in (begin, counts, keys)], list(shape)), shape)

    @classmethod
    def first(cls, length: int, count: int, *, unit: int = 1, device=None) -> EdgeSet:
        """The first ``count`` keys for every query, known as attention sinks; with ``unit=16`` the groups of these.

        >>> EdgeSet.first(3, 1).to_dense()[0, 0].int().tolist()
        [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
        """
        if length < 0 or count < 0 or unit not in (1, SQUARE):
            raise ValueError(f"EdgeSet.first: expected length and count of at least 0 and unit 1 or 16; got {length}, {count} and "
                             f"{unit}")
        shape = (1, 1, length, length)
        nodes, count = (length, min(count, length)) if unit == 1 else (_groups(length), _groups(min(count, length)))
        counts = torch.full((nodes,), count, dtype=torch.int64, device=device)
        begin, keys = _lists_of_ranges(torch.zeros_like(counts), counts, nodes * count)
        if unit == SQUARE:
            return cls(ops.plan_of_layout([x.to(torch.int32) for x in (begin, counts, keys)], list(shape)), shape)
        return cls.from_csr(torch.cat([begin, begin.new_full((1,), nodes * count)]), keys.to(torch.int32), shape)

    @classmethod
    def full(cls, length: int, keys: int | None = None, *, unit: int = 1, device=None) -> EdgeSet:
        """Every pair."""
        keys = length if keys is None else keys
        if unit == SQUARE:
            mask = torch.ones(1, 1, _groups(length), _groups(keys), dtype=torch.bool, device=device)
            return cls.from_squares(mask, (1, 1, length, keys))
        return cls.from_mask(torch.ones(1, 1, length, keys, dtype=torch.bool, device=device))

    @classmethod
    def causal(cls, length: int, *, device=None) -> EdgeSet:
        """Every key up to the query."""
        return cls.from_mask(torch.ones(length, length, dtype=torch.bool, device=device).tril())

    @classmethod
    def block_diagonal(cls, lengths: Sequence[int] | torch.Tensor, *, causal: bool = False, device=None) -> EdgeSet:
        """Sequences of these lengths packed one after another: each attends to itself alone; with ``causal`` to its past.

        Costs what the sequences cost one by one, not the square of their sum.

        >>> EdgeSet.block_diagonal([1, 2]).to_dense()[0, 0].int().tolist()
        [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
        """
        given = torch.as_tensor(lengths, dtype=torch.int64, device="cpu").flatten()
        if given.numel() and int(given.min()) < 0:
            raise ValueError(f"EdgeSet.block_diagonal: expected lengths of at least 0; got {int(given.min())}")
        nodes, sizes = int(given.sum()), given.to(device)
        starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes, output_size=nodes)
        counts = torch.repeat_interleave(sizes, sizes, output_size=nodes)
        if causal:
            counts = torch.arange(nodes, dtype=torch.int64, device=sizes.device) - starts + 1
        edges = int((given * (given + 1) // 2 if causal else given * given).sum())
        begin, keys = _lists_of_ranges(starts, counts, edges)
        return cls.from_csr(torch.cat([begin, begin.new_full((1,), edges)]), keys.to(torch.int32), (1, 1, nodes, nodes))

    @classmethod
    def load(cls, path) -> EdgeSet:
        """A file of ``save()``, or of the command line (``edgewise sample --out``)."""
        return cls(*ops.load_plan(str(path)))

    def save(self, path) -> None:
        ops.save_plan(str(path), self._plan, self._shape)

    # ---- reading ----

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, L, S)."""
        return tuple(self._shape)

    @property
    def device(self) -> torch.device:
        return self._plan[1].device

    @property
    def unit(self) -> int:
        """16 for squares, 1 for single edges."""
        return SQUARE if len(self._plan) == 4 else 1

    def plan(self) -> list[torch.Tensor]:
        """The tensors that ``torch.ops.edgewise.plan_attention`` takes."""
        return list(self._plan)

    def counts(self) -> torch.Tensor:
        """Edges of every graph: [B, H] int64."""
        return ops.plan_counts(self._plan, self._shape)

    def __len__(self) -> int:
        return int(self.counts().sum())

    def __bool__(self) -> bool:
        return True

    @property
    def density(self) -> float:
        """Edges over pairs."""
        batch, heads, queries, keys = self._shape
        return len(self) / max(batch * heads * queries * keys, 1)

    def csr(self) -> tuple[torch.Tensor, torch.Tensor]:
        """row_offsets [B*H*L + 1] int64 and col_indices [E] int32."""
        _, row_offsets, col_indices = ops.plan_as_edges(self._plan, self._shape)
        return row_offsets, col_indices

    def to_dense(self) -> torch.Tensor:
        """[B, H, L, S] bool."""
        return ops.plan_mask(self._plan, self._shape)

    def to_block_mask(self, block_size: int = 128):
        """The same pairs for ``torch.nn.attention.flex_attention``."""
        from torch.nn.attention.flex_attention import create_block_mask

        dense = self.to_dense()
        batch, heads, queries, keys = self._shape

        def mask_mod(b, h, q, k):
            return dense[b if batch > 1 else b * 0, h if heads > 1 else h * 0, q, k]

        return create_block_mask(mask_mod, batch, heads, queries, keys, device=dense.device, BLOCK_SIZE=block_size)

    # ---- changing into another ----

    def to(self, device) -> EdgeSet:
        device = torch.device(device)
        if device == self.device or (device.type == self.device.type and device.index is None):
            return self
        return EdgeSet(ops.plan_to(self._plan, self._shape, device), self._shape)

    def __or__(self, other: EdgeSet) -> EdgeSet:
        return self._with(other, ops.plan_union, "|")

    def __sub__(self, other: EdgeSet) -> EdgeSet:
        return self._with(other, ops.plan_difference, "-")

    def _with(self, other: Any, op, sign: str) -> EdgeSet:
        if not isinstance(other, EdgeSet):
            return NotImplemented
        if other.shape != self.shape:
            raise ValueError(f"EdgeSet {sign}: expected two sets of one shape; got {self.shape} and {other.shape}")
        if other.device != self.device:
            raise ValueError(f"EdgeSet {sign}: expected two sets on one device; got {self.device} and {other.device}. Move one "
                             "with .to()")
        return EdgeSet(op(self._plan, other._plan, self._shape), self._shape)

    # ---- Python's own ----

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EdgeSet):
            return NotImplemented
        return self.shape == other.shape and all(torch.equal(a, b) for a, b in zip(self.csr(), other.csr()))

    def __hash__(self) -> int:
        return hash(self.shape)

    def __copy__(self) -> EdgeSet:
        return self

    def __deepcopy__(self, memo) -> EdgeSet:
        return self

    def __reduce__(self):
        return _restored, (self._plan[1:], self._shape)

    def __repr__(self) -> str:
        what = "edges" if self.unit == 1 else "edges in squares"
        return f"EdgeSet(shape={tuple(self.shape)}, {len(self)} {what}, density {self.density:.2g})"


def _restored(layout: list[torch.Tensor], shape) -> EdgeSet:
    """From a pickle. Whatever it holds is checked."""
    return EdgeSet(ops.plan_of_layout(layout, list(shape)), shape)
