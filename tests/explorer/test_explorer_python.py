"""The page that edgewise.explore makes in Python, in a browser: as a file, in a notebook's frame, and by the command line."""
import os
import sys
from pathlib import Path

import pytest

from page_steps import SHOWN, drawn, figure, open_page

torch = pytest.importorskip("torch")
if "EDGEWISE_LIBRARY" not in os.environ:  # the one beside the command line that is tested
    found = Path(os.environ.get("EDGEWISE_BINARY", "build/dev/bin/edgewise")).resolve().parent.parent / "lib" / "libedgewise.so"
    if found.is_file():
        os.environ["EDGEWISE_LIBRARY"] = str(found)
sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
edgewise = pytest.importorskip("edgewise")


@pytest.fixture(scope="module")
def seen():
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(9, 32)
    layers = [edgewise.nn.EdgeTransformerEncoderLayer(32, 2, source, dim_feedforward=32)
              for source in (edgewise.nn.SbmEdges(2, 16, initial_density=0.4), None, edgewise.nn.WindowEdges(16, unit=16))]
    tokens = torch.randint(0, 9, (2, 40))
    return edgewise.explore(torch.nn.Sequential(embedding, *layers), tokens, names=[f"<i>{n}" for n in range(9)], name="a <b>model")


def test_the_file_shows_what_was_seen(page, seen, tmp_path):
    file = seen.save(tmp_path / "seen.html")
    for item in (0, 1):
        for layer in (0, 1, 2):
            open_page(page, file.as_uri(), f"input={item}&layer={layer}&head=1")
            head = seen.snapshot.inputs[item].layers[layer].heads[1]
            assert (figure(page, "edges"), figure(page, "kept")) == (head.edges, len(head.keys))
    for view in ("matrix", "input", "graph", "clusters"):
        open_page(page, file.as_uri(), f"view={view}&token=3&beside=0,1,0,-1")
        assert drawn(page).any()
    assert page.eval("document.querySelector('.explorer h1').textContent") == "a <b>model"
    page.key("m")  # keys work without a click into it: the page is its own
    page.wait("edgewiseExplorer.state.view === 'matrix'")
    assert [url for url in page.requests if not url.startswith(("data:", "blob:", "about:", "file:"))] == []


def test_a_notebook_shows_it(page, seen, tmp_path):
    (tmp_path / "notebook.html").write_text("<!DOCTYPE html><meta charset=utf-8><body><p>a cell</p>" + seen._repr_html_())
    page.open((tmp_path / "notebook.html").as_uri())
    inside = "document.querySelector('iframe').contentDocument.getElementById('explorer')"
    page.wait(f"{inside} && {inside}.dataset.shown")
    assert page.eval(f"Number({inside}.dataset.edges)") == seen.snapshot.inputs[0].layers[0].heads[0].edges
    page.eval("document.querySelector('iframe').contentWindow.edgewiseExplorer.set({view: 'graph', token: 2})")
    page.wait("document.querySelector('iframe').contentDocument.querySelector('.graph').dataset.nodes === '40'")


def test_the_command_line_reads_its_snapshot(page, serve, seen, tmp_path):
    server = serve(seen.save(tmp_path / "seen.safetensors"))
    open_page(page, server, "input=1&layer=0&head=1")
    head = seen.snapshot.inputs[1].layers[0].heads[1]
    assert (figure(page, "edges"), figure(page, "queries")) == (head.edges, 40)
    assert page.eval("edgewiseExplorer.model.tokenName(0)") == f"<i>{seen.snapshot.inputs[1].tokens[0]}"
    assert page.eval(SHOWN) == "0 1 0 1"
