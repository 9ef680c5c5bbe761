"""SbmEdges: every head learns a block model of its tokens and samples its edges from it."""

from __future__ import annotations

import math

import torch

from .._ops import autocast_dtype, cast_together, is_plain, keeps_tape, ops, refuse_tangents
from .._ops import call as run
from ..edge_set import EdgeSet
from ..recording import is_recording, tell
from .sources import AttentionCall, EdgeSource, refuse_causal_squares, refuse_masks

__all__ = ["SbmEdges"]


class SbmEdges(EdgeSource):
    """Edges sampled from a mixed-membership stochastic block model of queries and keys (arXiv 2210.15541).

    ``p = sigmoid(MLP(q) C^T) S sigmoid(MLP(k) C^T)^T`` with learned clusters C per head and S = softmax of C C^T. The loss
    teaches it: present edges by what they did, a few absent ones (probes) by what they would have done.

    Args:
        num_heads, head_dim: of the queries.
        clusters: per head; 32 by default, 128 in the presets "paper" and "published".
        unit: 1 for single edges, 16 for squares of 16 x 16 pairs, which are several times faster.
        initial_density: about where a new layer starts.
        preset: "edgewise"; "paper" as printed; "published" as the released code behaves. Options below override it.
        window: adds fixed edges to keys within so many tokens, whatever is learned. A causal layer of squares chooses among
            the groups before a query's own and needs one (0 is the query's own group).
        seed: of the draws in evaluation; by default every module has its own (``edgewise.nn.number_draws``).
        options: law, exploration, exploration_in_eval, estimator, present_form, gradient_clip, probe_rate,
            probes_per_row, probe_unit, density_penalty, self_loops, count_padding, sampler, shared_mlp
            (docs/reference/recipe.md, section sbm).
    """

    def __init__(self, num_heads: int, head_dim: int, *, clusters: int | None = None, unit: int = 1,
                 initial_density: float = 0.25, preset: str = "edgewise", window: int | None = None, seed: int | None = None,
                 **options):
        super().__init__(seed=seed)
        if preset not in ("edgewise", "paper", "published"):
            raise ValueError(f"SbmEdges: expected preset edgewise, paper or published; got '{preset}'")
        if unit not in (1, 16):
            raise ValueError(f"SbmEdges: expected unit 1 (single edges) or 16 (squares); got {unit}")
        if num_heads < 1 or head_dim < 1 or not 0 < initial_density < 1:
            raise ValueError("SbmEdges: expected num_heads and head_dim of at least 1 and initial_density in (0, 1); got "
                             f"{num_heads}, {head_dim} and {initial_density}")
        self.num_heads, self.head_dim, self.unit, self.window = num_heads, head_dim, unit, window
        count = clusters if clusters is not None else 32 if preset == "edgewise" else 128
        if count < 1:
            raise ValueError(f"SbmEdges: expected at least 1 cluster; got {count}")
        groups = 1 if options.get("shared_mlp", preset != "paper") else num_heads
        said = {"preset": preset, "unit": unit, "clusters": count, "initial_density": initial_density, **options}
        if window is not None:
            said["window"] = window
        self._said = {"num_heads": num_heads, "head_dim": head_dim, **said}
        self.options = " ".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}"
                                for name, value in said.items())
        self.clusters = torch.nn.Parameter(torch.empty(num_heads, count, head_dim))
        self.mlp_weight1 = torch.nn.Parameter(torch.empty(groups, head_dim, head_dim))
        self.mlp_bias1 = torch.nn.Parameter(torch.empty(groups, head_dim))
        self.mlp_weight2 = torch.nn.Parameter(torch.empty(groups, head_dim, head_dim))
        self.mlp_bias2 = torch.nn.Parameter(torch.empty(groups, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # As the C++ module: the released code counts C * D inputs per cluster, so clusters start close together.
        torch.nn.init.normal_(self.clusters, 0, math.sqrt(2 / (self.clusters.shape[1] * self.head_dim)))
        bound = 1 / math.sqrt(self.head_dim)
        for parameter in (self.mlp_weight1, self.mlp_bias1, self.mlp_weight2, self.mlp_bias2):
            torch.nn.init.uniform_(parameter, -bound, bound)

    def attend(self, call: AttentionCall):
        refuse_masks("SbmEdges", call)
        refuse_causal_squares("SbmEdges", call, self)
        autocast = autocast_dtype(call.query.device.type)
        query, key, value = cast_together(call.query, call.key, call.value)
        parameters = [self.clusters, self.mlp_weight1, self.mlp_bias1, self.mlp_weight2, self.mlp_bias2]
        seed = self.draw_seed()
        options = self.options
        if call.is_causal and "sampler" not in self._said:
            # Only this sampler gives each pair a random number of its own. Of the others a later token moves earlier edges.
            options += " sampler=direct"
        known = (call.key_mask, seed, options, self.training, call.is_causal)
        refuse_tangents(query, key, value, *parameters)
        if is_plain(query, key, value, *parameters):
            output, penalty, density = ops.attend_sbm(query, key, value, parameters, *known, call.scale, call.dropout_p, autocast)
        else:
            output, penalty, density, _ = run("sbm_attention", query, key, value, parameters, *known, call.scale, call.dropout_p,
                                              autocast, keeps_tape(query, key, value, *parameters))
        if is_recording():
            shape = (*query.shape[:3], key.shape[2])
            tell(density, call.told(penalty), lambda: EdgeSet(ops.sbm_edges(query, key, parameters, *known, autocast), shape))
        return output, penalty

    def settings(self):
        return {**self._said, "seed": self.evaluation_seed}

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.head_dim}, {self.options}"
