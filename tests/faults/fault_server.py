"""Starts the program thousands of times through the fork server of fault_library.cpp."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import threading


@dataclasses.dataclass
class Result:
    status: int  # exit status; -9 when SIGKILL ended it
    out: str
    err: str


class FaultServer:
    """One process that has libtorch loaded; each call of run() is a fork of it."""

    def __init__(self, program, library, timeout=60):
        self.timeout = timeout
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="edgewise-server-"))
        environment = dict(os.environ, LD_PRELOAD=str(library), EDGEWISE_FAULT_SERVER="1", OMP_NUM_THREADS="1")
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def run(self, arguments, folder="", at=0, kind="none", trace="", kill_after=None):
        """kill_after: seconds after which SIGKILL comes from outside."""
        out, err = self.scratch / "out", self.scratch / "err"
        fields = [str(out), str(err), str(folder), str(at), kind, str(trace), "edgewise", *map(str, arguments)]
        self.process.stdin.write(("\x1f".join(fields) + "\n").encode())
        self.process.stdin.flush()
        started = self._line("started")
        # A program that hangs is as wrong as one that crashes.
        timer = threading.Timer(self.timeout if kill_after is None else kill_after, _kill, [started])
        timer.start()
        status = self._line("ended")
        timer.cancel()
        code = os.waitstatus_to_exitcode(status)
        return Result(code, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def _line(self, word):
        words = self.process.stdout.readline().decode().split()
        if len(words) != 2 or words[0] != word:
            raise RuntimeError(f"fault server: expected '{word} NUMBER'; found {words}, and it ended with {self.process.poll()}")
        return int(words[1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        for name in ("out", "err"):
            (self.scratch / name).unlink(missing_ok=True)
        self.scratch.rmdir()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def _kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
