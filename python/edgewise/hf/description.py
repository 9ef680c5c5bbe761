"""Sources as JSON: what a saved model says of its edges, and the sources made from that."""

from __future__ import annotations

from pathlib import Path

from .. import nn
from ..edge_set import EdgeSet

__all__ = ["describe", "restore"]


def describe(source: nn.EdgeSource) -> dict:
    """{"kind", "settings"} of a source of edgewise.nn, {"kind"} alone of one that cannot be told."""
    kind, settings = type(source).__name__, source.settings()
    if settings is None or getattr(nn, kind, None) is not type(source):
        return {"kind": kind}
    return {"kind": kind, "settings": settings}


def restore(said: dict, layer: int, folder: Path) -> nn.EdgeSource:
    """The source that was described, with fresh parameters."""
    kind = said["kind"]
    if "file" in said:
        return nn.GivenEdges(EdgeSet.load(folder / said["file"]))
    if "settings" not in said:
        raise ValueError(f"edgewise.hf.load: expected edges=, the function that attach was given: layer {layer} has {kind}, which "
                         f"{folder} cannot describe")
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in said["settings"].items()}
    return getattr(nn, kind)(**settings)
