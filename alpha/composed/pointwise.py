"""Programs of point-wise functions, one element-wise operation of the engine an instruction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.arguments import broadcast_shapes
from alpha.composed.arrays import cast, filled
from alpha.dtypes import bool_
from alpha.expressions import special
from alpha.expressions.graph import OPERATIONS, evaluated
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.expressions.program import Program
    from alpha.records import RowCall, RowPass

Value = Any  # Tensor | float | bool

_BY_NUMPY = frozenset([
    "exp2", "log2", "log10", "tan", "atan", "atan2", "trunc", "round", "fmod", "copysign", "exponent", "nextafter",
    *special.FUNCTIONS,
])  # fmt: skip
"""What the contract does not ask of engines: it is computed on the host."""


def row_pass(engine: Engine, wanted: RowPass) -> RowCall:
    """Computes a row pass into new memory, and copies."""

    def run(start: int, count: int, given: Tensor) -> None:
        def rows(x: Tensor) -> Tensor:
            shape, strides, dtype = wanted.layout(x, count)
            return Tensor(x.storage, x.offset + (start * strides[0] if wanted.moves(x) else 0), shape, strides, dtype)

        size = given.shape[1] // wanted.parts
        tensors = [
            given.strided(given.offset + x * size * given.strides[1], (count, size), given.strides)
            if isinstance(x, int)
            else rows(x)
            for x in wanted.tensors
        ]
        results = engine.pointwise(wanted.function, wanted.program, tensors, ())
        for result, out in zip(results, wanted.outs, strict=True):
            engine.copy(result, rows(out))

    return run


def pointwise(
    engine: Engine,
    function: str,
    program: Program,
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The results of a program; what no later instruction reads is dropped at once."""
    shape = broadcast_shapes(function, [x.shape for x in tensors])
    dtype = program.dtype([(x.shape, x.dtype) for x in tensors])
    kinds = [bool_ if is_condition else dtype for is_condition in program.conditions]
    slots: list[Value] = [*(cast(engine, x, kind) for x, kind in zip(tensors, kinds, strict=True)), *numbers]
    is_one = len(program.instructions) == 1 and out is not None and out.shape == shape and out.dtype == dtype
    for instruction, last_read in zip(program.instructions, program.last_uses(), strict=True):
        if instruction.operation == "constant":
            slots.append(instruction.value)
        else:
            operands = [slots[slot] for slot in instruction.operands]
            slots.append(_computed(engine, instruction.operation, operands, dtype, out if is_one else None))
        for slot in last_read:
            slots[slot] = None
    if out is not None:
        value = slots[program.results[0]]
        if value is not out:
            _fill(engine, out, value)
        return (out,)
    like = max(tensors, key=Tensor.numel)
    order = like.memory_order() if like.ndim == len(shape) else None
    result: list[Tensor] = []
    for slot, is_bool in zip(program.results, program.bools, strict=True):
        value = slots[slot]
        if not isinstance(value, Tensor) or value.shape != shape or any(value is one for one in (*tensors, *result)):
            out = engine.empty(shape, bool_ if is_bool else dtype, order)
            _fill(engine, out, value)
            value = out
        result.append(value)
    return tuple(result)


def pointwise_sum(
    engine: Engine, function: str, program: Program, tensors: Sequence[Tensor], numbers: Sequence[float], mean: bool
) -> Tensor:
    """The elements first, then their sum."""
    (values,) = engine.pointwise(function, program, tensors, numbers)
    axes = tuple(range(values.ndim))
    return engine.mean(values, axes, False) if mean else engine.reduce("sum", values, axes, False)


def _computed(engine: Engine, operation: str, operands: list[Value], dtype: np.dtype[Any], out: Tensor | None) -> Value:
    """One operation of tensors and numbers; of numbers alone a number. ``out``: where a tensor may be written to."""
    if not any(isinstance(x, Tensor) for x in operands):
        value = evaluated(operation, *operands)
        return bool(value) if OPERATIONS[operation].result == "bool" else value
    do = engine.elementwise
    if operation == "where" and not isinstance(operands[0], Tensor):
        return operands[1] if operands[0] else operands[2]
    if operation == "where" and not any(isinstance(x, Tensor) for x in operands[1:]):
        operands[1] = filled(engine, (), operands[1], dtype)  # else they took the dtype of the condition
    if operation in _BY_NUMPY:
        values = [engine.to_numpy(x) if isinstance(x, Tensor) else dtype.type(x) for x in operands]
        with np.errstate(all="ignore"):
            found = engine.from_numpy(np.asarray(OPERATIONS[operation].evaluate(*values), dtype))
        return found if out is None else _written(engine, out, found)
    if operation == "expm1":
        (x,) = operands
        half = do("tanh", do("mul", x, 0.5))  # tanh(x / 2) * (exp(x) + 1), which loses nothing near 0
        return do("where", do("eq", half, 1), do("exp", x), do("mul", half, do("add", do("exp", x), 1)))
    if operation == "normal_cdf":
        return do("mul", do("add", do("erf", do("mul", operands[0], math.sqrt(0.5))), 1), 0.5, out=out)
    if operation == "clamp":
        x, low, high = operands
        above = x if _is(low, -math.inf) else _computed(engine, "maximum", [x, low], dtype, None)
        return above if _is(high, math.inf) else _computed(engine, "minimum", [above, high], dtype, out)
    if operation == "rsqrt":
        root = do("sqrt", operands[0])
        return do("reciprocal", root, out=root)
    return do(operation, *operands, out=out)


def _written(engine: Engine, out: Tensor, value: Tensor) -> Tensor:
    _fill(engine, out, value)
    return out


def _is(value: Value, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number


def _fill(engine: Engine, out: Tensor, value: Value) -> None:
    if not isinstance(value, Tensor):
        engine.fill(out, value)
        return
    extra = out.ndim - value.ndim
    strides = [0 if n == 1 else stride for n, stride in zip(value.shape, value.strides, strict=True)]
    engine.copy(value.strided(value.offset, out.shape, (*[0] * extra, *strides)), out)
