"""Random numbers: uniform, normal and whole ones, orders, and draws by given probabilities; also written in place."""

from __future__ import annotations

import math
from typing import Any

from alpha import dtypes, engines, random
from alpha.arguments import flag, number, shape_of, whole
from alpha.autograd import Function
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.complex_numbers import view_as_complex
from alpha.functions.creation import DeviceLike, EngineLike, named_size, ordered
from alpha.functions.elementwise import cast, clamp, floor, log, lt, minimum
from alpha.functions.inplace import write
from alpha.functions.operands import check_float, check_tensor, compute
from alpha.functions.running import cumsum
from alpha.functions.shape import unsqueeze
from alpha.functions.sorting import sort
from alpha.memory_formats import memory_format as MemoryFormat
from alpha.places import chosen
from alpha.random import Draw, Generator
from alpha.tensor import Tensor

__all__ = [
    "bernoulli",
    "multinomial",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
]

MOST_WHOLE = 1 << 53
"""The widest range of whole numbers that are drawn: what a uniform number of 53 bits tells apart."""


def _made(draw: Draw, engine: EngineLike, device: DeviceLike, requires_grad: bool) -> Tensor:
    where = engines.resolve(engine if device is None else chosen(draw.distribution, engine, device))
    out = where.random(draw)
    return out if requires_grad is False else out.requires_grad_(requires_grad)


def rand(
    *shape: Any,
    size: Any = None,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random numbers in [0, 1), from a generator or else ``alpha.manual_seed``'s sequence.

    Of complex ones both parts are drawn.
    """
    shape = shape if size is None else named_size("rand", shape, size)
    kind = dtypes.default_or("rand", dtype)
    if dtypes.is_complex(kind):
        pairs = random.draw_uniform(_pairs("rand", shape), dtype=dtypes.real_of(kind), generator=generator)
        return _of_pairs(pairs, engine, device, requires_grad)
    draw = random.draw_uniform(shape_of("rand", shape), dtype=kind, generator=generator)
    return _made(draw, engine, device, requires_grad)


def _pairs(function: str, shape: Any) -> tuple[int, ...]:
    """The shape of the parts of complex numbers of a shape."""
    return shape_of(function, ((*shape_of(function, shape), 2),))


def _of_pairs(draw: Draw, engine: EngineLike, device: DeviceLike, requires_grad: bool) -> Tensor:
    """Complex numbers of drawn parts."""
    out = view_as_complex(_made(draw, engine, device, False))
    return out if requires_grad is False else out.requires_grad_(requires_grad)


def randn(
    *shape: Any,
    size: Any = None,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random numbers of the standard normal distribution, from a generator or else ``alpha.manual_seed``'s sequence.

    Of complex ones each part has the variance 1/2.
    """
    shape = shape if size is None else named_size("randn", shape, size)
    kind = dtypes.default_or("randn", dtype)
    if dtypes.is_complex(kind):
        parts = dtypes.real_of(kind)
        pairs = random.draw_normal(_pairs("randn", shape), std=math.sqrt(0.5), dtype=parts, generator=generator)
        return _of_pairs(pairs, engine, device, requires_grad)
    draw = random.draw_normal(shape_of("randn", shape), dtype=kind, generator=generator)
    return _made(draw, engine, device, requires_grad)


def rand_like(
    input: Tensor,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    *,
    device: Any = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """``rand`` of the same shape, engine and (unless given) dtype."""
    check_tensor("rand_like", input)
    kind = input.dtype if dtype is None else dtype
    place: dict[str, Any] = {"engine": input.engine} if device is None else {"device": device}
    out = ordered("rand_like", rand(input.shape, dtype=kind, generator=generator, **place), memory_format)
    return out if requires_grad is False else out.requires_grad_(requires_grad)


def randn_like(
    input: Tensor,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    *,
    device: Any = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """``randn`` of the same shape, engine and (unless given) dtype."""
    check_tensor("randn_like", input)
    kind = input.dtype if dtype is None else dtype
    place: dict[str, Any] = {"engine": input.engine} if device is None else {"device": device}
    out = ordered("randn_like", randn(input.shape, dtype=kind, generator=generator, **place), memory_format)
    return out if requires_grad is False else out.requires_grad_(requires_grad)


def normal(
    mean: Tensor | float = 0.0,
    std: Tensor | float = 1.0,
    size: Any = None,
    *,
    dtype: dtypes.DtypeLike | None = None,
    engine: EngineLike = None,
    device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normally distributed numbers: of ``size`` for two numbers, or one for each element of the tensors.

    The result is outside the graph. ArgumentError for a negative standard deviation.
    """
    given = [value.detach() for value in (mean, std) if isinstance(value, Tensor)]
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise ArgumentError("[normal] expected size with two numbers, got none: as in normal(0, 1, (2, 3))")
        kind = dtypes.default_float if dtype is None else dtypes.as_dtype(dtype, "normal")
        draw = random.draw_normal(shape_of("normal", (size,)), mean, std, kind, generator)
        return _made(draw, engine, device, False)
    if size is not None:
        raise ArgumentError("[normal] expected size with numbers alone, got it with a tensor: leave it out")
    check_float("normal", *given)
    if bool((given[-1] < 0).any()) if isinstance(std, Tensor) else not number("normal", "std", std) >= 0:
        raise ArgumentError("[normal] expected a standard deviation >= 0, got a negative one")
    like = given[0] if len(given) == 1 else given[0] + given[1]
    numbers: Tensor = randn_like(like, generator=generator) * _outside(std) + _outside(mean)
    return numbers


def _outside(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def randint(
    low: int,
    high: int | None = None,
    size: Any = None,
    *,
    dtype: dtypes.DtypeLike = dtypes.default_int,
    engine: EngineLike = None,
    device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """Whole numbers in low..high - 1: ``randint(0, 10, (2, 3))``, or from 0 on ``randint(10, (2, 3))``."""
    if size is None:
        low, high, size = 0, low, high
    if size is None:
        raise ArgumentError("[randint] expected a size, got none: randint(0, 10, (2, 3))")
    where = engines.resolve(engine if device is None else chosen("randint", engine, device))
    return _whole_numbers("randint", shape_of("randint", (size,)), (low, high), dtype, where, generator)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    dtype: dtypes.DtypeLike | None = None,
    generator: Generator | None = None,
    *,
    device: Any = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """``randint`` of the same shape, engine and (unless given) dtype."""
    check_tensor("randint_like", input)
    bounds = (0, low) if high is None else (low, high)
    kind = input.dtype if dtype is None else dtype
    where = input.engine if device is None else engines.resolve(device)
    return ordered(
        "randint_like", _whole_numbers("randint_like", input.shape, bounds, kind, where, generator), memory_format
    )


def _whole_numbers(
    function: str, shape: Any, bounds: tuple[Any, Any], dtype: Any, engine: Engine, generator: Generator | None
) -> Tensor:
    first, end = whole(function, "low", bounds[0]), whole(function, "high", bounds[1])
    kind = dtypes.as_dtype(dtype, function)
    least, most = dtypes.limits(kind)
    if not 0 < end - first <= MOST_WHOLE or not (least <= first and end - 1 <= most):
        raise ArgumentError(
            f"[{function}] expected low < high, at most 2 ** 53 apart, and numbers that {kind} holds, got {first} and "
            f"{end}"
        )
    return cast(whole_numbers(shape, first, end, engine, random.checked(function, generator)), kind)


def whole_numbers(shape: Any, first: int, end: int, engine: Engine, generator: Generator | None) -> Tensor:
    """Numbers in first..end - 1, at most ``MOST_WHOLE`` of them, as int64."""
    fractions = engine.random(random.draw_uniform(shape, dtype=dtypes.widest_float, generator=generator))
    steps = floor(compute("mul", fractions, float(end - first)))
    numbers = cast(steps, dtypes.default_int)
    return compute("add", numbers, first) if first else numbers


def randperm(
    n: int,
    *,
    dtype: dtypes.DtypeLike = dtypes.default_int,
    engine: EngineLike = None,
    device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """0..n - 1 in random order."""
    count = whole("randperm", "n", n, least=0)
    where = engines.resolve(engine if device is None else chosen("randperm", engine, device))
    return cast(where.from_numpy(random.permutation(count, random.checked("randperm", generator))), dtype)


def bernoulli(input: Tensor, generator: Generator | None = None) -> Tensor:
    """1 with the probability that each element of the input is, else 0; in its dtype, outside the graph."""
    check_float("bernoulli", input)
    check_probabilities("bernoulli", input)
    return cast(lt(rand_like(input, generator=generator), input.detach()), input.dtype)


def check_probabilities(function: str, p: Tensor) -> None:
    """ArgumentError unless all elements are from 0 to 1."""
    q = p.detach()
    if not bool(((q >= 0) & (q <= 1)).all()):
        raise ArgumentError(f"[{function}] expected probabilities from 0 to 1, got others among them")


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, generator: Generator | None = None
) -> Tensor:
    """Indices drawn by weights that need not add up to 1: (C,) gives (num_samples,), (N, C) gives (N, num_samples).

    Without ``replacement`` an index comes once: the order is that of the largest log(w) - log(-log(u)) (Efraimidis &
    Spirakis, 2006). ArgumentError for negative weights, and for more samples than weights above 0.
    """
    check_float("multinomial", input)
    count = whole("multinomial", "num_samples", num_samples, least=1)
    again = flag("multinomial", "replacement", replacement)
    if input.ndim not in (1, 2) or not input.shape[-1]:
        raise ShapeError(f"[multinomial] expected weights (C,) or (N, C), got {input.shape}")
    w = cast(input.detach(), dtypes.widest_float)
    least = int((w > 0).sum(-1).min()) if w.numel() else count
    allowed = bool((w >= 0).all()) and not bool((w == math.inf).any())
    if not allowed or least < (1 if again else count):
        raise ArgumentError(
            f"[multinomial] expected finite weights >= 0, {1 if again else count} of them above 0 in each row, got "
            f"{f'rows of {least} above 0' if allowed else 'negative ones, infinities or NaN'}"
        )
    source = random.checked("multinomial", generator)
    if again:
        return _with_replacement(w, count, source)
    keys = log(w) - log(-log(clamp(rand_like(w, generator=source), min=1e-300)))
    return sort(keys, -1, descending=True).indices[..., :count].contiguous()


def _with_replacement(w: Tensor, count: int, generator: Generator) -> Tensor:
    """Where uniform numbers fall among the running sums of the weights."""
    sums = cumsum(w, -1)
    total = sums[..., -1:]
    shape = (*w.shape[:-1], count)
    u = w.engine.random(random.draw_uniform(shape, dtype=w.dtype, generator=generator)) * total
    below = unsqueeze(sums, -2) <= unsqueeze(u, -1)
    return minimum(below.sum(-1), (sums < total).sum(-1, keepdim=True))  # a product may round up to the total


class Written(Function):
    """Random numbers in the place of x, whose gradient ends there."""

    def forward(self, x: Tensor, draw: Draw) -> Tensor:
        x.engine.copy(x.engine.random(draw), x)
        return x

    def backward(self, grad: Tensor) -> Tensor:
        out: Tensor = grad.engine.full_like(grad, 0, grad.dtype)
        return out

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return grad.engine.full(grad.shape, 0, grad.dtype)


def uniform_(
    x: Tensor, low: float = 0.0, high: float = 1.0, generator: Generator | None = None, **options: float
) -> Tensor:
    """Every element drawn uniformly from [low, high), PyTorch's ``from`` and ``to``. Returns x."""
    check_float("uniform_", x)
    if options:
        low, high = options.pop("from", low), options.pop("to", high)
        if options:
            raise ArgumentError(f"[uniform_] expected low and high, got {', '.join(options)}")
    return write("uniform_", x, Written, draw=random.draw_uniform(x.shape, low, high, x.dtype, generator))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Every element drawn from a normal distribution. Returns x."""
    check_float("normal_", x)
    return write("normal_", x, Written, draw=random.draw_normal(x.shape, mean, std, x.dtype, generator))
