"""The explorer's page as one HTML file that needs nothing beside it: the same files that ``edgewise explore`` serves."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import struct
from pathlib import Path

import numpy as np

from .explorer_snapshot import Head, Layer, Snapshot

__all__ = ["page_of"]

_THUMBNAIL = 48  # pixels on a side
_TYPES = {"int32": "i32", "float32": "f32", "float16": "f16", "uint8": "u8", "bool": "u8"}


def _folder() -> Path:
    """Beside this package where it is installed; in the source tree where the command line has it."""
    installed, source = Path(__file__).parent / "page", Path(__file__).parents[2] / "apps" / "edgewise" / "explore" / "page"
    for folder in (installed, source):
        if (folder / "index.html").is_file():
            return folder
    raise FileNotFoundError(f"edgewise.explore: expected the page's files in {installed} or {source}; found neither. Install the "
                            "package again")


def _json(value) -> bytes:
    return json.dumps(value).encode()


def _packed(meta: dict, arrays: dict[str, np.ndarray]) -> bytes:
    """u32 N, N bytes of JSON, then the arrays, each at a multiple of 8 bytes."""
    parts = [{"name": name, "type": _TYPES[str(array.dtype)], "count": array.size} for name, array in arrays.items()]
    text = json.dumps({"meta": meta, "parts": parts}).encode()
    text += b" " * (-(4 + len(text)) % 8)
    data = b"".join(array.tobytes() + b"\0" * (-array.nbytes % 8) for array in arrays.values())
    return struct.pack("<I", len(text)) + text + data


def _pixels_of(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last + 1 pixel of every node: several where there are few nodes, else one that others share."""
    node = np.arange(nodes)
    if nodes >= _THUMBNAIL:
        first = ((node + 1) * _THUMBNAIL - 1) // nodes
        return first, first + 1
    return -(-node * _THUMBNAIL // nodes), -(-(node + 1) * _THUMBNAIL // nodes)


def _thumbnail(head: Head, layer: Layer) -> np.ndarray:
    """[48, 48] uint8: how many pairs of each pixel are edges, on a scale that shows few."""
    rows = np.repeat(np.arange(layer.queries), np.diff(head.offsets))
    top, bottom = _pixels_of(layer.queries)
    left, right = _pixels_of(layer.keys)
    # A rectangle of ones per edge: at its corners, and the sums over both axes.
    corners = np.zeros((_THUMBNAIL + 1, _THUMBNAIL + 1))
    for y, x, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (y[rows], x[head.keys]), sign)
    count = corners.cumsum(0).cumsum(1)[:_THUMBNAIL, :_THUMBNAIL]

    def nodes_on(first, last):
        edges = np.zeros(_THUMBNAIL + 1)
        np.add.at(edges, first, 1)
        np.add.at(edges, last, -1)
        return edges.cumsum()[:_THUMBNAIL]

    pairs = np.maximum(1, np.outer(nodes_on(top, bottom), nodes_on(left, right)))
    return np.rint(255 * np.sqrt(np.minimum(1, count / pairs))).astype(np.uint8)


def _answers(snapshot: Snapshot, name: str) -> dict[str, bytes]:
    """What the page asks for, by address."""
    layers = snapshot.inputs[0].layers if snapshot.inputs else []
    heads = max((len(layer.heads) for layer in layers), default=0)
    answers = {"run": _json({"name": name, "task": snapshot.task, "attention": f"{len(layers)} layers", "unit": 1, "layers": len(layers),
                             "heads": heads, "total_steps": snapshot.step, "steps": [snapshot.step],
                             "densities": {"steps": [], "heads": []}}),
               f"step/{snapshot.step}": _json(snapshot.about())}
    for n, item in enumerate(snapshot.inputs):
        address = f"step/{snapshot.step}/input/{n}"
        arrays = {key: array.astype(np.uint8) if array.dtype == bool else array for key, array in item.arrays().items()}
        answers[address] = _packed({"length": item.length, "target_length": 0}, arrays)
        small = [_thumbnail(head, layer) for layer in item.layers for head in layer.heads]
        answers[address + "/thumbnails"] = _packed(
            {"size": _THUMBNAIL}, {"pixels": np.stack(small) if small else np.zeros(0, np.uint8)})
        for at, layer in enumerate(item.layers):
            for h, head in enumerate(layer.heads):
                meta = {"unit": layer.unit, "queries": layer.queries, "keys": layer.keys, "edges": head.edges,
                        "chosen": head.chosen, "density": head.density, "membership_stride": 1}
                answers[f"{address}/layer/{at}/head/{h}"] = _packed(
                    meta, {"offsets": head.offsets, "keys": head.keys, "weights": head.weights})
    return answers


def page_of(snapshot: Snapshot, name: str) -> str:
    folder = _folder()
    index = (folder / "index.html").read_text()
    parts = ["<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<link rel=\"icon\" href=\"data:,\">\n"
             f"<title>{html.escape(name)}</title>\n<style>\n{(folder / 'style.css').read_text()}</style>\n</head>\n"
             "<body class=\"explorer-page\">\n<div id=\"explorer\" data-alone=\"yes\"></div>\n"]
    for address, data in _answers(snapshot, name).items():
        text = base64.b64encode(gzip.compress(data, mtime=0)).decode()
        parts.append(f"<script type=\"text/plain\" data-explorer=\"{address}\">{text}</script>\n")
    # In the order in which index.html names them. By its id a Worker finds what it runs.
    for script in re.findall(r'<script src="([a-z_.]+)"', index):
        parts.append(f"<script id=\"explorer-{script}\">\n{(folder / script).read_text()}</script>\n")
    return "".join(parts) + "</body>\n</html>\n"
