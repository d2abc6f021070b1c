# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Powers nodes down, where the cluster does such things and this user may ask for it.

A node that is powered down is booted, or made anew, for the next job on it. The user's own rights
are tried first, and ``sudo`` where those do not do, for this one command.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from pathways_slurm.logs import get_logger
from pathways_slurm.scheduler.base import Power
from pathways_slurm.scheduler.slurm_command import SlurmClient
from pathways_slurm.scheduler.slurm_nodes import NodeDirectory
from pathways_slurm.scheduler.slurm_parse import parse_setting

_log = get_logger(__name__)

# Takes no new job from then on, and waits for the end of what is left of the last one.
ASAP = "power_down_asap"
# Ends what is on the node, at once.
FORCE = "power_down_force"

# What an administrator's rule can take for one node and for nothing else.
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# To Slurm, every node there is.
_EVERY_NODE = "all"

_DENIED = ("invalid user id", "permission denied", "access denied")


class _Rights(Enum):
    OWN = "with this user's own rights in Slurm"
    SUDO = "through sudo"
    NONE = "not at all"


def order_for(state: frozenset[str], hangs: bool) -> tuple[str, str]:
    """What to ask Slurm for, of a node in this state. Pure.

    Args:
        state: The node's words in Slurm, such as IDLE and COMPLETING.
        hangs: What is left there is a run of ours that is ending.

    Returns:
        The state to ask for, "" if it is going down already; and why it is left alone, or "".
    """
    if state & {"POWERING_DOWN", "POWERED_DOWN"}:
        return "", ""
    if "POWER_DOWN" in state:
        # No job has been able to start there since it was asked for the first time.
        return FORCE if hangs and "IDLE" in state else "", ""
    if state & {"DOWN", "FAIL", "ERROR", "UNKNOWN", "FUTURE"}:
        # Slurm boots no node for a job that it has down: off, it would stay so for good.
        return "", "Slurm has it down already"
    if state & {"DRAIN", "MAINT"}:
        # Asking for it would lift an administrator's drain.
        return "", "an administrator has drained it"
    if "IDLE" not in state:
        return "", "a job runs on it"
    return ASAP, ""


def power_of(state: frozenset[str]) -> Power:
    """Whether a node in this state is there. Pure."""
    if "DOWN" in state:
        return Power.FAILED
    if state & {"POWERING_UP", "POWER_UP"} or {"ALLOCATED", "POWERED_DOWN"} <= state:
        return Power.COMING_UP
    if "POWERED_DOWN" in state:
        return Power.OFF
    if state & {"POWER_DOWN", "POWERING_DOWN"}:
        return Power.GOING_DOWN
    return Power.FAILED if state & {"NOT_RESPONDING", "FAIL", "ERROR", "UNKNOWN"} else Power.ON


class NodePower:
    """What one scheduler object may do to nodes; found out with the first of them, and said."""

    def __init__(self, client: SlurmClient, nodes: NodeDirectory, enabled: bool = True) -> None:
        self._client = client
        self._nodes = nodes
        self._rights = None if enabled else _Rights.NONE
        self._why_none = "" if enabled else "PATHWAYS_POWER_DOWN=never"
        self._probed: dict[tuple[str, str], bool] = {}
        self._said: set[str] = set()

    def down(self, names: Sequence[str], hanging: frozenset[str]) -> bool:
        """Has nodes powered down that nobody uses; a second call ends what hangs on them.

        Args:
            names: Of the nodes.
            hanging: Nodes on which a run of ours is ending.

        Returns:
            Whether any of them goes down, or is off.

        Raises:
            SchedulerUnavailable: Slurm gave no answer.
        """
        wanted = [name for name in names if self._is_one_node(name)]
        if not wanted or self._refuses():
            return False
        going = 0
        orders: dict[str, list[str]] = {}
        for info in self._nodes.infos(wanted):
            word, why = order_for(info.state, info.name in hanging)
            if why:
                self._say_once("a node is left alone", node=info.name, why=why)
            elif word:
                orders.setdefault(word, []).append(info.name)
            else:
                going += 1
        return bool(going + sum(self._order(word, group) for word, group in orders.items()))

    def look(self, names: Sequence[str]) -> Mapping[str, Power]:
        """Whether nodes are there; those that Slurm does not know are left out.

        Raises:
            SchedulerUnavailable: Slurm gave no answer.
        """
        if not names:
            return {}
        return {info.name: power_of(info.state) for info in self._nodes.infos(names)}

    def _refuses(self) -> bool:
        if self._rights is not _Rights.NONE:
            # Without it a node would be marked as one that powers down, and stay so.
            config = self._client.look("scontrol", "show", "config")
            if not parse_setting(config, "SuspendProgram"):
                self._why_none = "this cluster does not power nodes down (it has no SuspendProgram)"
                self._rights = _Rights.NONE
        if self._rights is _Rights.NONE:
            self._say_once("nodes are not powered down", why=self._why_none)
        return self._rights is _Rights.NONE

    def _is_one_node(self, name: str) -> bool:
        if _NAME.fullmatch(name) and name.lower() != _EVERY_NODE:
            return True
        self._say_once(
            "a node is not powered down: its name must be of letters, digits, _ and -, and not ALL",
            node=name,
        )
        return False

    def _order(self, word: str, names: Sequence[str]) -> int:
        """How many of these nodes Slurm powers down."""
        if self._rights is _Rights.SUDO:
            return sum(self._by_sudo(word, name) for name in names)
        listed = ",".join(names)
        done = self._client.order("scontrol", "update", f"nodename={listed}", f"state={word}")
        if done.code == 0:
            self._settle(_Rights.OWN)
            return len(names)
        if self._rights is None and any(words in done.words.lower() for words in _DENIED):
            may = any(self._may_by_sudo(word, name) for name in names)
            self._settle(_Rights.SUDO if may else _Rights.NONE, done.words)
            return self._order(word, names) if may else 0
        self._say_once("nodes are not powered down", nodes=listed, why=f"Slurm says {done.words!r}")
        return 0

    def _settle(self, rights: _Rights, why: str = "") -> None:
        if rights is self._rights:
            return
        self._rights = rights
        if rights is _Rights.NONE:
            self._why_none = (
                f"Slurm says {why!r}, and sudo does not allow scontrol either; an administrator's "
                "rule for sudo is in docs/slurm.md"
            )
            self._say_once("nodes are not powered down", why=self._why_none)
        else:
            _log.info(f"nodes are powered down {rights.value}")

    def _by_sudo(self, word: str, name: str) -> bool:
        command = self._sudo(word, name) if self._may_by_sudo(word, name) else None
        done = self._client.order(*command) if command else None
        if done is not None and done.code != 0:
            self._say_once("a node is not powered down", node=name, why=done.words)
        return done is not None and done.code == 0

    def _may_by_sudo(self, word: str, name: str) -> bool:
        """Asked once for all nodes whose names differ in numbers only: a refusal may be mailed."""
        key = (word, re.sub(r"[0-9]+", "0", name))
        if key not in self._probed:
            command = self._sudo(word, name, "-l")
            done = self._client.attempt(*command) if command else None
            self._probed[key] = done is not None and done.code == 0
            if not self._probed[key]:
                why = done.words if done else "there is no sudo, or no scontrol, in PATH"
                self._say_once("sudo does not allow it", node=name, state=word, why=why)
        return self._probed[key]

    def _sudo(self, word: str, name: str, *options: str) -> tuple[str, ...] | None:
        # By its absolute path, as the rule names it. sudo passes no SLURM_CONF on, which is right:
        # with one of the user's choice, root would talk to a Slurm of the user's choice.
        scontrol = self._client.program("scontrol")
        if scontrol is None or self._client.program("sudo") is None:
            return None
        return ("sudo", "-n", *options, scontrol, "update", f"nodename={name}", f"state={word}")

    def _say_once(self, words: str, **details: str) -> None:
        sentence = f"{words} {sorted(details.items())}"
        if sentence not in self._said:
            self._said.add(sentence)
            _log.info(words, **details)
