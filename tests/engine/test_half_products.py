"""Products of matrices of 16 bits: what float64 gives, rounded once, wherever an engine reads halves.

Products of numbers of 16 bits are exact in float32 but for denormals; a sum of ``depth`` of them is off by at most
depth * 2 ** -24 of the sum of their sizes, and the result by half a unit in its last place. Bounds are twice that: the
instruction that multiplies bfloat16 rounds each product's sum twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import Engine
from alpha.composed import stored
from alpha.cpu import explain_product, isa, pairs, products
from alpha.cpu.gemm import planner
from alpha.cpu.gemm.explanations import CONVERTED, READ
from alpha.launches import LINEAR, MATMUL
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]
ULP = {alpha.bfloat16: 2.0**-8, alpha.float16: 2.0**-11}
SHAPES = [
    ((64, 96), (96, 48)), ((33, 7), (7, 129)), ((2, 1), (1, 3)), ((5, 65), (65, 1)), ((1, 40), (40, 30)),
    ((3, 17, 31), (3, 31, 9)), ((4, 1, 20, 18), (3, 18, 22)), ((6, 20, 32), (32, 16)), ((128, 300), (300, 10)),
    ((0, 4), (4, 3)), ((3, 0), (0, 2)),
]  # fmt: skip


def near(found: Any, x: Array, y: Array, dtype: Any, bias: Any = 0.0) -> None:
    """Holds a product to the bound."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    exact, sizes = x @ y + bias, np.abs(x) @ np.abs(y) + np.abs(bias)
    allowed = ULP[dtype] * np.abs(exact) + 2 * (x.shape[-1] + 1) * 2.0**-24 * sizes
    values = np.asarray(found.detach().to("cpu")).astype(np.float64)
    assert values.shape == exact.shape and found.dtype == dtype
    apart = 2.0**-24 if dtype == alpha.float16 else 0.0  # its denormals are that far apart
    assert np.all(np.abs(values - exact) <= allowed + apart)


def drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def lying(x: Array, by_columns: bool, engine: Engine) -> alpha.Tensor:
    """Matrices whose columns are dense in memory, or whose rows are."""
    if by_columns:
        return alpha.tensor(np.swapaxes(x, -1, -2).copy(), engine=engine).transpose(-1, -2)
    return alpha.tensor(x, engine=engine)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize(("x_shape", "y_shape"), SHAPES)
def test_products_round_once(engine: Engine, rng: np.random.Generator, dtype: Any, x_shape: Any, y_shape: Any) -> None:
    """Matrices that lie by rows and by columns, in any order of the two."""
    x, y = drawn(rng, x_shape, dtype), drawn(rng, y_shape, dtype)
    for x_columns in (False, True):
        for y_columns in (False, True):
            near(lying(x, x_columns, engine) @ lying(y, y_columns, engine), x, y, dtype)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_parts_of_a_matrix(engine: Engine, rng: np.random.Generator, dtype: Any, first: int) -> None:
    """Rows that begin at an odd number, or lie an odd number apart, are no words as they lie."""
    for columns in (60, 61):
        x, y = drawn(rng, (40, columns), dtype), drawn(rng, (50, columns), dtype)
        a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
        end = first + 48
        near(a[:, first:end] @ b[:, first:end].T, x[:, first:end], y[:, first:end].T, dtype)
        near(a[:, first:end].T @ b[:40, first:end], x[:, first:end].T, y[:40, first:end], dtype)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(64, 96, 48), (33, 65, 17), (2, 5, 3), (1, 40, 7), (300, 128, 10)]
)
def test_linear_and_its_gradients(
    engine: Engine, rng: np.random.Generator, dtype: Any, rows: int, depth: int, columns: int
) -> None:
    x, w, b = (drawn(rng, shape, dtype) for shape in ((rows, depth), (columns, depth), (columns,)))
    dy = drawn(rng, (rows, columns), dtype)
    given_ = [alpha.tensor(one, engine=engine).requires_grad_() for one in (x, w, b)]
    y = F.linear(*given_)
    near(y, x, w.T, dtype, b.astype(np.float64))
    y.backward(alpha.tensor(dy, engine=engine))
    near(given_[0].grad, dy, w, dtype)
    near(given_[1].grad, dy.T, x, dtype)
    near(given_[2].grad[None], np.ones((1, rows), dtype), dy, dtype)


@pytest.mark.parametrize("grad", [True, False])
def test_an_activation_behind_it(engine: Engine, rng: np.random.Generator, grad: bool) -> None:
    """It is given the sums before they are rounded; what backward reads is kept."""
    x, w, b = (drawn(rng, shape, alpha.bfloat16) for shape in ((64, 96), (80, 96), (80,)))
    given_ = [alpha.tensor(one, engine=engine) for one in (x, w, b)]
    exact = [alpha.tensor(one.astype(np.float64), engine=engine) for one in (x, w, b)]
    with alpha.set_grad_enabled(grad):
        for one in (*given_, *exact):
            one.requires_grad_(grad)
        y, wanted = F.linear(*given_, activation=F.gelu), F.linear(*exact, activation=F.gelu)
    assert y.dtype == alpha.bfloat16
    np.testing.assert_allclose(
        np.asarray(y.detach().to("cpu")).astype(float), np.asarray(wanted.detach().to("cpu")), 2**-8, 1e-4
    )
    if grad:
        y.sum().backward()
        wanted.sum().backward()
        for one, other in zip(given_, exact, strict=True):
            found, right = (np.asarray(t.grad.to("cpu")).astype(float) for t in (one, other))  # type: ignore[union-attr]
            size = np.sqrt(np.mean(right**2))
            np.testing.assert_allclose(found, right, 2**-7, 2**-7 * size)  # gelu's gradients are rounded before


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3), batch=st.sampled_from([(), (2,), (3, 2)]), swaps=st.integers(0, 3),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_drawn_products(sizes: tuple[int, int, int], batch: tuple[int, ...], swaps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, depth, columns = sizes
    x, y = drawn(rng, (*batch, rows, depth), alpha.bfloat16), drawn(rng, (*batch, depth, columns), alpha.bfloat16)
    a, b = lying(x, swaps & 1 != 0, alpha.engine("cpu")), lying(y, swaps & 2 != 0, alpha.engine("cpu"))
    near(a @ b, x, y, alpha.bfloat16)
    with planner.use("tiles"):
        near(a @ b, x, y, alpha.bfloat16)


def test_bits_do_not_depend_on_threads(cpu: Any, rng: np.random.Generator) -> None:
    x, w, b = (alpha.tensor(drawn(rng, shape, alpha.bfloat16)) for shape in ((200, 310), (170, 310), (170,)))
    found = []
    for threads in (1, 2, 3):
        cpu.configure(threads=threads)
        found.append((F.linear(x, w, b, activation=F.gelu).numpy(), (x.T @ x).numpy()))
    for y, product in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(product, found[0][1])


@pytest.mark.skipif(not isa.DOTS, reason="the processor converts bfloat16 to float32 to multiply it")
@pytest.mark.parametrize("sizes", [(256, 512, 384), (32, 784, 256), (1, 64, 48), (128, 512, 10)])
def test_matrices_are_read_as_they_lie(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, sizes: tuple[int, int, int]
) -> None:
    """In whatever order they lie, without a pass over memory that makes words, or a conversion to float32 and back."""
    rows, depth, columns = sizes
    x, y = drawn(rng, (rows, depth), alpha.bfloat16), drawn(rng, (depth, columns), alpha.bfloat16)
    bias = drawn(rng, (columns,), alpha.bfloat16)

    def passed(*args: Any) -> None:
        pytest.fail("a pass over memory makes words, or converts numbers")

    for module, name in (
        *((pairs, "in_rows"), (pairs, "of_rows"), (stored, "_converted")),
        *((pairs, "cast"), (products, "cast")),
    ):
        monkeypatch.setattr(module, name, passed)
    engine = alpha.engine("cpu")
    for x_columns in (False, True):
        for y_columns in (False, True):
            near(lying(x, x_columns, engine) @ lying(y, y_columns, engine), x, y, alpha.bfloat16)
    found = F.linear(alpha.tensor(x), lying(y, True, engine).T, alpha.tensor(bias))
    near(found, x, y, alpha.bfloat16, bias.astype(np.float64))


@pytest.mark.parametrize("sizes", [(32, 784, 256), (8, 64, 10), (1, 40, 30), (17, 96, 33), (128, 512, 10)])
@pytest.mark.parametrize("threads", [1, 2])
def test_launches_have_the_bits_of_the_first_call(
    cpu: Any, rng: np.random.Generator, sizes: tuple[int, int, int], threads: int
) -> None:
    """What a launch learned of the first call it does for others' numbers, also where these begin between words."""
    rows, depth, columns = sizes
    cpu.configure(threads=threads)
    for launches in (MATMUL, LINEAR):
        launches.forget()
    held = rng.standard_normal((4, rows * depth + 1)).astype(alpha.bfloat16)
    w, b = drawn(rng, (columns, depth), alpha.bfloat16), drawn(rng, (columns,), alpha.bfloat16)
    weights, bias = alpha.tensor(w), alpha.tensor(b)
    for k, numbers in enumerate(alpha.tensor(held)):
        x = numbers[k % 2 :][: rows * depth].reshape(rows, depth)
        for transposed, calls in ((False, (weights.T, None)), (True, (weights, bias)), (True, (weights, None))):
            call = F.linear if transposed else alpha.matmul
            arguments = [one for one in calls if one is not None]
            found = call(x, *arguments).numpy()
            for launches in (MATMUL, LINEAR):
                launches.forget()
            np.testing.assert_array_equal(found, call(x, *arguments).numpy())
            np.testing.assert_array_equal(found, call(x, *arguments).numpy())
            near(alpha.tensor(found), x.numpy(), w.T, alpha.bfloat16, 0 if calls[1] is None else b.astype(float))


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize(("rows", "depth"), [(700, 512), (331, 1030), (513, 515), (1, 300_000), (40, 30)])
def test_products_with_a_vector(engine: Engine, rng: np.random.Generator, dtype: Any, rows: int, depth: int) -> None:
    """Matrices by rows and by columns, vectors with and without gaps, and a bias."""
    w, b = drawn(rng, (rows, depth), dtype), drawn(rng, (rows,), dtype)
    apart = alpha.tensor(drawn(rng, (depth, 3), dtype), engine=engine)[:, 1]
    x = np.asarray(apart.to("cpu"))
    bias, vector = alpha.tensor(b, engine=engine), apart.contiguous()
    for by_columns in (False, True):
        a = lying(w, by_columns, engine)
        for given_ in (apart, vector):
            near((a @ given_)[None], x[None], w.T, dtype)
            near((given_ @ a.T)[None], x[None], w.T, dtype)
            near(given_[None] @ a.T, x[None], w.T, dtype)
            near(a @ given_[:, None], w, x[:, None], dtype)
            near(F.linear(given_[None], a, bias), x[None], w.T, dtype, b.astype(np.float64))


def test_bits_of_a_vector_do_not_depend_on_threads(cpu: Any, rng: np.random.Generator) -> None:
    w, x = alpha.tensor(drawn(rng, (1031, 514), alpha.bfloat16)), alpha.tensor(drawn(rng, (514,), alpha.bfloat16))
    found = []
    for threads in (1, 2, 3):
        cpu.configure(threads=threads)
        found.append((w @ x).numpy())
    assert all((one == found[0]).all() for one in found)


def test_explain_says_how_16_bits_are_multiplied(cpu: Any) -> None:
    told = explain_product(cpu, (256, 512), (512, 256), dtype=alpha.bfloat16, measure=True)
    assert (READ if isa.DOTS else CONVERTED) in told.choice and told.measured_ms is not None
    other = explain_product(cpu, (256, 512), (512, 256), dtype=alpha.float16)
    assert CONVERTED in other.choice and READ not in other.choice
    assert told.useful == other.useful == 2 * 256 * 512 * 256
    if isa.DOTS:
        names = {rows: explain_product(cpu, (rows, 512), (512, 700), dtype=alpha.bfloat16).name for rows in (1, 2)}
        assert names == {1: "vectors", 2: "tiles"}
        with planner.use("tiles"):
            assert explain_product(cpu, (1, 512), (512, 700), dtype=alpha.bfloat16).name == "tiles"


def test_a_step_in_a_graph_has_the_same_bits(rng: np.random.Generator) -> None:
    net = alpha.nn.Sequential(alpha.nn.Linear(60, 80), alpha.nn.GELU(), alpha.nn.Linear(80, 10))
    x = alpha.tensor(rng.standard_normal((48, 60)).astype(np.float32))

    def step(x: alpha.Tensor) -> alpha.Tensor:
        net.zero_grad()
        with alpha.autocast("bfloat16"):
            y = net(x)
        loss = y.float().square().mean()
        loss.backward()
        return loss

    expected = step(x).item(), [p.grad.numpy().copy() for p in net.parameters()]  # type: ignore[union-attr]
    captured = alpha.graph(step)
    for _ in range(4):
        loss = captured(x)
    assert loss.item() == expected[0]
    for p, grad in zip(net.parameters(), expected[1], strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), grad)  # type: ignore[union-attr]


def test_one_factor_of_16_bits(engine: Engine, rng: np.random.Generator) -> None:
    """An engine's own operations convert whichever factor is stored: no kernel reads its memory as float32."""
    x, y = rng.standard_normal((40, 64)).astype(np.float32), drawn(rng, (64, 48), alpha.bfloat16)
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    near(engine.matmul(a, b), x, y, alpha.bfloat16)
    near(engine.matmul(b.T, a.T), y.T, x.T, alpha.bfloat16)
    near(engine.linear_input_grad(a, b), x, y, alpha.bfloat16)
    near(engine.linear(a, b.T, None)[0], x, y, alpha.bfloat16)


def test_memory_of_others_at_an_odd_place(rng: np.random.Generator) -> None:
    """Another library's numbers of 2 bytes may begin between two words."""
    held = drawn(rng, (64 * 96 + 1,), alpha.bfloat16)
    x, y = held[1:].reshape(64, 96), drawn(rng, (96, 48), alpha.bfloat16)
    near(alpha.from_numpy(x) @ alpha.tensor(y), x, y, alpha.bfloat16)
