"""Draws of further distributions: their moments, dtypes and bounds, where gradients end, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, GraphError, ShapeError
from tests.engine.checks import sized

COUNT = 20_000


def _near(values: Any, mean: float, deviation: float) -> None:
    """The mean of independent numbers lies within five of its standard deviations."""
    array = np.asarray(values, np.float64)
    assert abs(array.mean() - mean) < 5 * deviation / math.sqrt(array.size)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats(engine: Engine, dtype: str) -> None:
    alpha.manual_seed(3)
    if dtype in ("float16", "bfloat16") and engine.name != "cpu":
        pytest.skip("dtypes that are stored alone are the CPU's and NumPy's")
    x = alpha.empty(sized(engine, COUNT, 2000), dtype=dtype, engine=engine)

    def drawn() -> Any:
        return np.asarray(x.double())

    assert x.exponential_(2.0) is x and x.dtype == alpha.empty(0, dtype=dtype).dtype
    assert (drawn() >= 0).all() and (dtype == "float16" or (drawn() > 0).all())
    _near(drawn(), 0.5, 0.5)
    x.cauchy_(1.0, 2.0)
    _near(drawn() < 1.0, 0.5, 0.5)  # the median
    _near(np.abs(drawn() - 1.0) < 2.0, 0.5, 0.5)  # the quartiles lie a scale apart from it
    x.log_normal_(0.5, 0.25)
    _near(np.log(drawn()), 0.5, 0.25)
    x.geometric_(0.25)
    _near(drawn(), 4.0, math.sqrt(12))
    assert (drawn() == np.floor(drawn())).all() and drawn().min() == 1


def test_probabilities(engine: Engine) -> None:
    alpha.manual_seed(3)
    for dtype in ("float32", "int64", "uint8", "bool"):
        x = alpha.zeros(sized(engine, COUNT, 2000), dtype=dtype, engine=engine)
        _near(x.bernoulli_(0.25), 0.25, 0.44)
    p = alpha.tensor([0.0, 0.5, 1.0], engine=engine)
    means = np.asarray(alpha.zeros(400, 3, engine=engine).bernoulli_(p)).mean(0)
    assert means[0] == 0 and means[2] == 1 and 0.35 < means[1] < 0.65
    x = alpha.zeros(3, engine=engine)
    for wrong in (1.5, -0.1, alpha.tensor([2.0, 0.0, 0.0], engine=engine), float("nan")):
        with pytest.raises(ArgumentError, match=r"\[bernoulli_\] expected"):
            x.bernoulli_(wrong)
    with pytest.raises(DtypeError, match=r"\[bernoulli_\] expected float32 or float64, got int64"):
        x.bernoulli_(alpha.tensor([0, 1, 1], engine=engine))
    with pytest.raises(ShapeError, match=r"\[bernoulli_\] expected a value that broadcasts"):
        x.bernoulli_(alpha.zeros(2, 3, engine=engine))


@pytest.mark.parametrize(
    ("dtype", "most"), [("uint8", 255), ("int32", 2**31 - 1), ("bool", 1), ("float32", 2**24), ("float64", 2**53)]
)
def test_whole_numbers_fill_their_dtype(engine: Engine, dtype: str, most: int) -> None:
    alpha.manual_seed(3)
    x = alpha.zeros(sized(engine, COUNT, 2000), dtype=dtype, engine=engine).random_()
    numbers = np.asarray(x.double())
    assert numbers.min() >= 0 and numbers.max() <= most and (numbers == np.floor(numbers)).all()
    _near(numbers / most, 0.5, 0.5)


def test_whole_numbers_between_bounds(engine: Engine) -> None:
    alpha.manual_seed(3)
    x = alpha.zeros(3000, dtype="int64", engine=engine)
    assert set(x.random_(3).tolist()) == {0, 1, 2}
    assert set(x.random_(-2, 1).tolist()) == set(x.random_(**{"from": -2, "to": 1}).tolist()) == {-2, -1, 0}
    wide = np.asarray(x.random_(-(2**63), None))
    assert (wide < 0).any() and (wide > 0).any() and len(set(wide.tolist())) == len(wide)
    far = np.asarray(x.random_(10**17, 2 * 10**17))
    assert far.min() >= 10**17 and far.max() < 2 * 10**17
    for wrong in (lambda: x.random_(5, 5), lambda: x.random_(-1), lambda: x.random_(0, 2**64)):
        with pytest.raises(ArgumentError, match=r"\[random_\] expected"):
            wrong()
    small = alpha.zeros(3, dtype="uint8", engine=engine)
    for wrong in (lambda: small.random_(257), lambda: small.random_(-1, 5), lambda: x.random_(1, 2, 3)):
        with pytest.raises(ArgumentError, match=r"\[random_\] expected"):
            wrong()
    assert small.random_(256) is small


def test_counts_of_events(engine: Engine) -> None:
    alpha.manual_seed(3)
    rates = alpha.tensor([0.0, 3.5, 1000.0], dtype="float64", engine=engine)
    drawn = alpha.poisson(rates.expand(2000, 3))
    assert drawn.dtype == alpha.float64 and drawn.shape == (2000, 3) and not drawn[:, 0].any()
    _near(drawn[:, 1], 3.5, math.sqrt(3.5))
    _near(drawn[:, 2], 1000, math.sqrt(1000))
    for wrong in (-1.0, float("nan"), 1e19):
        with pytest.raises(ArgumentError, match=r"\[poisson\] expected rates from 0 to 1e\+18"):
            alpha.poisson(alpha.tensor([1.0, wrong], engine=engine))
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    (alpha.poisson(leaf * 2) * leaf).sum().backward()
    assert leaf.grad is not None and (np.asarray(leaf.grad) >= 0).all()


CALLS: dict[str, Callable[[alpha.Tensor], alpha.Tensor]] = {
    "bernoulli_": lambda x: x.bernoulli_(),
    "cauchy_": lambda x: x.cauchy_(),
    "exponential_": lambda x: x.exponential_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "log_normal_": lambda x: x.log_normal_(),
    "random_": lambda x: x.random_(),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_end_where_they_are_written(engine: Engine, name: str) -> None:
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    x = leaf * 2
    row = x[:2]
    assert CALLS[name](row) is row and row.version == 1
    (x + leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [1, 1, 3]
    with pytest.raises(GraphError, match=rf"\[{name}\] expected a tensor that is not a leaf"):
        CALLS[name](leaf)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.exponential_(0),
        lambda x: x.exponential_(float("nan")),
        lambda x: x.cauchy_(0, 0),
        lambda x: x.log_normal_(0, 0),
        lambda x: x.log_normal_(float("inf"), 1),
        lambda x: x.geometric_(0),
        lambda x: x.geometric_(1.0),
        lambda x: x.long().exponential_(),
        lambda x: x.long().cauchy_(),
        lambda x: x.long().log_normal_(),
        lambda x: x.bool().geometric_(0.5),
        lambda x: x.geometric_("a"),
        lambda x: x.uniform_(bound=1),
    ],
)
def test_refusals(engine: Engine, wrong: Callable[[alpha.Tensor], Any]) -> None:
    with pytest.raises(AlphaError, match=r"\[(exponential|cauchy|log_normal|geometric|normal|uniform)_?\] expected"):
        wrong(alpha.ones(2, engine=engine))
    assert alpha.zeros(4, engine=engine).uniform_(**{"from": 2, "to": 3}).floor().tolist() == [2, 2, 2, 2]
