"""Weight files and checkpoints: round trips, crashes at any moment, full disks, files of another kind, nothing half."""

from __future__ import annotations

import collections
import json
import os
import random as python_random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import alpha
from alpha import files, nn, optim, random, serialization
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, CheckpointError
from alpha.serialization import load_checkpoint, save_checkpoint

DTYPES = ["float32", "float64", "uint8", "int32", "int64", "bool"]


def net(engine: Engine, width: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2)).to(engine)


def in_image_order(engine: Engine, values: np.ndarray[Any, Any]) -> alpha.Tensor:
    out = engine.empty(values.shape, values.dtype, IMAGE_ORDER)
    engine.copy(engine.from_numpy(values), out)
    return out


class Position:
    """A loader's place in the data, that can refuse one."""

    def __init__(self) -> None:
        self.place = {"epoch": 0, "batch": 0}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["batch"] == 13:
            raise ArgumentError("[Position] expected another batch, got 13")
        self.place = dict(state)


class Run:
    """All that training has, some steps on."""

    def __init__(self, engine: Engine, seed: int, width: int = 5, optimizer: str = "Adam") -> None:
        alpha.manual_seed(seed)
        self.engine = engine
        self.model = net(engine, width)
        self.optimizer: Any = getattr(optim, optimizer)(self.model.parameters(), lr=0.1)
        self.scheduler = optim.StepLR(self.optimizer, 2, gamma=0.5)
        self.loader = Position()

    def step(self, count: int = 1) -> list[float]:
        losses = []
        for _ in range(count):
            x = alpha.randn(4, 3, engine=self.engine)
            y = alpha.tensor(random.permutation(4) % 2, engine=self.engine)
            loss = alpha.cross_entropy(alpha.dropout(self.model(x), 0.2), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.loader.place["batch"] += 1
            losses.append(loss.item())
        return losses

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "loader": self.loader}

    def everything(self) -> str:
        """A text that changes with anything a checkpoint holds."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {str(k): plain(v) for k, v in value.items()}
            if isinstance(value, list | tuple):
                return [plain(v) for v in value]
            return np.asarray(value).tolist() if hasattr(value, "shape") else value

        return json.dumps([plain(part.state_dict()) for part in self.parts().values()] + [random.get_state()])


# -- weight files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_come_back(engine: Engine, rng: np.random.Generator, tmp_path: Path, dtype: str) -> None:
    arrays = {name: (rng.standard_normal(shape) * 50).astype(dtype) for name, shape in
              {"matrix": (3, 5), "scalar": (), "nothing": (0, 4), "a.b.0 \u00e9": (2, 3, 4, 5)}.items()}  # fmt: skip
    tensors: dict[str, Any] = {name: engine.from_numpy(a) for name, a in arrays.items()}
    tensors["array"] = arrays["array"] = rng.integers(0, 2, 7).astype(dtype)
    tensors["transposed"] = tensors["matrix"].T
    arrays["transposed"] = arrays["matrix"].T
    tensors["image"] = in_image_order(engine, arrays["a.b.0 \u00e9"])
    arrays["image"] = arrays["a.b.0 \u00e9"]
    path = tmp_path / "weights.safetensors"
    alpha.save(tensors, path)
    loaded = alpha.load(path, engine)
    assert set(loaded) == set(arrays)
    assert isinstance(loaded["array"], np.ndarray) and list(loaded) == list(tensors)
    for name, array in arrays.items():
        assert isinstance(loaded[name], np.ndarray) or loaded[name].engine is engine
        assert loaded[name].dtype == np.dtype(dtype) and loaded[name].shape == array.shape
        assert np.array_equal(loaded[name], array)
    others = safetensors.numpy.load_file(path)
    assert all(np.array_equal(others[name], array) for name, array in arrays.items())
    assert os.listdir(tmp_path) == ["weights.safetensors"]


def test_parameters_and_metadata_are_saved(engine: Engine, tmp_path: Path) -> None:
    path = str(tmp_path / "x.safetensors")
    alpha.save({"w": engine.from_numpy(np.ones(3)).requires_grad_()}, path, {"made by": "a test"})
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata()["made by"] == "a test"
    assert alpha.load(path)["w"].requires_grad
    alpha.save({}, path)
    assert alpha.load(path) == {}


@pytest.mark.needs("torch")
def test_pytorch_reads_and_writes_the_same_files(engine: Engine, rng: np.random.Generator, tmp_path: Path) -> None:
    import safetensors.torch as torch_files
    import torch

    values, path = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), tmp_path / "x.safetensors"
    alpha.save({"w": in_image_order(engine, values)}, path)
    assert torch.equal(torch_files.load_file(path)["w"], torch.tensor(values))
    torch_files.save_file({"v": torch.tensor(values)}, path)
    assert np.array_equal(alpha.load(path)["v"].numpy(), values)


def test_every_tensor_is_aligned_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    arrays = {"a": np.ones(3, bool), "b": np.ones(5), "c": np.ones(7, np.int32), "\u00e9\n": np.ones(1)}
    alpha.save({name: alpha.tensor(array) for name, array in arrays.items()}, path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0 and set(header) == {"a", "b", "c", "\u00e9\n"}
    for entry in header.values():
        item = {"BOOL": 1, "F64": 8, "I32": 4}[entry["dtype"]]
        assert (8 + length + entry["data_offsets"][0]) % item == 0


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    alpha.save({"w": np.ones(3)}, tmp_path / "x")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "other").stat().st_mode


def break_file(path: Path, how: str) -> None:
    data = path.read_bytes()
    changed = {
        "truncated": data[:-5],
        "cut in the header": data[:20],
        "empty": b"",
        "text": b"these are not weights at all, only a line of text\n",
        "longer": data + b"more",
        "header": data[:8] + b"[" + data[9:],
        "lengths": (2**62).to_bytes(8, "little") + data[8:],
    }
    path.write_bytes(changed[how])


@pytest.mark.parametrize("reader", [alpha.load, load_checkpoint])
@pytest.mark.parametrize("how", ["truncated", "cut in the header", "empty", "text", "longer", "header", "lengths"])
def test_broken_files_say_so(tmp_path: Path, reader: Callable[[Path], Any], how: str) -> None:
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, values=np.arange(100))
    break_file(path, how)
    message = (
        rf"^\[{reader.__name__}\] expected a safetensors file, got a truncated, corrupt or other one at .*x.safetens"
    )
    with pytest.raises(CheckpointError, match=message) as caught:
        reader(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", [alpha.load, load_checkpoint])
def test_missing_files_and_folders_say_so(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    for path in (tmp_path / "no.safetensors", tmp_path / "no" / "x.safetensors"):
        with pytest.raises(CheckpointError, match=rf"^\[{reader.__name__}\] .*got nothing at {path}"):
            reader(path)
    with pytest.raises(CheckpointError, match=rf"^\[{reader.__name__}\] "):
        reader(tmp_path)


@pytest.mark.needs("torch")
def test_dtypes_that_tensors_have_not(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"w": np.ones(3, np.uint64)}, path)
    with pytest.raises(CheckpointError, match=r"^\[load\] expected tensors of .*, got uint64 for 'w' in "):
        alpha.load(path)
    import safetensors.torch as torch_files
    import torch

    torch_files.save_file({"w": torch.ones(3, dtype=torch.float8_e4m3fn)}, path)
    with pytest.raises(CheckpointError, match=r"^\[load\] "):
        alpha.load(path)


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ({"a": [1, object()]}, ArgumentError, r"^\[save\] expected numbers, .*, got object at a.1: convert it first"),
        (
            nn.Linear(2, 2),
            ArgumentError,
            r"^\[save\] .*, got Linear .*an object with a state to its state_dict",
        ),
        ({"w": np.array(["a"])}, ArgumentError, r"^\[save\] expected .*, got ndarray at w of <U1"),
        (
            {"f": collections.defaultdict(lambda: 1)},
            ArgumentError,
            r"^\[save\] .*, got defaultdict at f: one ",
        ),
        ([10**5000], ArgumentError, r"^\[save\] expected values that JSON can hold"),
    ],
)
def test_what_cannot_be_saved_says_so(tmp_path: Path, what: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        alpha.save(what, tmp_path / "x")
    with pytest.raises(ArgumentError, match=r"^\[save\] expected metadata of strings"):
        alpha.save({}, tmp_path / "x", {"a": 1})  # type: ignore[dict-item]
    assert os.listdir(tmp_path) == []


# -- writing whole or not at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    path = tmp_path / "x.safetensors"
    alpha.save({"w": np.ones(3)}, path)

    def fail(*args: Any, **kwargs: Any) -> None:
        if where == "write":
            args[2].write(b"half of it")
        raise error

    if where == "write":
        monkeypatch.setattr(files, "stream", fail)
    else:
        monkeypatch.setattr(files.os, where, fail)
    expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        alpha.save({"w": np.zeros(3)}, path)
    if isinstance(error, OSError):
        assert str(caught.value).startswith(f"[save] expected to write {path}, got No space left on device: ")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["x.safetensors"]
    assert alpha.load(path)["w"].tolist() == [1, 1, 1]


FULL_DISK = """
import resource, signal, sys
import numpy as np
import alpha
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
alpha.save({"w": np.ones(3)}, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    alpha.save({"w": np.zeros(1_000_000)}, sys.argv[1])
except alpha.errors.CheckpointError as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files through POSIX's setrlimit")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith(f"[save] expected to write {path}, got ") and done.stdout.count("\n") == 1
    assert os.listdir(tmp_path) == ["x.safetensors"] and alpha.load(path)["w"].tolist() == [1, 1, 1]


def test_an_unwritable_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "no" / "x", tmp_path / "file" / "x"):
        with pytest.raises(CheckpointError, match=rf"^\[save\] expected to write {path}, got ") as caught:
            alpha.save({"w": np.ones(3)}, path)
        assert "\n" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=r"^\[save\] expected to write .*folder, got "):
        alpha.save({"w": np.ones(3)}, tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


KILLED = """
import sys
import numpy as np
from alpha.serialization import save_checkpoint
number = int(sys.argv[2])
while True:
    save_checkpoint(sys.argv[1], number=number, values=np.full(300_000, number))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_killing_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    path, number = tmp_path / "checkpoint.safetensors", 0
    moments = python_random.Random(0)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(number)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = [int(process.stdout.readline())]  # the first is written: kill it somewhere in the next ones
        time.sleep(moments.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().split()]
        process.wait(60)
        loaded = load_checkpoint(path)
        number = loaded["number"]
        assert number in (said[-1], said[-1] + 1)  # the last one that was said to be written, or the next
        assert (loaded["values"] == number).all()
    save_checkpoint(path, number=number)
    assert os.listdir(tmp_path) == [path.name]  # what killed processes left behind is gone


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_to_the_bit(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    first = Run(engine, 1)
    first.step(3)
    save_checkpoint(path, **first.parts(), epoch=2, best=0.75, history=[1.5, float("inf")], names={"a": (1, None)})
    losses = first.step(4)
    second = Run(engine, 99)
    second.step(1)
    extra = load_checkpoint(path, **second.parts())
    assert extra == {"epoch": 2, "best": 0.75, "history": [1.5, float("inf")], "names": {"a": (1, None)}}
    assert second.loader.place == {"epoch": 0, "batch": 3}
    assert second.step(4) == losses
    assert second.everything() == first.everything()


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "RMSprop"])
def test_every_optimizer_resumes(engine: Engine, tmp_path: Path, optimizer: str) -> None:
    first, second = Run(engine, 1, optimizer=optimizer), Run(engine, 2, optimizer=optimizer)
    first.step(2)
    save_checkpoint(tmp_path / "c", **first.parts())
    losses = first.step(2)
    load_checkpoint(tmp_path / "c", **second.parts())
    assert second.step(2) == losses


def test_saving_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    run = Run(engine, 1)
    run.step(2)
    before = run.everything()
    save_checkpoint(tmp_path / "c", **run.parts())
    assert run.everything() == before


def test_parts_may_be_left_out(engine: Engine, tmp_path: Path) -> None:
    run = Run(engine, 1)
    run.step(2)
    save_checkpoint(tmp_path / "c", **run.parts(), epoch=1)
    other = Run(engine, 2)
    state = random.get_state()
    assert load_checkpoint(tmp_path / "c", model=other.model) == {"epoch": 1}
    assert random.get_state() == state  # weights alone leave the random numbers where they are
    for a, b in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
    assert other.optimizer.state == {} and load_checkpoint(tmp_path / "c") == {"epoch": 1}
    save_checkpoint(tmp_path / "m", model=run.model)
    message = r"^\[load_checkpoint\] expected a checkpoint that holds the optimizer's state, got .* with model: "
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / "m", optimizer=other.optimizer)


def test_extra_arrays_and_numpy_scalars(engine: Engine, tmp_path: Path) -> None:
    save_checkpoint(
        tmp_path / "c",
        order=np.arange(5),
        mean=np.float32(0.5),
        tensor=alpha.ones(2, engine=engine),
        deep=[{"x": (1,)}],
    )
    extra = load_checkpoint(tmp_path / "c")
    assert extra["order"].tolist() == [0, 1, 2, 3, 4] and extra["mean"] == 0.5
    assert extra["tensor"].tolist() == [1, 1] and extra["deep"] == [{"x": (1,)}]
    for value, kind in ((object(), "object"), ({"a": {object()}}, "object")):
        with pytest.raises(ArgumentError, match=rf"^\[save_checkpoint\] expected numbers, .* got {kind} at extra.bad"):
            save_checkpoint(tmp_path / "c", bad=value)
    assert load_checkpoint(tmp_path / "c")["mean"] == 0.5


@pytest.fixture
def saved(engine: Engine, tmp_path: Path) -> Path:
    run = Run(engine, 1)
    run.step(2)
    save_checkpoint(tmp_path / "c", **run.parts())
    return tmp_path / "c"


def refused(path: Path, run: Run, message: str, **changed: Any) -> None:
    """Loading fails with one line, and leaves all as it was."""
    run.step(3)
    before = run.everything()
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path, **{**run.parts(), **changed})
    assert "\n" not in str(caught.value)
    assert run.everything() == before


def test_a_checkpoint_of_another_model_lists_what_differs(engine: Engine, saved: Path) -> None:
    refused(
        saved,
        Run(engine, 2, width=6),
        r"of this Sequential, got .* of Sequential with keys \d+ misshaped \(0.weight: \(5, 3\)",
    )
    run = Run(engine, 2)
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2), nn.Linear(2, 2)).to(engine)
    refused(
        saved,
        run,
        r"3 unexpected \(1.running_mean, 1.running_var, 1.num_batches_tracked\), 3 misshaped \(1.weight: \(5,\)",
        model=other,
    )
    more = nn.Sequential(*net(engine), nn.Linear(2, 2)).to(engine)
    refused(saved, run, r"keys 2 missing \(3.weight, 3.bias\): build the model that was saved", model=more)
    refused(
        saved,
        run,
        r"\d+ misshaped \(0.weight: \(5, 3\) float32 instead of \(5, 3\) float64",
        model=net(engine).to("float64"),
    )


def test_a_checkpoint_of_another_optimizer_or_scheduler(engine: Engine, saved: Path) -> None:
    refused(
        saved,
        Run(engine, 2, optimizer="SGD"),
        r"^\[load_checkpoint\] expected the state of SGD, got .* with that of Adam: ",
    )
    run = Run(engine, 2)
    other = optim.ExponentialLR(run.optimizer, 0.5)
    refused(saved, run, r"expected the state of ExponentialLR, got .* that of StepLR", scheduler=other)
    half = optim.Adam(list(run.model.parameters())[:2])
    refused(saved, run, r"^\[Adam.load_state_dict\] expected groups of \[2\] parameters, got \[6\]", optimizer=half)


def test_a_loader_that_refuses(engine: Engine, tmp_path: Path) -> None:
    run = Run(engine, 1)
    run.loader.place["batch"] = 13
    save_checkpoint(tmp_path / "c", **run.parts())
    refused(
        tmp_path / "c",
        Run(engine, 2),
        r"^\[load_checkpoint\] expected a state that fits, got .*c: \[Position\] expected",
    )


def test_flipped_bits_are_noticed(engine: Engine, saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    for place in (len(data) - 1, len(data) - 100):
        damaged = bytearray(data)
        damaged[place] ^= 4
        saved.write_bytes(damaged)
        refused(
            saved,
            Run(engine, 2),
            r"^\[load_checkpoint\] expected a whole checkpoint, got one whose checksum is wrong at ",
        )


def test_files_that_are_no_checkpoints(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    for metadata in ({}, {"alpha": "{}"}, {"alpha": "no json"}, {"alpha": '{"format": "other"}'}, {"alpha": "3"}):
        alpha.save({"w": np.ones(3)}, path, metadata)
        refused(
            path,
            Run(engine, 2),
            r"^\[load_checkpoint\] expected a checkpoint, got another safetensors file at .*alpha.load",
        )
    newer = {"format": serialization.FORMAT, "version": 99}
    alpha.save({"w": np.ones(3)}, path, {"alpha": json.dumps(newer)})
    refused(path, Run(engine, 2), r"expected a checkpoint of format version 1, got version 99 at ")
