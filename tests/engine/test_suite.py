"""The suite that any engine must pass: every engine here does, and it finds what is wrong with one."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import engine_suite, engines, numpy_engine
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckError, EngineError
from alpha.numpy_engine import NumPyEngine
from alpha.tensor import Tensor
from tests.conftest import ENGINES
from tests.toy_engine import ToyEngine

OTHERS = [name for name in ("numpy", "toy") if name not in ENGINES]
"""Engines without kernels of their own: here they are tested in any case."""


def _is_costly(check: engine_suite.Check) -> bool:
    """Whether a check is for the full run: kernels of other dtypes take as long to compile as float32's."""
    return str(check).endswith(("uint8", "int32")) or str(check).startswith("attention")


CHECKS = [pytest.param(one, marks=pytest.mark.slow) if _is_costly(one) else one for one in engine_suite.CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_checks(engine: Engine, check: engine_suite.Check) -> None:
    check(engine)


@pytest.mark.parametrize("check", engine_suite.CHECKS, ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_checks_of_engines_that_are_their_core(name: str, check: engine_suite.Check) -> None:
    check(alpha.engine(name))


def test_an_engine_is_twelve_operations_and_a_hundred_lines() -> None:
    assert len(Engine.__abstractmethods__) == 12
    for kind in (NumPyEngine, ToyEngine):
        overridden = {name for name in vars(kind) if name in vars(Engine) and not name.startswith("_")}
        assert overridden - {"name"} == Engine.__abstractmethods__
        assert len(Path(inspect.getfile(kind)).read_text().splitlines()) <= 110


def test_names_of_checks_differ() -> None:
    names = [str(check) for check in engine_suite.CHECKS]
    assert len(names) == len(set(names))


class Rounding(NumPyEngine):
    """Adds up in float16."""

    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        found = super().reduce(op, x, axes, keepdims)
        return self.from_numpy(self.to_numpy(found).astype(np.float16).astype(found.dtype))


class Forgetting(NumPyEngine):
    """Keeps only the last of the values that are added to the same place."""

    def scatter(self, out: Tensor, index: tuple[Any, ...], values: Any, accumulate: bool) -> None:
        places = numpy_engine._as_arrays(self, index)
        new = numpy_engine._as_arrays(self, (values,))[0]
        self.to_numpy(out)[places] = new + self.to_numpy(out)[places] if accumulate else new


class Sharing(NumPyEngine):
    """Gives back the index that was checked, which its owner may still write to."""

    def check_range(self, index: Tensor, *options: Any, **more: Any) -> Tensor:
        super().check_range(index, *options, **more)
        return index


class Trusting(NumPyEngine):
    """Takes indices as they come."""

    def check_range(self, index: Tensor, *options: Any, **more: Any) -> Tensor:
        return self.dense(index)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Rounding, "long_sums_are_accurate-float64"),
        (Forgetting, "scatter_adds_up-rows-float32"),
        (Sharing, "indices_are_made_safe-dense"),
        (Trusting, "indices_out_of_range"),
    ],
)
def test_faults_are_found(kind: type[NumPyEngine], found: str) -> None:
    check = next(check for check in engine_suite.CHECKS if str(check) == found)
    check(NumPyEngine())
    with pytest.raises(CheckError):
        check(kind())


def test_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    two_checks = [check for check in engine_suite.CHECKS if check.name in ("scatter_adds_up", "sorting")]
    monkeypatch.setattr(engine_suite, "CHECKS", two_checks)
    assert engine_suite.check(alpha.engine("toy")) == len(two_checks)
    with pytest.raises(
        CheckError, match=rf"^\[engine_suite\] expected numpy to pass {len(two_checks)} checks, got \d+ failures:\nsca"
    ):
        engine_suite.check(Forgetting())


# -- registered by name ----------------------------------------------------------------------------------------------


def test_a_new_engine_by_its_name() -> None:
    toy = alpha.engine("toy")
    assert type(toy) is ToyEngine and alpha.engine("toy", memory="256MB") is toy and toy.memory.cap == 256 << 20
    x = alpha.ones(3, engine="toy")
    assert x.engine is toy and x.to("cpu").to("toy").engine is toy
    assert pickle.loads(pickle.dumps(x)).engine is toy and copy.deepcopy(x).engine is toy
    assert alpha.nn.Linear(2, 3).to("toy").weight.engine is toy
    with pytest.raises(ArgumentError, match=r"^\[engine\] expected no threads= for toy, got 2"):
        alpha.engine("toy", threads=2)


@pytest.mark.parametrize("name", ["cpu", "cu32", "numpy", "toy"])
def test_names_that_are_taken(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^\[register_engine\] expected a new name, got '{name}', which is taken"):
        alpha.register_engine(name, ToyEngine)
    assert type(alpha.engine("toy")) is ToyEngine


@pytest.mark.parametrize("name", ["", "Toy", "2d", "toy:0", "my toy", "float32", "half", "bool", None, 3])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^\[register_engine\] expected a name of lower-case letters.*, got "):
        alpha.register_engine(name, ToyEngine)


def test_factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_kinds", dict(engines._kinds))
    monkeypatch.setattr(engines, "_engines", dict(engines._engines))
    wrong: Any = "ToyEngine"
    with pytest.raises(ArgumentError, match=r"^\[register_engine\] expected a function that makes an engine, got 'Toy"):
        alpha.register_engine("other", wrong)
    alpha.register_engine("other", ToyEngine)
    with pytest.raises(EngineError, match=r"^\[engine\] expected the factory of 'other' .*, got one named 'toy'$"):
        alpha.engine("other")
    nothing: Any = lambda: None  # noqa: E731
    alpha.register_engine("nothing", nothing)
    with pytest.raises(EngineError, match=r"^\[engine\] expected the factory of 'nothing' .*, got None$"):
        alpha.engine("nothing")


def test_devices_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_kinds", dict(engines._kinds))
    monkeypatch.setattr(engines, "_engines", dict(engines._engines))

    def make(device: int) -> Engine:
        engine = NumPyEngine()
        engine.name = f"many:{device}"
        return engine

    alpha.register_engine("many", make, numbered=True)
    first, second = alpha.engine("many"), alpha.engine("many:1")
    assert first is alpha.engine("many:0") and first is not second and second.name == "many:1"
    assert alpha.ones(2, engine=first).to("many:1").engine is second
    with pytest.raises(
        EngineError, match=r'"numpy", "toy", "many" or "many:" and a device\'s number, got \'many:01\'$'
    ):
        alpha.engine("many:01")


@pytest.mark.slow
def test_the_default_dtype_changes_no_operation() -> None:
    """The CPU engine's checks name their dtypes; its modules are first loaded with another default in force."""
    program = (
        "import alpha; alpha.set_default_dtype(alpha.float64); from alpha import engine_suite; "
        "engine_suite.check(alpha.engine('cpu'))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
