# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""From a portable artifact to a program that runs, and what the client must know of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from pathways_emulator.descriptors import Proto, messages
from pathways_emulator.proxy import xla
from pathways_emulator.proxy.dtypes import dtype_named
from pathways_emulator.proxy.executor import ArraySpec
from pathways_emulator.proxy.shardings import (
    even_sharding,
    hlo_sharding,
    single_device_sharding,
)
from pathways_emulator.proxy.status import invalid_argument, unimplemented
from pathways_emulator.proxy.xla import XlaClient, XlaDevice, XlaExecutable

# XLA's CPU collectives end the process when a participant is late. On a loaded machine a
# participant is late without being stuck, so: never (a day, as XLA has no word for never).
_COLLECTIVE_TIMEOUT_S = 24 * 3600

# Custom calls whose handling needs the client's Python process: compiling them here would crash or
# fail in ways that say nothing.
_REFUSED_CUSTOM_CALLS = (
    "InspectSharding",
    "CustomSPMDPartitioning",
    "xla_python_cpu_callback",
    "xla_ffi_python_cpu_callback",
    "xla_ffi_partitioned_python_cpu_callback",
    "xla_buffer_python_cpu_callback",
)

# Attributes of a parameter whose memory the program may take for its results.
_DONATION_ATTRIBUTES = ("tf.aliasing_output", "jax.buffer_donor")


@dataclass(slots=True)
class CpuProgram:
    """A :class:`~pathways_emulator.proxy.executor.Program` of the CPU runtime."""

    name: str
    devices: tuple[int, ...]
    outputs: tuple[ArraySpec, ...]
    donatable: frozenset[int]
    fingerprint: bytes
    metadata: bytes
    executable: XlaExecutable
    smallest_output: int
    output_bytes: int
    handlers: list[Any] = field(default_factory=list)

    def cost_analysis(self) -> dict[str, Any]:
        properties: dict[str, Any] = self.executable.cost_analysis()
        return properties

    def text(self) -> str:
        modules = self.executable.hlo_modules()
        return "\n\n".join(module.to_string() for module in modules)


def compile_program(
    client: XlaClient, devices: Sequence[XlaDevice], program: bytes, options: bytes
) -> CpuProgram:
    """Compiles a StableHLO portable artifact for the devices its options assign.

    Raises:
        ProxyError: UNIMPLEMENTED, if the program needs the client's Python process;
            INVALID_ARGUMENT, if the device assignment names devices that do not exist.
        XlaRuntimeError: XLA refuses the program.
    """
    _refuse_custom_calls(program)
    options_proto = messages()["xla.CompileOptionsProto"].FromString(options)
    build = options_proto.executable_build_options
    device_ids = _assigned_devices(build.device_assignment, len(devices))
    debug = build.debug_options
    debug.xla_cpu_collective_call_warn_stuck_seconds = _COLLECTIVE_TIMEOUT_S
    debug.xla_cpu_collective_call_terminate_timeout_seconds = _COLLECTIVE_TIMEOUT_S
    debug.xla_cpu_collective_timeout_seconds = _COLLECTIVE_TIMEOUT_S

    with xla.ProgramContext() as context:
        module = xla.jax.mlir.deserialize_portable_artifact(program, context)
        name = module.operation.attributes["sym_name"].value
        main = next(op for op in module.body.operations if _symbol(op) == "main")
        results = [_tensor(str(result)) for result in main.type.results]
        donatable = _donatable(main)
        executable = client.compile_and_load(
            module,
            xla.jax.DeviceList(tuple(devices[device] for device in device_ids)),
            xla.jax.CompileOptions.ParseFromString(options_proto.SerializeToString()),
        )
    memory_kinds = executable.get_output_memory_kinds()[0]
    shardings = executable.get_output_shardings()
    outputs = []
    for index, (dtype_name, shape) in enumerate(results):
        memory_kind = memory_kinds[index]
        if len(device_ids) == 1:
            sharding = single_device_sharding(device_ids[0], memory_kind)
        elif shardings is not None:
            sharding = hlo_sharding(device_ids, memory_kind, shardings[index].SerializeToString())
        else:
            sharding = even_sharding(device_ids, memory_kind, shape, shape)
        outputs.append(ArraySpec(dtype_named(dtype_name), shape, sharding))
    return CpuProgram(
        name=name,
        devices=device_ids,
        outputs=tuple(outputs),
        donatable=donatable,
        fingerprint=executable.fingerprint or b"",
        metadata=_metadata(executable, donatable).SerializeToString(),
        executable=executable,
        output_bytes=_output_bytes(outputs),
        smallest_output=min(range(len(outputs)), key=lambda i: prod(outputs[i].shape), default=0),
    )


def compile_relayout(
    client: XlaClient, device: XlaDevice, dtype: str, shape: tuple[int, ...], layout: str
) -> XlaExecutable:
    """A program that changes the layout of one array on one device, and nothing else.

    Args:
        client: Compiles.
        device: Where the array is.
        dtype: As MLIR spells it.
        shape: Of the array.
        layout: Of the result, as XLA spells it.
    """
    tensor = f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"
    text = f"""
        module @relayout {{
          func.func public @main(%source: {tensor} {{mhlo.layout_mode = "default"}})
              -> ({tensor} {{mhlo.layout_mode = "{layout}"}}) {{
            return %source : {tensor}
          }}
        }}"""
    options = xla.jax.CompileOptions()
    options.device_assignment = xla.jax.DeviceAssignment.create(np.array([[device.id]]))
    with xla.ProgramContext() as context, xla.ir.Location.unknown(context):
        return client.compile_and_load(
            xla.ir.Module.parse(text), xla.jax.DeviceList((device,)), options
        )


def _output_bytes(outputs: Sequence[ArraySpec]) -> int:
    """What the results take, on all devices together."""
    return sum(
        output.dtype.numpy.itemsize * prod(shape)
        for output in outputs
        if not output.dtype.is_token
        for shape in output.sharding.shard_shapes_of(output.shape)
    )


def _refuse_custom_calls(program: bytes) -> None:
    # The names stand in the artifact as they are, so most programs need no walk over operations.
    suspects = [name for name in _REFUSED_CUSTOM_CALLS if name.encode() in program]
    if not suspects:
        return
    with xla.ProgramContext() as context:
        module = xla.jax.mlir.deserialize_portable_artifact(program, context)
        text = str(module)
    for name in suspects:
        if f"@{name}(" in text or f'call_target_name = "{name}"' in text:
            raise unimplemented(
                f"custom call {name}: it needs the client's Python process "
                "(host callbacks, jax.debug.inspect_array_sharding and custom_partitioning "
                "do not work through the emulator's proxy)"
            )


def _symbol(operation: Any) -> str | None:
    attributes = operation.attributes
    return attributes["sym_name"].value if "sym_name" in attributes else None


def _assigned_devices(assignment: Proto, device_count: int) -> tuple[int, ...]:
    """Devices of a ``DeviceAssignmentProto``, replica by replica."""
    columns = [list(column.replica_device_ids) for column in assignment.computation_devices]
    replicas = range(assignment.replica_count)
    ids = tuple(column[replica] for replica in replicas for column in columns)
    wrong = [device for device in ids if not 0 <= device < device_count]
    if wrong or not ids:
        raise invalid_argument(
            f"the device assignment {ids} must name devices from 0 to {device_count - 1}"
        )
    return ids


def _tensor(text: str) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of ``tensor<2x3xf32>`` or ``!stablehlo.token``."""
    if not text.startswith("tensor<"):
        return text, ()
    inner = text.removeprefix("tensor<").removesuffix(">")
    inner = inner.partition(", ")[0]  # an encoding, such as bounds
    *dims, element = inner.split("x") if not inner.startswith("complex") else [inner]
    if any(not dim.isdigit() for dim in dims):
        # "complex<f32>" has an x of its own, after the dimensions.
        head, _, tail = inner.partition("complex")
        dims, element = head.split("x")[:-1], f"complex{tail}"
    if any(not dim.isdigit() for dim in dims):
        raise unimplemented(f"a program's result of type {text}")
    return element, tuple(int(dim) for dim in dims)


def _donatable(main: Any) -> frozenset[int]:
    if "arg_attrs" not in main.attributes:
        return frozenset()
    return frozenset(
        index
        for index, attributes in enumerate(main.attributes["arg_attrs"])
        if any(name in attributes for name in _DONATION_ATTRIBUTES)
    )


def _metadata(executable: XlaExecutable, donatable: frozenset[int]) -> Proto:
    """The client asks for all of this right after it compiled."""
    metadata = messages()["xla.ifrt.proxy.LoadedExecutableMetadataResponse"]()
    for field_name, shardings in (
        ("parameter_shardings", executable.get_parameter_shardings()),
        ("output_shardings", executable.get_output_shardings()),
    ):
        if shardings is not None:
            target = getattr(metadata, field_name)
            target.SetInParent()
            for sharding in shardings:
                target.shardings.add().MergeFromString(sharding.SerializeToString())
    for field_name, layouts in (
        ("parameter_layouts_list", executable.get_parameter_layouts()),
        ("output_layouts_list", executable.get_output_layouts()),
    ):
        target = getattr(metadata, field_name)
        target.SetInParent()
        for layout in layouts:
            xla_layout = layout._xla_layout()
            target.layouts.add(
                minor_to_major=xla_layout.minor_to_major(),
                element_size_in_bits=xla_layout.element_size_in_bits(),
            )
    metadata.output_memory_kinds.SetInParent()
    for kinds in executable.get_output_memory_kinds():
        metadata.output_memory_kinds.memory_kind_lists.add(memory_kinds=kinds)
    metadata.donated_input_indices.SetInParent()
    metadata.donated_input_indices.donated_input_indices.extend(sorted(donatable))
    stats = executable.get_compiled_memory_stats()
    metadata.compiled_memory_stats.SetInParent()
    for stat in metadata.compiled_memory_stats.DESCRIPTOR.fields:
        value = getattr(stats, stat.name, None)
        if isinstance(value, int):
            setattr(metadata.compiled_memory_stats, stat.name, value)
    metadata.size_of_generated_code_in_bytes = executable.size_of_generated_code_in_bytes()
    return metadata
