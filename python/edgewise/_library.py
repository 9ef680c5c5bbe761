"""Finds the compiled library and loads it, which registers ``torch.ops.edgewise``.

There may be two: libedgewise.so, and libedgewise_cpu.so for a torch without CUDA, which cannot load a library with CUDA
kernels. A wheel says what its libraries were built for; a build of the source tree is for the torch of its .venv.
"""

import os
import re
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def find() -> Path:
    named = os.environ.get("EDGEWISE_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ImportError(f"edgewise: EDGEWISE_LIBRARY names {path}, which is not a file")
        return path
    built_for = _built_for()
    names = ["libedgewise.so"] if _fits_cuda(built_for) else ["libedgewise_cpu.so", "libedgewise.so"]
    # Beside the package: a wheel, then cmake --install.
    for folder in (HERE, HERE.parents[1]):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    builds = [HERE.parents[1] / "build" / preset / "lib" for preset in ("cuda", "release", "dev")]
    for name in names:
        found = [folder / name for folder in builds if (folder / name).is_file()]
        if found:
            return max(found, key=lambda path: path.stat().st_mtime)
    tried = ", ".join(str(folder / names[0]) for folder in (HERE, HERE.parents[1], *builds))
    raise ImportError(f"edgewise: no built library found (tried {tried}). Run ./run build, or set EDGEWISE_LIBRARY")


def _built_for():
    """What the libraries of a wheel were built for; None in a source tree."""
    try:
        from . import _built_for as said
    except ImportError:
        return None
    check_torch(said.TORCH, torch.__version__)
    return said


def check_torch(built: str, found: str) -> None:
    """Libraries of torch change their symbols from one minor version to the next."""
    minor = lambda version: version.split("+")[0].split(".")[:2]
    if minor(built) != minor(found):
        wanted = ".".join(minor(built))
        raise ImportError(f"edgewise: expected torch {wanted}, for which this wheel was built; found {found}. Run pip install "
                          f"'torch=={wanted}.*', or build the wheel anew: pip install . --no-build-isolation")


def _fits_cuda(built_for) -> bool:
    if torch.version.cuda is None:
        return False
    return built_for is None or not built_for.CUDA or built_for.CUDA.split(".")[0] == torch.version.cuda.split(".")[0]


def version() -> str:
    """CMakeLists.txt states it."""
    said = _built_for()
    if said is not None:
        return said.VERSION
    return re.search(r"project\(edgewise VERSION ([0-9.]+)", (HERE.parents[1] / "CMakeLists.txt").read_text()).group(1)


def _load() -> Path:
    # An ImportError that names the package is told by python -m edgewise.doctor in one line.
    try:
        path = find()
        torch.ops.load_library(str(path))
    except ImportError as error:
        raise ImportError(str(error), name="edgewise") from None
    except OSError as error:
        raise ImportError(f"edgewise: expected {path} to be a library for torch {torch.__version__}; the system cannot load it: "
                          f"{error}. Build it anew with this torch, or let EDGEWISE_LIBRARY name another", name="edgewise"
                          ) from None
    return path


library_path = _load()
