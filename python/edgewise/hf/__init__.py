"""Edges for models of Hugging Face's transformers.

    model = AutoModel.from_pretrained(...)
    edgewise.hf.attach(model, edges=lambda layer, config: edgewise.nn.WindowEdges(64))

The model keeps its weights, its call and its training loop.
"""

try:
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError("edgewise.hf: expected the package transformers, version 5; install it with pip install transformers"
                      ) from error

from .attach import attach
from .storage import load, save

__all__ = ["attach", "load", "save"]
