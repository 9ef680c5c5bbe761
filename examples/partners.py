"""Learned edges find partners: which two tokens belong together, when only the loss tells?

    .venv/bin/python examples/partners.py --picture partners.svg        # 1,200 steps, ten seconds

32 tokens, each with a name and a value. Every name stands twice, and a token is asked for the value of its partner: one edge
a query is enough, and every other is a cost. For 300 steps the model sees a random half of the pairs and learns what to
look for. Then the learner below, a source of ten lines, may choose, and a density weight makes edges cost something.
The picture shows the edges before and after with partners side by side, and how accuracy and density went.

Why not SbmEdges: a block model cannot express a matching. For partners i, j and k, l its probabilities have
p_il >= p_ij + p_kl - 1, so that sure partners make sure edges between strangers (docs/how-to/choose-edges.md).
"""

import argparse

import torch
from torch import nn

import edgewise

LENGTH, VALUES, DIM = 32, 4, 32


def batch(items: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Names, values and labels [items, LENGTH], and which pairs are partners [items, LENGTH, LENGTH]."""
    name = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(items)]) // 2
    value = torch.randint(VALUES, (items, LENGTH), generator=generator)
    partners = (name[:, :, None] == name[:, None, :]) & ~torch.eye(LENGTH, dtype=torch.bool)
    return name, value, value.gather(1, partners.int().argmax(2)), partners


class Matching(edgewise.nn.EdgeSource):
    """The probability of a pair from the product of two small projections."""

    def __init__(self, dim: int):
        super().__init__()
        self.query, self.key = nn.Linear(dim, 16), nn.Linear(dim, 16)

    def choose(self, query, key):                                       # [B, H, L, D], [B, H, S, D]
        return torch.sigmoid(self.query(query) @ self.key(key).mT)      # [B, H, L, S]


class Partners(nn.Module):
    def __init__(self):
        super().__init__()
        self.name, self.value = nn.Embedding(LENGTH // 2, DIM), nn.Embedding(VALUES, DIM)
        self.layer = edgewise.nn.EdgeTransformerEncoderLayer(DIM, 1, Matching(DIM), dim_feedforward=2 * DIM, dropout=0.0,
                                                             activation="gelu", norm_first=True)
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, VALUES))

    def forward(self, name: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.name(name) + self.value(value)))


@torch.no_grad()
def evaluate(model: nn.Module) -> tuple[float, float, float]:
    """On fresh tokens: accuracy, density, and the share of partners that have their edge."""
    name, value, labels, partners = batch(128, torch.Generator().manual_seed(99))
    model.eval()
    with edgewise.record(edges=True) as seen:
        accuracy = (model(name, value).argmax(2) == labels).float().mean().item()
    model.train()
    found = (seen.edges[0].to_dense()[:, 0] & partners).sum() / partners.sum()
    return accuracy, seen.density.mean().item(), found.item()


@torch.no_grad()
def edges_of_one(model: nn.Module) -> torch.Tensor:
    """[LENGTH, LENGTH] bool of one sequence, partners side by side."""
    name, value, _, _ = batch(1, torch.Generator().manual_seed(7))
    model.eval()
    with edgewise.record(edges=True) as seen:
        model(name.sort(1).values, value)
    model.train()
    return seen.edges[0].to_dense()[0, 0]


def train(seed: int = 0, steps: int = 1200, density_weight: float = 1.0, on_step=None) -> Partners:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Partners()
    attention = model.layer.self_attn
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        if on_step is not None and step % 50 == 0:
            on_step(step, model)
        attention.edges.requires_grad_(step >= 300)
        attention.density_weight = density_weight * min(1.0, max(0.0, (step - 300) / 200))
        name, value, labels, _ = batch(32, generator)
        loss = nn.functional.cross_entropy(model(name, value).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--density-weight", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="an SVG file to write")
    options = parser.parse_args()
    before, curve = [], []

    def on_step(step, model):
        if step == 0:
            before.append(edges_of_one(model))
        curve.append((step, *evaluate(model)))
        print("step {}: accuracy {:.3f}, density {:.3f}, partners found {:.3f}".format(*curve[-1]), flush=True)

    model = train(options.seed, options.steps, options.density_weight, on_step)
    print("in the end: accuracy {:.3f}, density {:.3f}, partners found {:.3f}".format(*evaluate(model)))
    print(f"partners alone would be a density of {1 / LENGTH:.3f}")
    if options.picture:
        from pictures import Page

        page = Page(3)
        page.matrix("edges before training", before[0])
        page.matrix("edges after training", edges_of_one(model))
        curves = {"accuracy": [(x[0], x[1]) for x in curve], "density": [(x[0], x[2]) for x in curve]}
        page.curves("on fresh tokens", curves, "step", y_range=(0.0, 1.0))
        page.save(options.picture)


if __name__ == "__main__":
    main()
