# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the client learns about the instance: devices, memories, layouts."""

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.devices import DeviceInfo
from pathways_emulator.proxy.dtypes import dtype_of_kind
from pathways_emulator.proxy.executor import DeviceDescription
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session

# Every program compiled for this platform runs here; "tpu" would make the client lower some
# operations to TPU custom calls.
PLATFORM_NAME = "cpu"

# Programs such as Orbax ask for "proxy/pathways"; the client puts "proxy/" before it.
RUNTIME_TYPE = "pathways"

_PLATFORM_VERSION = "pathways-slurm emulator: virtual CPU devices"

# What TensorFlow's hash of "cpu" is in XLA (xla::CpuId); clients only compare it.
_PLATFORM_ID = 0x57CF_0C93


def serve_init(session: Session, _request: Proto, reply: Reply) -> None:
    """All devices of all slices, dead ones too: a workload finds the dead by using them."""
    response = reply.body
    response.session_id = session.id
    response.platform_name = PLATFORM_NAME
    response.platform_version = _PLATFORM_VERSION
    response.platform_id = _PLATFORM_ID
    response.process_index = 0
    response.runtime_type = RUNTIME_TYPE
    attributes = response.client_attributes.attributes
    attributes["serialize_with_sdy"].bool_value = True
    for device in session.devices.devices:
        description = session.executor.describe(device.id)
        _add_device(response, device, description)
        response.primary_device_ids.append(device.id)
        response.addressable_device_ids.append(device.id)


def _add_device(response: Proto, device: DeviceInfo, description: DeviceDescription) -> None:
    kinds = description.memory_kinds
    memory_ids = [device.id * len(kinds) + place for place in range(len(kinds))]
    place = ",".join(str(part) for part in device.coords)
    proto = response.all_devices.add(
        id=device.id,
        local_device_id=device.id,
        local_hardware_id=-1,
        platform_name=PLATFORM_NAME,
        device_kind=description.kind,
        default_memory_id=memory_ids[kinds.index(description.default_memory_kind)],
        memory_ids=memory_ids,
        debug_string=f"PathwaysDevice(id={device.id}, slice={device.slice_index}, coords={place})",
        to_string=f"PathwaysDevice(id={device.id})",
    )
    attributes = proto.attributes.attributes
    attributes["slice_index"].int64_value = device.slice_index
    attributes["coords"].int64_list_value.elements.extend(device.coords)
    attributes["core_on_chip"].int64_value = 0
    for memory_id, kind in zip(memory_ids, kinds, strict=True):
        response.memories.add(
            id=memory_id,
            memory_space_kind=kind,
            kind_id=kinds.index(kind),
            device_ids=[device.id],
            debug_string=f"PathwaysMemory(id={memory_id}, kind={kind})",
            to_string=f"{kind}({memory_id})",
        )


def serve_default_layout(session: Session, request: Proto, reply: Reply) -> None:
    """How arrays lie in a device's memory unless a program says otherwise."""
    dtype = dtype_of_kind(request.dtype.kind)
    reply.body.serialized_pjrt_layout = session.executor.default_layout(dtype, len(request.dims))


def serve_default_device_assignment(_session: Session, request: Proto, reply: Reply) -> None:
    """Devices for a program that asks for none: the first ones, replica by replica."""
    assignment = reply.body.device_assignment
    assignment.replica_count = request.num_replicas
    assignment.computation_count = request.num_partitions
    for partition in range(request.num_partitions):
        ids = [
            replica * request.num_partitions + partition for replica in range(request.num_replicas)
        ]
        assignment.computation_devices.add(replica_device_ids=ids)


HANDLERS = {
    "init_request": Handler(serve_init),
    "get_default_layout_request": Handler(serve_default_layout),
    "get_default_device_assignment_request": Handler(serve_default_device_assignment),
}
