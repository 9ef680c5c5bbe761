"""record(): what the layers of a model have chosen."""

from __future__ import annotations

from contextlib import contextmanager

import torch

from .edge_set import EdgeSet

__all__ = ["Record", "record"]

_open: list["Record"] = []
_looking: list[list] = []  # of seen_calls()


class Record:
    """What every attention layer chose while the record was open, in the order of their calls."""

    def __init__(self, edges: bool):
        self._keeps_edges = edges
        self._densities: list[torch.Tensor] = []
        self._penalties: list[torch.Tensor] = []
        self.edges: list[EdgeSet] = []  #: of every call; empty unless record(edges=True)

    @property
    def density(self) -> torch.Tensor:
        """[layers, heads] float64: edges over valid pairs."""
        return torch.stack(self._densities) if self._densities else torch.empty(0, 0, dtype=torch.float64)

    @property
    def penalty(self) -> torch.Tensor:
        """[learning layers, heads]: the differentiable density of the learners, for a loss of one's own."""
        return torch.stack(self._penalties) if self._penalties else torch.empty(0, 0)


@contextmanager
def record(edges: bool = False):
    """Collects densities, penalties and, with ``edges=True``, the edges of every layer that runs inside.

    >>> layer = edgewise.nn.MultiheadEdgeAttention(16, 2, edgewise.nn.WindowEdges(1))
    >>> with record(edges=True) as seen:
    ...     _ = layer(torch.randn(1, 8, 16))
    >>> seen.density
    tensor([[0.3438, 0.3438]], dtype=torch.float64)
    >>> seen.edges
    [EdgeSet(shape=(1, 1, 8, 8), 22 edges, density 0.34)]
    """
    mine = Record(edges)
    _open.append(mine)
    try:
        yield mine
    finally:
        _open.remove(mine)


@contextmanager
def unseen():
    """What runs inside is told to no record."""
    mine, _open[:] = _open[:], []
    looking, _looking[:] = _looking[:], []
    try:
        yield
    finally:
        _open[:] = mine
        _looking[:] = looking


@contextmanager
def seen_calls():
    """A list of every call of attention that runs inside, as pairs [AttentionCall, EdgeSet], None for dense attention.

    The edges may have pairs that the call's masks take out.
    """
    mine: list[list] = []
    _looking.append(mine)
    try:
        yield mine
    finally:
        _looking[:] = [each for each in _looking if each is not mine]


def see(call, forbidden: torch.Tensor | None = None) -> None:
    """Attention tells of a call before it chooses edges. forbidden: [B or 1, H or 1, L, S] bool of a mask of pairs."""
    if _looking and forbidden is not None:
        call.without = EdgeSet.from_mask(forbidden)
    for each in _looking:
        each.append([call, None])


def is_recording() -> bool:
    return len(_open) + len(_looking) > 0


def tell(density: torch.Tensor, penalty: torch.Tensor | None, edges) -> None:
    """edges: a function that gives the layer's EdgeSet, asked only where somebody keeps it."""
    for each in _open:
        each._densities.append(density)
        if penalty is not None:
            each._penalties.append(penalty)
        if each._keeps_edges:
            each.edges.append(edges())
    for each in _looking:
        each[-1][1] = edges()
