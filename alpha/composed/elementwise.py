"""Element-wise operations as point-wise programs, for engines that compute such of every dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.composed.arrays import copied
from alpha.dtypes import bool_, default_int, is_bool, is_float, limits, widest_float
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions import integers
from alpha.expressions.graph import OPERATIONS
from alpha.expressions.operations import NAMES, kind_of, program_of
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.engine import Engine, Operand

_ALL = frozenset(NAMES)
_OF_INTEGERS = frozenset([*integers.FUNCTIONS, "square"]) - {"clamp"}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")


def elementwise(engine: Engine, op: str, operands: Sequence[Operand], out: Tensor | None) -> Tensor:
    """``Engine.elementwise`` by ``Engine.pointwise``."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    dtype = tensors[-1].dtype
    numbers: list[float] = [value for value in operands if not isinstance(value, Tensor)]
    if op not in _ALL:
        raise ArgumentError(f"[elementwise] expected one of {', '.join(sorted(NAMES))}, got {op!r}")
    is_of_floats = is_float(dtype)
    if not is_of_floats and op not in _OF_INTEGERS:
        raise _lacking(op, dtype)
    program = program_of(op, tuple([kind_of(value) for value in operands]))
    if is_of_floats:
        return engine.pointwise(op, program, tensors, [float(value) for value in numbers], out)[0]
    if is_bool(dtype) and not program.bools[0]:
        raise _lacking(op, dtype)
    if op in _LOGIC:
        numbers = [bool(value) for value in numbers]
    elif op not in _COMPARISONS:
        numbers = [np.asarray(value).astype(dtype).item() for value in numbers]  # they wrap around
    elif numbers and not _is_of(dtype, numbers[0]):
        return _compared(engine, op, operands, tensors[0], out)
    numbers = [float(value) if is_bool(dtype) else int(value) for value in numbers]
    return engine.pointwise(op, program, tensors, numbers, out)[0]


def _lacking(op: str, dtype: np.dtype[Any]) -> DtypeError:
    return DtypeError(f"[elementwise] expected a dtype that has {op}, got {dtype}: cast it first")


def _is_of(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a Python number is one that integers or bools of a dtype hold."""
    least, most = limits(dtype)
    return isinstance(value, int) and least <= value <= most


def _compared(engine: Engine, op: str, operands: Sequence[Operand], tensor: Tensor, out: Tensor | None) -> Tensor:
    """The comparison of a tensor of integers or bools with a number that its dtype does not hold."""
    number = next(value for value in operands if not isinstance(value, Tensor))
    if isinstance(number, float) or is_bool(tensor.dtype):
        wide = copied(engine, tensor, widest_float if isinstance(number, float) else default_int)
        return engine.elementwise(op, *[wide if value is tensor else value for value in operands], out=out)
    # The answer is the same for every element.
    least: list[Any] = [limits(tensor.dtype)[0] if value is tensor else value for value in operands]
    answer = bool(OPERATIONS[op].evaluate(*map(float, least)))
    if out is None:
        return engine.full(tensor.shape, answer, bool_, tensor.memory_order())
    engine.fill(out, answer)
    return out
