"""Worker processes for a user's own data sets: scripts without a guard, seeds, workers that are kept, time limits."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import datasets, errors
from alpha.datasets import transforms
from alpha.datasets.workers import WorkerTraceback
from alpha.utils import data
from tests.unit.test_datasets_workers import LIMIT, group_is_gone, launch, posix

pytestmark = pytest.mark.slow


class Numbers(data.Dataset):
    """Samples of what ``kind`` names."""

    def __init__(self, kind: str, count: int = 8) -> None:
        self.kind, self.count, self.begun = kind, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.kind == "broken" and index == 5:
            raise FileNotFoundError(f"sample {index}")
        if self.kind == "slow":
            time.sleep(10 * LIMIT)
        if self.kind == "draws":
            return random.random(), np.random.random(), float(alpha.rand(1))
        if self.kind == "process":
            self.begun += 1
            return os.getpid(), self.begun, getattr(self, "told", -1)
        return {"x": alpha.full((2,), index), "name": f"n{index}", "nested": (index, [index / 2])}


class Stream(data.IterableDataset):
    """Each worker gives its share of the numbers below 11."""

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        assert info is not None and info.dataset is self
        return iter(range(info.id, 11, info.num_workers))


class Tell:
    """Writes a worker's number where its data set sees it."""

    def __call__(self, worker: int) -> None:
        info = data.get_worker_info()
        assert info is not None and info.id == worker
        info.dataset.told = worker


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def listed(batch: Any) -> Any:
    return [part.tolist() if isinstance(part, alpha.Tensor) else part for part in batch]


@pytest.mark.parametrize("context", [None, "spawn", pytest.param("fork", marks=posix)])
def test_workers_give_what_the_loader_alone_gives(context: str | None) -> None:
    def run(**options: Any) -> list[Any]:
        loader = data.DataLoader(Numbers("nested"), 3, shuffle=True, seed=2, **options)
        return [(b["x"].tolist(), str(b["x"].dtype), b["name"], listed(b["nested"][1])) for b in loader]

    alone = run()
    assert run(num_workers=2, multiprocessing_context=context) == alone
    sampled = [[1], [2, 0, 3], [7], [5, 5]]
    loader = data.DataLoader(
        Numbers("nested"), batch_sampler=sampled, num_workers=3, multiprocessing_context=context, prefetch_factor=1
    )
    assert [batch["nested"][0].tolist() for batch in loader] == sampled


def test_a_stream_is_shared_between_workers() -> None:
    loader = data.DataLoader(Stream(), 2, num_workers=3)
    batches = [batch.tolist() for batch in loader]
    assert batches == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8]]
    assert [batch.tolist() for batch in data.DataLoader(Stream(), 2, num_workers=3, drop_last=True)] == batches[:-1]
    assert sorted(data.DataLoader(Stream(), None, num_workers=2)) == list(range(11))
    assert data.get_worker_info() is None


def test_each_worker_has_random_numbers_of_its_own() -> None:
    def run(seed: int) -> list[Any]:
        alpha.manual_seed(seed)
        loader = data.DataLoader(Numbers("draws"), 4, num_workers=2)
        return [listed(batch) for _ in range(2) for batch in loader]

    first = run(1)
    assert run(1) == first != run(2)
    for place in range(3):
        drawn = [number for batch in first for number in batch[place]]
        assert len(set(drawn)) == 16  # other ones in each worker and each epoch
    generator = alpha.Generator()
    drawn = []
    for _ in range(2):
        generator.manual_seed(3)
        drawn.append([listed(b) for b in data.DataLoader(Numbers("draws"), 4, num_workers=2, generator=generator)])
    assert drawn[0] == drawn[1]


def test_workers_are_kept_if_asked_for() -> None:
    loader = data.DataLoader(
        Numbers("process"), 2, num_workers=2, persistent_workers=True, worker_init_fn=Tell(), prefetch_factor=2
    )
    epochs = [[listed(batch) for batch in loader] for _ in range(3)]
    processes = {process for epoch in epochs for batch in epoch for process in batch[0]}
    assert len(processes) == 2 and os.getpid() not in processes
    assert [batch[1] for batch in epochs[2]] == [[9, 10], [9, 10], [11, 12], [11, 12]]  # their data sets live on
    assert {told for epoch in epochs for batch in epoch for told in batch[2]} == {0, 1}
    for batch in loader:
        assert batch[0][0].item() in processes
        break
    again = [listed(batch) for batch in loader]
    assert len(again) == 4 and {process for batch in again for process in batch[0]} <= processes
    fresh = data.DataLoader(Numbers("process"), 2, num_workers=2)
    assert {p for b in fresh for p in b[0].tolist()}.isdisjoint({p for b in fresh for p in b[0].tolist()})
    del loader


def test_an_error_comes_with_the_workers_traceback() -> None:
    for persistent in (False, True):
        loader = data.DataLoader(Numbers("broken"), 2, num_workers=2, persistent_workers=persistent)
        seen = []
        for _ in range(2):  # a second epoch has workers too
            with pytest.raises(FileNotFoundError, match=r"^sample 5$") as caught:
                for batch in loader:
                    seen.append(batch["name"])
            assert isinstance(caught.value.__cause__, WorkerTraceback)
            assert 'raise FileNotFoundError(f"sample {index}")' in str(caught.value.__cause__)
        assert seen == [["n0", "n1"], ["n2", "n3"]] * 2
        del loader, caught


def test_a_worker_that_takes_too_long_is_told() -> None:
    with pytest.raises(errors.DataError, match=r"expected batch 0 from worker process 0 within timeout=0.2 seconds"):
        next(iter(data.DataLoader(Numbers("slow"), 2, num_workers=1, timeout=0.2)))


def test_tensors_have_the_layout_of_the_loop() -> None:
    steps = [transforms.Lambda(lambda image: image), transforms.ToTensor()]  # a lambda: it cannot be pickled
    digits = datasets.Digits(size=8, transform=transforms.Compose(steps))
    loader = data.DataLoader(digits, 500, num_workers=2)
    with alpha.set_image_layout("NCHW"):
        assert {x.shape[1:] for x, _ in loader} == {(3, 8, 8)}
    assert {x.shape[1:] for x, _ in loader} == {(8, 8, 3)}


SCRIPT = """
import sys, time
print("begin", flush=True)
import alpha
from alpha import datasets
from alpha.datasets import transforms
from alpha.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __init__(self, make): self.make = make
    def __len__(self): return 6
    def __getitem__(self, index):
        if index >= STUCK: time.sleep(3600)
        return self.make(index), FACTOR * index

STUCK = 100
FACTOR = 10
loader = DataLoader(Squares(lambda index: alpha.tensor(index * index)), batch_size=3, num_workers=2)
print([[part.tolist() for part in batch] for batch in loader])
digits = datasets.Digits(size=8, transform=transforms.ToTensor())
print(sum(len(y) for _, y in DataLoader(digits, batch_size=500, num_workers=2)))
print(sum(len(y) for _, y in DataLoader(datasets.Digits(size=8), batch_size=500, num_workers=2)))
"""


@posix
def test_a_script_needs_no_guard_for_what_it_defines(tmp_path: Path) -> None:
    process = launch(tmp_path, SCRIPT)
    out, err = process.communicate(timeout=LIMIT)
    assert err == "" and process.returncode == 0
    assert out == "begin\n[[[0, 1, 4], [0, 10, 20]], [[9, 16, 25], [30, 40, 50]]]\n1437\n1437\n"
    assert group_is_gone(process.pid)


@posix
@pytest.mark.parametrize("persistent", [False, True])
def test_ctrl_c_in_a_script_without_a_guard_leaves_no_process(tmp_path: Path, persistent: bool) -> None:
    import signal

    script = SCRIPT.replace("STUCK = 100", "STUCK = 3").replace("print([[", "print('ready', flush=True); print([[")
    process = launch(tmp_path, script.replace("num_workers=2)", f"num_workers=2, persistent_workers={persistent})"))
    assert process.stdout is not None and [process.stdout.readline() for _ in range(2)] == ["begin\n", "ready\n"]
    time.sleep(0.5)  # into the sample that never comes
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers too
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1 and err.endswith("KeyboardInterrupt\n")
    assert group_is_gone(process.pid)


@posix
@pytest.mark.parametrize("end", ["kill", "exit"])
def test_forked_workers_end_with_their_parent(tmp_path: Path, end: str) -> None:
    script = SCRIPT.replace("STUCK = 100", "STUCK = 3").replace(
        "print([[part", "kept = iter(loader); next(kept); print('ready', flush=True)\nif END: sys.exit()\nprint([[part"
    )
    process = launch(tmp_path, f"END = {end == 'exit'}\n{script}")
    assert process.stdout is not None and [process.stdout.readline() for _ in range(2)] == ["begin\n", "ready\n"]
    if end == "kill":
        process.kill()
    process.communicate(timeout=LIMIT)
    assert group_is_gone(process.pid)
