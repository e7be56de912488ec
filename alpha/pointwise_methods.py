"""Tensor's operators and methods that are element-wise functions, and what these write in place.

``methods`` attaches them, and says how. What ends in ``_`` writes into the tensor and returns it.
"""

from __future__ import annotations

from typing import Any

from alpha.functions import arithmetic, bits, comparison, inplace, rounding, special, special_gamma, transcendental
from alpha.tensor import Tensor


class PointwiseMethods:
    """The element-wise methods; ``self`` is a Tensor."""

    # -- operators ---------------------------------------------------------------------------------------------------

    __add__ = arithmetic.add
    __sub__ = arithmetic.sub
    __mul__ = arithmetic.mul
    __truediv__ = arithmetic.div
    __floordiv__ = arithmetic.floor_divide
    __mod__ = arithmetic.remainder
    __pow__ = arithmetic.pow
    __neg__ = rounding.neg
    __pos__ = rounding.positive
    __abs__ = rounding.abs
    __lt__ = comparison.lt
    __le__ = comparison.le
    __gt__ = comparison.gt
    __ge__ = comparison.ge
    __invert__ = bits.bitwise_not
    __and__ = __rand__ = bits.bitwise_and
    __or__ = __ror__ = bits.bitwise_or
    __xor__ = __rxor__ = bits.bitwise_xor
    __lshift__ = bits.bitwise_left_shift
    __rshift__ = bits.bitwise_right_shift

    def __radd__(self: Any, other: Any) -> Tensor:
        return arithmetic.add(other, self)

    def __rsub__(self: Any, other: Any) -> Tensor:
        return arithmetic.sub(other, self)

    def __rmul__(self: Any, other: Any) -> Tensor:
        return arithmetic.mul(other, self)

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        return arithmetic.div(other, self)

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return arithmetic.floor_divide(other, self)

    def __rmod__(self: Any, other: Any) -> Tensor:
        return arithmetic.remainder(other, self)

    def __rpow__(self: Any, other: Any) -> Tensor:
        return arithmetic.pow(other, self)

    def __rlshift__(self: Any, other: Any) -> Tensor:
        return bits.bitwise_left_shift(other, self)

    def __rrshift__(self: Any, other: Any) -> Tensor:
        return bits.bitwise_right_shift(other, self)

    # -- functions ---------------------------------------------------------------------------------------------------

    abs = rounding.abs
    absolute = rounding.absolute
    acos = transcendental.acos
    acosh = transcendental.acosh
    add = arithmetic.add
    addcdiv = arithmetic.addcdiv
    addcmul = arithmetic.addcmul
    allclose = comparison.allclose
    arccos = transcendental.arccos
    arccosh = transcendental.arccosh
    arcsin = transcendental.arcsin
    arcsinh = transcendental.arcsinh
    arctan = transcendental.arctan
    arctan2 = arithmetic.arctan2
    arctanh = transcendental.arctanh
    asin = transcendental.asin
    asinh = transcendental.asinh
    atan = transcendental.atan
    atan2 = arithmetic.atan2
    atanh = transcendental.atanh
    bitwise_and = bits.bitwise_and
    bitwise_left_shift = bits.bitwise_left_shift
    bitwise_not = bits.bitwise_not
    bitwise_or = bits.bitwise_or
    bitwise_right_shift = bits.bitwise_right_shift
    bitwise_xor = bits.bitwise_xor
    ceil = rounding.ceil
    clamp = rounding.clamp
    clamp_max = rounding.clamp_max
    clamp_min = rounding.clamp_min
    clip = rounding.clip
    copysign = arithmetic.copysign
    cos = transcendental.cos
    cosh = transcendental.cosh
    deg2rad = transcendental.deg2rad
    digamma = special.digamma
    div = arithmetic.div
    divide = arithmetic.divide
    eq = comparison.eq
    equal = comparison.equal
    erf = transcendental.erf
    erfc = transcendental.erfc
    erfinv = transcendental.erfinv
    exp = transcendental.exp
    exp2 = transcendental.exp2
    expm1 = transcendental.expm1
    fix = rounding.fix
    float_power = arithmetic.float_power
    floor = rounding.floor
    floor_divide = arithmetic.floor_divide
    fmax = arithmetic.fmax
    fmin = arithmetic.fmin
    fmod = arithmetic.fmod
    frac = rounding.frac
    frexp = rounding.frexp
    gcd = bits.gcd
    ge = comparison.ge
    greater = comparison.greater
    greater_equal = comparison.greater_equal
    gt = comparison.gt
    heaviside = comparison.heaviside
    hypot = arithmetic.hypot
    i0 = special.i0
    igamma = special_gamma.igamma
    igammac = special_gamma.igammac
    is_complex = comparison.is_complex
    is_floating_point = comparison.is_floating_point
    isclose = comparison.isclose
    isfinite = comparison.isfinite
    isinf = comparison.isinf
    isnan = comparison.isnan
    isneginf = comparison.isneginf
    isposinf = comparison.isposinf
    isreal = comparison.isreal
    lcm = bits.lcm
    ldexp = arithmetic.ldexp
    le = comparison.le
    lerp = arithmetic.lerp
    less = comparison.less
    less_equal = comparison.less_equal
    lgamma = special.lgamma
    log = transcendental.log
    log10 = transcendental.log10
    log1p = transcendental.log1p
    log2 = transcendental.log2
    logaddexp = transcendental.logaddexp
    logaddexp2 = transcendental.logaddexp2
    logical_and = comparison.logical_and
    logical_not = comparison.logical_not
    logical_or = comparison.logical_or
    logical_xor = comparison.logical_xor
    logit = special.logit
    lt = comparison.lt
    maximum = arithmetic.maximum
    minimum = arithmetic.minimum
    mul = arithmetic.mul
    multiply = arithmetic.multiply
    mvlgamma = special.mvlgamma
    nan_to_num = rounding.nan_to_num
    ne = comparison.ne
    neg = rounding.neg
    negative = rounding.negative
    nextafter = arithmetic.nextafter
    not_equal = comparison.not_equal
    positive = rounding.positive
    pow = arithmetic.pow
    rad2deg = transcendental.rad2deg
    reciprocal = transcendental.reciprocal
    remainder = arithmetic.remainder
    round = rounding.round
    rsqrt = transcendental.rsqrt
    sgn = rounding.sgn
    sigmoid = transcendental.sigmoid
    sign = rounding.sign
    signbit = comparison.signbit
    sin = transcendental.sin
    sinc = transcendental.sinc
    sinh = transcendental.sinh
    sqrt = transcendental.sqrt
    square = rounding.square
    sub = arithmetic.sub
    subtract = arithmetic.subtract
    tan = transcendental.tan
    tanh = transcendental.tanh
    true_divide = arithmetic.true_divide
    trunc = rounding.trunc
    xlogy = special.xlogy

    def polygamma(self: Any, n: int) -> Tensor:
        """``alpha.polygamma(n, x)``."""
        return special.polygamma(n, self)

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """The elements where the condition holds, elsewhere the other's."""
        return comparison.where(condition, self, other)

    # -- in place ----------------------------------------------------------------------------------------------------

    abs_ = inplace.written_by(rounding.abs)
    absolute_ = inplace.written_by(rounding.absolute, "absolute")
    acos_ = inplace.written_by(transcendental.acos)
    acosh_ = inplace.written_by(transcendental.acosh)
    add_ = __iadd__ = inplace.add_
    addcdiv_ = inplace.written_by(arithmetic.addcdiv)
    addcmul_ = inplace.written_by(arithmetic.addcmul)
    arccos_ = inplace.written_by(transcendental.arccos, "arccos")
    arccosh_ = inplace.written_by(transcendental.arccosh, "arccosh")
    arcsin_ = inplace.written_by(transcendental.arcsin, "arcsin")
    arcsinh_ = inplace.written_by(transcendental.arcsinh, "arcsinh")
    arctan_ = inplace.written_by(transcendental.arctan, "arctan")
    arctan2_ = inplace.written_by(arithmetic.arctan2, "arctan2")
    arctanh_ = inplace.written_by(transcendental.arctanh, "arctanh")
    asin_ = inplace.written_by(transcendental.asin)
    asinh_ = inplace.written_by(transcendental.asinh)
    atan_ = inplace.written_by(transcendental.atan)
    atan2_ = inplace.written_by(arithmetic.atan2)
    atanh_ = inplace.written_by(transcendental.atanh)
    bitwise_and_ = inplace.written_by(bits.bitwise_and)
    bitwise_left_shift_ = inplace.written_by(bits.bitwise_left_shift)
    bitwise_not_ = inplace.written_by(bits.bitwise_not)
    bitwise_or_ = inplace.written_by(bits.bitwise_or)
    bitwise_right_shift_ = inplace.written_by(bits.bitwise_right_shift)
    bitwise_xor_ = inplace.written_by(bits.bitwise_xor)
    ceil_ = inplace.written_by(rounding.ceil)
    clamp_ = inplace.written_by(rounding.clamp)
    clamp_max_ = inplace.written_by(rounding.clamp_max)
    clamp_min_ = inplace.written_by(rounding.clamp_min)
    clip_ = inplace.written_by(rounding.clip, "clip")
    copysign_ = inplace.written_by(arithmetic.copysign)
    cos_ = inplace.written_by(transcendental.cos)
    cosh_ = inplace.written_by(transcendental.cosh)
    deg2rad_ = inplace.written_by(transcendental.deg2rad)
    digamma_ = inplace.written_by(special.digamma)
    div_ = __itruediv__ = inplace.div_
    divide_ = inplace.div_
    eq_ = inplace.written_by(comparison.eq)
    erf_ = inplace.written_by(transcendental.erf)
    erfc_ = inplace.written_by(transcendental.erfc)
    erfinv_ = inplace.written_by(transcendental.erfinv)
    exp_ = inplace.written_by(transcendental.exp)
    exp2_ = inplace.written_by(transcendental.exp2)
    expm1_ = inplace.written_by(transcendental.expm1)
    fix_ = inplace.written_by(rounding.fix, "fix")
    float_power_ = inplace.written_by(arithmetic.float_power)
    floor_ = inplace.written_by(rounding.floor)
    floor_divide_ = inplace.written_by(arithmetic.floor_divide)
    fmod_ = inplace.written_by(arithmetic.fmod)
    frac_ = inplace.written_by(rounding.frac)
    gcd_ = inplace.written_by(bits.gcd)
    ge_ = inplace.written_by(comparison.ge)
    greater_ = inplace.written_by(comparison.greater, "greater")
    greater_equal_ = inplace.written_by(comparison.greater_equal, "greater_equal")
    gt_ = inplace.written_by(comparison.gt)
    heaviside_ = inplace.written_by(comparison.heaviside)
    hypot_ = inplace.written_by(arithmetic.hypot)
    i0_ = inplace.written_by(special.i0)
    igamma_ = inplace.written_by(special_gamma.igamma)
    igammac_ = inplace.written_by(special_gamma.igammac)
    lcm_ = inplace.written_by(bits.lcm)
    ldexp_ = inplace.written_by(arithmetic.ldexp)
    le_ = inplace.written_by(comparison.le)
    lerp_ = inplace.written_by(arithmetic.lerp)
    less_ = inplace.written_by(comparison.less, "less")
    less_equal_ = inplace.written_by(comparison.less_equal, "less_equal")
    lgamma_ = inplace.written_by(special.lgamma)
    log_ = inplace.written_by(transcendental.log)
    log10_ = inplace.written_by(transcendental.log10)
    log1p_ = inplace.written_by(transcendental.log1p)
    log2_ = inplace.written_by(transcendental.log2)
    logical_and_ = inplace.written_by(comparison.logical_and)
    logical_not_ = inplace.written_by(comparison.logical_not)
    logical_or_ = inplace.written_by(comparison.logical_or)
    logical_xor_ = inplace.written_by(comparison.logical_xor)
    logit_ = inplace.written_by(special.logit)
    lt_ = inplace.written_by(comparison.lt)
    mul_ = __imul__ = inplace.mul_
    multiply_ = inplace.mul_
    mvlgamma_ = inplace.written_by(special.mvlgamma)
    nan_to_num_ = inplace.written_by(rounding.nan_to_num)
    ne_ = inplace.written_by(comparison.ne)
    neg_ = inplace.written_by(rounding.neg)
    negative_ = inplace.written_by(rounding.negative, "negative")
    nextafter_ = inplace.written_by(arithmetic.nextafter)
    not_equal_ = inplace.written_by(comparison.not_equal, "not_equal")
    pow_ = inplace.written_by(arithmetic.pow)
    rad2deg_ = inplace.written_by(transcendental.rad2deg)
    reciprocal_ = inplace.written_by(transcendental.reciprocal)
    remainder_ = inplace.written_by(arithmetic.remainder)
    round_ = inplace.written_by(rounding.round)
    rsqrt_ = inplace.written_by(transcendental.rsqrt)
    sgn_ = inplace.written_by(rounding.sgn, "sgn")
    sigmoid_ = inplace.written_by(transcendental.sigmoid)
    sign_ = inplace.written_by(rounding.sign)
    sin_ = inplace.written_by(transcendental.sin)
    sinc_ = inplace.written_by(transcendental.sinc)
    sinh_ = inplace.written_by(transcendental.sinh)
    sqrt_ = inplace.written_by(transcendental.sqrt)
    square_ = inplace.written_by(rounding.square)
    sub_ = __isub__ = inplace.sub_
    subtract_ = inplace.sub_
    tan_ = inplace.written_by(transcendental.tan)
    tanh_ = inplace.written_by(transcendental.tanh)
    true_divide_ = inplace.written_by(arithmetic.true_divide)
    trunc_ = inplace.written_by(rounding.trunc)
    xlogy_ = inplace.written_by(special.xlogy)
    __ifloordiv__ = inplace.floor_divide_
    __imod__ = inplace.remainder_
    __ipow__ = inplace.pow_
    __iand__ = inplace.and_
    __ior__ = inplace.or_
    __ixor__ = inplace.xor_
    __ilshift__ = inplace.lshift_
    __irshift__ = inplace.rshift_

    def polygamma_(self: Any, n: int) -> Tensor:
        """``x[...] = alpha.polygamma(n, x)``. Returns x."""
        return inplace.overwrite("polygamma_", self, lambda x: special.polygamma(n, x))
