# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The tables and the closing line."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from suites.declaration import Suite
from suites.needs import lacking
from suites.outcome import Result, State, minutes

_STYLES = {
    State.PASSED: "green",
    State.FAILED: "bold red",
    State.COULD_NOT: "yellow",
    State.NO_MATCH: "dim",
    State.INTERRUPTED: "bold red",
    State.NOT_REACHED: "yellow",
}


def console() -> Console:
    """Standard output. Into a file or a pipe, lines are as long as our source's, not 80."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=100)


def print_results(out: Console, results: Sequence[Result]) -> None:
    """Prints what became of every suite, then one plain line with the sums."""
    table = Table(title="Test suites", title_justify="left", title_style="bold")
    table.add_column("suite", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for heading in ("passed", "failed", "skipped", "time", "budget"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for result in results:
        ran = result.state not in (State.COULD_NOT, State.NOT_REACHED)
        counts = result.counts
        numbers = (str(number) for number in (counts.passed, counts.failed, counts.skipped))
        over = result.seconds > result.suite.budget_s
        table.add_row(
            result.suite.name,
            Text(result.state, style=_STYLES[result.state]),
            *(numbers if ran else ("", "", "")),
            Text(minutes(result.seconds) if ran else "", style="red" if over else ""),
            minutes(result.suite.budget_s),
            Text("\n".join(result.notes)),
        )
    out.print()
    out.print(table)
    # Plain, alone on its line, whatever the width: programs read it.
    passed, failed, skipped = (
        sum(getattr(result.counts, field) for result in results)
        for field in ("passed", "failed", "skipped")
    )
    out.print(f"{passed} passed, {failed} failed, {skipped} skipped", highlight=False)


def print_suites(out: Console, suites: Sequence[Suite]) -> None:
    """Prints the suites, and which of them can run here."""
    table = Table()
    for heading in ("suite", "budget", "what it shows", "can run here"):
        table.add_column(heading, no_wrap=heading in ("suite", "budget"))
    for suite in suites:
        reason = lacking(suite.needs)
        table.add_row(
            suite.name,
            minutes(suite.budget_s),
            suite.about,
            Text("yes") if reason is None else Text(f"no: {reason}", style="yellow"),
        )
    out.print(table)
