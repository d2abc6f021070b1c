# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of a service whose slices Slurm runs."""

import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator

from pathways_slurm.scheduler.slurm_options import OWN_OPTIONS, SlurmOptions
from pathways_slurm.setting_types import Seconds, setting

# sbatch's own forms: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
_TIME_LIMIT = re.compile(
    r"[0-9]+|[0-9]+(:[0-9]{1,2}){1,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED", re.IGNORECASE
)
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def _word(value: str) -> str:
    if any(character.isspace() or not character.isprintable() for character in value):
        raise ValueError("has a space or a control character")
    return value


def _time_limit(value: str) -> str:
    if value and not _TIME_LIMIT.fullmatch(value):
        raise ValueError("is not a time limit")
    return value


def _address(value: str) -> str:
    if value and not _ADDRESS.fullmatch(value):
        raise ValueError("is neither an IPv4 address nor a host name")
    return value


def _sbatch_args(value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"can't be split into words: {error}") from None
    for word in words:
        if not re.match(r"--[a-z]", word):
            raise ValueError(f"has the word {word!r}, which is not of the form --option=value")
        if word.partition("=")[0] in OWN_OPTIONS:
            raise ValueError(f"has the word {word!r}, an option that the service sets itself")
    return words


_Word = Annotated[str, AfterValidator(_word)]
_TimeLimit = Annotated[str, AfterValidator(_time_limit)]
_Address = Annotated[str, AfterValidator(_address)]
_SbatchArgs = Annotated[tuple[str, ...], BeforeValidator(_sbatch_args)]

_SBATCHS = "sbatch's own"


class SlurmSettings(BaseModel):
    """What the job array of the slices is asked for with; no effect with the local scheduler."""

    slurm_partition: _Word = setting(
        "PATHWAYS_SLURM_PARTITION",
        "Partition of the TPU nodes",
        "a partition, or a comma list of them",
        default="",
        default_text="the cluster's default partition",
    )
    slurm_account: _Word = setting(
        "PATHWAYS_SLURM_ACCOUNT",
        "Account that the slices are charged to",
        "an account of yours",
        default="",
        default_text=_SBATCHS,
    )
    slurm_qos: _Word = setting(
        "PATHWAYS_SLURM_QOS",
        "Quality of service of the slices",
        "a QOS that your account may use",
        default="",
        default_text=_SBATCHS,
    )
    slurm_reservation: _Word = setting(
        "PATHWAYS_SLURM_RESERVATION",
        "Reservation whose nodes are used",
        "a reservation",
        default="",
        default_text="none",
    )
    slurm_constraint: _Word = setting(
        "PATHWAYS_SLURM_CONSTRAINT",
        "Node features that the slices' nodes must have; in brackets, what keeps a slice together",
        "a constraint of sbatch, such as v6e or [slice0|slice1]",
        default="",
        default_text="none",
    )
    slurm_slice_features: _Word = setting(
        "PATHWAYS_SLURM_SLICE_FEATURES",
        "Node features that each name the nodes of one slice, where the topology does not",
        "a pattern, such as slice*",
        default="",
        default_text="none",
    )
    slurm_gres: _Word = setting(
        "PATHWAYS_SLURM_GRES",
        "Generic resources of each node that the slices ask for",
        "a list of sbatch's --gres, such as tpu:4",
        default="",
        default_text="none",
    )
    slurm_time_limit: _TimeLimit = setting(
        "PATHWAYS_SLURM_TIME_LIMIT",
        "Longest time that a slice runs without a restart",
        "minutes, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED",
        default="",
        default_text="the partition's",
    )
    slurm_extra_args: _SbatchArgs = setting(
        "PATHWAYS_SLURM_EXTRA_ARGS",
        "Further options for the sbatch of the slices",
        "shell-quoted words of the form --option=value, none that the service sets itself",
        default="",
        default_text="none",
    )
    slurm_timeout_s: Seconds = setting(
        "PATHWAYS_SLURM_TIMEOUT_S",
        "Time for each of Slurm's commands to answer",
        "seconds from 1 to 120",
        default=15,
        ge=1,
        le=120,
    )
    service_address: _Address = setting(
        "PATHWAYS_SERVICE_ADDRESS",
        "Address at which the slices' nodes reach the node of resource manager and proxy",
        "an IPv4 address or a host name",
        default="",
        default_text="the node's NodeAddr in Slurm",
    )

    power_down: Literal["auto", "never"] = setting(
        "PATHWAYS_POWER_DOWN",
        "Whether nodes that fail, or are given back for maintenance, are powered down",
        "auto (where Slurm does that, and this user or a rule of sudo may order it) or never",
        default="auto",
    )
    node_budget: int = setting(
        "PATHWAYS_NODE_BUDGET",
        "How many faults of a node in one window have it excluded",
        "a whole number from 0; 0: no node is excluded",
        default=3,
        ge=0,
    )
    node_window_s: Seconds = setting(
        "PATHWAYS_NODE_WINDOW_S",
        "Length of the window of PATHWAYS_NODE_BUDGET",
        "seconds from 1",
        default=3600,
        ge=1,
    )
    node_exclusion_s: Seconds = setting(
        "PATHWAYS_NODE_EXCLUSION_S",
        "After what time an excluded node is tried again; twice as long each further time",
        "seconds from 1",
        default=1800,
        ge=1,
    )

    @property
    def slurm_options(self) -> SlurmOptions:
        """For the Slurm scheduler."""
        return SlurmOptions(
            partition=self.slurm_partition,
            account=self.slurm_account,
            qos=self.slurm_qos,
            reservation=self.slurm_reservation,
            constraint=self.slurm_constraint,
            time_limit=self.slurm_time_limit,
            gres=self.slurm_gres,
            slice_features=self.slurm_slice_features,
            extra_args=self.slurm_extra_args,
        )
