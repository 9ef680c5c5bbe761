"""record(): what the layers of a model have chosen."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import torch

from .edge_set import EdgeSet

__all__ = ["Record", "record"]


class _Open(threading.local):
    """The records that are open, of each thread its own."""

    def __init__(self):
        self.records: list[Record] = []
        self.looking: list[list] = []  # of seen_calls()


_open = _Open()


class Record:
    """What every attention layer chose while the record was open, in the order of their calls."""

    def __init__(self, edges: bool):
        self._keeps_edges = edges
        self.densities: list[torch.Tensor] = []  #: of every call, [heads]
        self.penalties: list[torch.Tensor] = []  #: of every call of a learner, [heads]
        self.edges: list[EdgeSet] = []  #: of every call; empty unless record(edges=True)

    @property
    def density(self) -> torch.Tensor:
        """[layers, heads] float64: edges over valid pairs."""
        return _stacked("density", "densities", self.densities, torch.float64)

    @property
    def penalty(self) -> torch.Tensor:
        """[learning layers, heads]: the differentiable density of the learners, for a loss of one's own.

        Of layers with ``density_weight=0``. Others send its gradient by themselves, and theirs is there to be read.
        """
        return _stacked("penalty", "penalties", self.penalties, None)


def _stacked(name: str, lists: str, parts: list[torch.Tensor], dtype) -> torch.Tensor:
    if len({len(x) for x in parts}) > 1:
        raise ValueError(f"edgewise.record().{name}: expected layers with one number of heads; got {[len(x) for x in parts]}. "
                         f"record().{lists} is a list with one tensor per layer")
    return torch.stack(parts) if parts else torch.empty(0, 0, dtype=dtype)


@contextmanager
def record(edges: bool = False):
    """Collects densities, penalties and, with ``edges=True``, the edges of every layer that runs inside, in this thread.

    >>> layer = edgewise.nn.MultiheadEdgeAttention(16, 2, edgewise.nn.WindowEdges(1))
    >>> with record(edges=True) as seen:
    ...     _ = layer(torch.randn(1, 8, 16))
    >>> seen.density
    tensor([[0.3438, 0.3438]], dtype=torch.float64)
    >>> seen.edges
    [EdgeSet(shape=(1, 1, 8, 8), 22 edges, density 0.34)]
    """
    mine = Record(edges)
    _open.records.append(mine)
    try:
        yield mine
    finally:
        _open.records.remove(mine)


@contextmanager
def unseen():
    """What runs inside is told to no record."""
    mine, _open.records[:] = _open.records[:], []
    looking, _open.looking[:] = _open.looking[:], []
    try:
        yield
    finally:
        _open.records[:] = mine
        _open.looking[:] = looking


@contextmanager
def seen_calls():
    """A list of every call of attention that runs inside, as pairs [AttentionCall, EdgeSet], None for dense attention.

    The edges may have pairs that the call's masks take out.
    """
    mine: list[list] = []
    _open.looking.append(mine)
    try:
        yield mine
    finally:
        _open.looking[:] = [each for each in _open.looking if each is not mine]


def see(call, forbidden: torch.Tensor | None = None) -> None:
    """Attention tells of a call before it chooses edges. forbidden: [B or 1, H or 1, L, S] bool of a mask of pairs."""
    if _open.looking and forbidden is not None:
        call.without = EdgeSet.from_mask(forbidden)
    for each in _open.looking:
        each.append([call, None])


def is_recording() -> bool:
    if len(_open.records) + len(_open.looking) == 0:
        return False
    # Activation checkpointing runs layers again while the backward pass runs; a record has them already.
    return torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1


def tell(density: torch.Tensor, penalty: torch.Tensor | None, edges) -> None:
    """edges: a function that gives the layer's EdgeSet, asked only where somebody keeps it."""
    for each in _open.records:
        each.densities.append(density)
        if penalty is not None:
            each.penalties.append(penalty)
        if each._keeps_edges:
            each.edges.append(edges())
    for each in _open.looking:
        each[-1][1] = edges()


class _OnlyToRead(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("edgewise.record().penalty: expected density_weight=0 in layers whose penalty goes into a loss of one's "
                           "own; this layer sends its penalty's gradient along with every backward pass by itself")


def only_to_read(penalty: torch.Tensor) -> torch.Tensor:
    """A penalty that must not be differentiated, since the layer already adds its gradient."""
    return penalty if torch.compiler.is_compiling() else _OnlyToRead.apply(penalty)
