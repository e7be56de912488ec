"""Kernels check themselves: every family has a reference; one that fails is named, not used, and replaced if it can."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import cache as disk
from alpha.cu32 import build, compiler, references, selfcheck
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import KERNELS, Source
from alpha.cu32.explain import explain
from alpha.errors import ArgumentError, EngineError
from alpha.geometry import Geometry

ROOT = Path(__file__).resolve().parent.parent.parent

Break = Callable[..., None]


@pytest.fixture
def fresh(cu32: DeviceEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceEngine:
    """The engine, as in a process that has launched nothing, its verdicts in a folder of the test's."""
    monkeypatch.delenv("ALPHA_SELFCHECK", raising=False)
    folders = disk.directory
    monkeypatch.setattr(disk, "directory", lambda kind: tmp_path if kind == selfcheck.KIND else folders(kind))
    again(cu32, monkeypatch)
    return cu32


@pytest.fixture
def break_families(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Has kernels of some families write what is wrong by 100."""

    def breaks(*families: str) -> None:
        for family in families:
            right = references.FAMILIES[family]

            def wrong(engine: Any, right: Any = right) -> Any:
                return [(got, np.asarray(expected) - 100.0, allowed) for got, expected, allowed in right(engine)]

            monkeypatch.setitem(references.FAMILIES, family, wrong)

    return breaks


def launched(engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    names: set[str] = set()
    launch = engine.launch_packed

    def note(source: Source, *rest: Any, **named: Any) -> None:
        names.add(source.name)
        launch(source, *rest, **named)

    monkeypatch.setattr(engine, "launch_packed", note)
    return names


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The families that are compared from now on."""
    names: list[str] = []
    error = references.error

    def note(device: Any, family: str) -> Any:
        names.append(family)
        return error(device, family)

    monkeypatch.setattr(references, "error", note)
    return names


def whole(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float32)


# -- the references --------------------------------------------------------------------------------------------------


def test_every_kernel_file_belongs_to_one_family() -> None:
    written = {"pointwise", "integers", "dropout", "converted", "optimizers"}
    assert set(references.FAMILIES) == {path.stem for path in KERNELS.glob("*.cu")} | written


@pytest.mark.parametrize("family", sorted(references.FAMILIES))
def test_every_family_passes_and_runs_its_own_kernels(fresh: DeviceEngine, family: str) -> None:
    verdict = references.error(fresh.device, family)
    assert verdict is not None and verdict.sound


def test_a_reference_tells_wrong_from_right(fresh: DeviceEngine) -> None:
    for got in (np.float32(1.5), np.float32(np.nan), np.zeros(2, np.float32)):
        tensor = fresh.from_numpy(np.asarray(got))
        assert not references._difference(references._checker(fresh.device), tensor, np.float64(1), 1e-5).sound
    assert references._difference(
        references._checker(fresh.device), fresh.from_numpy(np.ones(3)), np.ones(3), 0.0
    ).sound


def test_what_a_check_launches_is_built_ahead(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without a compiler finds it in ALPHA_CUBINS."""
    used: set[Source] = set()
    launch = DeviceEngine.launch_packed

    def note(self: DeviceEngine, source: Source, *rest: Any) -> None:
        used.add(source)
        launch(self, source, *rest)

    monkeypatch.setattr(DeviceEngine, "launch_packed", note)
    for family in references.FAMILIES:
        references.error(fresh.device, family)
    assert {source.name for source in used} == set(references.FAMILIES) and used <= set(build.sources())


def test_an_interrupted_check_is_made_later(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(engine: Any) -> None:
        engine.empty((1 << 20,))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(references.FAMILIES, "integers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            add(fresh)
    checker = references._checker(fresh.device)
    assert checker.depth == 0 and checker.memory.in_use == 0
    names = counted(monkeypatch)
    add(fresh)
    assert names == ["integers"]


def test_a_check_leaves_the_program_as_it_was(fresh: DeviceEngine) -> None:
    from alpha.cu32.convolution import MACS

    before, macs = fresh.memory.in_use, dict(MACS)
    state = alpha.random.get_state()
    for family in ("conv", "random", "checks", "normalisation"):
        references.error(fresh.device, family)
    assert fresh.memory.in_use == before and macs == MACS
    assert references._checker(fresh.device).memory.held == 0
    assert state == alpha.random.get_state()


# -- a family that fails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "x_shape", "w_shape", "groups", "operator", "instead"),
    [
        ("depthwise", (2, 5, 6, 8), (8, 3, 3, 1), 8, "forward", "conv"),
        ("depthwise", (2, 5, 6, 8), (8, 3, 3, 1), 8, "input_grad", "conv"),
        ("depthwise_weight", (2, 5, 6, 8), (8, 3, 3, 1), 8, "weight_grad", "conv_weight"),
        ("few_results", (2, 5, 6, 16), (3, 3, 3, 16), 1, "forward", "conv"),
        ("few_weight", (2, 5, 6, 3), (16, 3, 3, 3), 1, "weight_grad", "conv_weight"),
        ("conv_tf32", (2, 5, 6, 32), (32, 3, 3, 32), 1, "forward", "conv"),
        ("conv_tf32", (2, 5, 6, 32), (32, 3, 3, 32), 1, "input_grad", "conv"),
        ("conv_patch_tf32", (2, 5, 6, 32), (32, 3, 3, 32), 1, "forward", "conv_tf32"),
        ("conv_patch_tf32", (2, 5, 6, 32), (32, 3, 3, 32), 1, "input_grad", "conv_tf32"),
        ("conv_weight_tf32", (2, 5, 6, 32), (32, 3, 3, 32), 1, "weight_grad", "conv_weight"),
        ("conv_threefold", (2, 5, 6, 32), (32, 3, 3, 32), 1, "forward", "conv"),
        ("conv_threefold", (2, 5, 6, 32), (32, 3, 3, 32), 1, "input_grad", "conv"),
        ("conv_weight_threefold", (9, 5, 6, 32), (32, 3, 3, 32), 1, "weight_grad", "conv_weight"),
        ("conv_window_tf32", (33, 5, 6, 32), (32, 3, 3, 32), 1, "weight_grad", "conv_weight_tf32"),
        ("conv_window_threefold", (64, 5, 6, 64), (64, 3, 3, 64), 1, "weight_grad", "conv_weight_threefold"),
    ],
)
def test_another_convolution_takes_its_place(
    fresh: DeviceEngine,
    break_families: Break,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    groups: int,
    operator: str,
    instead: str,
) -> None:
    break_families(broken)
    monkeypatch.setattr(type(fresh), "precision", "high" if broken.endswith("tf32") else "highest")
    geometry = Geometry.make(x_shape[1:3], w_shape[1:3], (1, 1), (1, 1))
    x, w, dy = whole(*x_shape), whole(*w_shape), whole(*x_shape[:3], w_shape[0])
    names = launched(fresh, monkeypatch)

    def run(engine: Any) -> np.ndarray[Any, Any]:
        if operator == "forward":
            return engine.to_numpy(engine.conv2d(*map(engine.from_numpy, (x, w)), None, geometry, groups))
        if operator == "input_grad":
            return engine.to_numpy(engine.conv2d_input_grad(*map(engine.from_numpy, (dy, w)), geometry, groups))
        return engine.to_numpy(engine.conv2d_weight_grad(*map(engine.from_numpy, (x, dy)), geometry, groups))

    with pytest.warns(
        RuntimeWarning, match=rf"{broken}\.cu to compute right on {fresh.device.name[:4]}.* off by 1"
    ) as said:
        result = run(fresh)
    assert len(said) == 1
    assert np.array_equal(result, run(alpha.engine("cpu")))
    assert instead in names and broken not in names
    assert explain(fresh, operator, x_shape, w_shape, padding=1, groups=groups).choice.startswith(f"{instead}.cu")


def test_tiles_take_the_place_of_vectors(
    fresh: DeviceEngine, break_families: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_families("gemv")
    m, v, u = whole(9, 12), whole(12), whole(9)
    names = launched(fresh, monkeypatch)
    a, b, c = map(fresh.from_numpy, (m, v, u))
    with pytest.warns(RuntimeWarning, match=r"gemv\.cu"):
        results = [
            (fresh.gemv(a, b), m @ v),
            (fresh.gemv(a, c, trans=True), u @ m),
            (fresh.matmul(c.strided(0, (9, 1), (1, 1)), b.strided(0, (1, 12), (12, 1))), np.outer(u, v)),
            (fresh.matmul(b.strided(0, (1, 12), (12, 1)), b.strided(0, (12, 1), (1, 1))), [[v @ v]]),
            (fresh.ger(c, b, 2.0), 2 * np.outer(u, v)),
            (fresh.ger(c, b, 2.0, a), m + 2 * np.outer(u, v)),
            (fresh.ger(c, b, 0.5, a, out=a), m + 0.5 * np.outer(u, v)),
        ]
    for got, expected in results[:5]:
        assert np.array_equal(fresh.to_numpy(got), expected)
    assert np.array_equal(fresh.to_numpy(results[5][0]), results[5][1])
    assert np.array_equal(fresh.to_numpy(a), results[6][1])
    assert "gemv" not in names and "gemm" in names
    assert explain(fresh, "matmul", (64, 32), (32, 1)).choice.startswith("gemm.cu")


@pytest.mark.parametrize(("broken", "precision"), [("gemm_tf32", "high"), ("gemm_threefold", "highest")])
def test_products_leave_the_tensor_cores(
    fresh: DeviceEngine, break_families: Break, monkeypatch: pytest.MonkeyPatch, broken: str, precision: str
) -> None:
    break_families(broken)
    monkeypatch.setattr(type(fresh), "precision", precision)
    x, y = whole(40, 288), whole(288, 32)
    with pytest.warns(RuntimeWarning, match=rf"{broken}\.cu"):
        assert explain(fresh, "matmul", x.shape, y.shape).choice.startswith("gemm.cu")
    names = launched(fresh, monkeypatch)
    assert np.array_equal(fresh.to_numpy(fresh.matmul(fresh.from_numpy(x), fresh.from_numpy(y))), x @ y)
    assert "gemm" in names and broken not in names


def test_where_nothing_takes_its_place_it_is_an_error(fresh: DeviceEngine, break_families: Break) -> None:
    break_families("sort", "parts")
    x = fresh.from_numpy(whole(3, 50))
    with pytest.warns(RuntimeWarning, match=r"sort\.cu"), pytest.raises(EngineError, match=r"\[cu32\].* sort\.cu to"):
        fresh.sort(x, 1)
    with warnings.catch_warnings(), pytest.raises(EngineError, match=r"kernels of sort\.cu .* off by 100"):
        warnings.simplefilter("error")  # it is said once
        fresh.sort(x, 1)
    assert np.array_equal(fresh.to_numpy(fresh.cumsum(x, 1)), whole(3, 50).cumsum(1))  # the others work


def test_kernels_that_are_wrong_are_found(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A copy of the kernels, whose point-wise loops leave their last element as it was."""
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    text = (kernels / "pointwise.cuh").read_text("utf-8")
    assert text.count("first < loop.tail") == 1
    (kernels / "pointwise.cuh").write_text(text.replace("first < loop.tail", "first + 1 < loop.tail"), "utf-8")
    monkeypatch.setattr(compiler, "KERNELS", kernels)
    monkeypatch.setattr(fresh.device, "_modules", {})
    forget_sources()
    try:
        x = fresh.from_numpy(whole(16))  # which is right even so: four by four
        with pytest.warns(RuntimeWarning, match=r"pointwise\.cu"), pytest.raises(EngineError, match=r"pointwise\.cu"):
            fresh.leaky_relu(x, 0.5)
    finally:
        forget_sources()


def forget_sources() -> None:
    """Has the kernels' sources read again."""
    for remembered in (selfcheck._sources, selfcheck._common, compiler._headers):
        remembered.cache_clear()


def test_what_a_check_needs_is_checked_before(fresh: DeviceEngine, break_families: Break) -> None:
    """Repeated indices are sorted: without a sort that is right there is no telling."""
    break_families("sort")
    out = fresh.from_numpy(whole(5, 4))
    index = fresh.from_numpy(np.array([1, 1, 2]))
    with pytest.warns(RuntimeWarning, match=r"sort\.cu"), pytest.raises(EngineError, match=r"sort\.cu"):
        fresh.scatter(out, (index, slice(None)), fresh.from_numpy(whole(3, 4)), True)


# -- verdicts are kept -----------------------------------------------------------------------------------------------


def add(engine: DeviceEngine) -> None:
    x = engine.from_numpy(whole(8).astype(np.int32))
    assert np.array_equal(engine.to_numpy(engine.elementwise("add", x, x)), 2 * whole(8))


def again(engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the next process."""
    monkeypatch.setattr(engine.device, "families", selfcheck.Record())
    monkeypatch.setattr(engine.device, "_kernels", {})


def test_nothing_is_checked_twice(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    names = counted(monkeypatch)
    add(fresh)
    add(fresh)
    x = fresh.from_numpy(whole(8, 4).astype(np.int64))
    fresh.elementwise("mul", x, 2)  # another kernel of the same family
    assert names == ["integers"]
    again(fresh, monkeypatch)
    add(fresh)
    assert names == ["integers"]


def test_threads_check_once(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    names, faults = counted(monkeypatch), []

    def work() -> None:
        try:
            add(fresh)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults and names == ["integers"]


@pytest.mark.parametrize("damage", ["cut", "changed", "of another", "no numbers"])
def test_damaged_verdicts_are_made_anew(
    fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str
) -> None:
    names = counted(monkeypatch)
    add(fresh)
    (file,) = tmp_path.glob("*.json")
    content = disk.read(file)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-40])
    elif damage == "changed":
        file.write_bytes(file.read_bytes().replace(b'"0.0"', b'"9.0"', 1))
    else:
        told = json.loads(content)
        told["driver" if damage == "of another" else "error"] = "none"
        file.write_bytes(disk.sealed(file.name, json.dumps(told).encode()))
    again(fresh, monkeypatch)
    add(fresh)
    assert names == ["integers"] * 2 and disk.read(file) == content


def test_another_device_driver_or_source_is_checked_anew(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    names = counted(monkeypatch)
    add(fresh)
    changes: list[tuple[Any, str, Any]] = [
        (fresh.device, "name", "another"),
        (fresh.device, "driver_version", "1"),
        (selfcheck, "_sources", lambda family: "changed"),
    ]
    for number, (owner, attribute, value) in enumerate(changes, 2):
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, value)
            again(fresh, monkeypatch)
            add(fresh)
        assert len(names) == number


def test_a_failure_is_kept_too(fresh: DeviceEngine, break_families: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_families("scan")
    names, x = counted(monkeypatch), fresh.from_numpy(whole(3, 5))
    for _ in range(2):
        again(fresh, monkeypatch)
        with pytest.warns(RuntimeWarning, match=r"scan\.cu"), pytest.raises(EngineError, match=r"scan\.cu"):
            fresh.cumsum(x, 1)
    assert names == ["scan"]


def test_another_process_reads_the_verdicts(fresh: DeviceEngine, tmp_path: Path) -> None:
    """Written there, read here, and the other way round; a process that compares nothing starts no checker."""
    script = """
import sys
from tests.cuda_on_cpu import preload
assert preload.load() is None
import alpha
from alpha import cache
folders, mine = cache.directory, __import__("pathlib").Path(sys.argv[1])
cache.directory = lambda kind: mine if kind == "selfchecks" else folders(kind)
x = alpha.ones(4, engine="cu32")
assert (x + x).numpy().tolist() == [2, 2, 2, 2]
from alpha.cu32 import references
print(references._checker.cache_info().currsize)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]

    def checkers() -> str:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert checkers() == "1"
    assert checkers() == "0"


# -- switches, captures ----------------------------------------------------------------------------------------------


def test_switches(fresh: DeviceEngine, break_families: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_families("integers")
    names = counted(monkeypatch)
    monkeypatch.setenv("ALPHA_SELFCHECK", "0")
    add(fresh)
    assert names == [] and fresh.device._kernels  # and loaded once, as ever
    for value in ("again", "again", "1"):
        again(fresh, monkeypatch)
        monkeypatch.setenv("ALPHA_SELFCHECK", value)
        with pytest.warns(RuntimeWarning), pytest.raises(EngineError, match="integers"):
            add(fresh)
    assert names == ["integers"] * 2
    again(fresh, monkeypatch)
    monkeypatch.setenv("ALPHA_SELFCHECK", "maybe")
    with pytest.raises(ArgumentError, match=r"ALPHA_SELFCHECK to be 0, 1 or again, got 'maybe'"):
        add(fresh)


def test_a_capture_is_not_disturbed(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rehearsal checks; what a capture itself loads first is taken as it is, and asked for at the next load."""
    x = alpha.tensor(whole(8), engine=fresh)
    step = alpha.graph(lambda x: (x * 2 + 1).relu())
    for _ in range(4):
        assert np.array_equal(step(x).numpy(), np.maximum(2 * whole(8) + 1, 0))
    assert not fresh.device.capturing
    names = counted(monkeypatch)
    again(fresh, monkeypatch)
    monkeypatch.setenv("ALPHA_SELFCHECK", "again")
    monkeypatch.setattr(fresh.device, "capturing", True)
    add(fresh)
    assert names == []
    monkeypatch.setattr(fresh.device, "capturing", False)
    add(fresh)
    assert names == ["integers"]


def test_without_a_compiler_what_cannot_be_checked_is_used(
    fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(device: Any, family: str) -> None:
        raise EngineError("no cubin of the check's")

    monkeypatch.setattr(references, "error", missing)
    with pytest.raises(EngineError, match=r"to check integers\.cu on .* no cubin"):
        add(fresh)
    monkeypatch.setattr(selfcheck.compiler, "can_compile", lambda: False)
    add(fresh)
    add(fresh)
    assert caplog.text.count("used unchecked") == 1


def test_without_memory_it_is_checked_later(fresh: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(device: Any, family: str) -> None:
        raise alpha.errors.OutOfMemoryError("[memory] expected room")

    with monkeypatch.context() as patch:
        patch.setattr(references, "error", full)
        add(fresh)
    names = counted(monkeypatch)
    fresh.elementwise("mul", fresh.from_numpy(whole(9).astype(np.int64)), 2)
    assert names == ["integers"]
