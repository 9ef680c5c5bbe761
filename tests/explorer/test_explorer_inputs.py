"""New inputs to trained runs: edgewise explore RUN --text, --file, --image, --input; and snapshots without a run."""
import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import run_folder
from conftest import BINARY
from page_steps import SHOWN, drawn, figure, open_page
from test_explorer_server import get

TRAIN = ["train.steps=2", "train.batch=2", "train.threads=1", "train.eval_every=2", "model.layers=1", "model.dim=16", "model.heads=2", "model.hidden=16"]


def edgewise(*arguments):
    result = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def trained(folder, recipe, *settings):
    """A run of two steps."""
    file = folder / "recipe.toml"
    file.write_text(recipe)
    options = [part for setting in [*TRAIN, *settings] for part in ("--set", setting)]
    edgewise("train", file, "--run", folder / "run", "--quiet", *options)
    return folder / "run"


def refusal(*arguments):
    result = subprocess.run([BINARY, "explore", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1 and result.stderr.startswith("edgewise: "), result.stderr
    return result.stderr


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("characters")
    (folder / "text.txt").write_text("the cat sat on the mat, and the dog lay on the log.\n" * 200)
    return trained(folder, f'[data]\nname = "characters"\npath = "{folder}/text.txt"\nlength = 64\n[model]\n[attention]\nkind = "sbm"\n[train]\n')


@pytest.fixture(scope="session")
def listops_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listops")
    edgewise("data", "listops", "--out", folder / "data", "--train", "20", "--validation", "4", "--test", "4")
    return trained(folder, f'[data]\nname = "listops"\npath = "{folder}/data"\n[model]\n[attention]\nkind = "window"\n[window]\nwidth = 2\n[train]\n')


def head(server, layer=0, number=0, at=0):
    step = json.loads(get(server, "/api/run")[1])["steps"][0]
    return run_folder.unpack(get(server, f"/api/step/{step}/input/{at}/layer/{layer}/head/{number}")[1])


def described(server):
    step = json.loads(get(server, "/api/run")[1])["steps"][0]
    return json.loads(get(server, f"/api/step/{step}")[1])


def test_a_text(page, serve, text_run):
    server = serve(text_run, "--text", "the cat sat", "--text", "a dog")
    about = described(server)
    assert [(item["name"], item["length"]) for item in about["inputs"]] == [("text 1", 11), ("text 2", 5)]
    assert about["step"] == 2 and about["causal"]
    keys, offsets = head(server)["keys"], head(server)["offsets"]
    assert all(key <= query for query in range(11) for key in keys[offsets[query]:offsets[query + 1]])  # nothing of the future
    open_page(page, server, "view=input")
    assert page.eval("Array.from({length: 11}, (_, n) => edgewiseExplorer.model.tokenName(n)).join('')") == "the cat sat"
    assert page.eval("document.querySelector('[data-figure=example]').textContent") == "text 1"
    page.key("n")
    page.wait(f"{SHOWN} === '2 1 0 0'")
    drawn(page)


def test_a_file_and_two_runs(serve, text_run, tmp_path):
    (tmp_path / "words.txt").write_text("the mat\n")
    server = serve(text_run, "--file", str(tmp_path / "words.txt"), "--beside", str(text_run))
    about = described(server)
    assert (about["inputs"][0]["name"], about["inputs"][0]["length"]) == ("words.txt", 7)
    assert get(server, "/api/step/2/input/0/layer/0/head/1")[1] == get(server, "/api/beside/step/2/input/0/layer/0/head/1")[1]


def test_nothing_is_left_behind(serve, text_run, tmp_path, monkeypatch):
    before = sorted(path for path in text_run.rglob("*"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = serve(text_run, "--text", "the log")
    assert len(list(tmp_path.iterdir())) == 1
    assert (next(tmp_path.iterdir()).stat().st_mode & 0o077) == 0  # for this user alone
    server.stop()
    assert list(tmp_path.iterdir()) == []
    assert sorted(path for path in text_run.rglob("*")) == before


def test_an_expression(serve, listops_run):
    server = serve(listops_run, "--text", "[MAX 2 [MIN 1 3 ] 0 ]")
    about = described(server)
    assert about["task"] == "listops" and about["inputs"][0]["length"] == 8
    given = run_folder.unpack(get(server, "/api/step/2/input/0")[1])
    assert [about["token_names"][id] for id in given["tokens"]] == ["[MAX", "2", "[MIN", "1", "3", "X", "0", "X"]
    assert list(given["labels"]) == [2]  # its value
    assert head(server)["meta"]["edges"] == 8 * 5 - 2 * 3  # a window of two on each side


def test_token_ids(serve, tmp_path):
    run = trained(tmp_path, '[data]\nname = "repeated_tokens"\nlength = 16\n[model]\n[attention]\nkind = "random"\n[train]\n')
    (tmp_path / "ids.txt").write_text("1 2 3 1\n\n[4, 5, 6]\n")
    server = serve(run, "--input", str(tmp_path / "ids.txt"))
    about = described(server)
    assert [(item["name"], item["length"]) for item in about["inputs"]] == [("ids.txt line 1", 4), ("ids.txt line 3", 3)]
    (tmp_path / "bad.txt").write_text("1 2 x\n")
    assert "bad.txt:1: expected token ids" in refusal(run, "--input", tmp_path / "bad.txt")
    (tmp_path / "bad.txt").write_text("1 2 99\n")
    assert "expected ids from 0 to 16" in refusal(run, "--input", tmp_path / "bad.txt")
    assert "--input with token ids" in refusal(run, "--text", "hello")


def grey_png(path, pixels):
    """A PNG file of 8 bits in grey."""
    import struct
    import zlib
    height, width = pixels.shape

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
                           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_a_picture(page, serve, tmp_path):
    edgewise("data", "pathfinder", "--generate", "--size", "40", "--contour-length", "6", "--out", tmp_path / "data")
    run = trained(tmp_path, f'[data]\nname = "pathfinder"\npath = "{tmp_path}/data"\nmask_zero = true\ndrop_masked = true\n[model]\n[attention]\nkind = "sbm"\n[train]\n')
    pixels = np.zeros((32, 32))
    pixels[10, 3:20] = 200
    grey_png(tmp_path / "line.png", pixels)
    server = serve(run, "--image", str(tmp_path / "line.png"))
    assert described(server)["inputs"][0]["length"] == 17  # black is left out, as in training
    open_page(page, server, "view=input&token=4")
    assert page.eval("document.querySelector('.info h3').textContent") == "pixel 10, 7"
    drawn(page)
    assert "picture" in refusal(run, "--text", "hello")
    grey_png(tmp_path / "small.png", np.zeros((8, 8)))
    assert "expected 32 x 32 pixels; found 8 x 8" in refusal(run, "--image", tmp_path / "small.png")
    (tmp_path / "none.png").write_bytes(b"no picture")
    assert "none.png" in refusal(run, "--image", tmp_path / "none.png")


@pytest.fixture(scope="session")
def translation_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translation")
    rng = np.random.default_rng(0)
    words = ["ab", "bc", "cd", "de", "ef", "fg", "gh"]
    for name, count in (("train", 200), ("valid", 10), ("test", 10)):
        lines = [[words[n] for n in rng.integers(7, size=rng.integers(3, 6))] for _ in range(count)]
        (folder / f"{name}.a").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.b").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    edgewise("data", "translation", "--source", "a", "--target", "b", "--train", folder / "train", "--validation", folder / "valid", "--test",
             folder / "test", "--subwords", "50", "--max-length", "16", "--out", folder / "data")
    return trained(folder, f'[data]\nname = "translation"\npath = "{folder}/data"\n[model]\nnorm_first = false\nactivation = "relu"\n'
                   'positions = "sinusoidal"\n[attention]\nkind = "sbm"\ncross = "dense"\ndecoder = "dense"\n[train]\n', "model.layers=2")


def test_a_translation(page, serve, translation_run):
    server = serve(translation_run, "--text", "ab cd ef", "--pair", "ef cd ab")
    item = described(server)["inputs"][0]
    assert [layer["name"] for layer in item["layers"]] == ["encoder 0", "encoder 1", "decoder 0", "decoder 1", "across 0", "across 1"]
    source, target = item["length"], item["target_length"]
    sizes = [(layer["queries"], layer["keys"]) for layer in item["layers"]]
    assert sizes == [(source, source)] * 2 + [(target, target)] * 2 + [(target, source)] * 2
    decoder, across = head(server, 2), head(server, 4)
    assert decoder["meta"]["edges"] == target * (target + 1) // 2 and across["meta"]["edges"] == source * target
    np.testing.assert_allclose([across["weights"][a:b].astype(float).sum() for a, b in zip(across["offsets"], across["offsets"][1:])], 1, atol=5e-3)
    open_page(page, server, "view=input&layer=4&token=1&side=query")
    text = page.eval("[0, 1].map(n => { const text = edgewiseExplorer.model.sides[n ? 'query' : 'key']; "
                     "return Array.from({length: text.length}, (_, t) => edgewiseExplorer.model.tokenName(t, text)).join(''); })")
    assert text[0].replace(" ", "").startswith("abcdef") and "efcdab" in text[1].replace(" ", "")
    drawn(page)
    page.eval("edgewiseExplorer.set({layer: 0})")
    page.wait(f"{SHOWN} === '2 0 0 0'")
    drawn(page)


def test_a_translation_of_its_own(serve, translation_run):
    item = described(serve(translation_run, "--text", "ab cd ef"))["inputs"][0]
    assert item["target_length"] >= 1 and len(item["layers"]) == 6


def test_what_cannot_be_given_is_said(text_run, listops_run, tmp_path):
    assert "a picture" in refusal(text_run, "--image", "x.png")
    assert "\\xC3 in text 1 is none of the 17" in refusal(text_run, "--text", "the \u00e9")
    assert "expected 2 to 64 tokens" in refusal(text_run, "--text", "the " * 40)
    assert "is empty" in refusal(text_run, "--text", "")
    assert "pairs" in refusal(text_run, "--text", "the", "--pair", "cat")
    assert "1 pairs and 0 texts" in refusal(text_run, "--pair", "cat")
    assert "no such file" in refusal(text_run, "--file", tmp_path / "none.txt").lower()
    assert "'hello'" in refusal(listops_run, "--text", "[MAX 1 hello ]")
    assert "whole expression" in refusal(listops_run, "--text", "[MAX 1 2")
    assert "--checkpoint with new inputs" in refusal(text_run, "--checkpoint", "last")
    assert "expected snapshots" in refusal(text_run)


def test_a_snapshot_alone(page, serve, small_run):
    file = small_run / "snapshots/step-00000100.safetensors"
    server = serve(file)
    run = json.loads(get(server, "/api/run")[1])
    assert (run["name"], run["steps"], run["layers"], run["heads"]) == ("step-00000100", [100], 2, 2)
    open_page(page, server)
    assert figure(page, "edges") == len(run_folder.unpack(get(server, "/api/step/100/input/0/layer/0/head/0")[1])["keys"])
    assert page.eval("document.querySelector('.curves').hidden")
    assert "is a file" in refusal(file, "--text", "x")


def test_what_is_no_snapshot_is_told(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{\"a\":{}}        ")
    start = time.monotonic()
    assert "x.safetensors" in refusal(tmp_path / "x.safetensors")
    assert time.monotonic() - start < 30
