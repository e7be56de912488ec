"""Checks of indices and labels, and the switches: errors come at once or at the next wait, and can be turned off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, IndexingError

CHECK = RangeCheck(IndexingError, "[f] expected less, got {value} at {position}")


@pytest.fixture(autouse=True)
def switches(engine: Engine) -> Iterator[None]:
    """The switches as they were, whatever a test does."""
    yield
    engine.sync(False).check(True)


def integers(engine: Engine, *values: int) -> alpha.Tensor:
    return engine.from_numpy(np.array(values, np.int64))


def test_what_is_in_range_comes_back_counted_from_the_start(engine: Engine) -> None:
    assert engine.check_range(integers(engine, 0, 4, 2), 0, 5, CHECK).tolist() == [0, 4, 2]
    assert engine.check_range(integers(engine, -5, -1, 4), -5, 5, CHECK).tolist() == [0, 4, 4]
    assert engine.check_range(integers(engine, -100, 1, -100), 0, 5, CHECK, ignore=-100).tolist() == [0, 1, 0]
    assert engine.check_range(integers(engine, 9, 1), 0, 5, CHECK, ignore=9).tolist() == [0, 1]
    assert engine.check_range(integers(engine), 0, 0, CHECK).tolist() == []
    engine.synchronize()


def test_any_strides(engine: Engine) -> None:
    index = engine.from_numpy(np.arange(6).reshape(2, 3)).T
    assert engine.check_range(index, 0, 6, CHECK).tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(IndexingError, match=r"got 3 at 1$"):  # positions count in row-major order
        engine.check_range(index, 0, 3, CHECK)
        engine.synchronize()


@pytest.mark.parametrize(("values", "got"), [((1, 5, 7), "5 at 1"), ((1, 0, -6), "-6 at 2"), ((-6, 9), "-6 at 0")])
def test_the_first_element_out_of_range_is_named(engine: Engine, values: tuple[int, ...], got: str) -> None:
    with pytest.raises(IndexingError, match=rf"^\[f\] expected less, got {got}$"):
        engine.check_range(integers(engine, *values), -5, 5, CHECK)
        engine.synchronize()
    engine.synchronize()  # said once


def test_huge_values_are_out_of_range_too(engine: Engine) -> None:
    for value in (2**40, -(2**40), 2**63 - 1, -(2**63)):
        with pytest.raises(IndexingError, match=r"^\[f\] expected less, got -?\d+( or more| or less)? at 1$"):
            engine.check_range(integers(engine, 0, value), -5, 5, CHECK)
            engine.synchronize()


def test_a_later_position_is_found_in_many(engine: Engine) -> None:
    values = np.zeros(70_000, np.int64)
    values[[69_000, 66_001]] = 8, 7
    with pytest.raises(IndexingError, match=r"got 7 at 66001$"):
        engine.check_range(engine.from_numpy(values), 0, 5, CHECK)
        engine.synchronize()


def test_a_wait_for_a_value_raises_too(engine: Engine) -> None:
    with pytest.raises(IndexingError, match=r"got 5 at 0$"):
        engine.check_range(integers(engine, 5), 0, 5, CHECK).numpy()


def test_different_errors_are_told_apart(engine: Engine) -> None:
    for number in range(3):
        engine.check_range(integers(engine, 1), 0, 2, RangeCheck(ArgumentError, f"[{number}] {{value}}"))
    with pytest.raises(ArgumentError, match=r"^\[1\] 7$"):
        engine.check_range(integers(engine, 7), 0, 2, RangeCheck(ArgumentError, "[1] {value}"))
        engine.synchronize()


def test_more_errors_than_an_engine_can_tell_apart(engine: Engine) -> None:
    for number in range(1500):
        engine.check_range(integers(engine, 1), 0, 2, RangeCheck(IndexingError, f"[{number}] {{value}}"))
    with pytest.raises(IndexingError, match="7"):
        engine.check_range(integers(engine, 7), 0, 2, RangeCheck(IndexingError, "[last] {value}"))
        engine.synchronize()
    with pytest.raises(IndexingError, match=r"^\[after\] 7$"):
        engine.check_range(integers(engine, 7), 0, 2, RangeCheck(IndexingError, "[after] {value}"))
        engine.synchronize()


def users(engine: Engine) -> dict[str, tuple[Callable[[], Any], str]]:
    """Public functions given an index out of range, and what their errors say."""
    x = engine.from_numpy(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    bad = integers(engine, 0, 3)
    return {
        "getitem": (lambda: x[bad], r"\[getitem\] expected indices within axis 0 of shape \(3, 4\), got 3"),
        "setitem": (lambda: x.__setitem__(bad, 1.0), r"\[setitem\] expected indices within axis 0"),
        "index_select": (lambda: alpha.index_select(x, 0, bad), r"\[index_select\] .* got 3"),
        "gather": (
            lambda: x.gather(0, engine.from_numpy(np.array([[0, 1, 2, 9]]))),
            r"\[gather\] .* within axis 0 of shape \(3, 4\), got 9",
        ),
        "one_hot": (lambda: alpha.one_hot(bad, 3), r"\[one_hot\] expected labels in 0..2, got 3: raise num_classes"),
        "pow": (lambda: bad ** (bad - 1), r"\[pow\] expected integers to powers >= 0, got -1"),
        "cross_entropy": (
            lambda: nn.functional.cross_entropy(x, integers(engine, 0, 4, 1)),
            r"\[cross_entropy\] expected labels in 0..3 for 4 classes, got 4 at row 1: check the labels",
        ),
        "nll_loss": (lambda: alpha.nll_loss(x, integers(engine, 0, 1, -1)), r"\[nll_loss\] .* got -1 at row 2"),
    }


USERS = ("getitem", "setitem", "index_select", "gather", "one_hot", "pow", "cross_entropy", "nll_loss")


@pytest.mark.parametrize("name", USERS)
def test_functions_name_themselves(engine: Engine, name: str) -> None:
    call, message = users(engine)[name]
    with pytest.raises((IndexingError, ArgumentError), match=message):
        call()
        engine.synchronize()
    engine.synchronize()
    assert float(engine.from_numpy(np.ones(2, np.float32)).sum()) == 2  # the engine goes on working


@pytest.mark.parametrize("name", USERS)
def test_sync_raises_where_the_fault_is(engine: Engine, name: str) -> None:
    call, message = users(engine)[name]
    engine.sync(True)
    with pytest.raises((IndexingError, ArgumentError), match=message):
        call()


def test_unchecked_indices_raise_nothing_and_good_ones_mean_the_same(engine: Engine) -> None:
    engine.check(False)
    x = engine.from_numpy(np.arange(12.0).reshape(3, 4))
    assert x[integers(engine, 0, 3)].shape == (2, 4)
    engine.synchronize()
    assert x[integers(engine, -1, 0)].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    loss = nn.functional.cross_entropy(x, integers(engine, 0, -100, 2), reduction="none")
    assert loss.tolist()[1] == 0


def test_switches_return_the_engine_and_take_booleans(engine: Engine) -> None:
    assert engine.sync(True).sync(False).check(False).check(True) is engine
    assert engine.checking and not engine.synchronous
    with pytest.raises(ArgumentError, match=r"^\[sync\] expected True or False, got 1$"):
        engine.sync(1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^\[check\] expected True or False, got None$"):
        engine.check(None)  # type: ignore[arg-type]
