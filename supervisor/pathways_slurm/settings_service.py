# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The settings that every service has: names, meaning, valid values and defaults."""

from typing import Literal

from pydantic import BaseModel

from pathways_slurm.paths import DEFAULT_NAME, NAME_VALID
from pathways_slurm.setting_types import (
    AbsolutePath,
    Bucket,
    ExtraArgs,
    LocalNetwork,
    Seconds,
    ServiceName,
    SliceShape,
    TpuType,
    setting,
)
from pathways_slurm.topology import TPU_TYPES

_PORT = "a port from 1 to 65535"
_FLAGS = "shell-quoted words of the form --flag=value; a flag that is there already is replaced"


class ServiceSettings(BaseModel):
    """What every service has to know, whatever runs it."""

    tpu_type: TpuType = setting(
        "TPU_TYPE", "TPU type of the slices", ", ".join(TPU_TYPES), default="v6e"
    )
    slice_shape: SliceShape = setting(
        "SLICE_SHAPE",
        "Shape of each slice, in chips",
        "AxB on v5e and v6e (2x2, 2x4, 4x4, ...), AxBxC on v4, v5p and tpu7x (2x2x1, 2x2x2, ...)",
        stand_in="2x2",
    )
    min_slices: int = setting(
        "MIN_SLICES",
        "Slices that must be ready before the service can be used",
        "a whole number from 1 to MAX_SLICES",
        stand_in=1,
        ge=1,
    )
    # The bound is far above any cluster's slices: it only catches a slip of the keyboard.
    max_slices: int = setting(
        "MAX_SLICES",
        "Slices that the service asks for",
        "a whole number from 1 to 4096",
        stand_in=4096,
        ge=1,
        le=4096,
    )
    gcs_bucket: Bucket = setting(
        "GCS_BUCKET",
        "Where Pathways keeps temporary files; every node must reach it",
        "a bucket name, gs://BUCKET, or an absolute directory",
        stand_in="gs://bucket",
    )
    runtime: Literal["pathways", "emulator"] = setting(
        "PATHWAYS_RUNTIME",
        "What runs: Pathways' own images, or the emulator on CPUs",
        "emulator, pathways",
        default="emulator",
    )
    container_choice: Literal["enroot", "none"] | None = setting(
        "PATHWAYS_CONTAINER",
        "What the runtime runs in: Enroot's containers, or the environment itself",
        "enroot, none",
        default=None,
        default_text="enroot with PATHWAYS_RUNTIME=pathways, else none",
    )
    scheduler: Literal["slurm", "local"] = setting(
        "PATHWAYS_SCHEDULER",
        "What runs the slices: Slurm, or processes on this machine",
        "slurm, local",
        default="local",
    )
    home: AbsolutePath = setting(
        "PATHWAYS_HOME",
        "Directory of cluster.env, events, state and logs",
        "an absolute directory",
        default="~/pathways",
    )
    name: ServiceName = setting(
        "PATHWAYS_NAME",
        "Name of the service; any but the default lives in PATHWAYS_HOME/services/NAME",
        NAME_VALID,
        default=DEFAULT_NAME,
    )
    chips_per_host: int | None = setting(
        "PATHWAYS_CHIPS_PER_HOST",
        "Chips of one host machine; 8 makes 2x4 on v5e and v6e one host instead of two",
        "1, 4 or 8, as the slice shape allows",
        default=None,
        default_text="4, or 1 for the shape 1x1",
        ge=1,
    )
    proxy_port: int = setting(
        "PATHWAYS_PROXY_PORT", "Port of the IFRT proxy", _PORT, default=29000, ge=1, le=65535
    )
    rm_port: int = setting(
        "PATHWAYS_RM_PORT", "Port of the resource manager", _PORT, default=29001, ge=1, le=65535
    )
    worker_port: int = setting(
        "PATHWAYS_WORKER_PORT", "Port of each host's worker", _PORT, default=29001, ge=1, le=65535
    )
    local_network: LocalNetwork = setting(
        "PATHWAYS_LOCAL_NETWORK",
        "Addresses of a local service, A.B.0.0/16: A.B.0.1 serves, A.B.(1+S).(1+H) is host H of "
        "slice S",
        "a /16 network within 127.0.0.0/8, such as 127.7.0.0/16",
        default="127.0.0.0/16",
    )
    rm_extra_args: ExtraArgs = setting(
        "PATHWAYS_RM_EXTRA_ARGS",
        "Flags for the resource manager",
        _FLAGS,
        default="",
        default_text="no flags",
    )
    proxy_extra_args: ExtraArgs = setting(
        "PATHWAYS_PROXY_EXTRA_ARGS",
        "Flags for the IFRT proxy",
        _FLAGS,
        default="",
        default_text="no flags",
    )
    worker_extra_args: ExtraArgs = setting(
        "PATHWAYS_WORKER_EXTRA_ARGS",
        "Flags for each worker",
        _FLAGS,
        default="",
        default_text="no flags",
    )
    heartbeat_timeout_s: Seconds = setting(
        "PATHWAYS_HEARTBEAT_TIMEOUT_S",
        "Silence after which a worker is taken for lost",
        "seconds from 1 to 3600",
        default=10,
        ge=1,
        le=3600,
    )
    lease_s: Seconds = setting(
        "PATHWAYS_LEASE_S",
        "Time without the resource manager after which a worker ends itself",
        "seconds from 1 to 3600",
        default=30,
        ge=1,
        le=3600,
    )
    on_notice: Literal["suspend", "forward"] = setting(
        "PATHWAYS_ON_NOTICE",
        "When a slice is about to go: save its data and resume on its return, or leave that to the "
        "program, which reads notices.json",
        "suspend, forward",
        default="suspend",
    )
    notice_s: Seconds = setting(
        "PATHWAYS_NOTICE_S",
        "Time from the SIGTERM to the end of a slice that goes, as the scheduler grants it",
        "seconds from 1 to 3600",
        default=25,
        default_text="25, below Slurm's default KillWait of 30",
        ge=1,
        le=3600,
    )
    tick_override_s: Seconds | None = setting(
        "PATHWAYS_TICK_S",
        "Longest time between two looks at the service",
        "seconds from 0.05 to 60",
        default=None,
        default_text="0.5 with the local scheduler, 5 with Slurm",
        ge=0.05,
        le=60,
    )
    start_timeout_s: Seconds | None = setting(
        "PATHWAYS_START_TIMEOUT_S",
        "Time for MIN_SLICES slices to become ready, after which the service gives up",
        "seconds from 1",
        default=None,
        default_text="no limit",
        ge=1,
    )
    restart_budget: int = setting(
        "PATHWAYS_RESTART_BUDGET",
        "How often resource manager, proxy and supervisor are each restarted in one window",
        "a whole number from 0",
        default=5,
        ge=0,
    )
    restart_window_s: Seconds = setting(
        "PATHWAYS_RESTART_WINDOW_S",
        "Length of the window of PATHWAYS_RESTART_BUDGET",
        "seconds from 1",
        default=600,
        ge=1,
    )
    slice_restart_budget: int = setting(
        "PATHWAYS_SLICE_RESTART_BUDGET",
        "How often a slice is restarted in one window for each cause; preemptions do not count",
        "a whole number from 0",
        default=10,
        ge=0,
    )
    slice_restart_window_s: Seconds = setting(
        "PATHWAYS_SLICE_RESTART_WINDOW_S",
        "Length of the window of PATHWAYS_SLICE_RESTART_BUDGET",
        "seconds from 1",
        default=600,
        ge=1,
    )
