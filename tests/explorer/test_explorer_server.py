"""The server of edgewise explore: what it gives, and that it gives nothing else."""
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import run_folder
from conftest import BINARY, NAMES


def get(server, path, method="GET", headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body=body, headers=headers or {})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data, response.headers


def raw(server, text):
    """What a request of exactly these bytes gets."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(text)
        answer = b""
        try:
            while chunk := connection.recv(1 << 16):
                answer += chunk
        except ConnectionResetError:
            pass
        return answer


def test_it_gives_what_the_snapshot_holds(serve, small_run):
    server = serve(small_run)
    run = json.loads(get(server, "/api/run")[1])
    assert (run["steps"], run["layers"], run["heads"], run["name"]) == ([0, 100, 200], 2, 2, small_run.parent.name + "/small")
    assert run["densities"]["steps"] == [0, 100, 200] and len(run["densities"]["heads"]) == 4
    step = json.loads(get(server, "/api/step/100")[1])
    assert step["token_names"] == NAMES and [each["example"] for each in step["inputs"]] == [3, 5]
    from safetensors.numpy import load_file
    written = load_file(small_run / "snapshots/step-00000100.safetensors")
    got = run_folder.unpack(get(server, "/api/step/100/input/1/layer/1/head/0")[1])
    for name in ("offsets", "keys", "weights", "query_membership", "key_side"):
        np.testing.assert_array_equal(got[name], written[f"input.1.layer.1.head.0.{name}"].ravel())
    assert got["meta"]["edges"] == len(written["input.1.layer.1.head.0.keys"]) == step["inputs"][1]["layers"][1]["heads"][0]["edges"]
    small = run_folder.unpack(get(server, "/api/step/100/input/0/thumbnails")[1])
    assert len(small["pixels"]) == 4 * small["meta"]["size"] ** 2 and small["pixels"].any()
    rows = np.repeat(np.arange(12), np.diff(written["input.0.layer.0.head.1.offsets"]))
    mask = np.zeros((12, 12), bool)  # second picture; a node is four pixels
    mask[rows, written["input.0.layer.0.head.1.keys"]] = True
    np.testing.assert_array_equal(small["pixels"].reshape(4, 48, 48)[1] > 0, np.kron(mask, np.ones((4, 4), bool)))
    given = run_folder.unpack(get(server, "/api/step/100/input/0")[1])
    assert list(given["labels"]) == [9] and len(given["tokens"]) == 12
    for name in ("", "style.css", "raster.js", "app.js"):
        status, data, headers = get(server, "/" + name)
        assert status == 200 and data and "default-src 'none'" in headers["Content-Security-Policy"]


def test_snapshots_that_come_while_it_serves_are_there(serve, small_run, tmp_path):
    import shutil
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    server = serve(folder)
    assert get(server, "/api/step/300")[0] == 404
    run_folder.write_snapshot(folder / "snapshots/step-00000300.safetensors", 300,
                              [{"tokens": [1, 2], "layers": [[run_folder.dense_graph(np.eye(2))]]}])
    assert get(server, "/api/step/300")[0] == 200
    assert json.loads(get(server, "/api/run")[1])["steps"][-1] == 300


@pytest.mark.parametrize("path", [
    "/../config.toml", "/..%2fconfig.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/api/../config.toml", "/config.toml",
    "/metrics.jsonl", "/api/step/../../config.toml", "/api/step/100/input/..%2f..", "/api/step/-1", "/api/step/+100", "/api/step/0100",
    "/api/step/100/", "/api/step/100/input/0/", "/api/step/1e2", "/api/step/99999999999999999999", "/api/step/100/input/2",
    "/api/step/100/input/0/layer/2/head/0", "/api/step/100/input/0/layer/0/head/7", "/api/step/100/input/18446744073709551615",
    "/api/step/50", "/api/", "/api", "/index.html/..", "/snapshots/step-00000100.safetensors", "/app.js%00.css", "/api/run/x"])
def test_nothing_else_is_served(serve, small_run, path):
    status, data, _ = get(serve(small_run), path)
    assert status == 404, data[:200]
    assert b"root:" not in data and b"[data]" not in data
    assert "error" in json.loads(data)


def test_links_out_of_the_run_are_not_followed(serve, small_run, tmp_path):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (folder / "snapshots").mkdir(parents=True)
    (folder / "config.toml").write_text((small_run / "config.toml").read_text())
    (folder / "snapshots/step-00000000.safetensors").write_bytes((small_run / "snapshots/step-00000000.safetensors").read_bytes())
    (outside / "step-00000100.safetensors").write_bytes((small_run / "snapshots/step-00000100.safetensors").read_bytes())
    (folder / "snapshots/step-00000100.safetensors").symlink_to(outside / "step-00000100.safetensors")
    server = serve(folder)
    assert json.loads(get(server, "/api/run")[1])["steps"] == [0]
    assert get(server, "/api/step/100")[0] == 404


@pytest.mark.parametrize("headers", [
    {"Host": "evil.example"}, {"Host": "evil.example:{port}"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1:1"}, {"Host": ""},
    {"Host": "127.0.0.1:{port}.evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
    {"Origin": "https://127.0.0.1:{port}"}, {"Origin": "http://127.0.0.1:{port}.evil.example"}])
def test_other_sites_are_refused(serve, small_run, headers):
    server = serve(small_run)
    status, data, answered = get(server, "/api/run", headers={name: value.replace("{port}", str(server.port)) for name, value in headers.items()})
    assert status == 403 and b"steps" not in data
    assert "Access-Control-Allow-Origin" not in answered


def test_its_own_names_are_taken(serve, small_run):
    server = serve(small_run)
    for headers in ({"Host": f"localhost:{server.port}"}, {"Origin": f"http://127.0.0.1:{server.port}"}):
        assert get(server, "/api/run", headers=headers)[0] == 200
    assert b" 403 " in raw(server, b"GET /api/run HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
    assert b" 403 " in raw(server, b"GET /api/run HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_only_get(serve, small_run, method):
    status, _, headers = get(serve(small_run), "/api/run", method=method, body=b"x" if method in ("POST", "PUT", "PATCH") else None)
    assert status == 405 and headers["Allow"] == "GET"


def test_strange_requests_do_not_end_it(serve, small_run):
    server = serve(small_run)
    for text in (b"\0" * 4000 + b"\r\n\r\n", b"GET " + b"/a" * 20000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n",
                 b"GET /api/run HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX: %s\r\n\r\n" % (server.port, b"y" * 20000),
                 b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 99999999999\r\n\r\n" % server.port):
        raw(server, text)
        assert get(server, "/api/run")[0] == 200


def test_slow_clients_do_not_hold_it_up(serve, small_run):
    server = serve(small_run)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    for connection in idle:
        connection.sendall(b"GET /api")
    start = time.monotonic()
    assert get(server, "/api/run")[0] == 200
    assert time.monotonic() - start < 4
    for connection in idle:
        connection.close()


def resident(process):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])


def test_two_hundred_at_once(serve, small_run):
    server = serve(small_run)
    paths = ["/api/run", "/", "/api/step/200/input/0/layer/1/head/1", "/api/step/100/input/0/thumbnails"]
    wanted = {path: get(server, path)[1] for path in paths}

    def one(n):
        path = paths[n % 4]
        return get(server, path)[1] == wanted[path]

    def round_of_requests():
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            assert all(pool.map(one, range(200)))

    round_of_requests()
    round_of_requests()
    before = resident(server.process)
    for _ in range(4):
        round_of_requests()
    assert resident(server.process) < before + 8 * 1024, "memory grows with requests"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_asked(serve, small_run, sent):
    server = serve(small_run)
    waiting = socket.create_connection(("127.0.0.1", server.port))
    code, err = server.stop(sent)
    assert code == 0, err
    waiting.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=2)


def test_the_port_is_chosen_or_refused(serve, small_run):
    first = serve(small_run)
    second = serve(small_run)
    assert first.port != second.port
    result = subprocess.run([BINARY, "explore", str(small_run), "--port", str(first.port)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and f"expected port {first.port} of 127.0.0.1 to be free" in result.stderr
    first.stop()
    assert serve(small_run, "--port", str(first.port)).port == first.port


def test_only_this_machine_can_ask(serve, small_run):
    server = serve(small_run)
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert f"0100007F:{server.port:04X}" in listening and f"00000000:{server.port:04X}" not in listening


def explained(folder):
    result = subprocess.run([BINARY, "explore", str(folder)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_what_is_no_run_is_explained(tmp_path, small_run):
    assert "expected a run folder" in explained(tmp_path / "none")
    assert "it has no config.toml" in explained(tmp_path)
    (tmp_path / "config.toml").write_text((small_run / "config.toml").read_text())
    assert "train.snapshot_every" in explained(tmp_path)


def test_damaged_snapshots_are_an_error_of_their_own(serve, small_run, tmp_path):
    import shutil
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    whole = (folder / "snapshots/step-00000100.safetensors").read_bytes()
    damaged = bytearray(whole)
    damaged[-8] ^= 1
    server = serve(folder)
    heads = [f"/input/{i}/layer/{l}/head/{h}" for i in (0, 1) for l in (0, 1) for h in (0, 1)]
    for content in (whole[: len(whole) // 2], whole[:7], b"", b"\xff" * 1000, bytes(damaged)):
        (folder / "snapshots/step-00000100.safetensors").write_bytes(content)
        answers = [get(server, "/api/step/100" + part) for part in ("", "/input/0", "/input/1", "/input/0/thumbnails", *heads)]
        assert 500 in [status for status, _, _ in answers]
        assert all("error" in json.loads(data) for status, data, _ in answers if status != 200)
        assert get(server, "/api/step/200")[0] == 200


def test_a_file_that_claims_much_takes_no_memory(serve, small_run, tmp_path):
    import shutil
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)

    def change(about, tensors):
        about["inputs"][0]["layers"][0]["queries"] = 1 << 24
        about["inputs"][0]["length"] = 1 << 24

    run_folder.write_snapshot(folder / "snapshots/step-00000300.safetensors", 300,
                              [{"tokens": [1, 2], "layers": [[run_folder.dense_graph(np.eye(2))]]}], change=change)
    server = serve(folder)
    before = resident(server.process)
    for part in ("", "/input/0", "/input/0/thumbnails", "/input/0/layer/0/head/0"):
        assert get(server, "/api/step/300" + part)[0] == (200 if part == "" else 500)
    assert resident(server.process) < before + 24 * 1024  # it claims 64 MiB and more
