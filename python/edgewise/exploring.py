"""explore(): the graphs that a model's heads choose on some inputs, in the page that ``edgewise explore`` serves."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from .explorer_page import page_of
from .explorer_snapshot import Input, Layer, Snapshot, layer_of_call
from .recording import seen_calls

__all__ = ["Exploration", "explore"]

_MOST_INPUTS = 16
_LONGEST_PIECE = 100  # characters that are shown of a token


class Exploration:
    """What ``edgewise.explore`` saw. In a notebook it shows itself."""

    def __init__(self, snapshot: Snapshot, name: str):
        self.snapshot = snapshot  #: edges and weights, layer by layer
        self.name = name

    @property
    def html(self) -> str:
        """The page as one file that needs no network."""
        return page_of(self.snapshot, self.name)

    def save(self, path) -> Path:
        """The page as a file: PATH.html. A path that ends in .safetensors gets a snapshot, which ``edgewise explore PATH`` shows."""
        path = Path(path)
        if path.suffix == ".safetensors":
            self.snapshot.save(path)
        else:
            path.write_text(self.html, encoding="utf-8")
        return path

    def open(self) -> Path:
        """In a browser, from a file in the folder for temporary ones."""
        with tempfile.NamedTemporaryFile("w", prefix="edgewise-", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(self.html)
        webbrowser.open(Path(file.name).as_uri())
        return Path(file.name)

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self.html, quote=True)}" style="width: 100%; height: 720px; border: 1px solid #ccc" '
                'title="edges of the heads"></iframe>')

    def __repr__(self) -> str:
        inputs = self.snapshot.inputs
        layers = inputs[0].layers if inputs else []
        edges = sum(head.edges for item in inputs for layer in item.layers for head in layer.heads)
        return f"Exploration({len(inputs)} inputs, {len(layers)} layers, {edges} edges)"


def explore(model: torch.nn.Module, inputs, *, tokens: torch.Tensor | None = None,
            names: Sequence[str] | Callable[[int], str] | object | None = None, labels: torch.Tensor | None = None,
            picture_width: int = 0, task: str = "", name: str = "") -> Exploration:
    """Runs the model on inputs in evaluation mode and keeps what every head chose: its edges, and the weight on each.

    Args:
        model: with attention of edgewise in it: ``edgewise.nn``, a run of ``edgewise.load``, a model of Hugging Face after
            ``edgewise.hf.attach``. Layers whose edges are None are shown as dense attention, up to 1024 tokens.
        inputs: what the model is called with: a tensor, a tuple, or a dict of arguments; a text for a language model of
            ``edgewise.load``. At most 16 items.
        tokens: [B, N] ids to show; by default the first integer tensor of the inputs.
        names: of the ids: a list, a function, or a tokeniser of Hugging Face.
        labels: [B] or [B, N], shown beside what the model answers.
        picture_width: of pictures, whose ids are grey values.
        task: a name for the page; "listops" has its tokens as a tree.

    >>> layer = edgewise.nn.EdgeTransformerEncoderLayer(16, 2, edgewise.nn.WindowEdges(1))
    >>> explore(layer, torch.randn(1, 8, 16))
    Exploration(1 inputs, 1 layers, 44 edges)
    """
    if isinstance(inputs, (str, bytes)):
        inputs, names = _encoded(model, inputs, names)
    arguments, keywords = _call_of(inputs)
    calls, output = _run(model, arguments, keywords)
    items = calls[0][0].query.shape[0]
    if items > _MOST_INPUTS:
        raise ValueError(f"edgewise.explore: expected at most {_MOST_INPUTS} items in the batch; got {items}. Give some of them")
    tokens = _first_ids([*arguments, *keywords.values()]) if tokens is None else tokens
    if tokens is not None and tokens.dim() == 1:
        tokens = tokens.unsqueeze(0)
    predicted = _predicted(output) if tokens is not None or labels is not None else None
    found = []
    for item in range(items):
        layers = [layer_of_call(call, edges, item) for call, edges in calls]
        found.append(Input(_length(layers, calls[0][0], tokens), _row(tokens, item), _valid(calls[0][0], item), _row(labels, item),
                           _row(predicted, item), layers, f"item {item}"))
    for item in found:
        if item.tokens is not None and len(item.tokens) != item.length:
            raise ValueError(f"edgewise.explore: expected tokens [{items}, {item.length}], one for each that attention sees; got "
                             f"{len(item.tokens)} an item")
    causal = all(call.is_causal for call, _ in calls)
    listed, pieces = _named(names, found)
    snapshot = Snapshot(found, task or _task_of(model), listed, pieces, picture_width, causal, int(getattr(model, "step", 0)))
    return Exploration(snapshot, name or type(model).__name__)


def _encoded(model, text, names):
    if not hasattr(model, "encode") or not hasattr(model, "bytes"):
        raise TypeError(f"edgewise.explore: expected a text for a language model of edgewise.load, which knows its characters; got one "
                        f"for {type(model).__name__}. Give token ids, and names for them")
    known = [{10: "\\n", 9: "\\t"}.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02X}") for byte in model.bytes.tolist()]
    return model.encode(text), known if names is None else names


def _call_of(inputs) -> tuple[list, dict]:
    if isinstance(inputs, Mapping):
        return [], dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return list(inputs), {}
    return [inputs], {}


def _run(model: torch.nn.Module, arguments: list, keywords: dict):
    """The calls of attention of one pass, and what the model answered."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad(), seen_calls() as calls:
            output = model(*arguments, **keywords)
    finally:
        for module, was_training in modes:
            module.training = was_training
    if not calls:
        raise ValueError(f"edgewise.explore: expected a model with attention of edgewise; {type(model).__name__} called none. Use "
                         "edgewise.nn.MultiheadEdgeAttention, or edgewise.hf.attach for a model of Hugging Face")
    return calls, output


def _first_ids(given) -> torch.Tensor | None:
    for each in given:
        if isinstance(each, torch.Tensor) and each.dim() in (1, 2) and not each.is_floating_point() and each.dtype != torch.bool:
            return each
    return None


def _length(layers: list[Layer], call, tokens: torch.Tensor | None) -> int:
    return call.query.shape[2] if tokens is None or call.query.shape[2] != tokens.shape[1] else tokens.shape[1]


def _valid(call, item: int) -> np.ndarray | None:
    if call.key_mask is None or call.key_mask.shape[1] != call.query.shape[2]:
        return None
    mask = call.key_mask[item].cpu()
    return None if bool(mask.all()) else mask.numpy()


def _row(values: torch.Tensor | None, item: int) -> np.ndarray | None:
    if values is None or values.shape[0] <= item:
        return None
    return values[item].detach().cpu().to(torch.int32).reshape(-1).numpy()


def _predicted(output) -> torch.Tensor | None:
    logits = getattr(output, "logits", output)
    return logits.argmax(-1) if isinstance(logits, torch.Tensor) and logits.is_floating_point() and logits.dim() in (2, 3) else None


def _task_of(model) -> str:
    recipe = getattr(model, "recipe", None)
    return recipe["data"]["name"] if isinstance(recipe, dict) else type(model).__name__


def _named(names, inputs: list[Input]) -> tuple[list[str], dict[int, str]]:
    """Names of all ids, or of those that occur."""
    if names is None:
        return [], {}
    if hasattr(names, "convert_ids_to_tokens"):
        tokenizer = names
        names = lambda id: tokenizer.decode([id]) or tokenizer.convert_ids_to_tokens(id)  # noqa: E731
    if callable(names):
        ids = {int(id) for item in inputs if item.tokens is not None for id in item.tokens}
        return [], {id: str(names(id))[:_LONGEST_PIECE] for id in sorted(ids)}
    return [str(each)[:_LONGEST_PIECE] for each in names], {}
