# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's driver; scripts/demo.sh sets up the environment and runs it.

Exit status: 0 if every check passed, 1 if not, 2 for bad options or lacking packages, 128 + N ended
by signal N.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from demo_local import LocalStage
from demo_options import HOME_PREFIX, DemoOptions, parse_options
from demo_perform import Interrupted, Screen, Signals, perform
from demo_slurm import SlurmStage, cluster_options
from demo_stage import DemoError, Stage, last_lines
from demo_story import Check, Plan, Story


def stage_for(options: DemoOptions, home: Path) -> Stage:
    """Where the demo is to take place, with the service's settings as a user would export them."""
    settings = {
        "TPU_TYPE": "v6e",
        "SLICE_SHAPE": options.slice_shape,
        "MIN_SLICES": str(options.min_slices),
        "MAX_SLICES": str(options.slices),
        "PATHWAYS_RUNTIME": "emulator",
        "PATHWAYS_CONTAINER": "none",
    }
    if not options.slurm:
        return LocalStage(home, settings)
    cluster = cluster_options(home, options.slices, options.hosts, options.chips_per_host)
    return SlurmStage(home, settings, cluster)


def conclude(screen: Screen, checks: Sequence[Check], error: str | None) -> bool:
    """Shows the verdict; whether all is well."""
    screen.plain()
    for check in checks:
        style = "green" if check.passed else "bold red"
        screen.plain(f"  {'✓' if check.passed else '✗'} {check.text}", style)
    if error:
        screen.plain(f"  ✗ {error}", "bold red")
    return error is None and all(check.passed for check in checks)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; see the module for the exit status."""
    signals = Signals()
    options = parse_options(argv)
    story = Story(Plan(options.slices, options.min_slices, options.steps))
    screen = Screen(Console(safe_box=True))
    error: DemoError | None = None
    interrupted: Interrupted | None = None
    left: list[str] = []
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX)).resolve()
    stage = stage_for(options, home)
    try:
        try:
            perform(stage, story, screen, signals)
        finally:
            with screen.waiting_for("bringing everything down"):
                left = stage.clear()
    except DemoError as caught:
        error = caught
    except Interrupted as caught:
        interrupted = caught
    down = Check(not left, "; ".join(left) or stage.all_down)
    if interrupted is not None:
        screen.say(f"interrupted by {interrupted}")
        checks = [down]
    else:
        checks = [*story.checks(), *stage.checks(), down]
    ok = conclude(screen, checks, str(error) if error else None) and interrupted is None
    if options.json is not None:
        summary = {**story.summary(ok), **stage.summary()}
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    if not (ok or interrupted):
        log = error.log if error and error.log else stage.service_log
        screen.plain(f"\nthe end of {log}:")
        for line in last_lines(log, 20):
            screen.plain(f"  {line}")
    if options.keep or left or not (ok or interrupted):
        screen.plain(f"\nlogs and everything else: {home}")
    else:
        shutil.rmtree(home)
    if interrupted is not None:
        return 128 + interrupted.signum
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
