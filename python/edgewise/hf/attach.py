"""attach() and detach(): a source of edges for every self-attention of a model, and none again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from ..edge_set import EdgeSet
from ..nn.attention import as_source, weight_of
from ..nn.sources import EdgeSource
from .attention import NAME, refuse_weights
from .cached import CACHED
from .description import describe

__all__ = ["attach", "attentions_of", "detach", "source_of"]

#: Self-attentions that are tested. They run transformers' attention interface and pass nothing that edges lack.
ATTENTIONS = ("BertSelfAttention", "RobertaSelfAttention", "ViTAttention", "GPT2Attention", "LlamaAttention",
              "DistilBertSelfAttention", "ElectraSelfAttention", "XLMRobertaSelfAttention", "CamembertSelfAttention",
              "DeiTAttention", "MistralAttention", "Qwen2Attention", "Qwen3Attention")


def attach(model: PreTrainedModel, edges: Callable[[int, PreTrainedConfig], EdgeSource | EdgeSet | Callable | None], *,
           layers: Iterable[int] | None = None, density_weight: float | None = None,
           cached: str | None = None) -> PreTrainedModel:
    """Lets the self-attention of a model compute only edges. Changes the model and returns it.

    Args:
        model: BERT, RoBERTa, ViT, GPT-2, Llama or one of their relatives, for any task.
        edges: called with the number of a layer and its config, once per layer. It returns what ``MultiheadEdgeAttention``
            takes: a source, an EdgeSet, a function of query and key; None leaves the layer dense.
        layers: the layers that get edges, from 0; all by default. The others stay as they are.
        density_weight: of the learners' density, mean over their layers and heads, in the loss; 0 by default. Its gradient
            goes along with every ``loss.backward()``. A Trainer that accumulates gradients, or trains in float16, wants
            ``callbacks=[edgewise.hf.DensityCallback()]``.
        cached: what a new token attends to while text is generated: "edges" (the default), those it has in a pass over the
            whole text; "dense", every key, which costs less than drawing.

    Attaching again replaces the sources of the layers that it names, and keeps density_weight and cached where they are not
    given. The model gets a config of its own: others that were made of the same config stay as they are. ``detach`` goes
    back to dense attention.

    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    >>> model = attach(BertModel(config), lambda layer, config: edgewise.nn.WindowEdges(2))
    >>> model(torch.randint(0, 99, (1, 10))).last_hidden_state.shape
    torch.Size([1, 10, 32])
    """
    attentions = attentions_of(model) if isinstance(model, PreTrainedModel) else []
    before = _said_before(model, attentions)
    density_weight = before["density_weight"] if density_weight is None else density_weight
    cached = before["cached"] if cached is None else cached
    _check(model, edges, density_weight, cached)
    chosen = list(range(len(attentions))) if layers is None else sorted(set(layers))
    if any(layer not in range(len(attentions)) for layer in chosen):
        raise IndexError(f"edgewise.hf.attach: expected layers in [0, {len(attentions)}); got {chosen}")
    # All sources are made before the model is touched: what fails leaves it as it was.
    made = {layer: source_of(edges, layer, attentions[layer]) for layer in chosen}
    for layer, source in made.items():
        attentions[layer].edges = source
    learners = [x for x in attentions if _edges_of(x) is not None and x.edges.learns]
    for number, attention in enumerate(attentions):
        attention.edgewise_first = number == 0
        attention.edgewise_density_weight = weight_of(density_weight / max(len(learners), 1))
        attention.edgewise_cached = cached
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and refuse_weights not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(refuse_weights, with_kwargs=True)
    _take_own_configs(model)
    _set_implementation(model, NAME)
    model.config.edgewise = {"density_weight": density_weight, "cached": cached,
                             "layers": {str(n): describe(x.edges) for n, x in enumerate(attentions)
                                        if _edges_of(x) is not None}}
    return model


def detach(model: PreTrainedModel, attn_implementation: str = "sdpa") -> PreTrainedModel:
    """Takes the edges out of a model: its attention is dense again, and what the edges had learned is gone.

    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    >>> model = detach(attach(BertModel(config), lambda layer, config: edgewise.nn.WindowEdges(2)))
    >>> model.config._attn_implementation, hasattr(model.config, "edgewise")
    ('sdpa', False)
    """
    if attn_implementation == NAME:
        raise ValueError(f"edgewise.hf.detach: expected attn_implementation to be one of dense attention, such as sdpa; got {NAME}")
    attentions = attentions_of(model)
    _take_own_configs(model)
    _set_implementation(model, attn_implementation)
    for attention in attentions:
        for name in ("edges", "edgewise_first", "edgewise_density_weight", "edgewise_cached"):
            if hasattr(attention, name):
                delattr(attention, name)
    for part in model.modules():
        config = getattr(part, "config", None)
        if isinstance(config, PreTrainedConfig) and hasattr(config, "edgewise"):
            del config.edgewise
    return model


def _edges_of(attention: torch.nn.Module) -> EdgeSource | None:
    return getattr(attention, "edges", None)


def _said_before(model, attentions) -> dict:
    """What the call before said. A config without a layer that has edges tells of another model."""
    said = getattr(getattr(model, "config", None), "edgewise", None)
    if said and any(_edges_of(x) is not None for x in attentions):
        return said
    return {"density_weight": 0.0, "cached": "edges"}


def _parts_with_config(model: PreTrainedModel) -> list[torch.nn.Module]:
    return [x for x in model.modules() if isinstance(getattr(x, "config", None), PreTrainedConfig)]


def _take_own_configs(model: PreTrainedModel) -> None:
    """Models keep the very config that they were made of; what is written into it must not reach others."""
    copies = {}
    for part in _parts_with_config(model):
        part.config = copy.deepcopy(part.config, copies)  # what parts share stays shared


def _set_implementation(model: PreTrainedModel, name: str) -> None:
    model.set_attn_implementation(name)
    for part in _parts_with_config(model):  # composed models have layers with a config that no model shares
        part.config._attn_implementation = name


def attentions_of(model: PreTrainedModel) -> list[torch.nn.Module]:
    """The self-attentions of a model, in the order of its layers."""
    found = [x for x in model.modules() if type(x).__name__ in ATTENTIONS and not getattr(x, "is_cross_attention", False)]
    if not found:
        raise NotImplementedError(f"edgewise.hf.attach: expected a model with one of the self-attentions {', '.join(ATTENTIONS)}; "
                                  f"got {type(model).__name__}, which has none")
    return found


def _check(model, edges, density_weight, cached) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"edgewise.hf.attach: expected a model of transformers; got {type(model).__name__}. For modules of your "
                        "own there is edgewise.nn.MultiheadEdgeAttention")
    if isinstance(edges, (torch.nn.Module, EdgeSet)) or not callable(edges):
        raise TypeError("edgewise.hf.attach: expected edges to be a function of layer and config that makes a source, such as "
                        f"lambda layer, config: edgewise.nn.WindowEdges(64); got {type(edges).__name__}")
    if getattr(model.config, "output_attentions", False):
        raise ValueError("edgewise.hf.attach: expected a config with output_attentions=False; attention over edges has no matrix "
                         "of weights")
    if density_weight < 0:
        raise ValueError(f"edgewise.hf.attach: expected density_weight of at least 0; got {density_weight}")
    if cached not in CACHED:
        raise ValueError(f"edgewise.hf.attach: expected cached to be {' or '.join(CACHED)}; got '{cached}'")


def source_of(edges, layer: int, attention: torch.nn.Module) -> EdgeSource | None:
    """A layer's source, where and of the dtype of its weights. Draws in evaluation follow the number of the layer."""
    source = as_source(edges(layer, attention.config))
    if source is None:
        return None
    source.number_draws(layer + 1)
    weight = next(attention.parameters())
    source = source.to(device=weight.device, dtype=weight.dtype)
    return source.train(attention.training)
