"""In-place functions: values, versions, their place in the graph, views, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import DtypeError, EngineError, GraphError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda x, y: x + y,
    "sub_": lambda x, y: x - y,
    "mul_": lambda x, y: x * y,
    "div_": lambda x, y: x / y,
    "copy_": lambda x, y: x * 0 + y,
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 1)], ids=str)
def test_values(engine: Engine, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> None:
    x, y = rng.uniform(1, 2, (2, 3)).astype(np.float32), rng.uniform(1, 2, shape).astype(np.float32)
    for other, value in ((alpha.tensor(y, engine=engine), y), (y, y), (2.5, 2.5), (3, 3)):
        t = alpha.tensor(x, engine=engine)
        memory = t.storage
        assert getattr(t, name)(other) is t
        assert t.storage is memory and t.version == 1 and t.dtype == alpha.float32
        assert_close(t, OPERATORS[name](x.astype(np.float64), value))


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_"])
@pytest.mark.parametrize("by_number", [False, True])
def test_complex_numbers_in_place(name: str, by_number: bool) -> None:
    """Values and gradients are those of the operator that makes a new tensor."""
    found = []
    for in_place in (True, False):
        x = alpha.tensor([1 + 2j, -3j, 2.5], requires_grad=True)
        y, other = x.clone(), 2 - 1j if by_number else x * x
        y = getattr(y, name)(other) if in_place else OPERATORS[name](y, other)
        y.abs().sum().backward()
        assert x.grad is not None
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "copy_"])
def test_repeated_calls(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """The first call prepares what later ones take: these check no less."""
    values, other = rng.uniform(1, 2, (4, 6)).astype(np.float32), rng.uniform(1, 2, (4, 6)).astype(np.float32)

    def tensor(x: Any) -> alpha.Tensor:
        return alpha.tensor(x, engine=engine)

    do, operator = getattr(alpha.Tensor, name), OPERATORS[name]
    for value, number in ((tensor(other), other), (2.5, 2.5), (tensor(other[0]), other[0])):
        x, expected = tensor(values), values.astype(np.float64)
        for count in range(1, 4):
            assert do(x, value) is x and x.version == count
            expected = operator(expected, number)
            assert_close(x, expected)
        saved = (tensor(values).requires_grad_() * 1) * x
        do(x, value)
        with pytest.raises(GraphError, match="overwrote"):
            saved.sum().backward()
        # Itself, a part of itself, another part of its memory, a part of what it is a part of.
        assert_close(do(x := tensor(values), x), operator(values.astype(np.float64), values))
        assert_close(do(x := tensor(values), x[1]), operator(values.astype(np.float64), values[1]))
        x = tensor(values)
        do(x[1:], x[:-1])
        assert_close(x, np.concatenate([values[:1], operator(values[1:].astype(np.float64), values[:-1])]))
        # In the graph, of other dtypes and on another engine.
        leaf = tensor(values).requires_grad_()
        with pytest.raises(GraphError, match="not a leaf"):
            do(leaf, value)
        a = tensor(values)
        assert do(a, leaf).requires_grad
        with pytest.raises(DtypeError):
            do(tensor([1, 2]), 2.5)
        with pytest.raises(ShapeError):
            do(tensor(values[:1]), tensor(other))
        with pytest.raises(ShapeError, match="expanded"):
            do(tensor(values[:1]).expand(4, 6), value)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """x is used before and after; both operands have gradients."""

    def function(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        a = x * 2
        before = a + 1
        getattr(a, name)(y)
        return a * a + before

    assert gradcheck_on(engine, function, rng.uniform(1, 2, (2, 3)), rng.uniform(1, 2, (2, 3)))
    assert gradcheck_on(engine, function, rng.uniform(1, 2, (2, 3)), rng.uniform(1, 2, (3,)))
    assert gradcheck_on(engine, function, rng.uniform(1, 2, (3, 2)).T, rng.uniform(1, 2, (1, 1)))
    assert gradcheck_on(
        engine, lambda y: function(alpha.ones(2, 3, dtype=alpha.float64, engine=engine), y), rng.uniform(1, 2, (2, 3))
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_operand_is_the_tensor_itself_or_part_of_it(engine: Engine, rng: np.random.Generator, name: str) -> None:
    def with_itself(x: alpha.Tensor) -> alpha.Tensor:
        a = x * 2
        return getattr(a, name)(a) * 1

    def with_its_row(x: alpha.Tensor) -> alpha.Tensor:
        a = x * 2
        return getattr(a, name)(a[0]) * 1

    x = rng.uniform(1, 2, (2, 3))
    assert gradcheck_on(engine, with_itself, x)
    assert gradcheck_on(engine, with_its_row, x)
    t = alpha.tensor(x, engine=engine)
    getattr(t, name)(t[0])
    assert_close(t, OPERATORS[name](x, x[0]))


def test_statements(engine: Engine) -> None:
    x = alpha.ones(2, engine=engine)
    same = x
    x += 1
    x *= 3
    x -= 2
    x /= 4
    assert x is same and x.tolist() == [1, 1] and x.version == 4
    assert x.fill_(7).tolist() == [7, 7] and x.zero_().tolist() == [0, 0]


def test_a_leaf_in_the_graph_is_refused(engine: Engine) -> None:
    x = alpha.ones(2, requires_grad=True, engine=engine)
    for write in (lambda: x.add_(1), lambda: x[0].mul_(2), lambda: x.reshape(2, 1).copy_(0)):
        with pytest.raises(GraphError, match=r"expected a tensor that is not a leaf of the graph"):
            write()
    assert x.tolist() == [1, 1]
    with alpha.no_grad():
        x += 1
        x[0] *= 3
    assert x.tolist() == [6, 2] and x.requires_grad and x.is_leaf


def test_a_constant_enters_the_graph(engine: Engine) -> None:
    x = alpha.tensor([2.0, 3.0], requires_grad=True, engine=engine)
    total = alpha.zeros(2, engine=engine)
    total += x
    total += x * x
    assert total.requires_grad
    total.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5, 7]


# -- views -------------------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda y, v: y[1].mul_(v),
    "augmented row": lambda y, v: y.__setitem__(0, y[0].__iadd__(v)),
    "transposed": lambda y, v: y.T[1:].add_(v[0]),
    "reshaped": lambda y, v: y.reshape(-1).mul_(3).add_(v[1]),
    "column": lambda y, v: y[:, 1].copy_(v[:2]),
    "view of a view": lambda y, v: y[:, 1:][0].mul_(v[1:]),
    "piece": lambda y, v: y.split(1, 1)[2].mul_(v[2]),
    "step": lambda y, v: y[:, ::2].sub_(v[:2]),
    "twice": lambda y, v: (y[0].mul_(v), y[:, 0].mul_(v[:2]), y.mul_(2)),
    "assignment": lambda y, v: y[1].__setitem__(slice(0, 2), v[1:]),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_view_reaches_the_base(engine: Engine, rng: np.random.Generator, name: str) -> None:
    def function(x: alpha.Tensor, v: alpha.Tensor) -> alpha.Tensor:
        y = x * 1
        before = y + 0
        WRITES[name](y, v)
        return y * y + before

    x, v = rng.uniform(1, 2, (2, 3)), rng.uniform(1, 2, 3)
    assert gradcheck_on(engine, function, x, v)
    assert gradcheck_on(engine, function, np.asfortranarray(x), v)
    # The same with a base that is not in the graph before the write.
    assert gradcheck_on(engine, lambda u: function(alpha.tensor(x, engine=engine), u), v)


def test_views_follow_a_write_to_the_base(engine: Engine, rng: np.random.Generator) -> None:
    def function(x: alpha.Tensor, v: alpha.Tensor) -> Any:
        y = x * 1
        row, column, flat = y[0], y.T[1], y.reshape(-1)
        y.mul_(v)
        row.add_(v)
        return column * column, flat * row.sum(), y * 2

    assert gradcheck_on(engine, function, rng.uniform(1, 2, (2, 3)), rng.uniform(1, 2, 3))


def test_a_view_itself_can_be_the_root_after_a_write(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True, engine=engine)
    y = x * 1
    first = y[0]
    y.mul_(3)
    first.backward()
    assert x.grad is not None and x.grad.tolist() == [3, 0]


def test_rows_filled_one_by_one(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.standard_normal((3, 4)).astype(np.float32), requires_grad=True, engine=engine)
    out = alpha.zeros(3, 4, engine=engine)
    for i in range(3):
        out[i] += x[i] * (i + 1)
    (out * out).sum().backward()
    assert_close(x.grad, 2 * x.detach().numpy() * np.array([[1], [4], [9]], np.float32))


def test_a_view_made_without_the_graph(engine: Engine) -> None:
    x = alpha.ones(2, requires_grad=True, engine=engine)
    y = x * 1
    with alpha.no_grad():
        view = y[0]
    with pytest.raises(GraphError, match=r"\[add_\] expected a view made within the graph"):
        view.add_(1)
    with alpha.no_grad():
        view.add_(1)
    assert y.tolist() == [2, 1] and not view.requires_grad
    assert not (view * 2).requires_grad


def test_parameters_changed_under_a_view(engine: Engine) -> None:
    """An optimizer's step between two uses of a view of a parameter: the view stays the parameter's."""
    w = alpha.tensor([1.0, 2.0], requires_grad=True, engine=engine)
    view = w.reshape(2, 1)
    with alpha.no_grad():
        w.mul_(2)
    (view * view).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4, 8]


def test_hooks_and_retained_gradient_after_a_write(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True, engine=engine)
    y = x * 1
    y.retain_grad()
    y.mul_(3)
    (y * 2).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [2, 2]
    assert x.grad is not None and x.grad.tolist() == [6, 6]


# -- refusals ----------------------------------------------------------------------------------------------------


def test_dtypes(engine: Engine) -> None:
    whole = alpha.ones(2, dtype=alpha.int64, engine=engine)
    for name in ("add_", "sub_", "mul_"):
        with pytest.raises(DtypeError, match=rf"\[{name}\] expected a value that int64 can hold, got float32"):
            getattr(whole, name)(0.5)
        with pytest.raises(DtypeError):
            getattr(whole, name)(alpha.ones(2, engine=engine))
    with pytest.raises(DtypeError, match=r"\[div_\] expected float32 or float64"):
        whole.div_(2)
    with pytest.raises(DtypeError, match=r"\[copy_\]"):
        whole.fill_(0.5)
    truth = alpha.ones(2, dtype=bool, engine=engine)
    with pytest.raises(DtypeError, match=r"\[add_\] expected a value that bool can hold, got int64"):
        truth.add_(1)
    with pytest.raises(DtypeError, match=r"\[sub_\] expected numbers, got bool"):
        truth.sub_(truth)
    single = alpha.ones(2, engine=engine)
    assert single.add_(alpha.ones(2, dtype=alpha.float64, engine=engine)).dtype == alpha.float32
    assert whole.copy_(alpha.tensor([1.7, 2.2], engine=engine)).tolist() == [1, 2]  # copy_ converts
    assert (whole + 1).dtype == alpha.int64 and whole.add_(True).tolist() == [2, 3]


def test_shapes(engine: Engine) -> None:
    x = alpha.ones(3, engine=engine)
    for name in OPERATORS:
        with pytest.raises(ShapeError, match=rf"\[{name}\] expected a value that broadcasts to \(3,\), got \(2, 3\)"):
            getattr(x, name)(alpha.ones(2, 3, engine=engine))
        with pytest.raises(ShapeError, match=rf"\[{name}\]"):
            getattr(x[:1], name)(x)
        with pytest.raises(ShapeError, match=rf"\[{name}\] expected memory of its own for every element"):
            getattr(x.expand(2, 3), name)(1)
    assert x.version == 0


def test_engines(engine: Engine) -> None:
    other = type(alpha.engine("cpu"))("64MB")
    x, y = alpha.ones(2, engine=engine), alpha.zeros(2, engine=other)
    with pytest.raises(EngineError, match=r"\[add_\]"):
        x.add_(y)
    assert x.copy_(y).tolist() == [0, 0]
