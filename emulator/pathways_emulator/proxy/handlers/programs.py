# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled programs: making them, asking about them, forgetting them."""

from pathways_emulator.descriptors import Proto, messages
from pathways_emulator.proxy.executor import Program
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session
from pathways_emulator.proxy.status import invalid_argument, unimplemented

# The name changed during the supported versions of jaxlib; the data did not.
_XLA_PROGRAMS = ("xla::ifrt::XlaProgram", "xla::ifrt::HloProgram")
_XLA_OPTIONS = "xla::ifrt::XlaCompileOptions"


def program_of(session: Session, handle: int) -> Program:
    """The program behind a handle.

    Raises:
        ProxyError: INVALID_ARGUMENT, if there is none.
    """
    program = session.programs.get(handle)
    if program is None:
        raise invalid_argument(f"unknown executable handle {handle}")
    return program


def serve_compile(session: Session, request: Proto, reply: Reply) -> None:
    """Compiles an XLA program, whether or not the slices it is for are alive."""
    program, options = request.program, request.compile_options
    if program.type_name not in _XLA_PROGRAMS or options.type_name != _XLA_OPTIONS:
        raise unimplemented(
            f"CompileRequest: a program of type {program.type_name} with options of type "
            f"{options.type_name}; the emulator compiles {_XLA_PROGRAMS[0]} with {_XLA_OPTIONS}"
        )
    if request.host_callbacks:
        raise unimplemented("CompileRequest: host callbacks")

    def work() -> None:
        xla_options = messages()["xla.ifrt.XlaCompileOptionsProto"].FromString(options.data)
        compiled = session.executor.compile(
            program.data, xla_options.compile_options.SerializeToString()
        )
        handle, future = session.arrays.new_handles(2)
        session.programs[handle] = compiled
        session.futures[future] = False
        response = reply.body
        response.loaded_executable_handle = handle
        response.name = compiled.name
        response.num_devices = len(compiled.devices)
        response.device_ids.extend(compiled.devices)
        response.addressable_device_ids.extend(compiled.devices)
        response.fingerprint_value = compiled.fingerprint
        response.ready_future_handle = future

    session.run(reply, work)


def serve_metadata(session: Session, request: Proto, reply: Reply) -> None:
    """Shardings, layouts, memory kinds and donations."""
    program = program_of(session, request.loaded_executable_handle)
    reply.body.MergeFromString(program.metadata)


def serve_cost_analysis(session: Session, request: Proto, reply: Reply) -> None:
    """XLA's estimates, such as flops."""
    program = program_of(session, request.loaded_executable_handle)

    def work() -> None:
        attributes = reply.body.attributes
        attributes.SetInParent()
        for name, value in program.cost_analysis().items():
            _set_attribute(attributes.attributes[name], value)

    session.run(reply, work)


def serve_text(session: Session, request: Proto, reply: Reply) -> None:
    """The optimized HLO."""
    program = program_of(session, request.loaded_executable_handle)

    def work() -> None:
        reply.body.human_readable_program_text = program.text()

    session.run(reply, work)


def serve_destruct(session: Session, request: Proto, _reply: Reply) -> None:
    """Forgets a program; executions under way keep what they need."""
    program_of(session, request.loaded_executable_handle)
    del session.programs[request.loaded_executable_handle]


def serve_is_deleted(session: Session, request: Proto, reply: Reply) -> None:
    """Programs are only ever destructed."""
    program_of(session, request.loaded_executable_handle)
    reply.body.is_deleted = False


def _set_attribute(proto: Proto, value: object) -> None:
    if isinstance(value, bool):
        proto.bool_value = value
    elif isinstance(value, int):
        proto.int64_value = value
    elif isinstance(value, float):
        proto.float_value = value
    elif isinstance(value, list):
        proto.int64_list_value.elements.extend(value)
    else:
        proto.string_value = str(value).encode()


HANDLERS = {
    "compile_request": Handler(serve_compile),
    "loaded_executable_metadata_request": Handler(serve_metadata),
    "loaded_executable_cost_analysis_request": Handler(serve_cost_analysis),
    "loaded_executable_human_readable_program_text_request": Handler(serve_text),
    "loaded_executable_destruct_request": Handler(serve_destruct),
    "loaded_executable_is_deleted_request": Handler(serve_is_deleted),
}
