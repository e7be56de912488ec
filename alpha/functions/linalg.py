"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape
from alpha.autograd import Function, enters_graph, leads_to_inference
from alpha.autograd.composing import by_formula
from alpha.errors import DtypeError, ShapeError
from alpha.expressions.functions import GradientProgram, Trace, of_one_tensor, summed_to
from alpha.functions.autocasting import in_widest, lowered
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.elementwise import mul
from alpha.functions.matvec import Gemv, add_outer
from alpha.functions.operands import TensorLike, call, check_float, check_tensor, operands, sum_to
from alpha.functions.shape import permute, reshape, transpose, unsqueeze
from alpha.launches import DOT, LINEAR, MATMUL, PRODUCT_ALGORITHM
from alpha.records import PointwiseStep
from alpha.tensor import Tensor

__all__ = ["bilinear", "dot", "linear", "matmul", "outer"]


class MatMul(Function):
    """(..., M, K) times (..., K, N), batch axes broadcast."""

    fresh = True

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.shapes = x.shape, y.shape
        self.save(x if self.needs[1] else None, y if self.needs[0] else None)
        return x.engine.matmul(x, y)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        dx = sum_to(grad.engine.matmul(grad, _swapped(y)), self.shapes[0]) if self.needs[0] else None
        dy = sum_to(grad.engine.matmul(_swapped(x), grad), self.shapes[1]) if self.needs[1] else None
        return dx, dy

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        dx = summed_to(matmul(grad, y.transpose(-1, -2)), self.shapes[0]) if self.needs[0] else None
        dy = summed_to(matmul(x.transpose(-1, -2), grad), self.shapes[1]) if self.needs[1] else None
        return dx, dy


class ComplexMatMul(Function):
    """The same of complex numbers: gradients are products with the other's conjugate."""

    fresh = True

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.save(x if self.needs[1] else None, y if self.needs[0] else None)
        self.shapes = x.shape, y.shape
        return x.engine.matmul(x, y)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        dx = summed_to(matmul(grad, conjugate(y).transpose(-1, -2)), self.shapes[0]) if self.needs[0] else None
        dy = summed_to(matmul(conjugate(x).transpose(-1, -2), grad), self.shapes[1]) if self.needs[1] else None
        return dx, dy


class Dot(Function):
    """The sum of the products of two vectors' elements."""

    fresh = True

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.save(x if self.needs[1] else None, y if self.needs[0] else None)
        return _dot(x, y)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        scaled = grad.engine.elementwise
        return scaled("mul", y, grad) if self.needs[0] else None, scaled("mul", x, grad) if self.needs[1] else None

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        return y * grad if self.needs[0] else None, x * grad if self.needs[1] else None


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """The dot product: the product of a matrix of one row and a vector."""
    found: Tensor | None = DOT.launch(x, y)
    if found is not None:
        return found
    length = x.shape[0]
    row = Tensor(x.storage, x.offset, (1, length), (length, x.strides[0]), x.dtype)
    out = x.storage.engine.gemv(row, y)
    return Tensor(out.storage, out.offset, (), (), out.dtype)


class Outer(Function):
    """A column times a row."""

    fresh = True

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.save(x if self.needs[1] else None, y if self.needs[0] else None)
        return x.engine.ger(x, y)

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        engine = grad.engine
        return engine.gemv(grad, y) if self.needs[0] else None, engine.gemv(grad, x, True) if self.needs[1] else None

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = self.saved
        return matmul(grad, y) if self.needs[0] else None, matmul(grad.T, x) if self.needs[1] else None


def _swapped(x: Tensor) -> Tensor:
    """A view with the last two axes exchanged."""
    return x.strided(
        x.offset, (*x.shape[:-2], x.shape[-1], x.shape[-2]), (*x.strides[:-2], x.strides[-1], x.strides[-2])
    )


class Linear(Function):
    """x (rows, in) times the transposed weight (out, in), plus the bias (out,), then a point-wise function.

    Engines compute all of it in one pass (``Engine.linear``); a single row is a vector's product.
    """

    fresh = True
    gradient: GradientProgram | None
    activation: Trace | None = None

    def forward(self, x: Tensor, w: Tensor, b: Tensor | None, activation: Trace | None) -> Tensor:
        step = (
            None if activation is None else PointwiseStep(activation.name, activation.program, activation.numbers(()))
        )
        self.gradient = gradient = (
            None if activation is None or True not in self.needs else activation.gradient((True,))
        )
        reads = () if gradient is None else gradient.reads
        engine = x.storage.engine
        if x.shape[0] > 1:
            result, given = engine.linear(x, w, b, step, 0 in reads)
        else:
            result = given = _row(engine.gemv(w, _only_row(x), False, b))
            if step is not None:
                (result,) = engine.pointwise(step.function, step.program, (given,), step.numbers)
        if True in self.needs:
            kept = [result if place < 0 else given for place in reads]
            again = gradient is not None  # a second gradient computes again what the activation is given
            self.save(
                x if again or self.needs[1] else None,
                w if again or self.needs[0] else None,
                b if again else None,
                *kept,
            )
            self.activation = activation
        return result

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, _, *kept = self.saved
        engine = grad.storage.engine
        grad = self._before_activation(grad, kept)
        if grad.shape[0] == 1:
            row = _only_row(grad)
            dx = _row(engine.gemv(w, row, True)) if self.needs[0] else None
            dw = add_outer(row, _only_row(x), self.accumulator(1)) if self.needs[1] else None
            return dx, dw, row.clone() if self.needs[2] else None
        dw, db = None, None
        if self.needs[1]:
            dw, db = engine.linear_weight_grad(x, grad, self.needs[2])
        elif self.needs[2]:
            db = engine.channel_sum(grad)
        return engine.linear_input_grad(grad, w) if self.needs[0] else None, dw, db

    def _before_activation(self, grad: Tensor, kept: list[Tensor]) -> Tensor:
        """The gradient of what the activation was given, in one pass."""
        gradient, engine = self.gradient, grad.storage.engine
        if gradient is None or gradient.passes:
            return grad
        if gradient.program is None:
            return engine.full(grad.shape, 0, grad.dtype)
        return engine.pointwise(self.title, gradient.program, (grad, *kept), gradient.program.numbers(()))[0]

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, b, *_ = self.saved
        if (activation := self.activation) is not None:

            def formula(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
                return activation.applied(linear(x, w, b))

            return by_formula(formula, (x, w, b), grad)
        return matmul(grad, w) if self.needs[0] else None, matmul(grad.T, x) if self.needs[1] else None, grad.sum(0)


def _only_row(x: Tensor) -> Tensor:
    """The vector that a matrix of one row holds; a view."""
    return x.strided(x.offset, x.shape[1:], x.strides[1:])


def _row(x: Tensor) -> Tensor:
    """A vector as a matrix of one row; a view."""
    return x.strided(x.offset, (1, *x.shape), (x.shape[0], *x.strides))


@lowered
def matmul(input: TensorLike, other: TensorLike) -> Tensor:
    """Matrix product, batch axes broadcast; a 1-D operand counts as a row (left) or a column (right).

    (..., M, K) and (..., K, N) give (..., M, N). ShapeError unless the inner lengths agree; both float32 or float64.

    On the CPU the convolutions' micro-kernel computes products, NumPy's BLAS batches of tiny ones, and a pass over the
    matrix those with a vector (``alpha.cpu.explain_product``). Bits do not depend on the number of threads.
    """
    found: Tensor | None = MATMUL.launch_outside(input, other, PRODUCT_ALGORITHM.get())
    if found is not None:
        return found
    input, other = operands("matmul", input, other)
    are_whole = _are_whole(input, other)
    if not are_whole:
        _check_dtypes("matmul", input, other)
    if input.ndim == 0 or other.ndim == 0 or input.shape[-1] != other.shape[max(other.ndim - 2, 0)]:
        raise ShapeError(
            f"[matmul] expected x.shape[-1] == y.shape[{-2 if other.ndim != 1 else -1}], got x: {input.shape} and "
            f"y: {other.shape}"
        )
    if are_whole:
        return _whole_product(input, other)
    if dtypes.is_complex(input.dtype):
        return _complex_product(input, other)
    if input.ndim == other.ndim == 2:
        return call(MatMul, input, other) if enters_graph(input, other) else input.storage.engine.matmul(input, other)
    if input.ndim == 2 and other.ndim == 1:
        return call(Gemv, input, other, False) if enters_graph(input, other) else input.engine.gemv(input, other)
    if input.ndim == 1 and other.ndim == 2:
        return call(Gemv, other, input, True) if enters_graph(input, other) else input.engine.gemv(other, input, True)
    if input.ndim == other.ndim == 1:
        return call(Dot, input, other) if enters_graph(input, other) else _dot(input, other)
    batch = _batch(input, other)
    left, right = unsqueeze(input, 0) if input.ndim == 1 else input, unsqueeze(other, -1) if other.ndim == 1 else other
    if right.ndim == 2 and left.ndim > 2:  # one long product instead of a batch of short ones
        out = call(MatMul, reshape(left, (-1, left.shape[-1])) if left.numel() else _flat(left), right)
    else:
        out = call(MatMul, left, right)
    return reshape(out, (*batch, *input.shape[-2:-1], *(other.shape[-1:] if other.ndim > 1 else ())))


def _complex_product(x: Tensor, y: Tensor) -> Tensor:
    """``matmul`` of complex tensors whose inner lengths agree."""
    shape = (*_batch(x, y), *x.shape[-2:-1], *(y.shape[-1:] if y.ndim > 1 else ()))
    left, right = unsqueeze(x, 0) if x.ndim == 1 else x, unsqueeze(y, -1) if y.ndim == 1 else y
    return reshape(call(ComplexMatMul, left, right), shape)


def _are_whole(x: Any, y: Any) -> bool:
    """Whether both are tensors of one dtype of integers."""
    return isinstance(x, Tensor) and isinstance(y, Tensor) and dtypes.is_integer(x.dtype) and x.dtype == y.dtype


def _whole_product(x: Tensor, y: Tensor) -> Tensor:
    """The product of matrices or vectors of integers, made on the host; it wraps around."""
    _batch(x, y)
    return x.engine.from_numpy(np.asarray(np.matmul(x.engine.to_numpy(x), y.engine.to_numpy(y))))


def _flat(x: Tensor) -> Tensor:
    """An empty (..., M, K) as (rows, K), where -1 would be ambiguous."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _batch(x: Tensor, y: Tensor) -> Shape:
    try:
        return np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ShapeError(f"[matmul] expected batch axes that broadcast, got x: {x.shape} and y: {y.shape}") from None


def _check_dtypes(name: str, *tensors: Tensor) -> None:
    check_tensor(name, *tensors)
    dtype = tensors[0].dtype
    if not dtypes.is_complex(dtype):
        check_float(name, *tensors)
    for x in tensors:
        if x.dtype is not dtype and x.dtype != dtype:
            got = " and ".join(str(t.dtype) for t in tensors)
            raise DtypeError(f"[{name}] expected tensors of one dtype, got {got}: cast one with .float() or .double()")


@lowered
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Callable[[Any], Any] | None = None
) -> Tensor:
    """activation(input @ weight.T + bias), on the CPU in one pass over memory.

    Args:
        input: (..., in).
        weight: (out, in).
        bias: (out,), or None.
        activation: a function of one tensor, of point-wise operations alone: one of alpha's own, such as ``gelu``, or
            one as for ``alpha.pointwise``. The bits are those of ``activation(linear(input, weight, bias))``.

    Returns:
        (..., out).

    Raises:
        ShapeError, DtypeError, EngineError, ArgumentError: what does not fit, with both shapes.
    """
    if activation is None:
        found: Tensor | None = LINEAR.launch_outside(input, weight, bias, PRODUCT_ALGORITHM.get(), leads_to_inference())
        if found is not None:
            return found
    given = [input, weight] if bias is None else [input, weight, bias]
    _check_dtypes("linear", *given)
    input.engine.check_owner("linear", *given)
    if input.ndim == 0 or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"[linear] expected x.shape[-1] == weight.shape[1], got x: {input.shape} and w: {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"[linear] expected a bias of shape {weight.shape[:1]}, got {bias.shape}")
    step = None if activation is None else of_one_tensor("linear", "activation", activation)
    if 0 in input.shape or 0 in weight.shape or dtypes.is_complex(input.dtype):
        product = matmul(input, transpose(weight, 0, 1))
        product = product if bias is None else product + bias
        return product if step is None else step.applied(product)
    if input.ndim == 2:
        return call(Linear, input, weight, bias, step)
    out = call(Linear, _flat(input), weight, bias, step)
    return reshape(out, (*input.shape[:-1], weight.shape[0]))


@in_widest
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """sum over i, j of input1[..., i] weight[o, i, j] input2[..., j], + bias[o]: (..., out).

    input1: (..., in1), input2: (..., in2) with the same other axes; weight: (out, in1, in2); bias: (out,).
    """
    given = [input1, input2, weight] if bias is None else [input1, input2, weight, bias]
    _check_dtypes("bilinear", *given)
    input1.engine.check_owner("bilinear", *given)
    batch = input1.shape[:-1]
    sizes = (input1.shape[-1:] + input2.shape[-1:]) if input1.ndim and input2.ndim else ()
    if weight.ndim != 3 or weight.shape[1:] != sizes or input2.shape[:-1] != batch:
        raise ShapeError(
            f"[bilinear] expected inputs (..., in1) and (..., in2) and a weight (out, in1, in2), got {input1.shape}, "
            f"{input2.shape} and {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"[bilinear] expected a bias of shape {weight.shape[:1]}, got {bias.shape}")
    (count, first, second), rows = weight.shape, math.prod(batch)
    sides = reshape(permute(weight, (1, 0, 2)), (first, count * second))
    parts = reshape(matmul(reshape(input1, (rows, first)), sides), (rows, count, second))
    y = reshape(matmul(parts, reshape(input2, (rows, second, 1))), (*batch, count))
    return y if bias is None else y + bias


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of each element of one vector with each of another: (M,) and (N,) give (M, N)."""
    check_tensor("outer", input, vec2)
    if input.ndim == vec2.ndim == 1 and not (dtypes.is_float(input.dtype) and input.dtype == vec2.dtype):
        return mul(reshape(input, (input.shape[0], 1)), vec2)
    _check_vectors("outer", input, vec2)
    if input.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"[outer] expected two vectors, got x: {input.shape} and y: {vec2.shape}")
    return call(Outer, input, vec2) if enters_graph(input, vec2) else input.storage.engine.ger(input, vec2)


@in_widest
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements."""
    found: Tensor | None = DOT.launch_outside(input, tensor)
    if found is not None:
        return found
    if _are_whole(input, tensor):
        input.engine.check_owner("dot", input, tensor)
    else:
        _check_vectors("dot", input, tensor)
    if input.ndim != 1 or input.shape != tensor.shape:
        raise ShapeError(f"[dot] expected two vectors of one length, got x: {input.shape} and y: {tensor.shape}")
    if dtypes.is_integer(input.dtype):
        return _whole_product(input, tensor)
    if dtypes.is_complex(input.dtype):
        return _complex_product(input, tensor)
    return call(Dot, input, tensor) if enters_graph(input, tensor) else _dot(input, tensor)


def _check_vectors(name: str, x: Tensor, y: Tensor) -> None:
    """Two tensors of one float dtype on one engine."""
    _check_dtypes(name, x, y)
    if x.storage.engine is not y.storage.engine:
        x.engine.check_owner(name, x, y)
