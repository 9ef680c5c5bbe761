"""Which tokens are repeated? A layer learns its edges on the demo's task, with a plain PyTorch loop.

    .venv/bin/python examples/repeated_tokens.py            # 600 steps, ten seconds
    .venv/bin/python examples/repeated_tokens.py --unit 16 --seeds 5

64 tokens, one layer, one head. A token can be answered only by looking at all others, so the layer must find out that it
wants every pair: density starts at 0.25 and goes to 1. Prints one line per seed: accuracy and density on fresh data.
"""

import argparse
import time

import torch
from torch import nn

import edgewise

LENGTH = 64


def batch(items: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [items, LENGTH] and labels: 1 where the token stands at least twice in its sequence."""
    tokens = torch.randint(LENGTH, (items, LENGTH), generator=generator)
    return tokens, ((tokens[:, :, None] == tokens[:, None, :]).sum(2) > 1).long()


class Repeated(nn.Module):
    def __init__(self, edges: nn.Module, dim: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(LENGTH, dim)
        nn.init.normal_(self.embedding.weight, 0, 0.3)
        self.layer = edgewise.nn.EdgeTransformerEncoderLayer(dim, 1, edges, dim_feedforward=2 * dim, dropout=0.0,
                                                             activation="gelu", norm_first=True)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(tokens)))


def train(seed: int, steps: int, unit: int = 1, on_step=None) -> nn.Module:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Repeated(edgewise.nn.SbmEdges(1, 32, unit=unit))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)  # linearly to 0
    for step in range(steps):
        tokens, labels = batch(32, generator)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if on_step:
            on_step(step, loss)
    return model


@torch.no_grad()
def evaluate(model: nn.Module, seed: int = 10_000) -> tuple[float, float]:
    """Accuracy and density over 512 fresh sequences."""
    model.eval()
    tokens, labels = batch(512, torch.Generator().manual_seed(seed))
    with edgewise.record() as seen:
        right = model(tokens).argmax(-1) == labels
    return right.double().mean().item(), seen.density.mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--unit", type=int, default=1, choices=(1, 16))
    options = parser.parse_args()
    for seed in range(options.seeds):
        start = time.perf_counter()
        accuracy, density = evaluate(train(seed, options.steps, options.unit))
        print(f"seed {seed}: accuracy {accuracy:.2%}, density {density:.1%}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
