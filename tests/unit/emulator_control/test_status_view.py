# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathways_emulator import membership_pb2 as pb
from pathways_emulator import status_view


def test_a_line_per_slice_with_all_that_is_known() -> None:
    notice = pb.Notice(reason="host 0 got SIGTERM", left_s=12.4)
    status = pb.StatusResponse(
        snapshot=pb.Snapshot(
            instance_type="tpuv6e:2x4",
            settled=True,
            slices=[
                pb.SliceMember(index=0, incarnation=3, alive=True, notice=notice),
                pb.SliceMember(index=1, incarnation=2, reason="host 1 left", abandoned="cancelled"),
                pb.SliceMember(index=2, reason="no worker has registered"),
            ],
        ),
        hosts=[
            pb.HostStatus(slice_index=0, host_index=0, pid=11, silent_s=0.44),
            pb.HostStatus(slice_index=0, host_index=1, pid=12, silent_s=1.0),
        ],
        uptime_s=61.4,
    )
    head, *table = status_view.render(status).splitlines()
    assert head == "3 slices of tpuv6e:2x4, up for 61 s"
    columns = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table]
    assert columns == [
        ["SLICE", "ALIVE", "INCARNATION", "NOTICE", "HOSTS (PID, SILENT FOR)", "REASON"],
        ["0", "yes", "3", "12 s left (host 0 got SIGTERM)", "0 (11, 0.4 s), 1 (12, 1.0 s)", "-"],
        ["1", "no", "2", "-", "-", "host 1 left; abandoned: cancelled"],
        ["2", "no", "-", "-", "-", "no worker has registered"],
    ]


def test_what_is_special_about_the_instance_is_told() -> None:
    snapshot = pb.Snapshot(instance_type="tpuv6e:2x4", settled=False)
    status = pb.StatusResponse(snapshot=snapshot, uptime_s=1.0, shutting_down=True)
    head = status_view.render(status).splitlines()[0]
    assert "not settled" in head
    assert head.endswith("shutting down")
