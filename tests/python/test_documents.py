"""Runs the Python of the README and of how-to guides as it stands, the blocks of a page one after the other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/python.md", "docs/how-to/hugging-face.md", "docs/how-to/explore.md"])
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert blocks, f"expected Python in {page}"
    monkeypatch.chdir(tmp_path)  # for what a page writes
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_tests_that_the_compatibility_table_names_are_there():
    page = (ROOT / "docs/how-to/python.md").read_text().split("## What works with it")[1].split("\n## ")[0]
    tests = re.findall(r"^def test_(\w+)", (ROOT / "tests/python/test_compatibility.py").read_text(), re.M)
    rows = [line.split("|")[-2] for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(named) > 15
    for name in named:
        assert (ROOT / "tests/python" / name).is_file() or any(name in test for test in tests), name
