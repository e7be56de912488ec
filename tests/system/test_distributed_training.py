"""The training script on several ranks: one set of weights, whatever ends them and however many go on."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("mpi4py", "sklearn")]

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "examples" / "train_cifar10.py"
KILLED = Path(__file__).with_name("killed_training.py")
OPTIONS = ["--dataset", "digits", "--base-width", "4", "--shards", "4", "--epochs", "2", "--checkpoint-every", "3"]


def command(ranks: int | None, *arguments: object, options: tuple[str, ...] = ()) -> list[str]:
    """The command line: by the launcher, or without it."""
    launcher = [] if ranks is None else ["-m", "alpha.distributed.run", "-n", str(ranks), *options]
    return [sys.executable, *launcher, *map(str, arguments)]


def run(ranks: int | None, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(ranks, *arguments, options=options), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def losses(folder: Path) -> list[list[str]]:
    """Steps, losses and accuracies of metrics.csv, without times."""
    rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    return [[row[0], row[2], row[3]] for row in rows]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = run(None, SCRIPT, *OPTIONS, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_leaves_the_same_weights(undisturbed: Path, tmp_path: Path, ranks: int) -> None:
    done = run(ranks, SCRIPT, *OPTIONS, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1
    assert weights(tmp_path / "run") == weights(undisturbed)
    assert losses(tmp_path / "run") == losses(undisturbed)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, None)])
def test_ctrl_c_saves_and_another_number_of_ranks_goes_on(
    undisturbed: Path, tmp_path: Path, before: int, after: int | None
) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(
        command(before, SCRIPT, *OPTIONS, "--out", folder), cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 120
        while not (folder / "metrics.csv").exists() or len(losses(folder)) < 4:
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert error.count("all saved; go on with") == 1, error
    assert 4 <= len(losses(folder)) < len(losses(undisturbed))
    done = run(after, SCRIPT, "--resume", folder)
    assert done.returncode == 0, done.stderr
    assert weights(folder) == weights(undisturbed)
    assert losses(folder) == losses(undisturbed)


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_is_killed_is_done_without(undisturbed: Path, tmp_path: Path, rank: int) -> None:
    folder = tmp_path / "run"
    options = ("--restarts", "3", "--min-ranks", "1")
    done = run(4, KILLED, rank, 7, *OPTIONS, "--out", folder, options=options)
    assert done.returncode == 0, done.stderr
    assert f"rank {rank}: killed by signal 9" in done.stderr
    assert "with 2 ranks" in done.stderr  # 3 are left, of which 2 divide the shards
    assert weights(folder) == weights(undisturbed)
    assert losses(folder) == losses(undisturbed)
