# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one command in the place of this process: its terminal, its signals, its exit code."""

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

# All that ask a process for something and can be caught.
_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGWINCH,
)
# si_code of a signal that a process sent with kill; the terminal's have SI_KERNEL.
_SI_USER = 0


def run_in_foreground(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs ``argv`` and returns its exit code, or 128+N if signal N ended it.

    Every signal that another process sends here goes on to the command. Those that the terminal
    sends (Ctrl-C) reach the command by themselves, because it stays in this process group, and are
    not sent twice. If this process is killed, the command lives on: it may be saving its state.

    Raises:
        OSError: The command can't be started.
    """
    # Blocked, so that none is lost between the start of the command and the first wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        child = subprocess.Popen(
            argv,
            env=dict(environ),
            # Safe: this process has one thread. The command must not inherit the blocked signals.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while (code := child.poll()) is None:
            info = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            if info.si_signo != signal.SIGCHLD and info.si_code <= _SI_USER:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code
