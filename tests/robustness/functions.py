"""Every public function in one table: how it is called here, how PyTorch calls it, and what shapes its arguments have.

``test_special_values`` fills the shapes with infinities, NaN, zeros of both signs, denormals and the largest numbers;
``test_empty`` makes one axis after another 0. A new function fails both until it has a record (or a reason not to).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import linalg

SIZES = {"n": 2, "h": 5, "w": 4, "c": 4, "o": 6, "k": 3, "i": 3, "j": 2, "d": 3, "l": 6, "p": 3, "q": 2}
"""The length of each axis by its letter; a letter means one length in all arguments of a record."""


@dataclass(frozen=True)
class Record:
    """A way to call a public function.

    Attributes:
        name: the function, as ``alpha.<name>`` or ``alpha.linalg.<name>``.
        ours: calls it with tensors.
        theirs: calls PyTorch's counterpart with (torch, tensors); layouts are ours, channels last.
        shapes: of each argument its axes as letters of ``SIZES``; ``n@c`` are int64 below c, ``n?`` bools, ``n+``
            floats that stay ordinary and positive (variances), ``n~`` floats that stay ordinary.
        values: "each": element by element, all special values (and all pairs of them); "rows": reduced along the last
            axis, all triples; "mixed": ordinary numbers with special ones among them.
        variant: tells records of one function apart.
        rtol: relative tolerance in float32; in float64 it is 1e-7 of that.
        signs: whether the sign of zeros is compared.
        gradient: whether gradients are compared.
        special: whether the record takes part in the test of special values.
        extremes: whether the largest, the smallest normal and subnormal numbers are among the special values: of sums
            and squares their order and their precision decide which overflow, and neither is promised.
        empties: whether the record takes part in the test of empty tensors.
        apart: axes (letters, ``*`` for all at once) at whose length 0 ours raises or differs where PyTorch gives a
            result, and why.
        differs: what special values PyTorch treats otherwise, and why ours is right; they are left out.
        skip: tells whether a sample (arrays) has such values.
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: tuple[str, ...] = ("pq",)
    values: str = "mixed"
    variant: str = ""
    rtol: float = 1e-5
    signs: bool = False
    gradient: bool = True
    special: bool = True
    extremes: bool = False
    empties: bool = True
    apart: dict[str, str] = field(default_factory=dict)
    differs: str = ""
    skip: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name


RECORDS: list[Record] = []


def record(name: str, ours: Any, theirs: Any, *shapes: str, **options: Any) -> None:
    """Enters a record; one that is compared element by element meets the largest and smallest numbers too."""
    options.setdefault("extremes", options.get("values") == "each")
    RECORDS.append(Record(name, ours, theirs, shapes or ("pq",), **options))


def first(x: Any) -> Any:
    """PyTorch's channels-first view of what is channels-last here."""
    return x.movedim(-1, 1)


def last(x: Any) -> Any:
    """The reverse."""
    return x.movedim(1, -1)


# -- element by element ------------------------------------------------------------------------------------------

for _name in [
    "abs",
    "ceil",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "log",
    "log1p",
    "neg",
    "reciprocal",
    "rsqrt",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tanh",
    "isfinite",
    "isnan",
]:
    record(
        _name, getattr(alpha, _name), lambda t, x, f=_name: getattr(t, f)(x), values="each", signs=True,
        gradient=not _name.startswith("is"), rtol=1e-5,
    )  # fmt: skip
record("logical_not", alpha.logical_not, lambda t, x: t.logical_not(x), values="each", gradient=False)
record("relu", F.relu, lambda t, x: t.relu(x), values="each", signs=True)
for _slope in (0.01, -0.5, 0.0, 1.0, 2.0):
    record(
        "leaky_relu", lambda x, s=_slope: F.leaky_relu(x, s),
        lambda t, x, s=_slope: t.nn.functional.leaky_relu(x, s), values="each", signs=True, variant=str(_slope),
    )  # fmt: skip
for _name, _numbers in (
    ("relu6", ()),
    ("hardtanh", (-0.5, 0.25)),
    ("hardswish", ()),
    ("elu", ()),
    ("celu", ()),
    ("selu", ()),
    ("hardshrink", (1.0,)),
    ("softshrink", (1.0,)),
    ("threshold", (0.25, 9.0)),
    ("softsign", ()),
    ("logsigmoid", ()),
):
    record(
        _name, lambda x, f=_name, n=_numbers: getattr(F, f)(x, *n),
        lambda t, x, f=_name, n=_numbers: getattr(t.nn.functional, f)(x, *n), values="each", rtol=1e-5,
    )  # fmt: skip
record(
    "hardsigmoid", F.hardsigmoid, lambda t, x: t.nn.functional.hardsigmoid(x), values="each", gradient=False,
    differs="the gradient is not compared: in double PyTorch's is 1/6 rounded to float32",
)  # fmt: skip
record(
    "mish", F.mish, lambda t, x: t.nn.functional.mish(x), values="each", skip=lambda x: x < -80,
    differs="far below 0 PyTorch's gradient has the wrong sign: it is exp(x) (1 + x)",
)  # fmt: skip
record("tanhshrink", F.tanhshrink, lambda t, x: t.nn.functional.tanhshrink(x), values="each")
record("prelu", F.prelu, lambda t, x, w: t.where(x > 0, x, x * w), "pq", "q")
record("glu", lambda x: F.glu(x, 0), lambda t, x: t.nn.functional.glu(x, 0), "wp")
record("softmin", lambda x: F.softmin(x, -1), lambda t, x: t.nn.functional.softmin(x, -1))
record(
    "gelu", F.gelu, lambda t, x: t.nn.functional.gelu(x), values="each", skip=lambda x: np.abs(x) > 1e30,
    differs="PyTorch's vectors give NaN for infinity in float32, its double and its GPU's float32 infinity, as here",
)  # fmt: skip
record(
    "gelu", lambda x: F.gelu(x, "tanh"), lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), values="each",
    variant="tanh",
)  # fmt: skip
SIGMOID = "PyTorch's sigmoid is 0 where exp(-x) is infinite, the CPU's here is exp(x): no 0 times infinity"
record(
    "sigmoid", F.sigmoid, lambda t, x: t.sigmoid(x), values="each", signs=True, skip=lambda x: x < -88, differs=SIGMOID
)
record(
    "silu", F.silu, lambda t, x: t.nn.functional.silu(x), values="each", skip=lambda x: x < -88, differs=SIGMOID
)  # fmt: skip
record("softplus", alpha.softplus, lambda t, x: t.nn.functional.softplus(x), values="each")
record(
    "softplus", lambda x: alpha.softplus(x, 3.0), lambda t, x: t.nn.functional.softplus(x, 3.0), values="each",
    variant="beta",
)  # fmt: skip
for _name in ["add", "sub", "mul", "div", "pow", "maximum", "minimum"]:
    record(
        _name, getattr(alpha, _name), lambda t, x, y, f=_name: getattr(t, f)(x, y), "pq", "pq", values="each",
        signs=True,
    )  # fmt: skip


def _quotient_overflows(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.isfinite(x) & np.isfinite(y) & (y != 0) & ~np.isfinite(x / y)


REMAINDER = "PyTorch's vectors give NaN where the quotient overflows; the remainder is a number all the same"
record(
    "remainder", alpha.remainder, lambda t, x, y: t.remainder(x, y), "pq", "pq", values="each", signs=True,
    differs=REMAINDER, skip=_quotient_overflows,
)  # fmt: skip
record(
    "floor_divide", alpha.floor_divide, lambda t, x, y: t.floor_divide(x, y), "pq", "pq", values="each", signs=True,
    gradient=False,
)  # fmt: skip
for _name in ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]:
    record(
        _name, getattr(alpha, _name), lambda t, x, y, f=_name: getattr(t, f)(x, y), "pq", "pq", values="each",
        gradient=False,
    )  # fmt: skip
NUMBERS = (-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, float("inf"), float("-inf"), float("nan"))
for _number in NUMBERS:
    for _name in ["add", "mul", "div", "pow"]:
        record(
            _name, lambda x, f=_name, v=_number: getattr(alpha, f)(x, v),
            lambda t, x, f=_name, v=_number: getattr(t, f)(x, v), values="each", signs=True,
            variant=f"tensor,{_number}", empties=_number == 2,
        )  # fmt: skip
    record(
        "remainder", lambda x, v=_number: alpha.remainder(x, v), lambda t, x, v=_number: t.remainder(x, v),
        values="each", signs=True, variant=f"tensor,{_number}", empties=_number == 2, differs=REMAINDER,
        skip=lambda x, v=_number: _quotient_overflows(x, np.full_like(x, v)),
    )  # fmt: skip
    record(
        "pow", lambda x, v=_number: alpha.pow(v, x), lambda t, x, v=_number: t.pow(v, x), values="each",
        variant=f"{_number},tensor", empties=_number == 2,
    )  # fmt: skip
    record(
        "div", lambda x, v=_number: v / x, lambda t, x, v=_number: t.div(t.tensor(v).to(x), x),
        values="each", signs=True,
        variant=f"{_number},tensor", empties=_number == 2,
    )  # fmt: skip
    record(
        "sub", lambda x, v=_number: v - x, lambda t, x, v=_number: v - x, values="each", signs=True,
        variant=f"{_number},tensor", empties=_number == 2,
    )  # fmt: skip
INF, NAN = float("inf"), float("nan")
for _low, _high in (
    (-1.0, 1.0),
    (1.0, -1.0),
    (None, 0.5),
    (0.0, None),
    (-INF, INF),
    (NAN, 1.0),
    (1.0, NAN),
    (0.0, 0.0),
):
    record(
        "clamp", lambda x, a=_low, b=_high: alpha.clamp(x, a, b), lambda t, x, a=_low, b=_high: t.clamp(x, a, b),
        values="each", signs=False, variant=f"{_low},{_high}",
    )  # fmt: skip
record(
    "clamp", lambda x, a: alpha.clamp(x, a, None), lambda t, x, a: t.clamp(x, a, None), "pq", "pq", values="each",
    variant="tensor min",
)  # fmt: skip
record(
    "clamp", lambda x, a: alpha.clamp(x, None, a), lambda t, x, a: t.clamp(x, None, a), "pq", "pq", values="each",
    variant="tensor max",
)  # fmt: skip
record(
    "clamp", alpha.clamp, lambda t, x, a, b: t.clamp(x, a, b), "pq", "pq", "pq",
    variant="tensor both", values="rows",
)  # fmt: skip
record("where", alpha.where, lambda t, c, x, y: t.where(c, x, y), "pq?", "pq", "pq", signs=True)
record(
    "where", lambda c, x: alpha.where(c, x, 0.0), lambda t, c, x: t.where(c, x, 0.0), "pq?", "pq", variant="number",
    signs=True,
)  # fmt: skip
record("clone", alpha.clone, lambda t, x: x.clone(), values="each", signs=True)
record("contiguous", alpha.contiguous, lambda t, x: x.contiguous(), values="each", signs=True)
record("cast", lambda x: alpha.cast(x, "float64"), lambda t, x: x.double(), values="each", signs=True)
record("to", lambda x: alpha.to(x, "float32"), lambda t, x: x.float(), values="each", signs=True, variant="float32")
for _name in ["add_", "sub_", "mul_", "div_", "copy_"]:
    record(
        _name, lambda x, y, f=_name: getattr(alpha, f)(x.clone(), y), lambda t, x, y, f=_name: getattr(x.clone(), f)(y),
        "pq", "pq", values="each", signs=True,
    )  # fmt: skip

# -- along an axis -----------------------------------------------------------------------------------------------

for _name in [
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "logsumexp",
    "any",
    "all",
    "cumsum",
    "softmax",
    "log_softmax",
    "max",
    "min",
    "sort",
    "argmax",
    "argmin",
]:

    def _theirs(t: Any, x: Any, f: str = _name) -> Any:
        return tuple(found) if isinstance(found := getattr(t, f)(x, -1), tuple) else found

    record(
        _name, lambda x, f=_name: getattr(alpha, f)(x, -1), _theirs, "pq", values="rows",
        gradient=_name not in ("any", "all", "argmax", "argmin"),
    )  # fmt: skip
for _name in ["sum", "mean", "prod", "std", "var", "any", "all", "max", "min", "argmax", "argmin", "norm"]:
    record(
        _name, lambda x, f=_name: getattr(alpha, f)(x), lambda t, x, f=_name: getattr(t, f)(x), "pq", variant="whole",
        gradient=_name not in ("any", "all", "argmax", "argmin"),
    )  # fmt: skip
for _name in [
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "logsumexp",
    "max",
    "min",
    "sort",
    "argmax",
    "argmin",
    "cumsum",
    "softmax",
    "log_softmax",
    "any",
    "all",
]:

    def _first(t: Any, x: Any, f: str = _name) -> Any:
        return tuple(found) if isinstance(found := getattr(t, f)(x, 0), tuple) else found

    record(
        _name, lambda x, f=_name: getattr(alpha, f)(x, 0), _first, "pqn", variant="first axis",
        gradient=_name not in ("any", "all", "argmax", "argmin"),
    )  # fmt: skip
for _name in ("std", "var"):
    record(
        _name, lambda x, f=_name: getattr(alpha, f)(x, -1, False), lambda t, x, f=_name: getattr(t, f)(x, -1, False),
        values="rows", variant="biased",
    )  # fmt: skip
record(
    "sort", lambda x: alpha.sort(x, -1, True), lambda t, x: tuple(t.sort(x, dim=-1, descending=True, stable=True)),
    values="rows", variant="descending",
)  # fmt: skip
POWERS = (0, 1, 2, 3, 4, 0.5, 1.5, 2.5, INF, -INF, -1, -2)
for _p in POWERS:
    record(
        "norm", lambda x, p=_p: alpha.norm(x, p, -1), lambda t, x, p=_p: t.linalg.vector_norm(x, p, -1),
        values="rows", variant=f"p={_p}",
    )  # fmt: skip
record(
    "norm", lambda x: alpha.norm(x, 3, (0, 2)), lambda t, x: t.linalg.vector_norm(x, 3, (0, 2)), "pqn",
    variant="two axes",
)  # fmt: skip
record("logsumexp", lambda x: alpha.logsumexp(x, (0, 2)), lambda t, x: t.logsumexp(x, (0, 2)), "pqn", variant="axes")

# -- products ----------------------------------------------------------------------------------------------------

record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "pk", "ki")
record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "npk", "nki", variant="batch")
record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "npk", "ki", variant="batch and matrix")
record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "pk", "k", variant="matrix and vector")
record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "k", "ki", variant="vector and matrix")
record("matmul", alpha.matmul, lambda t, x, y: t.matmul(x, y), "k", "k", variant="vectors")
record("dot", alpha.dot, lambda t, x, y: t.dot(x, y), "k", "k")
record("outer", alpha.outer, lambda t, x, y: t.outer(x, y), "p", "q")
record("gemv", linalg.gemv, lambda t, a, x: t.mv(a, x), "pk", "k")
record("gemv", lambda a, x: linalg.gemv(a, x, True), lambda t, a, x: t.mv(a.T, x), "kp", "k", variant="transposed")
record("ger", lambda a, x, y: linalg.ger(a, x, y, 0.5), lambda t, a, x, y: t.addr(a, x, y, alpha=0.5), "pq", "p", "q")
record(
    "ger_", lambda a, x, y: linalg.ger_(a.clone(), x, y, 0.5), lambda t, a, x, y: t.addr(a, x, y, alpha=0.5), "pq", "p",
    "q",
)  # fmt: skip
record("linear", F.linear, lambda t, x, w, b: t.nn.functional.linear(x, w, b), "ni", "oi", "o")
record("linear", F.linear, lambda t, x, w, b: t.nn.functional.linear(x, w, b), "npi", "oi", "o", variant="batch")
record("linear", F.linear, lambda t, x, w: t.nn.functional.linear(x, w), "ni", "oi", variant="no bias")

NO_CHANNELS = {"c": "PyTorch's result has no channels where the filters ask for some"}
# Filters stay ordinary: PyTorch multiplies the zeros of padding with some filters and not with others, and these
# functions with none. So do BatchNorm's weights, which PyTorch multiplies last.
# -- convolutions ------------------------------------------------------------------------------------------------


def _convolution(dims: int, transposed: bool = False, **options: Any) -> Callable[..., Any]:
    def theirs(t: Any, x: Any, w: Any, b: Any = None) -> Any:
        function = getattr(t.nn.functional, f"conv{'_transpose' if transposed else ''}{dims}d")
        return last(function(first(x), first(w), b, **options))

    return theirs


def _activated(slope: float | None) -> Callable[..., Any]:
    def theirs(t: Any, x: Any, w: Any, b: Any, r: Any) -> Any:
        y = _convolution(2, padding=1)(t, x, w, b) + r
        return t.relu(y) if slope is None else t.nn.functional.leaky_relu(y, slope)

    return theirs


record(
    "conv2d",
    lambda x, w, b: F.conv2d(x, w, b, padding=1),
    _convolution(2, padding=1),
    "nhwc",
    "okkc~",
    "o",
    rtol=1e-4,
    apart=NO_CHANNELS,
)
record(
    "conv2d",
    lambda x, w, b: F.conv2d(x, w, b, stride=2, dilation=2, padding=2),
    _convolution(2, stride=2, dilation=2, padding=2),
    "nhwc",
    "okkc~",
    "o",
    variant="stride, dilation",
    rtol=1e-4,
    apart=NO_CHANNELS,
)
record(
    "conv2d", lambda x, w, b, r: F.conv2d(x, w, b, padding=1, residual=r, activation="relu"), _activated(None),
    "nhwc", "okkc~", "o", "nhwo", variant="relu", rtol=1e-4,
)  # fmt: skip
record(
    "conv2d", lambda x, w, b, r: F.conv2d(x, w, b, padding=1, residual=r, activation="leaky_relu", negative_slope=0.2),
    _activated(0.2), "nhwc", "okkc~", "o", "nhwo", variant="leaky_relu", rtol=1e-4,
)  # fmt: skip
record(
    "conv2d", lambda x, w: F.conv2d(x, w, padding=1, groups=2), _convolution(2, padding=1, groups=2), "nhwc", "okkq~",
    variant="groups", rtol=1e-4, empties=False,
)  # fmt: skip
record(
    "conv1d",
    lambda x, w, b: F.conv1d(x, w, b, padding=1),
    _convolution(1, padding=1),
    "nlc",
    "okc~",
    "o",
    rtol=1e-4,
    apart=NO_CHANNELS,
)
record(
    "conv3d",
    lambda x, w, b: F.conv3d(x, w, b, padding=1),
    _convolution(3, padding=1),
    "ndhwc",
    "okkkc~",
    "o",
    rtol=1e-4,
    apart=NO_CHANNELS,
)
record(
    "conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), _convolution(2, True, stride=2),
    "nhwc", "ckko~", "o", rtol=1e-4,
)  # fmt: skip
record(
    "conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2), _convolution(1, True, stride=2), "nlc",
    "cko~", "o", rtol=1e-4,
)  # fmt: skip
record(
    "conv_transpose3d", F.conv_transpose3d, _convolution(3, True), "ndhwc", "ckkko~", "o",
    rtol=1e-4,
)  # fmt: skip

# -- normalisation -----------------------------------------------------------------------------------------------


def _batch_norm(training: bool, slope: float | None = None, residual: bool = False) -> Callable[..., Any]:
    def theirs(t: Any, x: Any, w: Any, b: Any, *others: Any) -> Any:
        f = t.nn.functional
        mean, var = others[:2] if not training else (None, None)
        y = last(f.batch_norm(first(x), mean, var, w, b, training))
        if residual:
            y = y + others[-1]
        return y if slope is None else t.relu(y) if slope == 0 else f.leaky_relu(y, slope)

    return theirs


record(
    "batch_norm",
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    _batch_norm(True),
    "nhwc",
    "c~",
    "c",
    rtol=1e-3,
)
record(
    "batch_norm", lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), _batch_norm(False), "nhwc", "c~", "c", "c+", "c+",
    rtol=1e-3, variant="given",
)  # fmt: skip
record(
    "batch_norm", lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, activation="relu"), _batch_norm(False, 0),
    "nhwc", "c~", "c", "c+", "c+", rtol=1e-3, variant="given, relu",
)  # fmt: skip
record(
    "batch_norm",
    lambda x, w, b, m, v, r: F.batch_norm(x, m, v, w, b, residual=r, activation="relu"),
    _batch_norm(False, 0, True), "nhwc", "c~", "c", "c+", "c+", "nhwc", rtol=1e-3, variant="given, residual, relu",
)  # fmt: skip
record(
    "batch_norm",
    lambda x, w, b, m, v, r: F.batch_norm(x, m, v, w, b, residual=r, activation="leaky_relu", negative_slope=0.3),
    _batch_norm(False, 0.3, True),
    "nhwc",
    "c~",
    "c",
    "c+",
    "c+",
    "nhwc",
    rtol=1e-3,
    variant="given, residual, leaky_relu",
)
record(
    "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, activation="relu"), _batch_norm(True, 0),
    "nhwc", "c~", "c", rtol=1e-3, variant="relu",
)  # fmt: skip
record(
    "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, activation="leaky_relu", negative_slope=0.3),
    _batch_norm(True, 0.3), "nhwc", "c~", "c", rtol=1e-3, variant="leaky_relu",
)  # fmt: skip
record(
    "batch_norm", lambda x, w, b, r: F.batch_norm(x, None, None, w, b, True, residual=r, activation="relu"),
    _batch_norm(True, 0, True), "nhwc", "c~", "c", "nhwc", rtol=1e-3, variant="residual, relu",
)  # fmt: skip
record(
    "batch_norm",
    lambda x, w, b, r: F.batch_norm(x, None, None, w, b, True, residual=r, activation="leaky_relu", negative_slope=0.3),
    _batch_norm(True, 0.3, True), "nhwc", "c~", "c", "nhwc", rtol=1e-3, variant="residual, leaky_relu",
)  # fmt: skip
record(
    "scaled_dot_product_attention", F.scaled_dot_product_attention,
    lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v), "jpd~", "jqd~", "jqc", rtol=1e-4,
)  # fmt: skip
record(
    "scaled_dot_product_attention", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.5),
    lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m, scale=0.5),
    "jpd~", "jqd~", "jqc", "pq~", variant="mask", rtol=1e-4,
)  # fmt: skip
record(
    "layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1], w, b),
    lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, b), "npc", "c~", "c", rtol=1e-4,
)  # fmt: skip
record(
    "layer_norm", lambda x: F.layer_norm(x, x.shape[-1]), lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]),
    "pq", values="rows", variant="plain", rtol=1e-4,
)  # fmt: skip
record(
    "rms_norm", lambda x, w: F.rms_norm(x, x.shape[-1], w),
    lambda t, x, w: t.nn.functional.rms_norm(x, x.shape[-1:], w), "npc", "c~", rtol=1e-4,
)  # fmt: skip
record(
    "group_norm", lambda x, w, b: F.group_norm(x, 2, w, b),
    lambda t, x, w, b: last(t.nn.functional.group_norm(first(x), 2, w, b)), "nhwc", "c~", "c", rtol=1e-4,
    apart=dict.fromkeys("hw", "PyTorch's gradient of the weight is NaN, a sum of nothing is 0"),
)  # fmt: skip
record(
    "instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    lambda t, x, w, b: last(t.nn.functional.instance_norm(first(x), weight=w, bias=b)), "nhwc", "c~", "c", rtol=1e-4,
)  # fmt: skip
record(
    "instance_norm", lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False),
    lambda t, x, m, v: last(t.nn.functional.instance_norm(first(x), m, v, use_input_stats=False)), "nhwc", "c+", "c+",
    variant="given", rtol=1e-4,
)  # fmt: skip

# -- pooling and resizing ----------------------------------------------------------------------------------------

for _arguments in ((2,), (3, 2, 1), (3, 1, 1, 2), (2, 2, 1)):
    record(
        "max_pool2d", lambda x, a=_arguments: F.max_pool2d(x, *a),
        lambda t, x, a=_arguments: last(t.nn.functional.max_pool2d(first(x), *a)), "nhwc", variant=str(_arguments),
    )  # fmt: skip
for _arguments in ((2,), (3, 2, 1), (3, 2, 1, True), (3, 2, 1, False, False)):
    record(
        "avg_pool2d", lambda x, a=_arguments: F.avg_pool2d(x, *a),
        lambda t, x, a=_arguments: last(t.nn.functional.avg_pool2d(first(x), *a)), "nhwc", variant=str(_arguments),
    )  # fmt: skip
for _size in (1, (2, 3), (7, 5), (None, 2)):
    record(
        "adaptive_avg_pool2d", lambda x, s=_size: F.adaptive_avg_pool2d(x, s),
        lambda t, x, s=_size: last(t.nn.functional.adaptive_avg_pool2d(first(x), s)), "nhwc", variant=str(_size),
        apart=dict.fromkeys("hw*", "an image without pixels has no mean"),
    )  # fmt: skip
for _size in ((10, 8), (7, 3), (2, 9)):
    record(
        "interpolate", lambda x, s=_size: F.interpolate(x, s),
        lambda t, x, s=_size: last(t.nn.functional.interpolate(first(x), s)), "nhwc", variant=f"nearest {_size}",
    )  # fmt: skip
    for _corners in (False, True):
        record(
            "interpolate", lambda x, s=_size, c=_corners: F.interpolate(x, s, mode="bilinear", align_corners=c),
            lambda t, x, s=_size, c=_corners: last(
                t.nn.functional.interpolate(first(x), s, mode="bilinear", align_corners=c)
            ),
            "nhwc", variant=f"bilinear {_size} {_corners}", rtol=1e-4,
        )  # fmt: skip

# -- losses ------------------------------------------------------------------------------------------------------

NO_CLASSES = dict.fromkeys("c*", "without classes no row could have a label")
for _reduction in ("mean", "sum", "none"):
    for _name in ("mse_loss", "l1_loss"):
        record(
            _name, lambda x, y, f=_name, r=_reduction: getattr(F, f)(x, y, reduction=r),
            lambda t, x, y, f=_name, r=_reduction: getattr(t.nn.functional, f)(x, y, reduction=r), "pq", "pq",
            variant=_reduction, values="each" if _reduction == "none" else "mixed", extremes=False,
        )  # fmt: skip
    record(
        "binary_cross_entropy_with_logits",
        lambda x, y, r=_reduction: F.binary_cross_entropy_with_logits(x, y, reduction=r),
        lambda t, x, y, r=_reduction: t.nn.functional.binary_cross_entropy_with_logits(x, y, reduction=r), "pq", "pq",
        variant=_reduction, values="each" if _reduction == "none" else "mixed", extremes=False,
        skip=(lambda x, y: x < -88) if _reduction == "none" else None, differs=SIGMOID if _reduction == "none" else "",
    )  # fmt: skip
    record(
        "cross_entropy", lambda x, y, r=_reduction: F.cross_entropy(x, y, reduction=r),
        lambda t, x, y, r=_reduction: t.nn.functional.cross_entropy(x, y, reduction=r), "pc", "p@c", apart=NO_CLASSES,
        variant=_reduction, values="rows" if _reduction == "none" else "mixed",
    )  # fmt: skip
    record(
        "nll_loss",
        lambda x, y, r=_reduction: F.nll_loss(x, y, reduction=r),
        lambda t, x, y, r=_reduction: t.nn.functional.nll_loss(x, y, reduction=r),
        "pc",
        "p@c",
        apart=NO_CLASSES,
        variant=_reduction,
        values="rows" if _reduction == "none" else "mixed",
    )
    record(
        "cross_entropy",
        lambda x, y, w, r=_reduction: F.cross_entropy(x, y, w, reduction=r),
        lambda t, x, y, w, r=_reduction: t.nn.functional.cross_entropy(x, y, w, reduction=r),
        "pc",
        "p@c",
        "c+",
        apart=NO_CLASSES,
        variant=f"{_reduction}, weight",
    )
    record(
        "nll_loss",
        lambda x, y, w, r=_reduction: F.nll_loss(x, y, w, reduction=r),
        lambda t, x, y, w, r=_reduction: t.nn.functional.nll_loss(x, y, w, reduction=r),
        "pc",
        "p@c",
        "c+",
        apart=NO_CLASSES,
        variant=f"{_reduction}, weight",
    )
    record(
        "cross_entropy",
        lambda x, y, r=_reduction: F.cross_entropy(x, y, reduction=r, ignore_index=0),
        lambda t, x, y, r=_reduction: t.nn.functional.cross_entropy(x, y, reduction=r, ignore_index=0),
        "pc",
        "p@c",
        apart=NO_CLASSES,
        variant=f"{_reduction}, ignored",
    )
record(
    "cross_entropy",
    lambda x, y: F.cross_entropy(x, y, reduction="none", label_smoothing=0.1),
    lambda t, x, y: t.nn.functional.cross_entropy(x, y, reduction="none", label_smoothing=0.1),
    "pc",
    "p@c",
    apart=NO_CLASSES,
    variant="smoothing",
    values="rows",
)
record(
    "cross_entropy", lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1),
    lambda t, x, y, w: t.nn.functional.cross_entropy(x, y, w, label_smoothing=0.1), "pc", "p@c", "c+", apart=NO_CLASSES,
    variant="smoothing, weight",
)  # fmt: skip
record(
    "binary_cross_entropy_with_logits",
    lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=w.detach()),
    lambda t, x, y, w: t.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=w.detach()),
    "pc", "pc", "c+", variant="weight",
)  # fmt: skip

# -- selection by index ------------------------------------------------------------------------------------------

record("embedding", F.embedding, lambda t, x, w: t.nn.functional.embedding(x, w), "pq@c", "ci")
record(
    "embedding", lambda x, w: F.embedding(x, w, 0), lambda t, x, w: t.nn.functional.embedding(x, w, 0), "pq@c", "ci",
    variant="padding", apart={"*": "padding_idx names no row"},
)  # fmt: skip
record("gather", lambda x, i: alpha.gather(x, 1, i), lambda t, x, i: t.gather(x, 1, i), "pc", "pq@c")
record("index_select", lambda x, i: alpha.index_select(x, 1, i), lambda t, x, i: t.index_select(x, 1, i), "pc", "q@c")
record(
    "take_along_dim", lambda x, i: alpha.take_along_dim(x, i, 1), lambda t, x, i: t.take_along_dim(x, i, 1), "pc",
    "pq@c",
)  # fmt: skip
record("masked_fill", lambda x, m: alpha.masked_fill(x, m, -INF), lambda t, x, m: x.masked_fill(m, -INF), "pq", "pq?")
record("getitem", lambda x: x[..., :1], lambda t, x: x[..., :1])
record("getitem", lambda x, i: x[i], lambda t, x, i: x[i], "cp", "q@c", variant="indices")
record("getitem", lambda x, m: x[m], lambda t, x, m: x[m], "pq", "pq?", variant="mask")


def _set(t: Any, x: Any, y: Any) -> Any:
    x = x.clone()
    x[..., :1] = y[..., :1]
    return x


record("setitem", lambda x, y: _set(None, x, y), _set, "pq", "pq")
record(
    "one_hot", lambda i: alpha.one_hot(i, 4), lambda t, i: t.nn.functional.one_hot(i, 4), "pq@c", gradient=False,
    special=False,
)  # fmt: skip

# -- shapes ------------------------------------------------------------------------------------------------------

record("broadcast_to", lambda x: alpha.broadcast_to(x, (2, *x.shape)), lambda t, x: t.broadcast_to(x, (2, *x.shape)))
record("expand", lambda x: alpha.expand(x, (2, *x.shape)), lambda t, x: x.expand(2, *x.shape))
record("cat", lambda x, y: alpha.cat((x, y), 1), lambda t, x, y: t.cat((x, y), 1), "pq", "pc")
record("concat", lambda x, y: alpha.concat((x, y)), lambda t, x, y: t.concat((x, y)), "pq", "cq")
record("stack", lambda x, y: alpha.stack((x, y), 1), lambda t, x, y: t.stack((x, y), 1), "pq", "pq")
record("chunk", lambda x: alpha.chunk(x, 2, 0), lambda t, x: t.chunk(x, 2, 0))
record("split", lambda x: alpha.split(x, 2, 0), lambda t, x: t.split(x, 2, 0))
record("flatten", alpha.flatten, lambda t, x: t.flatten(x), "pqn")
record("flip", lambda x: alpha.flip(x, (0, 1)), lambda t, x: t.flip(x, (0, 1)))
record(
    "pad", lambda x: alpha.pad(x, (1, 2, 0, 1), value=INF), lambda t, x: t.nn.functional.pad(x, (1, 2, 0, 1), value=INF)
)
record("permute", lambda x: alpha.permute(x, (1, 0)), lambda t, x: t.permute(x, (1, 0)))
record("transpose", lambda x: alpha.transpose(x, 0, 1), lambda t, x: t.transpose(x, 0, 1))
record("repeat", lambda x: alpha.repeat(x, (2, 1, 3)), lambda t, x: x.repeat(2, 1, 3))
record("tile", lambda x: alpha.tile(x, (2, 3)), lambda t, x: t.tile(x, (2, 3)))
record("reshape", lambda x: alpha.reshape(x, (x.shape[1], x.shape[0])), lambda t, x: x.reshape(x.shape[1], x.shape[0]))
record("squeeze", lambda x: alpha.squeeze(x[:1]), lambda t, x: t.squeeze(x[:1]))
record("unsqueeze", lambda x: alpha.unsqueeze(x, 1), lambda t, x: t.unsqueeze(x, 1))

# -- what has no record ------------------------------------------------------------------------------------------

_RANDOM = "random: other numbers than PyTorch's"
EXCLUDED = {
    "as_tensor": "hands a tensor on, or calls tensor",
    **dict.fromkeys(("asarray", "from_dlpack", "frombuffer"), "takes objects of other libraries"),
    "bernoulli": _RANDOM,
    "empty_like": "its values are undefined; its empty shapes are tested in test_empty",
    "from_numpy": "takes no tensor",
    "linspace": "takes no tensor",
    "logspace": "takes no tensor",
    "multinomial": _RANDOM,
    "normal": _RANDOM,
    "rand_like": _RANDOM,
    "randint": _RANDOM,
    "randint_like": _RANDOM,
    "randn_like": _RANDOM,
    "randperm": _RANDOM,
    "arange": "takes no tensor; its empty ranges are tested in test_empty",
    "empty": "its values are undefined; its empty shapes are tested in test_empty",
    "eye": "takes no tensor; its empty shapes are tested in test_empty",
    "full": "takes no tensor; its special values and empty shapes are tested beside the table",
    "full_like": "fills as full does; tested beside the table",
    "ones": "takes no tensor; its empty shapes are tested in test_empty",
    "ones_like": "its values do not depend on its argument's; tested in test_empty",
    "rand": "random: other numbers than PyTorch's; its empty shapes are tested in test_empty",
    "randn": "random: other numbers than PyTorch's; its empty shapes are tested in test_empty",
    "zeros": "takes no tensor; its empty shapes are tested in test_empty",
    "zeros_like": "its values do not depend on its argument's; tested in test_empty",
    "dropout": "random: other elements than PyTorch's are dropped; tested beside the table",
}
"""Public functions without a record, and why."""
