"""Checkpoints under faults: bits that flip, headers that lie, interrupts anywhere, full disks: all or nothing."""

from __future__ import annotations

import copy
import json
import os
import random as python_random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import alpha
from alpha import files as alpha_files
from alpha import nn, optim, random, serialization
from alpha.changes import deferred_interrupts
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, CheckpointError
from alpha.serialization import load_checkpoint, save_checkpoint
from tests.robustness.inject import everywhere, interrupt

LOADING = (
    "alpha/checkpoints.py",
    "alpha/files.py",
    "alpha/structure.py",
    "alpha/changes.py",
    "alpha/weights_file.py",
    "alpha/random.py",
    "alpha/cpu/base.py",
    "nn/module.py",
    "nn/state.py",
    "optim/optimizer.py",
    "optim/state.py",
    "optim/schedules/base.py",
    "optim/schedules/composed.py",
    "optim/schedules/factors.py",
    "tests/robustness/test_checkpoint_faults.py",
)
UPDATING = (
    "alpha/changes.py",
    "alpha/updates.py",
    "alpha/update_rules.py",
    "alpha/expressions/rules.py",
    "alpha/cpu/optimizers.py",
    "optim/optimizer.py",
    "optim/ruled.py",
    "optim/adam.py",
    "optim/sgd.py",
    "optim/rmsprop.py",
    "optim/schedules/base.py",
    "optim/schedules/composed.py",
    "optim/schedules/factors.py",
)


def plain(value: Any) -> Any:
    """A state as nested lists and numbers, which compare."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return np.asarray(value).tolist() if hasattr(value, "shape") else value


class Position:
    """A loader's place in the data, that changes its own attributes one after another."""

    def __init__(self) -> None:
        self.place = {"epoch": 0, "batch": 0}

    def state_dict(self) -> dict[str, Any]:
        return self.place

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place.clear()
        self.place["epoch"] = state["epoch"]
        self.place["batch"] = state["batch"]


class Run:
    """All that training has."""

    def __init__(self, seed: int, kind: str = "Adam", groups: bool = False) -> None:
        alpha.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        parameters: list[Any] = list(self.model.parameters())
        if groups:
            parameters = [{"params": parameters[:1], "lr": 0.2}, {"params": parameters[1:]}]
        options = {"momentum": 0.9} if kind == "SGD" else {}
        self.optimizer: Any = getattr(optim, kind)(parameters, lr=0.1, **options)
        parts = [optim.LinearLR(self.optimizer), optim.StepLR(self.optimizer, 2)]
        self.scheduler = optim.SequentialLR(self.optimizer, parts, [2])
        self.loader = Position()

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.model(alpha.randn(4, 2)).square().sum().backward()

    def step(self, count: int = 1) -> Run:
        for _ in range(count):
            self.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.loader.place["batch"] += 1
        return self

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "loader": self.loader}

    def everything(self) -> Any:
        """All that a checkpoint holds."""
        return [plain(part.state_dict()) for part in self.parts().values()] + [random.get_state()]

    def snapshot(self) -> Callable[[], None]:
        """What brings this moment back."""
        states = {name: copy.deepcopy(part.state_dict()) for name, part in self.parts().items()}
        place = random.get_state()

        def restore() -> None:
            for name, part in self.parts().items():
                part.load_state_dict(copy.deepcopy(states[name]))
            random.set_state(place)

        return restore


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power cut is tried here."""
    monkeypatch.setattr(alpha_files.os, "fsync", lambda descriptor: None)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, **Run(1).step(3).parts(), epoch=391, notes={"rates": [0.1, (None, True)], "x": np.arange(3)})
    return path


# -- bits that flip ----------------------------------------------------------------------------------------------------


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """(bytes before the tensors, header, tensors)."""
    start = 8 + int.from_bytes(data[:8], "little")
    return start, data[8:start], data[start:]


def accepted(path: Path, data: bytes, bits: Iterator[int] | range, read: Callable[[Path], Any]) -> list[int]:
    """Which bits can be flipped without a CheckpointError."""
    taken = []
    with open(path, "r+b") as file:
        for bit in bits:
            file.seek(bit // 8)
            file.write(bytes([data[bit // 8] ^ 1 << bit % 8]))
            file.flush()
            try:
                read(path)
                taken.append(bit)
            except CheckpointError:
                pass
            file.seek(bit // 8)
            file.write(data[bit // 8 : bit // 8 + 1])
    return taken


@pytest.mark.parametrize("read", [alpha.load, load_checkpoint])
def test_no_flipped_bit_is_accepted(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, model=nn.Linear(2, 1), step=391, rate=0.1)
    data = path.read_bytes()
    start, header, body = split(data)
    assert b"391" in header and len(body) == 12
    assert accepted(path, data, range(8 * len(data)), read) == []
    read(path)
    large = tmp_path / "large"
    save_checkpoint(large, values=np.arange(2000.0))
    data = large.read_bytes()
    start = split(data)[0]
    chance = python_random.Random(0)
    bits = (chance.randrange(8 * start, 8 * len(data)) for _ in range(3000))
    assert accepted(large, data, bits, read) == []


def test_a_flip_in_weights_without_metadata_is_noticed_too(tmp_path: Path) -> None:
    path = tmp_path / "w"
    alpha.save({"w": np.arange(3, dtype=np.uint8), "b": np.ones(1, bool)}, path)
    data = path.read_bytes()
    assert accepted(path, data, range(8 * len(data)), alpha.load) == []
    assert alpha.load(path)["w"].tolist() == [0, 1, 2]


def test_sealed_files_are_safetensors_as_ever(tmp_path: Path, saved: Path) -> None:
    assert set(safetensors.numpy.load_file(saved)) == set(alpha.load(saved))
    alpha.save({"w": alpha.ones(3)}, tmp_path / "w", {"made by": "a test"})
    with safetensors.safe_open(tmp_path / "w", "np") as file:
        assert file.metadata() == {"made by": "a test"} and file.get_tensor("w").tolist() == [1, 1, 1]


def unsealed(path: Path) -> None:
    """Makes the file one of a release that did not seal: with nothing behind the first brace."""
    _, header, body = split(path.read_bytes())
    text = b"{" + header[1:].lstrip()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def test_files_of_an_older_release_and_of_others_are_read(saved: Path, tmp_path: Path) -> None:
    unsealed(saved)
    run = Run(2)
    assert load_checkpoint(saved, **run.parts())["epoch"] == 391
    data = bytearray(saved.read_bytes())
    data[-3] ^= 4  # the old checksum, of the tensors, is still looked at
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match="whose checksum is wrong"):
        load_checkpoint(saved)
    safetensors.numpy.save_file({"v": np.ones(3, np.float32)}, tmp_path / "other", {"by": "another"})
    assert alpha.load(tmp_path / "other")["v"].tolist() == [1, 1, 1]
    pretty = b'{\n    "v": {\n        "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}\n'
    (tmp_path / "pretty").write_bytes(len(pretty).to_bytes(8, "little") + pretty + b"\7")
    assert alpha.load(tmp_path / "pretty")["v"].tolist() == [7]


# -- headers that lie, under a seal that is right ----------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: list[Any] = [
    None, True, -1, 3, 2.5, 10**30, float("nan"), float("inf"), "", "text", [], [1], {}, {"a": 1}, {"$tensor": "no"},
    {"$tensor": 3}, {"$tuple": 3}, {"$dict": 3}, {"$dict": [1]}, {"$dict": [[1, 2, 3]]}, {"$dict": [[[], 1]]},
    {"$dict": [["a", 1], ["a", 2]]}, {"$dict": [], "$tuple": []}, nested(150),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON value has parts, itself first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy in which ``change(container, key)`` was done to the part at a path."""
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return value


def wrong_headers(header: Any) -> Iterator[tuple[str, Any]]:
    """Each part replaced by each wrong value, missing, and with one more beside it."""
    for path in places(header):
        if not path:
            continue
        where = "/".join(map(str, path))
        for wrong in WRONG:
            yield f"{where} = {str(wrong)[:30]}", changed(header, path, lambda at, key, w=wrong: at.__setitem__(key, w))
        yield f"{where} missing", changed(header, path, lambda at, key: at.__delitem__(key))

        def add(at: Any, key: Any) -> None:
            at.append(at[key]) if isinstance(at, list) else at.__setitem__("another", at[key])

        yield f"{where} twice", changed(header, path, add)


FREE = ("extra", "parts/model/type", "parts/loader", "parts/scheduler", "parts/optimizer", "random")
"""Where some of the wrong values above are right: another number, a state that is not there."""


def test_every_malformed_header_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, **Run(1).step(1).parts(), epoch=3)
    with safetensors.safe_open(path, "np") as file:
        header = json.loads(file.metadata()["alpha"])
    arrays = safetensors.numpy.load_file(path)
    run = Run(2).step(2)
    before, loaded, tried = run.everything(), [], 0
    for index, (name, wrong) in enumerate(wrong_headers(header)):
        if name.startswith(("parts/optimizer", "parts/scheduler", "parts/loader")) and index % 5:
            continue  # these are deep, and their parts alike
        tried += 1
        alpha.save(arrays, path, {"alpha": json.dumps(wrong)})
        try:
            load_checkpoint(path, **run.parts())
        except CheckpointError as error:
            assert str(error).startswith("[") and "\n" not in str(error), name
            if index % 50 == 0:
                assert run.everything() == before, name
        else:
            loaded.append(name)
            assert name.startswith(FREE), name
            run.backward()  # what was loaded is such that training goes on
            run.optimizer.step()
            run.scheduler.step()
            run = Run(2).step(2)
            assert run.everything() == before
    assert run.everything() == before
    assert tried > 1000 and len(loaded) < tried / 20, loaded


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "\ud800", '{"format": 1, "format": 2}', "nan"])
def test_metadata_that_is_no_json(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c"
    try:
        alpha.save({"w": np.ones(1)}, path, {"alpha": content})
    except (AlphaError, UnicodeEncodeError):
        return
    with pytest.raises(CheckpointError, match="another safetensors file"):
        load_checkpoint(path)


def entry(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "text",
    [
        "null", "3", "[]", "[" * 200_000, '{"a":' * 200_000 + "1" + "}" * 200_000, '{"a": NaN}', '{"a": 1e999}', "{}",
        '{"a": ' + "9" * 5000 + "}", '{"\\ud800": ' + json.dumps(entry()) + "}",
        '{"a": ' + json.dumps(entry()) + ', "a": ' + json.dumps(entry()) + "}",
        *(json.dumps({"a": wrong}) for wrong in (
            None, 3, "x", [], {}, entry("F128"), entry(3), entry(None), entry([]), entry(shape=[5]), entry(shape=4),
            entry(shape=[-4]), entry(shape=[2.0, 2]), entry(shape=[True, 4]), entry(shape=[2**32, 2**32]),
            entry(shape=[10**30, 0]), entry(shape=["4"]), entry(offsets=[0, 5]), entry(offsets=[1, 4]),
            entry(offsets=[4, 0]), entry(offsets=[-4, 0]), entry(offsets=[0]), entry(offsets=[0, 4, 8]),
            entry(offsets=None), entry(offsets=[0, 4.0]), entry(offsets=[False, 4]), entry("F32", [2]),
            entry("BOOL"), entry(shape=[1] * 70 + [4]),
        )),
        json.dumps({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(shape=[3], offsets=[1, 4])}),
        json.dumps({"a": entry(shape=[1], offsets=[0, 1]), "b": entry(shape=[2], offsets=[2, 4])}),
        json.dumps({"__metadata__": 3, "a": entry()}), json.dumps({"__metadata__": {"a": 1}, "a": entry()}),
        json.dumps({"__metadata__": [], "a": entry()}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("read", [alpha.load, load_checkpoint])
def test_malformed_safetensors_are_refused(tmp_path: Path, read: Callable[[Path], Any], text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    path = tmp_path / "x"
    path.write_bytes(len(data).to_bytes(8, "little") + data + b"\2\3\4\5")
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
    path.write_bytes(len(data).to_bytes(8, "little") + b"\xff" + data[1:] + b"\2\3\4\5")
    with pytest.raises(CheckpointError):
        read(path)


def test_paths_that_are_none(tmp_path: Path) -> None:
    for path in (None, 3.5, "a\0b", tmp_path):
        with pytest.raises(CheckpointError, match=r"^\[load\] expected"):
            alpha.load(path)  # type: ignore[arg-type]


def test_what_no_file_can_hold_is_not_saved(tmp_path: Path) -> None:
    one = np.ones(1)
    for tensors, path, metadata in (
        ({"w": one}, tmp_path / "w", {"a": "\udfff"}),
        ({"w": one}, None, {}),
        ({"w": one}, "", {}),
        ({"w": one}, b"w", {}),
        ({"w": one}, "a\0b", {}),
    ):
        with pytest.raises(ArgumentError, match=r"^\[save\] expected"):
            alpha.save(tensors, path, metadata)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^\[save_checkpoint\] expected values that JSON can hold"):
        save_checkpoint(tmp_path / "c", number=10**5000)
    with pytest.raises(ArgumentError, match=r"^\[save\] expected names and metadata for one header"):
        alpha.save({}, tmp_path / "w", {"a": "x" * 100_000_000})
    assert os.listdir(tmp_path) == []


def test_a_value_nested_too_deep_is_not_saved(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, nested(5000)):
        with pytest.raises(ArgumentError, match=r"^\[save_checkpoint\] expected at most 100 lists"):
            save_checkpoint(tmp_path / "c", value=value)
    assert os.listdir(tmp_path) == []


def test_names_that_no_file_has_come_back_all_the_same(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", **{"a.b": np.ones(1), "a": {"b": np.zeros(1)}})
    extra = load_checkpoint(tmp_path / "c")
    assert extra["a.b"].tolist() == [1] and extra["a"]["b"].tolist() == [0]
    alpha.save({"\ud800": np.ones(1), "__metadata__": np.zeros(1)}, tmp_path / "w")
    loaded = alpha.load(tmp_path / "w")
    assert loaded["\ud800"].tolist() == [1] and loaded["__metadata__"].tolist() == [0]


# -- interrupts --------------------------------------------------------------------------------------------------------


def check_all_or_nothing(
    run: Run, call: Callable[[], Any], files: tuple[str, ...], restore: Callable[[], None], **how: Any
) -> tuple[int, int]:
    """Interrupts a call everywhere; how often all was as after it, and how often as before."""
    before = run.everything()
    call()
    after = run.everything()
    restore()
    assert run.everything() == before != after
    counts = {True: 0, False: 0}
    for place in everywhere(call, *files, **how):
        now = run.everything()
        assert now in (before, after), place
        counts[now == after] += 1
        if now == after:
            restore()
    assert counts[False] > 0
    return counts[True], counts[False]


@pytest.mark.parametrize("opcodes", [False, True])
def test_an_interrupted_load_is_whole_or_nothing(saved: Path, opcodes: bool) -> None:
    run = Run(2).step(1)
    restore = run.snapshot()
    check_all_or_nothing(
        run,
        lambda: load_checkpoint(saved, **run.parts()),
        LOADING,
        restore,
        opcodes=opcodes,
        step=151 if opcodes else 5,
        most=10**6,
    )


def test_the_moment_of_change_is_whole_at_every_opcode(saved: Path) -> None:
    run = Run(2).step(1)
    restore = run.snapshot()
    after, _ = check_all_or_nothing(
        run, lambda: load_checkpoint(saved, **run.parts()), ("alpha/changes.py",), restore, opcodes=True, step=3
    )
    assert after > 0


@pytest.mark.parametrize("name", ["model", "optimizer", "scheduler"])
def test_each_part_loads_whole_or_not_at_all(name: str) -> None:
    run, other = Run(2).step(1), Run(1).step(3)
    restore = run.snapshot()
    restore()
    state = copy.deepcopy(other.parts()[name].state_dict())
    restore()
    check_all_or_nothing(run, lambda: run.parts()[name].load_state_dict(state), LOADING, restore)


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("SGD", False), ("Adam", False), ("Adam", True), ("RMSprop", True), ("NAdam", True), ("Rprop", False)],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_an_interrupted_step_is_made_or_not_and_counted(kind: str, groups: bool, fresh: bool) -> None:
    run = Run(3, kind, groups).step(0 if fresh else 2)
    run.backward()
    restore = run.snapshot()
    steps = run.optimizer.steps
    before = run.everything()
    made, left = check_all_or_nothing(run, run.optimizer.step, UPDATING, restore)
    assert made > 0 and left > 50
    for at in range(0, made + left, 7):  # the count tells
        interrupt(run.optimizer.step, at, *UPDATING)
        assert (run.everything() == before) == (run.optimizer.steps == steps)
        restore()


def test_an_interrupted_step_at_opcodes() -> None:
    run = Run(3, groups=True).step(1)
    run.backward()
    made, _ = check_all_or_nothing(run, run.optimizer.step, UPDATING, run.snapshot(), opcodes=True, step=13)
    assert made > 0


def test_schedulers_gradients_and_averages_change_whole_or_not_at_all() -> None:
    run = Run(3).step(2)
    check_all_or_nothing(run, run.scheduler.step, UPDATING, run.snapshot())
    run.backward()
    parameters = list(run.model.parameters())
    grads = [np.array(p.grad) for p in parameters if p.grad is not None]
    norm = float(optim.clip_grad_norm_(parameters, 1e9))
    kept = [p.grad for p in parameters]

    def gradients() -> list[Any]:
        return [None if p.grad is None else np.asarray(p.grad).tolist() for p in parameters]

    def put_back() -> None:
        for parameter, grad, values in zip(parameters, kept, grads, strict=True):
            parameter.grad = grad
            if grad is not None:
                grad.copy_(values)

    for call, files in (
        (run.optimizer.zero_grad, ("optim/optimizer.py", "alpha/changes.py")),
        (run.model.zero_grad, ("nn/module.py", "alpha/changes.py")),
        (lambda: run.optimizer.zero_grad(set_to_none=False), ("optim/optimizer.py", "alpha/changes.py")),
        (lambda: optim.clip_grad_norm_(parameters, norm / 2), ("nn/utils/clip_grad.py", "alpha/changes.py")),
        (lambda: optim.clip_grad_value_(parameters, 1e-3), ("nn/utils/clip_grad.py", "alpha/changes.py")),
    ):
        put_back()
        before = gradients()
        call()
        after = gradients()
        put_back()
        assert gradients() == before != after
        for place in everywhere(call, *files):
            assert gradients() in (before, after), place
            put_back()


def test_an_interrupted_average_is_made_or_not() -> None:
    run = Run(3).step(1)
    average = optim.AveragedModel(run.model, 0.9)
    average.update_parameters(run.model)
    run.step(1)
    start = copy.deepcopy(average.state_dict())
    before = plain(start)
    average.update_parameters(run.model)
    after = plain(average.state_dict())
    average.load_state_dict(start)
    assert before != after
    seen = set()
    for place in everywhere(lambda: average.update_parameters(run.model), "optim/swa_utils.py", "alpha/changes.py"):
        now = plain(average.state_dict())
        assert now in (before, after), place
        assert (now == after) == (int(average.n_averaged) == 2)
        seen.add(now == after)
        average.load_state_dict(start)
    assert seen == {True, False}


def test_a_device_whose_memory_takes_steps_to_write_changes_whole_too(cu32: Engine) -> None:
    net, other = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(cu32) for _ in range(2))
    start, state = copy.deepcopy(net.state_dict()), other.state_dict()
    before, after = plain(start), plain(state)
    assert before != after
    seen = set()
    for place in everywhere(lambda: net.load_state_dict(state), "alpha/changes.py", step=3):
        now = plain(net.state_dict())
        assert now in (before, after), place
        seen.add(now == after)
        net.load_state_dict(start)
    assert seen == {True, False}
    net.load_state_dict(start)  # the last call came to its end
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    for parameter in net.parameters():
        parameter.grad = cu32.from_numpy(np.ones(parameter.shape, np.float32))
    for place in everywhere(optimizer.step, "optim/optimizer.py", "optim/adam.py", step=5):
        assert (plain(net.state_dict()) == before) == (optimizer.steps == 0), place
        assert all(state["step"] == optimizer.steps for state in optimizer.state.values())
        net.load_state_dict(start)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {}, "steps": 0})


def test_ctrl_c_waits_for_the_end_of_a_deferring_block() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_modes_places_and_containers_change_whole_or_not_at_all() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.Linear(2, 2)))

    def seen() -> Any:
        parameters = [(str(p.dtype), p.requires_grad, np.asarray(p.detach()).tolist()) for p in net.parameters()]
        return [m.training for m in net.modules()], parameters, [name for name, _ in net.named_modules()]

    extra = nn.Linear(2, 3)
    calls: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (net.eval, net.train),
        (lambda: net.to("float64"), lambda: net.to("float32")),
        (lambda: net.requires_grad_(False), net.requires_grad_),
        (lambda: net.insert(1, extra), lambda: len(net) == 4 and net.pop(1)),
        (lambda: net.extend([extra, nn.ReLU()]), lambda: len(net) == 5 and net.__delitem__(slice(3, 5))),
    ]
    for call, back in calls:
        before = seen()
        call()
        after = seen()
        back()
        assert seen() == before != after
        for place in everywhere(call, "nn/module.py", "nn/state.py", "nn/containers.py", "alpha/changes.py"):
            assert seen() in (before, after), place
            back()
        back()
    with pytest.raises(ArgumentError):
        net.insert(0, "no module")  # type: ignore[arg-type]
    assert len(net) == 3
    layer = nn.Linear(3, 2)
    handle = layer.register_forward_hook(lambda module, args, result: None)

    def parts() -> Any:
        hooks: Any = layer._hooks
        names = sorted(set(vars(layer)) - {"_buffer_names"}), sorted(layer._buffer_names)
        weight = (layer.weight_orig if "weight_orig" in vars(layer) else layer.weight).detach()
        return names, weight.tolist(), sorted(layer.state_dict()), len(hooks.before), len(hooks.after)

    before = parts()
    for place in everywhere(lambda: nn.utils.spectral_norm(layer), "nn/utils/spectral.py", "nn/module.py"):
        if parts() != before:
            assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"], place
            assert parts()[3:] == (1, 2) and parts()[1] == before[1], place
            break  # made: what comes after is nothing
    before = parts()
    for place in everywhere(lambda: nn.utils.remove_spectral_norm(layer), "nn/utils/spectral.py", "nn/module.py"):
        if parts() != before:
            assert sorted(layer.state_dict()) == ["bias", "weight"] and parts()[3:] == (0, 1), place
            break
    assert "weight_orig" not in vars(layer)
    handle.remove()
    assert layer._hooks is not None and not layer._hooks.after
    hooked = nn.Sequential(nn.Linear(2, 2))
    attributes = [dict(vars(m)) for m in hooked.modules()]
    for place in everywhere(lambda: hooked.summary((1, 2)), "nn/summary.py", "nn/module.py", "alpha/changes.py"):
        assert [dict(vars(m)) for m in hooked.modules()] == attributes, place


class Refusing(Position):
    """A loader that refuses after it has changed something."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place["epoch"] = state["epoch"]
        raise KeyError("batch")


def test_another_object_that_fails_midway_is_taken_back(saved: Path) -> None:
    run = Run(2).step(1)
    run.loader = Refusing()
    before = run.everything()
    data = saved.read_bytes().replace(b"Position", b"Refusing")
    saved.write_bytes(data)
    unsealed(saved)
    with pytest.raises(CheckpointError, match=r"expected a state that fits, got .*batch"):
        load_checkpoint(saved, **run.parts())
    assert run.everything() == before


# -- writing -----------------------------------------------------------------------------------------------------------


def test_an_interrupted_save_leaves_the_old_or_the_new_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "c"
    run = Run(1).step(1)
    save_checkpoint(path, **run.parts(), number=0)
    traced = ("alpha/checkpoints.py", "alpha/files.py", "alpha/structure.py", "alpha/weights_file.py")
    numbers = set()
    for place in everywhere(lambda: save_checkpoint(path, **run.parts(), number=1), *traced, step=2):
        assert os.listdir(tmp_path) == ["c"], place
        numbers.add(load_checkpoint(path)["number"])
    assert 0 in numbers


FULL = """
import resource, signal, sys
import numpy as np
from alpha.serialization import save_checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
save_checkpoint(sys.argv[1], number=0)
for limit in (0, 1, 100, 5000, 70_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save_checkpoint(sys.argv[1], number=1, values=np.ones(10_000))
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files through POSIX's setrlimit")
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "c")], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["CheckpointError"] * 5
    assert os.listdir(tmp_path) == ["c"] and load_checkpoint(tmp_path / "c")["number"] == 0


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX's timers")
def test_steps_and_loads_under_real_signals(tmp_path: Path) -> None:
    """Each interrupted step is repeated or not as ``steps`` says; the run is that of no interrupt, to the bit."""
    path = tmp_path / "start"
    run = Run(5, groups=True).step(1)
    save_checkpoint(path, **run.parts())
    calm = Run(6, groups=True)
    load_checkpoint(path, **calm.parts())
    gradients = [np.random.default_rng(i).standard_normal(2) for i in range(40)]

    def give(to: Run, number: int) -> None:
        for parameter in to.model.parameters():
            parameter.grad = alpha.tensor(np.broadcast_to(gradients[number], parameter.shape).astype(np.float32))

    for number in range(40):
        give(calm, number)
        calm.optimizer.step()
    fired = 0
    chance = python_random.Random(3)
    first = run.optimizer.steps
    give(run, 0)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while (number := run.optimizer.steps - first) < 40:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 4e-4))
                run.optimizer.step()
                time.sleep(5e-4)
            except KeyboardInterrupt:
                fired += 1
            if run.optimizer.steps - first != number and number + 1 < 40:
                give(run, number + 1)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert fired >= 10
    assert plain(run.model.state_dict()) == plain(calm.model.state_dict())
    assert plain(run.optimizer.state_dict()) == plain(calm.optimizer.state_dict())
    assert serialization.VERSION == 1
