# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's log: one line an entry, whatever is in it."""

import subprocess
import sys
from pathlib import Path

# In a process of its own: a log is set up once, for all of a process.
PROGRAM = """
import sys
from pathlib import Path
from pathways_slurm.logs import get_logger, log_to
log = get_logger("pathways_slurm.service")
log.info("nobody listens yet")
log.warning("said on stderr")
log_to(Path(sys.argv[1]))
log.info("100% of\\n2 lines", reason="SliceReady", nodes=["n1"])
try:
    raise ValueError("by mistake")
except ValueError:
    log.exception("an error", subject="service")
"""


def _run(log: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, log], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_an_entry_is_a_line_with_its_time_level_and_fields(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    assert _run(log) == "said on stderr\n"
    info, error = log.read_text().splitlines()
    assert info.startswith("timestamp='20")
    assert info.endswith(
        "Z' level='info' event='100% of\\n2 lines' reason='SliceReady' nodes=['n1']"
    )
    assert " level='error' event='an error' subject='service' exception='Traceback" in error
    assert "ValueError: by mistake" in error
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    log.write_text("of the supervisor before\n")
    _run(log)
    assert len(log.read_text().splitlines()) == 3


def test_where_there_can_be_no_log_its_entries_go_to_stderr(tmp_path: Path) -> None:
    said = _run(tmp_path / "missing" / "supervisor.log")
    assert "supervisor.log can't be written" in said
    assert "event='an error'" in said
