"""Memory: all that a call needs is within the cap or small, whatever its sizes; nothing is made element by element."""

from __future__ import annotations

import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import bands, caches, geometry, random
from alpha.conv.problem import FORWARD, OPERATORS, WEIGHT_GRAD
from alpha.cpu import planner
from alpha.cpu import pooling as cpu_pooling
from alpha.cpu.conv import images as images_as_rows
from alpha.cpu.conv.problem import dense_problem
from alpha.cpu.engine import CPUEngine
from alpha.cu32.conv import tables
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import AlphaError, ArgumentError, OutOfMemoryError
from alpha.geometry import Axis, Geometry
from alpha.tensor import Tensor, dense_strides
from tests.robustness import memory

MB = 1 << 20
SHAPES, SEED = 60, 3


# -- the process, from outside -----------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what is resident")
def test_a_process_stays_within_the_cap_over_random_shapes() -> None:
    for _ in range(2):  # what compiles kernels takes memory of its own: the second process finds them
        figures = memory.watch(SHAPES, SEED)
        if figures["peak"] <= memory.CAP + memory.OUTSIDE_POOL:
            break
    assert not figures["faults"]
    assert figures["computed"] + figures["refused"] == SHAPES
    assert figures["computed"] > SHAPES // 2
    assert figures["peak"] <= memory.CAP + memory.OUTSIDE_POOL, figures["rises"]


# -- tables ------------------------------------------------------------------------------------------------------


def plans_of(size: tuple[int, int], filter: tuple[int, int], channels: tuple[int, int, int], images: int) -> list[Any]:
    """Every plan that convolutions of these sizes could take: of an algorithm that serves them."""
    g = Geometry.make(size, filter, padding=(filter[0] // 2, filter[1] // 2))
    made: list[Any] = []
    for by_output in (True, False):
        shape = (images, *(g.input if by_output else g.output), channels[0])
        made.append(cpu_pooling._plan(g, by_output, 0, shape, dense_strides(shape), 4))
    for operator in OPERATORS:
        problem = dense_problem(operator, g, images, *channels)
        made += [algorithm.plan(problem) for algorithm in planner.candidates(problem)]
    return made


SIDES = [((1, 8000), (1, 3)), ((8000, 1), (3, 1)), ((1, 4000), (1, 999)), ((400, 500), (3, 3)), ((300, 300), (31, 31))]


@pytest.mark.parametrize(("size", "filter"), SIDES)
def test_tables_are_small_against_what_they_describe(size: tuple[int, int], filter: tuple[int, int]) -> None:
    """Tables grow with positions and with taps, but not with their product."""
    caches.release()
    positions, taps = size[0] * size[1], filter[0] * filter[1]
    for channels in ((1, 1, 1), (4, 4, 4), (512, 512, 1)):
        for plan in plans_of(size, filter, channels, 1):
            weight, elements = caches.weight(plan), positions + taps * channels[0]
            assert weight < min(160 * elements, 5 * MB) + 20_000, (type(plan).__name__, weight)


def steps_of(run: Callable[[], object]) -> int:
    """Calls that Python makes, of its own functions and of C's: what a loop over elements has many of."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_no_table_is_made_position_by_position() -> None:
    def small() -> None:
        caches.release()
        plans_of((20, 21), (3, 3), (1, 1, 1), 1)

    def large() -> None:
        caches.release()
        plans_of((400, 401), (3, 3), (1, 1, 1), 1)

    small_steps, large_steps = steps_of(small), steps_of(large)
    assert large_steps < 3 * small_steps  # of 382 times as many positions


def test_no_table_of_the_device_is_made_position_by_position() -> None:
    def tables_of(length: int) -> None:
        caches.release()
        axis = Axis(length, 3, 2, (1, 1))
        tables.tiles(axis, axis, True, 1, 64)
        tables.patches(axis, axis, False, 2, 2, 4)
        tables.leaps(Geometry(axis, axis), 2)

    assert steps_of(lambda: tables_of(1200)) < 2 * steps_of(lambda: tables_of(12))


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_algorithms_of_wide_images_take_little_of_their_own(operator: str) -> None:
    """Those that copy a row of images at a time do not serve where it is long."""
    channels = 8 if operator == WEIGHT_GRAD else 16
    geometry = Geometry.make((1, 16000), (1, 5), padding=(0, 2))
    wide = dense_problem(operator, geometry, 64, channels, 16, 1)
    serving = {algorithm.name for algorithm in planner.candidates(wide)}
    assert serving and not serving & {"lanes", "columns", "tap_rows"}
    assert planner.choose(wide).name in serving


# -- caches ------------------------------------------------------------------------------------------------------


def test_caches_keep_within_their_budget_and_what_is_asked_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    caches.release()
    monkeypatch.setattr(caches._LEDGER, "budget", 1 << 20)
    made: list[int] = []

    @caches.kept
    def array(number: int, nbytes: int) -> np.ndarray[Any, Any]:
        made.append(number)
        return np.zeros(nbytes, np.uint8)

    for number in range(200):
        array(number, 30_000)
        array(0, 30_000)  # asked for all the time
        assert caches.statistics().nbytes <= 1 << 20
    assert made == list(range(200))
    assert array(199, 30_000) is array(199, 30_000)
    array(1, 30_000)
    assert made[-1] == 1  # it had gone
    assert array(0, 1 << 19) is not array(0, 1 << 19)  # half of the budget is not kept
    assert caches.release() > 0
    assert caches.statistics().entries == caches.statistics().nbytes == 0


def test_an_engine_of_little_memory_keeps_little() -> None:
    engine = CPUEngine(memory="16MB")
    assert caches.statistics().budget <= MB
    for length in range(3000, 3200):
        images_as_rows.plan(dense_problem(FORWARD, Geometry.make((1, length), (1, 3)), 1, 2, 2, 1))
    assert caches.statistics().nbytes <= MB
    engine.configure(memory="32MB")
    assert caches.statistics().budget <= 2 * MB


# -- long axes ---------------------------------------------------------------------------------------------------


def operators(engine: Engine, g: Geometry, channels: tuple[int, int, int], images: int) -> list[np.ndarray[Any, Any]]:
    """The three operators with all that may be fused to them, on numbers that depend on the shapes alone."""
    rng, (inputs, outputs, groups) = np.random.default_rng(0), channels

    def draw(*shape: int) -> Tensor:
        return engine.dense(engine.from_numpy(rng.standard_normal(shape)), IMAGE_ORDER[: len(shape)])

    x, dy = draw(images, *g.input, inputs), draw(images, *g.output, outputs)
    w = engine.from_numpy(rng.standard_normal((outputs, *g.filter, inputs // groups)))
    bias, back = (engine.from_numpy(rng.standard_normal(n)) for n in (outputs, inputs))
    residual, over = (draw(images, *g.output, outputs) for _ in range(2))
    under = draw(images, *g.input, inputs)
    results = [
        engine.conv2d(x, w, bias, g, groups, slope=0.1),
        engine.conv2d(x, w, bias, g, groups, residual, 0.0),
        engine.conv2d(x, w, None, g, groups, accumulate=over),
        engine.conv2d_input_grad(dy, w, g, groups, back),
        engine.conv2d_input_grad(dy, w, g, groups, accumulate=under),
        engine.conv2d_weight_grad(x, dy, g, groups),
    ]
    return [np.array(engine.to_numpy(result)) for result in results]


AXES = [
    Axis(20, 3, 1, (1, 1)),
    Axis(5, 3, 1, (12, 9), 2),
    Axis(17, 2, 5, (3, 8)),
    Axis(9, 4, 2, (7, 0), 3),
    Axis(21, 1, 6, (0, 0)),
]


@pytest.mark.parametrize(("rows", "columns"), list(itertools.product(AXES[:3], AXES)))
def test_bands_give_what_the_whole_gives(
    engine: Engine, rows: Axis, columns: Axis, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.name != "cpu" and (rows, columns) not in [(AXES[1], AXES[1]), (AXES[0], AXES[2])]:
        pytest.skip("enough of them on a stand-in")
    for channels in ((4, 6, 2), (3, 3, 3)):
        whole = operators(engine, Geometry(rows, columns), channels, 2)
        with monkeypatch.context() as patched:
            for module in (geometry, bands):
                patched.setattr(module, "LONGEST", 7)
                patched.setattr(module, "POSITIONS", 30)
            patched.setattr(bands, "MIN_EMPTY", 3)
            patched.setattr(bands, "MAX_SPAN", 2)
            cut = operators(engine, Geometry(rows, columns), channels, 2)
        for expected, found in zip(whole, cut, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    "steps",
    [
        {"padding": 2**18},
        {"padding": 2**22, "dilation": 2**22},
        {"stride": 2**31 - 1},
        {"padding": 5, "dilation": 5, "stride": 3},
        {"padding": 2**20, "stride": 2**17},
    ],
)
def test_large_steps_cost_what_they_compute(engine: Engine, steps: dict[str, int]) -> None:
    """Against the definition, element by element of the input; in time far below a step for each padded position."""
    rng, start = np.random.default_rng(0), time.perf_counter()
    x, w, bias = rng.standard_normal((2, 9, 3)), rng.standard_normal((4, 3, 3)), rng.standard_normal(4)
    s, p, d = (steps.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)))
    if engine.name != "cpu":
        p = min(p, 2**14)
        steps = {**steps, "padding": p, "dilation": min(d, 2**14)}
        s, d = min(s, 2**14 + 1), min(d, 2**14)
        steps["stride"] = s
    length = (9 + 2 * p - 2 * d - 1) // s + 1
    expected = np.broadcast_to(bias, (2, length, 4)).copy()
    for i, f in itertools.product(range(9), range(3)):
        place, rest = divmod(i + p - f * d, s)
        if rest == 0 and 0 <= place < length:
            expected[:, place] += x[:, i] @ w[:, f].T
    a, b, c = (engine.from_numpy(v).requires_grad_() for v in (x, w, bias))
    y = F.conv1d(a, b, c, **steps)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-12)
    y.sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert np.isfinite(a.grad.numpy()).all()
    assert np.isfinite(b.grad.numpy()).all()
    if engine.name == "cpu":
        assert time.perf_counter() - start < 30


def test_steps_that_64_bits_cannot_multiply_are_refused(engine: Engine) -> None:
    x, w = alpha.ones(1, 5, 1, engine=engine), alpha.ones(1, 3, 1, engine=engine)
    with pytest.raises(AlphaError, match=r"2147483647|room|2 \*\* 60"):
        F.conv1d(x, w, padding=2**40, dilation=2**40)


# -- creation ----------------------------------------------------------------------------------------------------

MADE: dict[str, Callable[[int, Engine], Tensor]] = {
    "rand": lambda n, e: alpha.rand(n, engine=e),
    "randn": lambda n, e: alpha.randn(n, dtype=alpha.float64, engine=e),
    "arange": lambda n, e: alpha.arange(n, engine=e),
    "arange of floats": lambda n, e: alpha.arange(0.5, n, 1.0, engine=e),
    "eye": lambda n, e: alpha.eye(max(1, n // 4096), 4096, engine=e),
    "full": lambda n, e: alpha.full((n,), 3, engine=e),
    "zeros": lambda n, e: alpha.zeros(n, engine=e),
    "constant_": lambda n, e: alpha.nn.init.constant_(alpha.empty(n, engine=e), 2.0),
    "normal_": lambda n, e: alpha.nn.init.normal_(alpha.empty(n, engine=e)),
}


@pytest.mark.parametrize("name", MADE)
def test_numbers_are_made_in_the_pool(name: str) -> None:
    """Outside the pool there is at most one piece of the result at a time."""
    engine = CPUEngine(memory="64MB")
    MADE[name](1 << 17, engine)  # on all threads: what starts them is compiled
    tracemalloc.start()
    try:
        made = MADE[name](1 << 20, engine)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.nbytes >= 4 * MB
    assert peak < 16 * random.PIECE * 2
    assert peak < 4.5 * MB


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("size", [1 << 32, 1 << 45, 1 << 58])
def test_what_is_beyond_the_cap_is_refused_at_once(name: str, size: int) -> None:
    engine = CPUEngine(memory="64MB")
    start, before = time.perf_counter(), engine.memory.in_use
    with pytest.raises(OutOfMemoryError):
        MADE[name](size, engine)
    assert time.perf_counter() - start < 5
    assert engine.memory.in_use == before
    assert alpha.ones(4, engine=engine).numpy().sum() == 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pieces_are_the_same_numbers(engine: Engine, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[np.ndarray[Any, Any]]:
        alpha.manual_seed(3)
        made = [alpha.rand(7, 13, dtype=dtype, engine=engine), alpha.randn(7, 13, dtype=dtype, engine=engine)]
        made += [alpha.arange(100, dtype=dtype, engine=engine), alpha.arange(0.1, 40, 0.3, dtype=dtype, engine=engine)]
        return [np.array(tensor.numpy()) for tensor in made] + [random.uniform(91, -2, 3, dtype), random.normal(91)]

    whole = drawn()
    monkeypatch.setattr(random, "PIECE", 8)
    monkeypatch.setattr("alpha.composed.arrays.PIECE", 8)
    for expected, found in zip(whole, drawn(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("start", "end", "step"), [(0.0, 1.0, 0.1), (3.0, -1.0, -0.25), (5, 2, 1), (10, -7, -3), (1e-3, 2, 1e-3), (0, 7, 2)]
)
def test_ranges_are_numpys(start: float, end: float, step: float) -> None:
    expected = np.arange(start, end, step)
    found = alpha.arange(start, end, step, dtype=alpha.float64).numpy()
    np.testing.assert_array_equal(found, expected.astype(np.float64))


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("full", lambda: alpha.full((2,), 10**30, dtype="int64")),
    ("full", lambda: alpha.full((2,), 2**40, dtype="int32")),
    ("full", lambda: alpha.full((2,), -1, dtype="uint8")),
    ("full", lambda: alpha.full((2,), float("nan"), dtype="int32")),
    ("full", lambda: alpha.full((2,), 10**400)),
    ("full", lambda: alpha.full((2,), 1e300, dtype="float32")),
    ("full", lambda: alpha.full((2,), "a", dtype="float32")),
    ("full_like", lambda: alpha.full_like(alpha.ones(2), None)),  # type: ignore[arg-type]
    ("arange", lambda: alpha.arange(10**400)),
    ("arange", lambda: alpha.arange(float("inf"))),
    ("arange", lambda: alpha.arange(0, 5, 0)),
    ("arange", lambda: alpha.arange("5")),  # type: ignore[arg-type]
    ("uniform", lambda: random.uniform(3, -3e38, 3e38, "float32")),
    ("uniform", lambda: random.uniform(3, 0, 10**400)),
    ("normal", lambda: random.normal(3, 1e300, 1, "float32")),
    ("normal", lambda: random.normal(3, 0, float("inf"))),
]


@pytest.mark.parametrize(("name", "call"), WRONG)
def test_values_that_no_number_holds_are_refused(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentError, match=rf"^\[{name}\] expected"):
        call()


@pytest.mark.parametrize("call", [random.uniform, random.normal, random.permutation])
def test_arrays_that_the_host_has_no_room_for_are_refused(call: Callable[[int], object]) -> None:
    for count in (1 << 50, 1 << 62):
        with pytest.raises(OutOfMemoryError, match="host's memory"):
            call(count)


@pytest.mark.parametrize("name", ["sort", "cumsum", "matmul"])
def test_large_results_are_not_made_twice(name: str) -> None:
    engine = CPUEngine(memory="256MB")
    x = alpha.rand(1024, 1024, engine=engine)
    run: dict[str, Callable[[], object]] = {
        "sort": lambda: engine.sort(x, 1),
        "cumsum": lambda: engine.cumsum(x, 0),
        "matmul": lambda: engine.matmul(x.strided(0, (512, 512), (2048, 2)), x.strided(0, (512, 512), (2048, 2))),
    }
    run[name]()  # loads its kernel, which takes memory of the host's once
    tracemalloc.start()
    try:
        run[name]()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < {"sort": 7, "cumsum": 5, "matmul": 0.5}[name] * MB
