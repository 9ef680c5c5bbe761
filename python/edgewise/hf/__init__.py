"""Edges for models of Hugging Face's transformers.

    model = AutoModel.from_pretrained(...)
    edgewise.hf.attach(model, edges=lambda layer, config: edgewise.nn.WindowEdges(64))

The model keeps its weights, its call and its training loop.
"""

_WANTED = "edgewise.hf: expected the package transformers, version 5"

try:
    import transformers
except ImportError as error:
    raise ImportError(f"{_WANTED}; install it with pip install transformers") from error

if int(transformers.__version__.split(".")[0]) < 5:
    raise ImportError(f"{_WANTED}; found {transformers.__version__}. Run pip install 'transformers>=5'")

from .attach import attach, detach  # noqa: E402
from .density import DensityCallback  # noqa: E402
from .storage import load, save  # noqa: E402

__all__ = ["DensityCallback", "attach", "detach", "load", "save"]
