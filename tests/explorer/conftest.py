import os
import re
import signal
import subprocess

import pytest

import chromium
import run_folder

BINARY = os.environ.get("EDGEWISE_BINARY", "build/dev/bin/edgewise")


class Server:
    """edgewise explore, from its first line on; `url` is what it printed."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen([BINARY, "explore", str(folder), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        self.url = line.strip()
        self.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.url)[1])

    def stop(self, with_signal=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def serve():
    servers = []

    def start(folder, *options):
        servers.append(Server(folder, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def browser():
    if not chromium.BINARY:
        pytest.skip(chromium.MISSING)
    browser = chromium.Chromium()
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    page = browser.page()
    yield page
    errors = list(page.errors)
    page.close()
    assert errors == [], "the console of the page has errors"


NAMES = ["(padding)", "[MIN", "[MAX", "[MED", "[SM", "X"] + [str(digit) for digit in range(10)]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """Two layers of two heads over a ListOps expression, at three steps; head 1 has another graph at every step."""
    import numpy as np
    folder = tmp_path_factory.mktemp("runs") / "small"
    tokens = [2, 8, 1, 7, 9, 5, 6, 4, 11, 12, 5, 5]  # [MAX 2 [MIN 1 3 X 0 [SM 5 6 X X

    def snapshot(step):
        rng = np.random.default_rng(step + 1)
        layers = []
        for _ in range(2):
            heads = []
            for _ in range(2):
                mask = rng.random((12, 12)) < 0.3
                mask[3] = False
                mask[3, [1, 7]] = True
                weights = np.where(mask, rng.random((12, 12)) + 0.05, 0)
                weights /= np.maximum(weights.sum(1, keepdims=True), 1e-9)
                head = run_folder.dense_graph(weights)
                head["query_membership"] = rng.random((12, 4)).astype(np.float16)
                head["key_side"] = (rng.random((12, 4)) / 16).astype(np.float16)
                head["block_matrix"] = np.full((4, 4), 1 / 16, dtype=np.float32)
                heads.append(head)
            layers.append(heads)
        item = {"tokens": tokens, "labels": [9], "predicted": [4], "layers": layers}
        return {"inputs": [dict(item, example=3), dict(item, example=5)], "task": "listops", "names": NAMES}

    return run_folder.make_run(folder, {step: snapshot(step) for step in (0, 100, 200)}, layers=2, heads=2)
