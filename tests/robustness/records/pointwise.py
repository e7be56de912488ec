"""Element-wise functions and operators, activations, casts, selection, comparison, logic, and writes in place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import POINTWISE, SUMS, Tolerance
from tests.robustness.record import Record

Oracle = Callable[..., Any]

POWERS = Tolerance(64, 0, 0, "x ** y gathers y times log(x)'s rounding")
TAILS = Tolerance(64, 4, 0, "1 + erf and 1 - tanh cancel in the tails, where the result is small beside the argument")

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


# -- two operands ------------------------------------------------------------------------------------------------


def operands(kinds: str, values: str = "normal", numbers: str = "fi") -> Callable[[Draw], Case]:
    """Two tensors that broadcast, a tensor and a number, one tensor twice, or two views of one array."""

    def draw(d: Draw) -> Case:
        shape, first = d.shape(), d.dtype(kinds)
        second = first if d.chance(0.7) else d.dtype(kinds)
        form = d.py.random()
        x = d.input(shape, first, values)
        if form < 0.25:
            number = d.number(numbers)
            if first == "uint8" and number < 0:
                number = -number
            return Case([x, number] if form < 0.15 else [number, x])
        if form < 0.32:
            return Case([x, x])
        if form < 0.40:
            line = Base(d.array((d.length(1) + 1,), first, values), first in ("float32", "float64") and d.chance(0.5))
            inputs = [Input(line, (("index", (slice(1, None),)),)), Input(line, (("index", (slice(0, -1),)),))]
            return Case(inputs)
        y = d.input(d.broadcastable(shape), second, values)
        return Case([x, y] if d.chance(0.6) else [y, x])

    return draw


def powers(d: Draw) -> Case:
    """Bases above 0 to any power, integers to powers that are not negative."""
    case = operands("fi", "positive", "fi")(d)
    integers = any(i.dtype.kind != "f" for i in case.inputs()) or any(isinstance(a, int) for a in case.args)
    case.valid = not integers and d.values == "ordinary"
    return case


def _where(d: Draw) -> Case:
    shape, dtype = d.shape(), d.dtype("fib")
    condition = d.input(d.broadcastable(shape), "bool")
    x: Any = d.input(shape, dtype)
    y: Any = d.input(d.broadcastable(shape), dtype) if d.chance(0.7) else d.number("f" if dtype[0] == "f" else "b")
    return Case([condition, x, y] if d.chance(0.7) else [condition, y, x])


def _clamp(d: Draw) -> Case:
    dtype = d.dtype("fi")
    x, low, high = d.input(d.shape(), dtype), d.number("i"), d.number("i")
    if dtype[0] == "f":
        low, high = low / 2, high / 2
    if dtype == "uint8":
        low, high = abs(low), abs(high)
    form = d.whole(0, 2)
    return Case([x], {"min": low} if form == 0 else {"max": high} if form == 1 else {"min": low, "max": high})


def _clamped(x: Any, min: Any = None, max: Any = None) -> Any:
    out = x if min is None else np.maximum(x, min)
    return out if max is None else np.minimum(out, max)


def _floor_divided(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y)


BINARY: list[tuple[str, Oracle, str, str, str, bool]] = [
    # name, oracle, PyTorch's name, kinds of dtypes, values, whether it has a gradient
    ("add", np.add, "add", "fib", "normal", True),
    ("sub", np.subtract, "sub", "fi", "normal", True),
    ("mul", np.multiply, "mul", "fib", "normal", True),
    ("div", np.divide, "div", "fi", "normal", True),
    ("floor_divide", _floor_divided, "floor_divide", "fi", "normal", False),
    ("remainder", np.remainder, "remainder", "fi", "normal", True),
    ("maximum", np.maximum, "maximum", "fib", "whole", True),
    ("minimum", np.minimum, "minimum", "fib", "whole", True),
    ("eq", np.equal, "eq", "fib", "whole", False),
    ("ne", np.not_equal, "ne", "fib", "whole", False),
    ("lt", np.less, "lt", "fib", "whole", False),
    ("le", np.less_equal, "le", "fib", "whole", False),
    ("gt", np.greater, "gt", "fib", "whole", False),
    ("ge", np.greater_equal, "ge", "fib", "whole", False),
    ("logical_and", np.logical_and, "logical_and", "fib", "whole", False),
    ("logical_or", np.logical_or, "logical_or", "fib", "whole", False),
    ("logical_xor", np.logical_xor, "logical_xor", "fib", "whole", False),
]

OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "and_": "logical_and",
    "or_": "logical_or",
    "xor": "logical_xor",
}
"""Python's operators, by the functions that they call."""

REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor")


def _peer(name: str) -> Callable[..., Any]:
    def peer(torch: Any, *args: Any, **options: Any) -> Any:
        made = [a if hasattr(a, "detach") else _exact(torch, a) for a in args]
        if name in ("floor_divide", "div", "remainder", "add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"):
            made = [made[0] if not hasattr(args[0], "detach") else args[0], args[1]]
            if not hasattr(args[0], "detach"):
                made[0] = made[0].to(args[1].dtype)
        elif not all(hasattr(a, "detach") for a in args):
            dtype = next(a.dtype for a in args if hasattr(a, "detach"))
            made = [a.to(dtype) for a in made]
        return getattr(torch, name)(*made, **options)

    return peer


def _exact(torch: Any, number: Any) -> Any:
    """A number as a tensor that holds all of it."""
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)


def _dunders(name: str) -> tuple[str, ...]:
    plain = name.strip("_")
    names = [f"alpha.Tensor.__{plain}__"]
    return (*names, f"alpha.Tensor.__r{plain}__") if name in REFLECTED else tuple(names)


def _binary_records() -> list[Record]:
    records = []
    table = {row[0]: row for row in BINARY}
    for name, oracle, peer, kinds, values, gradient in BINARY:
        draw = operands(kinds, values, "fib" if "b" in kinds else "fi")
        records.append(Record(f"alpha.{name}", draw, oracle, _peer(peer), gradient=gradient, meets=True))
    for symbol, name in OPERATORS.items():
        _, oracle, peer, kinds, values, gradient = table[name]
        logical = symbol in ("and_", "or_", "xor")
        draw = operands("b" if logical else kinds, values, "b" if logical else "fi")
        covers = _dunders(symbol)
        records.append(
            Record(
                f"operator.{symbol}",
                draw,
                oracle,
                _peer(peer),
                gradient=gradient,
                meets=True,
                weight=0.5,
                covers=covers,
            )
        )
    records += [
        Record("alpha.pow", powers, np.power, _peer("pow"), POWERS, meets=True),
        Record("alpha.Tensor.pow", _tensor_first(powers), np.power, _peer("pow"), POWERS, meets=True, weight=0.3),
        Record(
            "operator.pow",
            powers,
            np.power,
            _peer("pow"),
            POWERS,
            meets=True,
            weight=0.5,
            covers=("alpha.Tensor.__pow__", "alpha.Tensor.__rpow__"),
        ),
        Record("alpha.where", _where, np.where, lambda t, c, x, y: t.where(c, x, y)),
        Record("alpha.clamp", _clamp, _clamped, lambda t, x, **o: t.clamp(x, **o), covers=("alpha.Tensor.clamp",)),
    ]
    return records


def _tensor_first(draw: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Cases whose first argument is a tensor: for methods."""

    def drawn(d: Draw) -> Case:
        case = draw(d)
        if not isinstance(case.args[0], Input):
            case.args.reverse()
        return case

    return drawn


# -- one operand -------------------------------------------------------------------------------------------------


def one(kinds: str, values: str = "normal") -> Callable[[Draw], Case]:
    """One tensor."""

    def draw(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype(kinds), values)])

    return draw


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return x * 0.5 * erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softplus(x: Any, beta: float = 1.0) -> Any:
    with np.errstate(over="ignore"):
        return np.where(beta * x > 20, x, np.logaddexp(0, beta * x) / beta)  # PyTorch's threshold


def _rounded(f: Oracle) -> Oracle:
    return lambda x: f(x) if x.dtype.kind == "f" else x


UNARY: list[tuple[str, Oracle, str, str, str, bool]] = [
    ("neg", np.negative, "neg", "fi", "normal", True),
    ("abs", np.abs, "abs", "fi", "normal", True),
    ("exp", np.exp, "exp", "fi", "normal", True),
    ("expm1", np.expm1, "expm1", "fi", "normal", True),
    ("log", np.log, "log", "fi", "positive", True),
    ("log1p", np.log1p, "log1p", "fi", "positive", True),
    ("sqrt", np.sqrt, "sqrt", "fi", "positive", True),
    ("rsqrt", lambda x: 1 / np.sqrt(x), "rsqrt", "fi", "positive", True),
    ("square", np.square, "square", "fi", "normal", True),
    ("reciprocal", lambda x: 1 / (x + 0.0), "reciprocal", "fi", "normal", True),
    ("sin", np.sin, "sin", "f", "normal", True),
    ("cos", np.cos, "cos", "f", "normal", True),
    ("tanh", np.tanh, "tanh", "fi", "normal", True),
    ("sigmoid", _sigmoid, "sigmoid", "fi", "normal", True),
    ("erf", erf, "erf", "fi", "normal", True),
    ("sign", lambda x: np.where(np.isnan(x), 0, np.sign(x)), "sign", "fi", "whole", True),
    ("floor", _rounded(np.floor), "floor", "fi", "normal", True),
    ("ceil", _rounded(np.ceil), "ceil", "fi", "normal", True),
    ("logical_not", np.logical_not, "logical_not", "fib", "whole", False),
    ("isfinite", np.isfinite, "isfinite", "fib", "normal", False),
    ("isnan", np.isnan, "isnan", "fib", "normal", False),
    ("clone", np.copy, "clone", "fib", "normal", True),
]


def _widened(f: Oracle) -> Oracle:
    """A function of float64 where it is given integers, of which NumPy makes float16 where they are small."""
    return lambda x: f(x.astype(np.float64) if x.dtype.kind in "ui" else x)


DUNDERS = {"neg": "__neg__", "abs": "__abs__"}


def _single(name: str) -> Callable[..., Any]:
    def peer(torch: Any, x: Any, **options: Any) -> Any:
        return getattr(torch, name)(x, **options)

    return peer


def _unary_records() -> list[Record]:
    records = []
    for name, exact, peer, kinds, values, gradient in UNARY:
        draw = one(kinds, values)
        floats = name not in ("neg", "abs", "square", "sign", "floor", "ceil", "clone")
        oracle = _widened(exact) if floats else exact
        result = (
            (lambda case: case.inputs()[0].dtype.name if case.inputs()[0].dtype.kind == "f" else None)
            if floats
            else None
        )
        extra: tuple[str, ...] = (f"nn.functional.{name}",) if name in ("sigmoid", "tanh") else ()
        if name in DUNDERS:
            extra += (f"alpha.Tensor.{DUNDERS[name]}",)
        record = Record(
            f"alpha.{name}",
            draw,
            oracle,
            _single(peer),
            TAILS,
            gradient=gradient,
            result=result,
            differences=name not in ("sign", "floor", "ceil"),
            covers=extra,
        )
        records.append(record)
        if hasattr(alpha.Tensor, f"{name}_"):
            records.append(_written_record(record, exact, values))
    return records


def _written_record(record: Record, exact: Oracle, values: str) -> Record:
    """The record of ``exp_`` from that of ``exp``: what it makes is written into its argument."""
    name = f"{record.name.removeprefix('alpha.')}_"

    def draw(d: Draw) -> Case:
        kinds = "b" if name == "logical_not_" else "f"
        return Case([d.input(d.shape(), d.dtype(kinds), values, written=True, views=0.6)])

    def oracle(x: Any) -> None:
        x[...] = exact(np.array(x))

    return dataclasses.replace(
        record,
        name=f"alpha.Tensor.{name}",
        draw=draw,
        oracle=oracle,
        peer=lambda torch, x: getattr(x, name)(),
        result=None,
        weight=0.2,
        covers=(),
    )


def _activation_records() -> list[Record]:
    def sloped(d: Draw) -> Case:
        return Case(
            [d.input(d.shape(), d.dtype(), d.pick(("normal", "whole")))],
            {"negative_slope": d.pick((0.01, 0.0, 0.3, 1.0, -0.5))},
        )

    def gelus(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype())], {"approximate": d.pick(("none", "tanh"))})

    def betas(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype())], {"beta": d.pick((1.0, 0.5, 2, 10.0))})

    def leaky(x: Any, negative_slope: float) -> Any:
        return np.where(x > 0, x, x * negative_slope)

    relu: Oracle = lambda x: np.maximum(x, 0)  # noqa: E731
    return [
        Record("alpha.relu", one("f", "whole"), relu, lambda t, x: t.relu(x), covers=("nn.functional.relu",)),
        Record("alpha.Tensor.relu", one("f"), relu, lambda t, x: t.relu(x), weight=0.2),
        Record(
            "alpha.leaky_relu",
            sloped,
            leaky,
            lambda t, x, negative_slope: t.nn.functional.leaky_relu(x, negative_slope),
            covers=("nn.functional.leaky_relu",),
        ),
        Record(
            "alpha.gelu",
            gelus,
            _gelu,
            lambda t, x, approximate: t.nn.functional.gelu(x, approximate=approximate),
            TAILS,
            covers=("nn.functional.gelu",),
        ),
        Record(
            "alpha.silu",
            one("f"),
            lambda x: x * _sigmoid(x),
            lambda t, x: t.nn.functional.silu(x),
            TAILS,
            covers=("nn.functional.silu",),
        ),
        Record(
            "alpha.softplus",
            betas,
            _softplus,
            lambda t, x, beta: t.nn.functional.softplus(x, beta),
            TAILS,
            covers=("nn.functional.softplus",),
        ),
    ]


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _shrunk(x: Any, lambd: float) -> Any:
    return np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0))


def _logsigmoid(x: Any) -> Any:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


SCALE, SCALE_ALPHA = 1.0507009873554805, 1.6732632423543772
PIECEWISE: list[tuple[str, Oracle, dict[str, tuple[float, ...]], bool]] = [
    ("relu6", lambda x: np.minimum(np.maximum(x, 0), 6), {}, True),
    ("hardtanh", lambda x, min_val, max_val: np.minimum(np.maximum(x, min_val), max_val),
     {"min_val": (-1.0, 0.0), "max_val": (1.0, 0.25)}, True),
    ("hardsigmoid", lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6, {}, True),
    ("hardswish", lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6, {}, True),
    ("elu", _elu, {"alpha": (1.0, 0.3)}, True),
    ("celu", lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
     {"alpha": (1.0, 0.5)}, True),
    ("selu", lambda x: SCALE * _elu(x, SCALE_ALPHA), {}, True),
    ("hardshrink", lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x), {"lambd": (0.5, 1.0)}, False),
    ("softshrink", _shrunk, {"lambd": (0.5, 1.0)}, False),
    ("threshold", lambda x, threshold, value: np.where(x <= threshold, value, x),
     {"threshold": (0.0, 0.5), "value": (-1.0, 2.0)}, True),
    ("mish", lambda x: x * np.tanh(np.logaddexp(0, x)), {}, True),
    ("logsigmoid", _logsigmoid, {}, False),
    ("softsign", lambda x: x / (1 + np.abs(x)), {}, False),
    ("tanhshrink", lambda x: x - np.tanh(x), {}, False),
]  # fmt: skip
"""Activations: what they compute, the numbers that they take, and whether they have a form in place."""


SMOOTH = ("mish", "logsigmoid", "softsign", "tanhshrink")


def _piecewise_records() -> list[Record]:
    def record(name: str, exact: Oracle, options: dict[str, tuple[float, ...]], inplace: bool) -> Record:
        def draw(d: Draw) -> Case:
            if name not in SMOOTH:
                d.values = "ordinary"  # PyTorch's gradient at NaN depends on how many numbers a vector holds
            chosen: dict[str, Any] = {key: d.pick(values) for key, values in options.items()}
            x = d.input(d.shape(), d.dtype("f"))
            return Case([x], chosen | ({"inplace": False} if inplace and d.chance(0.2) else {}))

        def oracle(x: Any, inplace: bool = False, **numbers: float) -> Any:
            return exact(x, **numbers)

        def peer(torch: Any, x: Any, inplace: bool = False, **numbers: float) -> Any:
            return getattr(torch.nn.functional, name)(x, **numbers)

        cancels = Tolerance(64, 64, 4, "a difference of numbers near each other")
        tolerance = cancels if name == "tanhshrink" else TAILS
        return Record(f"alpha.{name}", draw, oracle, peer, tolerance, weight=0.5, covers=(f"nn.functional.{name}",))

    def slopes(d: Draw) -> Case:
        shape, dtype = d.shape(1), d.dtype("f")
        count = 1 if d.chance(0.4) else shape[-1]
        return Case([d.input(shape, dtype), d.input((count,), dtype)], {}, 0 not in shape)

    def sloped(x: Any, weight: Any) -> Any:
        return np.where(x > 0, x, x * weight)

    def peer_slope(torch: Any, x: Any, weight: Any) -> Any:
        return torch.where(x > 0, x, x * weight)

    def halves(d: Draw) -> Case:
        shape = d.shape(1)
        axis = d.axis(len(shape))
        place = axis % len(shape)
        shape = (*shape[:place], 2 * shape[place], *shape[place + 1 :])
        return Case([d.input(shape, d.dtype("f"))], {"dim": axis})

    def gated(x: Any, dim: int) -> Any:
        first, second = np.split(x, 2, dim)
        return first * _sigmoid(second)

    slope = Record("alpha.prelu", slopes, sloped, peer_slope, SUMS, weight=0.5, covers=("nn.functional.prelu",))
    gate = Record(
        "alpha.glu", halves, gated, lambda t, x, dim: t.nn.functional.glu(x, dim), TAILS, weight=0.5,
        covers=("nn.functional.glu",),
    )  # fmt: skip
    return [*(record(*row) for row in PIECEWISE), slope, gate]


@alpha.pointwise
def _swish(x: Any, slope: Any) -> Any:
    return x * alpha.sigmoid(slope * x)


def _function_records() -> list[Record]:
    """A function of a user's own."""
    return [
        Record(
            "alpha.pointwise",
            operands("f", numbers="f"),
            lambda x, slope: x * _sigmoid(np.multiply(slope, x)),
            lambda t, x, slope: x * t.sigmoid(slope * t.as_tensor(x)),
            TAILS,
            meets=True,
            call=_swish,
            weight=2.0,
        )
    ]


# -- dtype and memory --------------------------------------------------------------------------------------------


def _cast(method: str | None) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        wanted = d.pick(("float32", "float64", "uint8", "int32", "int64", "bool")) if method is None else method
        source = d.dtype("fib")
        if wanted not in ("float32", "float64", "bool"):
            d.values = "ordinary"  # what a float beyond an integer's range becomes is not defined
        x = d.input(d.shape(), source, "positive" if wanted == "uint8" else "normal")
        return Case([x], {} if method is not None else {"dtype": wanted})

    return draw


def _casted(x: Any, dtype: str) -> Any:
    return x.astype(dtype)


def _cast_records() -> list[Record]:
    def result(dtype: str) -> Callable[[Case], str | None]:
        return lambda case: dtype

    def moved(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype("fib"))], {"target": d.pick(("cpu", "float64", "float32"))})

    def ordered(d: Draw) -> Case:
        x = d.input(d.shape(), d.dtype("fib"))
        ndim = len(x.shape)
        return Case([x], {"order": tuple(d.py.sample(range(ndim), ndim))} if d.chance(0.6) else {})

    def same(x: Any, **options: Any) -> Any:
        return np.array(x)

    def peer(torch: Any, x: Any, dtype: str) -> Any:
        if not dtype.startswith("float"):
            return x.to(getattr(torch, dtype))
        return x.to(torch.float32).to(torch.float64) if dtype == "float32" and x.dtype == torch.float64 else x.double()

    records = [
        Record("alpha.cast", _cast(None), _casted, peer, result=lambda case: str(case.options["dtype"])),
        Record(
            "alpha.Tensor.astype",
            _cast(None),
            _casted,
            peer,
            result=lambda case: str(case.options["dtype"]),
            weight=0.3,
        ),
        Record(
            "alpha.to",
            moved,
            lambda x, target: np.array(x) if target == "cpu" else x.astype(target),
            lambda t, x, target: x.clone() if target == "cpu" else x.to(getattr(t, target)),
            result=lambda case: (
                case.inputs()[0].dtype.name if case.options["target"] == "cpu" else case.options["target"]
            ),
            covers=("alpha.Tensor.to",),
        ),
        Record("alpha.Tensor.cpu", one("fib"), np.array, None, weight=0.2),
        Record("alpha.contiguous", ordered, same, lambda t, x, **o: x.clone()),
        Record("alpha.Tensor.contiguous", ordered, same, lambda t, x, **o: x.clone(), weight=0.2),
        Record("alpha.Tensor.detach", one("fib"), np.array, None, gradient=False, weight=0.2),
        Record("operator.pos", one("fi"), np.array, None, weight=0.2, covers=("alpha.Tensor.__pos__",)),
        Record(
            "operator.invert",
            one("b"),
            np.logical_not,
            None,
            gradient=False,
            weight=0.2,
            covers=("alpha.Tensor.__invert__",),
        ),
        Record(
            "alpha.Tensor.numpy", _plain, np.array, None, gradient=False, weight=0.2, covers=("alpha.Tensor.__array__",)
        ),
        Record(
            "alpha.Tensor.tolist", one("fib"), None, None, check=_check_list, weight=0.2, covers=("alpha.Tensor.item",)
        ),
    ]
    for method, dtype in (
        ("float", "float32"),
        ("double", "float64"),
        ("long", "int64"),
        ("int", "int32"),
        ("bool", "bool"),
    ):
        oracle = partial(_casted, dtype=dtype)
        records.append(
            Record(
                f"alpha.Tensor.{method}", _cast(dtype), oracle, None, result=result(dtype), weight=0.15, gradient=False
            )
        )
    return records


def _plain(d: Draw) -> Case:
    return Case([d.input(d.shape(), d.dtype("fib"), grad=0)])


def _check_list(result: Any, case: Case) -> str | None:
    want = case.args[0].numpy().tolist()
    return None if repr(result) == repr(want) else f"tolist: {result!r} instead of {want!r}"


# -- in place ----------------------------------------------------------------------------------------------------


def _inplace(kinds: str, values: str = "normal") -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        shape, dtype = d.shape(), d.dtype(kinds)
        x = d.input(shape, dtype, values, written=True, views=0.6)
        form = d.py.random()
        if form < 0.25:
            number = d.number("b" if dtype == "bool" else "f" if dtype[0] == "f" else "i")
            return Case([x, abs(number) if dtype == "uint8" else number])
        if form < 0.35:
            return Case([x, x])
        if form < 0.45 and len(shape) == 1 and shape[0] > 1 and not x.steps:
            base = x.base
            return Case([Input(base, (("index", (slice(1, None),)),)), Input(base, (("index", (slice(0, -1),)),))])
        return Case([x, d.input(d.broadcastable(shape), dtype, values)])

    return draw


def _writes(operation: Callable[..., Any]) -> Oracle:
    def oracle(x: Any, y: Any) -> None:
        x[...] = operation(np.array(x), np.array(y)).astype(x.dtype)  # integers wrap around

    return oracle


def _peer_write(name: str) -> Callable[..., Any]:
    def peer(torch: Any, x: Any, y: Any) -> Any:
        y = y.clone() if hasattr(y, "clone") else y
        return getattr(x, name)(y)

    return peer


def _inplace_records() -> list[Record]:
    records = []
    for name, operation, kinds, symbol in (
        ("add_", np.add, "fi", "iadd"),
        ("sub_", np.subtract, "fi", "isub"),
        ("mul_", np.multiply, "fi", "imul"),
        ("div_", np.divide, "f", "itruediv"),
    ):
        for call, weight in ((f"alpha.{name}", 0.5), (f"alpha.Tensor.{name}", 0.3), (f"operator.{symbol}", 0.3)):
            covers = (f"alpha.Tensor.__{symbol}__",) if symbol in call else ()
            records.append(
                Record(
                    call,
                    _inplace(kinds),
                    _writes(operation),
                    _peer_write(name),
                    meets=True,
                    weight=weight,
                    covers=covers,
                )
            )
    for symbol, operation, kinds, values, tolerance in (
        ("ifloordiv", np.floor_divide, "f", "normal", POINTWISE),
        ("imod", np.remainder, "f", "normal", POINTWISE),
        ("ipow", np.power, "f", "positive", POWERS),
        ("iand", np.logical_and, "b", "normal", POINTWISE),
        ("ior", np.logical_or, "b", "normal", POINTWISE),
        ("ixor", np.logical_xor, "b", "normal", POINTWISE),
    ):
        records.append(
            Record(
                f"operator.{symbol}",
                _inplace(kinds, values),
                _writes(operation),
                _peer_write(f"__{symbol}__"),
                tolerance,
                gradient=False,
                meets=True,
                weight=0.3,
                covers=(f"alpha.Tensor.__{symbol}__",),
            )
        )
    for name, operation, kinds, values in (
        ("eq_", np.equal, "fi", "whole"),
        ("ne_", np.not_equal, "fi", "whole"),
        ("lt_", np.less, "fi", "whole"),
        ("le_", np.less_equal, "fi", "whole"),
        ("gt_", np.greater, "fi", "whole"),
        ("ge_", np.greater_equal, "fi", "whole"),
        ("logical_and_", np.logical_and, "b", "normal"),
        ("logical_or_", np.logical_or, "b", "normal"),
        ("logical_xor_", np.logical_xor, "b", "normal"),
        ("floor_divide_", np.floor_divide, "f", "normal"),
        ("remainder_", np.remainder, "f", "normal"),
        ("pow_", np.power, "f", "positive"),
    ):
        tolerance = POWERS if name == "pow_" else POINTWISE
        options: dict[str, Any] = {"gradient": False, "meets": True, "weight": 0.2}
        record = Record(
            f"alpha.Tensor.{name}", _inplace(kinds, values), _writes(operation), _peer_write(name), tolerance, **options
        )
        records.append(record)
    records.append(Record("alpha.copy_", _inplace("fi"), _writes(lambda x, y: y), _peer_copy, meets=True, weight=0.5))
    records.append(
        Record("alpha.Tensor.copy_", _inplace("fi"), _writes(lambda x, y: y), _peer_copy, meets=True, weight=0.3)
    )

    def fill(d: Draw) -> Case:
        dtype = d.dtype("fi")
        number = d.number("f" if dtype[0] == "f" else "i")
        return Case([d.input(d.shape(), dtype, written=True, views=0.6), abs(number) if dtype == "uint8" else number])

    def zero(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype("fib"), written=True, views=0.6)])

    def zeroed(x: Any) -> None:
        x[...] = 0

    records.append(
        Record("alpha.Tensor.fill_", fill, _writes(lambda x, y: y), lambda t, x, y: x.fill_(y), meets=True, weight=0.3)
    )
    records.append(Record("alpha.Tensor.zero_", zero, zeroed, lambda t, x: x.zero_(), weight=0.3))
    return records


def _peer_copy(torch: Any, x: Any, y: Any) -> Any:
    if not hasattr(y, "clone"):
        return x.fill_(y)
    return x.copy_(y.clone())


RECORDS = [
    *_binary_records(),
    *_unary_records(),
    *_activation_records(),
    *_piecewise_records(),
    *_function_records(),
    *_cast_records(),
    *_inplace_records(),
]
