"""Integers: their bits, common divisors and multiples; of bools the logical functions. No gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dtypes
from alpha.errors import DtypeError
from alpha.expressions import symbols
from alpha.functions.operands import TensorLike, broadcast_shape, common_dtype, compute
from alpha.functions.primitives import PRIMITIVES, computed, convert
from alpha.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "gcd",
    "lcm",
]  # fmt: skip


def _of_bits(name: str, operation: str, *values: TensorLike, logical: bool = True) -> Tensor:
    """An operation of integers, or of bools."""
    found: Tensor | None = PRIMITIVES[operation].latest.launch_outside(*values)
    if found is not None and not dtypes.is_float(found.dtype):
        return found
    operands = _whole(name, *values, logical=logical)
    if dtypes.is_bool(common_dtype(operands)):
        return compute(operation, *operands)
    return computed(PRIMITIVES[operation], operation, *operands)


def _whole(name: str, *values: TensorLike, logical: bool = False) -> list[Any]:
    """Arguments as integers of one dtype, or bools where these are allowed too."""
    if symbols.is_symbolic(*values):
        raise symbols.TraceError("point-wise operations of floats", f"alpha.{name}", "use & | ^ ~ of conditions alone")
    operands = convert(name, *values, logical=True)
    dtype = common_dtype(operands)
    if dtypes.has_gradients(dtype) or (dtypes.is_bool(dtype) and not logical):
        advice = (
            "compare first, as in x > 0, or cast it with .long()" if dtypes.is_float(dtype) else "cast it with .long()"
        )
        raise DtypeError(f"[{name}] expected integers{' or bools' * logical}, got {dtype}: {advice}")
    return operands


def bitwise_and(input: TensorLike, other: TensorLike) -> Tensor:
    """The bits that both have, broadcast; of bools the logical and."""
    return _of_bits("bitwise_and", "bitwise_and", input, other)


def bitwise_or(input: TensorLike, other: TensorLike) -> Tensor:
    """The bits that either has, broadcast; of bools the logical or."""
    return _of_bits("bitwise_or", "bitwise_or", input, other)


def bitwise_xor(input: TensorLike, other: TensorLike) -> Tensor:
    """The bits in which they differ, broadcast; of bools whether they differ."""
    return _of_bits("bitwise_xor", "bitwise_xor", input, other)


def bitwise_not(input: TensorLike) -> Tensor:
    """Every bit turned round; of bools the logical not."""
    return _of_bits("bitwise_not", "bitwise_not", input)


def bitwise_left_shift(input: TensorLike, other: TensorLike) -> Tensor:
    """input * 2 ** other, broadcast: bits beyond the dtype's are lost."""
    return _of_bits("bitwise_left_shift", "left_shift", input, other, logical=False)


def bitwise_right_shift(input: TensorLike, other: TensorLike) -> Tensor:
    """floor(input / 2 ** other), broadcast: the sign stays."""
    return _of_bits("bitwise_right_shift", "right_shift", input, other, logical=False)


def gcd(input: TensorLike, other: TensorLike) -> Tensor:
    """The greatest common divisors, broadcast, by NumPy on the host; of two zeros 0."""
    return _by_numpy("gcd", input, other)


def lcm(input: TensorLike, other: TensorLike) -> Tensor:
    """The least common multiples, broadcast, by NumPy on the host; 0 where either is 0."""
    return _by_numpy("lcm", input, other)


def _by_numpy(name: str, x: TensorLike, y: TensorLike) -> Tensor:
    operands = _whole(name, x, y)
    broadcast_shape(name, *operands)
    engine = next(value.engine for value in operands if isinstance(value, Tensor))
    dtype = common_dtype(operands)
    arrays = [engine.to_numpy(v) if isinstance(v, Tensor) else np.array(v).astype(dtype) for v in operands]
    found: Tensor = engine.from_numpy(np.asarray(getattr(np, name)(*arrays)))
    return found
