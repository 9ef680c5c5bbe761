"""Modules: attention whose heads compute only chosen edges, and the sources that choose them."""

from .attention import MultiheadEdgeAttention, add_density_penalty
from .sbm import SbmEdges
from .sources import (AttentionCall, EdgeSource, FullEdges, FunctionEdges, GivenEdges, RandomEdges, WindowEdges,
                      number_draws)
from .transformer import EdgeTransformerEncoderLayer

__all__ = ["AttentionCall", "EdgeSource", "EdgeTransformerEncoderLayer", "FullEdges", "FunctionEdges", "GivenEdges",
           "MultiheadEdgeAttention", "RandomEdges", "SbmEdges", "WindowEdges", "add_density_penalty", "number_draws"]
