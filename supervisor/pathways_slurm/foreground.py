# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one command in the place of this process: its terminal, its signals, its exit code."""

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

# By which a user, a terminal or a batch system asks a process to end.
_ASK_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# All that ask a process for something and can be caught.
_PASSED_ON = _ASK_TO_END | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH}
# si_code of a signal that a process sent with kill; the terminal's have SI_KERNEL.
_SI_USER = 0

_LOOK_EVERY_S = 0.5


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: Its exit code, or 128+N if signal N ended it.
        signal: N, or None.
        asked: Somebody wanted it to end: a signal that asks for that came while it ran, or it ended
            by another one that was passed on. What ``prompts`` sends does not count.
        received: The signals that came while it ran.
    """

    code: int
    signal: int | None
    asked: bool
    received: frozenset[int] = frozenset()


def run_in_foreground(
    argv: Sequence[str],
    environ: Mapping[str, str],
    prompts: Callable[[], Iterable[signal.Signals]] | None = None,
) -> Ended:
    """Runs ``argv`` to its end.

    Every signal that another process sends here goes on to the command. Those that the terminal
    sends (Ctrl-C) reach the command by themselves, because it stays in this process group, and are
    not sent twice. If this process is killed, the command lives on: it may be saving its state.

    Args:
        argv: Program and arguments.
        environ: Its whole environment.
        prompts: Called twice a second while the command runs; the signals that it returns are sent
            to the command. It must return soon and not raise.

    Raises:
        OSError: The command can't be started.
    """
    # Blocked, so that none is lost between the start of the command and the first wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    received: set[int] = set()
    try:
        child = subprocess.Popen(
            argv,
            env=dict(environ),
            # Safe: this process has one thread. The command must not inherit the blocked signals.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while (code := child.poll()) is None:
            info = _next_signal(None if prompts is None else _LOOK_EVERY_S)
            if info is not None and info.si_signo != signal.SIGCHLD:
                received.add(info.si_signo)
                if info.si_code <= _SI_USER:
                    _send(child, info.si_signo)
            for number in prompts() if prompts is not None else ():
                _send(child, number)
        # A batch system signals all of a job at once; the command may have been the first to end.
        while (info := signal.sigtimedwait(_PASSED_ON, 0)) is not None:
            received.add(info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    by = -code if code < 0 else None
    asked = bool(received & _ASK_TO_END) or by in received
    return Ended(code if by is None else 128 + by, by, asked, frozenset(received))


def _next_signal(timeout_s: float | None) -> signal.struct_siginfo | None:
    awaited = {*_PASSED_ON, signal.SIGCHLD}
    if timeout_s is None:
        return signal.sigwaitinfo(awaited)
    return signal.sigtimedwait(awaited, timeout_s)


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)
