"""Edgewise: attention over learned sparse graphs.

    edges = edgewise.EdgeSet.window(512, 32)                     # which pairs
    out = edgewise.edge_attention(query, key, value, edges)      # attention over them, differentiable

    attention = edgewise.nn.MultiheadEdgeAttention(256, 8, edgewise.nn.SbmEdges(8, 32), density_weight=0.05)
    out, _ = attention(tokens)                                   # learns which pairs from the loss

    with edgewise.record() as seen:                              # what it has chosen
        model(tokens)
    seen.density                                                 # [layers, heads]
    edgewise.explore(model, tokens)                              # look at it in a browser or a notebook

    model = edgewise.load("runs/mine")                           # a run of the command line

    edgewise.hf.attach(model, lambda layer, config: edgewise.nn.WindowEdges(64))     # a model of Hugging Face

Importing loads the compiled library: the file that ``EDGEWISE_LIBRARY`` names, the one beside this package, or the
newest in the build folders of the source tree. It registers ``torch.ops.edgewise``.
"""

import importlib

import torch

from ._library import library_path, version  # first: it registers what the rest is made of
from . import nn  # noqa: I001
from ._ops import ops as _ops
from .edge_set import EdgeSet
from .exploring import Exploration, explore
from .functional import edge_attention
from .loading import load, save
from .recording import Record, record

__all__ = ["EdgeSet", "Exploration", "Record", "edge_attention", "explore", "library_path", "load", "nn", "record", "save", "synchronize"]

__version__ = version()


@torch.compiler.disable  # an op without tensors would be taken out of a traced program
def synchronize():
    """Waits for the GPUs and raises what was wrong with edges that earlier calls were given there."""
    _ops.synchronize()


def __getattr__(name):
    if name == "hf":  # imported when it is asked for: only it wants transformers
        try:
            return importlib.import_module(".hf", __name__)
        except ImportError as error:
            raise AttributeError(str(error)) from error  # so that hasattr answers
    raise AttributeError(f"module 'edgewise' has no attribute '{name}'")
