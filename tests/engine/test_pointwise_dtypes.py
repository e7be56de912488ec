"""The dtypes and values of element-wise functions in every case of promotion, and the arguments that PyTorch's take."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError

UNARY = """
abs acos asinh atan bitwise_not ceil cosh deg2rad digamma erfc erfinv exp2 floor frac i0 isfinite isinf isneginf isreal
lgamma log2 logical_not logit nan_to_num neg positive round sgn sigmoid signbit sinc sinh square tan trunc frexp
special.entr special.erfcx special.expit special.i1 special.i1e special.log_ndtr special.ndtr special.ndtri special.psi
"""
BINARY = """
add sub mul div floor_divide fmod remainder pow float_power atan2 copysign fmax hypot maximum ldexp logaddexp xlogy
special.xlog1py bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm logical_and
isclose rsub result_type clamp_min true_divide
"""
VALUES: dict[str, list[float]] = {
    "bool": [True, False, True], "uint8": [1, 2, 3], "int32": [1, 2, -3], "int64": [2, 1, 4],
    "float32": [0.5, -1.5, 2.0], "float64": [0.3, 1.5, -2.0],
}  # fmt: skip
ACCEPTED = (ArgumentError, DtypeError)
"""What is raised where PyTorch has a value: for integers to negative powers, and powers of bools."""


def _found(space: Any, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        space = getattr(space, part)
    function: Callable[..., Any] = space
    return function


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [part for one in value for part in _arrays(one)]
    return [np.asarray(value.detach().numpy() if hasattr(value, "detach") else str(value).removeprefix("torch."))]


def _agree(torch: Any, name: str, *arguments: Any, **options: Any) -> None:
    """Ours is PyTorch's result, where PyTorch has one; arrays are made tensors of each."""
    ours, theirs = (
        [make(a) if isinstance(a, np.ndarray) else a for a in arguments] for make in (_tensor, torch.tensor)
    )
    try:
        wanted = _found(torch, name)(*theirs, **options)
    except (RuntimeError, TypeError, NotImplementedError):
        return
    try:
        found = _found(alpha, name)(*ours, **options)
    except ACCEPTED:
        assert name == "pow" and not isinstance(arguments[1], float)
        return
    for a, b in zip(_arrays(found), _arrays(wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (name, arguments, options)
        if a.dtype.kind == "U":
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6, err_msg=f"{name} {arguments} {options}")


def _tensor(array: Any) -> Any:
    return alpha.tensor(array, engine="cpu")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", UNARY.split())
def test_one_operand_of_every_dtype(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    for dtype, values in VALUES.items():
        _agree(torch, name, np.array(values, dtype))
        _agree(torch, name, np.array(values[0], dtype))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", BINARY.split())
def test_two_operands_of_every_pair_of_dtypes(name: str) -> None:
    """Tensors with and without axes, and numbers on either side."""
    torch: Any = pytest.importorskip("torch")
    for first, second in product(VALUES, VALUES):
        x, y = np.array(VALUES[first], first), np.array(VALUES[second][::-1], second)
        for arguments in ((x, y), (x, y[0, ...]), (x[0, ...], y), (x[0, ...], y[0, ...])):
            _agree(torch, name, *arguments)
    for dtype, number in product(VALUES, (True, 2, 1.5)):
        x = np.array(VALUES[dtype], dtype)
        for arguments in ((x, number), (x[0, ...], number), (number, x)):
            _agree(torch, name, *arguments)


@pytest.mark.needs("torch")
def test_alpha_and_rounding_modes() -> None:
    torch: Any = pytest.importorskip("torch")
    for first, second in product(VALUES, VALUES):
        x, y = np.array(VALUES[first], first), np.array(VALUES[second][::-1], second)
        for name, factor, other in product(("add", "sub", "rsub"), (2, -1.5, True), (y, 2)):
            _agree(torch, name, x, other, alpha=factor)
        for mode in ("trunc", "floor"):
            if (y != 0).all():
                _agree(torch, "div", x, y, rounding_mode=mode)
        _agree(torch, "addcmul", x, y, y, value=2)


@pytest.mark.needs("torch")
def test_dtypes_that_promote_and_cast() -> None:
    torch: Any = pytest.importorskip("torch")
    for first, second in product(VALUES, VALUES):
        kinds = getattr(torch, first), getattr(torch, second)
        assert str(torch.promote_types(*kinds)) == f"torch.{alpha.promote_types(first, second)}"
        assert alpha.can_cast(first, second) == torch.can_cast(*kinds)


def test_operators_of_bits(engine: Engine) -> None:
    a, b = np.array([5, -6, 7, 1 << 40]), np.array([3, 9, 1, 70])
    x, y = alpha.tensor(a, engine=engine), alpha.tensor(b, engine=engine)
    for symbol in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        assert symbol(x, y).tolist() == symbol(a, b).tolist()  # shifts by 64 and more leave no bit, as in NumPy
        assert symbol(x, 2).tolist() == symbol(a, 2).tolist()
        assert symbol(5, abs(y)).tolist() == symbol(5, b).tolist()
    assert (~x).tolist() == (~a).tolist()
    for symbol in (operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift):
        written, wanted = x.clone(), a.copy()
        assert symbol(written, 3) is written
        assert written.tolist() == symbol(wanted, 3).tolist()
    assert (x << -1).tolist() == [0] * 4 and (x >> -1).tolist() == [0, -1, 0, 0]
    small = alpha.tensor(np.array([200, 3], np.uint8), engine=engine)
    assert ((small << 1).tolist(), (~small).tolist(), (small >> 7).tolist()) == ([144, 6], [55, 252], [1, 0])
    with pytest.raises(DtypeError, match=r"\[bitwise_left_shift\] expected integers, got float32"):
        _ = alpha.ones(2, engine=engine) << 1
    with pytest.raises(DtypeError, match=r"\[bitwise_left_shift\] expected integers, got bool"):
        _ = (x > 0) << True


def test_equality_of_tensors(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0, float("nan")], engine=engine)
    assert not alpha.equal(x, x) and alpha.equal(x[:2], x[:2].clone()) and not alpha.equal(x[:2], x[:1])
    assert not x.allclose(x) and x.allclose(x, equal_nan=True) and x[:2].allclose(x[:2] + 1e-9)
    assert alpha.isclose(x, x * 1.1, rtol=0.2).tolist() == [True, True, False]
    assert alpha.isclose(alpha.tensor([1, 5], engine=engine), 1).tolist() == [True, False]
    with pytest.raises(ArgumentError, match=r"\[isclose\] expected rtol and atol >= 0, got -1"):
        alpha.isclose(x, x, rtol=-1)


def test_functions_in_place_are_written_into_the_memory(engine: Engine) -> None:
    values = np.array([0.25, 0.5, 0.75])
    for name in ("sinh", "asin", "lgamma", "trunc", "logit", "relu", "frac", "erfinv"):
        x = alpha.tensor(values, engine=engine)
        address = x.address
        assert getattr(x, f"{name}_")() is x and x.address == address
        np.testing.assert_array_equal(x.numpy(), getattr(alpha, name)(alpha.tensor(values, engine=engine)).numpy())
        changed = alpha.tensor(values, engine=engine, requires_grad=True) * 1
        getattr(changed, f"{name}_")().sum().backward()  # what backward reads of the argument was kept
    x = alpha.tensor(values, engine=engine)
    assert x.add_(1, alpha=2).sub_(x, alpha=0.5).div_(0.5, rounding_mode="floor").tolist() == [2.0, 2.0, 2.0]
    assert x.polygamma_(1).tolist() == alpha.polygamma(1, alpha.full((3,), 2.0, dtype=alpha.float64)).tolist()
    with pytest.raises(GraphError, match=r"\[arccos_\] expected a tensor that is not a leaf"):
        alpha.tensor(values, requires_grad=True, engine=engine).arccos_()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: alpha.div(x, x, rounding_mode="up"), r'\[div\] expected rounding_mode="floor", "trunc" or None'),
        (lambda x: alpha.add(alpha.tensor([1]), 1, alpha=0.5), r"\[add\] expected alpha as an int beside int64"),
        (lambda x: alpha.sub(x, x, alpha=True), r"\[sub\] expected alpha as a number, got a bool"),
        (lambda x: alpha.frac(alpha.tensor([1])), r"\[frac\] expected float32 or float64, got int64"),
        (lambda x: alpha.round(alpha.tensor([15]), decimals=-1), r"\[round\] expected floats to round to decimals"),
        (lambda x: alpha.polygamma(-1, x), r"\[polygamma\] expected n >= 0, got -1"),
        (lambda x: alpha.heaviside(x, x.double()), r"\[heaviside\] expected input and values of one dtype"),
        (lambda x: alpha.gcd(x, x), r"\[gcd\] expected integers, got float32"),
        (lambda x: alpha.sinh("1"), r"\[sinh\] expected tensors, NumPy arrays or numbers, got str"),
        (lambda x: alpha.logit(x, "1"), r"\[logit\] expected eps as a number"),
        (lambda x: alpha.positive(x > 0), r"\[positive\] expected numbers, got bool"),
        (lambda x: alpha.addcdiv(alpha.tensor([1]), 2, 3), r"\[addcdiv\] expected a float among the tensors"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((ArgumentError, DtypeError), match=message):
        call(alpha.ones(2))
