#!/usr/bin/env python3
"""libFuzzer over the readers: run.py PROGRAM [TARGET] [SECONDS] [--log FILE].

Corpora live in build/fuzz/corpus and grow; an input that crashes lies in build/fuzz/crashes and belongs, once its cause is
mended, into tests/fuzz/found/TARGET. Exit 1 where there was one.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RSS_MB, MALLOC_MB, TIMEOUT_S, LONGEST = 2048, 512, 20, 65536
SANITIZERS = "detect_leaks=0:protect_shadow_gap=0:detect_odr_violation=0:detect_container_overflow=0:allocator_may_return_null=0:" \
             "quarantine_size_mb=16:handle_abort=1:symbolize=1"


def fuzz(program, target, seconds, work):
    """Runs of libFuzzer until the time is over; returns how many inputs there were and which crashed."""
    corpus, crashes, found = work / "corpus" / target, work / "crashes" / target, ROOT / "tests/fuzz/found" / target
    for folder in (corpus, crashes):
        folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, ASAN_OPTIONS=SANITIZERS, UBSAN_OPTIONS="print_stacktrace=1", OMP_NUM_THREADS="1")
    subprocess.run([program, f"--target={target}", f"--seeds={corpus}"], env=environment, check=True, stdout=subprocess.DEVNULL)
    before = set(crashes.iterdir())
    command = [program, f"--target={target}", f"-max_total_time={seconds}", f"-rss_limit_mb={RSS_MB}", f"-malloc_limit_mb={MALLOC_MB}",
               f"-timeout={TIMEOUT_S}", f"-max_len={LONGEST}", "-print_final_stats=1", f"-artifact_prefix={crashes}/", corpus]
    done = subprocess.run(command + ([found] if found.is_dir() else []), env=environment, capture_output=True, text=True, errors="replace")
    (work / f"{target}.log").write_text(done.stderr)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    rss = re.search(r"stat::peak_rss_mb:\s*(\d+)", done.stderr)
    crashed = sorted(set(crashes.iterdir()) - before)
    if done.returncode != 0 and not crashed:
        sys.exit(f"fuzz: {target} ended with {done.returncode}, and no input is to blame:\n{done.stderr[-2000:]}")
    return int(runs[1]) if runs else 0, int(rss[1]) if rss else 0, crashed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("target", nargs="?", default="all")
    parser.add_argument("seconds", nargs="?", type=int, default=60)
    parser.add_argument("--log", type=pathlib.Path, help="append what was done to this file, a line of JSON a target")
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    listed = subprocess.run([program], capture_output=True, text=True, check=True, env=dict(os.environ, ASAN_OPTIONS=SANITIZERS)).stdout
    names = [line.split("\t")[0] for line in listed.splitlines()]
    if arguments.target != "all" and arguments.target not in names:
        sys.exit(f"fuzz: expected all or one of {', '.join(names)}; got {arguments.target}")
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True).stdout.strip()
    work, crashes = program.parent.parent, 0
    for target in names if arguments.target == "all" else [arguments.target]:
        start = time.monotonic()
        runs, rss, crashed = fuzz(program, target, arguments.seconds, work)
        seconds = time.monotonic() - start
        print(f"{target}: {runs} inputs in {seconds:.0f} s, {rss} MB" + "".join(f"\n  crashed: {path}" for path in crashed), flush=True)
        crashes += len(crashed)
        if arguments.log:
            record = {"kind": "fuzz", "target": target, "date": datetime.date.today().isoformat(), "commit": commit,
                      "command": f"./run fuzz {target} {arguments.seconds}", "inputs": runs, "crashes": len(crashed),
                      "peak_mb": rss, "seconds": round(seconds)}
            with arguments.log.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
