# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The example's loop, its command line, and the program as a process."""

import gc
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sharded_training as sharded
import train_transformer as program
from char_transformer import ModelConfig, load_text

PROGRAM = Path(program.__file__)


class LossOfASlice(program.Reporter):
    """Fails as reading a loss does when a slice is gone, once, at the step given."""

    at: int | None = None

    def step(self, step: int, loss: float, slices: Any) -> None:
        if step == self.at:
            self.at = None
            raise jax.errors.JaxRuntimeError("DATA_LOSS: slice 1 is gone\nand more")
        super().step(step, loss, slices)


def slices(*indices: int) -> dict[int, list[jax.Device]]:
    return {i: jax.devices()[i * 2 : i * 2 + 2] for i in indices}


@pytest.fixture(scope="module")
def trainer() -> sharded.Trainer:
    return sharded.Trainer(
        sharded.Run(ModelConfig(layers=1, width=16, seq_len=12), global_batch=6, seed=0)
    )


class Manager:
    """Does what the real one does to the loop, with slices that nothing happens to.

    Its snapshots are of every third step. After a loss, ``left`` are the slices to go on with; at
    the step ``grows_at`` it goes on with all of them, as with slices that are back.
    """

    def __init__(self, used: dict[int, Any], left: dict[int, Any], grows_at: int = 0) -> None:
        self.good_slice_to_devices = used
        self._left = left
        self._grows_at = grows_at
        self._kept: tuple[int, Any] = 0, None

    def get_next_snapshot(self) -> tuple[int, Any]:
        step, state = self._kept
        mesh = sharded.build_mesh(self.good_slice_to_devices)
        return step, jax.tree.map(
            lambda x: jax.device_put(x, sharded.shard_within_slice(x.shape, mesh)), state
        )

    def maybe_snapshot(self, *, step: int, snapshot: Any) -> None:
        if step % 3 == 0 or step == self._grows_at:
            self._kept = step, jax.tree.map(np.asarray, snapshot)

    def maybe_reshard_up(self, *, step: int, elastic_handler: Any, **_: Any) -> Any:
        if step != self._grows_at:
            return None
        self.good_slice_to_devices = slices(0, 1, 2)
        return elastic_handler(self)

    def maybe_reshard_down(self, *, elastic_handler: Any, **_: Any) -> Any:
        self.good_slice_to_devices = self._left
        return elastic_handler(self)


def loop(
    trainer: sharded.Trainer, directory: Path, manager: Any = None, steps: int = 7
) -> program.Loop:
    return program.Loop(
        trainer=trainer,
        text=load_text(50_000),
        reporter=LossOfASlice(metrics=io.StringIO()),
        steps=steps,
        manager=manager or program.Steady(jax.devices()[:4]),
        checkpoints=sharded.Checkpoints(directory),
        checkpoint_period=5,
    )


def run(loop: program.Loop) -> list[dict[str, Any]]:
    """What it tells."""
    with loop.checkpoints:
        loop.run()
    assert isinstance(loop.reporter.metrics, io.StringIO)
    return [json.loads(line) for line in loop.reporter.metrics.getvalue().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(
    trainer: sharded.Trainer, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, float]:
    undisturbed = loop(trainer, tmp_path_factory.mktemp("undisturbed"))
    run(undisturbed)
    return undisturbed.reporter.losses


def test_lost_slice_costs_the_steps_since_the_snapshot(
    trainer: sharded.Trainer, undisturbed: dict[int, float], tmp_path: Path
) -> None:
    disturbed = loop(trainer, tmp_path, Manager(slices(0, 1, 2), left=slices(0, 2)))
    assert isinstance(disturbed.reporter, LossOfASlice)
    disturbed.reporter.at = 5
    told = [(e["event"], e.get("step", e.get("active", e.get("message")))) for e in run(disturbed)]
    assert told == [
        ("slices", [0, 1, 2]),
        *(("step", n) for n in range(1, 5)),
        ("error", "DATA_LOSS: slice 1 is gone"),
        ("slices", [0, 2]),
        ("snapshot", 3),
        *(("step", n) for n in range(4, 8)),
    ]
    assert disturbed.reporter.losses == pytest.approx(undisturbed, rel=1e-4)


def test_returned_slice_is_taken_in_between_two_steps(
    trainer: sharded.Trainer, undisturbed: dict[int, float], tmp_path: Path
) -> None:
    disturbed = loop(trainer, tmp_path, Manager(slices(0, 2), left={}, grows_at=2))
    told = [(e["event"], e["step"], e["slices"]) for e in run(disturbed) if "step" in e]
    assert told == [
        *(("step", n, [0, 2]) for n in (1, 2)),
        ("snapshot", 2, [0, 1, 2]),
        *(("step", n, [0, 1, 2]) for n in range(3, 8)),
    ]
    assert disturbed.reporter.losses == pytest.approx(undisturbed, rel=1e-4)


def test_slice_lost_where_no_manager_is_ends_the_run_and_leaves_no_arrays(
    trainer: sharded.Trainer, tmp_path: Path
) -> None:
    lost = loop(trainer, tmp_path)
    assert isinstance(lost.reporter, LossOfASlice)
    lost.reporter.at = 4
    gc.collect()
    before = len(jax.live_arrays())
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        run(lost)
    assert len(jax.live_arrays()) > before
    del caught
    gc.collect()
    assert len(jax.live_arrays()) == before


def test_finished_run_takes_no_step_again(trainer: sharded.Trainer, tmp_path: Path) -> None:
    run(loop(trainer, tmp_path, steps=2))
    assert [e["event"] for e in run(loop(trainer, tmp_path, steps=2))] == ["slices", "restore"]


def test_every_bad_option_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "--steps 0 --width 30 --dropout 1 --seed -1 --poll-interval 0 --min-slices x"
    bad += " --min-step-time -1 --snapshot-period 0"
    with pytest.raises(SystemExit) as ended:
        program.parse_options(bad.split(), {})
    assert ended.value.code == 2
    told = capsys.readouterr().err
    for fault in (
        "--steps must be >= 1, got 0",
        "--width must be a multiple of 4, got 30",
        "--dropout must be >= 0 and < 1, got 1.0",
        "--seed must be >= 0, got -1",
        "--poll-interval must be > 0, got 0.0",
        "--min-step-time must be >= 0, got -1.0",
        "--snapshot-period must be >= 1, got 0",
        "--min-slices must be an integer >= 1, got 'x'",
    ):
        assert fault in told


def test_min_slices_comes_from_the_service_unless_given() -> None:
    env = {"PATHWAYS_MIN_SLICES": "3"}
    assert program.parse_options([], env).min_slices == 3
    assert program.parse_options(["--min-slices", "2"], env).min_slices == 2
    assert program.parse_options([], {}).min_slices == 1


@pytest.fixture
def signals() -> Iterator[program.StopSignals]:
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    yield program.StopSignals()
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("signals")
def test_signal_stops_at_once() -> None:
    with pytest.raises(program.Stopped, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)


def test_signal_waits_for_the_end_of_the_outermost_shield(signals: program.StopSignals) -> None:
    done = []

    def work() -> None:
        with signals.shield():
            with signals.shield():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("never")

    with pytest.raises(program.Stopped, match="SIGINT"):
        work()
    assert done == ["inner", "outer"]


# --- the program as a process -------------------------------------------------------------------


def start(*arguments: str | Path, tmp: Path) -> "subprocess.Popen[str]":
    env = {
        "PATH": os.environ["PATH"],
        "JAX_PLATFORMS": "cpu",
        "TMPDIR": str(tmp),
    }
    return subprocess.Popen(
        [sys.executable, PROGRAM, *arguments],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def sixty_steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    tmp = tmp_path_factory.mktemp("sixty")
    process = start("--steps", "60", "--metrics", tmp / "metrics", tmp=tmp)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, err) == (0, ""), out
    return out, lines_of(tmp / "metrics")


def test_loss_falls_on_plain_jax(sixty_steps: tuple[str, list[Any]]) -> None:
    out, lines = sixty_steps
    losses = {e["step"]: e["loss"] for e in lines if e["event"] == "step"}
    assert sorted(losses) == list(range(1, 61))
    assert losses[1] > 5
    assert losses[60] < 3.2
    assert out.splitlines()[-1] == (f"loss {losses[1]:.4f} at step 1, {losses[60]:.4f} at step 60")


def test_run_resumed_by_another_process_repeats_the_losses(
    sixty_steps: tuple[str, list[Any]], tmp_path: Path
) -> None:
    for steps in ("6", "12"):
        options = (
            "--steps",
            steps,
            "--checkpoint-dir",
            tmp_path / "c",
            "--metrics",
            tmp_path / "m",
        )
        process = start(*options, tmp=tmp_path)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, err) == (0, ""), out
    lines = lines_of(tmp_path / "m")
    assert [e["step"] for e in lines if e["event"] == "restore"] == [6]
    found = {e["step"]: e["loss"] for e in lines if e["event"] == "step"}
    expected = {e["step"]: e["loss"] for e in sixty_steps[1] if e["event"] == "step"}
    assert found == {step: expected[step] for step in range(1, 13)}


def test_checkpoints_of_other_options_are_refused(tmp_path: Path) -> None:
    sharded.check_same_run(tmp_path, sharded.Run(ModelConfig(), global_batch=24, seed=5))
    process = start("--checkpoint-dir", tmp_path, tmp=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "seed 5 there, 0 here" in err


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_program_cleanly(tmp_path: Path, signum: int, status: int) -> None:
    process = start("--steps", "100000", "--metrics", tmp_path / "m", tmp=tmp_path)
    assert process.stdout is not None
    assert any(line.startswith("step ") for line in process.stdout)
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (status, ""), out
    assert f"stopped by {signal.Signals(signum).name} after step" in out
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
