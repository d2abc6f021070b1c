# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What happened to slices between two reports, in sentences for people. Pure."""

from pathways_emulator.settings import OnNotice
from pathways_slurm.runtime_files import Report, SliceReport


def sentences(before: Report, after: Report, on_notice: OnNotice) -> list[str]:
    """One for each thing that happened, by slice; none of what was known before."""
    return [
        sentence
        for old, new in zip(before.slices, after.slices, strict=True)
        for sentence in _of_slice(old, new, on_notice)
    ]


def _of_slice(old: SliceReport, new: SliceReport, on_notice: OnNotice) -> list[str]:
    name = f"slice {new.index}"
    newer = new.incarnation > old.incarnation
    news = []
    if new.alive and (newer or not old.alive):
        news.append(f"{name} is back (incarnation {new.incarnation})")
    if new.notice is not None and (newer or old.notice is None):
        follows = (
            "its data is being saved"
            if on_notice == "suspend"
            else "it can be used until it goes, and nothing on it is saved"
        )
        news.append(f"{name} got notice ({new.notice.reason}): {follows}")
    if old.alive and not new.alive:
        if new.released or (new.notice is not None and on_notice == "forward"):
            news.append(f"{name} ended: {new.reason}")
        elif new.notice is not None:
            news.append(f"{name} lost before its data was saved: {new.reason}")
        else:
            news.append(f"{name} lost: {new.reason}")
    return news
