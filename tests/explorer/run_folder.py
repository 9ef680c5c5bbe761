"""Run folders with snapshots, written from docs/reference/files.md alone: no line of the library's own writer."""
import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save

CONFIG = '[data]\nname = "repeated_tokens"\n[model]\nlayers = {layers}\nheads = {heads}\n[attention]\nkind = "random"\n'


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def random_graph(nodes, per_row, seed=0):
    """Per query so many different keys, the weights of a row with sum 1."""
    rng = np.random.default_rng(seed)
    keys = np.sort(np.stack([rng.choice(nodes, per_row, replace=False) for _ in range(nodes)]), axis=1).astype(np.int32)
    weights = rng.dirichlet(np.full(per_row, 0.3), nodes).astype(np.float16)
    offsets = np.arange(0, nodes * per_row + 1, per_row, dtype=np.int32)
    return {"offsets": offsets, "keys": keys.ravel(), "weights": weights.ravel()}


def dense_graph(matrix):
    """From weights [L, S], 0 = no edge."""
    keys = [np.flatnonzero(row) for row in matrix]
    return {"offsets": np.cumsum([0] + [len(row) for row in keys]).astype(np.int32),
            "keys": np.concatenate(keys).astype(np.int32), "weights": matrix[matrix != 0].astype(np.float16)}


def write_snapshot(path, step, inputs, task="repeated_tokens", names=(), picture_width=0, causal=False, pieces=None, change=None):
    """inputs: [{"tokens": [N], "layers": [[head, ...], ...], "unit": 1, ...}]; a head is a graph, with memberships or not.

    With "target" [T] and "places" [(name, of_target, looks_at_target), ...] the layers are of a translation.
    """
    tensors, about = {}, {"step": step, "task": task, "causal": causal, "picture_width": picture_width, "token_names": list(names), "inputs": []}
    if pieces:
        about["pieces"] = sorted(pieces.items())
    for i, given in enumerate(inputs):
        length, unit = len(given["tokens"]), given.get("unit", 1)
        for name in ("tokens", "labels", "predicted", "positions"):
            if name in given:
                tensors[f"input.{i}.{name}"] = np.asarray(given[name], dtype=np.int32)
        if "valid" in given:
            tensors[f"input.{i}.valid"] = np.asarray(given["valid"], dtype=bool)
        for name in ("offsets", "keys"):
            for kind in ("right", "given"):
                if kind in given:
                    tensors[f"input.{i}.{kind}.{name}"] = given[kind][name]
        if "target" in given:
            tensors[f"input.{i}.target.tokens"] = np.asarray(given["target"], dtype=np.int32)
        places = given.get("places", [("", False, False)] * len(given["layers"]))
        layers = []
        for l, heads in enumerate(given["layers"]):
            figures = []
            called, of_target, looks_at_target = places[l]
            sizes = [-(-(len(given["target"]) if is_target else length) // unit) for is_target in (of_target, looks_at_target)]
            for h, head in enumerate(heads):
                for name, value in head.items():
                    tensors[f"layer.{l}.head.{h}.{name}" if name == "block_matrix" else f"input.{i}.layer.{l}.head.{h}.{name}"] = value
                count = len(head["keys"])
                figures.append({"edges": count * unit * unit, "chosen": count, "density": count / sizes[0] / sizes[1]})
            layers.append({"unit": unit, "queries": sizes[0], "keys": sizes[1], "membership_stride": 1, "heads": figures})
            if called:
                layers[-1].update(name=called, of_target=of_target, looks_at_target=looks_at_target)
        about["inputs"].append({"example": given.get("example", i), "tower": 0, "length": length, "layers": layers})
        if "target" in given:
            about["inputs"][-1]["target_length"] = len(given["target"])
        if "name" in given:
            about["inputs"][-1]["name"] = given["name"]
    if change:
        change(about, tensors)
    checksums = "".join(f"{name} {crc32c(np.ascontiguousarray(value).tobytes()):08x}\n" for name, value in sorted(tensors.items()))
    metadata = {"format": "edgewise.snapshot.1", "about": json.dumps(about), "checksums": checksums}
    Path(path).write_bytes(save(tensors, metadata))


def make_run(folder, snapshots, layers=1, heads=1, metrics=True, config=CONFIG):
    """snapshots: {step: arguments of write_snapshot beside path and step}"""
    folder = Path(folder)
    (folder / "snapshots").mkdir(parents=True)
    (folder / "config.toml").write_text(config.format(layers=layers, heads=heads))
    with open(folder / "metrics.jsonl", "w") as file:
        for step in sorted(snapshots) if metrics else []:
            density = [0.5 / (1 + step / 50) / (1 + n) for n in range(layers * heads)]
            file.write(json.dumps({"kind": "train", "step": step, "loss": 1.0, "density": density}) + "\n")
    for step, arguments in snapshots.items():
        write_snapshot(folder / "snapshots" / f"step-{step:08d}.safetensors", step, **arguments)
    return folder


def unpack(data):
    """What the server sends as binary: {"meta": ..., name: array}."""
    size, = struct.unpack_from("<I", data)
    header = json.loads(data[4:4 + size])
    place, result = 4 + size, {"meta": header["meta"]}
    for part in header["parts"]:
        dtype = np.dtype({"i32": "<i4", "f32": "<f4", "f16": "<f2", "u8": "u1"}[part["type"]])
        result[part["name"]] = np.frombuffer(data, dtype, part["count"], place)
        place += -(-part["count"] * dtype.itemsize // 8) * 8
    return result
