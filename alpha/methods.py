"""Tensor's methods that lie above it: the functions that are methods as well, and what is written through functions.

``exp = elementwise.exp`` makes a function a method, with its parameters and its documentation: the tensor is its first
argument. Type checkers see ``Methods`` as Tensor's base class. Where the program runs it cannot be that, for functions
need Tensor first: there ``attach`` gives Tensor the methods, once, when ``alpha`` is imported.
"""

from __future__ import annotations

import builtins
from types import FunctionType
from typing import Any

from alpha import copying, dtypes
from alpha.array_methods import ArrayMethods
from alpha.autograd import walk
from alpha.conversion import tensor
from alpha.devices import device, torch_name
from alpha.errors import ArgumentError, ScalarError
from alpha.functions import activation, creation, drawing, elementwise, extremes, indexing, inplace, joining, linalg
from alpha.functions.operands import check_bool, check_tensor, is_operand
from alpha.tensor import Tensor


class Methods(ArrayMethods):  # noqa: PLW1641 (Tensor has its __hash__)
    """What Tensor has beside its own methods; ``self`` is a Tensor."""

    # -- operators ---------------------------------------------------------------------------------------------------

    __add__ = elementwise.add
    __sub__ = elementwise.sub
    __mul__ = elementwise.mul
    __truediv__ = elementwise.div
    __floordiv__ = elementwise.floor_divide
    __mod__ = elementwise.remainder
    __pow__ = elementwise.pow
    __matmul__ = linalg.matmul
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge

    def __radd__(self: Any, other: Any) -> Tensor:
        return elementwise.add(other, self)

    def __rsub__(self: Any, other: Any) -> Tensor:
        return elementwise.sub(other, self)

    def __rmul__(self: Any, other: Any) -> Tensor:
        return elementwise.mul(other, self)

    def __rtruediv__(self: Any, other: Any) -> Tensor:
        return elementwise.div(other, self)

    def __rfloordiv__(self: Any, other: Any) -> Tensor:
        return elementwise.floor_divide(other, self)

    def __rmod__(self: Any, other: Any) -> Tensor:
        return elementwise.remainder(other, self)

    def __rpow__(self: Any, other: Any) -> Tensor:
        return elementwise.pow(other, self)

    def __rmatmul__(self: Any, other: Any) -> Tensor:
        return linalg.matmul(other, self)

    def __invert__(self: Any) -> Tensor:
        return elementwise.logical_not(check_bool("~", self))

    def __and__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_and(check_bool("&", self), check_bool("&", other))

    def __rand__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_and(check_bool("&", other), check_bool("&", self))

    def __or__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_or(check_bool("|", self), check_bool("|", other))

    def __ror__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_or(check_bool("|", other), check_bool("|", self))

    def __xor__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_xor(check_bool("^", self), check_bool("^", other))

    def __rxor__(self: Any, other: Any) -> Tensor:
        return elementwise.logical_xor(check_bool("^", other), check_bool("^", self))

    # What no function takes (None, a string) is unequal, as everywhere in Python.
    def __eq__(self: Any, other: object) -> Tensor:  # type: ignore[override]
        return elementwise.eq(self, other) if is_operand(other) else NotImplemented

    def __ne__(self: Any, other: object) -> Tensor:  # type: ignore[override]
        return elementwise.ne(self, other) if is_operand(other) else NotImplemented

    def __reversed__(self: Any) -> Tensor:
        """The entries along the first axis in reverse order, as a tensor."""
        return joining.flip(self, (0,)) if self.shape else self

    def __contains__(self: Any, value: object) -> builtins.bool:
        """Whether any element equals a number (or those of a tensor, broadcast)."""
        if not is_operand(value):
            raise ArgumentError(
                f"[in] expected a number or a tensor to look for, got {type(value).__name__}: in a list of tensors "
                "compare by any(x is y for y in tensors)"
            )
        return builtins.bool(extremes.any(elementwise.eq(self, value)).item())

    # -- element-wise ------------------------------------------------------------------------------------------------

    abs = elementwise.abs
    add = elementwise.add
    ceil = elementwise.ceil
    clamp = elementwise.clamp
    cos = elementwise.cos
    div = elementwise.div
    eq = elementwise.eq
    erf = elementwise.erf
    exp = elementwise.exp
    expm1 = elementwise.expm1
    floor = elementwise.floor
    floor_divide = elementwise.floor_divide
    ge = elementwise.ge
    gt = elementwise.gt
    isfinite = elementwise.isfinite
    isnan = elementwise.isnan
    le = elementwise.le
    log = elementwise.log
    log1p = elementwise.log1p
    log_softmax = activation.log_softmax
    logical_and = elementwise.logical_and
    logical_not = elementwise.logical_not
    logical_or = elementwise.logical_or
    logical_xor = elementwise.logical_xor
    lt = elementwise.lt
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    mul = elementwise.mul
    ne = elementwise.ne
    neg = elementwise.neg
    pow = elementwise.pow
    reciprocal = elementwise.reciprocal
    relu = activation.relu
    remainder = elementwise.remainder
    rsqrt = elementwise.rsqrt
    sigmoid = elementwise.sigmoid
    sign = elementwise.sign
    sin = elementwise.sin
    softmax = activation.softmax
    sqrt = elementwise.sqrt
    square = elementwise.square
    sub = elementwise.sub
    tanh = elementwise.tanh

    bernoulli = drawing.bernoulli
    multinomial = drawing.multinomial

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """The elements where the condition holds, elsewhere the other's."""
        return elementwise.where(condition, self, other)

    # -- dtype, engine, layout ---------------------------------------------------------------------------------------

    to = elementwise.to

    @property
    def device(self: Any) -> device:
        """Where it is, by PyTorch's name: ``device("cpu")``, ``device("cuda:0")``."""
        return device(torch_name(self.storage.engine.name))

    @property
    def is_cuda(self: Any) -> builtins.bool:
        """Whether it is on the CUDA engine."""
        return str(self.storage.engine.name).startswith("cu32")

    @property
    def is_cpu(self: Any) -> builtins.bool:
        """Whether it is on the CPU engine."""
        return builtins.bool(self.storage.engine.name == "cpu")

    clone = elementwise.clone
    contiguous = elementwise.contiguous

    def astype(self: Any, dtype: dtypes.DtypeLike) -> Tensor:
        """The values in another dtype; floats keep their place in the graph."""
        return elementwise.cast(self, dtypes.as_dtype(dtype, "astype"))

    def float(self: Any) -> Tensor:
        """As float32."""
        return elementwise.cast(self, dtypes.float32)

    def double(self: Any) -> Tensor:
        """As float64."""
        return elementwise.cast(self, dtypes.float64)

    def long(self: Any) -> Tensor:
        """As int64."""
        return elementwise.cast(self, dtypes.int64)

    def int(self: Any) -> Tensor:
        """As int32."""
        return elementwise.cast(self, dtypes.int32)

    def bool(self: Any) -> Tensor:
        """As bool: where elements differ from 0."""
        return elementwise.cast(self, dtypes.bool_)

    def cpu(self: Any) -> Tensor:
        """On the CPU engine; itself if it is there."""
        return elementwise.to(self, "cpu")

    def cuda(self: Any, device: builtins.int = 0) -> Tensor:
        """On the CUDA engine of a device; itself if it is there."""
        return elementwise.to(self, f"cu32:{device}")

    def type_as(self: Any, other: Tensor) -> Tensor:
        """In another tensor's dtype."""
        check_tensor("type_as", other)
        return elementwise.cast(self, other.dtype)

    def new_tensor(self: Any, data: Any, **options: Any) -> Tensor:
        """``alpha.tensor(data)`` in this dtype and on this engine, unless options say otherwise."""
        return tensor(data, **_as_this(self, options))

    def new_empty(self: Any, *size: Any, **options: Any) -> Tensor:
        """``alpha.empty`` in this dtype and on this engine, unless options say otherwise."""
        return creation.empty(*size, **_as_this(self, options))

    def new_zeros(self: Any, *size: Any, **options: Any) -> Tensor:
        """``alpha.zeros`` in this dtype and on this engine, unless options say otherwise."""
        return creation.zeros(*size, **_as_this(self, options))

    def new_ones(self: Any, *size: Any, **options: Any) -> Tensor:
        """``alpha.ones`` in this dtype and on this engine, unless options say otherwise."""
        return creation.ones(*size, **_as_this(self, options))

    def new_full(self: Any, size: Any, value: Any, **options: Any) -> Tensor:
        """``alpha.full`` in this dtype and on this engine, unless options say otherwise."""
        return creation.full(size, value, **_as_this(self, options))

    # -- in place ----------------------------------------------------------------------------------------------------

    add_ = __iadd__ = inplace.add_
    sub_ = __isub__ = inplace.sub_
    mul_ = __imul__ = inplace.mul_
    div_ = __itruediv__ = inplace.div_
    copy_ = inplace.copy_
    abs_ = inplace.written_by(elementwise.abs)
    ceil_ = inplace.written_by(elementwise.ceil)
    clamp_ = inplace.written_by(elementwise.clamp)
    cos_ = inplace.written_by(elementwise.cos)
    eq_ = inplace.written_by(elementwise.eq)
    erf_ = inplace.written_by(elementwise.erf)
    exp_ = inplace.written_by(elementwise.exp)
    expm1_ = inplace.written_by(elementwise.expm1)
    floor_ = inplace.written_by(elementwise.floor)
    floor_divide_ = inplace.written_by(elementwise.floor_divide)
    ge_ = inplace.written_by(elementwise.ge)
    gt_ = inplace.written_by(elementwise.gt)
    le_ = inplace.written_by(elementwise.le)
    log1p_ = inplace.written_by(elementwise.log1p)
    log_ = inplace.written_by(elementwise.log)
    logical_and_ = inplace.written_by(elementwise.logical_and)
    logical_not_ = inplace.written_by(elementwise.logical_not)
    logical_or_ = inplace.written_by(elementwise.logical_or)
    logical_xor_ = inplace.written_by(elementwise.logical_xor)
    lt_ = inplace.written_by(elementwise.lt)
    ne_ = inplace.written_by(elementwise.ne)
    neg_ = inplace.written_by(elementwise.neg)
    pow_ = inplace.written_by(elementwise.pow)
    reciprocal_ = inplace.written_by(elementwise.reciprocal)
    relu_ = inplace.written_by(activation.relu)
    remainder_ = inplace.written_by(elementwise.remainder)
    rsqrt_ = inplace.written_by(elementwise.rsqrt)
    sigmoid_ = inplace.written_by(elementwise.sigmoid)
    sign_ = inplace.written_by(elementwise.sign)
    sin_ = inplace.written_by(elementwise.sin)
    sqrt_ = inplace.written_by(elementwise.sqrt)
    square_ = inplace.written_by(elementwise.square)
    tanh_ = inplace.written_by(elementwise.tanh)
    normal_ = drawing.normal_
    uniform_ = drawing.uniform_
    __ifloordiv__ = inplace.floor_divide_
    __imod__ = inplace.remainder_
    __ipow__ = inplace.pow_
    __iand__ = inplace.logical_and_
    __ior__ = inplace.logical_or_
    __ixor__ = inplace.logical_xor_
    __setitem__ = indexing.setitem

    def __delitem__(self: Any, key: Any) -> None:
        raise ScalarError("[del] expected a list, got a tensor, whose shape stays: select what remains, or use a mask")

    def fill_(self: Any, value: Any) -> Tensor:
        """Every element set to a number."""
        return inplace.copy_(self, value)

    def zero_(self: Any) -> Tensor:
        """Every element set to 0."""
        return inplace.copy_(self, False)  # which every dtype holds

    # -- the graph, and copies ---------------------------------------------------------------------------------------

    backward = walk.backward
    register_post_accumulate_grad_hook = walk.register_post_accumulate_grad_hook
    __deepcopy__ = copying.deep_copy
    __reduce_ex__ = copying.reduced


def _as_this(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a function that makes a tensor, completed by a tensor's dtype and engine."""
    places = {"engine", "device"} & set(options)
    return {"dtype": x.dtype, **({} if places else {"engine": x.engine}), **options}


def attach() -> None:
    """Gives Tensor the methods."""
    for family in (ArrayMethods, Methods):
        for name, method in vars(family).items():
            if isinstance(method, FunctionType | property):
                setattr(Tensor, name, method)
