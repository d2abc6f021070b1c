# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""How an array is asked for: the options of its sbatch, and one task inside one slice. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pathways_slurm.scheduler.base import ArraySpec, SchedulerError
from pathways_slurm.scheduler.slurm_parse import NodeInfo, format_comment

JOB_NAME_PREFIX = "pathways-"
_EXCLUDE = "--exclude="
# Options that the scheduler sets itself and finds its tasks by.
OWN_OPTIONS = frozenset(
    {
        "--array",
        "--chdir",
        "--clusters",
        "--comment",
        "--error",
        "--export",
        "--hold",
        "--job-name",
        "--nodes",
        "--no-requeue",
        "--ntasks",
        "--ntasks-per-node",
        "--open-mode",
        "--output",
        "--parsable",
        "--requeue",
        "--wait",
        "--wrap",
    }
)


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a cluster asks of its users; "" means sbatch's own default.

    Attributes:
        partition: Of the TPU nodes; a comma list is fine.
        account: To be charged.
        qos: Quality of service.
        reservation: Whose nodes are used.
        constraint: On node features; with brackets, it says itself what a slice is.
        time_limit: Of each task, in any of sbatch's forms.
        gres: Of each node, such as "tpu:4".
        slice_features: Pattern of the features that name one slice each, such as "slice*".
        extra_args: Further options, put last, so that they win.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    time_limit: str = ""
    gres: str = ""
    slice_features: str = ""
    extra_args: tuple[str, ...] = ()


def user_excludes(extra_args: Sequence[str]) -> tuple[str, ...]:
    """Expressions for nodes that the user's own options exclude. Of several, sbatch takes one."""
    own = [word.removeprefix(_EXCLUDE) for word in extra_args if word.startswith(_EXCLUDE)]
    return tuple(own[-1:])


def job_name(tag: str) -> str:
    """Of the array with this tag."""
    return f"{JOB_NAME_PREFIX}{tag}"


def sbatch_argv(
    spec: ArraySpec, options: SlurmOptions, constraint: str, script: Path
) -> tuple[str, ...]:
    """The command that submits ``spec``.

    Args:
        spec: Checked.
        options: Of the cluster.
        constraint: From :func:`slice_constraint`.
        script: The batch script of one slice.
    """
    chosen = {
        "--partition": options.partition,
        "--account": options.account,
        "--qos": options.qos,
        "--reservation": options.reservation,
        "--constraint": constraint,
        "--time": options.time_limit,
        "--gres": options.gres,
        "--exclude": ",".join([*user_excludes(options.extra_args), *sorted(spec.avoid)]),
    }
    # A percent sign in a path would be one of sbatch's patterns.
    log_dir = str(spec.log_dir.absolute())
    return (
        "sbatch",
        "--parsable",
        f"--job-name={job_name(spec.tag)}",
        f"--comment={format_comment(spec.tag, spec.first_incarnation)}",
        f"--array={','.join(map(str, sorted(spec.indices)))}",
        f"--nodes={spec.hosts_per_task}",
        "--ntasks-per-node=1",
        # A slice is whole machines: their processors and memory are nobody else's.
        "--exclusive",
        "--mem=0",
        "--requeue",
        "--open-mode=append",
        f"--output={log_dir.replace('%', '%%')}/slice-%a/batch.log",
        # The submitter's directory may not exist on the slice's nodes.
        "--chdir=/",
        "--export=ALL",
        *(f"{name}={value}" for name, value in chosen.items() if value),
        *(word for word in options.extra_args if not word.startswith(_EXCLUDE)),
        str(script),
        log_dir,
        str(spec.first_incarnation),
        *spec.argv,
    )


def slice_constraint(
    hosts: int,
    nodes: Sequence[NodeInfo],
    islands: Sequence[frozenset[str]],
    options: SlurmOptions,
) -> str:
    """The constraint that keeps a task of ``hosts`` nodes inside one slice, or "".

    Args:
        hosts: Nodes of a slice.
        nodes: Of the partition.
        islands: Groups of nodes that no job spans, from the topology.
        options: Of the cluster.

    Raises:
        SchedulerError: Nothing on this cluster says what a slice is.
    """
    if hosts == 1 or "[" in options.constraint:
        return options.constraint
    names = {node.name for node in nodes}
    sizes = [len(island & names) for island in islands]
    # A larger island would lend a task a part of another shape's slice, or of two slices.
    if hosts in sizes and max(sizes) == hosts:
        return options.constraint
    features = _slice_features(nodes, options.slice_features)
    if usable := sorted(name for name, count in features.items() if count == hosts):
        either = f"[{'|'.join(usable)}]"
        return f"{either}&{options.constraint}" if options.constraint else either
    raise SchedulerError(_no_way(hosts, len(names), sizes, features, options))


def _slice_features(nodes: Sequence[NodeInfo], pattern: str) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        for feature in node.features:
            if pattern and fnmatchcase(feature, pattern):
                counts[feature] = counts.get(feature, 0) + 1
    return counts


def _no_way(
    hosts: int,
    nodes: int,
    sizes: Sequence[int],
    features: Mapping[str, int],
    options: SlurmOptions,
) -> str:
    where = f"partition {options.partition}" if options.partition else "the default partition"
    words = [f"a slice has {hosts} hosts, and nothing keeps a task inside one slice of {where}"]
    if nodes < hosts:
        words.append(f"it has {nodes} nodes")
    if present := sorted({size for size in sizes if size}):
        listed = ", ".join(map(str, present))
        words.append(f"its topology has groups of {listed} nodes, where each must be {hosts}")
    else:
        words.append("it has no tree topology")
    if not options.slice_features:
        words.append("PATHWAYS_SLURM_SLICE_FEATURES is not set")
    elif features:
        listed = ", ".join(f"{name} on {count}" for name, count in sorted(features.items())[:8])
        words.append(f"features like {options.slice_features!r}: {listed} nodes")
    else:
        words.append(f"no node has a feature like {options.slice_features!r}")
    elsewhere = "" if options.partition else " PATHWAYS_SLURM_PARTITION names that of the TPUs."
    return (
        f"{'; '.join(words)}.{elsewhere} Either the administrator gives each slice a switch of its "
        "own in topology.conf, with no switch above them, or gives the nodes of each slice a "
        "feature; "
        "then set PATHWAYS_SLURM_SLICE_FEATURES to a pattern of those features, such as 'slice*', "
        "or PATHWAYS_SLURM_CONSTRAINT to the constraint itself, such as '[slice0|slice1]'"
    )
