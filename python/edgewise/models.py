"""The models of the command line as ``torch.nn`` modules, with its parameter names. ``edgewise.load`` makes them.

    x = dropout(token + position + W features);  x = layer(x), layer by layer;  norm(x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .nn.sources import EdgeSource
from .nn.transformer import EdgeTransformerEncoderLayer

__all__ = ["Encoder", "LanguageModel", "ModelOptions", "SequenceClassifier", "TokenClassifier", "TwoTowerClassifier"]


@dataclass
class ModelOptions:
    """Sizes of a model, and what chooses its edges."""

    vocabulary: int
    max_length: int
    dim: int = 64
    heads: int = 2
    layers: int = 2
    hidden: int = 128
    features: int = 0
    positions: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    token_dropout: float = 0.0
    embedding_std: float = 0.02
    causal: bool = False  # of classifiers: a token attends to those up to itself alone; language models always are
    density_weight: float = 0.0  # of the mean over layers
    edges: Callable[[int], EdgeSource | None] = lambda layer: None  # of a layer; None is dense attention
    # Seed and step of the draws in evaluation; a layer draws by its number. None: every source by itself.
    evaluation: tuple[int, int] | None = None


def _layers(options: ModelOptions) -> nn.ModuleList:
    def layer(index):
        block = EdgeTransformerEncoderLayer(options.dim, options.heads, options.edges(index), dim_feedforward=options.hidden,
                                            dropout=options.dropout, activation="gelu", norm_first=True,
                                            density_weight=options.density_weight / options.layers)
        block.self_attn.dropout = options.attention_dropout
        return block

    return nn.ModuleList(layer(index) for index in range(options.layers))


def _number_draws(layers: nn.ModuleList, options: ModelOptions, first: int = 0) -> None:
    """Evaluation draws what the command line draws for its first batch."""
    if options.evaluation is None:
        return
    for index, layer in enumerate(layers):
        if layer.self_attn.edges is not None:
            layer.self_attn.edges.evaluation_seed = (*options.evaluation, first + index, 0)


def _embedding(count: int, options: ModelOptions) -> nn.Embedding:
    embedding = nn.Embedding(count, options.dim)
    nn.init.normal_(embedding.weight, 0, options.embedding_std)
    return embedding


class Encoder(nn.Module):
    """Tokens [B, N], or features [B, N, F], or both, to states [B, N, dim]. mask: [B, N] bool, true = valid token."""

    def __init__(self, options: ModelOptions):
        super().__init__()
        self.options = options
        self.token_embedding = _embedding(options.vocabulary, options) if options.vocabulary else None
        self.position_embedding = _embedding(options.max_length, options) if options.positions else None
        self.feature_projection = nn.Linear(options.features, options.dim) if options.features else None
        self.layers = _layers(options)
        self.norm = nn.LayerNorm(options.dim)

    def embed(self, tokens, features, positions):
        x = 0 if self.feature_projection is None else self.feature_projection(features)
        if self.token_embedding is not None:
            if self.training and self.options.token_dropout > 0:
                tokens = tokens.masked_fill(torch.rand_like(tokens, dtype=torch.float32) < self.options.token_dropout, 0)
            x = x + self.token_embedding(tokens)
        if self.position_embedding is not None:
            length = x.shape[1]
            x = x + (self.position_embedding.weight[:length] if positions is None else self.position_embedding(positions))
        return F.dropout(x, self.options.dropout, self.training)

    def forward(self, tokens: torch.Tensor | None = None, mask: torch.Tensor | None = None,
                features: torch.Tensor | None = None, positions: torch.Tensor | None = None, tower: int = 0) -> torch.Tensor:
        _number_draws(self.layers, self.options, tower * len(self.layers))
        x = self.embed(tokens, features, positions)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=None if mask is None else ~mask, is_causal=self.options.causal)
        x = self.norm(x)
        return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0)


class _Head(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(torch.relu(self.linear1(x)))


def _mean(states: torch.Tensor, mask: torch.Tensor | None, pooling: str) -> torch.Tensor:
    if mask is None or pooling == "mean_padded":
        return states.mean(1)  # of padding the states are 0
    return states.sum(1) / mask.sum(1, keepdim=True).clamp_min(1).to(states.dtype)


class SequenceClassifier(nn.Module):
    """Tokens [B, N] to logits [B, classes]: the mean over valid tokens, then a head of two layers."""

    def __init__(self, options: ModelOptions, classes: int, hidden: int = 128, pooling: str = "mean"):
        super().__init__()
        self.pooling = pooling
        self.encoder = Encoder(options)
        self.head = _Head(options.dim, hidden, classes)

    def forward(self, tokens=None, mask=None, features=None, positions=None) -> torch.Tensor:
        return self.head(_mean(self.encoder(tokens, mask, features, positions), mask, self.pooling))


class TokenClassifier(nn.Module):
    """Tokens [B, N] to logits [B, N, classes]."""

    def __init__(self, options: ModelOptions, classes: int):
        super().__init__()
        self.encoder = Encoder(options)
        self.head = nn.Linear(options.dim, classes)

    def forward(self, tokens=None, mask=None, features=None, positions=None) -> torch.Tensor:
        return self.head(self.encoder(tokens, mask, features, positions))


class TwoTowerClassifier(nn.Module):
    """Pairs of sequences to logits [B, classes]: one encoder for both, and a head on [x0, x1, x0 * x1, x0 - x1]."""

    def __init__(self, options: ModelOptions, classes: int, hidden: int = 128, pooling: str = "mean"):
        super().__init__()
        self.pooling = pooling
        self.encoder = Encoder(options)
        self.head = _Head(4 * options.dim, hidden, classes)

    def forward(self, tokens0, tokens1, mask0=None, mask1=None) -> torch.Tensor:
        x0, x1 = (_mean(self.encoder(tokens, mask, tower=tower), mask, self.pooling)
                  for tower, (tokens, mask) in enumerate(((tokens0, mask0), (tokens1, mask1))))
        return self.head(torch.cat([x0, x1, x0 * x1, x0 - x1], 1))


class LanguageModel(nn.Module):
    """Tokens [B, N] to logits [B, N, vocabulary] of the token after each. ``bytes`` says which byte a token is."""

    def __init__(self, options: ModelOptions, tied: bool = True):
        super().__init__()
        self.options = options
        self.register_buffer("bytes", torch.zeros(options.vocabulary, dtype=torch.uint8))
        self.token_embedding = _embedding(options.vocabulary, options)
        self.position_embedding = _embedding(options.max_length, options) if options.positions else None
        self.layers = _layers(options)
        self.norm = nn.LayerNorm(options.dim)
        self.output = None if tied else nn.Linear(options.dim, options.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.shape[1] > self.options.max_length:
            raise ValueError(f"LanguageModel: expected at most {self.options.max_length} tokens; got {tokens.shape[1]}")
        _number_draws(self.layers, self.options)
        x = self.token_embedding(tokens)
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[:tokens.shape[1]]
        x = F.dropout(x, self.options.dropout, self.training)
        for layer in self.layers:
            x = layer(x, is_causal=True)
        x = self.norm(x)
        return F.linear(x, self.token_embedding.weight) if self.output is None else self.output(x)

    def encode(self, text: str | bytes) -> torch.Tensor:
        """[1, N] token ids of a text whose bytes the model knows."""
        given = text.encode() if isinstance(text, str) else text
        ids = {byte: n for n, byte in enumerate(self.bytes.tolist())}
        unknown = sorted({byte for byte in given if byte not in ids})
        if unknown:
            raise ValueError(f"LanguageModel.encode: expected bytes that the model was trained on; got {bytes(unknown)!r}")
        return torch.tensor([[ids[byte] for byte in given]], dtype=torch.int64, device=self.bytes.device).view(1, -1)

    def decode(self, tokens: torch.Tensor) -> str:
        """The text of token ids [N]."""
        return bytes(self.bytes[tokens].tolist()).decode(errors="replace")
