"""Random numbers of further distributions, written into a tensor, and Poisson's: from uniform or normal ones.

They are drawn in float64 and converted to the tensor's dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import dtypes, random
from alpha.arguments import number, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, described
from alpha.functions.drawing import MOST_WHOLE, check_probabilities, whole_numbers
from alpha.functions.elementwise import cast, ceil, clamp, exp, log1p, lt, tan
from alpha.functions.inplace import Copy, check_fits, write
from alpha.functions.operands import call, check_float, check_room, check_tensor
from alpha.random import Generator
from alpha.tensor import Tensor

__all__ = ["poisson"]

LEAST = 2.0**-54
"""Stands for a uniform number of 0, which lies within half a step of it: logarithms then are never 0."""


def _uniform(x: Tensor, generator: Generator | None) -> Tensor:
    """A uniform number in [0, 1) for each element, in float64."""
    draw: Tensor = x.engine.random(random.draw_uniform(x.shape, dtype=dtypes.widest_float, generator=generator))
    return draw


def _write(name: str, x: Tensor, values: Tensor) -> Tensor:
    return write(name, x, Copy, cast(values, x.dtype))


def _above_zero(function: str, name: str, value: Any) -> float:
    found = number(function, name, value)
    if not found > 0:
        raise ArgumentError(f"[{function}] expected {name} > 0, got {described(value)}")
    return found


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Every element drawn with the density lambd * exp(-lambd * x) of x > 0; floats. Returns x."""
    check_float("exponential_", x)
    rate = _above_zero("exponential_", "lambd", lambd)
    return _write("exponential_", x, log1p(-clamp(_uniform(x, generator), min=LEAST)) / -rate)


def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Every element drawn from the Cauchy distribution about a median, of scale sigma > 0; floats. Returns x."""
    check_float("cauchy_", x)
    middle, scale = number("cauchy_", "median", median), _above_zero("cauchy_", "sigma", sigma)
    return _write("cauchy_", x, tan((_uniform(x, generator) - 0.5) * math.pi) * scale + middle)


def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Every element drawn as exp(n), n of a normal distribution with the mean and a std > 0; floats. Returns x."""
    check_float("log_normal_", x)
    _above_zero("log_normal_", "std", std)
    draw = random.draw_normal(x.shape, mean, std, dtypes.widest_float, generator)
    return _write("log_normal_", x, exp(x.engine.random(draw)))


def geometric_(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Every element drawn as the number of tries to the first success, each of probability p in (0, 1). Returns x.

    Integers or floats; what an integer dtype does not hold becomes its largest number.
    """
    check_tensor("geometric_", x)
    if dtypes.is_bool(x.dtype):
        raise DtypeError("[geometric_] expected integers or floats, got bool: cast it")
    chance = number("geometric_", "p", p)
    if not 0 < chance < 1:
        raise ArgumentError(f"[geometric_] expected p between 0 and 1, both excluded, got {described(p)}")
    tries = ceil(log1p(-clamp(_uniform(x, generator), min=LEAST)) / math.log1p(-chance))
    if dtypes.is_integer(x.dtype):
        tries = clamp(tries, max=min(dtypes.limits(x.dtype)[1], MOST_WHOLE))
    return _write("geometric_", x, tries)


def bernoulli_(x: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Every element 1 with a probability, else 0, in any dtype. Returns x.

    ``p``: a number from 0 to 1, or a tensor of floats that broadcasts to x's shape.
    """
    check_tensor("bernoulli_", x)
    if isinstance(p, Tensor):
        check_float("bernoulli_", p)
        x.engine.check_owner("bernoulli_", p)
        check_fits("bernoulli_", x, p)
        check_probabilities("bernoulli_", p)
    elif not 0 <= number("bernoulli_", "p", p) <= 1:
        raise ArgumentError(f"[bernoulli_] expected p from 0 to 1, got {described(p)}")
    return _write("bernoulli_", x, lt(_uniform(x, generator), p.detach() if isinstance(p, Tensor) else p))


def random_(x: Tensor, *bounds: Any, generator: Generator | None = None, **options: Any) -> Tensor:
    """Every element a whole number: ``random_()``, ``random_(to)`` or ``random_(from, to)``, ``to`` excluded.

    Returns x.

    Without ``to`` up to the largest number of an integer dtype; of floats up to 2 ** digits, below which they tell all
    whole numbers apart. ArgumentError where bounds are beyond the dtype or none lies between them.
    """
    check_tensor("random_", x)
    first, end = _bounds(x, bounds, options)
    least, most = dtypes.limits(x.dtype)
    if not (first < end and least <= first and end - 1 <= most):
        raise ArgumentError(
            f"[random_] expected from < to, and numbers between them that {x.dtype} holds, got {first} and {end}"
        )
    if end - first <= MOST_WHOLE:
        return _write("random_", x, whole_numbers(x.shape, first, end, x.engine, generator))
    return _write("random_", x, _wide(x, first, end, generator))


def _bounds(x: Tensor, bounds: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, int]:
    """The first number of ``random_`` and the one behind the last."""
    known = dict(options)
    given = [*bounds]
    if len(given) == 1 and not known:
        given.insert(0, 0)
    start = given[0] if given else known.pop("from", 0)
    stop = given[1] if len(given) > 1 else known.pop("to", None)
    if known or len(given) > 2:
        raise ArgumentError(f"[random_] expected from and to, got {described((*bounds, *options))}")
    digits = dtypes.info(x.dtype).digits
    last = 2**digits if digits else int(dtypes.limits(x.dtype)[1])
    return whole("random_", "from", start), last + 1 if stop is None else whole("random_", "to", stop)


def _wide(x: Tensor, first: int, end: int, generator: Generator | None) -> Tensor:
    """Whole numbers of a range that 53 bits do not tell apart: 64 bits modulo its width, as int64."""
    check_room(x.engine, x.shape, dtypes.default_int)
    count = math.prod(x.shape)
    source = random.checked("random_", generator)
    bits = random.words(*source.reserve(2 * count), 2 * count).view(np.uint64)
    width = end - first
    steps = bits if width == 2**64 else bits % np.uint64(width)
    values = (steps + np.uint64(first % 2**64)).view(np.int64)  # the sum wraps around, as two's complement does
    return x.engine.from_numpy(values.reshape(x.shape))


class Poisson(Function):
    """Numbers drawn by rates, to which no gradient goes."""

    def forward(self, rates: Tensor, generator: np.random.Generator) -> Tensor:
        drawn = generator.poisson(rates.engine.to_numpy(rates).astype(np.float64))
        return cast(rates.engine.from_numpy(np.asarray(drawn, np.int64)), rates.dtype)

    def backward(self, grad: Tensor) -> Tensor:
        return grad.engine.full(grad.shape, 0, grad.dtype)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Each element drawn from the Poisson distribution whose mean is input's element, in input's dtype.

    The gradient is 0. ArgumentError for rates below 0, NaN, and those beyond 1e18. NumPy draws the numbers, on the
    host, from a stream that the place in the generator's sequence decides.
    """
    check_float("poisson", input)
    check_room(input.engine, input.shape, dtypes.widest_float)
    rates = input.detach()
    if not bool(((rates >= 0) & (rates <= MOST_RATE)).all()):
        raise ArgumentError(f"[poisson] expected rates from 0 to {MOST_RATE:.0e}, got others among them")
    place = random.checked("poisson", generator).reserve(4)
    return call(Poisson, input, np.random.Generator(np.random.Philox(np.random.SeedSequence(place))))


MOST_RATE = 1e18
"""Numbers drawn at this rate are far within int64."""
