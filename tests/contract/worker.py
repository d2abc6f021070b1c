#!/usr/bin/env python3
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A worker for scheduler tests: reports what it was given, then does as it is told.

It writes one report into $WORKER_REPORTS. SIGUSR1 makes it exit 0, SIGUSR2 exit 3. Words in
$WORKER_MODE: "stubborn" ignores SIGTERM; "fork" starts a child in a session of its own first;
"note" writes SLICE.HOST.PID.NAME for SIGTERM and SIGHUP, one line each time; "oblige" exits 0 on
SIGTERM.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def _leave(code: int) -> None:
    os._exit(code)


def _note(number: int, _frame: object) -> None:
    place = f"{os.environ['PATHWAYS_SLICE_INDEX']}.{os.environ['PATHWAYS_HOST_INDEX']}"
    name = f"{place}.{os.getpid()}.{signal.Signals(number).name}"
    with (Path(os.environ["WORKER_REPORTS"]) / name).open("a") as file:
        file.write(f"{number}\n")


def main() -> None:
    """Never returns by itself."""
    signal.signal(signal.SIGUSR1, lambda *_: _leave(0))
    signal.signal(signal.SIGUSR2, lambda *_: _leave(3))
    modes = os.environ["WORKER_MODE"].split()
    children = []
    if "stubborn" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "note" in modes:
        signal.signal(signal.SIGTERM, _note)
        signal.signal(signal.SIGHUP, _note)
    if "oblige" in modes:
        signal.signal(signal.SIGTERM, lambda *_: _leave(0))
    if "fork" in modes:
        child = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
        children.append(child.pid)
    raw = Path("/proc/self/environ").read_bytes().decode().split("\0")
    report = {
        "slice": int(os.environ["PATHWAYS_SLICE_INDEX"]),
        "host": int(os.environ["PATHWAYS_HOST_INDEX"]),
        "incarnation": int(os.environ["PATHWAYS_INCARNATION"]),
        "pid": os.getpid(),
        "children": children,
        "env": dict(item.split("=", 1) for item in raw if item),
        "argv": sys.argv[1:],
        "stdin": str(Path("/proc/self/fd/0").readlink()),
        "is_session_leader": os.getsid(0) == os.getpid(),
    }
    print(f"worker {report['slice']} {report['host']} {report['incarnation']}", flush=True)
    print("a word on stderr", file=sys.stderr, flush=True)
    reports = Path(os.environ["WORKER_REPORTS"])
    draft = reports / f".{os.getpid()}"
    draft.write_text(json.dumps(report))
    draft.rename(reports / f"{report['slice']}.{report['host']}.{os.getpid()}.json")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
