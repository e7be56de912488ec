"""Checkpoints on several ranks, which are threads here: written by one, loaded by all or by none; files in progress."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import distributed as dist
from alpha import files, nn, optim, random, serialization
from alpha.errors import CheckpointError, DistributedError
from alpha.nn import functional as F
from alpha.serialization import load_checkpoint, save_checkpoint

ROWS = 12
BATCHES = np.random.default_rng(0).standard_normal((6, ROWS, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power cut is tried here."""
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)


class Position:
    """A loader's place in the data, of a class that is not this package's."""

    def __init__(self) -> None:
        self.batch = 0

    def state_dict(self) -> dict[str, Any]:
        return {"batch": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batch = state["batch"]


class Run:
    """All that a rank's training has."""

    def __init__(self, seed: int, sharded: bool = False) -> None:
        with random.own_sequence({"seed": seed, "offset": 0}):
            self.model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        adam = optim.Adam(self.model.parameters(), lr=0.05)
        self.optimizer = optim.Sharded(adam) if sharded else adam
        self.scheduler = optim.StepLR(self.optimizer, 2)
        self.loader = Position()

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "loader": self.loader}

    def train(self, end: int) -> Run:
        """Goes on to the batch ``end``."""
        par = dist.DataParallel(self.model, shards=4)
        first, last = (part * ROWS // dist.world_size() for part in (dist.rank(), dist.rank() + 1))
        while self.loader.batch < end:
            x = alpha.tensor(BATCHES[self.loader.batch, first:last])
            self.optimizer.zero_grad()
            for part in par.split(x):
                par.backward(F.cross_entropy(par(part), alpha.tensor(np.arange(len(part)) % 3)))
            self.optimizer.step()
            self.scheduler.step()
            self.loader.batch += 1
        return self

    def everything(self) -> list[Any]:
        """All that a checkpoint holds, in its bits."""
        return [_bits(part.state_dict()) for part in self.parts().values()] + [random.get_state()]


def _bits(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _bits(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    return np.asarray(value).tobytes() if hasattr(value, "shape") else value


def on_ranks(ranks: int, function: Callable[[], Any], timeout: float = 30) -> list[Any]:
    with random.own_sequence({"seed": 7, "offset": 0}):
        return dist.run_in_threads(function, ranks, timeout=timeout)


def outcomes(ranks: int, function: Callable[[], Any], timeout: float = 30) -> list[Any]:
    """What the function returns or raises on each rank; none of them leaves the others before all are through."""

    def run() -> Any:
        try:
            return function()
        except (Exception, KeyboardInterrupt) as error:
            return error

    return on_ranks(ranks, run, timeout)


# -- saving and going on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharded", [False, True])
def test_saved_by_four_and_resumed_by_any_number(tmp_path: Path, sharded: bool) -> None:
    """To the bit, also where no rank has all of the optimizer's state."""
    path = tmp_path / "c"

    def first() -> list[Any]:
        run = Run(1, sharded).train(3)
        save_checkpoint(path, **run.parts(), epoch=2)
        return run.train(6).everything()

    def resumed() -> list[Any]:
        run = Run(2 + dist.rank(), sharded)
        assert load_checkpoint(path, **run.parts()) == {"epoch": 2}
        return run.train(6).everything()

    expected = on_ranks(4, first)
    assert all(found == expected[0] for found in expected)
    assert os.listdir(tmp_path) == ["c"]
    for ranks in (4, 2, 1):
        assert on_ranks(ranks, resumed) == [expected[0]] * ranks


def test_one_rank_writes_and_all_return_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, written = tmp_path / "c", []

    def replacing(*args: Any) -> None:
        written.append(dist.rank())
        threading.Event().wait(0.2)
        original(*args)

    original = os.replace
    monkeypatch.setattr(files.os, "replace", replacing)

    def save() -> int:
        save_checkpoint(path, number=dist.rank())
        return int(load_checkpoint(path)["number"])

    assert on_ranks(4, save) == [0] * 4 and written == [0]


class Gathered:
    """A part whose state takes an operation of all ranks."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"total": dist.all_reduce(alpha.tensor([self.value]))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = int(state["total"][0])


def test_states_may_be_operations_of_all_ranks(tmp_path: Path) -> None:
    def run() -> int:
        save_checkpoint(tmp_path / "c", optimizer=Gathered(dist.rank()), loader=Gathered(1))
        part = Gathered(0)
        load_checkpoint(tmp_path / "c", optimizer=part)
        return part.value

    assert on_ranks(4, run) == [6] * 4


def test_files_of_one_rank_stay_so(tmp_path: Path) -> None:
    """``alpha.save`` and ``alpha.load`` wait for nobody."""

    def run() -> int:
        if dist.rank() == 1:
            alpha.save({"x": alpha.ones(3)}, tmp_path / "w")
            return int(alpha.load(tmp_path / "w")["x"].sum().item())
        return 0

    assert on_ranks(2, run) == [0, 3]


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
@pytest.mark.parametrize("where", ["stream", "replace"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_failed_write_raises_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, where: str, error: BaseException
) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, number=0)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(files if where == "stream" else files.os, where, fail)
    first, *others = outcomes(ranks, lambda: save_checkpoint(path, number=1))
    if isinstance(error, KeyboardInterrupt):
        assert first is error
        message = "KeyboardInterrupt"
    else:
        assert type(first) is CheckpointError
        message = f"CheckpointError: [save_checkpoint] expected to write {path}, got No space left on device: "
    start = f"[save_checkpoint] expected all ranks to succeed, got this on rank 0: {message}"
    assert all(type(other) is CheckpointError and str(other).startswith(start) for other in others)
    assert os.listdir(tmp_path) == ["c"] and path.read_bytes() == before


def test_what_no_file_can_hold_raises_on_all(tmp_path: Path) -> None:
    """What the rank that writes was given counts."""
    found = outcomes(3, lambda: save_checkpoint(tmp_path / "c", value=object() if dist.rank() == 0 else 1))
    assert "ArgumentError" in str(found[1]) or "DtypeError" in str(found[1])
    assert all(type(one) is CheckpointError for one in found[1:]) and not os.listdir(tmp_path)
    assert outcomes(3, lambda: save_checkpoint(tmp_path / "c", value=object() if dist.rank() else 1)) == [None] * 3


class Failing(Position):
    """A part that fails on one rank."""

    def state_dict(self) -> dict[str, Any]:
        if dist.rank() == 2:
            raise RuntimeError("no state")
        return super().state_dict()


def test_a_state_that_one_rank_cannot_give_raises_on_all(tmp_path: Path) -> None:
    found = outcomes(4, lambda: save_checkpoint(tmp_path / "c", loader=Failing()))
    assert type(found.pop(2)) is RuntimeError
    assert all(
        type(one) is CheckpointError and str(one).endswith("got this on rank 2: RuntimeError: no state")
        for one in found
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_file_that_one_rank_cannot_read_is_loaded_by_none(tmp_path: Path, ranks: int) -> None:
    """Each rank has a disk of its own here, and the last one's copy is cut."""
    path = tmp_path / "c"
    on_ranks(1, lambda: save_checkpoint(path, **Run(1).train(2).parts()))
    for rank in range(ranks):
        shutil.copy(path, tmp_path / f"c{rank}")
    os.truncate(tmp_path / f"c{ranks - 1}", 1000)

    def load() -> Any:
        run = Run(2)
        before = run.everything()
        try:
            load_checkpoint(tmp_path / f"c{dist.rank()}", **run.parts())
        except CheckpointError as error:
            assert run.everything() == before
            return str(error)
        return None

    *others, last = on_ranks(ranks, load)
    assert last.startswith("[load_checkpoint] expected a safetensors file, got a truncated")
    start = f"[load_checkpoint] expected all ranks to succeed, got this on rank {ranks - 1}: CheckpointError: {last}"
    assert all(other == start for other in others)


def test_a_state_that_does_not_fit_one_rank_is_loaded_by_none(tmp_path: Path) -> None:
    """Rank 1 has other parameters, and a part that takes its state by itself is taken back on rank 0."""
    on_ranks(1, lambda: save_checkpoint(tmp_path / "c", **Run(1).train(2).parts()))

    def load() -> Any:
        run = Run(2)
        if dist.rank() == 1:
            run.model = nn.Sequential(nn.Linear(5, 9))
        before = run.everything()
        with pytest.raises(CheckpointError, match="build the model that was saved"):
            load_checkpoint(tmp_path / "c", **run.parts())
        return run.everything() == before and run.loader.batch

    assert on_ranks(2, load) == [0, 0]


@pytest.mark.parametrize("function", ["save_checkpoint", pytest.param("load_checkpoint", marks=pytest.mark.slow)])
def test_a_rank_that_does_not_call_it_is_missed(tmp_path: Path, function: str) -> None:
    path, through = tmp_path / "c", threading.Barrier(3)
    save_checkpoint(path, model=nn.Linear(2, 2))

    def run() -> Any:
        try:
            if dist.rank() != 1:
                getattr(serialization, function)(path, model=nn.Linear(2, 2))
        except DistributedError as error:
            return str(error)
        finally:
            through.wait(20)
        return None

    first, missing, last = on_ranks(3, run, timeout=0.5)
    assert missing is None
    for message in (first, last):
        assert message.startswith("[save] expected all ranks to take part in operation 0 (save of 24 bytes) within 0.5")
        assert "rank 1 in no operation" in message


def test_a_forked_child_saves_by_itself(tmp_path: Path) -> None:
    """In a child that a rank forked there are no ranks to wait for."""
    path = tmp_path / "c"

    def run() -> int:
        if dist.rank() == 0:
            child = os.fork()
            if child == 0:
                try:
                    save_checkpoint(path, number=3)
                    os._exit(0)
                finally:
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return 0

    if hasattr(os, "fork"):
        assert on_ranks(2, run) == [0, 0] and load_checkpoint(path)["number"] == 3


# -- files in progress ---------------------------------------------------------------------------------------------


def _gone() -> int:
    """The number of a process that is no more."""
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    return process


@pytest.mark.skipif(os.name != "posix", reason="asks for processes by signal 0")
def test_only_files_of_this_host_s_gone_processes_are_removed(tmp_path: Path) -> None:
    path, gone, host = tmp_path / "c", _gone(), files._host()
    kept = [f".c.elsewhere-{gone}-1.tmp", f".c.{host}-{os.getpid()}-1.tmp", f".c.{os.getpid()}-1.tmp"]
    kept += [
        f".c.not-{host}-{gone}-1.tmp",
        f".d.{host}-{gone}-1.tmp",
        f".c.{host}-{gone}.tmp.txt",
        ".c.x.tmp",
        ".c..tmp",
    ]
    kept += [f".c.{host}-{10**40}-1.tmp"]
    for name in (*kept, f".c.{host}-{gone}-1.tmp", f".c.{gone}-123.tmp"):  # the last as older releases wrote it
        (tmp_path / name).touch()
    save_checkpoint(path, number=0)
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "c"])


def test_hosts_with_one_process_number_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["node-1", "node-2", "node-1.example", "n" * 60 + "1", "n" * 60 + "2", "a/b", "a_b", "", "mäx"]
    found = []
    for name in names:
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        found.append(files.in_progress(tmp_path / "c").name)
    assert len(set(found)) == len(names) and found[0] == f".c.node-1-{os.getpid()}-{threading.get_ident()}.tmp"
    for name in found:
        assert name.isascii() and "/" not in name and len(name) < 80
        (tmp_path / name).touch()


@pytest.mark.parametrize("name", ["node-1", "12", "a.b-c", "x" * 70, "ü"])
@pytest.mark.skipif(os.name != "posix", reason="asks for processes by signal 0")
def test_a_host_finds_its_own_files_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gone = _gone()
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setattr(files.os, "getpid", lambda: gone)
    (left := files.in_progress(tmp_path / "c")).touch()
    monkeypatch.undo()
    monkeypatch.setattr(socket, "gethostname", lambda: f"{name}2")
    save_checkpoint(tmp_path / "c", number=0)
    assert left.exists()
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    save_checkpoint(tmp_path / "c", number=0)
    assert not left.exists()
