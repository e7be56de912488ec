"""The timed search: results untouched, times kept on disk and taken again, broken files, captures, many processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import cache as disk
from alpha.cu32 import planner, search
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.problem import dense_problem
from alpha.cu32.costs import Job, Plan, TilePlan
from alpha.cu32.explain import explain
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError, OutOfMemoryError
from alpha.geometry import Geometry
from alpha.tensor import Tensor
from tests.cu32.test_planner import H100, LAYER

Array = np.ndarray[Any, Any]

HIGH = replace(LAYER, high=True)

GEOMETRY = Geometry.make((5, 5), (3, 3), (1, 1), (1, 1))


def plans(job: Job) -> tuple[Plan, ...]:
    """Those of all algorithms that serve, the likeliest first."""
    return planner.plans(job, H100)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and the search turned on."""
    kept, plain = tmp_path / "plans", disk.directory
    monkeypatch.setattr(disk, "directory", lambda kind: kept if kind == "plans" else plain(kind))
    search.forget()
    alpha.set_search(True)
    yield kept
    alpha.set_search(False)
    search.forget()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many plans each search timed."""
    seen: list[int] = []
    plain = search._time

    def noting(engine: DeviceEngine, chosen: Any, run: Any) -> search.Times:
        seen.append(len(chosen))
        return plain(engine, chosen, run)

    monkeypatch.setattr(search, "_time", noting)
    return seen


def tensors(cu32: DeviceEngine, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and dy of a small convolution, images in the engine's order."""
    shapes = ((4, 5, 5, 16), (20, 3, 3, 16), (4, 5, 5, 20))
    x, w, dy = (cu32.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes)
    return x.contiguous(IMAGE_ORDER), w, dy.contiguous(IMAGE_ORDER)


def operators(cu32: DeviceEngine, x: Tensor, w: Tensor, dy: Tensor) -> list[Array]:
    """All that search: the three operators, an input gradient added to another, a product."""
    adds = cu32.empty(x.shape, x.dtype, IMAGE_ORDER)
    cu32.copy(x, adds)
    bias = cu32.from_numpy(np.arange(20, dtype=np.float32))
    return [
        cu32.to_numpy(result).copy()
        for result in (
            cu32.conv2d(x, w, bias, GEOMETRY, 1),
            cu32.conv2d_input_grad(dy, w, GEOMETRY, 1),
            cu32.conv2d_input_grad(dy, w, GEOMETRY, 1, accumulate=adds),
            cu32.conv2d_weight_grad(x, dy, GEOMETRY, 1),
            cu32.matmul(x.reshape(-1, 16), w.reshape(20, 144)[:16]),
        )
    ]


def test_results_are_those_without_a_search(
    cu32: DeviceEngine, rng: np.random.Generator, timed: list[int], folder: Path
) -> None:
    arguments = tensors(cu32, rng)
    first, again = operators(cu32, *arguments), operators(cu32, *arguments)
    assert len(timed) == 5 and max(timed) <= search.CANDIDATES and len(list(folder.iterdir())) == 5
    alpha.set_search(False)
    for searched, later, plain in zip(first, again, operators(cu32, *arguments), strict=True):
        np.testing.assert_array_equal(searched, later)
        np.testing.assert_allclose(searched, plain, rtol=0, atol=5e-6 * np.abs(plain).max())


def test_a_kept_result_is_taken(cu32: DeviceEngine, rng: np.random.Generator, timed: list[int], folder: Path) -> None:
    x, w, _ = tensors(cu32, rng)
    cu32.conv2d(x, w, None, GEOMETRY, 1)
    (file,) = folder.iterdir()
    content = json.loads(disk.read(file))
    assert content["device"] == cu32.device.name and "in_channels=16" in content["problem"]
    assert [entry["ms"] for entry in content["times"]] == sorted(entry["ms"] for entry in content["times"])
    slowest = content["times"][-1]
    slowest["ms"] = 1e-6
    file.write_bytes(disk.sealed(file.name, json.dumps(content).encode()))
    search.forget()
    taken: list[Plan] = []
    plain = planner.search.fastest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner.search, "fastest", lambda *a: (taken.append(plain(*a)), taken[-1])[1])
        cu32.conv2d(x, w, None, GEOMETRY, 1)
    assert len(timed) == 1
    assert taken[0].identity == slowest["plan"]
    told = explain(cu32, "forward", x.shape, w.shape, padding=1)
    assert told.measured_ms == 1e-6 and "tiles of {rows} x {columns}".format(**slowest["plan"]) in told.choice
    assert "measured" in str(told)
    alpha.set_search(False)
    assert explain(cu32, "forward", x.shape, w.shape, padding=1).measured_ms != 1e-6


def test_all_algorithms_are_timed(cu32: DeviceEngine, rng: np.random.Generator, folder: Path) -> None:
    """Those too that are always taken without a search; whichever is fastest, the result is right."""
    x = cu32.from_numpy(rng.standard_normal((2, 5, 5, 8)).astype(np.float32))
    w = cu32.from_numpy(rng.standard_normal((8, 3, 3, 1)).astype(np.float32))
    searched = cu32.to_numpy(cu32.conv2d(x, w, None, GEOMETRY, 8)).copy()
    (file,) = folder.iterdir()
    content = json.loads(disk.read(file))
    assert {entry["plan"]["algorithm"] for entry in content["times"]} == {"depthwise", "tiles"}
    assert content["algorithms"] == ["depthwise", "tiles"]
    alpha.set_search(False)
    np.testing.assert_allclose(searched, cu32.to_numpy(cu32.conv2d(x, w, None, GEOMETRY, 8)), rtol=0, atol=1e-5)


NO_TIMES = (b"", b"{", b"[]", b'{"times": []}', b'{"times": [{"rows": 1}]}', b"\xff", 9999 * b"[")


@pytest.mark.parametrize("content", [*NO_TIMES, "unsealed", "cut", "faster"], ids=lambda content: str(content[:9]))
def test_a_broken_file_is_ignored_and_written_anew(
    cu32: DeviceEngine, rng: np.random.Generator, timed: list[int], folder: Path, content: bytes | str
) -> None:
    x, w, _ = tensors(cu32, rng)
    cu32.conv2d(x, w, None, GEOMETRY, 1)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    if isinstance(content, bytes):
        broken = disk.sealed(file.name, content)
    else:
        digit = whole.rindex(b'"ms": ') + len(b'"ms": ')
        faster = whole[:digit] + b"0" + whole[digit + 1 :]  # the slowest plan
        broken = {"unsealed": b'{"times": []}', "cut": whole[:-1], "faster": faster}[content]
    file.write_bytes(broken)
    search.forget()
    with pytest.warns(RuntimeWarning, match=r"\[search\] expected times of plans in .* ignored"):
        cu32.conv2d(x, w, None, GEOMETRY, 1)
    assert len(timed) == 2 and json.loads(disk.read(file)).keys() == json.loads(whole[:-32]).keys()
    search.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cu32.conv2d(x, w, None, GEOMETRY, 1)
    assert len(timed) == 2


def test_changed_kernels_and_other_devices_are_searched_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    key = search.SearchKey(H100, LAYER, ("tiles",))
    names = {key.path.name, search.SearchKey(H100, HIGH, ("tiles",)).path.name}
    names.add(search.SearchKey(H100, LAYER, ("tiles", "another")).path.name)
    monkeypatch.setattr(search, "_kernels", lambda: "others")
    names.add(key.path.name)
    assert len(names) == 4


def test_the_first_of_two_processes_wins(folder: Path) -> None:
    key, found = search.SearchKey(H100, LAYER, ("tiles",)), plans(LAYER)
    first, second = {found[0]: 1.0, found[1]: 2.0}, {found[0]: 2.0, found[1]: 1.0}
    assert search._write(key, found, first) == first
    assert search._write(key, found, second) == first


def test_threads_search_once(cu32: DeviceEngine, rng: np.random.Generator, timed: list[int]) -> None:
    x, w, _ = tensors(cu32, rng)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cu32.to_numpy(cu32.conv2d(x, w, None, GEOMETRY, 1)).copy(), range(4)))
    assert len(timed) == 1
    for result in results:
        np.testing.assert_array_equal(result, results[0])


PROCESS = """
import sys
from pathlib import Path
import numpy as np
import alpha
from alpha import cache
from tests.conftest import cuda_engine

plain = cache.directory
cache.directory = lambda kind: Path(sys.argv[1]) if kind == "plans" else plain(kind)
engine = cuda_engine()
x, w = (engine.from_numpy(np.ones(shape, np.float32)) for shape in ((4, 5, 5, 16), (20, 3, 3, 16)))
print(float(alpha.functions.conv2d(x, w, padding=1).sum().item()))
"""


def test_processes_share_what_they_find(cu32: DeviceEngine, folder: Path) -> None:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", PROCESS, str(folder)]
    environment = {**os.environ, "ALPHA_SEARCH": "1"}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    outputs = {process.communicate(timeout=300)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0] and len(outputs) == 1
    (file,) = folder.iterdir()  # no half-written one beside it
    assert json.loads(disk.read(file))["times"]


def test_a_folder_that_cannot_be_written_to_costs_nothing_else(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, timed: list[int]
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(disk, "write_atomically", refuse)
    x, w, _ = tensors(cu32, rng)
    for _ in range(2):
        cu32.conv2d(x, w, None, GEOMETRY, 1)
    assert len(timed) == 1


def test_without_room_the_model_chooses(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    tried: list[int] = []

    def full(*_: object) -> search.Times:
        tried.append(1)
        raise OutOfMemoryError("[memory] expected room, got none")

    monkeypatch.setattr(search, "_time", full)
    x, w, _ = tensors(cu32, rng)
    for _ in range(2):
        cu32.conv2d(x, w, None, GEOMETRY, 1)
    assert len(tried) == 1 and not folder.exists()


def test_nothing_is_timed_in_a_capture(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    captured: list[bool] = []
    plain = search._time

    def noting(engine: DeviceEngine, chosen: Any, run: Any) -> search.Times:
        captured.append(engine.capture is not None)
        return plain(engine, chosen, run)

    monkeypatch.setattr(search, "_time", noting)
    x, w, _ = tensors(cu32, rng)
    for forgotten in (False, True):
        search.forget()
        step = alpha.graph(lambda x: alpha.functions.conv2d(x, w, padding=1), warmup=1)
        results = [step(x).numpy().copy()]
        if forgotten:
            search.forget()
            shutil.rmtree(folder)
        results += [step(x).numpy().copy() for _ in range(2)]
        assert step.captures == 1
        np.testing.assert_array_equal(results[1], results[2])
        np.testing.assert_allclose(results[0], results[1], rtol=0, atol=0 if not forgotten else 1e-4)
    assert captured == [False]  # kept for the second step's rehearsal too


def test_a_brief_round_waits_for_other_work(
    cu32: DeviceEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BRIEF", 1e9)
    monkeypatch.setattr(search, "WORK_BYTES", 1 << 10)
    x, w, _ = tensors(cu32, rng)
    before = cu32.to_numpy(cu32.conv2d(x, w, None, GEOMETRY, 1)).copy()
    np.testing.assert_array_equal(before, cu32.to_numpy(cu32.conv2d(x, w, None, GEOMETRY, 1)))


def test_candidates_are_of_all_kernels_and_likely() -> None:
    found = plans(HIGH)
    chosen = search.candidates(found)
    assert chosen[0] == found[0] and len(set(chosen)) == len(chosen) <= search.CANDIDATES
    assert all(plan.cycles <= search.HOPELESS * found[0].cycles for plan in chosen)
    assert {plan.algorithm for plan in chosen} == {"patches", "tensor_cores", "tiles"}
    assert len({plan.tile for plan in search.candidates(plans(LAYER)) if isinstance(plan, TilePlan)}) >= 3
    # A depthwise layer's own kernel is what the model prefers, tiles beside it.
    depthwise = plans(dense_problem("weight_grad", LAYER.geometry, 8, 32, 32, 32))
    assert depthwise[0].algorithm == "depthwise" and {"depthwise", "tiles"} == {plan.algorithm for plan in depthwise}


def test_the_switch() -> None:
    assert alpha.get_search()
    alpha.set_search(False)
    assert not alpha.get_search()
    with pytest.raises(ArgumentError, match=r"\[set_search\] expected True or False, got 'yes'"):
        alpha.set_search("yes")  # type: ignore[arg-type]
    for value, expected in (("1", "True"), ("0", "False"), ("", "False")):
        asked = subprocess.run(
            [sys.executable, "-c", "import alpha; print(alpha.get_search())"],
            env={**os.environ, "ALPHA_SEARCH": value},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert asked.stdout.strip() == expected
