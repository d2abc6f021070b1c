# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Commands start without what they do not need."""

import subprocess
import sys

import pytest

HEAVY = ("jax", "jaxlib", "grpc", "numpy")


def modules_after(code: str) -> set[str]:
    """The top-level modules loaded once `code` has run in a new interpreter."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    guarded = f"try:\n {code}\nexcept SystemExit: pass\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", guarded], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "from pathways_emulator import cli; cli.main(['--help'])",
        "from pathways_emulator import cli; cli.main(['serve', '--help'])",
        "from pathways_emulator import cli; cli.main(['serve', '--slices', 'x'])",
        *(
            f"from pathways_emulator import cli; cli.main(['{command}', '--help'])"
            for command in ("status", "kill", "stop", "notice", "revive")
        ),
        "import sys; sys.argv[1:] = ['--help']; from pathways_emulator.server import main; main()",
        "import sys; sys.argv[1:] = ['--bad']; from pathways_emulator.server import main; main()",
        "import sys; sys.argv[1:] = []; from pathways_emulator.proxy_server import main; main()",
    ],
)
def test_help_and_faults_load_neither_jax_nor_grpc(code: str) -> None:
    assert not modules_after(code) & set(HEAVY)


@pytest.mark.parametrize(
    "module", ["resource_manager", "worker", "membership_client", "serve", "commands"]
)
def test_only_the_proxy_loads_jax(module: str) -> None:
    assert not modules_after(f"import pathways_emulator.{module}") & {"jax", "jaxlib", "numpy"}
