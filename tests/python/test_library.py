"""Which library is loaded, and what python -m edgewise.doctor says of it."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import edgewise
from edgewise import _library, doctor


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", edgewise.__version__)


def test_doctor(capsys):
    assert doctor.main() == 0
    told = capsys.readouterr().out
    assert str(edgewise.library_path) in told and torch.__version__ in told
    assert re.search(r"^cpu .*a learned layer runs, forward and backward", told, re.M)


def test_doctor_without_a_library():
    done = subprocess.run([sys.executable, "-m", "edgewise.doctor"], text=True, capture_output=True,
                          env={**os.environ, "EDGEWISE_LIBRARY": "/nowhere/libedgewise.so"})
    assert done.returncode == 1 and "EDGEWISE_LIBRARY names /nowhere/libedgewise.so" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_library_that_cannot_be_loaded_says_what_to_do(tmp_path):
    (tmp_path / "libedgewise.so").write_bytes(b"no library")
    done = subprocess.run([sys.executable, "-m", "edgewise.doctor"], text=True, capture_output=True,
                          env={**os.environ, "EDGEWISE_LIBRARY": str(tmp_path / "libedgewise.so")})
    assert done.returncode == 1 and "the system cannot load it" in done.stderr and "Build it anew" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", [None, "4.57.1"])
def test_without_transformers_5_the_rest_works(version):
    code = (f"import sys, types; fake = types.ModuleType('transformers'); fake.__version__ = '{version}'\n"
            f"sys.modules['transformers'] = {'None' if version is None else 'fake'}\n"
            "from edgewise import *; import edgewise\n"
            "assert not hasattr(edgewise, 'hf') and load\n"
            "edgewise.hf")
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert "expected the package transformers, version 5" in done.stderr.splitlines()[-1]
    assert version is None or f"found {version}" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("cuda, built, name", [("13.0", "13.0.88", "libedgewise.so"), (None, "13.0.88", "libedgewise_cpu.so"),
                                               ("12.8", "13.0.88", "libedgewise_cpu.so"), ("13.0", "", "libedgewise.so")])
def test_of_two_libraries_the_one_that_torch_can_load(cuda, built, name, monkeypatch, tmp_path):
    for each in ("libedgewise.so", "libedgewise_cpu.so"):
        (tmp_path / each).touch()
    monkeypatch.delenv("EDGEWISE_LIBRARY", raising=False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(_library, "HERE", tmp_path)
    monkeypatch.setattr(_library, "_built_for", lambda: SimpleNamespace(CUDA=built))
    assert _library.find() == tmp_path / name


def test_no_library_says_where_it_looked(monkeypatch, tmp_path):
    monkeypatch.delenv("EDGEWISE_LIBRARY", raising=False)
    monkeypatch.setattr(_library, "HERE", tmp_path / "some" / "package")
    with pytest.raises(ImportError, match="no built library found.*some/package/libedgewise.*run build"):
        _library.find()


@pytest.mark.parametrize("found, fits", [("2.11.3+cpu", True), ("2.12.0", False), ("3.11.0", False)])
def test_a_wheel_is_for_one_minor_version_of_torch(found, fits):
    if fits:
        _library.check_torch("2.11.0+cu130", found)
    else:
        with pytest.raises(ImportError, match=r"expected torch 2\.11.*pip install"):
            _library.check_torch("2.11.0+cu130", found)
