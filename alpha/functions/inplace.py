"""In-place functions: they write into a tensor's memory and give the tensor a new place in the graph.

A tensor that is a view shares its memory with its base. A write to the view then becomes part of the base's history
too (``Overwrite``), and other views of the base take their history from it anew when they are next used
(``follow_base``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.autograd import Function, Overwrite, follow_base, is_grad_enabled
from alpha.errors import ArgumentError, DtypeError, GraphError, ShapeError
from alpha.expressions.functions import Evaluation, PointwiseFunction, summed_to
from alpha.functions.arithmetic import add, div, floor_divide, mul, pow, remainder, sub
from alpha.functions.bits import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor
from alpha.functions.casting import cast
from alpha.functions.operands import call, check_tensor, check_value, compute, is_bool, operands, sum_to
from alpha.functions.primitives import EXPRESSIONS, PRIMITIVES, launchable
from alpha.launches import COPY_INTO, Launches
from alpha.mirrors import is_in_use_twice
from alpha.tensor import Tensor

__all__ = ["add_", "copy_", "div_", "mul_", "sub_"]

# -- writing under the graph -------------------------------------------------------------------------------------


def write(name: str, x: Tensor, function: type[Function], *args: Any, **kwargs: Any) -> Tensor:
    """Runs a function that writes into x and returns x, and moves x to its new place in the graph; returns x.

    The function's first argument is x as it was in the graph before; ``kwargs`` are handed on.
    """
    base, record = _checked(name, x, args)
    out: Tensor | None = None
    # The function may save what it writes: that is not what was waited for, which is told once it is written over.
    waiting, x.storage.waiting = x.storage.waiting, None
    try:
        try:
            out = call(function, alias_of(x), *args, **kwargs)
        finally:
            x.storage.waiting = waiting
        x.storage.touch()
        if record and isinstance(out._node, Evaluation):
            out._node.note_write()
        if record:
            _settle(x, base, out)
    except KeyboardInterrupt:
        x.storage.touch()  # x may have been written to: what was saved of it must not be taken for the same
        if record and out is not None and isinstance(out._node, Evaluation):
            out._node.note_write()
        if record and out is not None:
            _settle(x, base, out)
        raise
    return x


def _checked(name: str, x: Tensor, others: Sequence[Any]) -> tuple[Tensor, bool]:
    """What ``changed_in_graph`` tells; an error where elements of x share memory, too."""
    base, record = changed_in_graph(name, x, others)
    for tensor in (x, base):
        if 0 in tensor.strides and any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.strides, strict=True)):
            raise ShapeError(
                f"[{name}] expected memory of its own for every element, got an expanded tensor: .clone() it"
            )
    return base, record


def changed_in_graph(name: str, x: Tensor, others: Sequence[Any]) -> tuple[Tensor, bool]:
    """The tensor that x is a view of, or x, and whether a change enters the graph; GraphError where it may not be."""
    if x._base is not None:
        follow_base(x)
    base = x if x._base is None else x._base
    wants = [x, base, *(other for other in others if isinstance(other, Tensor))]
    record = is_grad_enabled() and any(tensor.requires_grad for tensor in wants)
    if record and any(tensor.requires_grad and tensor.is_leaf for tensor in (x, base)):
        raise GraphError(
            f"[{name}] expected a tensor that is not a leaf of the graph, got one that requires grad (or a view of "
            "one): work on a .clone(), or within no_grad()"
        )
    if record and is_in_use_twice(x):
        raise GraphError(
            f"[{name}] expected a tensor with memory of its own in the graph, got images, or a view of them that "
            "had to be copied: make the view by .reshape, or write to a .clone()"
        )
    if record and base is not x and x._base_version < 0:
        raise GraphError(
            f"[{name}] expected a view made within the graph, got one made within no_grad() of a tensor in the graph: "
            "make the view again outside no_grad(), or write within it"
        )
    return base, record


def _settle(x: Tensor, base: Tensor, out: Tensor) -> None:
    """Moves a tensor that was written to, and its base, to their new places in the graph."""
    move_to(x, out)
    if base is not x:
        x._base_version = x.version
        move_to(base, call(Overwrite, alias_of(base), x))


def alias_of(x: Tensor) -> Tensor:
    """Another tensor at the same place in the graph."""
    alias = x.detach()
    if x._node is not None:
        alias._enter(x._node, x._output)
    return alias


def move_to(x: Tensor, out: Tensor) -> None:
    """Puts x at the place of another tensor in the graph."""
    node = out._node
    if node is None:
        return
    retained = x._node._retained if x._node is not None else None
    if retained is not None and retained.pop(x._output, None) is not None:
        x._enter(node, out._output)
        x.retain_grad()
    x._enter(node, out._output)


# -- arithmetic --------------------------------------------------------------------------------------------------


_ARITHMETIC = ("add_", "sub_", "mul_", "div_")


def written_value(name: str, x: Tensor, value: Any, check_shape: bool = True) -> Any:
    """What is to be written into x, in x's dtype: a tensor (that broadcasts to x's shape), or a number."""
    check_tensor(name, x)
    other = operands(name, x, value)[1]
    if type(other) is int and dtypes.is_bool(x.dtype) and name not in _ARITHMETIC:
        other = other != 0  # as in PyTorch, whose bools are filled with 1
    kind = other.dtype if isinstance(other, Tensor) else dtypes.of_scalar(other)
    if dtypes.category(kind) > dtypes.category(x.dtype):
        raise _beyond(name, x, kind)
    if not isinstance(other, Tensor):
        if name in ("copy_", "setitem"):
            check_value(name, other, x.dtype)
        return other
    if check_shape:
        check_fits(name, x, other)
    return cast(other, x.dtype)


def _beyond(name: str, x: Tensor, dtype: np.dtype[Any]) -> DtypeError:
    """What is raised for a value of a higher category than x's."""
    return DtypeError(
        f"[{name}] expected a value that {x.dtype} can hold, got {dtype}: cast it, or use the function that makes a "
        "new tensor"
    )


def check_fits(name: str, x: Tensor, value: Tensor) -> None:
    """ShapeError unless the value broadcasts to x's shape without changing it."""
    extra = x.ndim - value.ndim
    if extra < 0 or any(n not in (1, m) for n, m in zip(value.shape, x.shape[extra:], strict=True)):
        raise ShapeError(f"[{name}] expected a value that broadcasts to {x.shape}, got {value.shape}")


class Elementwise(Function):
    """An engine's operation of tensors that have no gradients, written into the first."""

    def forward(self, x: Tensor, value: Any, operation: str) -> Tensor:
        return compute(operation, x, value, out=x)


_latest = {operation: Launches() for operation in ("add", "sub", "mul", "div")}
"""The launches in place of the program that each operation ran last: they are tried first."""


_FUNCTIONS = {"add": add, "sub": sub, "mul": mul, "div": div}


def written(known: Launches, x: Tensor, *others: Any) -> bool:
    """Whether a launch wrote into x, which is noted."""
    try:
        if known.launch(x, *others) is None:
            return False
        x.storage.touch()
    except KeyboardInterrupt:
        if isinstance(x, Tensor):
            x.storage.touch()  # it may have been written to
        raise
    return True


def _arithmetic(operation: str, x: Tensor, other: Any) -> Tensor:
    if written(_latest[operation], x, other):
        return x
    name = f"{operation}_"
    value = other if _fits(x, other) else written_value(name, x, other)
    if isinstance(value, Tensor) and value.storage is x.storage:
        value = value.clone()  # it is read again by backward, and must not change under the write
    if dtypes.is_complex(x.dtype):
        return overwrite(name, x, _FUNCTIONS[operation], value)
    if not dtypes.is_float(x.dtype):
        write(name, x, Elementwise, value, operation=operation)
        program = launchable(operation, x, value)
        if program is not None:
            _latest[operation] = program.launches_in_place
        return x
    trace = PRIMITIVES[operation].trace((x, value))
    others = (value,) if isinstance(value, Tensor) else ()
    numbers = trace.numbers((x, value))
    _latest[operation] = trace.program.launches_in_place
    if _checked(name, x, others)[1]:
        return write(name, x, Evaluation, *others, trace=trace, numbers=numbers)
    try:
        x.storage.engine.pointwise(name, trace.program, (x, *others), trace.program.numbers(numbers), x)
        x.storage.touch()
    except KeyboardInterrupt:
        x.storage.touch()  # x may have been written to
        raise
    return x


def _fits(x: Any, value: Any) -> bool:
    """Whether a value may be combined with a tensor of floats as it is."""
    if type(x) is not Tensor or x.dtype not in dtypes.FLOATS:
        return False
    if type(value) is Tensor:
        return value.dtype is x.dtype and value.shape == x.shape and value.storage.engine is x.storage.engine
    return type(value) is float


def add_(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x += alpha * other``; other broadcasts to x's shape. Returns x."""
    if alpha is not _ONE:
        return overwrite("add_", x, add, other, alpha=alpha)
    return _arithmetic("add", x, other)


def sub_(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x -= alpha * other``; other broadcasts to x's shape, neither is bool. Returns x."""
    if alpha is not _ONE:
        return overwrite("sub_", x, sub, other, alpha=alpha)
    if is_bool(x) or is_bool(other):
        raise DtypeError("[sub_] expected numbers, got bool: cast it, or use the logical functions")
    return _arithmetic("sub", x, other)


def mul_(x: Tensor, other: Any) -> Tensor:
    """``x *= other``; other broadcasts to x's shape. Returns x."""
    return _arithmetic("mul", x, other)


_ONE = 1


def div_(x: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``x /= other``, rounded as by ``alpha.div``; other broadcasts to x's shape, x is of floats. Returns x."""
    check_tensor("div_", x)
    if rounding_mode is not None:
        return overwrite("div_", x, div, other, rounding_mode=rounding_mode)
    if not dtypes.has_gradients(x.dtype):
        raise DtypeError(f"[div_] expected {dtypes.float_names()} to divide in place, got {x.dtype}: use x = x / other")
    return _arithmetic("div", x, other)


class Copy(Function):
    """x overwritten by a value."""

    def forward(self, x: Tensor, value: Any) -> Tensor:
        self.shape = value.shape if isinstance(value, Tensor) else ()
        if isinstance(value, Tensor):
            x.engine.copy(value, x)
        else:
            x.engine.fill(x, value)
        return x

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        dx = None
        if self.needs[0]:
            dx = grad.engine.empty_like(grad)
            grad.engine.fill(dx, 0)
        return dx, sum_to(grad, self.shape) if self.needs[1] else None

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        dx = grad.engine.full(grad.shape, 0, grad.dtype) if self.needs[0] else None
        return dx, summed_to(grad, self.shape) if self.needs[1] else None


def copy_(x: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """``x[...] = other``: a tensor (converted to x's dtype), an array or a number that x's dtype holds. Returns x.

    ``non_blocking`` has no effect.
    """
    if written(COPY_INTO, x, other):
        return x
    check_tensor("copy_", x)
    source = other
    if isinstance(source, Tensor) and source.engine is not x.engine:
        source = source.to(x.engine)
    if isinstance(source, Tensor | np.ndarray):
        value = operands("copy_", x, source)[1]
        check_fits("copy_", x, value)
        if value.dtype != x.dtype:
            value = cast(value, x.dtype)
    else:
        value = written_value("copy_", x, source)
    if isinstance(value, Tensor) and value.storage is x.storage:
        value = value.clone()
    return write("copy_", x, Copy, value)


# -- operators that write what a function makes: Python's alone, such as x //= y ----------------------------------


def overwrite(name: str, x: Tensor, function: Callable[..., Tensor], *others: Any, **options: Any) -> Tensor:
    """``x[...] = function(x, *others)``, where the result has x's shape and fits x's dtype. Returns x."""
    check_tensor(name, x)
    _checked(name, x, others)  # before anything is computed
    source, given = x, (*others, *options.values())
    if is_grad_enabled() and any(value.requires_grad for value in (x, *given) if isinstance(value, Tensor)):
        source = x.clone()  # backward reads it, and x changes
        others = tuple([source if other is x else other for other in others])
        options = {key: source if other is x else other for key, other in options.items()}
    result = function(source, *others, **options)
    if dtypes.category(result.dtype) > dtypes.category(x.dtype):
        raise _beyond(name, x, result.dtype)
    if result.shape != x.shape:
        shapes = ", ".join(str(other.shape) for other in given if isinstance(other, Tensor))
        raise ShapeError(f"[{name}] expected a value that broadcasts to {x.shape}, got {shapes or result.shape}")
    return write(name, x, Copy, cast(result, x.dtype))


def evaluated(name: str, function: PointwiseFunction, x: Tensor, *numbers: float) -> Tensor:
    """``x[...] = function(x, *numbers)`` of a tensor of floats, in one pass over its memory. Returns x."""
    trace = function.trace((x, *numbers))
    if trace.program.bools[0]:
        return overwrite(name, x, function, *numbers)
    function.latest_in_place = trace.program.launches_in_place
    given = trace.numbers((x, *numbers))
    if _checked(name, x, ())[1]:
        return write(name, x, Evaluation, trace=trace, numbers=given)
    try:
        x.storage.engine.pointwise(name, trace.program, (x,), trace.program.numbers(given), x)
    finally:
        x.storage.touch()  # after an interrupt too: it may have been written to
    return x


def written_by(function: Callable[..., Tensor], name: str | None = None) -> Callable[..., Tensor]:
    """The function that writes into x what another makes of it: ``exp_`` of ``exp``. It returns x.

    An expression of one tensor of floats, outside the graph, is one pass over its memory. ``name``: where it is not the
    function's.
    """
    primitive = EXPRESSIONS.get(function.__name__)
    name = f"{name or function.__name__}_"
    signature = inspect.signature(function)

    @wraps(function)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not args and not kwargs and primitive is not None and primitive.takes_one:
            if written(primitive.latest_in_place, x):
                return x
            if isinstance(x, Tensor) and x.dtype in dtypes.FLOATS:
                return evaluated(name, primitive, x)
        try:
            signature.bind(x, *args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"[{name}] expected the arguments of {function.__name__}, got others: {error}"
            ) from None
        return overwrite(name, x, function, *args, **kwargs)

    call.__name__, call.__qualname__, call.__doc__ = name, name, f"``x[...] = {function.__name__}(x, ...)``. Returns x."
    return call


def floor_divide_(x: Tensor, other: Any) -> Tensor:
    """``x //= other``. Returns x."""
    return overwrite("//=", x, floor_divide, other)


def remainder_(x: Tensor, other: Any) -> Tensor:
    """``x %= other``. Returns x."""
    return overwrite("%=", x, remainder, other)


def pow_(x: Tensor, other: Any) -> Tensor:
    """``x **= other``. Returns x."""
    return overwrite("**=", x, pow, other)


def and_(x: Tensor, other: Any) -> Tensor:
    """``x &= other``. Returns x."""
    return overwrite("&=", x, bitwise_and, other)


def or_(x: Tensor, other: Any) -> Tensor:
    """``x |= other``. Returns x."""
    return overwrite("|=", x, bitwise_or, other)


def xor_(x: Tensor, other: Any) -> Tensor:
    """``x ^= other``. Returns x."""
    return overwrite("^=", x, bitwise_xor, other)


def lshift_(x: Tensor, other: Any) -> Tensor:
    """``x <<= other``. Returns x."""
    return overwrite("<<=", x, bitwise_left_shift, other)


def rshift_(x: Tensor, other: Any) -> Tensor:
    """``x >>= other``. Returns x."""
    return overwrite(">>=", x, bitwise_right_shift, other)
