"""edgewise.EdgeSet: making, reading, combining, keeping."""

import copy
import pickle

import pytest
import torch

from edgewise import EdgeSet


def random_mask(*shape, density=0.4):
    return torch.rand(*shape) < density


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 1, 1), (1, 2, 0, 4), (2, 1, 40, 33)])
def test_mask_and_csr_and_back(shape):
    mask = random_mask(*shape)
    edges = EdgeSet.from_mask(mask)
    assert edges.shape == shape and torch.equal(edges.to_dense(), mask)
    assert len(edges) == mask.sum() and torch.equal(edges.counts(), mask.sum((2, 3)))
    offsets, columns = edges.csr()
    assert offsets.dtype == torch.int64 and columns.dtype == torch.int32
    again = EdgeSet.from_csr(offsets, columns.long(), shape)  # int64 columns are taken too
    assert again == edges and again.density == pytest.approx(mask.float().mean().item() if mask.numel() else 0)


def test_a_flat_mask_serves_everything():
    mask = random_mask(4, 6)
    assert EdgeSet.from_mask(mask).shape == (1, 1, 4, 6)


@pytest.mark.parametrize("length, width", [(1, 0), (7, 0), (7, 2), (7, 6), (7, 50), (0, 3), (100, 17)])
def test_window(length, width):
    i = torch.arange(length)
    near = (i[:, None] - i[None]).abs() <= width
    assert torch.equal(EdgeSet.window(length, width).to_dense()[0, 0], near)
    assert torch.equal(EdgeSet.window(length, width, causal=True).to_dense()[0, 0], near.tril())
    assert torch.equal(EdgeSet.full(length).to_dense()[0, 0], torch.ones_like(near))
    assert torch.equal(EdgeSet.causal(length).to_dense()[0, 0], torch.ones_like(near).tril())


@pytest.mark.parametrize("length, width", [(1, 0), (16, 0), (40, 0), (40, 1), (100, 17), (100, 16), (33, 200)])
def test_window_in_squares_is_all_squares_that_it_touches(length, width):
    near = EdgeSet.window(length, width).to_dense()[0, 0]
    groups = (length + 15) // 16
    padded = torch.zeros(groups * 16, groups * 16, dtype=torch.bool)
    padded[:length, :length] = near
    touched = padded.view(groups, 16, groups, 16).any(3).any(1)
    expected = touched.repeat_interleave(16, 0).repeat_interleave(16, 1)[:length, :length]
    edges = EdgeSet.window(length, width, unit=16)
    assert edges.unit == 16 and torch.equal(edges.to_dense()[0, 0], expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[5, 12, 3], [1], [0, 4, 0], []])
def test_block_diagonal(lengths, causal):
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    expected = sequence[:, None] == sequence[None]
    expected = expected.tril() if causal else expected
    for given in (lengths, torch.tensor(lengths, dtype=torch.int32)):
        assert torch.equal(EdgeSet.block_diagonal(given, causal=causal).to_dense()[0, 0], expected)


def test_squares():
    chosen = random_mask(2, 3, 3, 4)
    edges = EdgeSet.from_squares(chosen, (2, 3, 40, 50))
    dense = chosen.repeat_interleave(16, 2).repeat_interleave(16, 3)[:, :, :40, :50]
    assert edges.unit == 16 and torch.equal(edges.to_dense(), dense) and len(edges) == dense.sum()
    assert EdgeSet.from_csr(*edges.csr(), edges.shape) == edges


def test_edge_index_is_read_as_in_pytorch_geometric():
    sources, targets = torch.tensor([[0, 2, 2, 0], [1, 1, 0, 1]])  # (0 -> 1) twice
    edges = EdgeSet.from_edge_index(torch.stack([sources, targets]), 3)
    expected = torch.zeros(3, 3, dtype=torch.bool)
    expected[targets, sources] = True
    assert torch.equal(edges.to_dense()[0, 0], expected) and len(edges) == 3


@pytest.mark.parametrize("unit", [1, 16])
def test_unions_and_differences(unit):
    def make():
        if unit == 1:
            return EdgeSet.from_mask(random_mask(2, 2, 33, 40))
        return EdgeSet.from_squares(random_mask(2, 2, 3, 3), (2, 2, 33, 40))

    a, b = make(), make()
    assert (a | b).unit == (a - b).unit == unit
    assert torch.equal((a | b).to_dense(), a.to_dense() | b.to_dense())
    assert torch.equal((a - b).to_dense(), a.to_dense() & ~b.to_dense())
    mixed = a | EdgeSet.from_mask(b.to_dense())
    assert torch.equal(mixed.to_dense(), a.to_dense() | b.to_dense())


@pytest.mark.parametrize("edges", [EdgeSet.window(40, 3), EdgeSet.window(40, 3, unit=16)], ids=["single", "squares"])
def test_keeping(edges, tmp_path):
    assert copy.deepcopy(edges) == edges == copy.copy(edges)
    there = pickle.loads(pickle.dumps(edges))
    assert there == edges and there.unit == edges.unit
    edges.save(tmp_path / "edges.safetensors")
    loaded = EdgeSet.load(tmp_path / "edges.safetensors")
    assert loaded == edges and loaded.unit == edges.unit
    assert edges.to("cpu") is edges and edges.density < 1 and "density" in repr(edges)


def test_a_set_does_not_follow_the_tensors_that_it_was_made_of():
    offsets, columns = EdgeSet.window(8, 1).csr()
    edges = EdgeSet.from_csr(offsets, columns, (1, 1, 8, 8))
    before = edges.to_dense()
    columns.fill_(99)
    offsets.zero_()
    assert torch.equal(edges.to_dense(), before)


def test_block_mask_for_flex_attention_has_the_same_pairs():
    edges = EdgeSet.window(256, 20)
    block = edges.to_block_mask()
    b = h = torch.tensor(0)
    i = torch.arange(256)
    pairs = block.mask_mod(b, h, i[:, None].expand(256, 256), i[None].expand(256, 256))
    assert torch.equal(pairs, edges.to_dense()[0, 0])


@pytest.mark.parametrize("make, error, message", [
    (lambda: EdgeSet.block_diagonal([3, -1]), ValueError, "lengths of at least 0; got -1"),
    (lambda: EdgeSet.from_mask(torch.zeros(3, 3)), ValueError, "expected a bool mask"),
    (lambda: EdgeSet.from_mask(torch.zeros(3, dtype=torch.bool)), ValueError, "expected a bool mask"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 1]), torch.tensor([7]), (1, 1, 1, 3)), IndexError, r"columns in \[0, 3\)"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 1]), torch.tensor([2**32]), (1, 1, 1, 3)), IndexError, r"columns in \[0, 3\)"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 2]), torch.tensor([1, 0]), (1, 1, 1, 3)), (ValueError, IndexError), "sorted"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 9]), torch.tensor([1]), (1, 1, 1, 3)), (ValueError, IndexError), "row_offsets"),
    (lambda: EdgeSet.from_csr(torch.tensor([0.0]), torch.tensor([1]), (1, 1, 0, 3)), TypeError, "row_offsets of int64"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 1]), torch.tensor([1]), (1, 1, 3)), ValueError, "four numbers"),
    (lambda: EdgeSet.from_csr(torch.tensor([0, 1]), torch.tensor([1]), (1, 1, -1, 3)), ValueError, "at least 0"),
    (lambda: EdgeSet.from_squares(torch.zeros(1, 1, 2, 2, dtype=torch.bool), (1, 1, 40, 40)), ValueError, "expected a mask"),
    (lambda: EdgeSet.from_edge_index(torch.tensor([[5], [0]]), 3), IndexError, "sources from 5"),
    (lambda: EdgeSet.from_edge_index(torch.tensor([5, 0]), 3), ValueError, r"integers \[2, E\]"),
    (lambda: EdgeSet.window(-1, 2), ValueError, "at least 0"),
    (lambda: EdgeSet.window(8, 2, unit=8), ValueError, "unit 1 or 16"),
    (lambda: EdgeSet.window(8, 2, unit=16, causal=True), ValueError, "is_causal"),
    (lambda: EdgeSet.window(8, 2) | EdgeSet.window(9, 2), ValueError, "one shape"),
    (lambda: EdgeSet.window(8, 2) | 3, TypeError, "unsupported operand"),
    (lambda: EdgeSet.load("/nowhere/edges"), (RuntimeError, ValueError, OSError), "/nowhere/edges"),
])
def test_refuses_with_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_pickle_that_was_tampered_with_is_refused():
    edges = EdgeSet.window(8, 1)
    rebuild, (layout, shape) = edges.__reduce__()
    layout = [x.clone() for x in layout]
    layout[1][3] = 1000
    with pytest.raises(IndexError, match="columns"):
        rebuild(layout, shape)


@pytest.mark.parametrize("length, width", [(1, 0), (5, 0), (5, 2), (5, 9), (40, 7)])
def test_causal_windows(length, width):
    edges = EdgeSet.window(length, width, causal=True)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    assert torch.equal(edges.to_dense()[0, 0], (distance >= 0) & (distance <= width))


def test_a_long_causal_window_costs_what_its_edges_cost():
    """And so does its density: in pairs this would be 40 GB."""
    import edgewise

    edges = EdgeSet.window(200_000, 2, causal=True)
    assert len(edges) == 3 * 200_000 - 3
    attention = edgewise.nn.MultiheadEdgeAttention(2, 1, edges)
    with torch.no_grad(), edgewise.record() as seen:
        attention(torch.zeros(1, 200_000, 2), is_causal=True)
    assert seen.density.item() == pytest.approx((3 * 200_000 - 3) / (200_000 * 200_001 / 2))


@pytest.mark.parametrize("count", [0, 3, 20, 99])
@pytest.mark.parametrize("unit", [1, 16])
def test_first_keys(count, unit):
    dense = EdgeSet.first(40, count, unit=unit).to_dense()[0, 0]
    last = min(count, 40) if unit == 1 else min(-(-count // 16) * 16, 40)
    assert torch.equal(dense, (torch.arange(40) < last).expand(40, 40))
