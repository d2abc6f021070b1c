# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pathways_emulator import flags
from pathways_emulator.address import Address
from pathways_emulator.flags import ProxyFlags, ResourceManagerFlags, WorkerFlags

# As in the documents of Pathways on Slurm.
RESOURCE_MANAGER = [
    "--server_port=29001",
    "--node_type=resource_manager",
    "--instance_type=tpuv6e:2x4",
    "--instance_count=3",
    "--gcs_scratch_location=gs://bucket/pathways-scratch/shared",
    "--enable_gcs_olm=false",
]
WORKER = [
    "--server_port=29001",
    "--resource_manager_address=10.0.0.2:29001",
    "--gcs_scratch_location=gs://bucket/pathways-scratch/shared",
    "--enable_gcs_olm=false",
]
PROXY = [
    "--server_port=29000",
    "--resource_manager_address=cpu-node-1:29001",
    "--gcs_scratch_location=/shared/scratch",
    "--num_elastic_instances=3",
]


def server_faults(*arguments: str) -> list[str]:
    faults: list[str] = []
    flags.read_server(arguments, faults)
    return faults


def test_the_resource_managers_flags() -> None:
    faults: list[str] = []
    assert flags.read_server(RESOURCE_MANAGER, faults) == ResourceManagerFlags(
        29001, "tpuv6e:2x4", 3, "gs://bucket/pathways-scratch/shared", False
    )
    assert not faults


def test_a_workers_flags() -> None:
    faults: list[str] = []
    assert flags.read_server(WORKER, faults) == WorkerFlags(
        29001, Address("10.0.0.2", 29001), "gs://bucket/pathways-scratch/shared", False
    )
    assert not faults


def test_the_proxys_flags() -> None:
    faults: list[str] = []
    assert flags.read_proxy(PROXY, faults) == ProxyFlags(
        29000, Address("cpu-node-1", 29001), "/shared/scratch", 3
    )
    assert not faults


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        (["--enable_gcs_olm=true"], True),
        (["--enable_gcs_olm", "true"], True),
        (["--enable_gcs_olm", "False"], False),
        (["--enable_gcs_olm"], True),
        (["--noenable_gcs_olm"], False),
        (["-enable_gcs_olm=true"], True),
        (["--enable_gcs_olm=true", "--enable_gcs_olm=false"], False),
        ([], False),
    ],
)
def test_spellings_of_a_boolean(spelling: list[str], value: bool) -> None:
    faults: list[str] = []
    assert flags.read_server([*spelling, *WORKER[:3]], faults).enable_gcs_olm is value
    assert not faults


def test_a_value_may_be_an_argument_of_its_own() -> None:
    faults: list[str] = []
    separate = [part for argument in WORKER for part in argument.split("=", 1)]
    assert flags.read_server(separate, faults) == flags.read_server(WORKER, faults)
    assert not faults


def test_all_faults_come_at_once() -> None:
    faults = server_faults("--server_prot=1", "--server_port=0", "--node_type=boss", "stray")
    assert [fault.split(":")[0] for fault in faults] == [
        "--server_prot",
        "stray",
        "--server_port",
        "--gcs_scratch_location",
        "--node_type",
        "--instance_type",
        "--instance_count",
    ]
    assert "valid flags are --server_port, --node_type, --instance_type" in faults[0]
    assert faults[2] == "--server_port: '0' is not valid: expected a port, from 1 to 65535"
    assert faults[3].startswith("--gcs_scratch_location: missing; for example")


def test_the_value_of_an_unknown_flag_is_not_a_second_fault() -> None:
    faults = server_faults("--colour", "blue", *WORKER)
    assert len(faults) == 1
    assert faults[0].startswith("--colour: unknown flag")


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("--gcs_scratch_location=scratch", "expected gs://BUCKET/PATH or an absolute directory"),
        ("--gcs_scratch_location=gs:///path", "expected gs://BUCKET/PATH or an absolute directory"),
        ("--gcs_scratch_location=", "--gcs_scratch_location: empty"),
        ("--resource_manager_address=10.0.0.2", "expected NAME:PORT or IP:PORT"),
        ("--resource_manager_address=::1:29001", "expected NAME:PORT or IP:PORT"),
        ("--resource_manager_address=a b:29001", "expected NAME:PORT or IP:PORT"),
        ("--resource_manager_address=host:x", "expected a port"),
        ("--server_port=http", "expected a port, from 1 to 65535"),
        ("--enable_gcs_olm=maybe", "expected true or false"),
        ("--enable_gcs_olm=", "expected true or false"),
        ("--instance_count=3", "is not a flag of a worker, whose flags are --server_port"),
    ],
)
def test_a_faulty_value_is_told(argument: str, fault: str) -> None:
    faults = server_faults(*WORKER, argument)
    assert len(faults) == 1
    assert fault in faults[0]


def test_a_workers_flag_is_none_of_the_resource_managers() -> None:
    faults = server_faults(*RESOURCE_MANAGER, "--resource_manager_address=a:1")
    assert len(faults) == 1
    assert "is not a flag of the resource manager" in faults[0]


def test_a_forgotten_node_type_is_told() -> None:
    faults = server_faults(*(flag for flag in RESOURCE_MANAGER if "node_type" not in flag))
    assert faults == ["--node_type: missing; for example --node_type=resource_manager"]


def test_a_flag_without_its_value_is_told() -> None:
    faults = server_faults("--server_port", *WORKER[1:])
    assert faults == ["--server_port: empty; for example --server_port=29001"]


def test_a_negative_number_is_a_value() -> None:
    faults: list[str] = []
    flags.read_proxy([*PROXY[:3], "--num_elastic_instances", "-1"], faults)
    assert faults == ["--num_elastic_instances: '-1' is not valid: expected an integer, >= 0"]


def test_help_lists_every_flag() -> None:
    with pytest.raises(flags.HelpRequest) as request:
        flags.read_server(["--help"], [])
    names = ("server_port", "node_type", "instance_type", "instance_count", "enable_gcs_olm")
    assert all(f"--{name}=" in str(request.value) for name in names)
    with pytest.raises(flags.HelpRequest, match="--num_elastic_instances="):
        flags.read_proxy(["--help"], [])


def test_an_ipv6_address_is_written_in_brackets() -> None:
    faults: list[str] = []
    read = flags.read_server(
        [*WORKER[:1], *WORKER[2:], "--resource_manager_address=[::1]:7"], faults
    )
    assert isinstance(read, WorkerFlags)
    assert read.resource_manager_address == Address("::1", 7)
    assert str(read.resource_manager_address) == "[::1]:7"
    assert not faults
