# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Random kills, stops and notices while a program computes: does anything of the runtime grow?

Usage: python benchmarks/soak.py [--events N=50] [--session N=10] [--seed N=1]

Runs `pathways-emulator serve` with three slices, and one program after the other that computes on
all of them. At each event a slice is killed (SIGKILL), stopped (SIGSTOP) or given notice (SIGTERM),
and revived once it has gone. The program must compute right results again, and must not have lost
anything if there was a notice. After so many events, a session, it ends. Then nothing is held for
anyone, and what is left is measured: memory, threads and descriptors of `serve`, of the resource
manager and of the proxy, processes, and files.

Prints a table of all events, and what has grown from the first session's end, the warm-up, to the
last one's. Exit code 1 if that is beyond the bounds, or something went wrong on the way.
"""

import argparse
import contextlib
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import psutil

from pathways_emulator import commands, control, env_file, instance
from pathways_slurm.runtime_files import Report

CLIENT = Path(__file__).with_name("soak_client.py")
SLICES = 3
SHAPE = "2x2"
KINDS = ("kill", "stop", "notice")
# A stop is found by silence, and nobody wants to wait long for that.
HEARTBEAT_TIMEOUT_S = "3"
PATIENCE_S = 120.0
STEPS_BETWEEN = 3

# What may come and go: a connection in the making, a thread of a pool that had not been needed yet,
# and what the C library makes of the gaps in its memory. One slice's data is 4 MiB.
THREADS_BOUND = 2
DESCRIPTORS_BOUND = 2
FILES_BOUND = 0
MEMORY_BOUND_MIB = {"manager": 3.0, "proxy": 24.0, "serve": 3.0}


class SoakError(Exception):
    """It can't go on; the message says what was wrong."""


@dataclass(frozen=True)
class Use:
    """What a process holds."""

    memory_mib: float
    threads: int
    descriptors: int

    @classmethod
    def of(cls, process: psutil.Process) -> Self:
        """At this moment."""
        with process.oneshot():
            memory_mib = process.memory_info().rss / 2**20
            return cls(memory_mib, process.num_threads(), process.num_fds())


@dataclass(frozen=True)
class Sample:
    """The whole instance at one moment.

    Attributes:
        uses: By the process's name.
        files: In its directory.
        processes: All of it.
    """

    uses: Mapping[str, Use]
    files: int
    processes: int

    def values(self) -> dict[str, float]:
        """Every number by its name."""
        found = {"files": float(self.files), "processes": float(self.processes)}
        for name, use in self.uses.items():
            found[f"{name} MiB"] = use.memory_mib
            found[f"{name} threads"] = use.threads
            found[f"{name} descriptors"] = use.descriptors
        return found


def bound_of(name: str) -> float:
    """By how much a number may grow."""
    process, _, what = name.partition(" ")
    bounds = {"MiB": MEMORY_BOUND_MIB.get(process, 0.0), "threads": THREADS_BOUND}
    return {**bounds, "descriptors": DESCRIPTORS_BOUND}.get(what, FILES_BOUND)


class Served:
    """`pathways-emulator serve` that is ready."""

    def __init__(
        self, process: subprocess.Popen[bytes], variables: Mapping[str, str], log: Path
    ) -> None:
        self.variables = variables
        self._log = log
        self.instance = instance.find(None, variables)
        self._directory = Path(variables[control.VARIABLE]).parent
        self._serve = psutil.Process(process.pid)
        self._parts = {"serve": self._serve}
        for name, word in (("manager", "resource_manager"), ("proxy", "proxy_server")):
            self._parts[name] = next(
                child
                for child in self._serve.children()
                if any(argument.endswith(word) for argument in child.cmdline())
            )

    def is_alive(self, index: int) -> bool:
        """Whether the resource manager counts a slice as such."""
        report = Report.read(self._directory / "report.json")
        return report is not None and report.slices[index].alive

    def has_no_session(self) -> bool:
        """Whether the proxy has closed every session, and given back what was held for it."""
        text = self._log.read_text(errors="replace")
        opened, closed = (len(re.findall(rf"session \d+ {w}", text)) for w in ("opened", "closed"))
        return opened == closed

    def sample(self) -> Sample:
        """What it holds."""
        uses = {name: Use.of(process) for name, process in self._parts.items()}
        files = sum(1 for path in self._directory.rglob("*") if not path.is_dir())
        return Sample(uses, files, len(self._serve.children(recursive=True)))


@contextlib.contextmanager
def serve(directory: Path, network: str) -> Iterator[Served]:
    """Starts one and ends it; what it says is in ``directory/serve.log``."""
    file, log = directory / "runtime.env", directory / "serve.log"
    argv = [
        sys.executable,
        "-m",
        "pathways_emulator.cli",
        "serve",
        "--verbose",
        "--network",
        network,
    ]
    argv += ["--slices", str(SLICES), "--slice-shape", SHAPE, "--env-file", str(file)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            env={**os.environ, "PATHWAYS_HEARTBEAT_TIMEOUT_S": HEARTBEAT_TIMEOUT_S},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: file.exists() or process.poll() is not None, "the runtime is ready")
        if process.poll() is not None:
            raise SoakError(f"the runtime did not come up:\n{log.read_text()}")
        yield Served(process, env_file.read(file), log)
    finally:
        process.terminate()
        process.wait()


class Client:
    """The program."""

    def __init__(self, variables: Mapping[str, str], log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.losses: list[str] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.strip())
        self._said.put("ended")

    def say(self, order: str) -> None:
        """Gives an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def hear(self, timeout_s: float = PATIENCE_S) -> str:
        """The next that is no loss; what was lost is kept. Raises queue.Empty, SoakError."""
        while True:
            line = self._said.get(timeout=timeout_s)
            if line.startswith("lost "):
                self.losses.append(line)
            elif line.startswith("wrong ") or line == "ended":
                raise SoakError(f"the program: {line}")
            else:
                return line

    def hear_steps(self, count: int) -> None:
        """Waits for so many."""
        while count:
            count -= self.hear().startswith("step ")

    def pause(self) -> None:
        """Has it give its data up."""
        self.say("pause")
        while self.hear() != "paused":
            pass

    def catch_up(self) -> None:
        """Hears all that it has said until now."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.hear(timeout_s=0.0)

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Looks often. Raises SoakError."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SoakError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.02)


def one_event(served: Served, client: Client, kind: str, index: int, moment_s: float) -> None:
    """Ends a slice while the program computes, and waits until it computes again."""
    client.losses.clear()
    client.say("run")
    client.hear_steps(STEPS_BETWEEN)
    time.sleep(moment_s)  # The moment is what is random.
    match kind:
        case "kill":
            commands.kill(served.instance, index, None)
        case "stop":
            commands.stop(served.instance, index, None)
        case _:
            commands.notice(served.instance, index)
    wait_until(lambda: not served.is_alive(index), f"slice {index} has gone")
    client.catch_up()
    commands.revive(served.instance, index)
    client.hear_steps(STEPS_BETWEEN)
    if kind == "notice" and client.losses:
        raise SoakError(f"slice {index} went after notice, and yet: {client.losses[0]}")
    client.pause()


def soak(
    served: Served, sessions: Sequence[Sequence[str]], chance: random.Random, log: IO[bytes]
) -> list[Sample]:
    """The samples after each session; prints a line for each event and each of these.

    Args:
        served: The runtime.
        sessions: The kinds of events of each.
        chance: Decides which slice, and when.
        log: For what the programs write on standard error.
    """
    samples = []
    for number, kinds in enumerate(sessions, 1):
        with contextlib.closing(Client(served.variables, log)) as client:
            for kind in kinds:
                began, index = time.monotonic(), chance.randrange(SLICES)
                one_event(served, client, kind, index, chance.uniform(0.0, 0.5))
                print_row(f"{kind} {index}", time.monotonic() - began, served.sample())
        began = time.monotonic()
        wait_until(served.has_no_session, "the proxy has closed the session")
        samples.append(served.sample())
        print_row(f"end of session {number}", time.monotonic() - began, samples[-1])
    return samples


HEADER = f"{'':<18} {'s':>5} " + "".join(
    f"{name + ' MiB thr  fds':>26}" for name in ("serve", "manager", "proxy")
)


def print_row(what: str, took_s: float, sample: Sample) -> None:
    """A line of the table."""
    cells = "".join(
        f"{use.memory_mib:>17.1f} {use.threads:>3} {use.descriptors:>4}"
        for use in sample.uses.values()
    )
    print(f"{what:<18} {took_s:>5.1f} {cells}  {sample.files} files", flush=True)


def plan(events: int, session: int) -> list[list[str]]:
    """The kinds of events of each session: in turn, so that even a few events have all."""
    kinds = [KINDS[number % len(KINDS)] for number in range(events)]
    return [kinds[start : start + session] for start in range(0, events, session)]


def judge(first: Sample, last: Sample) -> bool:
    """Prints what has grown; returns whether all is within bounds."""
    good = True
    after_all = last.values()
    for name, before in first.values().items():
        after, bound = after_all[name], bound_of(name)
        within = after - before <= bound
        good = good and within
        print(
            f"{name:<22} {before:>7.1f} -> {after:>7.1f}  {after - before:>+6.1f} "
            f"(at most {bound:+g}){'' if within else '   GROWS'}"
        )
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if something grew or went wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=50, help="default: 50")
    parser.add_argument("--session", type=int, default=10, help="events of each; default: 10")
    parser.add_argument("--seed", type=int, default=1, help="of moments and slices; default: 1")
    parser.add_argument("--network", default="127.108.0.0/16", help="of loopback addresses to use")
    options = parser.parse_args(arguments)
    if not 0 < options.session < options.events:
        parser.error("--session must be from 1 to less than --events: there must be two")
    sessions = plan(options.events, options.session)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        log = stack.enter_context((directory / "client.log").open("wb"))
        try:
            served = stack.enter_context(serve(directory, options.network))
            print(HEADER)
            samples = soak(served, sessions, random.Random(options.seed), log)
        except (SoakError, commands.CommandError, queue.Empty) as error:
            words = str(error) or f"the program said nothing for {PATIENCE_S:g} s"
            print(f"soak: {words}\n{(directory / 'client.log').read_text()[-2000:]}")
            return 1
    return 0 if judge(samples[0], samples[-1]) else 1


if __name__ == "__main__":
    sys.exit(main())
