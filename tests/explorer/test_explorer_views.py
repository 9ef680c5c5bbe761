"""Natural views of tasks, two heads or runs side by side, and files of every view."""
import re
import shutil
import struct
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_folder
from conftest import NAMES
from page_steps import BESIDE, SHOWN, STATE, box_of, drawn, figure, open_page, saved, state

GRAPH = "document.querySelector('.explorer .graph')"


def placed(page, half=0):
    """What the graph says that it draws, when it does."""
    page.wait(f"document.querySelectorAll('.explorer .graph')[{half}].dataset.nodes")
    return page.eval(f"Object.assign({{}}, document.querySelectorAll('.explorer .graph')[{half}].dataset)")


def where(page, node, half=0):
    x, y = page.eval(f"edgewiseExplorer.sides[{half}].views.graph.plan().at({node})")
    box = page.eval(f"(b => [b.left, b.top])(document.querySelectorAll('.explorer .graph')[{half}].getBoundingClientRect())")
    return box[0] + x, box[1] + y


def lists(matrix):
    graph = run_folder.dense_graph(np.asarray(matrix, float))
    return {"offsets": graph["offsets"], "keys": graph["keys"]}


@pytest.fixture
def graph_run(tmp_path):
    """Six nodes in two triangles; the head has one triangle, every node itself, and a link between the two."""
    given = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))
    chosen = np.eye(6)
    chosen[:3, :3] = 1
    chosen[0, 5] = 1
    return run_folder.make_run(tmp_path / "run", {0: {"task": "graph", "inputs": [{
        "tokens": np.arange(6), "labels": [0, 0, 0, 1, -1, 1], "predicted": [0, 0, 1, 1, 1, 1], "given": lists(given),
        "layers": [[run_folder.dense_graph(chosen / 4)]]}]}})


def test_edges_of_the_input_are_told_from_learned_ones(page, serve, graph_run):
    open_page(page, serve(graph_run), "view=graph")
    said = placed(page)
    # 12 links come with the graph, of which the head has 6; it has 7 links, since a node's own edge is none.
    assert (said["nodes"], said["kind"], said["links"], said["given"], said["both"]) == ("6", "given", "7", "6", "6")
    svg = saved(page)
    root = ElementTree.fromstring(svg)
    assert len([part for part in root.iter() if part.tag.endswith("circle")]) == 6 + 2  # nodes, and two classes in the legend
    paths = [part.get("d").count("M") for part in root.iter() if part.tag.endswith("path")]
    assert sorted(paths) == [1, 6, 6]  # the head's alone, the graph's alone, of both
    for text in ("in the input graph alone: 6", "chosen by the head: 1", "both: 6"):
        assert text in svg
    assert page.eval("document.querySelector('[data-figure=given]').textContent") == "6"


def test_a_node_is_chosen_by_a_click_and_places_stay(page, serve, graph_run):
    server = serve(graph_run)
    open_page(page, server, "view=graph")
    placed(page)
    before = [where(page, n) for n in range(6)]
    page.click(*where(page, 5))
    page.wait(f"{STATE}('token') === 5")
    assert page.eval("document.querySelector('.info h3').textContent") == "node 5"
    assert page.eval("[...document.querySelectorAll('.info section:not([hidden]) h4')].map(each => each.textContent)") == ["looks at 1", "is looked at by 2"]
    open_page(page, server, "view=graph")
    placed(page)
    assert [where(page, n) for n in range(6)] == before  # the layout is a function of the graph
    distance = lambda a, b: np.hypot(*np.subtract(before[a], before[b]))  # noqa: E731
    assert max(distance(0, 1), distance(1, 2), distance(3, 4)) < min(distance(0, 3), distance(1, 4))  # triangles keep together
    page.key("+")
    page.wait(f"{STATE}('place')")
    page.key("0")
    page.wait(f"!{STATE}('place')")


def test_arrangements(page, serve, graph_run):
    open_page(page, serve(graph_run), "view=graph&arrange=ring")
    assert placed(page)["kind"] == "ring"
    middle = np.mean([where(page, n) for n in range(6)], axis=0)
    radii = [np.hypot(*np.subtract(where(page, n), middle)) for n in range(6)]
    assert np.ptp(radii) < 1e-3 * radii[0]
    page.key("a")
    page.wait(f"{STATE}('arrange') === 'auto' && {GRAPH}.dataset.kind === 'given'")


def test_many_nodes_are_placed_quickly(page, serve, tmp_path, capsys):
    rng = np.random.default_rng(0)
    nodes, given = 2700, np.zeros((2700, 2700), bool)
    for _ in range(5400):
        i, j = rng.integers(nodes, size=2)
        given[i, j] = given[j, i] = i != j
    graph = run_folder.random_graph(nodes, 4)
    run_folder.make_run(tmp_path / "run", {0: {"task": "graph", "inputs": [{"tokens": np.arange(nodes), "given": lists(given), "layers": [[graph]]}]}})
    open_page(page, serve(tmp_path / "run"), "view=graph")
    assert placed(page)["nodes"] == "2700"
    seconds = page.eval("edgewiseExplorer.sides[0].views.graph.placedIn") / 1000
    assert seconds > 0
    with capsys.disabled():
        print(f"\n2700 nodes, {int(given.sum())} edges: placed after {seconds:.1f} s in the Worker")
    assert seconds < 20


def test_listops_is_a_tree(page, serve, small_run):
    open_page(page, serve(small_run), "view=graph")
    placed(page)
    # [MAX 2 [MIN 1 3 X 0 [SM 5 6 X X
    assert page.eval("[...edgewiseExplorer.model.given.parents]") == [-1, 0, 0, 2, 2, 2, 0, 0, 7, 7, 7, 0]
    points = [where(page, n) for n in range(12)]
    for child, parent in ((1, 0), (2, 0), (3, 2), (8, 7)):
        assert points[child][1] > points[parent][1] + 20
    leaves = [points[n][0] for n in (1, 3, 4, 5, 6, 8, 9, 10, 11)]
    assert leaves == sorted(leaves) and len(set(leaves)) == 9  # from left to right as they are written
    for token in (3, 8):
        page.click(*points[token])
        page.wait(f"{STATE}('token') === {token}")
    page.key("i")
    drawn(page)
    svg = saved(page)
    assert svg.count("<polyline") == 3  # lines from [MAX to [MIN, to the 0 behind it, and to [SM


def test_damaged_expressions_are_shown(page, serve, tmp_path):
    tokens = [5, 5, 2, 7, 1, 1, 1]  # X X [MAX 1 [MIN [MIN [MIN
    run_folder.make_run(tmp_path / "run", {0: {"task": "listops", "names": NAMES, "inputs": [
        {"tokens": tokens, "layers": [[run_folder.dense_graph(np.eye(7))]]}]}})
    open_page(page, serve(tmp_path / "run"), "view=graph")
    assert placed(page)["nodes"] == "7"
    page.key("i")
    drawn(page)


def test_right_edges_are_marked(page, serve, tmp_path):
    right, chosen = np.zeros((8, 8)), np.zeros((8, 8))
    right[5, 1] = right[7, 3] = 1
    chosen[5, 1] = chosen[5, 2] = chosen[6, 0] = 0.5
    run_folder.make_run(tmp_path / "run", {0: {"task": "multi_query_recall", "causal": True, "inputs": [
        {"tokens": np.arange(8), "right": lists(right), "layers": [[run_folder.dense_graph(chosen)]]}]}})
    open_page(page, serve(tmp_path / "run"))
    assert page.eval("document.querySelector('[data-figure=right]').textContent") == "2, 1"
    svg = saved(page)
    assert svg.count('stroke="#0a8f3c"') == 2  # frames in the matrix, chosen or not
    page.key("g")
    placed(page)
    svg = saved(page)
    for text in ("right and chosen: 1", "right, not chosen: 1", "chosen: 2"):
        assert text in svg


@pytest.fixture
def translation_run(tmp_path):
    """Five source tokens, three of the translation; what looks across looks back to front."""
    pieces = {4: "ein", 5: "Haus", 6: "steht", 7: "dort", 8: "(end)", 14: "a", 15: "house", 16: "stands"}
    across = np.zeros((3, 5))
    for i, j in ((0, 4), (1, 3), (2, 2), (2, 0)):
        across[i, j] = 0.5
    layers = [[run_folder.dense_graph(np.eye(5))], [run_folder.dense_graph(np.tril(np.ones((3, 3))) / 3)], [run_folder.dense_graph(across)]]
    return run_folder.make_run(tmp_path / "run", {0: {"task": "translation", "pieces": pieces, "inputs": [{
        "tokens": [4, 5, 6, 7, 8], "target": [8, 14, 15], "labels": [14, 15, 16], "predicted": [14, 15, 15], "layers": layers,
        "places": [("encoder 0", False, False), ("decoder 0", True, True), ("across 0", True, False)]}]}}, layers=3)


def test_translations_are_two_texts(page, serve, translation_run):
    open_page(page, serve(translation_run), "view=input&layer=2")
    assert page.eval("[...document.querySelectorAll('.layer-name')].map(each => each.textContent)") == ["encoder 0", "decoder 0", "across 0"]
    drawn(page)
    svg = saved(page)
    for text in ("source: what is looked at", "translation: what looks", "Haus", "house"):
        assert text in svg
    left, top = box_of(page, ".sticky")[:2]
    places = page.eval("edgewiseExplorer.parts.input.places.map(block => [block.side, block.places])")
    assert [(side, len(each)) for side, each in places] == [("key", 5), ("query", 3)]
    x, y, width = places[1][1][2]  # "house"
    page.click(left + x + width / 2, top + y + 8)
    page.wait(f"{STATE}('token') === 2 && {STATE}('side') === 'query'")
    assert page.eval("document.querySelector('.info h3').textContent") == "token 2: house"
    assert page.eval("[...document.querySelectorAll('.edges .name')].map(each => each.textContent)") == ["token 0: ein", "token 2: steht"]
    x, y, width = places[0][1][3]  # "dort"
    page.click(left + x + width / 2, top + y + 8)
    page.wait(f"{STATE}('token') === 3 && {STATE}('side') === 'key'")
    assert page.eval("[...document.querySelectorAll('.edges .name')].map(each => each.textContent)") == ["token 1: a"]
    page.key("g")
    assert placed(page)["kind"] == "rows"
    assert where(page, 0)[1] > where(page, 3)[1]  # queries stand below keys
    page.key("m")
    drawn(page)
    page.key("ArrowUp")
    page.wait(f"{SHOWN} === '0 0 1 0'")
    assert (figure(page, "queries"), figure(page, "keys")) == (3, 3)
    page.key("i")
    drawn(page)
    assert "house" in saved(page)


EVIL = "<img src=x onerror=window.hit=1></script><b>&\u0000"


def test_markup_in_names_is_text(page, serve, tmp_path):
    graph = run_folder.dense_graph(np.eye(2))
    run_folder.make_run(tmp_path / "<b>run", {0: {"task": EVIL, "pieces": {1: EVIL, 2: "ok"}, "inputs": [{
        "tokens": [1, 2], "target": [2, 1], "name": EVIL, "layers": [[graph], [graph]], "places": [(EVIL, False, False), (EVIL, True, False)]}]}}, layers=2)
    server = serve(tmp_path / "<b>run", "--beside", str(tmp_path / "<b>run"))
    for layer in (0, 1):
        for view in ("matrix", "input", "graph", "clusters"):
            open_page(page, server, f"view={view}&layer={layer}&token=0&beside=1,1,0,-1")
            page.wait(BESIDE)
            drawn(page)
            ElementTree.fromstring(saved(page))
            assert page.eval("window.hit") is None
            assert page.eval("document.querySelectorAll('.explorer img, .explorer script, .explorer b').length") == 0


def test_two_heads_side_by_side(page, serve, small_run):
    open_page(page, serve(small_run), "step=100&layer=0&head=0")
    page.key("b")
    page.wait(f"{BESIDE} === '0 100 0 1'")
    assert page.eval("[...document.querySelectorAll('.half')].map(each => each.hidden)") == [False, False]
    first = load_file(small_run / "snapshots/step-00000100.safetensors")
    kept = page.eval("edgewiseExplorer.models.map(model => model.head.columns.length)")
    assert kept == [len(first["input.0.layer.0.head.0.keys"]), len(first["input.0.layer.0.head.1.keys"])]
    # The same token, and the same part of the matrix.
    page.eval("edgewiseExplorer.set({token: 3, zoom: [1, 2, 40]})")
    left, right = drawn(page), drawn(page, 1)
    assert left.shape == right.shape
    row = int(58 + (3 - 2) * 40) - 1
    assert (left[row, 100] == right[row, 100]).all() and left[row, 100, 0] > 200 > left[row, 100, 2]  # the frame of query 3
    # Steps move together until the right one is given a step of its own.
    page.key(",")
    page.wait(f"{BESIDE} === '0 0 0 1' && {SHOWN} === '0 0 0 0'")
    page.eval("(list => { list.value = '200'; list.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label=\"step on the right\"]'))")
    page.wait(f"{BESIDE} === '0 200 0 1'")
    page.eval("(list => { list.value = '1.0'; list.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label=\"head on the right\"]'))")
    page.wait(f"{BESIDE} === '0 200 1 0'")
    assert state(page, "beside") == [0, 1, 0, 200]
    page.key("x")
    page.wait(f"{SHOWN} === '200 0 1 0' && {BESIDE} === '0 0 0 0'")
    page.wait("location.hash.includes('beside=0,0,0,0')")
    page.eval("document.querySelector('.head[data-layer=\"1\"][data-head=\"1\"]').dispatchEvent(new MouseEvent('click', {shiftKey: true}))")
    page.wait(f"{BESIDE} === '0 0 1 1'")
    page.eval("document.querySelector('.caption button').click()")
    page.wait(f"{STATE}('beside') === null && document.querySelectorAll('.half')[1].hidden")


def test_two_runs_side_by_side(page, serve, small_run, tmp_path):
    other = tmp_path / "<b>other"
    shutil.copytree(small_run, other)
    (other / "snapshots/step-00000200.safetensors").unlink()  # it has come less far
    server = serve(small_run, "--beside", str(other))
    open_page(page, server, "beside=1,1,0,-1")
    page.wait(f"{BESIDE} === '1 100 1 0'")  # the nearest step that it has
    assert page.eval("document.querySelector('[aria-label=\"run on the right\"]').selectedOptions[0].textContent").endswith("/<b>other")
    page.key(",")
    page.key(",")
    page.wait(f"{BESIDE} === '1 0 1 0' && {SHOWN} === '0 0 0 0'")
    for view in ("input", "graph", "clusters", "matrix"):
        page.eval(f"edgewiseExplorer.set({{view: '{view}'}})")
        assert drawn(page).any() and drawn(page, 1).any()
    page.key("b")
    page.key("b")
    page.wait(f"{BESIDE} === '1 0 0 0'")  # the same head of the other run


def test_files_have_both_sides(page, serve, small_run):
    for view in ("matrix", "input", "graph", "clusters"):
        open_page(page, serve(small_run), f"view={view}&beside=0,1,1,-1")
        page.wait(BESIDE)
        drawn(page)
        svg = saved(page)
        ElementTree.fromstring(svg)
        assert re.findall(r"layer \d, head \d, step \d+", svg) == ["layer 0, head 0, step 200", "layer 1, head 1, step 200"]


@pytest.mark.parametrize("what", ["view", "curves", "heads", "degrees"])
def test_everything_can_be_saved(page, serve, small_run, what):
    open_page(page, serve(small_run), "theme=dark")
    drawn(page)
    page.wait("edgewiseExplorer.parts.heads.thumbnails")
    page.eval(f"(list => {{ list.value = '{what}'; }})(document.querySelector('[aria-label=\"what to save\"]'))")
    root = ElementTree.fromstring(saved(page))
    if what == "heads":
        assert len([part for part in root.iter() if part.tag.endswith("image")]) == 4
    if what == "curves":
        assert len([part for part in root.iter() if part.tag.endswith("polyline")]) >= 4
    png = saved(page, "PNG")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2 * round(float(root.get("width"))), 2 * round(float(root.get("height"))))
