"""Bring your own edges: of a graph, and of a document's structure.

    .venv/bin/python examples/own_edges.py graph            # nodes of a graph attend to their neighbours
    .venv/bin/python examples/own_edges.py document         # tokens attend within their section; headings to each other

Both compare with attention over every pair, which has to find the structure by itself. The data is made here, so that the
structure is known: in the graph, a node's class can be told from its neighbours' features and hardly from its own; in a
document, a token is asked for something that its section's heading says.
"""

import argparse

import torch
from torch import nn

import edgewise
from edgewise import EdgeSet

DIM, HEADS = 32, 2


# ---- a graph ----

NODES, CLASSES, FEATURES = 300, 3, 16


def graph(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """edge_index [2, E] as in PyTorch Geometric, features [NODES, FEATURES] that are mostly noise, classes [NODES]."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (NODES,), generator=generator)
    likely = torch.where(label[:, None] == label[None, :], 0.08, 0.005)
    upper = (torch.rand(NODES, NODES, generator=generator) < likely).triu(1)
    pairs = (upper | upper.T).nonzero().T
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    return pairs, 0.6 * centres[label] + 1.5 * torch.randn(NODES, FEATURES, generator=generator), label


def edges_of_graph(edge_index: torch.Tensor) -> EdgeSet:
    """Neighbours, and every node itself."""
    own = torch.arange(NODES).expand(2, -1)
    return EdgeSet.from_edge_index(torch.cat([edge_index, own], 1), NODES)


# ---- a document ----

SECTIONS, LENGTH, TOPICS, WORDS = 6, 96, 5, 20


def document(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens [LENGTH], the section of every token [LENGTH], and labels [LENGTH].

    A section begins with a heading that names its topic; every token is asked for the topic of its section. Words do not tell.
    """
    cuts = torch.randperm(LENGTH - 1, generator=generator)[:SECTIONS - 1] + 1
    heading = torch.zeros(LENGTH, dtype=torch.bool)
    heading[0] = True
    heading[cuts] = True
    section = heading.cumsum(0) - 1
    topic = torch.randint(TOPICS, (SECTIONS,), generator=generator)[section]
    tokens = torch.where(heading, topic, TOPICS + torch.randint(WORDS, (LENGTH,), generator=generator))
    return tokens, section, topic


def edges_of_documents(sections: torch.Tensor) -> EdgeSet:
    """Of sections [B, LENGTH]: within a section, and between headings. Made once for a batch; B = 1 would serve all items."""
    within = sections[:, :, None] == sections[:, None, :]
    heading = torch.ones_like(sections, dtype=torch.bool)
    heading[:, 1:] = sections[:, 1:] != sections[:, :-1]
    outline = heading[:, :, None] & heading[:, None, :]
    shape = (within | outline)[:, None]                                     # [B, H = 1, L, S]
    return EdgeSet.from_mask(shape)


# ---- a model that is given its edges ----


class GivenPerBatch(edgewise.nn.EdgeSource):
    """Edges that change with the batch: set ``now`` before the model is called. None: every pair."""

    now: EdgeSet | None = None

    def choose(self, query, key):
        return EdgeSet.full(query.shape[2]) if self.now is None else self.now


class Tagger(nn.Module):
    """A class for every token, after two layers over the same edges."""

    def __init__(self, embedding: nn.Module, classes: int, source: edgewise.nn.EdgeSource):
        super().__init__()
        self.embedding, self.source = embedding, source
        self.layers = nn.ModuleList(edgewise.nn.EdgeTransformerEncoderLayer(
            DIM, HEADS, source, dim_feedforward=2 * DIM, dropout=0.0, activation="gelu", norm_first=True) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train_on_graph(with_edges: bool, steps: int = 100) -> float:
    """Accuracy on the nodes whose class was not told; a fifth is."""
    torch.manual_seed(0)
    edge_index, features, label = graph()
    told = torch.rand(NODES) < 0.2
    source = GivenPerBatch()
    source.now = edges_of_graph(edge_index) if with_edges else None
    model = Tagger(nn.Linear(FEATURES, DIM), CLASSES, source)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(features[None])[0][told], label[told])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return (model(features[None])[0].argmax(1) == label)[~told].float().mean().item()


def batch_of_documents(items: int, generator: torch.Generator):
    return (torch.stack(x) for x in zip(*(document(generator) for _ in range(items))))


def train_on_documents(with_edges: bool, steps: int = 150) -> float:
    """Accuracy on the tokens of fresh documents. There are no positions: only edges say where a section ends."""
    torch.manual_seed(0)
    source = GivenPerBatch()
    model = Tagger(nn.Embedding(TOPICS + WORDS, DIM), TOPICS, source)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps + 1):
        tokens, sections, labels = batch_of_documents(16 if step < steps else 100, generator)
        source.now = edges_of_documents(sections) if with_edges else None
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return (logits.argmax(2) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("graph", "document"))
    options = parser.parse_args()
    train = train_on_graph if options.what == "graph" else train_on_documents
    if options.what == "graph":
        edges = edges_of_graph(graph()[0])
    else:
        _, sections, _ = batch_of_documents(100, torch.Generator().manual_seed(1))
        edges = edges_of_documents(sections)
    print(f"its edges: accuracy {train(True):.3f}, density {edges.density:.3f}")
    print(f"every pair: accuracy {train(False):.3f}, density 1")


if __name__ == "__main__":
    main()
