# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Running compiled programs."""

from collections.abc import Iterable

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.arrays import (
    Array,
    error_array,
    first_error,
    origin_of,
    values_of,
)
from pathways_emulator.proxy.executor import Program, Value
from pathways_emulator.proxy.handlers.programs import program_of
from pathways_emulator.proxy.handlers.results import given, store
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session
from pathways_emulator.proxy.status import NotYet, Status, invalid_argument


def serve_execute(session: Session, request: Proto, reply: Reply) -> None:
    """Starts a program.

    On a dead slice, or with arguments that are errors, the results are errors and the request
    itself succeeds: programs such as pathwaysutils' liveness probe dispatch outside any ``try``
    and look for errors in the results.
    """
    program = program_of(session, request.loaded_executable_handle)
    slices = session.slices_of(program.devices)
    arguments = session.arrays.get_all(request.args_handles, slices)
    health = session.arrays.health
    error = health.dead(slices) or first_error(arguments)
    if error is not None:
        results = _errors(program, error)
    else:
        health.error_of(slices)  # A slice may be held only since the arguments were looked up.
        if session.executor.busy(session.resume):
            raise NotYet
        options = request.execute_options
        keep = frozenset(options.non_donatable_input_indices)
        own = health.incarnations(slices)
        origin = origin_of(own, arguments, session.executor.is_ready)
        values = session.executor.execute(program, values_of(arguments), keep)
        results = [
            Array(spec, value, own, origin)
            for spec, value in zip(program.outputs, values, strict=True)
        ]
    handles = store(session, request.result_array_handle, results)
    if request.execute_options.fill_status:
        _keep_status(session, request, reply, results)
    if not request.result_array_handle:
        # The first run: the client learns what the results look like, and will choose their
        # handles itself from now on.
        for handle, spec in zip(handles, program.outputs, strict=True):
            output = reply.body.outputs.add(array_handle=handle)
            output.dtype.kind = spec.dtype.kind
            output.shape.dims.extend(spec.shape)
            output.shape.SetInParent()
            spec.sharding.write_to(output.sharding)


def serve_fetch_execute_result(session: Session, request: Proto, reply: Reply) -> None:
    """The end of an execution, or its error."""
    results = session.executions.pop(request.result_status_handle, None)
    if results is None:
        raise invalid_argument(f"unknown execution status handle {request.result_status_handle}")
    session.when_ready(results, reply, _nothing)


def _nothing(_values: list[Value]) -> None:
    """The client only wants to know that the execution ended."""


def _keep_status(session: Session, request: Proto, reply: Reply, results: list[Array]) -> None:
    [status] = given(request.result_status_handle) or session.arrays.new_handles(1)
    session.executions[status] = results
    reply.body.status_handle = status


def _errors(program: Program, error: Status) -> list[Array]:
    return [error_array(error, spec) for spec in program.outputs]


def _result_array_handles(request: Proto) -> Iterable[int]:
    handles: Iterable[int] = request.result_array_handle
    return handles


def _status_handles(request: Proto) -> Iterable[int]:
    return given(request.result_status_handle)


HANDLERS = {
    "loaded_executable_execute_request": Handler(
        serve_execute, results=_result_array_handles, status_handles=_status_handles
    ),
    "loaded_executable_fetch_execute_result_request": Handler(serve_fetch_execute_result),
}
