"""How the CPU engine computes products of matrices: what is told is what runs, and each algorithm is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import explain_product, product_planner
from alpha.cpu.engine import CPUEngine
from alpha.cpu.figures import Figures
from alpha.cpu.gemm import tiles
from alpha.cpu.gemm.algorithm import Algorithm, Call
from alpha.cpu.gemm.algorithms import ALGORITHMS
from alpha.cpu.gemm.blas import MOST_MACS
from alpha.cpu.gemm.explanations import explain_problem
from alpha.cpu.gemm.kernel import Cut
from alpha.cpu.gemm.problem import Product, product, product_of
from alpha.cpu.isa import ISA, L1_SET_STRIDE
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.launches import LINEAR, MATMUL, PRODUCT_ALGORITHM
from alpha.tensor import Tensor
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]


@contextmanager
def taken() -> Iterator[list[str]]:
    """The names of the algorithms that run within it, in order."""
    names: list[str] = []
    MATMUL.forget()
    with pytest.MonkeyPatch.context() as patched:
        for algorithm in ALGORITHMS:

            def run(engine: CPUEngine, problem: Product, call: Call, algorithm: Algorithm = algorithm) -> Tensor:
                names.append(algorithm.name)
                return type(algorithm).run(algorithm, engine, problem, call)

            patched.setattr(algorithm, "run", run)
        yield names


def layouts(engine: CPUEngine, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Random numbers as dense matrices, transposed, with gaps, or in reversed order of axes."""
    kind = rng.integers(4)
    if kind == 0:
        return engine.from_numpy(rng.standard_normal(shape).astype(dtype))
    if kind == 1:
        numbers = rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(dtype)
        x = engine.from_numpy(numbers)
        return x.strided(0, shape, (*x.strides[:-2], x.strides[-1], x.strides[-2]))
    if kind == 2:
        x = engine.from_numpy(rng.standard_normal((*shape[:-1], shape[-1] + 3)).astype(dtype))
        return x.strided(1, shape, x.strides)
    x = engine.from_numpy(rng.standard_normal((*shape[:-1], 2 * shape[-1])).astype(dtype))
    return x.strided(0, shape, (*x.strides[:-1], 2))


def random_shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands: rows, depth and columns of any size, mostly small; sometimes batches that broadcast."""
    rows, depth, columns = np.exp(rng.uniform(0, np.log(rng.choice([12, 90, 260])), 3)).astype(int).tolist()
    one, other = [((), ()), ((), ()), ((3,), (3,)), ((2, 1), (4,)), ((), (3,)), ((2, 3), ())][rng.integers(6)]
    return (*one, rows, depth), (*other, depth, columns)


def check(x: Tensor, y: Tensor, result: Tensor) -> None:
    """Each sum of K products is within K + 1 roundings of the sum of their magnitudes."""
    a, b = np.asarray(x), np.asarray(y)
    exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    bound = (a.shape[-1] + 1) * np.finfo(a.dtype).eps * np.matmul(np.abs(a), np.abs(b))
    assert result.shape == exact.shape and result.dtype == a.dtype
    assert (np.abs(np.asarray(result) - exact) <= bound).all()


@pytest.mark.slow
def test_what_is_told_is_what_runs() -> None:
    """600 random products: the algorithm that is told runs, and the result is right."""
    engine, rng, seen = CPUEngine(threads=2), np.random.default_rng(5), set()
    for _ in range(600):
        dtype = np.float64 if rng.random() < 0.3 else np.float32
        x, y = (layouts(engine, rng, shape, dtype) for shape in random_shapes(rng))
        with taken() as names:
            result = engine.matmul(x, y)
        left, right = engine._dense_one_way(x), engine._dense_one_way(y)
        assert names == [explain_problem(engine, product_of(left, right)).name]
        seen.update(names)
        check(x, y, result)
    assert {"blas", "tiles"} <= seen  # small products with a vector are blocks, too


@pytest.mark.parametrize("name", product_planner.names())
def test_each_algorithm_is_right(name: str) -> None:
    engine, rng, served = CPUEngine(threads=2), np.random.default_rng(6), 0
    while served < 60:
        dtype = np.float64 if rng.random() < 0.3 else np.float32
        x, y = (layouts(engine, rng, shape, dtype) for shape in random_shapes(rng))
        with product_planner.use(name), taken() as names:
            result = engine.matmul(x, y)
        served += names == [name]
        check(x, y, result)


def test_what_users_are_told() -> None:
    engine = CPUEngine(threads=2)
    told = explain_product(engine, (256, 300), (300, 500), measure=True)
    assert told.name == "tiles" and told.useful == told.nominal == 2 * 256 * 300 * 500
    assert told.measured_ms is not None and told.measured_ms > 0 and told.predicted_ms > 0
    assert "256 x 300" in str(told) and "2 threads" in told.choice
    side = 48 if ISA.bytes == 64 else 20  # whose last panel is half empty
    assert explain_product(engine, (64, side, side), (64, side, side)).name == "blas"
    assert explain_product(engine, (400, 1000), (1000, 1)).name == "vectors"
    with product_planner.use("pixels"):
        assert explain_product(engine, (8, 80), (80, 80), y_is_transposed=True).name == "pixels"
    assert explain_product(engine, (5, 1, 64, 300), (6, 300, 64), dtype="float64").problem.startswith("30 products")


def test_what_is_wrong_is_said() -> None:
    engine = CPUEngine()
    with pytest.raises(ShapeError, match=r"\[explain_product\] expected shapes .* got \(2, 3\) and \(4, 5\)"):
        explain_product(engine, (2, 3), (4, 5))
    with pytest.raises(ShapeError, match=r"\[explain_product\]"):
        explain_product(engine, (2, 0), (0, 5))
    with pytest.raises(ShapeError, match=r"\[explain_product\]"):
        explain_product(engine, (2, 3, 3), (3, 3, 3))
    with pytest.raises(DtypeError, match=r"expected float32 or float64, bfloat16 or float16, got int64"):
        explain_product(engine, (2, 3), (3, 5), dtype=np.int64)
    with pytest.raises(ArgumentError, match=r"expected one of vectors, blas, tiles, pixels, got 'images'"):
        product_planner.use("images")


class Doubled(Algorithm):
    """An algorithm from outside."""

    name = "doubled"
    title = "a product twice as large"

    def cycles(self, problem: Product, figures: Figures) -> float:
        return 0.0 if problem.rows == 41 else 1e30

    def describe(self, problem: Product, threads: int) -> str:
        return "wrongly"

    def run(self, engine: Any, problem: Product, call: Call) -> Tensor:
        with product_planner.use("tiles"):
            found: Tensor = product_planner.choose(problem).run(engine, problem, call)
        return engine.elementwise("add", found, found)  # type: ignore[no-any-return]


def test_an_algorithm_from_outside() -> None:
    """It is taken where it is the cheapest, and told of; without it all is as before."""
    engine, algorithm = CPUEngine(), Doubled()
    x, y = (engine.from_numpy(np.ones(shape, np.float32)) for shape in ((41, 20), (20, 30)))
    product_planner.register(algorithm)
    try:
        assert (np.asarray(engine.matmul(x, y)) == 40).all()
        assert explain_product(engine, (41, 20), (20, 30)).choice == "wrongly"
        assert explain_product(engine, (40, 20), (20, 30)).name != "doubled"
    finally:
        product_planner.unregister(algorithm)
    assert (np.asarray(engine.matmul(x, y)) == 20).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_launches_give_the_same_bits(dtype: Any) -> None:
    """What a launch computes that has learnt a product of this layout, for one thread and several."""
    rng, shapes = np.random.default_rng(9), [((64, 64), (64, 64)), ((3, 5), (5, 2)), ((7, 20, 33), (7, 33, 10))]
    for first, second in [*shapes, ((2, 3, 9, 8), (3, 8, 40)), ((300, 5), (5, 300))]:
        results = []
        for threads in (1, 2):
            engine = CPUEngine(threads=threads)
            x, y = (engine.from_numpy(rng.standard_normal(shape).astype(dtype)) for shape in (first, second))
            MATMUL.forget()
            wanted = engine.matmul(x, y)
            launched = MATMUL.launch(x, y, None)
            check(x, y, wanted)
            if launched is not None:
                results.append(threads)
                assert np.asarray(launched).tobytes() == np.asarray(wanted).tobytes()
            with product_planner.use("blas"):
                assert MATMUL.launch(x, y, PRODUCT_ALGORITHM.get()) is None
        assert (1 in results) == (len(first) < 4)  # matrices that are not equally far apart need a table


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_linear_layer_is_launched(has_bias: bool) -> None:
    engine, rng = CPUEngine(threads=2), np.random.default_rng(10)
    x, w, b = (engine.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((32, 64), (48, 64), (48,)))
    bias = b if has_bias else None
    LINEAR.forget()
    wanted = alpha.linear(x, w, bias)
    launched = LINEAR.launch_outside(x, w, bias, None, True)
    assert launched is not None and np.asarray(launched).tobytes() == np.asarray(wanted).tobytes()
    exact = x.numpy().astype(np.float64) @ w.numpy().T + (b.numpy() if has_bias else 0)
    np.testing.assert_allclose(np.asarray(launched), exact, rtol=1e-5, atol=1e-4)
    assert LINEAR.launch_outside(x.detach().requires_grad_(), w, bias, None, True) is None


# -- tiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(700, 300, 130), (50, 1000, 600), (33, 40, 7), (5, 3, 2)])
def test_bits_do_not_depend_on_the_cut(
    dtype: Any, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, depth, columns = shape
    rng, found = np.random.default_rng(7), set()
    x, y = (rng.standard_normal(s).astype(dtype) for s in ((rows, depth), (depth, columns)))
    for threads, block in ((1, 512 << 10), (2, 512 << 10), (5, 512 << 10), (2, 16 << 10)):
        engine = CPUEngine(threads=threads)
        monkeypatch.setattr(tiles, "BLOCK_BYTES", block)
        tiles.plan.cache_clear()
        for left in (x, np.asfortranarray(x)):
            for right in (y, np.asfortranarray(y)):
                with product_planner.use("tiles"):
                    found.add(np.asarray(engine.matmul(engine.from_numpy(left), engine.from_numpy(right))).tobytes())
    tiles.plan.cache_clear()
    assert len(found) == 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(100, 300, 257), (9, 1000, 128), (13, 17, 300), (40, 1024, 150)])
def test_rows_that_share_a_set_of_the_cache_are_copied(dtype: Any, shape: tuple[int, int, int]) -> None:
    """The copy changes no bit, and takes nothing from behind a row."""
    rows, depth, columns = shape
    rng, engine = np.random.default_rng(9), CPUEngine(threads=1)
    step = -(-depth * np.dtype(dtype).itemsize // L1_SET_STRIDE) * L1_SET_STRIDE // np.dtype(dtype).itemsize
    apart = np.full((rows, step + 8), np.nan, dtype)
    apart[:, :depth] = rng.standard_normal((rows, depth))
    colliding = engine.from_numpy(np.ascontiguousarray(apart[:, :step]))
    y = engine.from_numpy(rng.standard_normal((depth, columns)).astype(dtype))
    found = []
    for x in (engine.from_numpy(apart), colliding):
        left = x.strided(0, (rows, depth), x.strides)
        assert product_of(left, y).x_rows_collide == (x is colliding)
        with product_planner.use("tiles"):
            found.append(np.asarray(engine.matmul(left, y)))
        told = Cut(*np.frombuffer(tiles.plan(product_of(left, y), 1).told, np.int64))
        assert (told.x_copy_row > 0) == (x is colliding)
    assert found[0].tobytes() == found[1].tobytes() and not np.isnan(found[0]).any()


def test_tasks_cover_the_result_and_threads_have_some() -> None:
    rng = np.random.default_rng(8)
    for rows, depth, columns in np.exp(rng.uniform(np.log(2), np.log(4000), (300, 3))).astype(int).tolist():
        for threads in (1, 2, 16):
            problem = product((rows, depth, columns), 1, 4, bool(rng.integers(2)), bool(rng.integers(2)))
            plan = tiles.plan(problem, threads)
            assert plan.tasks == plan.row_tasks * plan.column_tasks
            assert (plan.row_tasks - 1) * plan.task_rows < rows <= plan.row_tasks * plan.task_rows
            assert (plan.column_tasks - 1) * plan.task_columns < columns <= plan.column_tasks * plan.task_columns
            assert plan.task_rows % plan.kind.tile == 0 and plan.task_columns % plan.kind.panel == 0
            if min(rows, columns) >= 64 and problem.macs >= 1 << 24:
                assert plan.tasks >= min(threads, 4)


@pytest.mark.parametrize("name", ["tiles", "pixels"])
def test_infinities_and_nan_are_values(name: str) -> None:
    """They come through to their rows and columns, and to no other."""
    engine = CPUEngine()
    x, y = np.ones((30, 50), np.float32), np.ones((50, 40), np.float32)
    x[3, 7], x[29, 49], y[0, 39] = np.nan, np.inf, -np.inf
    for left in (x, np.asfortranarray(x)):
        for right in (y, np.asfortranarray(y)):
            with product_planner.use(name), np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(
                    np.asarray(engine.matmul(engine.from_numpy(left), engine.from_numpy(right))), x @ y
                )


def test_blas_multiplies_what_it_gives_to_one_thread() -> None:
    """Above its limits the number of its threads changes the bits, so it does not serve."""
    blas = product_planner.named("blas", "product")
    assert blas is not None
    assert blas.serves(product((64, 64, 64), 5, 4)) and not blas.serves(product((65, 64, 64), 5, 4))
    assert MOST_MACS == 64**3
    assert blas.serves(product((1, 64, 64), 5, 4)) and not blas.serves(product((1, 200, 64), 5, 4))
    assert not blas.serves(product((1, 64, 64), 1, 4))  # a matrix and a vector
