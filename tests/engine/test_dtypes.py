"""The dtypes of results, which are PyTorch's: by tables that need no PyTorch, and against PyTorch itself."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import dtypes
from alpha.engine import Engine
from alpha.errors import DtypeError, ShapeError

Array = np.ndarray[Any, Any]
Pair = tuple[Any, Any]

LETTERS = {"b": "bool", "u": "uint8", "i": "int32", "l": "int64", "f": "float32", "d": "float64"}
"""A letter for each dtype; "-" in a table stands for DtypeError."""

# The dtype of x + y: a row for each dtype of x, a column for each of y, in the order of LETTERS.
MEET = {"b": "builfd", "u": "uuilfd", "i": "iiilfd", "l": "llllfd", "f": "fffffd", "d": "dddddd"}
# The same where x has axes and y has none.
GIVES_WAY = {"b": "builfd", "u": "uuuufd", "i": "iiiifd", "l": "llllfd", "f": "ffffff", "d": "dddddd"}
# Where y is a number: True, 3, 2.5.
NUMBERS = (True, 3, 2.5)
WITH_NUMBER = {"b": "blf", "u": "uuf", "i": "iif", "l": "llf", "f": "fff", "d": "ddd"}

ARITHMETIC = ("add", "mul", "maximum", "minimum")
NO_BOOLS = ("floor_divide", "remainder", "pow")
"""Functions that refuse two bools."""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")

UNARY = {
    # what a function makes of each dtype, in the order of LETTERS
    "neg": "-uilfd",
    "abs": "-uilfd",
    "square": "luilfd",
    "sign": "builfd",
    "floor": "-uilfd",
    "ceil": "-uilfd",
    "relu": "-uilfd",
    **dict.fromkeys(("exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal"), "fffffd"),
    **dict.fromkeys(("sin", "cos", "tanh", "sigmoid", "erf"), "fffffd"),
    **dict.fromkeys(("logical_not", "isfinite", "isnan"), "bbbbbb"),
    **dict.fromkeys(("sum", "prod"), "llllfd"),
    **dict.fromkeys(("max", "min", "clone", "zeros_like"), "builfd"),
    **dict.fromkeys(("mean", "var", "std", "norm"), "----fd"),
    **dict.fromkeys(("gelu", "leaky_relu", "silu", "softplus"), "----fd"),
}
ALONG_AN_AXIS = {
    "cumsum": "llllfd",
    "logsumexp": "fffffd",
    "sort": "builfd",
    "max": "builfd",
    **dict.fromkeys(("softmax", "log_softmax"), "----fd"),
}

VALUES = {
    "bool": [True, False, True],
    "uint8": [1, 2, 250],
    "int32": [3, -2, 5],
    "int64": [-7, 2, 4],
    "float32": [1.5, -2.25, 3],
    "float64": [0.5, -1.25, 7],
}
OTHERS = {
    "bool": [True, True, True],
    "uint8": [3, 2, 7],
    "int32": [2, 3, 2],
    "int64": [2, 3, 3],
    "float32": [2.5, -1.5, 3],
    "float64": [2.5, 1.25, 3],
}


def array(letter: str, axes: bool = True, values: dict[str, Any] = VALUES) -> Array:
    """Three numbers of a dtype, or the first of them alone."""
    numbers = np.array(values[LETTERS[letter]], LETTERS[letter])
    return numbers if axes else np.array(numbers[0])


def check(letter: str, function: Callable[..., Any], *arguments: Any) -> None:
    """The result has the dtype of a letter, or for "-" there is a DtypeError."""
    if letter == "-":
        with pytest.raises(DtypeError):
            function(*arguments)
        return
    result = function(*arguments)
    result = result[0] if isinstance(result, tuple) else result
    assert str(result.dtype) == LETTERS[letter], (function, arguments)


def pairs(engine: Engine) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Operands with the letters of both ("n" for a number) and that of the dtype in which they meet."""
    for first, second in itertools.product(LETTERS, repeat=2):
        place = list(LETTERS).index(second)
        for axes in itertools.product((True, False), repeat=2):
            x = alpha.tensor(array(first, axes[0], OTHERS), engine=engine)
            y = alpha.tensor(array(second, axes[1], OTHERS), engine=engine)
            if axes[0] == axes[1]:
                met = MEET[first][place]
            else:
                strong, weak = (first, second) if axes[0] else (second, first)
                met = GIVES_WAY[strong][list(LETTERS).index(weak)]
            yield first, second, met, x, y
    for first, (place, number) in itertools.product(LETTERS, enumerate(NUMBERS)):
        for axes_of_x in (True, False):
            x = alpha.tensor(array(first, axes_of_x, OTHERS), engine=engine)
            second = "b" if number is True else "n"
            yield first, second, WITH_NUMBER[first][place], x, number
            yield second, first, WITH_NUMBER[first][place], number, x


def test_the_tables_are_of_the_dtypes_that_there_are() -> None:
    assert set(LETTERS.values()) == {str(dtype) for dtype in dtypes.ALL}


@pytest.mark.parametrize("name", [*ARITHMETIC, *NO_BOOLS, "sub", "div"])
def test_arithmetic(engine: Engine, name: str) -> None:
    function = getattr(alpha, name)
    for first, second, met, x, y in pairs(engine):
        wanted = met
        if (name in NO_BOOLS and met == "b") or (name == "sub" and "b" in (first, second)):
            wanted = "-"
        elif name == "div" and met not in "fd":
            wanted = "f"
        check(wanted, function, x, y)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_give_bools(engine: Engine, name: str) -> None:
    for *_, x, y in pairs(engine):
        check("b", getattr(alpha, name), x, y)


def test_selection_and_joining(engine: Engine) -> None:
    mask = alpha.tensor([True, False, True], engine=engine)
    for _, _, met, x, y in pairs(engine):
        check(met, alpha.where, mask, x, y)
        if not isinstance(x, alpha.Tensor):
            continue
        check("-" if met == "b" and not isinstance(y, alpha.Tensor) else met, alpha.clamp, x, y)
        if isinstance(y, alpha.Tensor) and x.shape == y.shape:
            check(met, alpha.stack, [x, y])
            if x.shape:
                check(met, alpha.cat, [x, y])


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(engine: Engine, name: str) -> None:
    for first, wanted in zip(LETTERS, UNARY[name], strict=True):
        for axes in (True, False):
            x = alpha.tensor(array(first, axes), engine=engine)
            check(wanted, getattr(alpha, name), x)


@pytest.mark.parametrize("name", ALONG_AN_AXIS)
def test_functions_along_an_axis(engine: Engine, name: str) -> None:
    for first, wanted in zip(LETTERS, ALONG_AN_AXIS[name], strict=True):
        x = alpha.tensor(array(first), engine=engine)
        check(wanted, getattr(alpha, name), x, 0)


IN_PLACE = {
    "add": operator.iadd,
    "sub": operator.isub,
    "mul": operator.imul,
    "div": operator.itruediv,
    "floor_divide": operator.ifloordiv,
    "remainder": operator.imod,
    "pow": operator.ipow,
    "logical_and": operator.iand,
    "logical_or": operator.ior,
    "logical_xor": operator.ixor,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_results_fit_the_category(engine: Engine, name: str) -> None:
    """The dtype stays; a result of a higher category is refused."""
    rank = {"b": 0, "u": 1, "i": 1, "l": 1, "f": 2, "d": 2}
    for first, second, met, x, y in pairs(engine):
        if not isinstance(x, alpha.Tensor) or (isinstance(y, alpha.Tensor) and y.ndim > x.ndim):
            continue
        wanted = first if rank[met] == rank[first] else "-"
        refused = {
            "sub": "b" in (first, second),
            "div": first not in "fd",
            **dict.fromkeys(NO_BOOLS, met == "b"),
            **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), met in "fd"),
        }
        if refused.get(name, False):
            wanted = "-"
        before = x.numpy().copy()
        check(wanted, IN_PLACE[name], x, y)
        if wanted == "-":
            np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_write_into_the_tensor(engine: Engine, name: str) -> None:
    kind = np.bool_ if name.startswith("logical") else np.float32
    x = alpha.tensor(np.array([1, 0, 3, 1], kind), engine=engine)
    y = alpha.tensor(np.array([0.5, 2, 2, 3]).astype(kind), engine=engine)
    wanted, view, same = getattr(alpha, name)(x, y).tolist(), x[1:], x
    x = IN_PLACE[name](x, y)
    assert x is same and x.tolist() == wanted and view.tolist() == wanted[1:]
    with pytest.raises(ShapeError):
        IN_PLACE[name](view, alpha.ones(2, 3, dtype=kind, engine=engine))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["remainder", "pow"])
def test_gradients_pass_an_operator_in_place(engine: Engine, name: str) -> None:
    import torch

    grads = []
    for make in (partial(alpha.tensor, engine=engine), torch.tensor):
        x, y = make([1.5, 2.5, 3.5], requires_grad=True), make([1.0, 2.0, 3.0], requires_grad=True)
        z = IN_PLACE[name](x * 2, y)
        (z * 3).sum().backward()
        grads.append([x.grad.numpy(), y.grad.numpy()])
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-5)


def test_a_tensor_without_axes_is_compared_by_its_value(engine: Engine) -> None:
    """In PyTorch it is cast to the other's dtype first, so that -7 becomes 249 beside uint8."""
    x, y = alpha.tensor(np.array([1, 250], np.uint8), engine=engine), alpha.tensor(-7, engine=engine)
    assert (x > y).tolist() == [True, True]
    assert (y < x).tolist() == [True, True]
    assert alpha.logical_and(x, alpha.tensor(256, engine=engine)).tolist() == [True, True]
    # Floats are compared in the dtype with axes, as they are computed with.
    third = alpha.tensor(np.array([1 / 3], np.float32), engine=engine)
    assert (third == alpha.tensor(np.array(1 / 3), engine=engine)).tolist() == [True]


def test_gradients_come_in_the_operands_dtypes(engine: Engine) -> None:
    x = alpha.tensor(np.ones(3, np.float32), requires_grad=True, engine=engine)
    y = alpha.tensor(np.array(2.0), requires_grad=True, engine=engine)
    (x * y).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert (x.grad.dtype, y.grad.dtype) == (alpha.float32, alpha.float64)
    assert x.grad.tolist() == [2, 2, 2] and y.grad.item() == 3


def test_point_wise_functions_meet_as_arithmetic_does(engine: Engine) -> None:
    product = alpha.pointwise(lambda x, y: x * y)
    for first, second in itertools.product("fd", repeat=2):
        for axes in itertools.product((True, False), repeat=2):
            x, y = (
                alpha.tensor(array(first, axes[0]), engine=engine),
                alpha.tensor(array(second, axes[1]), engine=engine),
            )
            assert product(x, y).dtype == (x * y).dtype, (x, y)


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_integers_divided_by_zero_are_zero(engine: Engine, kind: str) -> None:
    x = alpha.tensor(np.array([1, 0, 7], kind), engine=engine)
    zeros = alpha.tensor(np.zeros(3, kind), engine=engine)
    for result in (x // zeros, x // 0, x % zeros, x % 0):
        assert result.tolist() == [0, 0, 0] and result.dtype == kind


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_integers_wrap_around(engine: Engine, kind: str) -> None:
    limits = np.iinfo(kind)
    least, most = (alpha.tensor(np.array([n], kind), engine=engine) for n in (limits.min, limits.max))
    assert (most + 1).tolist() == [limits.min] and (least - 1).tolist() == [limits.max]
    assert (most * 2).tolist() == [limits.max - 1 if limits.min == 0 else -2]
    assert (most + most).tolist() == (most * 2).tolist()
    assert (-least).tolist() == [limits.min] and alpha.abs(least).tolist() == [limits.min]


# -- against PyTorch ---------------------------------------------------------------------------------------------


def outcome(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """A result's dtype and values; of an error, that there is one."""
    try:
        result = function(*arguments)
    except Exception:
        return "an error"
    result = result[0] if isinstance(result, tuple) else result
    return str(result.dtype).removeprefix("torch."), result.numpy()


def expect_pytorchs(
    ours: Callable[..., Any], arguments: Sequence[Any], theirs: Callable[..., Any], their_arguments: Sequence[Any]
) -> None:
    """Both raise an error, or give the same values in the same dtype."""
    found, wanted, what = outcome(ours, arguments), outcome(theirs, their_arguments), (ours, arguments)
    if isinstance(wanted, str) or isinstance(found, str):
        assert isinstance(wanted, str) and isinstance(found, str), (what, found, wanted)
        return
    assert found[0] == wanted[0], what
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, err_msg=str(what))


def their_pairs(engine: Engine) -> Iterator[tuple[Pair, Pair]]:
    """Our operands and PyTorch's."""
    import torch

    forms = list(itertools.product(LETTERS, (True, False)))
    ours, others, theirs, their_others = (
        [make(array(letter, axes, values)) for letter, axes in forms]
        for make in (partial(alpha.tensor, engine=engine), torch.from_numpy)
        for values in (VALUES, OTHERS)
    )
    for x, y in itertools.product(range(len(forms)), repeat=2):
        yield (ours[x], others[y]), (theirs[x], their_others[y])
    for x, number in itertools.product(range(len(forms)), NUMBERS):
        yield (ours[x], number), (theirs[x], number)
        yield (number, ours[x]), (number, theirs[x])


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge")


def _differs(name: str, x: Any, y: Any) -> bool:
    """Where we differ from PyTorch; docs/dtypes.md says why."""
    kinds = [str(v.dtype) if isinstance(v, alpha.Tensor) else type(v).__name__ for v in (x, y)]
    floats = any(kind.startswith("float") for kind in kinds)
    divisor = y.numpy() if isinstance(y, alpha.Tensor) else np.array(y)
    if name in ("floordiv", "floor_divide", "mod", "remainder"):  # of integers by 0
        return not floats and not divisor.all()
    if name == "pow":  # True as an exponent; integers to negative powers
        return (kinds[0] == "bool" and y is True) or (not floats and bool((divisor < 0).any()))
    # a tensor without axes beside unsigned integers, which PyTorch compares as an unsigned one
    return name in ("lt", "le", "gt", "ge") and "uint8" in kinds and "int64" in kinds


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_pytorchs(engine: Engine, name: str) -> None:
    function = getattr(operator, name)
    for ours, theirs in their_pairs(engine):
        if not _differs(name, *ours):
            expect_pytorchs(function, ours, function, theirs)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["maximum", "minimum", "logical_and", "logical_or", "logical_xor"])
def test_functions_are_pytorchs(engine: Engine, name: str) -> None:
    import torch

    for ours, theirs in their_pairs(engine):
        if all(isinstance(v, alpha.Tensor) for v in ours):  # PyTorch takes tensors alone
            expect_pytorchs(getattr(alpha, name), ours, getattr(torch, name), theirs)


@pytest.mark.needs("torch")
def test_selection_and_joining_are_pytorchs(engine: Engine) -> None:
    import torch

    mask = np.array([True, False, True])
    condition, their_condition = alpha.tensor(mask, engine=engine), torch.from_numpy(mask)
    for ours, theirs in their_pairs(engine):
        expect_pytorchs(alpha.where, (condition, *ours), torch.where, (their_condition, *theirs))
        if all(isinstance(v, alpha.Tensor) for v in ours):
            expect_pytorchs(alpha.stack, (ours,), torch.stack, (theirs,))
            expect_pytorchs(alpha.cat, (ours,), torch.cat, (theirs,))
            if not all(v.dtype == alpha.bool_ for v in ours):  # PyTorch limits bools on one side alone
                expect_pytorchs(alpha.clamp, (ours[0], *ours), torch.clamp, (theirs[0], *theirs))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", [name for name in IN_PLACE if not name.startswith("logical")])
def test_in_place_operators_are_pytorchs(engine: Engine, name: str) -> None:
    for ours, theirs in their_pairs(engine):
        if isinstance(ours[0], alpha.Tensor) and not _differs(name, *ours):
            expect_pytorchs(IN_PLACE[name], (ours[0].clone(), ours[1]), IN_PLACE[name], (theirs[0].clone(), theirs[1]))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", [*UNARY, *ALONG_AN_AXIS])
def test_one_operand_is_pytorchs(engine: Engine, name: str) -> None:
    import torch

    along = (0,) if name in ALONG_AN_AXIS else ()
    theirs = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    for letter in LETTERS:
        x = alpha.tensor(array(letter), engine=engine)
        expect_pytorchs(getattr(alpha, name), (x, *along), theirs, (torch.from_numpy(array(letter)), *along))


def test_other_names_of_dtypes_and_what_they_hold() -> None:
    assert (alpha.float, alpha.double) == (alpha.float32, alpha.float64)
    assert (alpha.int, alpha.long, alpha.bool) == (alpha.int32, alpha.int64, alpha.bool_)
    assert (
        alpha.zeros(2, dtype=float).dtype == alpha.float64 and alpha.zeros(2, dtype=alpha.float).dtype == alpha.float32
    )
    assert alpha.finfo(alpha.float32).eps == 2**-23 and alpha.finfo().max == np.finfo(np.float32).max
    assert (alpha.iinfo("uint8").max, alpha.iinfo(int).min) == (255, -(2**63))
    for function, dtype in ((alpha.finfo, int), (alpha.iinfo, float), (alpha.iinfo, bool)):
        with pytest.raises(DtypeError, match=rf"\[{function.__name__}\] expected"):
            function(dtype)
