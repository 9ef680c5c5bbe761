"""MultiheadEdgeAttention: nn.MultiheadAttention whose heads compute only the edges that a source chooses."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ..edge_set import EdgeSet
from ..functional import edge_attention
from ..recording import see
from .dense import attend_dense
from .sources import AttentionCall, EdgeSource, FunctionEdges, GivenEdges

__all__ = ["MultiheadEdgeAttention", "add_density_penalty", "as_source"]


class _AddLoss(torch.autograd.Function):
    """Returns x and adds weight * penalty.mean() to whatever loss is differentiated through it."""

    @staticmethod
    def forward(x, penalty, weight):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, penalty, weight = inputs
        ctx.save_for_backward(penalty, weight)

    @staticmethod
    def backward(ctx, grad):
        penalty, weight = ctx.saved_tensors
        return grad, (torch.ones_like(penalty) * (weight / penalty.numel())).to(penalty.dtype), None


def weight_of(number: float) -> torch.Tensor:
    """A density weight as a tensor: a compiled program takes its value in every call, and is not made anew for another."""
    return torch.tensor(float(number), dtype=torch.float64, device="cpu")


def sends(weight: float | torch.Tensor) -> bool:
    """Whether a layer with this weight sends its penalty's gradient along. A compiled program does, be it 0."""
    return torch.is_grad_enabled() and (torch.compiler.is_compiling() or bool(weight != 0))


def add_density_penalty(x: torch.Tensor, penalty: torch.Tensor, weight: float | torch.Tensor) -> torch.Tensor:
    """x, through which ``loss.backward()`` also sends the gradient of ``weight * penalty.mean()``.

    Its size does not depend on the loss: with a GradScaler, whose factor it does not get, add ``edgewise.record().penalty``
    to the loss instead. ``backward`` sends it once in every call: where one step adds up the gradients of several, divide
    the weight by their number.

    weight: a number, or a tensor [] on the CPU, which a compiled program can be given anew in every call.

    >>> x, penalty = torch.zeros(3, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> add_density_penalty(x, penalty, 0.5).sum().backward()
    >>> penalty.grad
    tensor([0.2500, 0.2500])
    """
    if not sends(weight):
        return x
    return _AddLoss.apply(x, penalty, weight if isinstance(weight, torch.Tensor) else weight_of(weight))


def as_source(edges) -> EdgeSource | None:
    """An edge source of what people pass as one: a source, an EdgeSet, or a function of query and key."""
    if edges is None or isinstance(edges, EdgeSource):
        return edges
    if isinstance(edges, EdgeSet):
        return GivenEdges(edges)
    if callable(edges):
        return FunctionEdges(edges)
    raise TypeError("MultiheadEdgeAttention: expected edges to be an edgewise.nn source, an EdgeSet, a function of query and "
                    f"key, or None for dense attention; got {type(edges).__name__}")


class MultiheadEdgeAttention(nn.Module):
    """``nn.MultiheadAttention`` over edges: the same parameters, call and state dict, plus ``edges.*``.

    Args:
        embed_dim, num_heads, dropout, bias: as in nn.MultiheadAttention.
        edges: an edge source (``edgewise.nn.SbmEdges``, ``WindowEdges``, one of your own), an EdgeSet, a function of query
            and key; None is dense attention.
        density_weight: of the learner's mean density in the loss. Its gradient goes along with ``loss.backward()``;
            nothing has to be added to the loss. Set the attribute to another number at any time, also of a compiled layer.
        batch_first: tokens are [batch, tokens, embed_dim]; unlike nn.MultiheadAttention's, the default.

    >>> attention = MultiheadEdgeAttention(32, 4, edgewise.nn.SbmEdges(4, 8), density_weight=0.05)
    >>> out, _ = attention(torch.randn(2, 10, 32))
    >>> out.shape
    torch.Size([2, 10, 32])
    """

    def __init__(self, embed_dim: int, num_heads: int, edges=None, *, dropout: float = 0.0, bias: bool = True,
                 density_weight: float = 0.0, batch_first: bool = True, device=None, dtype=None):
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError("MultiheadEdgeAttention: expected embed_dim to be a positive multiple of num_heads; got "
                             f"{embed_dim} and {num_heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"MultiheadEdgeAttention: expected dropout in [0, 1); got {dropout}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.density_weight, self.batch_first = dropout, density_weight, batch_first
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim, device=device, dtype=dtype))
        if bias:
            self.in_proj_bias = nn.Parameter(torch.empty(3 * embed_dim, device=device, dtype=dtype))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.edges = as_source(edges)
        if self.edges is not None and (device is not None or dtype is not None):
            self.edges.to(device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def density_weight(self) -> float:
        return self._density_weight.item()

    @density_weight.setter
    def density_weight(self, weight: float) -> None:
        self._density_weight = weight_of(weight)

    def reset_parameters(self) -> None:
        """Of the projections, as nn.MultiheadAttention starts."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(self, query: torch.Tensor, key: torch.Tensor | None = None, value: torch.Tensor | None = None,
                key_padding_mask: torch.Tensor | None = None, need_weights: bool = False,
                attn_mask: torch.Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[torch.Tensor, None]:
        """Output like query, and None in place of weights, which nobody computes.

        Args:
            query: [B, L, E] (or [L, E]); key and value are the query by default, [B, S, E] otherwise.
            key_padding_mask: [B, S], true (or -inf) = ignore, as in nn.MultiheadAttention.
            need_weights: refused when true.
            attn_mask: [L, S] or [B * H, L, S], true (or -inf) = not allowed; for edges that do not learn, and dense
                attention. With is_causal it is taken to be the causal mask.
                Of floating masks 0 and -inf are taken; biases, other numbers, are refused.
        """
        if need_weights:
            raise NotImplementedError("MultiheadEdgeAttention: expected need_weights=False; attention over edges has no matrix of "
                                      "weights. edgewise.record(edges=True) gives the edges")
        batched = query.dim() == 3
        key = query if key is None else key
        value = key if value is None else value
        one_input, is_self = key is query and value is query, key is query
        if not batched:
            query, key, value = (x.unsqueeze(0 if self.batch_first else 1) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        self._check(query, key, value)
        q, k, v = self._project(query, key, value, one_input)
        mask = _valid_keys(key_padding_mask, k.shape[0], k.shape[2])
        call = AttentionCall(q, k, v, mask, is_causal, dropout_p=self.dropout if self.training else 0.0,
                             is_self=is_self)
        forbidden = None if is_causal or attn_mask is None else _forbidden(attn_mask, self.num_heads)
        see(call, forbidden)
        heads = attend_dense(call, forbidden) if self.edges is None else self._attend_edges(call, forbidden)
        output = self.out_proj(heads.transpose(1, 2).flatten(2))
        if not self.batch_first:
            output = output.transpose(0, 1)
        return (output if batched else output.squeeze(0 if self.batch_first else 1)), None

    def _check(self, query, key, value) -> None:
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() != 3 or x.shape[2] != self.embed_dim:
                raise ValueError(f"MultiheadEdgeAttention: expected {name} [B, N, {self.embed_dim}]; got {tuple(x.shape)}")

    def _project(self, query, key, value, one_input: bool) -> tuple[torch.Tensor, ...]:
        if one_input:
            parts = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
            biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            parts = [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]
        return tuple(x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2) for x in parts)

    def _attend_edges(self, call: AttentionCall, forbidden: torch.Tensor | None) -> torch.Tensor:
        if forbidden is not None:
            call.without = EdgeSet.from_mask(forbidden)
        call.sends_penalty = self.training and sends(self._density_weight)
        output, penalty = self.edges.attend(call)
        if penalty is not None and call.sends_penalty:
            output = add_density_penalty(output, penalty, self._density_weight)
        return output

    def extra_repr(self) -> str:
        return (f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}, "
                f"density_weight={self.density_weight}")


def _valid_keys(mask: torch.Tensor | None, batch: int, keys: int) -> torch.Tensor | None:
    """[B, S] bool, true = valid, of nn.MultiheadAttention's key_padding_mask."""
    if mask is None:
        return None
    if tuple(mask.shape) != (batch, keys):
        raise ValueError(f"MultiheadEdgeAttention: expected key_padding_mask [{batch}, {keys}]; got {tuple(mask.shape)}")
    return ~_as_bool("key_padding_mask", mask)


def _forbidden(mask: torch.Tensor, heads: int) -> torch.Tensor:
    """[B or 1, H or 1, L, S] bool, true = not allowed, of nn.MultiheadAttention's attn_mask."""
    mask = _as_bool("attn_mask", mask)
    return mask[None, None] if mask.dim() == 2 else mask.unflatten(0, (-1, heads))


def _as_bool(name: str, mask: torch.Tensor) -> torch.Tensor:
    """true = left out, of a bool mask or of one of 0 and -inf."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        raise TypeError(f"MultiheadEdgeAttention: expected {name} to be bool, true = left out, or floating with 0 and -inf; got "
                        f"{mask.dtype}. A mask with 1 = valid is turned over by mask == 0")
    left_out = mask == -torch.inf
    fine = (left_out | (mask == 0)).all()
    message = (f"MultiheadEdgeAttention: expected a floating {name} of 0 and -inf alone; got other numbers. Attention over edges has "
               "no biases on scores")
    if torch.compiler.is_compiling():
        torch._assert_async(fine, message)  # when the program runs
    elif not mask.is_meta and not fine:
        raise ValueError(message)
    return left_out
