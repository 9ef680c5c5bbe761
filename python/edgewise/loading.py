"""load() and save(): runs of the command line as modules, and modules as checkpoints that it reads."""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path

import torch

from .models import LanguageModel, ModelOptions, SequenceClassifier, TokenClassifier, TwoTowerClassifier
from .nn import FullEdges, RandomEdges, SbmEdges, WindowEdges

__all__ = ["load", "save"]

KINDS = ("dense", "full", "window", "random", "sbm", "window+sbm")
_FORMAT, _VERSION = "edgewise-checkpoint", "1"
_EVALUATION_STEP = -(2**63)  # of the draws in evaluation: 2^63 as an int64


def load(path, *, map_location="cpu") -> torch.nn.Module:
    """A run of the command line as a module, ready to evaluate or to train on.

    Args:
        path: a run folder (its best checkpoint, or the last where there is no best), or a checkpoint file.
        map_location: where the module is to be.

    The module has the parameter names of ``torch.nn``, and in ``recipe`` the run's recipe as a dictionary. Of a run with
    averaged weights it has those. In evaluation it draws the edges that ``edgewise eval`` draws for its first batch.

    Models: classifiers of sequences, pairs and tokens, and language models. Kinds of attention: dense, full, window,
    random, sbm and window+sbm.
    """
    file = _checkpoint(Path(path))
    tensors, metadata = _read(file)
    recipe = tomllib.loads(metadata["recipe"])
    model = _build(recipe, tensors, file)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"edgewise.load: expected {file} to hold the model of its recipe. {error}") from None
    model.recipe, model.recipe_text = recipe, metadata["recipe"]
    model.step = int(metadata.get("step", 0))
    return model.to(map_location).eval()


def save(model: torch.nn.Module, path) -> None:
    """A module of ``edgewise.load``, perhaps trained on, as a checkpoint: ``RUN/checkpoints/best.safetensors`` is what
    ``edgewise eval RUN`` reads.

    Written aside and then renamed: an interrupted save leaves an earlier file as it was.
    """
    from safetensors.torch import save_file

    if not hasattr(model, "recipe_text"):
        raise TypeError(f"edgewise.save: expected a model of edgewise.load, which knows its recipe; got {type(model).__name__}. "
                        "Other modules are saved by torch.save(model.state_dict(), path)")
    path = Path(path)
    union = model.recipe["attention"]["kind"] == "window+sbm"
    tensors = {name.replace(".edges.", ".edges.source1.") if union else name: tensor.detach().cpu().contiguous().clone()
               for name, tensor in model.state_dict().items()}
    metadata = {"format": _FORMAT, "format_version": _VERSION, "step": str(model.step), "recipe": model.recipe_text}
    handle, aside = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    os.close(handle)
    try:
        save_file(tensors, aside, metadata)
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _checkpoint(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(f"edgewise.load: expected a run folder or a checkpoint; there is no {path}")
    for name in ("best", "last"):
        file = path / "checkpoints" / f"{name}.safetensors"
        if file.is_file():
            return file
    raise FileNotFoundError(f"edgewise.load: expected checkpoints/best.safetensors or last.safetensors in {path}; found neither. "
                            "Has the run been trained?")


def _read(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            if metadata.get("format") != _FORMAT or metadata.get("format_version") != _VERSION or "recipe" not in metadata:
                raise ValueError(f"edgewise.load: expected a checkpoint of edgewise, version {_VERSION}; {file} says "
                                 f"{metadata.get('format', 'nothing')} {metadata.get('format_version', '')}".rstrip())
            every = {name: opened.get_tensor(name) for name in opened.keys()
                     if not name.startswith(("optimizer/", "memory/"))}
    except SafetensorError as error:
        raise ValueError(f"edgewise.load: expected a safetensors file; {file} is damaged: {error}") from None
    averages = {name.removeprefix("average/"): x for name, x in every.items() if name.startswith("average/")}
    tensors = {name: x for name, x in every.items() if not name.startswith("average/")} | averages
    # A learner has the same tensors alone and in a union with a window.
    return {name.replace(".edges.source1.", ".edges."): x for name, x in tensors.items()}, metadata


# What these modules have of a recipe: every key of [model] and [attention] and of the kind's own sections, with the values
# that are known. Others came later, or are for kinds that Python lacks.
_ANY = None
_HAS = {
    "model": {"layers": _ANY, "dim": _ANY, "heads": _ANY, "hidden": _ANY, "dropout": _ANY, "attention_dropout": _ANY,
              "hidden_dropout": _ANY, "norm_first": (True,), "activation": ("gelu",), "token_dropout": _ANY,
              "positions": ("learned", "none"), "pooling": ("mean", "mean_padded"), "causal": _ANY, "embedding_std": _ANY,
              "max_length": _ANY, "tied": _ANY},
    "attention": {"kind": KINDS, "unit": (1, 16), "edges": ("",), "decoder": ("",), "cross": ("",)},
    "window": {"width": _ANY, "sinks": _ANY},
    "random": {"alpha": _ANY},
    "sbm": {name: _ANY for name in (
        "preset", "clusters", "cluster_std", "initial_density", "law", "exploration", "exploration_in_eval", "estimator",
        "present_form", "gradient_clip", "probe_rate", "probes_per_row", "probe_unit", "density_penalty", "self_loops",
        "count_padding", "sampler", "shared_mlp")},
}
# Tasks whose models Python lacks, though their tensors may look like those of others.
_LACKS = ("next_tokens", "masked_text", "translation", "graph")


def _check_recipe(recipe: dict, file: Path) -> None:
    def refuse(what: str, found) -> None:
        raise NotImplementedError(f"edgewise.load: expected {what}; {file} has {found}")

    task = recipe.get("data", {}).get("name")
    if task in _LACKS:
        refuse(f"a task other than {', '.join(_LACKS)}, which Python does not have", task)
    kind = recipe["attention"]["kind"]
    if kind not in KINDS:
        refuse(f"attention.kind to be one that Python has, {', '.join(KINDS)}", kind)
    for section in ("model", "attention", *(x for x in kind.split("+") if x in _HAS)):
        for key, value in recipe.get(section, {}).items():
            if key not in _HAS[section]:
                refuse(f"no key {section}.{key}, which Python does not know", f"{key} = {value}")
            known = _HAS[section][key]
            if known is not _ANY and value not in known:
                refuse(f"{section}.{key} to be {' or '.join(map(repr, known))}, which Python has", repr(value))
    model = recipe["model"]
    if model.get("hidden_dropout", model["dropout"]) != model["dropout"]:
        refuse("no model.hidden_dropout of its own", model["hidden_dropout"])
    if kind != "window" and recipe.get("window", {}).get("sinks", 0) and "window" in kind:
        refuse(f"window.sinks = 0 with attention.kind = {kind}", recipe["window"]["sinks"])


def _build(recipe: dict, tensors: dict[str, torch.Tensor], file: Path) -> torch.nn.Module:
    _check_recipe(recipe, file)
    model, train, prefix = recipe["model"], recipe["train"], "" if "bytes" in tensors else "encoder."

    def rows(name: str) -> int:
        return tensors[prefix + name].shape[0] if prefix + name in tensors else 0

    causal = "bytes" in tensors
    options = ModelOptions(
        vocabulary=rows("token_embedding.weight"), max_length=rows("position_embedding.weight"), dim=model["dim"],
        heads=model["heads"], layers=model["layers"], hidden=model["hidden"],
        features=tensors["encoder.feature_projection.weight"].shape[1] if rows("feature_projection.weight") else 0,
        positions=rows("position_embedding.weight") > 0, dropout=model["dropout"],
        attention_dropout=model["attention_dropout"], token_dropout=model.get("token_dropout", 0.0),
        embedding_std=model["embedding_std"], density_weight=train.get("density_weight", 0.0),
        edges=_edges(recipe), causal=model.get("causal", False), evaluation=(train["seed"], _EVALUATION_STEP))
    if causal:
        options.max_length = recipe["data"]["length"]
        return LanguageModel(options, tied=model["tied"])
    if "head.weight" in tensors:
        return TokenClassifier(options, tensors["head.weight"].shape[0])
    if "head.linear2.weight" not in tensors:
        raise ValueError(f"edgewise.load: expected a classifier or a language model; {file} has neither a head nor a vocabulary")
    classes, hidden = tensors["head.linear2.weight"].shape
    two = tensors["head.linear1.weight"].shape[1] == 4 * options.dim
    return (TwoTowerClassifier if two else SequenceClassifier)(options, classes, hidden, model["pooling"])


def _edges(recipe: dict):
    """A function that makes a layer's edge source."""
    kind, unit = recipe["attention"]["kind"], recipe["attention"].get("unit", 1)
    if kind == "dense":
        return lambda layer: None
    if kind == "full":
        return lambda layer: FullEdges(unit)
    if kind == "window":
        return lambda layer: WindowEdges(recipe["window"]["width"], unit, recipe["window"].get("sinks", 0))
    if kind == "random":
        return lambda layer: RandomEdges(recipe["random"]["alpha"], unit)
    sbm = {name: value for name, value in recipe["sbm"].items() if name != "cluster_std"}  # of the start alone
    heads, dim = recipe["model"]["heads"], recipe["model"]["dim"]
    window = recipe["window"]["width"] if kind == "window+sbm" else None
    return lambda layer: SbmEdges(heads, dim // heads, unit=unit, window=window, **sbm)
