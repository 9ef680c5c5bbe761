"""As a user would: a wheel, a clean environment, a layer that learns. Also with the library for a torch without CUDA.

The clean environment sees torch of the one that runs this (it is large), but nothing of the source tree.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

LEARN = """
import torch, edgewise
torch.manual_seed(0)
attention = edgewise.nn.MultiheadEdgeAttention(16, 2, edgewise.nn.SbmEdges(2, 8), density_weight=0.5)
optimizer = torch.optim.Adam(attention.parameters(), lr=1e-2)
densities = []
for step in range(150):
    optimizer.zero_grad()
    with edgewise.record() as seen:
        out, _ = attention(torch.randn(4, 24, 16))
    (0 * out.sum()).backward()
    optimizer.step()
    densities.append(seen.density.mean().item())
assert densities[-1] < 0.5 * densities[0], densities[::20]
assert "<script" in edgewise.explore(attention, torch.randn(1, 24, 16)).html
print("learned", edgewise.__version__, edgewise.library_path)
"""
# A torch without CUDA says so in torch.version, and cannot load a library that needs CUDA's.
WITHOUT_CUDA = "import torch; torch.version.cuda = None\n"


def run(*command, **options) -> str:
    done = subprocess.run([str(x) for x in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))[:300]}\n{done.stdout[-6000:]}")
    return done.stdout


def clean_environment(work: Path) -> Path:
    """A venv with this one's packages on its path, save for edgewise."""
    environment = work / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    ours, theirs = (Path(run(x, "-c", asked).strip()) for x in (sys.executable, python))
    # A .pth inside a folder named by a .pth is not read, so the tree's edgewise.pth does not reach the clean environment.
    (theirs / "torch-of-another.pth").write_text(f"{ours}\n")
    return python


def needed(library: Path) -> str:
    return run("readelf", "-d", library)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("source", "built", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EDGEWISE_LIBRARY")}

    run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index",
        "-C", f"build-dir={given.work / 'build'}", "-C", f"cmake.define.EDGEWISE_BUILT={given.built}", "--wheel-dir", given.work,
        given.source, env=environment)
    wheel, = given.work.glob("edgewise-*.whl")
    assert "-py3-none-linux" in wheel.name, wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("edgewise/__init__.py", "edgewise/py.typed", "edgewise/nn/sbm.py", "edgewise/hf/attach.py", "edgewise/doctor.py",
                 "edgewise/_built_for.py", "edgewise/libedgewise.so", "edgewise/exploring.py", "edgewise/page/index.html"):
        assert name in names, f"expected {name} in the wheel; found {names}"
    assert not [x for x in names if x.endswith((".pyc", ".cpp", ".h"))]

    python = clean_environment(given.work)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check", "--no-deps", "--no-index",
        wheel, env=environment)
    package = run(python, "-c", "import edgewise; print(edgewise.__file__)", cwd=given.work, env=environment).strip()
    assert str(given.work) in package, f"expected the installed package; imported {package}"
    print(run(python, "-c", LEARN, cwd=given.work, env=environment))
    folder = Path(package).parent
    built_for = run(python, "-c", "import edgewise._built_for as b; print(b.CUDA)", cwd=given.work, env=environment).strip()
    assert (folder / "libedgewise_cpu.so").is_file() == bool(built_for), f"built for CUDA '{built_for}'; found {names}"
    if built_for:
        assert "libtorch_cuda" in needed(folder / "libedgewise.so")
        assert "cuda" not in needed(folder / "libedgewise_cpu.so").replace(str(given.source), "")
        told = run(python, "-c", WITHOUT_CUDA + LEARN, cwd=given.work, env=environment)
        assert "libedgewise_cpu.so" in told, told
        print(told)
    print(run(python, "-m", "edgewise.doctor", cwd=given.work, env=environment))
    refusal = f"import edgewise._library as l\ntry: l.check_torch('2.11.0', '2.12.1+cpu')\nexcept ImportError as e: print(e)"
    assert "expected torch 2.11" in run(python, "-c", refusal, cwd=given.work, env=environment)


if __name__ == "__main__":
    main()
