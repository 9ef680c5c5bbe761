"""EdgeTransformerEncoderLayer: nn.TransformerEncoderLayer with attention over edges."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .attention import MultiheadEdgeAttention

__all__ = ["EdgeTransformerEncoderLayer"]


class EdgeTransformerEncoderLayer(nn.Module):
    """``nn.TransformerEncoderLayer``: the same call and state dict, plus ``self_attn.edges.*``. Goes into nn.TransformerEncoder.

    Unlike there, batch_first is the default.

    >>> layer = EdgeTransformerEncoderLayer(32, 4, edgewise.nn.WindowEdges(2), dim_feedforward=64)
    >>> encoder = torch.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.randn(2, 10, 32)).shape
    torch.Size([2, 10, 32])
    """

    def __init__(self, d_model: int, nhead: int, edges=None, *, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = True,
                 norm_first: bool = False, bias: bool = True, density_weight: float = 0.0, device=None, dtype=None):
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadEdgeAttention(d_model, nhead, edges, dropout=dropout, bias=bias, batch_first=batch_first,
                                                density_weight=density_weight, **where)
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias=bias, **where)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm1 = nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout, self.dropout1, self.dropout2 = (nn.Dropout(dropout) for _ in range(3))
        self.norm_first = norm_first
        if isinstance(activation, str) and activation not in ("relu", "gelu"):
            raise ValueError(f"EdgeTransformerEncoderLayer: expected activation relu, gelu or a function; got '{activation}'")
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation] if isinstance(activation, str) else activation

    def forward(self, src: torch.Tensor, src_mask: torch.Tensor | None = None,
                src_key_padding_mask: torch.Tensor | None = None, is_causal: bool = False) -> torch.Tensor:
        def attended(x):
            x, _ = self.self_attn(x, key_padding_mask=src_key_padding_mask, attn_mask=src_mask, is_causal=is_causal)
            return self.dropout1(x)

        def fed_forward(x):
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            x = src + attended(self.norm1(src))
            return x + fed_forward(self.norm2(x))
        x = self.norm1(src + attended(src))
        return self.norm2(x + fed_forward(x))
