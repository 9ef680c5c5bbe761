"""Finds the compiled library and loads it, which registers ``torch.ops.edgewise``."""

import os
from pathlib import Path

import torch


def find() -> Path:
    named = os.environ.get("EDGEWISE_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ImportError(f"edgewise: EDGEWISE_LIBRARY names {path}, which is not a file")
        return path
    here = Path(__file__).resolve().parent
    candidates = [here / "libedgewise.so"]
    candidates += [here.parents[1] / "build" / preset / "lib" / "libedgewise.so" for preset in ("cuda", "release", "dev")]
    found = [path for path in candidates if path.is_file()]
    if not found:
        tried = ", ".join(str(path) for path in candidates)
        raise ImportError(f"edgewise: no built library found (tried {tried}). Run ./run build, or set EDGEWISE_LIBRARY")
    return max(found, key=lambda path: path.stat().st_mtime)


library_path = find()
torch.ops.load_library(str(library_path))
