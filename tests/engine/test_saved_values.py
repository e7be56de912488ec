"""alpha.save and alpha.load: nested values of every kind, shared memory, open files, old files, hostile structures."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError
from alpha.structure import StructureError, Unpacker
from tests.robustness.inject import everywhere

VALUES: list[Any] = [
    None, True, -3, 2**80, 0.1, float("inf"), "text \u00e9\ud800", b"", b"\0bytes", bytearray(b"xy"), 1 - 2j, (), (1,
    (2, [3])),
    [], [None, "a"], {}, {"a": 1, 2: "b", None: 0, 1.5: 1, (1, "x"): [], True: {}}, OrderedDict(b=1, a=2),
    Counter("aab"),
    defaultdict(list, {"x": [1]}), defaultdict(None, {1: 2}), {1, "a"}, frozenset({(1, 2)}), set(), range(1, 9, 2),
    slice(None, 3), np.float32(0.1), np.int8(-3), np.float64(2.5), np.bool_(True), np.complex64(1j), alpha.float32,
    np.dtype("int16"), alpha.device("cuda:1"), alpha.device("cpu"), {"$tensor": "no", "$dict": [1]}, "$tuple",
]  # fmt: skip


def through_memory(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    alpha.save(value, file)
    file.seek(0)
    return alpha.load(file, **options)


@pytest.mark.parametrize("value", VALUES, ids=[f"{place} {type(value).__name__}" for place, value in enumerate(VALUES)])
def test_values_come_back_with_their_types(value: Any) -> None:
    for wrapped in (value, [value], {"a": {"b": value}}):
        found = through_memory(wrapped)
        assert found == wrapped and type(found) is type(wrapped)
    inner = through_memory([value])[0]
    assert type(inner) is type(value) and repr(inner) == repr(value)
    assert list(inner) == list(value) if isinstance(value, dict) else True
    assert inner.default_factory is value.default_factory if isinstance(value, defaultdict) else True


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<c16", "|i1", "<u8", "<i8", "?"])
def test_arrays_stay_arrays(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).T.astype(dtype)
    found = through_memory({"x": x, "zero": np.array(x[0, 0]), "none": x[:0]})
    assert all(isinstance(array, np.ndarray) and array.flags.writeable for array in found.values())
    assert found["x"].dtype == x.dtype.newbyteorder("=") and np.array_equal(found["x"], x)
    assert found["zero"].shape == () and found["none"].shape == (0, 2)


def test_a_training_state_as_pytorch_users_save_it(engine: Engine, tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, Any, Any]:
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).to(engine)
        optimizer = optim.Adam(net.parameters(), lr=0.1)
        return net, optimizer, optim.StepLR(optimizer, 2)

    def step(net: nn.Module, optimizer: Any, schedule: Any) -> float:
        loss = net(alpha.ones(5, 3, engine=engine) * alpha.arange(5, engine=engine).reshape(5, 1)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return float(loss)

    net, optimizer, schedule = made()
    loss = [step(net, optimizer, schedule) for _ in range(3)]
    state = {
        "epoch": 3, "model": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
        "loss": loss, "best": alpha.tensor(loss[-1]), "config": {"lr": 0.1, "sizes": (3, 4)},
        "rng": alpha.random.get_state(), "numpy": np.random.RandomState(0).get_state(),
    }  # fmt: skip
    alpha.save(state, tmp_path / "c.pt")
    found = alpha.load(str(tmp_path / "c.pt"), map_location=engine.name, weights_only=True)
    assert list(found) == list(state) and list(found["model"]) == list(state["model"])
    assert found["loss"] == loss and found["config"] == state["config"] and found["rng"] == state["rng"]
    assert np.array_equal(found["numpy"][1], state["numpy"][1])
    other = made()
    for part, name in zip(other, ("model", "optimizer", "schedule"), strict=True):
        part.load_state_dict(found[name])
    assert step(*other) == step(net, optimizer, schedule) and step(*other) == step(net, optimizer, schedule)
    assert set(safetensors.numpy.load_file(tmp_path / "c.pt")) > {"model.0.weight", "best", "numpy.1"}


def test_tensors_that_share_memory_share_it_again(engine: Engine) -> None:
    base = engine.from_numpy(np.arange(24, dtype=np.float32).reshape(4, 6))
    value = {
        "all": base, "same": base.detach(), "transposed": base.T, "part": base[1:3, ::2], "flat": base.reshape(24)[5:6],
        "bytes": base.view("uint8")[0, 8:12], "other": engine.from_numpy(np.ones(3)), "empty": base[:0],
    }  # fmt: skip
    found = through_memory(value, engine=engine)
    for name, tensor in value.items():
        assert np.array_equal(found[name], tensor) and found[name].dtype == tensor.dtype, name
    sharing = ("all", "same", "transposed", "part", "flat", "bytes")
    assert len({id(found[name].storage) for name in sharing}) == 1 != len({id(found[name].storage) for name in found})
    assert found["part"].strides == value["part"].strides
    found["all"].fill_(7)
    assert found["part"].tolist() == [[7] * 3] * 2 and found["flat"].item() == 7 and found["bytes"][3].item() == 64
    tail = base[3]  # of which the file holds no more than is asked for
    file = io.BytesIO()
    alpha.save([tail, tail[1:]], file)
    file.seek(0)
    first, second = alpha.load(file, engine)
    assert (
        first.storage is second.storage
        and first.storage.nbytes <= 6 * 4 + 8
        and second.tolist() == [19, 20, 21, 22, 23]
    )


def test_tied_weights_and_parameters(engine: Engine) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    net = Tied().to(engine)
    state = through_memory(net.state_dict(), engine=engine)
    assert state["head.weight"].storage is state["embedding.weight"].storage
    parameters = through_memory(
        dict(net.named_parameters()) | {"raw": alpha.ones(2, requires_grad=True)}, engine=engine
    )
    assert all(type(p) is nn.Parameter and p.requires_grad for name, p in parameters.items() if name != "raw")
    assert type(parameters["raw"]) is alpha.Tensor and parameters["raw"].requires_grad
    frozen = through_memory([nn.Parameter(alpha.ones(2), requires_grad=False), alpha.ones(2, requires_grad=True) * 2])
    assert not frozen[0].requires_grad and frozen[1].is_leaf and frozen[1].requires_grad


def test_places(engine: Engine) -> None:
    file = io.BytesIO()
    alpha.save({"a": alpha.ones(2), "b": [alpha.ones(1)]}, file)
    for place, expected in (
        (None, "cpu"), ("numpy", "numpy"), (alpha.device("cpu"), "cpu"), ({"cpu": "numpy"}, "numpy"),
        ({"cuda:0": "numpy"}, "cpu"),
        (lambda storage, location: storage, "cpu"), (lambda storage, location: None, "cpu"),
        (lambda storage, location: "numpy" if location == "cpu" else None, "numpy"), (engine, engine.name),
    ):  # fmt: skip
        file.seek(0)
        found = alpha.load(file, place)
        assert found["a"].engine.name == found["b"][0].engine.name == expected
    for options in ({"map_location": 2.5}, {"map_location": "cpu", "engine": "cpu"}, {"weights_only": 3},
                    {"map_location": lambda storage, location: 2.5}):  # fmt: skip
        file.seek(0)
        with pytest.raises(ArgumentError, match=r"^\[load\] expected "):
            alpha.load(file, **options)


def test_open_files(tmp_path: Path) -> None:
    value = {"w": alpha.arange(5), "n": [1]}
    with open(tmp_path / "f", "wb") as file:
        file.write(b"before")
        alpha.save(value, file)
    with open(tmp_path / "f", "rb") as file:
        file.seek(6)
        assert alpha.load(file)["w"].tolist() == [0, 1, 2, 3, 4]
    with tempfile.SpooledTemporaryFile() as file:
        alpha.save(value, file)
        file.seek(0)
        assert alpha.load(file)["n"] == [1]  # type: ignore[arg-type]
    read, write = os.pipe()  # which cannot be sought in
    with os.fdopen(write, "wb") as file:
        alpha.save(value, file)
    with os.fdopen(read, "rb") as file:
        assert alpha.load(file)["w"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ArgumentError, match=r'^\[save\] expected a file that takes bytes, .* mode "wb"'):
        alpha.save(value, io.StringIO())  # type: ignore[arg-type]
    exhausted = io.BytesIO()
    alpha.save(value, exhausted)
    with pytest.raises(CheckpointError, match=r"^\[load\] expected a safetensors file.*BytesIO given \(0 bytes\)"):
        alpha.load(exhausted)


def test_files_of_earlier_releases_are_read(tmp_path: Path) -> None:
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.ones(1, np.int64)}
    safetensors.numpy.save_file(arrays, tmp_path / "old", {"by": "an earlier release"})
    found = alpha.load(tmp_path / "old")
    assert all(isinstance(found[name], alpha.Tensor) and np.array_equal(found[name], arrays[name]) for name in arrays)
    alpha.save(found, tmp_path / "new")  # plain tensors by name need no structure
    with safetensors.safe_open(tmp_path / "new", "np") as file:
        assert file.metadata() is None


# -- structures that lie -----------------------------------------------------------------------------------------------

HOSTILE: list[Any] = [
    {"$tensor": "no"}, {"$tensor": ["w"]}, {"$tensor": ["w", 3]}, {"$tensor": ["w", {"run": "code"}]},
    {"$tensor": ["w", {"kind": "os.system"}]}, {"$tensor": ["w", {"kind": 3}]}, {"$tensor": ["w",
    {"requires_grad": 1}]},
    {"$tensor": ["n", {"requires_grad": True}]}, {"$tensor": ["w", {"memory": [0, 0, [1]]}]},
    {"$tensor": ["w", {"memory": [7, 0, [3, 1]]}]}, {"$tensor": ["w", {"memory": [0, 4, [3, 1]]}]},
    {"$tensor": ["w", {"memory": [0, -4, [3, 1]]}]}, {"$tensor": ["w", {"memory": [0, 1, [3, 1]]}]},
    {"$tensor": ["w", {"memory": [0, 0, [3, -1]]}]}, {"$tensor": ["w", {"memory": [0, 0, [2**62, 1]]}]},
    {"$tensor": ["w", {"memory": [1, 0, [3, 1]]}]}, {"$tensor": ["w", {"memory": "x"}]}, {"$tensor": ["w",
    {"memory": [0, 0, "ab"]}]},
    {"$array": ["w", "O", [1]]}, {"$array": ["w", "<f2", [5]]}, {"$array": ["w", "<f2"]}, {"$array": ["w", "no",
    [1]]}, {"$array": 3},
    {"$scalar": ["<f4", "text"]}, {"$scalar": ["O", 1]}, {"$scalar": []}, {"$scalar": ["|i1", 1000]},
    {"$bytes": "no"}, {"$bytes": [1]},
    {"$set": [[1]]}, {"$dict": [[[1], 2]]}, {"$dict": [["a", 1], ["a", 2]]}, {"$dict": [["a"]]}, {"$ordered": 3},
    {"$counter": [1]}, {"$defaultdict": ["eval", {"$dict": []}]}, {"$defaultdict": ["list"]}, {"$complex": ["x"]},
    {"$complex": [1, 2, 3]},
    {"$range": [1, 2, 0]}, {"$slice": []}, {"$dtype": ["O"]}, {"$dtype": [3]}, {"$device": ["no such"]},
    {"$device": [3]},
    {"$module": ["os"]}, {"a": 1}, {}, {"$tuple": [1], "$set": []}, {"$tuple": 3}, {"$tuple": {"$tuple": 3}},
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: json.dumps(value)[:60])
def test_structures_that_lie_are_refused(tmp_path: Path, value: Any) -> None:
    arrays = {"w": np.ones((2, 3), np.float32), "n": np.ones(2, np.int64)}
    header = {"version": 1, "storages": [24, -5], "value": [value]}
    safetensors.numpy.save_file(arrays, tmp_path / "f", {"alpha.structure": json.dumps(header)})
    with pytest.raises(CheckpointError, match=r"^\[load\] expected a whole file, got ") as caught:
        alpha.load(tmp_path / "f")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "[]", "{}", "no json", '{"version": 1}', '{"version": 1, "value": 1}', "[" * 500 + "]" * 500),
        '{"version": 1, "storages": 3, "value": {"$tensor": ["w", {"memory": [0, 0, [3, 1]]}]}}',
        '{"version": 1, "storages": [], "value": ' + "[" * 10**5,
    ],
    ids=lambda text: text[:30],
)
def test_headers_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    arrays = {"w": np.ones((2, 3), np.float32)}
    safetensors.numpy.save_file(arrays, tmp_path / "f", {"alpha.structure": text})
    with pytest.raises(CheckpointError, match=r"^\[load\] expected a whole file, got "):
        alpha.load(tmp_path / "f")


def test_newer_files_and_deep_ones_say_so(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones(1)}, tmp_path / "f", {"alpha.structure": '{"version": 2}'})
    with pytest.raises(CheckpointError, match=r"^\[load\] expected a file of format version 1, got version 2"):
        alpha.load(tmp_path / "f")
    deep: Any = 1
    for _ in range(99):
        deep = {"a": deep}
    assert through_memory(deep) == deep
    with pytest.raises(ArgumentError, match=r"^\[save\] expected at most 100 lists"):
        alpha.save([[deep]], tmp_path / "g")
    with pytest.raises(StructureError, match="more than 100"):
        value: Any = 1
        for _ in range(400):
            value = [value]
        Unpacker({}).unpack(value)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_an_interrupted_save_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "f"
    base = alpha.arange(6)
    alpha.save({"n": 0, "w": [base, base[2:]]}, path)
    files = ("alpha/serialization.py", "alpha/files.py", "alpha/structure.py", "alpha/weights_file.py")
    numbers = set()
    for place in everywhere(lambda: alpha.save({"n": 1, "w": [base, base[2:]]}, path), *files, step=5):
        assert os.listdir(tmp_path) == ["f"], place
        numbers.add(alpha.load(path)["n"])
    assert numbers == {0, 1}


FULL = """
import resource, signal, sys
import numpy as np, alpha
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
alpha.save({"n": 0}, sys.argv[1])
for limit in (0, 100, 70_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for target in (sys.argv[1], open(sys.argv[2], "wb", buffering=0)):
        try:
            alpha.save({"n": 1, "x": [alpha.ones(50_000)]}, target)
        except alpha.errors.CheckpointError as error:
            print(str(error)[:24])
"""


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files through POSIX's setrlimit")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "f"), str(tmp_path / "open")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["[save] expected to write"] * 6
    assert sorted(os.listdir(tmp_path)) == ["f", "open"] and alpha.load(tmp_path / "f") == {"n": 0}
