"""Writers: the table of what writes each operation of expressions on floats, for every engine."""

from __future__ import annotations

import math
from collections.abc import Callable

from alpha.expressions import division, elementary, special, trigonometry
from alpha.expressions.arithmetic import Value

FUNCTIONS: dict[str, Callable[..., Value]] = {
    "neg": lambda v, x: v.neg(x),
    "abs": lambda v, x: v.call("fabs", x),
    "exp": elementary.exp,
    "expm1": elementary.expm1,
    "log": elementary.log,
    "log1p": elementary.log1p,
    "sqrt": lambda v, x: v.call("sqrt", x),
    "rsqrt": elementary.rsqrt,
    "exp2": elementary.exp2,
    "log2": elementary.log2,
    "log10": elementary.log10,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "atan": trigonometry.atan,
    "atan2": trigonometry.atan2,
    "tanh": elementary.tanh,
    "sigmoid": elementary.sigmoid,
    "erf": elementary.erf,
    "normal_cdf": elementary.normal_cdf,
    "sign": elementary.sign,
    "floor": lambda v, x: v.call("floor", x),
    "ceil": lambda v, x: v.call("ceil", x),
    "trunc": lambda v, x: v.call("trunc", x),
    "round": lambda v, x: v.call("rint", x),
    "copysign": elementary.copysign,
    "exponent": elementary.exponent,
    "nextafter": elementary.nextafter,
    **special.FUNCTIONS,
    "add": lambda v, x, y: v.add(x, y),
    "sub": lambda v, x, y: v.sub(x, y),
    "mul": lambda v, x, y: v.mul(x, y),
    "div": lambda v, x, y: v.div(x, y),
    "floor_divide": division.floor_divide,
    "remainder": division.remainder,
    "fmod": division.fmod,
    "pow": elementary.pow,
    "maximum": elementary.maximum,
    "minimum": elementary.minimum,
    "clamp": elementary.clamp,
    "where": lambda v, mask, x, y: v.select(mask, x, y),
    "eq": lambda v, x, y: v.compare("oeq", x, y),
    "ne": lambda v, x, y: v.compare("une", x, y),
    "lt": lambda v, x, y: v.compare("olt", x, y),
    "le": lambda v, x, y: v.compare("ole", x, y),
    "gt": lambda v, x, y: v.compare("ogt", x, y),
    "ge": lambda v, x, y: v.compare("oge", x, y),
    "isfinite": lambda v, x: v.compare("olt", v.call("fabs", x), v.number(math.inf)),
    "logical_and": lambda v, x, y: v.logical("and", x, y),
    "logical_or": lambda v, x, y: v.logical("or", x, y),
    "logical_xor": lambda v, x, y: v.logical("xor", x, y),
    "logical_not": lambda v, x: v.inverted(x),
}
"""What writes each operation of ``alpha.expressions.graph`` on floats."""

ERRORS = {**elementary.ERRORS, **trigonometry.ERRORS, **special.ERRORS}
"""The largest errors in float32 and float64, in units of the last place."""
