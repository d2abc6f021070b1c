# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Message classes come from the library alone."""

import pytest
from google.protobuf import descriptor_pb2

from pathways_emulator.descriptors import DescriptorError, make_messages, messages, scan


def file_named(name: str, *dependencies: str) -> descriptor_pb2.FileDescriptorProto:
    message = descriptor_pb2.DescriptorProto(name="M" + name.removesuffix(".proto"))
    return descriptor_pb2.FileDescriptorProto(
        name=name, package="p", dependency=dependencies, message_type=[message], syntax="proto3"
    )


def test_descriptors_are_found_among_other_bytes() -> None:
    first, second = file_named("a.proto"), file_named("dir/b.proto", "a.proto")
    noise = b"see a.proto \x0a\x07x.proto\x00 and \x0a\x05"
    data = noise + first.SerializeToString() + b"\x00\x00" + second.SerializeToString()
    # Two that touch, and one that is cut off.
    data += file_named("c.proto").SerializeToString() + file_named("d.proto").SerializeToString()
    data += file_named("cut.proto").SerializeToString()[:12]
    found = scan(data)
    assert found == {
        file.name: file for file in (first, second, file_named("c.proto"), file_named("d.proto"))
    }


def test_the_dependencies_of_the_roots_come_along() -> None:
    files = {
        file.name: file
        for file in (file_named("a.proto"), file_named("b.proto", "a.proto"), file_named("c.proto"))
    }
    classes = make_messages(files, ["b.proto"])
    assert classes["p.Ma"].DESCRIPTOR.full_name == "p.Ma"
    with pytest.raises(DescriptorError, match=r"no message 'p\.Mc'"):
        classes["p.Mc"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DescriptorError, match=r"no descriptor of 'a\.proto'"):
        make_messages({"b.proto": file_named("b.proto", "a.proto")}, ["b.proto"])


def test_the_installed_library_has_the_proxy_messages() -> None:
    request = messages()["xla.ifrt.proxy.IfrtRequest"]()
    request.request_metadata.op_id = 7
    request.init_request.SetInParent()
    again = type(request).FromString(request.SerializeToString())
    assert again.WhichOneof("request") == "init_request"
    assert again.request_metadata.op_id == 7
