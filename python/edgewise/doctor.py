"""python -m edgewise.doctor: what is installed, and whether a layer learns with it. Exits 1 when something is wrong.

The command line's `edgewise doctor` tells more of the machine and of its kernels.
"""

import os
import platform
import sys

import torch

import edgewise

__all__ = ["main"]


def main() -> int:
    say = lambda name, what: print(f"{name:<14}{what}")
    say("edgewise", f"{edgewise.__version__} in {os.path.dirname(edgewise.__file__)}")
    say("library", edgewise.library_path)
    say("python", f"{platform.python_version()} on {platform.platform()}")
    say("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    try:
        import transformers

        say("transformers", f"{transformers.__version__}: edgewise.hf works with version 5")
    except ImportError:
        say("transformers", "not installed; only edgewise.hf wants it")
    wrong = 0
    for device in ["cpu"] + [f"cuda:{n}" for n in range(torch.cuda.device_count())]:
        try:
            say(device, f"{_name(device)}: {_learn(device)}")
        except Exception as error:  # whatever it is, the reader wants to see it beside the other devices
            say(device, f"{_name(device)}: {type(error).__name__}: {error}")
            wrong = 1
    if not torch.cuda.is_available():
        say("cuda", "torch sees no GPU" if torch.version.cuda else "this torch is without CUDA")
    return wrong


def _name(device: str) -> str:
    if device == "cpu":
        return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    major, minor = torch.cuda.get_device_capability(device)
    if edgewise.library_path.name == "libedgewise_cpu.so":
        kernels = "plain torch operations, since this library is without CUDA"
    else:
        kernels = "kernels of our own" if major == 9 else "plain torch operations, since the kernels are for Hopper"
    return f"{torch.cuda.get_device_name(device)} ({major}.{minor}, {kernels})"


def _learn(device: str) -> str:
    """A step of a learned layer."""
    attention = edgewise.nn.MultiheadEdgeAttention(32, 2, edgewise.nn.SbmEdges(2, 16), density_weight=0.1).to(device)
    with edgewise.record() as seen:
        out, _ = attention(torch.randn(2, 64, 32, device=device))
    out.square().mean().backward()
    grads = [x.grad for x in attention.parameters()]
    if not all(x is not None and bool(x.isfinite().all()) for x in grads):
        raise RuntimeError("expected finite gradients of every parameter")
    return f"a learned layer runs, forward and backward, density {seen.density.mean().item():.2f}"


if __name__ == "__main__":
    sys.exit(main())
