"""edgewise.explore: its edges and weights are those of plain masked attention, and its files are those of the command line."""
import base64
import gzip
import json
import os
import struct

import numpy as np
import pytest
import torch
from safetensors import safe_open

import edgewise
from edgewise.checksum import crc32c


class Model(torch.nn.Module):
    """Token ids to logits, through one layer for every source."""

    def __init__(self, *sources, dim=32, heads=4, classes=5):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(20, dim)
        self.layers = torch.nn.ModuleList(
            edgewise.nn.EdgeTransformerEncoderLayer(dim, heads, source, dim_feedforward=32) for source in sources)
        self.output = torch.nn.Linear(dim, classes)

    def forward(self, tokens, padding=None, causal=False):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding, is_causal=causal)
        return self.output(x)


def matrix(head, keys):
    """[L, S] of lists."""
    result = np.zeros((len(head.offsets) - 1, keys))
    rows = np.repeat(np.arange(len(result)), np.diff(head.offsets))
    result[rows, head.keys] = head.weights
    return result


def expected(layer, x, mask, causal):
    """softmax(q k / sqrt(D)) over allowed pairs, [B, H, L, S], by plain operations."""
    attention = layer.self_attn
    q, k, _ = torch.nn.functional.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    q, k = (y.unflatten(2, (attention.num_heads, -1)).transpose(1, 2).double() for y in (q, k))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    mask = mask & torch.ones_like(mask).tril() if causal else mask
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0).masked_fill(~mask, 0), mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["dense", "window", "sbm", "given", "own"])
def test_edges_and_weights_are_those_of_attention(kind, padded, causal):
    sources = {"dense": None, "window": edgewise.nn.WindowEdges(3), "sbm": edgewise.nn.SbmEdges(4, 8, initial_density=0.3),
               "given": edgewise.EdgeSet.from_mask(torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < 0.3),
               "own": lambda query, key: torch.full((1, 1, query.shape[2], key.shape[2]), 0.4)}
    if kind == "sbm" and causal:
        sources["sbm"] = edgewise.nn.SbmEdges(4, 8, initial_density=0.3, sampler="direct")
    model, tokens = Model(sources[kind]), torch.randint(0, 20, (2, 40), generator=torch.Generator().manual_seed(2))
    padding = torch.zeros(2, 40, dtype=torch.bool)
    if padded:
        padding[1, 30:] = True
    seen = edgewise.explore(model, (tokens, padding if padded else None, causal))
    assert model.training  # as it was
    model.eval()
    with torch.no_grad():
        with edgewise.record(edges=True) as record:
            model(tokens, padding if padded else None, causal)
        x = model.embedding(tokens)
        chosen = torch.ones(2, 4, 40, 40, dtype=torch.bool) if kind == "dense" else record.edges[0].to_dense().expand(2, 4, 40, 40)
        valid = ~padding
        wanted, mask = expected(model.layers[0], x, chosen & valid[:, None, None] & valid[:, None, :, None], causal)
    for item, shown in enumerate(seen.snapshot.inputs):
        np.testing.assert_array_equal(shown.tokens, tokens[item])
        assert (shown.valid is None) == (item == 0 or not padded)
        for h, head in enumerate(shown.layers[0].heads):
            found = matrix(head, 40)
            np.testing.assert_array_equal(found > 0, mask[item, h].numpy())
            np.testing.assert_allclose(found, wanted[item, h], atol=1e-3)
            assert head.edges == head.chosen == int(mask[item, h].sum())
            pairs = int((valid[item][:, None] & valid[item] & (torch.ones(40, 40, dtype=torch.bool).tril() if causal else True)).sum())
            assert head.density == pytest.approx(head.edges / pairs)


def test_squares_take_the_share_of_their_queries():
    model, tokens = Model(edgewise.nn.WindowEdges(16, unit=16)), torch.randint(0, 20, (1, 40))
    layer = edgewise.explore(model, tokens).snapshot.inputs[0].layers[0]
    assert (layer.unit, layer.queries, layer.keys) == (16, 3, 3)
    with torch.no_grad(), edgewise.record(edges=True) as record:
        model.eval()(tokens)
        wanted, mask = expected(model.layers[0], model.embedding(tokens), record.edges[0].to_dense().expand(1, 4, 40, 40), False)
    wanted = torch.nn.functional.pad(wanted, (0, 8, 0, 8)).view(1, 4, 3, 16, 3, 16).sum((3, 5)) / torch.tensor([16, 16, 8.0])[:, None]
    for h, head in enumerate(layer.heads):
        np.testing.assert_allclose(matrix(head, 3), wanted[0, h], atol=1e-3)
        assert head.edges == int(mask[0, h].sum())


def test_masks_of_pairs_are_taken_out():
    layer = edgewise.nn.MultiheadEdgeAttention(16, 2, edgewise.nn.WindowEdges(2))
    forbidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
    for attention in (layer, edgewise.nn.MultiheadEdgeAttention(16, 2)):
        x = torch.randn(1, 8, 16)
        seen = edgewise.explore(attention, {"query": x, "attn_mask": forbidden})
        head = seen.snapshot.inputs[0].layers[0].heads[0]
        assert (matrix(head, 8)[forbidden.numpy()] == 0).all() and head.edges > 8


def test_long_rows_keep_their_heaviest(monkeypatch):
    model, tokens = Model(None), torch.randint(0, 20, (1, 40))
    whole = edgewise.explore(model, tokens).snapshot.inputs[0].layers[0].heads[0]
    monkeypatch.setattr("edgewise.explorer_snapshot._HEAD_EDGES", 200)
    head = edgewise.explore(model, tokens).snapshot.inputs[0].layers[0].heads[0]
    assert (head.edges, head.chosen, len(head.keys)) == (1600, 1600, 200)
    all_of, kept = matrix(whole, 40), matrix(head, 40)
    assert ((kept > 0).sum(1) == 5).all()
    assert (kept.max(1) == all_of.max(1)).all() and (np.sort(kept, 1)[:, -5:] == np.sort(all_of, 1)[:, -5:]).all()


def test_what_is_too_long_is_left_out():
    layer = edgewise.nn.MultiheadEdgeAttention(16, 2)
    assert edgewise.explore(layer, torch.randn(1, 1025, 16)).snapshot.inputs[0].layers[0].heads == []


def test_the_file_is_a_snapshot(tmp_path):
    model, tokens = Model(edgewise.nn.WindowEdges(1), None), torch.randint(0, 20, (2, 10))
    seen = edgewise.explore(model, tokens, names=[f"w{n}" for n in range(20)], labels=torch.zeros(2, 10, dtype=torch.int64))
    file = seen.save(tmp_path / "seen.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["seen.safetensors"]
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
        about, sums = json.loads(metadata["about"]), dict(line.split() for line in metadata["checksums"].splitlines())
        assert metadata["format"] == "edgewise.snapshot.1" and set(sums) == set(opened.keys())
        for name in opened.keys():
            assert int(sums[name], 16) == crc32c(opened.get_tensor(name).tobytes())
        np.testing.assert_array_equal(opened.get_tensor("input.1.tokens"), tokens[1])
    assert about["token_names"][3] == "w3" and [layer["keys"] for layer in about["inputs"][0]["layers"]] == [10, 10]


def answers(page):
    """What a page holds, by address."""
    import re
    return {address: gzip.decompress(base64.b64decode(text)) for address, text in
            re.findall(r'<script type="text/plain" data-explorer="([a-z0-9/]+)">([^<]*)</script>', page)}


def test_the_page_holds_all_of_it(tmp_path):
    seen = edgewise.explore(Model(edgewise.nn.WindowEdges(1)), torch.randint(0, 20, (1, 10)), names=lambda id: f"<b>{id}</script>")
    page = seen.html
    held = answers(page)
    assert set(held) == {"run", "step/0", "step/0/input/0", "step/0/input/0/thumbnails", *(f"step/0/input/0/layer/0/head/{h}" for h in range(4))}
    assert "<b>" not in page.replace("<body", "")  # names are in what is compressed
    size, = struct.unpack_from("<I", held["step/0/input/0/layer/0/head/2"])
    parts = json.loads(held["step/0/input/0/layer/0/head/2"][4:4 + size])["parts"]
    assert [(part["name"], part["type"], part["count"]) for part in parts] == [("offsets", "i32", 11), ("keys", "i32", 28), ("weights", "f16", 28)]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    shown = seen._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<script" not in shown and page.count("<script") == shown.count("&lt;script")
    assert edgewise.explore(Model(None), torch.zeros(1, 4, dtype=torch.int64)).save(tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")


def test_open_asks_the_browser(monkeypatch):
    asked = []
    monkeypatch.setattr("webbrowser.open", asked.append)
    file = edgewise.explore(edgewise.nn.MultiheadEdgeAttention(8, 1), torch.randn(1, 4, 8)).open()
    assert asked == [file.as_uri()] and file.read_text().startswith("<!DOCTYPE html>")
    os.unlink(file)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="attention of edgewise"):
        edgewise.explore(torch.nn.Linear(2, 2), torch.randn(1, 2))
    with pytest.raises(ValueError, match="at most 16 items"):
        edgewise.explore(Model(None), torch.zeros(17, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match="language model"):
        edgewise.explore(Model(None), "a text")
    with pytest.raises(ValueError, match="expected tokens"):
        edgewise.explore(Model(None), torch.zeros(1, 4, dtype=torch.int64), tokens=torch.zeros(1, 9, dtype=torch.int64))


def test_an_error_leaves_nothing_behind():
    model = Model(edgewise.nn.WindowEdges(1))
    with pytest.raises(IndexError):
        edgewise.explore(model, torch.full((1, 4), 99))
    assert model.training
    from edgewise import recording
    assert recording._open.looking == []


@pytest.mark.parametrize("data", [b"", b"a", b"abc", b"123456789", bytes(range(256)) * 41])
def test_checksums(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF
