"""Update rules as expressions: what a formula may read and decide on, what compiles anew, how the loop shares out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops import machine
from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.testing import assert_close
from alpha.update_rules import AdamRule, RMSpropRule, SGDRule, UpdateRule
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
ENGINES = pytest.mark.parametrize("engine", ["cpu", "cu32", "numpy", "toy"], indirect=True)


@dataclass
class Blend(UpdateRule):
    """p becomes a weighted sum of the row, with what a formula may read: tuples, properties, methods, text, None."""

    weights: tuple[float, float, float]
    scale: int
    kind: str
    limit: float | None = None

    states = 1
    shift: ClassVar[float] = 0.5

    @property
    def half(self) -> float:
        return self.scale / 2

    def blended(self, row: Sequence[Any]) -> Any:
        return sum(x * weight for x, weight in zip(row, self.weights, strict=True))

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        value = self.blended(row) * self.half + self.shift
        if self.limit is not None:
            value = alpha.clamp(value, -self.limit, self.limit)
        return value, (alpha.sin(row[2]) if self.kind == "sine" else 3.0)


@dataclass
class Doubled(Blend):
    """Another rule's formula, twice as much of it."""

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        value, state = super().formula(row)
        return value * 2, state


def rows(engine: Engine, rng: np.random.Generator, *shapes: tuple[int, ...], width: int = 3) -> list[list[Any]]:
    return [[alpha.tensor(rng.standard_normal(shape), engine=engine) for _ in range(width)] for shape in shapes]


def arrays(row: Sequence[Any]) -> list[Array]:
    return [np.array(x.detach()) for x in row]


@ENGINES
@pytest.mark.parametrize("kind", [Blend, Doubled])
@pytest.mark.parametrize("limit", [None, 0.75])
@pytest.mark.parametrize("text", ["sine", "constant"])
def test_what_a_formula_reads(
    engine: Engine, rng: np.random.Generator, kind: type[Blend], limit: float | None, text: str
) -> None:
    given = rows(engine, rng, (3, 5), (), (40,), (0,))
    for weights, scale in (((1.0, 2.0, -3.0), 3), ((0.25, -1.0, 7.0), 4)):
        wanted = []
        for row in given:
            p, g, m = arrays(row)
            value = (p * weights[0] + g * weights[1] + m * weights[2]) * (scale / 2) + 0.5
            value = value if limit is None else np.clip(value, -limit, limit)
            state = np.sin(m) if text == "sine" else np.full_like(m, 3)
            wanted.append((value * (2 if kind is Doubled else 1), g, state))
        engine.optimizer_step(given, kind(weights, scale, text, limit))
        for row, values in zip(given, wanted, strict=True):
            for x, value in zip(row, values, strict=True):
                assert_close(x, value)


def test_numbers_compile_nothing_and_decisions_do(cpu: CPUEngine, rng: np.random.Generator) -> None:
    (row,) = rows(cpu, rng, (7,), width=4)
    rule = AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3)
    first, _ = rule.traced()
    for other in (AdamRule(0.2, (0.5, 0.6), 0.0, 7.0, 400), AdamRule(1, [0, 0], np.float32(1), np.int64(2), 1)):  # type: ignore[arg-type]
        assert other.traced()[0] is first
    cpu.optimizer_step([row], rule)
    compiled = machine.compiled
    cpu.optimizer_step([row], AdamRule(0.3, (0.5, 0.6), 1.0, 7.0, 1))
    assert machine.compiled == compiled
    for other in (AdamRule(0.1, (0.9, 0.99), 1e-6, 0.0, 3), AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3, decoupled=True)):
        assert other.traced()[0] is not first
    assert SGDRule(0.1, 0.0, 0.0, 0.0).traced()[0].tensors == 2
    assert RMSpropRule(0.1, 0.9, 1e-6, 0.0, 0.9, centered=True).traced()[0].tensors == 5


def test_decisions_on_numbers_that_were_none(cpu: CPUEngine, rng: np.random.Generator) -> None:
    weights = (1.0, 0.0, 0.0)
    free, bound = Blend(weights, 2, "sine").traced(), Blend(weights, 2, "sine", 0.5).traced()
    assert free[0] is not bound[0]
    assert Blend(weights, 9, "sine", 0.25).traced()[0] is bound[0] and Blend(weights, 9, "sine").traced()[0] is free[0]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_bits_do_not_depend_on_threads_or_neighbours(rng: np.random.Generator, dtype: str) -> None:
    """The bits of a parameter rest neither on its place in the list and in memory nor on the threads."""
    sizes = (70_001, 1, 33, 16_384, 0, 16_385, 15)
    values = [[np.abs(rng.standard_normal(n)).astype(dtype) for _ in range(4)] for n in sizes]
    rule = AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3)

    def stepped(threads: int, apart: bool) -> list[bytes]:
        engine = CPUEngine(memory="64MB", threads=threads)
        given = [[engine.from_numpy(x) for x in row] for row in values]
        if apart:
            room = engine.from_numpy(np.zeros(sum(sizes) + 3, dtype))
            starts = np.cumsum([3, *sizes])
            for row, start, n in zip(given, starts, sizes, strict=False):
                moved = room.strided(int(start), (n,), (1,))
                engine.copy(row[0], moved)
                row[0] = moved
        for chosen in [[row] for row in given] if apart else [given]:
            engine.optimizer_step(chosen, rule)
        return [np.array(x.numpy()).tobytes() for row in given for x in row]

    wanted = stepped(1, apart=False)
    assert all(stepped(threads, apart) == wanted for threads in (1, 2, 5) for apart in (False, True))


@ENGINES
def test_tensors_that_are_not_dense(engine: Engine, rng: np.random.Generator) -> None:
    rule = AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3)
    values = [np.abs(rng.standard_normal((4, 6))) for _ in range(4)]
    plain = [alpha.tensor(x, engine=engine) for x in values]
    engine.optimizer_step([plain], rule)
    wide = [alpha.tensor(np.repeat(x, 2, 1), engine=engine)[:, ::2] for x in values[:2]]
    turned = [alpha.tensor(x.T.copy(), engine=engine).T for x in values[2:]]
    engine.optimizer_step([[*wide, *turned]], rule)
    for x, wanted in zip((*wide, *turned), plain, strict=True):
        assert_close(x, np.array(wanted), rtol=0, atol=0)


@dataclass
class Numbers(UpdateRule):
    """Parts made of numbers alone, which need not be finite."""

    a: float
    b: float

    states = 0

    def formula(self, row: Sequence[Any]) -> Sequence[Any]:
        parts = self.a + self.b, self.a - self.b, self.a * self.b, self.a / self.b, self.a**self.b, -self.a
        more = self.a**0.5, alpha.exp(self.b), alpha.maximum(self.a, self.b), self.a * math.inf + 1.5
        return (sum(row[0] * part for part in (*parts, *more)),)


def test_parts_made_of_numbers_are_numpys() -> None:
    values = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3, 1e300, -1e-310, math.inf, -math.inf, math.nan)
    for a in values:
        for b in values:
            _, found = Numbers(a, b).traced()
            with np.errstate(all="ignore"):
                x, y = np.float64(a), np.float64(b)
                wanted = [x + y, x - y, x * y, x / y, x**y, -x]
                wanted += [np.sqrt(x), np.exp(y), np.maximum(x, y), x * math.inf + 1.5]
            np.testing.assert_allclose(found, wanted, rtol=1e-15)


@dataclass
class Wrong(UpdateRule):
    """Formulas that cannot be."""

    number: float
    what: str

    states = 1

    def formula(self, row: Sequence[Any]) -> Any:
        p, g, m = row
        if self.what == "if":
            return (p if self.number > 0 else g), m
        if self.what == "short":
            return (p,)
        if self.what == "single":
            return p
        if self.what == "condition":
            return p > 0, m
        return self.engine

    @property
    def engine(self) -> Any:
        return np.zeros(3)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("if", r"^\[Wrong\] expected a function without if, .* in line \d+ of test_update_rules.py"),
        ("short", r"^\[Wrong\] expected the new parameter and 1 new state from its formula, got 1 values"),
        ("single", r"^\[Wrong\] expected the new parameter and 1 new state from its formula, got "),
        ("condition", r"^\[Wrong\] expected the new parameter and 1 new state as floats, got a condition"),
        ("other", r"^\[Wrong\] expected numbers, .* in a rule, got engine = .* in line \d+ of test_update_rules.py"),
    ],
)
def test_formulas_that_cannot_be(cpu: CPUEngine, rng: np.random.Generator, what: str, message: str) -> None:
    (row,) = rows(cpu, rng, (3,))
    before = arrays(row)
    with pytest.raises(ArgumentError, match=message):
        cpu.optimizer_step([row], Wrong(1.0, what))
    assert all(np.array_equal(x, y) for x, y in zip(arrays(row), before, strict=True))
