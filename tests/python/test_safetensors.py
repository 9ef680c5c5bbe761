"""Files of the Python safetensors package are read by us, and ours by it."""

import json
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from file_tool import run_file_tool

DTYPES = (
    "bool uint8 int8 float8_e5m2 float8_e4m3fn float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz int16 uint16 float16 "
    "bfloat16 int32 uint32 float32 complex64 float64 int64 uint64"
).split()


def copy(source, target):
    done = run_file_tool("safetensors-copy", source, target)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_tensor(shape, dtype):
    count = torch.Size(shape).numel() * dtype.itemsize
    bytes_ = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8)
    return bytes_.view(dtype).reshape(shape)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_survives_the_round_trip(tmp_path, name):
    dtype = getattr(torch, name)
    tensors = {"matrix": random_tensor((3, 7), dtype), "scalar": random_tensor((), dtype), "empty": torch.empty(0, 4, dtype=dtype)}
    save_file(tensors, tmp_path / "python")
    copy(tmp_path / "python", tmp_path / "ours")
    back = load_file(tmp_path / "ours")
    assert back.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert back[key].dtype == dtype and back[key].shape == tensor.shape
        if tensor.numel():
            assert raw(back[key]) == raw(tensor)


def test_bytes_equal_the_reference_writer(tmp_path):
    # One metadata key: the reference writes several in random order.
    tensors = {f"{i}.{name}": random_tensor((i, 3), getattr(torch, name)) for name in DTYPES for i in (2, 0, 10, 1)}
    tensors["naïve \"quoted\"\n\\ 模型 \x01"] = torch.ones(1)
    save_file(tensors, tmp_path / "python", metadata={"config": json.dumps({"a": "ü\n"})})
    copy(tmp_path / "python", tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "python").read_bytes()


def test_metadata(tmp_path):
    metadata = {"format": "pt", "config": '{"layers": 2}', "": "empty key", "text": "line\nline\t\"ü\""}
    save_file({"x": torch.ones(2)}, tmp_path / "python", metadata=metadata)
    copy(tmp_path / "python", tmp_path / "ours")
    with safe_open(tmp_path / "ours", framework="pt") as file:
        assert file.metadata() == metadata
        assert list(file.keys()) == ["x"]


def test_nothing(tmp_path):
    save_file({}, tmp_path / "python")
    copy(tmp_path / "python", tmp_path / "ours")
    assert load_file(tmp_path / "ours") == {}


def test_large(tmp_path):
    tensors = {"x": torch.randn(1 << 22), "y": torch.arange(1 << 20)}
    save_file(tensors, tmp_path / "python")
    copy(tmp_path / "python", tmp_path / "ours")
    back = load_file(tmp_path / "ours")
    assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items())


def entry(begin, end, shape=(4,)):
    return {"dtype": "U8", "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "header, data",
    [
        ({"a": entry(0, 4), "b": entry(2, 6)}, b"123456"),
        ({"a": entry(0, 4), "b": entry(5, 9)}, b"123456789"),
        ({"a": entry(0, 4)}, b"12345"),
        ({"a": entry(0, 4)}, b"123"),
        ({"a": entry(0, 4, (5,))}, b"1234"),
        ({"a": {"dtype": "U7", "shape": [4], "data_offsets": [0, 4]}}, b"1234"),
        ({"__metadata__": {"k": 1}}, b""),
    ],
)
def test_both_refuse_the_same_damaged_files(tmp_path, header, data):
    text = json.dumps(header).encode()
    (tmp_path / "bad").write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(Exception):
        load_file(tmp_path / "bad")
    done = run_file_tool("safetensors-copy", tmp_path / "bad", tmp_path / "ours")
    assert done.returncode == 1
    assert str(tmp_path / "bad") in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "ours").exists()
