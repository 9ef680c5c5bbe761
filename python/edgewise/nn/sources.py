"""Edge sources: they decide which edges a layer computes.

A source of one's own derives from EdgeSource and implements ``choose``:

    class Nearest(edgewise.nn.EdgeSource):
        def __init__(self, dim):
            super().__init__()
            self.query, self.key = torch.nn.Linear(dim, 16), torch.nn.Linear(dim, 16)

        def choose(self, query, key):                       # [B, H, L, D], [B, H, S, D]
            return torch.sigmoid(self.query(query) @ self.key(key).mT)

(with ``super().__init__(unit=16)`` it is asked for squares of 16 x 16 pairs, and sees the mean query and key of every 16).

What it returns is one of

- probabilities [B, H, L, S] of pairs (or of shapes that broadcast to it): edges are drawn from them, and in training the
  loss reaches them, also those of absent edges, of which a few are probed;
- a boolean mask of that shape, or an EdgeSet: the edges themselves.

Masks are no concern of a source: attention takes out what padding and causality forbid.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .._ops import backward_follows, cast_together, draw_seed, is_plain, ops
from .._ops import call as run
from ..edge_set import SQUARE, EdgeSet, _groups
from ..functional import edge_attention
from ..recording import is_recording, tell

__all__ = ["AttentionCall", "EdgeSource", "FullEdges", "FunctionEdges", "GivenEdges", "RandomEdges", "WindowEdges"]

_modules = 0


def _next_number() -> int:
    """Tells modules apart: in evaluation each draws its own edges, the same every time."""
    global _modules
    _modules += 1
    return _modules


@dataclass
class AttentionCall:
    """One call of attention: what a source attends for."""

    query: torch.Tensor  # [B, H, L, D]
    key: torch.Tensor  # [B, Hk, S, D]
    value: torch.Tensor  # [B, Hk, S, Dv]
    key_mask: torch.Tensor | None = None  # [B, S] bool, true = valid token
    is_causal: bool = False
    scale: float | None = None
    dropout_p: float = 0.0
    without: EdgeSet | None = None  # pairs that are taken out of a pattern
    is_self: bool = True  # the queries are the keys: a key mask marks both


class EdgeSource(torch.nn.Module):
    """Decides which edges a layer computes; see the top of this module.

    The options are those of sources that return probabilities.

    Args:
        unit: 1 for probabilities of pairs; 16 for those of squares of 16 queries and 16 keys, [B, H, ceil(L/16), ceil(S/16)].
        probe_rate: share of the absent pairs (squares) that is probed in training, 0.02 (0.05) by default: what would adding
            them have done?
        probes_per_row: at most so many per query (group) on average, 64 (4) by default.
        present_form: how present edges are judged, "softmax" or "leave_one_out" (docs/math.md).
        window: adds fixed edges to keys within so many tokens. Causal squares are chosen among the groups before a query's
            own, and need one (0 is the query's own group).
        seed: of the draws in evaluation; by default every module has its own.
    """

    def __init__(self, *, unit: int = 1, probe_rate: float | None = None, probes_per_row: int | None = None,
                 present_form: str = "softmax", window: int | None = None, seed: int | None = None):
        super().__init__()
        if unit not in (1, 16):
            raise ValueError(f"{type(self).__name__}: expected unit 1 (single edges) or 16 (squares); got {unit}")
        self.unit = unit
        #: Of the draws in evaluation: a number, or seed, step, layer and first item of a random stream.
        self.evaluation_seed: int | tuple[int, ...] = _next_number() if seed is None else seed
        probe_rate = probe_rate if probe_rate is not None else 0.02 if unit == 1 else 0.05
        probes_per_row = probes_per_row if probes_per_row is not None else 64 if unit == 1 else 4
        self.options = (f"unit={unit} probe_rate={probe_rate} probes_per_row={probes_per_row} present_form={present_form} "
                        f"probe_unit=1{'' if window is None else f' window={window}'}")
        self.window = window

    def choose(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | EdgeSet:
        raise NotImplementedError(f"{type(self).__name__}: expected a method choose(query, key) that returns probabilities or "
                                  "an EdgeSet; see edgewise.nn.EdgeSource")

    def nodes(self, call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor]:
        """The query and key that ``choose`` gets."""
        return _groups_of(call) if self.unit > 1 else (call.query, call.key)

    def draw_seed(self) -> torch.Tensor:
        """In training from torch's generator; in evaluation always the same."""
        if self.training:
            return draw_seed()
        numbers = self.evaluation_seed if isinstance(self.evaluation_seed, tuple) else (self.evaluation_seed,)
        return torch.tensor(numbers, dtype=torch.int64, device="cpu")

    def attend(self, call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Output [B, H, L, Dv], and the learner's differentiable density [H], None for patterns."""
        chosen = self.choose(*self.nodes(call))
        if isinstance(chosen, torch.Tensor) and chosen.dtype == torch.bool:
            chosen = EdgeSet.from_mask(chosen)
        if isinstance(chosen, EdgeSet):
            return self._attend_given(call, chosen), None
        if not isinstance(chosen, torch.Tensor):
            raise TypeError(f"{type(self).__name__}.choose: expected probabilities or an EdgeSet; got {type(chosen).__name__}")
        return self._attend_drawn(call, chosen)

    def _attend_given(self, call: AttentionCall, edges: EdgeSet) -> torch.Tensor:
        if call.without is not None:
            edges = edges - call.without
        if is_recording():
            tell(*_counted(call, edges))
        return edge_attention(call.query, call.key, call.value, edges, call.dropout_p, call.is_causal, call.scale, True,
                              key_mask=call.key_mask)

    def _attend_drawn(self, call: AttentionCall, probabilities: torch.Tensor):
        refuse_masks(type(self).__name__, call)
        refuse_causal_squares(type(self).__name__, call, self)
        query, key, value = cast_together(call.query, call.key, call.value)
        shape = (*query.shape[:3], key.shape[2])
        allowed = _allowed(call, shape)
        nodes = shape if self.unit == 1 else (*shape[:2], _groups(shape[2]), _groups(shape[3]))
        probabilities = probabilities.float().expand(nodes)
        seed = self.draw_seed()
        known = (call.key_mask, seed, self.options, self.training, call.is_causal)
        if is_plain(query, key, value, probabilities):
            output, density = ops.attend_drawn(query, key, value, probabilities, *known, call.scale, call.dropout_p)
        else:
            output, density, _ = run("drawn_attention", query, key, value, probabilities, *known, call.scale, call.dropout_p,
                                     backward_follows(query, key, value, probabilities))
        weights = allowed.float() if self.unit == 1 else _pairs_of_squares(allowed)
        penalty = (probabilities * weights).sum((0, 2, 3)) / weights.expand(shape[0], -1, -1, -1).sum().clamp_min(1)
        if is_recording():
            tell(density, penalty, lambda: EdgeSet(ops.drawn_edges(query, key, probabilities, *known), shape))
        return output, penalty

    def settings(self) -> dict | None:
        """The arguments that make another one like it, as JSON can hold them; None if it cannot be told."""
        return None

    def extra_repr(self) -> str:
        return self.options


class FunctionEdges(EdgeSource):
    """A source from a function of query and key, which returns what ``EdgeSource.choose`` may.

    >>> source = FunctionEdges(lambda query, key: torch.sigmoid(query @ key.mT))
    """

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor | EdgeSet], **options):
        super().__init__(**options)
        self.function = function

    def choose(self, query, key):
        return self.function(query, key)


class GivenEdges(EdgeSource):
    """The same edges in every call: of a graph, of a document's structure. Not part of the state dict."""

    def __init__(self, edges: EdgeSet):
        super().__init__()
        if not isinstance(edges, EdgeSet):
            raise TypeError(f"GivenEdges: expected an EdgeSet; got {type(edges).__name__}")
        self.edges = edges

    def choose(self, query, key):
        self.edges = self.edges.to(query.device)
        return self.edges

    def extra_repr(self) -> str:
        return repr(self.edges)


class _Pattern(EdgeSource):
    """Edges that follow from the lengths alone."""

    def nodes(self, call):
        return call.query, call.key

    def choose(self, query, key):
        # Where a compiled program leaves lengths open, index() settles them: a pattern is of one length.
        queries, keys = operator.index(query.shape[2]), operator.index(key.shape[2])
        return _pattern(type(self), self.arguments(), queries, keys, str(query.device))

    @staticmethod
    def make(arguments: tuple, queries: int, keys: int, device: str) -> EdgeSet:
        raise NotImplementedError

    def arguments(self) -> tuple:
        return ()


@torch._dynamo.assume_constant_result  # a compiled program holds the edges, and does not make them anew in every step
def _pattern(kind: type, arguments: tuple, queries: int, keys: int, device: str) -> EdgeSet:
    return _kept_pattern(kind, arguments, queries, keys, device)


@functools.lru_cache(maxsize=64)
def _kept_pattern(kind, arguments, queries, keys, device):
    return kind.make(arguments, queries, keys, device)


class WindowEdges(_Pattern):
    """Keys within ``width`` tokens on each side of the query; with ``unit=16`` all squares that this touches."""

    def __init__(self, width: int, unit: int = 1):
        super().__init__()
        self.width, self.unit = width, unit

    @staticmethod
    def make(arguments, queries, keys, device):
        if queries != keys:
            raise ValueError(f"WindowEdges: expected as many queries as keys; got {queries} and {keys}")
        width, unit = arguments
        return EdgeSet.window(queries, width, unit=unit, device=device)

    def arguments(self):
        return self.width, self.unit

    def settings(self):
        return {"width": self.width, "unit": self.unit}

    def extra_repr(self) -> str:
        return f"width={self.width}, unit={self.unit}"


class FullEdges(_Pattern):
    """Every pair: dense attention by the kernels over edges, to compare with."""

    def __init__(self, unit: int = 1):
        super().__init__()
        self.unit = unit

    @staticmethod
    def make(arguments, queries, keys, device):
        return EdgeSet.full(queries, keys, unit=arguments[0], device=device)

    def arguments(self):
        return (self.unit,)

    def settings(self):
        return {"unit": self.unit}


class RandomEdges(EdgeSource):
    """``alpha`` keys per query (groups of keys per group of queries), drawn uniformly, anew in every call of training.

    A yardstick for learned edges. Compiled, it wants ``torch._dynamo.config.capture_dynamic_output_shape_ops = True``.
    """

    def __init__(self, alpha: int, unit: int = 1, *, seed: int | None = None):
        super().__init__(unit=unit, seed=seed)
        if alpha < 1:
            raise ValueError(f"RandomEdges: expected alpha of at least 1 key per query; got {alpha}")
        self.alpha = alpha

    def attend(self, call):
        refuse_masks("RandomEdges", call)
        plan = ops.random_edges(call.query, call.key, call.key_mask, self.draw_seed(), self.alpha, self.unit, call.is_causal)
        return self._attend_given(call, EdgeSet(plan, (*call.query.shape[:3], call.key.shape[2]))), None

    def settings(self):
        return {"alpha": self.alpha, "unit": self.unit, "seed": self.evaluation_seed}

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, unit={self.unit}"


def refuse_masks(name: str, call: AttentionCall) -> None:
    """What learned edges cannot leave out."""
    if call.without is not None:
        raise NotImplementedError(f"{name}: attn_mask is for edge sources that return an EdgeSet; got one beside learned edges. "
                                  "Causality is is_causal=True, padding key_padding_mask")
    if call.key_mask is not None and not call.is_self:
        raise NotImplementedError(f"{name}: expected no key_padding_mask in cross-attention over learned edges, which takes it for "
                                  "a mask of queries and keys. Cut padding off, or use given edges")


def refuse_causal_squares(name: str, call: AttentionCall, source) -> None:
    if call.is_causal and source.unit > 1 and source.window is None:
        raise ValueError(f"{name}: expected a window in a causal layer of squares, which chooses among the groups before a "
                         "query's own; pass window=0 or more")


def _groups_of(call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor]:
    """What speaks for every 16 tokens: their mean; of causal queries the first, which all of them may know."""
    mask = call.key_mask if call.key_mask is not None and call.query.shape[2] == call.key.shape[2] else None
    query = call.query[:, :, ::SQUARE] if call.is_causal else _mean_of_groups(call.query, mask)
    return query, _mean_of_groups(call.key, call.key_mask)


def _mean_of_groups(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """[B, H, N, D] -> [B, H, ceil(N/16), D], over valid tokens; 0 for a group without."""
    batch, heads, length, dim = x.shape
    groups = _groups(length)
    valid = torch.ones(1, 1, length, 1, dtype=torch.bool, device=x.device) if mask is None else mask.view(batch, 1, length, 1)
    padded = torch.nn.functional.pad(x.masked_fill(~valid, 0), (0, 0, 0, groups * SQUARE - length))
    counts = torch.nn.functional.pad(valid.to(x.dtype), (0, 0, 0, groups * SQUARE - length))
    sums, counts = (y.unflatten(2, (groups, SQUARE)).sum(3) for y in (padded, counts))
    return sums / counts.clamp_min(1)


def _allowed(call: AttentionCall, shape) -> torch.Tensor:
    """The pairs that take part: [B or 1, 1, L, S] bool."""
    batch, _, queries, keys = shape
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=call.query.device)
    if call.key_mask is not None:
        allowed = allowed & call.key_mask.view(batch, 1, 1, keys)
        if queries == keys and call.is_self:
            allowed = allowed & call.key_mask.view(batch, 1, queries, 1)
    return allowed.tril() if call.is_causal else allowed


def _pairs_of_squares(allowed: torch.Tensor) -> torch.Tensor:
    """Of each square the pairs that take part: [B or 1, 1, ceil(L/16), ceil(S/16)]."""
    queries, keys = allowed.shape[2:]
    rows, columns = _groups(queries), _groups(keys)
    padded = torch.nn.functional.pad(allowed.float(), (0, columns * SQUARE - keys, 0, rows * SQUARE - queries))
    return padded.view(-1, 1, rows, SQUARE, columns, SQUARE).sum((3, 5))


def _counted(call: AttentionCall, edges: EdgeSet):
    """What a pattern tells a record: edges over valid pairs."""
    shape = (*call.query.shape[:3], call.key.shape[2])
    allowed = _allowed(call, shape)
    kept = (ops.plan_mask(edges._plan, edges._shape) & allowed).expand(shape)
    density = kept.sum((0, 2, 3)).double() / allowed.expand(shape[0], 1, *shape[2:]).sum().clamp_min(1)
    return density, None, lambda: edges
