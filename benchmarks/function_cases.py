"""What the suite ``functions`` times: a case for each function, or for each way of calling it that differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Input(NamedTuple):
    """An argument: the numbers, and whether they are images, whose channels PyTorch wants as the second axis."""

    array: Array
    image: bool = False


Make = Callable[["Draw"], list[Input]]
Call = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A call beside PyTorch's counterpart.

    Args:
        function: the public function's name.
        make: the arguments for a size.
        ours: ``ours(alpha, *tensors)``.
        theirs: ``theirs(torch, *tensors)``, where it differs from ours.
        gradients: the arguments whose gradients are computed; none: only the forward is timed.
        variant: what tells it from other cases of the function.
        view: it moves no numbers, so that one size tells all.
        random: the two results differ.
    """

    function: str
    make: Make
    ours: Call
    theirs: Call | None = None
    gradients: Sequence[int] = (0,)
    variant: str = ""
    view: bool = False
    random: bool = False

    @property
    def name(self) -> str:
        """The function with its variant."""
        return f"{self.function}, {self.variant}" if self.variant else self.function

    @property
    def images(self) -> bool:
        """Whether arguments are images, which PyTorch has in two memory layouts."""
        return any(one.image for one in self.make(Draw(1, 0)))


class Draw:
    """Makes arguments of about ``size`` numbers, uniform in [-1, 1] unless asked otherwise."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self._rng = size, np.random.default_rng(seed)
        self.columns = 8 if size < 1000 else 1000
        self.rows = max(1, size // self.columns)
        self.side = math.isqrt(size)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of columns, as a batch has samples."""
        return self.rows, self.columns

    def numbers(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Input:
        """Float32 numbers; by default rows of columns."""
        wanted = shape or self.shape
        return Input(self._rng.uniform(low, high, wanted).astype(np.float32))

    def whole(self, high: int, *shape: int) -> Input:
        """Integers from 0 below a limit."""
        return Input(self._rng.integers(0, high, shape or self.shape))

    def of(self, dtype: str, low: int = 0) -> Input:
        """Numbers of a dtype, whole ones from a lowest below 100."""
        numbers = self._rng.integers(low, 2 if dtype == "bool" else 100, self.shape)
        return Input(numbers.astype(dtype))

    def distinct(self) -> Input:
        """Rows of columns, no two numbers equal."""
        return Input(self._rng.permutation(self.rows * self.columns).astype(np.float32).reshape(self.shape))

    def mask(self, *shape: int) -> Input:
        """Truth values."""
        return Input(self._rng.random(shape or self.shape) < 0.5)

    def images(self) -> Input:
        """(N, H, W, C)."""
        count, side, channels = (1, 4, 2) if self.size < 1000 else (max(1, self.size // 50_000), 28, 64)
        return Input(self.numbers(count, side, side, channels).array, True)


# -- arguments that many cases share ---------------------------------------------------------------------------------


def _one(d: Draw) -> list[Input]:
    return [d.numbers()]


def _positive(d: Draw) -> list[Input]:
    return [d.numbers(low=0.5, high=2.0)]


def _two(d: Draw) -> list[Input]:
    return [d.numbers(), d.numbers()]


def _divided(d: Draw) -> list[Input]:
    return [d.numbers(), d.numbers(low=0.5, high=2.0)]


def _both_masks(d: Draw) -> list[Input]:
    return [d.mask(), d.mask()]


def _image(d: Draw) -> list[Input]:
    return [d.images()]


def _channels(d: Draw, count: int) -> list[Input]:
    """Images, and so many numbers for each channel, in [0.5, 2]."""
    images = d.images()
    return [images, *(d.numbers(images.array.shape[3], low=0.5, high=2.0) for _ in range(count))]


def _columns(d: Draw, count: int) -> list[Input]:
    """Rows, and so many numbers for each column, in [0.5, 2]."""
    return [d.numbers(), *(d.numbers(d.columns, low=0.5, high=2.0) for _ in range(count))]


def _labelled(d: Draw) -> list[Input]:
    return [d.numbers(), d.whole(d.columns, d.rows)]


def _nothing(d: Draw) -> list[Input]:
    return []


def _same(name: str, make: Make = _one, gradients: Sequence[int] = (0,), **options: Any) -> Case:
    """A function that has its name and its arguments in PyTorch too."""
    return Case(name, make, lambda m, *xs: getattr(m, name)(*xs), gradients=gradients, **options)


def _conversion(source: str, target: str) -> Case:
    """Numbers in another dtype."""
    return Case(
        "cast",
        lambda d: [d.of(source)],
        lambda a, x: a.cast(x, target),
        lambda t, x: x.to(getattr(t, target)),
        (),
        f"{source} to {target}",
    )


_CONVERSIONS = (
    ("int64", "float32"), ("int32", "float32"), ("uint8", "float32"), ("bool", "float32"), ("float64", "float32"),
    ("float32", "int64"), ("float32", "int32"), ("float32", "uint8"), ("float32", "bool"), ("bool", "int64"),
    ("int32", "int64"), ("int64", "int32"), ("uint8", "int64"),
)  # fmt: skip


def _of_integers(name: str, dtype: str, number: int | None = None) -> Case:
    """A function of two tensors of integers, or of one and a number."""
    others: tuple[Any, ...] = () if number is None else (number,)
    return Case(
        name,
        lambda d: [d.of(dtype)] if others else [d.of(dtype), d.of(dtype, low=1)],
        lambda m, *xs: getattr(m, name)(*xs, *others),
        gradients=(),
        variant=dtype if number is None else f"{dtype} and a number",
    )


_INTEGER_FUNCTIONS = ("add", "sub", "mul", "floor_divide", "remainder", "maximum", "eq", "lt")


def _functional(name: str, make: Make = _one, gradients: Sequence[int] = (0,), *more: Any) -> Case:
    """A function of PyTorch's ``nn.functional``."""
    return Case(
        name,
        make,
        lambda a, *xs: getattr(a, name)(*xs, *more),
        lambda t, *xs: getattr(t.nn.functional, name)(*xs, *more),
        gradients,
    )


def _along(name: str, variant: str, *arguments: Any, gradients: Sequence[int] = (0,), first: bool = False) -> Case:
    """A reduction along an axis, or over all; the first of its results where it has two."""

    def called(namespace: Any, x: Any) -> Any:
        found = getattr(namespace, name)(x, *arguments)
        return found[0] if first else found

    return Case(name, _one, called, gradients=gradients, variant=variant)


def _selected(dim: int, variant: str) -> Case:
    """``index_select`` along an axis."""

    def make(d: Draw) -> list[Input]:
        return [d.numbers(), d.whole(d.shape[dim], d.shape[dim])]

    return Case("index_select", make, lambda m, x, index: m.index_select(x, dim, index), variant=variant)


def _gathered(dim: int, variant: str) -> Case:
    """``gather`` along an axis."""

    def make(d: Draw) -> list[Input]:
        return [d.numbers(), d.whole(d.shape[dim])]

    return Case("gather", make, lambda m, x, index: m.gather(x, dim, index), variant=variant)


def _table(d: Draw) -> Input:
    """What ``embedding`` looks up."""
    return d.numbers(50, 32) if d.size < 1000 else d.numbers(20_000, 256)


# -- the cases, a family after the other -----------------------------------------------------------------------------

_ELEMENTWISE = [
    *(_same(name) for name in ("abs", "cos", "erf", "exp", "expm1", "neg", "sigmoid", "sin", "square", "tanh")),
    *(_same(name, _positive) for name in ("log", "log1p", "reciprocal", "rsqrt", "sqrt")),
    *(_same(name, gradients=()) for name in ("ceil", "floor", "isfinite", "isnan", "sign")),
    *(_same(name, _two, (0, 1)) for name in ("add", "maximum", "minimum", "mul", "sub")),
    _same("div", _divided, (0, 1)),
    *(_same(name, _divided, ()) for name in ("floor_divide", "remainder")),
    *(_same(name, _two, ()) for name in ("eq", "ge", "gt", "le", "lt", "ne")),
    *(_same(name, _both_masks, ()) for name in ("logical_and", "logical_or", "logical_xor")),
    _same("logical_not", lambda d: [d.mask()], ()),
    Case(
        "add",
        lambda d: [d.numbers(), d.numbers(d.columns)],
        lambda a, x, y: a.add(x, y),
        lambda t, x, y: t.add(x, y),
        (0, 1),
        "a row to each",
    ),
    Case("mul", _one, lambda a, x: a.mul(x, 0.5), lambda t, x: t.mul(x, 0.5), variant="by a number"),
    Case("pow", _positive, lambda a, x: a.pow(x, 1.5), lambda t, x: t.pow(x, 1.5)),
    Case("clamp", _one, lambda a, x: a.clamp(x, -0.5, 0.5), lambda t, x: t.clamp(x, -0.5, 0.5)),
    _same("where", lambda d: [d.mask(), d.numbers(), d.numbers()], (1, 2)),
    Case("masked_fill", lambda d: [d.numbers(), d.mask()], lambda m, x, mask: m.masked_fill(x, mask, 0.0)),
    Case("cast", _one, lambda a, x: a.cast(x, "float64"), lambda t, x: x.to(t.float64), variant="to float64"),
    *(_conversion(*pair) for pair in _CONVERSIONS),
    Case("to", _one, lambda a, x: a.to(x, "float64"), lambda t, x: x.to(t.float64), (), "float64"),
    _same("clone"),
    *(_of_integers(name, dtype) for dtype in ("int64", "int32", "uint8") for name in _INTEGER_FUNCTIONS),
    *(_of_integers(name, "int64", 3) for name in ("add", "mul", "floor_divide", "remainder", "lt", "pow")),
    *(
        Case(
            name,
            lambda d: [d.whole(100), Input(np.ones(d.shape, np.int64))],
            lambda a, x, y, name=name: getattr(a, name)(x, y),
            lambda t, x, y, name=name: getattr(x, name)(y),
            (),
            "int64",
        )
        for name in ("add_", "mul_")
    ),
    Case("clamp", lambda d: [d.whole(100)], lambda m, x: m.clamp(x, 20, 80), gradients=(), variant="int64"),
    Case("neg", lambda d: [d.whole(100)], lambda m, x: m.neg(x), gradients=(), variant="int64"),
    Case("abs", lambda d: [d.whole(100)], lambda m, x: m.abs(x), gradients=(), variant="int64"),
    Case("sign", lambda d: [d.whole(100)], lambda m, x: m.sign(x), gradients=(), variant="int64"),
    Case(
        "where",
        lambda d: [d.mask(), d.whole(100), d.whole(100)],
        lambda m, mask, x, y: m.where(mask, x, y),
        gradients=(),
        variant="int64",
    ),
    *(
        Case(
            name,
            make,
            lambda a, x, y, name=name: getattr(a, name)(x, y),
            lambda t, x, y, name=name: getattr(x, name)(y),
            (),
        )
        for name, make in (
            ("add_", lambda d: [d.numbers(), Input(np.zeros(d.shape, np.float32))]),
            ("sub_", lambda d: [d.numbers(), Input(np.zeros(d.shape, np.float32))]),
            ("mul_", lambda d: [d.numbers(), Input(np.ones(d.shape, np.float32))]),
            ("div_", lambda d: [d.numbers(), Input(np.ones(d.shape, np.float32))]),
            ("copy_", _two),
        )
    ),
]

_ACTIVATIONS = [
    _same("relu"),
    *(_functional(name) for name in ("gelu", "leaky_relu", "silu", "softplus")),
    *(
        _functional(name)
        for name in (
            "celu",
            "elu",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "logsigmoid",
            "mish",
            "relu6",
            "selu",
            "softshrink",
            "softsign",
            "tanhshrink",
        )
    ),
    _functional("threshold", _one, (0,), 0.1, 2.0),
    _functional("glu", lambda d: [d.numbers(max(1, d.size // 64), 64 if d.size >= 64 else d.size)], (0,), -1),
    _functional("softmin", _one, (0,), -1),
    Case(
        "prelu",
        lambda d: [d.numbers(), d.numbers(1)],
        lambda a, x, w: a.prelu(x, w),
        lambda t, x, w: t.nn.functional.prelu(x, w),
        (0, 1),
    ),
    Case(
        "gelu",
        _one,
        lambda a, x: a.gelu(x, approximate="tanh"),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        variant="tanh",
    ),
    *(_functional(name, _one, (0,), -1) for name in ("log_softmax", "softmax")),
    Case(
        "softmax",
        _one,
        lambda a, x: a.softmax(x, 0),
        lambda t, x: t.softmax(x, 0),
        variant="down the columns",
    ),
    Case(
        "dropout",
        _one,
        lambda a, x: a.dropout(x, 0.3),
        lambda t, x: t.nn.functional.dropout(x, 0.3),
        random=True,
    ),
]

_REDUCTIONS = [
    *(_along(name, "of all") for name in ("max", "mean", "min", "norm", "std", "sum", "var")),
    *(_along(name, "along rows", -1) for name in ("logsumexp", "mean", "std", "sum", "var")),
    *(_along(name, "down columns", 0) for name in ("mean", "sum", "var")),
    *(_along(name, "along rows", -1, first=True) for name in ("max", "min")),
    *(_along(name, "along rows", -1, gradients=()) for name in ("argmax", "argmin")),
    *(_along("cumsum", variant, axis) for variant, axis in (("along rows", -1), ("down columns", 0))),
    Case("sort", lambda d: [d.distinct()], lambda m, x: m.sort(x, -1)[0], variant="along rows"),
    Case(
        "prod",
        lambda d: [d.numbers(low=0.99, high=1.01)],
        lambda m, x: m.prod(x, -1),
        variant="along rows",
    ),
    *(
        Case(name, lambda d: [d.mask()], lambda m, x, name=name: getattr(m, name)(x, -1), gradients=())
        for name in ("all", "any")
    ),
]

_SHAPES = [
    Case("broadcast_to", lambda d: [d.numbers(d.columns)], lambda m, x: m.broadcast_to(x, (4, *x.shape)), view=True),
    Case(
        "expand",
        lambda d: [d.numbers(1, d.columns)],
        lambda a, x: a.expand(x, (4, -1)),
        lambda t, x: x.expand(4, -1),
        view=True,
    ),
    Case("reshape", _one, lambda m, x: m.reshape(x, (-1,)), view=True),
    Case("flatten", _one, lambda m, x: m.flatten(x), view=True),
    Case("permute", _one, lambda m, x: m.permute(x, (1, 0)), view=True),
    Case("transpose", _one, lambda m, x: m.transpose(x, 0, 1), view=True),
    Case("squeeze", lambda d: [d.numbers(1, *d.shape)], lambda m, x: m.squeeze(x, 0), view=True),
    Case("unsqueeze", _one, lambda m, x: m.unsqueeze(x, 0), view=True),
    Case("split", _one, lambda m, x: m.split(x, 2)[0], view=True),
    Case("chunk", _one, lambda m, x: m.chunk(x, 2)[0], view=True),
    Case(
        "getitem",
        _one,
        lambda a, x: a.getitem(x, slice(None, None, 2)),
        lambda t, x: x[::2],
        variant="a slice",
        view=True,
    ),
    Case(
        "contiguous",
        _one,
        lambda m, x: m.transpose(x, 0, 1).contiguous(),
        variant="of a transposed matrix",
    ),
    Case(
        "contiguous",
        lambda d: [Input(d.images().array)],
        lambda m, x: m.permute(x, (0, 3, 1, 2)).contiguous(),
        variant="of images, channels first",
    ),
    Case("contiguous", _one, lambda m, x: x[:, : x.shape[1] // 2].contiguous(), variant="of half the columns"),
    Case("cat", _two, lambda m, x, y: m.cat([x, y], 0), gradients=(0, 1), variant="of rows"),
    Case("cat", _two, lambda m, x, y: m.cat([x, y], 1), gradients=(0, 1), variant="of columns"),
    Case("concat", _two, lambda m, x, y: m.concat([x, y], 0), gradients=(0, 1)),
    Case("stack", _two, lambda m, x, y: m.stack([x, y], 0), gradients=(0, 1), variant="of matrices"),
    Case("stack", _two, lambda m, x, y: m.stack([x, y], -1), gradients=(0, 1), variant="of numbers"),
    Case(
        "pad",
        _one,
        lambda a, x: a.pad(x, (2, 2, 2, 2), "reflect"),
        lambda t, x: t.nn.functional.pad(x[None], (2, 2, 2, 2), "reflect")[0],
        variant="reflect",
    ),
    Case("pad", _one, lambda a, x: a.pad(x, (2, 2, 2, 2)), lambda t, x: t.nn.functional.pad(x, (2, 2, 2, 2))),
    Case("flip", _one, lambda m, x: m.flip(x, (1,)), variant="of columns"),
    Case("flip", _one, lambda m, x: m.flip(x, (0,)), variant="of rows"),
    Case("tile", _one, lambda m, x: m.tile(x, (2, 1)), variant="of rows"),
    Case("repeat", _one, lambda a, x: a.repeat(x, (1, 2)), lambda t, x: x.repeat(1, 2), variant="of columns"),
]

_INDEXING = [
    Case(
        "getitem",
        lambda d: [d.numbers(), d.whole(d.rows, d.rows)],
        lambda a, x, index: a.getitem(x, index),
        lambda t, x, index: x[index],
        variant="of rows",
    ),
    Case(
        "getitem",
        lambda d: [d.numbers(), d.mask()],
        lambda a, x, mask: a.getitem(x, mask),
        lambda t, x, mask: x[mask],
        variant="by a mask",
    ),
    *(_selected(dim, variant) for dim, variant in ((0, "of rows"), (1, "of columns"))),
    *(_gathered(dim, variant) for dim, variant in ((0, "from rows"), (1, "from columns"))),
    Case(
        "take_along_dim",
        lambda d: [d.numbers(), d.whole(d.columns)],
        lambda a, x, index: a.take_along_dim(x, index, 1),
        lambda t, x, index: t.take_along_dim(x, index, 1),
    ),
    Case(
        "one_hot",
        lambda d: [d.whole(d.columns, d.rows)],
        lambda a, x: a.one_hot(x, 1000),
        lambda t, x: t.nn.functional.one_hot(x, 1000),
        (),
    ),
    *(
        Case(
            "setitem",
            make,
            lambda a, x, *rest: a.setitem(x, *rest),
            lambda t, x, *rest: x.__setitem__(*rest),
            (),
            variant,
        )
        for variant, make in (
            ("of rows", lambda d: [d.numbers(), Input(np.arange(d.rows)[::-1].copy()), d.numbers()]),
            ("by a mask", lambda d: [d.numbers(), d.mask(), Input(np.zeros((), np.float32))]),
        )
    ),
    Case(
        "embedding",
        lambda d: [d.whole(50 if d.size < 1000 else 20_000, max(1, d.size // 256)), _table(d)],
        lambda a, x, table: a.embedding(x, table),
        lambda t, x, table: t.nn.functional.embedding(x, table),
        (1,),
    ),
]


_IMAGES = [
    *(
        Case(
            name,
            _image,
            lambda a, x, name=name, rest=rest: getattr(a, name)(x, *rest),
            lambda t, x, name=name, rest=rest: getattr(t.nn.functional, name)(x, *rest),
            variant=variant,
        )
        for name, variant, rest in (
            ("avg_pool2d", "2x2", (2,)),
            ("avg_pool2d", "3x3 s1", (3, 1, 1)),
            ("max_pool2d", "2x2", (2,)),
            ("max_pool2d", "3x3 s2", (3, 2, 1)),
            ("adaptive_avg_pool2d", "to 1x1", (1,)),
            ("adaptive_avg_pool2d", "to 3x3", (3,)),
        )
    ),
    *(
        Case(
            "interpolate",
            _image,
            lambda a, x, mode=mode, factor=factor: a.interpolate(x, scale_factor=factor, mode=mode),
            lambda t, x, mode=mode, factor=factor: t.nn.functional.interpolate(x, scale_factor=factor, mode=mode),
            variant=f"{mode} {factor}",
        )
        for mode, factor in (("nearest", 2), ("nearest", 1.5), ("bilinear", 2))
    ),
    Case(
        "batch_norm",
        lambda d: _channels(d, 4),
        lambda m, x, mean, var, w, b: _functional_of(m).batch_norm(x, mean, var, w, b, True),
        gradients=(0, 3, 4),
    ),
    Case(
        "group_norm",
        lambda d: _channels(d, 2),
        lambda m, x, w, b: _functional_of(m).group_norm(x, 2, w, b),
        gradients=(0, 1, 2),
    ),
    _functional("instance_norm", _image),
]


def _functional_of(namespace: Any) -> Any:
    return namespace.nn.functional


def _heads(d: Draw) -> list[Input]:
    """Query, key and value: of 8 heads, up to 1,024 tokens and 64 numbers, or of 2 heads, 2 tokens and 8."""
    heads, size = (2, 8) if d.size < 1000 else (8, 64)
    tokens = max(2, min(1024, d.size // (heads * size)))
    batch = max(1, d.size // (heads * size * tokens))
    return [d.numbers(batch, heads, tokens, size) for _ in range(3)]


def _attention(variant: str, **options: Any) -> Case:
    return Case(
        "scaled_dot_product_attention",
        _heads,
        lambda m, q, k, v: _functional_of(m).scaled_dot_product_attention(q, k, v, **options),
        gradients=(0, 1, 2),
        variant=variant,
    )


_LAYERS = [
    _attention(""),
    _attention("causal", is_causal=True),
    Case(
        "layer_norm",
        lambda d: _columns(d, 2),
        lambda m, x, w, b: _functional_of(m).layer_norm(x, (x.shape[1],), w, b),
        gradients=(0, 1, 2),
    ),
    Case(
        "rms_norm",
        lambda d: _columns(d, 1),
        lambda m, x, w: _functional_of(m).rms_norm(x, (x.shape[1],), w, 1e-5),
        gradients=(0, 1),
    ),
    *(_functional(name, _labelled) for name in ("cross_entropy", "nll_loss")),
    *(_functional(name, _two) for name in ("l1_loss", "mse_loss")),
    _functional("binary_cross_entropy_with_logits", lambda d: [d.numbers(), d.numbers(low=0.0)]),
    _functional(
        "linear",
        lambda d: [d.numbers(), d.numbers(d.columns, d.columns), d.numbers(d.columns)],
        (0, 1, 2),
    ),
    Case(
        "linear",
        lambda d: [d.numbers(), d.numbers(d.columns, d.columns), d.numbers(d.columns)],
        lambda a, x, w, b: a.linear(x, w, b, a.gelu),
        lambda t, x, w, b: t.nn.functional.gelu(t.nn.functional.linear(x, w, b)),
        gradients=(0, 1, 2),
        variant="with gelu",
    ),
    _same("matmul", lambda d: [d.numbers(d.side, d.side), d.numbers(d.side, d.side)], (0, 1), variant="of squares"),
    _same(
        "matmul",
        lambda d: [d.numbers(max(1, d.size // 4096), *((4, 4) if d.size < 1000 else (64, 64))) for _ in range(2)],
        (0, 1),
        variant="of a batch",
    ),
    _same("dot", lambda d: [d.numbers(d.size), d.numbers(d.size)], (0, 1)),
    _same("outer", lambda d: [d.numbers(d.side), d.numbers(d.side)], (0, 1)),
]

_CREATION = [
    *(
        Case(
            name,
            lambda d: [Input(np.empty(d.shape, np.bool_))],
            lambda m, x, name=name: getattr(m, name)(tuple(x.shape)),
            gradients=(),
            random=name in ("empty", "rand", "randn"),
        )
        for name in ("empty", "ones", "rand", "randn", "zeros")
    ),
    *(_same(name, _one, (), random=True) for name in ("empty_like", "rand_like", "randn_like")),
    Case("randint", _one, lambda m, x: m.randint(0, 100, tuple(x.shape)), gradients=(), random=True),
    Case("randint_like", _one, lambda m, x: m.randint_like(x, 100), gradients=(), random=True),
    Case("randperm", _one, lambda a, x: a.randperm(x.numel()), lambda t, x: t.randperm(x.numel()), (), random=True),
    Case("bernoulli", lambda d: [d.numbers(low=0.1, high=0.9)], lambda m, p: m.bernoulli(p), gradients=(), random=True),
    Case("normal", _one, lambda m, x: m.normal(0.0, 1.0, tuple(x.shape)), gradients=(), random=True),
    Case(
        "multinomial",
        lambda d: [d.numbers(max(1, d.size // 1000), min(1000, d.size), low=0.1, high=1.0)],
        lambda m, w: m.multinomial(w, 4),
        gradients=(),
        random=True,
    ),
    Case("linspace", _one, lambda a, x: a.linspace(0, 1, x.numel()), lambda t, x: t.linspace(0, 1, x.numel()), ()),
    Case("logspace", _one, lambda a, x: a.logspace(0, 1, x.numel()), lambda t, x: t.logspace(0, 1, x.numel()), ()),
    _same("as_tensor", _one, (), view=True),
    Case(
        "full", lambda d: [Input(np.empty(d.shape, np.bool_))], lambda m, x: m.full(tuple(x.shape), 0.5), gradients=()
    ),
    *(_same(name, _one, ()) for name in ("ones_like", "zeros_like")),
    Case("full_like", _one, lambda m, x: m.full_like(x, 0.5), gradients=()),
    Case("arange", _one, lambda a, x: a.arange(x.numel()), lambda t, x: t.arange(x.numel()), ()),
    Case("eye", lambda d: [d.numbers(d.side)], lambda m, x: m.eye(x.shape[0]), gradients=()),
]

CASES = [
    *_ELEMENTWISE, *_ACTIVATIONS, *_REDUCTIONS, *_SHAPES, *_INDEXING, *_IMAGES, *_LAYERS, *_CREATION
]  # fmt: skip


_BY_NAME = {one.name: one for one in CASES}


def case(name: str) -> Case:
    """The case of a name."""
    return _BY_NAME[name]
