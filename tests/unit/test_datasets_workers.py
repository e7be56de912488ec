"""DataLoader's worker processes: the same batches, errors with their cause, and none left behind whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import errors
from alpha.datasets import ArrayDataset, DataLoader, transforms
from alpha.datasets.epoch import Epoch
from alpha.datasets.workers import WorkerPool, Workers, WorkerTraceback

ROOT = Path(alpha.__file__).parent.parent
pytestmark = pytest.mark.slow  # processes that start, fail and end

LIMIT = 180.0  # seconds; a hang fails the test rather than the whole run, a busy machine does not

AUGMENT = transforms.Compose(
    [
        transforms.RandomCrop(4, 2),
        transforms.RandomHorizontalFlip(),
        transforms.AlternatingFlip(),
        transforms.ToUnitRange(),
    ],
)

posix = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX's")


class TwoPartError(Exception):
    """Pickles, but does not come back: it needs two arguments and passes one on."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


class Faulty:
    """Sample ``at`` fails in the way that ``kind`` names."""

    def __init__(self, kind: str, at: int = 5) -> None:
        self.kind, self.at = kind, at

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index == self.at:
            if self.kind == "error":
                raise ValueError("sample is broken")
            if self.kind == "two parts":
                raise TwoPartError("broken", "sample")
            if self.kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "exit":
                os._exit(3)
            if self.kind == "slow":
                time.sleep(10 * LIMIT)
        return np.full((2, 2, 1), index, np.uint8), index


class Half:
    """A user's wrapper that takes single samples, randomly cropped, of an ArrayDataset."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return images()[2 * index]  # drawn from alpha's global seed


def images(n: int = 23) -> ArrayDataset:
    rng = np.random.default_rng(n)
    return ArrayDataset(rng.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8), np.arange(n), None, AUGMENT)


def contents(loader: DataLoader) -> list[tuple[bytes, list[int]]]:
    """Every batch of the next epoch, to the bit."""
    return [(x.numpy().tobytes(), y.numpy().tolist()) for x, y in loader]


def no_worker_is_left() -> bool:
    return multiprocessing.active_children() == []


# -- the same batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 2), (3, 0), (5, 2)])
def test_workers_change_nothing(workers: int, prefetch: int) -> None:
    alpha.manual_seed(5)
    for data in (images(), Half()):
        plain = DataLoader(data, batch_size=6, shuffle=True, seed=1, prefetch=0)
        spread = DataLoader(data, batch_size=6, shuffle=True, seed=1, workers=workers, prefetch=prefetch)
        assert contents(spread) == contents(plain)
        assert no_worker_is_left()
    assert spread.epoch == 1


def test_a_resumed_run_with_workers_goes_on_to_the_bit() -> None:
    plain = DataLoader(images(), batch_size=3, shuffle=True, seed=1, prefetch=0)
    whole = contents(plain) + contents(plain)
    loader = DataLoader(images(), batch_size=3, shuffle=True, seed=1, workers=2)
    for number, _ in enumerate(loader):
        if number == 4:
            break
    assert no_worker_is_left()
    resumed = DataLoader(images(), batch_size=3, shuffle=True, workers=3)
    resumed.load_state_dict(loader.state_dict())
    assert contents(resumed) + contents(resumed) == whole[5:]


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_reaches_the_caller_in_its_place_with_its_cause(prefetch: int) -> None:
    seen: list[list[int]] = []
    with pytest.raises(ValueError, match=r"^sample is broken$") as caught:
        for _, y in DataLoader(Faulty("error"), batch_size=2, workers=2, prefetch=prefetch):
            seen.append(y.numpy().tolist())
    assert seen == [[0, 1], [2, 3]]
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    trace = str(caught.value.__cause__)
    assert "in __getitem__" in trace and 'raise ValueError("sample is broken")' in trace
    assert no_worker_is_left()


def test_an_error_that_cannot_travel_becomes_a_data_error() -> None:
    with pytest.raises(errors.DataError, match="got TwoPartError: broken at sample") as caught:
        list(DataLoader(Faulty("two parts"), batch_size=2, workers=2))
    assert 'raise TwoPartError("broken", "sample")' in str(caught.value.__cause__)
    assert no_worker_is_left()


@posix
@pytest.mark.parametrize(("kind", "code"), [("killed", -9), ("exit", 3)])
def test_the_death_of_a_worker_is_told(kind: str, code: int) -> None:
    message = rf"expected batch 2 from worker process 0, got its end \(exit code {code}\)"
    with pytest.raises(errors.DataError, match=message):
        list(DataLoader(Faulty(kind), batch_size=2, workers=2))
    assert no_worker_is_left()


def test_a_data_set_that_cannot_travel_is_told() -> None:
    data = ArrayDataset(np.zeros((4, 2, 2, 1), np.uint8), [0] * 4, None, lambda images, rng: images)
    with pytest.raises(errors.ArgumentError, match=r"expected a data set that can be pickled for num_workers=2, got "):
        iter(DataLoader(data, workers=2, multiprocessing_context="spawn"))
    assert no_worker_is_left()
    if os.name == "posix" and sys.platform != "darwin":  # a fork needs no pickle
        assert len(list(DataLoader(data, workers=2))) == 4


# -- shutdown --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_leaving_the_loop_ends_workers_even_busy_ones(prefetch: int) -> None:
    started = time.monotonic()
    for _ in DataLoader(Faulty("slow"), batch_size=2, workers=2, prefetch=prefetch):
        break
    assert no_worker_is_left() and time.monotonic() - started < LIMIT


def test_an_error_in_the_loops_body_ends_the_workers() -> None:
    with pytest.raises(ZeroDivisionError):
        for _ in DataLoader(Faulty("slow"), batch_size=2, workers=2):
            1 / 0  # noqa: B018
    assert no_worker_is_left()


SCRIPT = """
import os, sys, time
import numpy as np
from alpha.datasets import DataLoader

class Slow:
    def __init__(self, at): self.at = at
    def __len__(self): return 1000
    def __getitem__(self, index):
        if index >= self.at: time.sleep(3600)
        return np.zeros((2, 2, 1), np.uint8), index

def main(workers, end):
    global kept
    kept = iter(DataLoader(Slow(8), batch_size=2, workers=workers))
    next(kept)
    print("ready", flush=True)
    if end == "loop":
        for _ in kept: pass
    if end == "wait":
        time.sleep(3600)
    if end == "error":
        raise SystemExit("the script's own error")

"""
GUARD = "if __name__ == '__main__': "


def launch(folder: Path, script: str) -> subprocess.Popen[str]:
    """A script in a process group of its own, so that whatever it leaves behind can be found."""
    path = folder / "script.py"
    path.write_text(script)
    # Where the tests run in a shell's background Ctrl-C is ignored, and the script would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def group_is_gone(group: int) -> bool:
    """Whether all processes of the group end, soon."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.killpg(group, signal.SIGKILL)
    return False


@posix
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("end", ["return", "error"])
def test_exit_in_the_middle_of_an_epoch_leaves_nothing(tmp_path: Path, workers: int, end: str) -> None:
    process = launch(tmp_path, f"{SCRIPT}\n{GUARD}main({workers}, {end!r})")
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == (1 if end == "error" else 0)
    assert err == ("the script's own error\n" if end == "error" else "")
    assert group_is_gone(process.pid)


@posix
@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_everything_with_one_traceback(tmp_path: Path, workers: int) -> None:
    process = launch(tmp_path, f"{SCRIPT}\n{GUARD}main({workers}, 'loop')")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # into the sample that never comes
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers too
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1 and err.endswith("KeyboardInterrupt\n")
    assert group_is_gone(process.pid)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_ctrl_c_never_reaches_a_worker_from_its_very_start() -> None:
    pool = WorkerPool(Epoch(Faulty("none"), 2, False, False, 0, 0), 0, Workers(2, context="spawn"))
    for process in multiprocessing.active_children():
        status = Path(f"/proc/{process.pid}/status").read_text()
        masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
        # Blocked from before its first instruction, ignored as soon as Python runs.
        assert any(int(mask, 16) >> (signal.SIGINT - 1) & 1 for mask in masks)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # and free again here
    assert len(list(pool)) == 6 and no_worker_is_left()


@posix
def test_workers_follow_a_killed_parent(tmp_path: Path) -> None:
    quick = SCRIPT.replace("Slow(8)", "Slow(1000)")
    process = launch(tmp_path, f"{quick}\n{GUARD}main(2, 'wait')")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate(timeout=LIMIT)
    assert group_is_gone(process.pid)


@posix
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    process = launch(
        tmp_path, f"print('begin', flush=True)\n{SCRIPT.replace('Slow(8)', 'Slow(1000)')}\nmain(2, 'loop')"
    )
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, "begin\nready\n", "")  # run once, not in each worker too
    assert group_is_gone(process.pid)
