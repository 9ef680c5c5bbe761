"""save() and load(): a model with edges as a folder that transformers also reads, densely."""

from __future__ import annotations

import copy
from pathlib import Path

import transformers
from transformers import AutoConfig, PreTrainedModel

from .. import nn
from .attach import attach, attentions_of, source_of
from .description import restore

__all__ = ["load", "save"]


def save(model: PreTrainedModel, path) -> None:
    """``model.save_pretrained(path)``, and the edges that attention was given as EdgeSets beside it.

    Where no layer has such edges ``save_pretrained`` alone is enough, and so are the checkpoints of a Trainer: ``load`` reads
    those too.
    """
    if not getattr(model.config, "edgewise", None):
        raise ValueError("edgewise.hf.save: expected a model with edges; call edgewise.hf.attach first, or save_pretrained")
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    attentions = attentions_of(model)
    before = model.config.edgewise
    with_files = copy.deepcopy(before)
    for layer, said in with_files["layers"].items():
        source = attentions[int(layer)].edges
        if isinstance(source, nn.GivenEdges):
            said["file"] = f"edges-{layer}.safetensors"
            source.edges.save(path / said["file"])
    model.config.edgewise = with_files
    try:
        model.save_pretrained(path)
    finally:
        model.config.edgewise = before  # in another folder these files are not


def load(path, edges=None, *, model_class: type | None = None, **kwargs) -> PreTrainedModel:
    """A model of ``save``, ``save_pretrained`` or a Trainer, with its edges and all that they have learned.

    Args:
        path: a folder.
        edges: as in ``attach``; for sources of your own, which a folder cannot describe. Called twice for each layer.
        model_class: by default the one that was saved.
        kwargs: of ``from_pretrained``, such as dtype.
    """
    path = Path(path)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"edgewise.hf.load: expected a folder with config.json; there is none in {path}")
    config = AutoConfig.from_pretrained(path)
    said = getattr(config, "edgewise", None)
    if not said:
        raise ValueError(f"edgewise.hf.load: expected a model that was saved with edges; {path} has none. from_pretrained reads "
                         "it, and edgewise.hf.attach gives it edges")
    kind = model_class or getattr(transformers, (config.architectures or ["nothing"])[0], None)
    if kind is None:
        raise ValueError(f"edgewise.hf.load: expected model_class=, since transformers has no class {config.architectures} that "
                         f"{path} names")

    def source(layer, layer_config):
        return edges(layer, layer_config) if edges is not None else restore(said["layers"][str(layer)], layer, path)

    # Edges are attached before the weights are read, so that theirs are read with all others and under the names of files.
    class Attached(kind):
        def __init__(self, *args, **arguments):
            super().__init__(*args, **arguments)
            attach(self, source, layers=map(int, said["layers"]), density_weight=said["density_weight"], cached=said["cached"])
            self.__class__ = kind  # transformers looks up by class what the weights are called in files

    wants_info = kwargs.pop("output_loading_info", False)
    model, info = Attached.from_pretrained(path, output_loading_info=True, **kwargs)
    lost = sorted(name for name in info["missing_keys"] if ".edges." in name)
    if lost:
        raise ValueError(f"edgewise.hf.load: expected every parameter of the edges in {path}; it lacks {', '.join(lost)}")
    attentions = attentions_of(model)
    for layer in map(int, said["layers"]):
        # transformers made the model without memory and filled in what the file has. The rest, such as buffers that are not
        # saved and plain tensors, is that of a source made anew.
        if attentions[layer].edges is None:
            continue
        fresh = source_of(source, layer, attentions[layer])
        fresh.load_state_dict(attentions[layer].edges.state_dict())
        attentions[layer].edges = fresh
    return (model, info) if wants_info else model
