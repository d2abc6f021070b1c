# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of the shards of other arrays, in another order, without moving data."""

from collections.abc import Sequence

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.executor import ArraySpec, Value
from pathways_emulator.proxy.handlers.results import derive, end_donated, read_spec, semantics_of
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Session
from pathways_emulator.proxy.status import invalid_argument

# For each shard of an output: which input it comes from, and which shard of that.
type Source = tuple[int, int]


def serve_remap_arrays(session: Session, request: Proto, reply: Reply) -> None:
    """Serves ``RemapArraysRequest``."""
    sources = session.arrays.get_all(request.array_handles)
    inputs = [read_spec(spec) for spec in request.plan.input_specs]
    outputs = [read_spec(spec) for spec in request.plan.output_specs]
    plan = sources_of(request.plan, inputs, outputs)

    def remap(values: list[Value]) -> Sequence[Value]:
        shards = [session.executor.shards(value) for value in values]
        return [
            session.executor.assemble(spec, [shards[array][shard] for array, shard in places])
            for spec, places in zip(outputs, plan, strict=True)
        ]

    reply.body.array_handles.extend(
        derive(session, request.result_handles, outputs, sources, remap)
    )
    end_donated(sources, semantics_of(request))


def sources_of(
    plan: Proto, inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec]
) -> list[list[Source]]:
    """Where every shard of every output comes from.

    Newer clients list devices per input, older ones intervals of shards.

    Raises:
        ProxyError: INVALID_ARGUMENT, if the plan leaves a shard without a source.
    """
    chosen: list[dict[int, Source]] = [{} for _ in outputs]
    for output in plan.input_devices_for_output:
        devices = outputs[output.out_array].sharding.devices
        for part in output.input_devices:
            input_devices = inputs[part.in_array].sharding.devices
            for device in part.device_list.device_ids:
                if device in devices and device in input_devices:
                    chosen[output.out_array][devices.index(device)] = (
                        part.in_array,
                        input_devices.index(device),
                    )
    for mapping in plan.mappings:
        for place in range(len(mapping.from_start)):
            taken = range(
                mapping.from_start[place], mapping.from_end[place], mapping.from_step[place]
            )
            put = range(mapping.to_start[place], mapping.to_end[place], mapping.to_step[place])
            for source, target in zip(taken, put, strict=True):
                chosen[mapping.out_array][target] = (mapping.in_array, source)
    result = []
    for index, (spec, places) in enumerate(zip(outputs, chosen, strict=True)):
        missing = [shard for shard in range(len(spec.sharding.devices)) if shard not in places]
        if missing:
            raise invalid_argument(f"the remap plan has no source for shards {missing} of {index}")
        result.append([places[shard] for shard in range(len(spec.sharding.devices))])
    return result
