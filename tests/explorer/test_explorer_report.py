"""The page inside of edgewise report's one file: opened from the disk, without a server."""
import re
import subprocess

import numpy as np

import run_folder
from conftest import BINARY

SHOWN = "document.getElementById('explorer').dataset.shown"


def report(folder, out):
    result = subprocess.run([BINARY, "report", str(folder), "--out", str(out)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return out


def test_the_file_shows_the_same_page(page, small_run, tmp_path):
    file = report(small_run, tmp_path / "report.html")
    page.open(file.as_uri())
    page.wait(f"{SHOWN} === '200 0 0 0' && edgewiseExplorer.firstPicture")
    from safetensors.numpy import load_file
    for step in (0, 100, 200):
        written = load_file(small_run / f"snapshots/step-{step:08d}.safetensors")
        page.eval(f"edgewiseExplorer.set({{step: {step}, layer: 1, head: 1}})")
        page.wait(f"{SHOWN} === '{step} 0 1 1'")
        assert page.eval("Number(document.getElementById('explorer').dataset.edges)") == len(written["input.0.layer.1.head.1.keys"])
    assert int(page.eval("document.querySelector('.matrix').dataset.frames")) > 0  # the Worker came from the file too
    assert page.eval("document.getElementById('explorer').dataset.theme") == "light"
    fetched = [url for url in page.requests if not url.startswith(("data:", "blob:", "about:"))]
    assert fetched == [file.as_uri()]


def test_what_does_not_fit_is_said(page, tmp_path):
    graph = run_folder.random_graph(8192, 64)  # half a million edges: three megabytes a head
    heads = [[graph] * 8]
    folder = run_folder.make_run(tmp_path / "run", {0: {"inputs": [{"tokens": np.arange(8192) % 7, "layers": heads}]}}, heads=8)
    file = report(folder, tmp_path / "report.html")
    assert file.stat().st_size < 20 << 20
    page.open(file.as_uri())
    page.wait(f"{SHOWN} === '0 0 0 0'")
    page.eval("edgewiseExplorer.set({head: 7})")
    message = page.wait("!document.querySelector('.explorer .error').hidden && document.querySelector('.explorer .error').textContent")
    assert "this report does not hold it" in message
    page.eval("edgewiseExplorer.set({head: 1})")
    page.wait(f"{SHOWN} === '0 0 0 1' && document.querySelector('.explorer .error').hidden")


def test_names_cannot_end_its_scripts(page, tmp_path):
    evil = "</script><script>window.hit=1</script><!--<script>"
    folder = run_folder.make_run(tmp_path / evil.replace("/", "\u2215") / "run", {
        0: {"inputs": [{"tokens": [0, 1], "layers": [[run_folder.dense_graph(np.eye(2))]]}], "task": evil, "names": [evil, "-->"]}})
    file = report(folder, tmp_path / "report.html")
    page.open(file.as_uri())
    page.wait(f"{SHOWN} === '0 0 0 0'")
    assert page.eval("window.hit") is None
    assert re.search(r'data-explorer="[a-z0-9/]*"', file.read_text())


def test_a_run_without_snapshots_has_a_report_still(small_run, tmp_path):
    folder = run_folder.make_run(tmp_path / "run", {})
    result = subprocess.run([BINARY, "report", str(folder)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and "no snapshots" in result.stderr
    assert 'id="explorer"' not in (folder / "report.html").read_text()


def test_damaged_snapshots_are_named(small_run, tmp_path):
    import shutil
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    file = folder / "snapshots/step-00000100.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    result = subprocess.run([BINARY, "report", str(folder)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "step-00000100.safetensors" in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("edgewise: ")] == result.stderr.splitlines()[-1:]
    assert not (folder / "report.html").exists()
