"""The page of edgewise explore in a real browser: what it shows is what the snapshot holds, and keys, clicks and links do
what they say. The fixture `page` fails a test whose page wrote an error to the console."""
import json
import re
import time
import urllib.parse

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_folder
from conftest import NAMES
from page_steps import SHOWN, STATE, drawn, figure, open_page, saved, settle, state

def test_counts_are_those_of_the_snapshot(page, serve, small_run):
    open_page(page, serve(small_run))
    for step in (0, 100, 200):
        written = load_file(small_run / f"snapshots/step-{step:08d}.safetensors")
        for layer in (0, 1):
            for head in (0, 1):
                page.eval(f"window.edgewiseExplorer.set({{step: {step}, layer: {layer}, head: {head}}})")
                settle(page, f"{step} 0 {layer} {head}")
                keys = written[f"input.0.layer.{layer}.head.{head}.keys"]
                assert figure(page, "edges") == figure(page, "kept") == len(keys)
                assert page.eval("document.querySelector('[data-figure=edges]').textContent") == str(len(keys))


def test_every_edge_is_drawn_where_it_is(page, serve, small_run):
    open_page(page, serve(small_run), "step=100&layer=1&head=0&colour=edges")
    written = load_file(small_run / "snapshots/step-00000100.safetensors")
    offsets, keys = (written[f"input.0.layer.1.head.0.{name}"] for name in ("offsets", "keys"))
    pixels = drawn(page)
    scale = page.eval("edgewiseExplorer.state.zoom") or page.eval("""(() => {
      const canvas = document.querySelector('.matrix'); return Math.min((canvas.width - 86) / 12, (canvas.height - 68) / 12, 64); })()""")
    for i in range(12):
        row = set(keys[offsets[i]:offsets[i + 1]])
        for j in range(12):
            x, y = int(76 + (j + 0.5) * scale), int(58 + (i + 0.5) * scale)
            is_dark = pixels[y, x, :3].astype(int).sum() < 400 and pixels[y, x, 3] == 255
            assert is_dark == (j in row), (i, j, pixels[y, x])


def test_a_clicked_token_has_its_edges_both_ways(page, serve, small_run):
    open_page(page, serve(small_run), "step=200&layer=0&head=1")
    written = load_file(small_run / "snapshots/step-00000200.safetensors")
    offsets, keys, weights = (written[f"input.0.layer.0.head.1.{name}"] for name in ("offsets", "keys", "weights"))
    box = page.eval("(b => [b.left, b.top, b.width, b.height])(document.querySelector('.matrix').getBoundingClientRect())")
    scale = min((box[2] - 86) / 12, (box[3] - 68) / 12, 64)
    page.click(box[0] + 76 + 1.5 * scale, box[1] + 58 + 3.5 * scale)  # query 3, which looks at 1 and 7
    page.wait(f"{STATE}('token') === 3")
    edges = page.eval("[...document.querySelectorAll('.edges')].map(list => [...list.children].map(item => item.textContent))")
    own = dict(zip(keys[offsets[3]:offsets[4]], weights[offsets[3]:offsets[4]].astype(float)))
    assert set(own) == {1, 7}
    expected = [f"token {j}: {NAMES[[2, 8, 1, 7, 9, 5, 6, 4, 11, 12, 5, 5][j]]}{own[j]:.3f}" for j in sorted(own, key=lambda j: -own[j])]
    assert edges[0] == expected
    rows = np.repeat(np.arange(12), np.diff(offsets))[keys == 3]
    assert [int(re.match(r"token (\d+)", text)[1]) for text in edges[1]] == sorted(
        rows, key=lambda i: -float(weights[offsets[i]:offsets[i + 1]][keys[offsets[i]:offsets[i + 1]] == 3][0]))
    page.click(box[0] + 76 + 1.5 * scale, box[1] + 58 + 3.5 * scale, shift=True)
    page.wait(f"{STATE}('token') === 1 && {STATE}('side') === 'key'")


def test_keys(page, serve, small_run):
    open_page(page, serve(small_run))
    steps = [("ArrowRight", "head", 1), ("ArrowDown", "layer", 1), ("ArrowRight", "head", 0), ("ArrowUp", "layer", 0), (",", "step", 100),
             (",", "step", 0), (".", "step", 100), ("n", "input", 1), ("p", "input", 0), ("i", "view", "input"), ("g", "view", "graph"),
             ("a", "arrange", "given"), ("a", "arrange", "head"), ("c", "view", "clusters"),
             ("m", "view", "matrix"), ("w", "colour", "edges"), ("j", "token", 0), ("j", "token", 1), ("k", "token", 0), ("Escape", "token", -1),
             ("t", "theme", "light"), ("t", "theme", "dark")]
    for key, name, value in steps:
        page.key(key)
        page.wait(f"{STATE}('{name}') === {json.dumps(value)}", 10)
    page.eval("window.edgewiseExplorer.settled()")
    page.key("+")
    page.wait(f"{STATE}('zoom')")
    scale = state(page, "zoom")[2]
    page.key("-")
    page.wait(f"!{STATE}('zoom') || {STATE}('zoom')[2] < {scale}")
    page.key("0")
    page.wait(f"!{STATE}('zoom')")
    page.key("?", shift=True)
    page.wait("document.querySelector('.explorer dialog').open")
    page.key("?", shift=True)
    page.wait("!document.querySelector('.explorer dialog').open")
    page.key(",")
    page.wait(f"{STATE}('step') === 0")
    page.key(" ")  # plays up to the last step, and stops there
    page.wait(f"{STATE}('step') === 200 && document.querySelector('.explorer header button').textContent === '\\u25b6'")


def test_a_link_opens_the_same_view(page, serve, small_run):
    server = serve(small_run)
    open_page(page, server)
    page.eval("window.edgewiseExplorer.set({step: 100, input: 1, layer: 1, head: 0, colour: 'key', token: 7, side: 'key', zoom: [1.5, 2, 30], theme: 'dark'})")
    page.wait("location.hash.includes('zoom')")
    link = page.eval("location.href")
    before = drawn(page)
    open_page(page, server, urllib.parse.urlparse(link).fragment)
    assert page.eval("JSON.stringify(window.edgewiseExplorer.state)") == json.dumps(
        {"step": 100, "input": 1, "layer": 1, "head": 0, "view": "matrix", "colour": "key", "token": 7, "side": "key", "zoom": [1.5, 2, 30], "theme": "dark",
         "beside": None, "arrange": "auto", "place": None},
        separators=(",", ":"))
    np.testing.assert_array_equal(drawn(page), before)
    for hostile in ("step=-5&input=99&layer=99&head=99", "zoom=NaN,1,1", "zoom=0,0,-1", "view=%3Cscript%3E&colour=__proto__", "token=1e9", "step=abc&%",
                    "beside=5,0,0,0", "beside=0,99,99,99999", "beside=1,0,0,-1", "beside=-1,0,0,0", "place=0,0,0", "view=graph&arrange=toString"):
        open_page(page, server, hostile)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_draws_something_in_both_themes(page, serve, small_run, theme):
    server = serve(small_run)
    for view in ("matrix", "input", "graph", "clusters"):
        open_page(page, server, f"view={view}&theme={theme}")
        pixels = drawn(page)
        solid = pixels[pixels[..., 3] > 0][:, :3]
        assert len(np.unique(solid, axis=0)) > 10, view
        background = page.eval("getComputedStyle(document.getElementById('explorer')).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(20, 23, 28)")


@pytest.mark.parametrize("view", ["matrix", "input", "graph", "clusters"])
def test_saved_pictures_show_the_view(page, serve, small_run, view):
    import xml.etree.ElementTree as ElementTree
    open_page(page, serve(small_run), f"view={view}&token=3")
    drawn(page)
    svg = saved(page)
    root = ElementTree.fromstring(svg)
    rectangles = [part for part in root.iter() if part.tag.endswith("rect")]
    if view == "matrix":  # every edge is one
        fills = [part for part in rectangles if (part.get("fill") or "").startswith("rgb(")]
        legend = 60
        assert len(fills) - legend == figure(page, "edges")
    if view == "input":
        assert "[MAX" in svg and "[MIN" in svg
    if view == "graph":  # a circle for every token, a line for every edge between two
        assert len([part for part in root.iter() if part.tag.endswith("circle")]) == 12
    assert len(rectangles) > 2
    page.eval(f"edgewiseExplorer.savePng(Object.assign(Object.create(null), {{width: 40, height: 30, paint(surface) {{ surface.rect(0, 0, 9, 9, '#123456'); }}}}), 'x')")


def test_the_input_shows_tokens_and_takes_clicks(page, serve, small_run):
    open_page(page, serve(small_run), "view=input")
    drawn(page)
    box = page.eval("(b => [b.left, b.top])(document.querySelector('.sticky').getBoundingClientRect())")
    page.click(box[0] + 30, box[1] + 24)  # the first token, [MAX
    page.wait(f"{STATE}('token') === 0")
    assert page.eval("document.querySelector('.info h3').textContent") == "token 0: [MAX"
    page.click(box[0] + 30, box[1] + 24)
    page.wait(f"{STATE}('token') === -1")


def test_pictures(page, serve, tmp_path):
    """Of a picture the click is on a pixel, also where masked pixels are left out of the sequence."""
    rng = np.random.default_rng(0)
    places = np.sort(rng.choice(64, 40, replace=False))
    graph = run_folder.dense_graph(np.where(rng.random((40, 40)) < 0.3, 0.5, 0))
    run_folder.make_run(tmp_path / "run", {5: {"inputs": [{"tokens": 50 + 4 * places, "positions": places, "labels": [1], "predicted": [0],
                                                           "layers": [[graph]]}], "task": "pathfinder", "picture_width": 8}})
    open_page(page, serve(tmp_path / "run"), "view=input")
    drawn(page)
    plan = page.eval("edgewiseExplorer.parts.input.plan()")
    box = page.eval("(b => [b.left, b.top])(document.querySelector('.sticky').getBoundingClientRect())")
    place = int(places[17])
    panel, scale = plan["panels"][0], plan["scale"]
    page.click(box[0] + panel["x"] + (place % 8 + 0.5) * scale, box[1] + panel["y"] + (place // 8 + 0.5) * scale)
    page.wait(f"{STATE}('token') === 17")
    assert page.eval("document.querySelector('.info h3').textContent") == f"pixel {place // 8}, {place % 8}"
    assert page.eval("document.querySelector('[data-figure=answer]').textContent") == "1, 0"


def test_squares(page, serve, tmp_path):
    nodes = 5  # of 70 tokens
    mask = np.eye(nodes) + np.eye(nodes, k=-2)
    run_folder.make_run(tmp_path / "run", {0: {"inputs": [{"tokens": np.arange(70), "unit": 16, "layers": [[run_folder.dense_graph(mask / 2)]]}]}})
    open_page(page, serve(tmp_path / "run"), "token=40")
    assert (figure(page, "chosen"), figure(page, "edges"), figure(page, "queries")) == (8, 8 * 256, 5)
    assert page.eval("document.querySelector('.info h3').textContent") == "tokens 32 to 47"
    assert page.eval("document.querySelector('.info h4').textContent") == "looks at 2"
    page.key("i")
    drawn(page)


EVIL = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>'\"&\u0000\u001b[31m"


def test_markup_in_names_is_text(page, serve, tmp_path):
    tokens = [0, 1, 2]
    graph = run_folder.dense_graph(np.eye(3))
    folder = run_folder.make_run(tmp_path / "<img src=x onerror=window.hit=1>" / "<script>run", {
        0: {"inputs": [{"tokens": tokens, "layers": [[graph]]}], "task": EVIL[:200], "names": [EVIL[:100], "</script>", "<b>"]}})
    server = serve(folder)
    for view in ("matrix", "input", "graph", "clusters"):
        open_page(page, server, f"view={view}&token=0&theme=%3Cscript%3E")
        assert page.eval("window.hit") is None
        assert page.eval("document.querySelectorAll('.explorer img, .explorer script, .explorer b').length") == 0
        svg = page.eval("edgewiseExplorer.svgOf(edgewiseExplorer.parts[edgewiseExplorer.state.view])")
        assert "<img" not in svg and "<script" not in svg
        import xml.etree.ElementTree as ElementTree
        ElementTree.fromstring(svg)
    assert page.eval("document.querySelector('.explorer h1').textContent") == "<img src=x onerror=window.hit=1>/<script>run"


def test_a_damaged_snapshot_is_told(browser, serve, small_run, tmp_path):
    import shutil
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    file = folder / "snapshots/step-00000200.safetensors"
    file.write_bytes(file.read_bytes()[:3000])
    page = browser.page()
    page.open(serve(folder).url)
    message = page.wait("!document.querySelector('.explorer .error').hidden && document.querySelector('.explorer .error').textContent")
    assert "step-00000200.safetensors" in message
    page.key(",")  # another step is there
    settle(page, "100 0 0 0")
    assert page.eval("document.querySelector('.explorer .error').hidden")
    page.close()


def test_nothing_is_fetched_from_elsewhere(page, serve, small_run):
    server = serve(small_run)
    for view in ("matrix", "input", "graph", "clusters"):
        open_page(page, server, f"view={view}")
    hosts = {urllib.parse.urlparse(url).netloc for url in page.requests if not url.startswith(("data:", "blob:", "about:"))}
    assert hosts == {f"127.0.0.1:{server.port}"}


def test_long_inputs_come_at_once(page, serve, tmp_path, capsys):
    """16,384 tokens, 524,288 edges. The bounds leave room for machines that do other things too."""
    graph = run_folder.random_graph(16384, 32)
    run_folder.make_run(tmp_path / "run", {0: {"inputs": [{"tokens": np.arange(16384) % 97, "layers": [[graph]]}]}})
    server = serve(tmp_path / "run")
    open_page(page, server)
    assert figure(page, "edges") == 524288
    first = page.eval("edgewiseExplorer.firstPicture")
    rate = page.eval("""(async () => {
      const matrix = edgewiseExplorer.parts.matrix, frame = () => new Promise(requestAnimationFrame);
      const start = performance.now(), frames = 60;
      for (let n = 0; n < frames; ++n) {
        if (n < 30) matrix.zoomAt(400, 300, 1.08); else matrix.pan(7, 5);
        await frame();
      }
      return 1000 * frames / (performance.now() - start);
    })()""")
    pictures = int(page.eval("document.querySelector('.matrix').dataset.frames"))
    with capsys.disabled():
        print(f"\n16384 tokens, 524288 edges: first picture after {first:.0f} ms; {rate:.0f} frames a second while zooming and panning, "
              f"{pictures} of them drawn anew")
    assert first < 3000 and rate > 10 and pictures > 5
    page.eval("edgewiseExplorer.set({view: 'input', zoom: null})")
    drawn(page)
