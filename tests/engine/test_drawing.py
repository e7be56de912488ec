"""Random numbers from generators, by given probabilities and in place; numbers at equal distances."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, GraphError


@pytest.fixture
def generator() -> alpha.Generator:
    return alpha.Generator().manual_seed(7)


def test_a_generator_is_a_sequence_of_its_own(engine: Engine, generator: alpha.Generator) -> None:
    alpha.manual_seed(7)
    expected = alpha.rand(5, engine=engine).tolist()
    before = alpha.random.get_state()
    assert alpha.rand(5, generator=generator, engine=engine).tolist() == expected
    assert alpha.random.get_state() == before, "a draw from another generator moved the process's own"
    assert generator.initial_seed() == 7
    state = generator.get_state()
    twins = copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))
    ahead = alpha.randn(4, generator=generator, engine=engine).tolist()
    for twin in twins:
        assert alpha.randn(4, generator=twin, engine=engine).tolist() == ahead
    assert generator.set_state(state) is generator
    assert alpha.randn(4, generator=generator, engine=engine).tolist() == ahead
    assert generator.seed() == generator.initial_seed() != 7
    assert isinstance(alpha.manual_seed(1), alpha.Generator) and alpha.random.seed() == 1
    with pytest.raises(ArgumentError, match=r"\[set_state\] expected a state"):
        generator.set_state({"seed": 1})
    with pytest.raises(ArgumentError, match=r"\[manual_seed\] expected an integer seed, got 'a'"):
        generator.manual_seed("a")  # type: ignore[arg-type]


CALLS: dict[str, Callable[..., Any]] = {
    "rand": lambda e, **g: alpha.rand(3, 4, engine=e, **g),
    "randn": lambda e, **g: alpha.randn(3, 4, engine=e, **g),
    "rand_like": lambda e, **g: alpha.rand_like(alpha.zeros(3, 4, engine=e), **g),
    "randn_like": lambda e, **g: alpha.randn_like(alpha.zeros(3, 4, engine=e), **g),
    "randint": lambda e, **g: alpha.randint(0, 1000, (3, 4), engine=e, **g),
    "randint_like": lambda e, **g: alpha.randint_like(alpha.zeros(3, 4, engine=e), 1000, **g),
    "randperm": lambda e, **g: alpha.randperm(20, engine=e, **g),
    "bernoulli": lambda e, **g: alpha.bernoulli(alpha.full((5, 8), 0.5, engine=e), **g),
    "multinomial": lambda e, **g: alpha.multinomial(alpha.ones(3, 30, engine=e), 5, **g),
    "normal": lambda e, **g: alpha.normal(1.0, 2.0, (3, 4), engine=e, **g),
    "uniform_": lambda e, **g: alpha.zeros(3, 4, engine=e).uniform_(**g),
    "normal_": lambda e, **g: alpha.zeros(3, 4, engine=e).normal_(**g),
    "bernoulli_": lambda e, **g: alpha.zeros(5, 8, engine=e).bernoulli_(**g),
    "cauchy_": lambda e, **g: alpha.zeros(3, 4, engine=e).cauchy_(**g),
    "exponential_": lambda e, **g: alpha.zeros(3, 4, engine=e).exponential_(**g),
    "geometric_": lambda e, **g: alpha.zeros(3, 4, engine=e).geometric_(0.1, **g),
    "log_normal_": lambda e, **g: alpha.zeros(3, 4, engine=e).log_normal_(**g),
    "random_": lambda e, **g: alpha.zeros(3, 4, engine=e).random_(**g),
    "random_ of 64 bits": lambda e, **g: alpha.zeros(3, dtype="int64", engine=e).random_(**g),
    "poisson": lambda e, **g: alpha.poisson(alpha.full((3, 4), 50.0, engine=e), **g),
}


@pytest.mark.parametrize("name", CALLS)
def test_draws_follow_the_generator_they_are_given(engine: Engine, generator: alpha.Generator, name: str) -> None:
    draw = CALLS[name]
    first, second = (draw(engine, generator=generator).tolist() for _ in range(2))
    assert first != second
    assert draw(engine, generator=generator.manual_seed(7)).tolist() == first
    alpha.manual_seed(7)
    assert draw(engine).tolist() == first
    with pytest.raises(ArgumentError, match=r"expected a Generator or None, got 5"):
        draw(engine, generator=5)


def test_whole_numbers_are_uniform(engine: Engine) -> None:
    alpha.manual_seed(0)
    numbers = np.asarray(alpha.randint(-2, 3, (5000,), engine=engine))
    counts = np.bincount(numbers + 2, minlength=5)
    assert len(counts) == 5 and abs(counts - 1000).max() < 5 * np.sqrt(800)  # 5 standard deviations
    assert alpha.randint(7, (2, 3), dtype="uint8", engine=engine).dtype == alpha.uint8
    assert sorted(alpha.randperm(50, engine=engine).tolist()) == list(range(50))
    for wrong in (lambda: alpha.randint(5, 5, (2,)), lambda: alpha.randint(300, (2,), dtype="uint8")):
        with pytest.raises(ArgumentError, match=r"\[randint\] expected low < high, at most 2 \*\* 53 apart"):
            wrong()


@pytest.mark.parametrize("replacement", [True, False])
def test_indices_come_as_often_as_their_weights_say(engine: Engine, replacement: bool) -> None:
    alpha.manual_seed(0)
    weights = alpha.tensor([1.0, 0.0, 3.0, 6.0], engine=engine)
    found = np.asarray(alpha.multinomial(weights.expand(4000, 4), 1 if not replacement else 2, replacement))
    shares = np.bincount(found[:, 0], minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.1, 0, 0.3, 0.6], atol=5 * np.sqrt(0.25 / 4000))
    several = np.asarray(alpha.multinomial(weights, 3))
    assert sorted(several.tolist()) == [0, 2, 3]
    for given, count, text in (
        (weights, 4, "4 of them above 0 in each row, got rows of 3 above 0"),
        (-weights, 1, "1 of them above 0 in each row, got negative ones, infinities or NaN"),
        (weights * float("nan"), 1, "got negative ones, infinities or NaN"),
        (weights / 0.0, 1, "got negative ones, infinities or NaN"),
        (alpha.tensor([1.0, float("inf")], engine=engine), 1, "got negative ones, infinities or NaN"),
    ):
        with pytest.raises(ArgumentError, match=text):
            alpha.multinomial(given, count)


def test_ones_come_as_often_as_their_probabilities_say(engine: Engine) -> None:
    alpha.manual_seed(0)
    p = alpha.tensor([0.0, 0.25, 1.0], engine=engine).expand(4000, 3)
    means = np.asarray(p.bernoulli().mean(0))
    np.testing.assert_allclose(means, [0, 0.25, 1], atol=5 * np.sqrt(0.19 / 4000))
    with pytest.raises(ArgumentError, match=r"\[bernoulli\] expected probabilities from 0 to 1"):
        alpha.bernoulli(p * 2)


def test_normal_numbers_take_means_and_deviations_one_by_one(engine: Engine) -> None:
    alpha.manual_seed(0)
    mean, std = alpha.tensor([0.0, 100.0], engine=engine), alpha.tensor([1.0, 0.0], engine=engine)
    found = np.asarray(alpha.normal(mean.expand(2000, 2), std.expand(2000, 2)))
    assert abs(found[:, 0].mean()) < 5 / np.sqrt(2000) and (found[:, 1] == 100).all()
    assert alpha.normal(mean, 2.0).shape == alpha.normal(0.0, std).shape == (2,)
    for wrong in (
        lambda: alpha.normal(0.0, 1.0),
        lambda: alpha.normal(mean, 1.0, (2,)),
        lambda: alpha.normal(mean, -std - 1),
        lambda: alpha.normal(mean, -1.0),
    ):
        with pytest.raises(ArgumentError, match=r"\[normal\] expected"):
            wrong()


def test_draws_in_place_end_the_gradient(engine: Engine) -> None:
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    x = leaf * 2
    assert x.uniform_(2, 3) is x and all(2 <= value < 3 for value in x.tolist())
    (x + leaf).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [1, 1, 1]
    with pytest.raises(GraphError, match=r"\[normal_\] expected a tensor that is not a leaf"):
        leaf.normal_()
    with pytest.raises(DtypeError, match=r"\[uniform_\] expected float32 or float64, got int64"):
        alpha.tensor([1], engine=engine).uniform_()


def test_numbers_at_equal_distances(engine: Engine) -> None:
    assert alpha.linspace(0, 1, 5, engine=engine).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert alpha.linspace(2, 2, 1, engine=engine).tolist() == [2] and alpha.linspace(0, 1, 0, engine=engine).shape == (
        0,
    )
    found = alpha.linspace(-0.7, 0.9, 1001, dtype="float64", engine=engine)
    np.testing.assert_array_equal(np.asarray(found), np.linspace(-0.7, 0.9, 1001))
    np.testing.assert_allclose(alpha.logspace(0, 3, 4, engine=engine).tolist(), [1, 10, 100, 1000])
    assert alpha.logspace(0, 3, 4, base=2, dtype="int64", engine=engine).tolist() == [1, 2, 4, 8]
    with pytest.raises(ArgumentError, match=r"\[linspace\] expected steps >= 0, got -1"):
        alpha.linspace(0, 1, -1)


def test_tensors_made_as_another_is(engine: Engine) -> None:
    x = alpha.zeros(2, 3, dtype="float64", engine=engine)
    for made, shape in (
        (x.new_zeros(4), (4,)),
        (x.new_ones(2, 1), (2, 1)),
        (x.new_empty((3,)), (3,)),
        (x.new_full((2,), 5), (2,)),
        (x.new_tensor([1, 2]), (2,)),
        (alpha.empty_like(x), (2, 3)),
        (alpha.as_tensor(np.ones(2), dtype="float64", engine=engine), (2,)),
        (alpha.from_numpy(np.ones(2), engine=engine), (2,)),
    ):
        assert made.shape == shape and made.dtype == alpha.float64 and made.engine is engine
    assert x.new_zeros(2, dtype="int64").dtype == alpha.int64 and x.new_ones(2, device="numpy").engine.name == "numpy"
    assert alpha.as_tensor(x) is x and alpha.as_tensor(x, "float32").dtype == alpha.float32
    assert alpha.ones(2, engine=engine).type_as(x).dtype == alpha.float64
    with pytest.raises(AlphaError, match=r"\[from_numpy\] expected a NumPy array, got \[1\]"):
        alpha.from_numpy([1])  # type: ignore[arg-type]
