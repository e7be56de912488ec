"""Random arguments: arrays of every dtype, size and kind of values, seen through views, and their source text."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Step = tuple[str, Any]

FLOATS = ("float32", "float64")
INTEGERS = ("uint8", "int32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "bool")

SPECIAL = (
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    -1e-40,
    1e-38,
    3.4028234663852886e38,
    -3e38,
    1e30,
)
"""Values at which a formula that is right elsewhere fails; all are float32 numbers or round to one."""

BEHIND = 2**21
"""Most elements of an array of which an argument is a view: the oracles hold it in float64, several times."""

TEXT_ELEMENTS = 64
"""Arrays of more elements are not written out in a reproducer."""


@dataclass(eq=False)
class Base:
    """An array that one or several inputs view.

    Attributes:
        requires_grad: whether the tensor made of it is a leaf whose gradient is compared.
        copied: whether the inputs view a copy of that leaf, so that they may be written to.
    """

    array: Array
    requires_grad: bool = False
    copied: bool = False
    origin: Base | None = None  # of a base made by converting another one

    @property
    def key(self) -> int:
        """What tells it from other bases, the same for converted ones."""
        return id(self if self.origin is None else self.origin)


@dataclass(eq=False)
class Input:
    """A tensor argument: a base and the steps ("permute", "index", "expand", "flip") that lead to a view of it."""

    base: Base
    steps: tuple[Step, ...] = ()

    def numpy(self, array: Array | None = None) -> Array:
        """The view of the base's array, or of another array in its place."""
        out = self.base.array if array is None else array
        for kind, value in self.steps:
            if kind == "permute":
                out = out.transpose(value)
            elif kind == "index":
                out = out[value]
            elif kind == "expand":
                out = np.broadcast_to(out, value)
            else:
                out = np.flip(out, value)
        return out

    def follow(self, tensor: Any) -> Any:
        """The same view of a tensor, of ours or of PyTorch."""
        for kind, value in self.steps:
            if kind == "permute":
                tensor = tensor.permute(value)
            elif kind == "index":
                tensor = tensor[value]
            elif kind == "expand":
                tensor = tensor.expand(value)
            else:
                tensor = tensor.flip(value)
        return tensor

    @property
    def shape(self) -> Shape:
        """The view's shape."""
        shape: Shape = self.numpy().shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The base's dtype."""
        dtype: np.dtype[Any] = self.base.array.dtype
        return dtype


@dataclass
class Case:
    """One call's arguments; ``Input`` stands for tensors, also within lists, tuples and dicts.

    Attributes:
        valid: whether the function has to take them: else it may also refuse them with an AlphaError.
        ordinary: whether all values are of moderate size and finite.
        spoiled: whether an argument was made wrong on purpose: results are then not compared.
    """

    args: list[Any]
    options: dict[str, Any] = field(default_factory=dict)
    valid: bool = True
    ordinary: bool = True
    spoiled: bool = False
    _bases: list[Base] | None = None

    def inputs(self) -> list[Input]:
        """All tensor arguments, each once."""
        found: dict[int, Input] = {}
        walk((self.args, self.options), lambda value: found.setdefault(id(value), value))
        return list(found.values())

    def bases(self) -> list[Base]:
        """The arrays behind them, each once; to be asked for once the arguments are complete."""
        if self._bases is None:
            self._bases = list({id(i.base): i.base for i in self.inputs()}.values())
        return self._bases

    def size(self) -> int:
        """Number of elements of all arrays: what a smaller reproducer has less of."""
        return sum(base.array.size for base in self.bases())


def walk(value: Any, change: Callable[[Input], Any]) -> Any:
    """The same structure of lists, tuples and dicts with every Input changed."""
    if isinstance(value, Input):
        return change(value)
    if isinstance(value, list):
        return [walk(v, change) for v in value]
    if type(value) is tuple:
        return tuple([walk(v, change) for v in value])
    if isinstance(value, dict):
        return {k: walk(v, change) for k, v in value.items()}
    return value


# -- drawing -----------------------------------------------------------------------------------------------------


class Draw:
    """The random numbers of one call: a function of the campaign's seed and the call's number alone.

    Args:
        limit: most elements of an array; None draws it, small nearly always.
    """

    def __init__(self, seed: int, index: int, limit: int | None = None) -> None:
        self.py = random.Random((seed << 40) ^ index)
        self.np = np.random.Generator(np.random.Philox(key=np.array([seed, index], np.uint64)))
        chance = self.py.random()
        if limit is None:
            limit = 200 if chance < 0.95 else 4000 if chance < 0.997 else 120_000
        self.limit = limit
        chance = self.py.random()
        self.values = "ordinary" if chance < 0.88 else "special" if chance < 0.96 else "extreme"

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.py.random() < p

    def pick(self, values: Sequence[Any]) -> Any:
        """One of several."""
        return values[int(self.py.random() * len(values))]

    def whole(self, low: int, high: int) -> int:
        """An int in low..high."""
        return low + int(self.py.random() * (high - low + 1))

    # -- shapes

    def length(self, least: int = 0) -> int:
        """An axis's length: small mostly, at times empty, at times around the widths of vectors and tiles."""
        chance = self.py.random()
        if chance < 0.04:
            found = 0
        elif chance < 0.20:
            found = 1
        elif chance < 0.72:
            found = self.whole(2, 4)
        elif chance < 0.93:
            found = self.whole(5, 9)
        else:
            found = int(self.pick((8, 16, 32, 48, 64, 128, 256))) + self.whole(-1, 1)
        return max(found, least)

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> Shape:
        """A shape of low..high axes within the limit."""
        return self.fit([self.length(least) for _ in range(self.whole(low, high))])

    def fit(self, lengths: list[int]) -> Shape:
        """Lengths cut until their product is within the limit."""
        while math.prod(lengths) > self.limit:
            longest = max(range(len(lengths)), key=lengths.__getitem__)
            lengths[longest] = max(1, lengths[longest] // 2)
        return tuple(lengths)

    def axis(self, ndim: int) -> int:
        """An axis, counted from either end."""
        return self.whole(-ndim, ndim - 1)

    def axes(self, ndim: int) -> Any:
        """What reductions take: None, an axis, or several."""
        chance = self.py.random()
        if chance < 0.3:
            return None
        if chance < 0.75 and ndim:
            return self.axis(ndim)
        chosen = self.py.sample(range(ndim), self.whole(0, ndim))
        return tuple(a if self.chance(0.5) else a - ndim for a in chosen)

    def broadcastable(self, shape: Shape) -> Shape:
        """A shape that broadcasts to another one."""
        cut = self.whole(0, len(shape)) if self.chance(0.3) else 0
        return tuple(1 if self.chance(0.25) else n for n in shape[cut:])

    # -- values

    def array(self, shape: Shape, dtype: str, kind: str = "normal") -> Array:
        """Values of a kind: "normal", "positive", "unit" (0..1), "whole" (small integers), "distinct" (no two alike).

        Floats may hold special or extreme values instead, where this call's do.
        """
        rng = self.np
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(np.bool_)
        if dtype in INTEGERS:
            low, high = (0, 12) if dtype == "uint8" or kind == "positive" else (-9, 10)
            if self.values == "extreme":
                info = np.iinfo(dtype)
                return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            if self.values == "special":
                info = np.iinfo(dtype)
                return rng.choice(
                    np.array([info.min, info.max, info.max - 1, 0, 1, info.max if info.min == 0 else -1], dtype), shape
                )
            return rng.integers(low, high, shape).astype(dtype)
        if kind == "positive":
            out = np.exp(rng.standard_normal(shape))
        elif kind == "unit":
            out = rng.random(shape)
        elif kind == "whole":
            out = rng.integers(-3, 4, shape).astype(np.float64)
        elif kind == "distinct":
            size = math.prod(shape)
            out = (rng.permutation(size) - size / 2 + 0.25).reshape(shape) / max(1, size) * 8
        else:
            out = rng.standard_normal(shape)
        if self.values != "ordinary" and out.size:
            out = self._unusual(np.asarray(out), kind)
        with np.errstate(over="ignore"):
            return np.asarray(out, dtype)

    def _unusual(self, values: Array, kind: str) -> Array:
        flat = values.reshape(-1).copy()
        count = self.whole(1, max(1, min(flat.size, 4)))
        if self.values == "special":
            for _ in range(count):
                flat[self.whole(0, flat.size - 1)] = self.pick(SPECIAL)
        else:
            flat *= 10.0 ** self.whole(-36, 36)
        return (np.abs(flat) if kind in ("positive", "unit") else flat).reshape(values.shape)

    def number(self, kinds: str = "fib") -> Any:
        """A Python number."""
        kind = self.pick(kinds)
        if kind == "b":
            return self.chance(0.5)
        if kind == "i":
            return self.whole(-3, 5)
        if self.values == "special" and self.chance(0.5):
            return self.pick(SPECIAL)
        return self.pick((0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, round(self.py.gauss(0, 2), 3)))

    # -- tensors

    def dtype(self, kinds: str = "f") -> str:
        """A dtype of the kinds: f(loats), i(ntegers), b(ool)."""
        kind = self.pick(kinds)
        if kind == "f":
            return "float32" if self.chance(0.75) else "float64"
        return self.pick(INTEGERS) if kind == "i" else "bool"

    def input(
        self,
        shape: Shape,
        dtype: str | None = None,
        kind: str = "normal",
        grad: float = 0.6,
        written: bool = False,
        views: float = 0.35,
    ) -> Input:
        """A tensor of a shape: dense, or a view of a larger, permuted or repeated array.

        Args:
            grad: the chance that a float tensor requires a gradient.
            written: whether the function writes to it.
            views: the chance of a view.
        """
        name = self.dtype() if dtype is None else dtype
        steps: list[Step] = []
        base = shape
        if shape and self.chance(views):
            base, steps = self._view(shape, written)
            if math.prod(base) > BEHIND:
                base, steps = shape, []
        array = self.array(base, name, kind)
        requires = name in FLOATS and self.chance(grad)
        return Input(Base(array, requires, written), tuple(steps))

    def _view(self, shape: Shape, written: bool) -> tuple[Shape, list[Step]]:
        """The shape of a base, and steps from it to the shape."""
        base = list(shape)
        steps: list[Step] = []
        for _ in range(self.pick((1, 1, 2))):
            kind = self.pick(("permute", "slice", "slice", "drop", "expand", "flip"))
            ndim = len(base)
            if kind == "permute":
                order = self.py.sample(range(ndim), ndim)
                steps.append(("permute", tuple(order)))
                old = base
                base = [0] * ndim
                for place, axis in enumerate(order):
                    base[axis] = old[place]
            elif kind == "slice":
                base, key = self._larger(base)
                steps.append(("index", key))
            elif kind == "drop":
                at = self.whole(0, ndim)
                count = self.whole(1, 3)
                steps.append(("index", (*[slice(None)] * at, self.whole(-count, count - 1))))
                base = [*base[:at], count, *base[at:]]
            elif kind == "expand" and not written:
                steps.append(("expand", tuple(base)))
                base = [1 if n and self.chance(0.4) else n for n in base]
            elif kind == "flip" and not written and base:
                steps.append(("flip", (self.whole(0, ndim - 1),)))
        return tuple(base), steps[::-1]

    def _larger(self, shape: list[int]) -> tuple[list[int], tuple[slice, ...]]:
        """A larger shape, and the slices of it that have this shape."""
        base: list[int] = []
        key: list[slice] = []
        for n in shape:
            before, step = self.pick((0, 0, 1, 3)), self.pick((1, 1, 1, 2, 3))
            after = self.pick((0, 0, 1, 2))
            length = before + max(n - 1, 0) * step + min(n, 1) + after
            if n == 0:
                key.append(slice(before, before))
            else:
                key.append(slice(before, before + (n - 1) * step + 1, step))
            base.append(length)
        return base, tuple(key)


# -- source text -------------------------------------------------------------------------------------------------


def source(name: str, case: Case) -> str:
    """Python source of a call, each array on a line of its own."""
    lines: list[str] = []
    names: dict[int, str] = {}
    for base in case.bases():
        names[id(base)] = f"b{len(names)}"
        grad = ".requires_grad_()" if base.requires_grad else ""
        lines.append(f"{names[id(base)]} = alpha.tensor({_array_text(base.array)}){grad}")
        if base.copied:
            lines.append(f"{names[id(base)]}_copy = {names[id(base)]}.clone()")

    def text(value: Any) -> str:
        if isinstance(value, Input):
            return (
                names[id(value.base)] + ("_copy" if value.base.copied else "") + "".join(map(_step_text, value.steps))
            )
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        if type(value) is tuple:
            return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, np.ndarray):
            return _array_text(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, type) or callable(value):
            return f"{value.__module__}.{value.__qualname__}"
        return repr(value)

    given = [text(value) for value in case.args] + [f"{k}={text(v)}" for k, v in case.options.items()]
    lines.append(f"{name}({', '.join(given)})")
    return "\n".join(lines)


def _array_text(array: Array) -> str:
    if array.size > TEXT_ELEMENTS:
        return f"np.random.default_rng(0).normal(size={array.shape}).astype({array.dtype.name!r})"
    values = repr(array.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    if array.size == 0:
        return f"np.zeros({array.shape}, {array.dtype.name!r})"
    return f"np.array({values}, {array.dtype.name!r})"


def _step_text(step: Step) -> str:
    kind, value = step
    if kind == "index":
        return f"[{', '.join(map(_key_text, value))}]"
    return f".{kind}{value if len(value) != 1 else f'({value[0]},)'}"


def _key_text(key: Any) -> str:
    if not isinstance(key, slice):
        return repr(key)
    bounds = ["" if end is None else str(end) for end in (key.start, key.stop)]
    return ":".join(bounds if key.step in (None, 1) else [*bounds, str(key.step)])
