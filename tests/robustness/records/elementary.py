"""Element-wise functions beyond arithmetic: inverses, rounding, bits, special functions, and activations that draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from tests.robustness.cases import Case, Draw
from tests.robustness.compare import POINTWISE, Tolerance
from tests.robustness.record import Record
from tests.robustness.records.pointwise import Oracle, erfc, one, operands

CROSSING = Tolerance(64, 0, 64, "the function is 0 where its terms are about 1")
STEEP = Tolerance(256, 4, 64, "powers and exponentials gather the roundings of their arguments")
_ANGLES = np.arange(1, 400, 2) * (math.pi / 400)


def _bessel(order: int, scaled: bool) -> Oracle:
    """The mean of exp(x cos t) cos(n t) over half a turn, which converges faster than any power of the steps."""

    def value(x: Any) -> Any:
        x = np.asarray(x, np.float64)[..., None]
        growth = x * np.cos(_ANGLES) - (np.abs(x) if scaled else 0)
        return np.mean(np.exp(growth) * np.cos(order * _ANGLES), axis=-1)

    return value


def _of_numbers(function: Callable[[float], float]) -> Oracle:
    """A function of Python's floats; NaN where it has no value."""

    def of_one(x: float) -> float:
        try:
            return function(x)
        except (ArithmeticError, ValueError):
            return math.nan

    return np.vectorize(of_one, otypes=[np.float64])


def _digamma(x: float) -> float:
    total = 0.0
    while x < 40:
        total -= 1 / x
        x += 1
    square = 1 / (x * x)
    return total + math.log(x) - 0.5 / x - square / 12 + square**2 / 120 - square**3 / 252


def _zeta(s: float, q: float) -> float:
    total = math.fsum((q + k) ** -s for k in range(400))
    far = q + 400
    return total + far ** (1 - s) / (s - 1) + 0.5 * far**-s + s / 12 * far ** (-s - 1)


def _logit(x: Any) -> Any:
    return np.log(x) - np.log1p(-x)


ndtri = _of_numbers(NormalDist().inv_cdf)

UNARY: list[tuple[str, Oracle, str, Tolerance, str, str]] = [
    # name, oracle, values, tolerance, PyTorch's name, other names of it
    ("acos", np.arccos, "unit", POINTWISE, "acos", "alpha.arccos"),
    ("acosh", np.arccosh, "positive", CROSSING, "acosh", "alpha.arccosh"),
    ("asin", np.arcsin, "unit", POINTWISE, "asin", "alpha.arcsin"),
    ("asinh", np.arcsinh, "normal", POINTWISE, "asinh", "alpha.arcsinh"),
    ("atan", np.arctan, "normal", POINTWISE, "atan", "alpha.arctan"),
    ("atanh", np.arctanh, "unit", POINTWISE, "atanh", "alpha.arctanh"),
    ("cosh", np.cosh, "normal", STEEP, "cosh", ""),
    ("sinh", np.sinh, "normal", STEEP, "sinh", ""),
    ("tan", np.tan, "unit", POINTWISE, "tan", ""),
    ("sinc", np.sinc, "unit", CROSSING, "sinc", "alpha.special.sinc"),
    ("deg2rad", np.deg2rad, "normal", POINTWISE, "deg2rad", ""),
    ("rad2deg", np.rad2deg, "normal", POINTWISE, "rad2deg", ""),
    ("exp2", np.exp2, "normal", STEEP, "exp2", "alpha.special.exp2"),
    ("log2", np.log2, "positive", CROSSING, "log2", ""),
    ("log10", np.log10, "positive", CROSSING, "log10", ""),
    ("erfc", erfc, "normal", STEEP, "erfc", "alpha.special.erfc"),
    ("erfinv", lambda x: ndtri((x + 1) / 2) * math.sqrt(0.5), "unit", STEEP, "erfinv", "alpha.special.erfinv"),
    ("lgamma", _of_numbers(math.lgamma), "positive", CROSSING, "lgamma", "alpha.special.lgamma alpha.special.gammaln"),
    ("digamma", _of_numbers(_digamma), "positive", CROSSING, "digamma", "alpha.special.digamma alpha.special.psi"),
    ("i0", _bessel(0, False), "normal", STEEP, "i0", "alpha.special.i0"),
    ("special.i0e", _bessel(0, True), "normal", STEEP, "special.i0e", ""),
    ("special.i1", _bessel(1, False), "normal", STEEP, "special.i1", ""),
    ("special.i1e", _bessel(1, True), "normal", STEEP, "special.i1e", ""),
    ("special.erfcx", lambda x: np.exp(x * x) * erfc(x), "unit", STEEP, "special.erfcx", ""),
    ("special.ndtr", lambda x: erfc(-x * math.sqrt(0.5)) / 2, "normal", STEEP, "special.ndtr", ""),
    ("special.log_ndtr", lambda x: np.log(erfc(-x * math.sqrt(0.5)) / 2), "unit", STEEP, "special.log_ndtr", ""),
    ("special.ndtri", ndtri, "unit", STEEP, "special.ndtri", ""),
    ("special.entr", lambda x: -x * np.log(x), "positive", CROSSING, "special.entr", ""),
    ("logit", _logit, "unit", CROSSING, "logit", "alpha.special.logit"),
]  # fmt: skip
"""Functions of floats, each with numbers for which it has a value."""


def _unary_records() -> list[Record]:
    records = []
    for name, oracle, values, tolerance, peer, others in UNARY:

        def draw(d: Draw, values: str = values) -> Case:
            d.values = "ordinary"  # beyond their domains the tests of special values try them
            return Case([d.input(d.shape(), d.dtype("f"), values)])

        covers = tuple(others.split())
        record = Record(
            f"alpha.{name}",
            draw,
            oracle,
            _named(peer),
            tolerance,
            differences=False,
            weight=0.3,
            covers=covers,
            gradient=name != "digamma",  # PyTorch's has ten digits
        )
        records.append(record)
    return records


def _named(name: str) -> Callable[..., Any]:
    def peer(torch: Any, *args: Any, **options: Any) -> Any:
        for part in name.split("."):
            torch = getattr(torch, part)
        return torch(*args, **options)

    return peer


# -- two operands ------------------------------------------------------------------------------------------------

BINARY: list[tuple[str, Oracle, str, str, bool, str]] = [
    # name, oracle, kinds of dtypes, values, whether it has a gradient, other names of it
    ("atan2", np.arctan2, "f", "normal", True, "alpha.arctan2"),
    ("copysign", np.copysign, "f", "normal", True, ""),
    ("fmax", np.fmax, "fi", "distinct", True, ""),
    ("fmin", np.fmin, "fi", "distinct", True, ""),
    ("fmod", np.fmod, "fi", "normal", True, ""),
    ("hypot", np.hypot, "f", "normal", True, ""),
    ("ldexp", lambda x, y: x * np.exp2(y), "f", "normal", True, ""),
    ("logaddexp", np.logaddexp, "f", "normal", True, ""),
    ("logaddexp2", np.logaddexp2, "f", "normal", True, ""),
    ("nextafter", lambda x, y: x, "f", "normal", False, ""),
    ("rsub", lambda x, y: y - x, "fi", "normal", True, ""),
    ("xlogy", lambda x, y: x * np.log(y), "f", "positive", True, "alpha.special.xlogy"),
    ("special.xlog1py", lambda x, y: x * np.log1p(y), "f", "positive", True, ""),
    ("bitwise_and", np.bitwise_and, "ib", "normal", False, ""),
    ("bitwise_or", np.bitwise_or, "ib", "normal", False, ""),
    ("bitwise_xor", np.bitwise_xor, "ib", "normal", False, ""),
    ("bitwise_left_shift", np.left_shift, "i", "positive", False, ""),
    ("bitwise_right_shift", np.right_shift, "i", "positive", False, ""),
    ("gcd", np.gcd, "i", "normal", False, ""),
    ("lcm", np.lcm, "i", "positive", False, ""),
    ("isclose", np.isclose, "f", "whole", False, "alpha.allclose"),
    ("heaviside", np.heaviside, "f", "normal", False, ""),
    ("clamp_min", np.maximum, "f", "distinct", True, ""),
    ("clamp_max", np.minimum, "f", "distinct", True, ""),
]  # fmt: skip


def _binary_records() -> list[Record]:
    records = []
    for name, oracle, kinds, values, gradient, others in BINARY:

        def draw(d: Draw, kinds: str = kinds, values: str = values) -> Case:
            d.values = "ordinary"
            shape, dtype = d.shape(), d.dtype(kinds)
            return Case([d.input(shape, dtype, values), d.input(d.broadcastable(shape), dtype, values)])

        covers = tuple(others.split())
        records.append(
            Record(
                f"alpha.{name}", draw, oracle, _named(name), CROSSING, gradient=gradient, differences=False, weight=0.3,
                covers=covers,
            )
        )  # fmt: skip
    for symbol, oracle in (("lshift", np.left_shift), ("rshift", np.right_shift)):
        covers = (f"alpha.Tensor.__{symbol}__", f"alpha.Tensor.__r{symbol}__", f"alpha.Tensor.__i{symbol}__")

        def shifted(d: Draw) -> Case:
            d.values = "ordinary"
            return operands("i", "positive", "i")(d)

        def draw(d: Draw) -> Case:
            case = shifted(d)
            case.args[:] = [abs(a) if isinstance(a, int) else a for a in case.args]
            return case

        records.append(
            Record(f"operator.{symbol}", draw, oracle, None, gradient=False, meets=True, weight=0.2, covers=covers)
        )
    return records


# -- others ------------------------------------------------------------------------------------------------------


def _other_records() -> list[Record]:
    def decimals(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), "float64", "distinct")], {"decimals": d.pick((0, 2, -1))})

    def three(d: Draw) -> Case:
        d.values = "ordinary"
        shape, dtype = d.shape(), d.dtype("f")
        return Case([d.input(shape, dtype), *(d.input(d.broadcastable(shape), dtype, "positive") for _ in range(2))])

    def weighted(d: Draw) -> Case:
        case = three(d)
        case.args[2] = d.pick((0.25, case.args[2]))
        return case

    def orders(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.whole(1, 4), d.input(d.shape(), d.dtype("f"), "positive")])

    def polygamma(n: int, x: Any) -> Any:
        sign = math.factorial(n) * (-1) ** (n + 1)
        return sign * np.vectorize(lambda one: _zeta(n + 1.0, one), otypes=[np.float64])(x)

    def above(d: Draw) -> Case:
        d.values = "ordinary"
        shape = d.shape()
        x = d.array(shape, "float64", "positive") + 1.5
        return Case([d.pick((2.0, 3.5)), d.input(x.shape, d.dtype("f"), "positive")])

    def dimensions(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), d.dtype("f"), "positive"), d.whole(1, 3)])

    def mvlgamma(x: Any, p: int) -> Any:
        parts = [_of_numbers(math.lgamma)(x - k / 2) for k in range(p)]
        return sum(parts) + p * (p - 1) / 4 * math.log(math.pi)

    def plain(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype("fi"))])

    def floats(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), d.dtype("f"), "distinct")])

    def bools(function: Callable[..., Any]) -> Oracle:
        return lambda x: function(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)

    def mask(name: str, oracle: Oracle) -> Record:
        return Record(f"alpha.{name}", plain, oracle, _named(name), gradient=False, weight=0.2)

    def check_drawn(result: Any, case: Case) -> str | None:
        totals = np.asarray(result.detach()).sum(-1)
        return None if np.allclose(totals, 1, atol=1e-5) else f"gumbel_softmax: sums of {totals}"

    def check_sloped(result: Any, case: Case) -> str | None:
        x, y = case.args[0].numpy(), np.asarray(result.detach())
        within = (y <= np.maximum(x, x / 8) + 1e-6) & (y >= np.minimum(x, x / 3) - 1e-6)
        return None if within.all() else "rrelu: a slope outside of 1/8..1/3"

    def lines(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.fit([3, 4]), d.dtype("f"))], {"hard": d.chance(0.5)})

    def drawn(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(), d.dtype("f"))], {"training": True})

    return [
        Record("alpha.round", decimals, np.round, _named("round"), differences=False,
               weight=0.2, covers=("alpha.special.round",)),
        Record("alpha.trunc", floats, np.trunc, _named("trunc"), differences=False, weight=0.2, covers=("alpha.fix",)),
        Record("alpha.frac", floats, lambda x: x - np.trunc(x), _named("frac"), CROSSING, weight=0.2),
        Record("alpha.nan_to_num", plain, np.nan_to_num, _named("nan_to_num"), gradient=False, weight=0.2),
        Record("alpha.positive", plain, np.array, _named("positive"), weight=0.1),
        Record("alpha.bitwise_not", one("ib"), np.invert, _named("bitwise_not"), gradient=False, weight=0.2),
        mask("isinf", bools(np.isinf)),
        mask("isposinf", bools(np.isposinf)),
        mask("isneginf", bools(np.isneginf)),
        mask("signbit", np.signbit),
        mask("isreal", np.isreal),
        Record("alpha.frexp", floats, np.frexp, None,
               gradient=False, weight=0.2),
        Record("alpha.addcmul", three, lambda x, y, z: x + y * z, _named("addcmul"), CROSSING, weight=0.3),
        Record("alpha.addcdiv", three, lambda x, y, z: x + y / z, _named("addcdiv"), CROSSING, weight=0.3),
        Record("alpha.lerp", weighted, lambda x, y, w: x + w * (y - x), _named("lerp"), STEEP, weight=0.3),
        Record("alpha.float_power", one_power, np.float_power, _named("float_power"), STEEP,
               result=lambda case: "float64", differences=False, weight=0.2),
        Record("alpha.polygamma", orders, polygamma, _named("polygamma"), STEEP, differences=False, weight=0.2,
               covers=("alpha.special.polygamma", "alpha.Tensor.polygamma")),
        Record("alpha.special.zeta", above, lambda s, q: np.vectorize(lambda one: _zeta(s, one), otypes=[float])(q),
               None, STEEP, differences=False, weight=0.2),
        Record("alpha.mvlgamma", dimensions, mvlgamma, _named("mvlgamma"), STEEP, differences=False, weight=0.2,
               covers=("alpha.special.mvlgamma", "alpha.special.multigammaln")),
        Record("alpha.gumbel_softmax", lines, None, None, gradient=False, check=check_drawn, weight=0.2,
               covers=("nn.functional.gumbel_softmax",)),
        Record("alpha.rrelu", drawn, None, None, gradient=False, check=check_sloped, weight=0.2,
               covers=("nn.functional.rrelu",)),
    ]  # fmt: skip


def one_power(d: Draw) -> Case:
    """A tensor and the exponent 2.5."""
    d.values = "ordinary"
    return Case([d.input(d.shape(), d.dtype("f"), "positive"), 2.5])


RECORDS = [*_unary_records(), *_binary_records(), *_other_records()]
