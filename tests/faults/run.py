#!/usr/bin/env python3
"""Lets every call of a run that changes files go wrong, once each and in every way; then resumes the run.

    run.py PROGRAM LIBRARY                  a sample, as the tests run it
    run.py PROGRAM LIBRARY --all            every call, every kind of fault, every power cut, 200 random kills

What must hold, whatever happened:
- a checkpoint that was finished is there, byte for byte, or a later one of its name;
- a run that could not go on says so in a sentence with the file and the reason, and does not exit with 0;
- `train --resume` ends with the files of an undisturbed run, byte for byte, but for times and memory in metrics.jsonl.
"""

import argparse
import collections
import datetime
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import power_cut
from fault_server import FaultServer

HERE = pathlib.Path(__file__).resolve().parent
DEATHS = ("kill", "torn")
ERRORS = {"full": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS, "broken": errno.EIO, "lost-answer": errno.ESTALE}
HARMLESS = ("interrupted", "short")  # nothing may be seen of them
CUTS = ("sure", "names", "random")


def without_times(text):
    lines = []
    for line in text.splitlines():
        record = json.loads(line)
        lines.append({key: value for key, value in record.items() if not key.startswith(("time_", "memory_"))})
    return json.dumps(lines).encode()


def outcome(folder):
    """Name -> contents of what must not depend on how often the run was disturbed."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or "tfevents" in name or name == ".lock":
            continue
        files[name] = without_times(path.read_text()) if name == "metrics.jsonl" else path.read_bytes()
    return files


def difference(found, wanted):
    """Empty when both are the same."""
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            state = "is missing" if name not in found else "should not be there" if name not in wanted else "differs"
            return f"{name} {state}"
    return ""


class Harness:
    def __init__(self, server, scratch, sets=()):
        self.server, self.scratch = server, scratch
        self.sets = [word for each in sets for word in ("--set", each)]
        self.watched = scratch / "watched"  # the folder of the run and what is made beside it
        self.run = self.watched / "run"
        self.failures = []
        self._reference()

    def train(self, **fault):
        # So that a run that never began is begun: the recipe is named beside the folder.
        words = ["train", HERE / "tiny.toml", "--run", self.run, "--resume", "--quiet", *self.sets]
        return self.server.run(words, **fault)

    def clear(self):
        shutil.rmtree(self.watched, ignore_errors=True)
        self.watched.mkdir()

    def _reference(self):
        self.clear()
        self.train()  # the first is slower than those that follow
        self.clear()
        start = time.monotonic()
        done = self.train(folder=self.watched, trace=self.scratch / "trace")
        self.seconds = time.monotonic() - start
        if done.status != 0:
            sys.exit(f"the undisturbed run ended with {done.status}: {done.err}")
        self.wanted = outcome(self.run)
        self.calls = power_cut.read_trace(self.scratch / "trace")
        self.count = sum(map(power_cut.is_counted, self.calls))
        # What each file was, one after the other, and how many of these were finished before each call.
        disk, self.versions, self.finished = power_cut.PowerCut(), collections.defaultdict(list), [{}]
        for call in self.calls:
            disk.play(call)
            if call.operation == "rename":
                self.versions[call.to].append(hashlib.sha256(disk.now[call.to].now).hexdigest())
            if power_cut.is_counted(call):
                self.finished.append({path: len(all_of) for path, all_of in self.versions.items()})
        self.clear()

    def fail(self, case, what):
        self.failures.append(f"{case}: {what}")
        print(f"FAILED {case}: {what}", flush=True)

    def check_checkpoints(self, case, finished):
        for path, count in finished.items():
            place = pathlib.Path(path)
            if place.suffix != ".safetensors" or "checkpoints/step-" in path:  # of those the oldest go
                continue
            if not place.exists():
                return self.fail(case, f"{place.name} was finished and is gone")
            digest = hashlib.sha256(place.read_bytes()).hexdigest()
            if digest not in self.versions[path][count - 1:]:
                return self.fail(case, f"{place.name} is neither the one that was finished nor a later one")

    def check_resumed(self, case):
        done = self.train()
        if done.status != 0:
            return self.fail(case, f"resuming ended with {done.status}: {done.err.strip()}")
        wrong = difference(outcome(self.run), self.wanted)
        if wrong:
            self.fail(case, f"after resuming, {wrong}")

    def check_message(self, case, kind, done):
        if done.status == 0:
            wrong = difference(outcome(self.run), self.wanted)
            return self.fail(case, f"exit 0 though {wrong}") if wrong else None
        if done.status != 1:
            return self.fail(case, f"ended with {done.status}: {done.err.strip()[-300:]}")
        last = done.err.strip().splitlines()[-1] if done.err.strip() else ""
        reasons = [os.strerror(ERRORS[kind])] + ([os.strerror(errno.ENOENT)] if kind == "lost-answer" else [])
        if not last.startswith("edgewise: ") or str(self.watched) not in last or not any(r in last for r in reasons):
            self.fail(case, f"expected a sentence with the file and '{reasons[0]}'; found '{last}'")

    def fault(self, kind, at):
        case = f"{kind} at call {at} of {self.count}"
        self.clear()
        done = self.train(folder=self.watched, at=at, kind=kind)
        if kind in DEATHS and done.status != -9:
            return self.fail(case, f"expected SIGKILL; it ended with {done.status}: {done.err.strip()}")
        if kind in HARMLESS:
            wrong = done.err.strip() if done.status else difference(outcome(self.run), self.wanted)
            return self.fail(case, f"nothing should be seen of it: {wrong}") if wrong else None
        if kind in ERRORS:
            self.check_message(case, kind, done)
        self.check_checkpoints(case, self.finished[at - 1])
        self.check_resumed(case)

    def power_cut(self, how, at):
        case = f"power cut ({how}) before call {at} of {self.count}"
        disk, played = power_cut.PowerCut(), 0
        for call in self.calls:
            played += power_cut.is_counted(call)
            if played == at:
                break
            disk.play(call)
        self.clear()
        power_cut.write_out(disk.left(how, seed=at), self.watched, self.watched)
        # A file is finished when its folder is synced and closed, and that folder's own, where it is new: five calls behind
        # the rename at most.
        self.check_checkpoints(case, self.finished[max(0, at - 6)])
        self.check_resumed(case)

    def random_kills(self, count, chance):
        """Kills at any time, several to a run, until `count` of them have hit; returns how many runs that took."""
        kills = runs = 0
        while kills < count:
            self.clear()
            runs += 1
            for _ in range(chance.randint(1, 4)):
                done = self.train(kill_after=chance.uniform(0, self.seconds))
                kills += done.status == -9
                if done.status not in (0, -9):
                    self.fail(f"random kill {kills}", f"ended with {done.status}: {done.err.strip()}")
            self.check_resumed(f"run {runs} after {kills} random kills")
        return runs


def calls_to_disturb(calls, few_writes):
    """Numbers of the counted calls; of a row of writes to one file, with few_writes, the first two and the last."""
    counted = [call for call in calls if power_cut.is_counted(call)]
    numbers = []
    for number, call in enumerate(counted, 1):
        alike = lambda n: 0 < n <= len(counted) and counted[n - 1].operation == "write" and counted[n - 1].fd == call.fd
        inside = call.operation == "write" and alike(number - 1) and alike(number - 2) and alike(number + 1)
        if not (few_writes and inside):
            numbers.append(number)
    return numbers


def cases_of(harness, kinds, every, few_writes):
    """(kind, call): all of them, or a sample that still has every kind and every operation."""
    operations = [call.operation for call in harness.calls if power_cut.is_counted(call)]
    for index, kind in enumerate(kinds):
        for at in calls_to_disturb(harness.calls, few_writes):
            if kind == "torn" and operations[at - 1] != "write":
                continue  # the same as kill
            if kind in ("short", "interrupted") and operations[at - 1] in ("rename", "unlink", "mkdir", "close"):
                continue  # nothing happens
            if (at + index * 7) % every == 0:
                yield kind, at


def commit_of(folder):
    done = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--all", action="store_true", help="every call instead of a sample, and 200 random kills")
    parser.add_argument("--every", type=int, help="one call of so many, of each kind")
    parser.add_argument("--few-writes", action="store_true", help="of a row of writes to a file the first two and the last")
    parser.add_argument("--kinds", default=",".join((*DEATHS, *ERRORS, *HARMLESS)))
    parser.add_argument("--cuts", default=",".join(CUTS))
    parser.add_argument("--kills", type=int, help="random kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=pathlib.Path, help="append what was found to this file, a line of JSON")
    arguments = parser.parse_args()
    every = arguments.every or (1 if arguments.all else 53)
    kills = arguments.kills if arguments.kills is not None else (200 if arguments.all else 4)
    start, scratch, count = time.monotonic(), pathlib.Path(tempfile.mkdtemp(prefix="edgewise-faults-")), collections.Counter()
    try:
        with FaultServer(arguments.program, arguments.library) as server:
            harness = Harness(server, scratch)
            print(f"{harness.count} calls in a run of {harness.seconds:.2f} s; one of {every} goes wrong", flush=True)
            for kind, at in cases_of(harness, [kind for kind in arguments.kinds.split(",") if kind], every,
                                     arguments.few_writes):
                harness.fault(kind, at)
                count[kind] += 1
            for cut in [cut for cut in arguments.cuts.split(",") if cut]:
                for at in calls_to_disturb(harness.calls, arguments.few_writes)[len(count) % every::every]:
                    harness.power_cut(cut, at)
                    count["power cut, " + cut] += 1
            failures = harness.failures
            if kills:
                long = Harness(server, scratch, ["train.steps=60"])
                count["random kill"] = kills
                runs = long.random_kills(kills, random.Random(arguments.seed))
                print(f"{kills} random kills in {runs} runs", flush=True)
                failures = failures + long.failures
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.monotonic() - start
    print(f"{sum(count.values())} faults ({', '.join(f'{n} {kind}' for kind, n in count.items())}) in {seconds:.0f} s: "
          f"{len(failures)} failures")
    if arguments.log:
        words = ["tests/faults/run.py"] + [word for word in sys.argv[3:] if "--log" not in word and word != str(arguments.log)]
        record = {"kind": "faults", "date": datetime.date.today().isoformat(), "commit": commit_of(HERE),
                  "command": " ".join(words), "calls": harness.count, "faults": dict(count), "failures": len(failures),
                  "seconds": round(seconds)}
        with arguments.log.open("a") as file:
            file.write(json.dumps(record) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
