"""What the heads of a model chose on some inputs, as the explorer shows it: edges, and the attention weight on each.

    a_ij = exp(s_ij) / sum over the query's edges of exp(s_ij'),   s_ij = scale q_i . k_j

A file of them is what ``edgewise explore FILE`` reads (docs/reference/files.md, snapshots).
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from .checksum import crc32c
from .edge_set import SQUARE, EdgeSet, _groups

__all__ = ["Head", "Input", "Layer", "Snapshot", "layer_of_call"]

_DENSE_TOKENS = 1024  # dense attention is shown up to this length
_HEAD_EDGES = 1 << 20  # of a head; beyond that each query keeps its heaviest


@dataclass
class Head:
    offsets: np.ndarray  # [query nodes + 1] int32: where each query's edges begin
    keys: np.ndarray  # [kept] int32
    weights: np.ndarray  # [kept] float16
    edges: int  # pairs that attention computed
    chosen: int  # edges, or squares, before the limit
    density: float

    def figures(self) -> dict:
        return {"edges": self.edges, "chosen": self.chosen, "kept": len(self.keys), "density": self.density, "clusters": 0}


@dataclass
class Layer:
    unit: int = 1
    queries: int = 0  # nodes
    keys: int = 0
    heads: list[Head] = field(default_factory=list)  # none: dense, and too long to show


@dataclass
class Input:
    """One item of the batch."""

    length: int
    tokens: np.ndarray | None = None  # [N] int32
    valid: np.ndarray | None = None  # [N] bool
    labels: np.ndarray | None = None  # [N] or [1] int32
    predicted: np.ndarray | None = None
    layers: list[Layer] = field(default_factory=list)
    name: str = ""

    def arrays(self) -> dict[str, np.ndarray]:
        every = {"tokens": self.tokens, "valid": self.valid, "labels": self.labels, "predicted": self.predicted}
        return {name: array for name, array in every.items() if array is not None}


@dataclass
class Snapshot:
    inputs: list[Input]
    task: str = "a model"
    names: list[str] = field(default_factory=list)  # of ids 0, 1, ...
    pieces: dict[int, str] = field(default_factory=dict)  # of ids that occur, where there are no names
    picture_width: int = 0
    causal: bool = False
    step: int = 0

    def about(self) -> dict:
        """What the file says of itself, and the page is told of a step."""
        inputs = [{"example": n, "tower": 0, "length": item.length, "name": item.name,
                   "layers": [{"unit": layer.unit, "queries": layer.queries, "keys": layer.keys, "membership_stride": 1,
                               "heads": [head.figures() for head in layer.heads]} for layer in item.layers]}
                  for n, item in enumerate(self.inputs)]
        return {"step": self.step, "task": self.task, "causal": self.causal, "picture_width": self.picture_width,
                "token_names": self.names, "pieces": [[id, text] for id, text in sorted(self.pieces.items())], "inputs": inputs}

    def save(self, path) -> None:
        """Written aside, synced and renamed."""
        from safetensors.numpy import save

        tensors = {}
        for n, item in enumerate(self.inputs):
            for name, array in item.arrays().items():
                tensors[f"input.{n}.{name}"] = array
            for at, layer in enumerate(item.layers):
                for h, head in enumerate(layer.heads):
                    for name in ("offsets", "keys", "weights"):
                        tensors[f"input.{n}.layer.{at}.head.{h}.{name}"] = getattr(head, name)
        sums = "".join(f"{name} {crc32c(array.tobytes()):08x}\n" for name, array in sorted(tensors.items()))
        data = save(tensors, {"format": "edgewise.snapshot.1", "about": json.dumps(self.about()), "checksums": sums})
        path = Path(path)
        handle, aside = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise


def layer_of_call(call, edges: EdgeSet | None, item: int) -> Layer:
    """One item of a call of attention. edges: None for dense attention."""
    _, heads, queries, _ = call.query.shape
    keys = call.key.shape[2]
    unit = 1 if edges is None else edges.unit
    if edges is None and max(queries, keys) > _DENSE_TOKENS:
        return Layer()
    layer = Layer(unit, *((queries, keys) if unit == 1 else (_groups(queries), _groups(keys))))
    pairs = _Pairs(call, item)
    for head in range(heads):
        rows, columns = pairs.allowed(*_head_pairs(call, edges, item, head), head)
        layer.heads.append(_head(call, layer, pairs.count, rows, columns, item, head))
    return layer


def _head_pairs(call, edges: EdgeSet | None, item: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key of every edge of one head."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    if edges is None:
        every = torch.arange(queries * keys)
        return every // max(keys, 1), every % max(keys, 1)
    offsets, columns = edges.csr()
    batch, sets = edges.shape[:2]
    first = ((item if batch > 1 else 0) * sets + (head if sets > 1 else 0)) * queries
    own = offsets[first:first + queries + 1].cpu()
    return torch.repeat_interleave(torch.arange(queries), own.diff()), columns[int(own[0]):int(own[-1])].cpu().long()


class _Pairs:
    """Which pairs the masks of a call leave to an item, and how many they are."""

    def __init__(self, call, item: int):
        queries, keys = call.query.shape[2], call.key.shape[2]
        self.call, self.item, self.first = call, item, keys - queries
        self.keys = torch.ones(keys, dtype=torch.bool) if call.key_mask is None else call.key_mask[item].cpu()
        self.queries = self.keys if call.is_self and queries == keys else torch.ones(queries, dtype=torch.bool)
        self.without = None if call.without is None else call.without.to_dense().cpu()  # [B or 1, H or 1, L, S]
        before = self.keys.cumsum(0)
        self.count = int((self.queries * before[self.first:]).sum() if call.is_causal else self.queries.sum() * self.keys.sum())

    def allowed(self, rows: torch.Tensor, columns: torch.Tensor, head: int) -> tuple[torch.Tensor, torch.Tensor]:
        kept = self.keys[columns] & self.queries[rows]
        if self.call.is_causal:
            kept &= columns <= rows + self.first
        if self.without is not None:
            batch, heads = self.without.shape[:2]
            kept &= ~self.without[self.item if batch > 1 else 0, head if heads > 1 else 0][rows, columns]
        return rows[kept], columns[kept]


def _head(call, layer: Layer, valid_pairs: int, rows: torch.Tensor, columns: torch.Tensor, item: int, head: int) -> Head:
    query = call.query[item, head].detach().float().cpu()
    key = call.key[item, head * call.key.shape[1] // call.query.shape[1]].detach().float().cpu()
    scale = query.shape[1] ** -0.5 if call.scale is None else call.scale
    weights = _softmax((query[rows] * key[columns]).sum(1).double() * scale, rows, query.shape[0])
    edges = len(rows)
    if layer.unit > 1:
        rows, columns, weights = _squares(layer, rows, columns, weights)
    chosen = len(rows)
    if chosen > _HEAD_EDGES:
        kept = _heaviest(rows, weights, max(1, _HEAD_EDGES // layer.queries))
        rows, columns, weights = rows[kept], columns[kept], weights[kept]
    offsets = torch.zeros(layer.queries + 1, dtype=torch.int64)
    offsets[1:] = torch.bincount(rows, minlength=layer.queries).cumsum(0)
    return Head(offsets.int().numpy(), columns.int().numpy(), weights.half().numpy(), edges, chosen, edges / max(valid_pairs, 1))


def _softmax(scores: torch.Tensor, rows: torch.Tensor, queries: int) -> torch.Tensor:
    """Over the edges of each query."""
    highest = torch.full((queries,), -torch.inf, dtype=scores.dtype).scatter_reduce(0, rows, scores, "amax")
    parts = (scores - highest[rows]).exp()
    return parts / torch.zeros(queries, dtype=scores.dtype).index_add(0, rows, parts)[rows]


def _squares(layer: Layer, rows: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor):
    """Of pairs the squares they lie in; a square's weight is the share of its queries' attention, on average."""
    places, square = torch.unique(rows // SQUARE * layer.keys + columns // SQUARE, return_inverse=True)
    sums = torch.zeros(len(places), dtype=weights.dtype).index_add(0, square, weights)
    attending = torch.bincount(torch.unique(rows) // SQUARE, minlength=layer.queries).clamp_min(1)
    groups = places // layer.keys
    return groups, places % layer.keys, sums / attending[groups]


def _heaviest(rows: torch.Tensor, weights: torch.Tensor, most: int) -> torch.Tensor:
    """Places of the `most` heaviest edges of each query, ascending."""
    order = torch.argsort(weights, descending=True, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]  # query by query, the heaviest first
    begin = torch.searchsorted(rows[order].contiguous(), torch.arange(int(rows.max()) + 1))
    rank = torch.arange(len(order)) - begin[rows[order]]
    return order[rank < most].sort().values
