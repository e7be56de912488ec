"""Tensor's methods that lie above it: the functions that are methods as well, and what is written through functions.

``exp = elementwise.exp`` makes a function a method, with its parameters and its documentation: the tensor is its first
argument. Type checkers see ``Methods`` as Tensor's base class. Where the program runs it cannot be that, for functions
need Tensor first: there ``attach`` gives Tensor the methods, once, when ``alpha`` is imported.
"""

from __future__ import annotations

import builtins
from types import FunctionType
from typing import Any

import numpy as np

from alpha import copying, dtypes, printing
from alpha.array_methods import ArrayMethods
from alpha.autograd import walk
from alpha.changes import at_once, taking
from alpha.conversion import tensor
from alpha.devices import device, torch_name
from alpha.errors import ArgumentError, ScalarError
from alpha.exchange_methods import ExchangeMethods
from alpha.fact_methods import FactMethods
from alpha.functions import (
    activation,
    complex_numbers,
    creation,
    distributions,
    drawing,
    elementwise,
    extremes,
    indexing,
    inplace,
    joining,
    layouts,
    linalg,
    piecewise,
    short_time,
)
from alpha.functions.operands import check_tensor, is_operand
from alpha.matrix_methods import MatrixMethods
from alpha.pointwise_methods import PointwiseMethods
from alpha.tensor import Tensor


class Methods(PointwiseMethods, ArrayMethods, FactMethods, MatrixMethods, ExchangeMethods):  # noqa: PLW1641
    """What Tensor has beside its own methods; ``self`` is a Tensor."""

    # -- operators ---------------------------------------------------------------------------------------------------

    __matmul__ = linalg.matmul

    def __rmatmul__(self: Any, other: Any) -> Tensor:
        return linalg.matmul(other, self)

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

    # -- functions of other families ---------------------------------------------------------------------------------

    log_softmax = activation.log_softmax
    hardshrink = piecewise.hardshrink
    prelu = piecewise.prelu
    relu = activation.relu
    softmax = activation.softmax

    istft = short_time.istft
    stft = short_time.stft

    bernoulli = drawing.bernoulli
    multinomial = drawing.multinomial

    # -- data --------------------------------------------------------------------------------------------------------

    @property
    def data(self: Any) -> Tensor:
        """The same values outside the graph, sharing memory: ``detach()``. Assigned, the tensor views another's memory.

        What is assigned has the same engine. Writes through ``data`` count as writes, so that a backward which needs
        the old values raises an error, where PyTorch computes with the new ones.
        """
        return self.detach()  # type: ignore[no-any-return]

    @data.setter
    def data(self: Any, value: Any) -> None:
        check_tensor("data", value)
        self.engine.check_owner("data", value)
        if dtypes.is_float(value.dtype) != dtypes.is_float(self.dtype) and self.requires_grad:
            raise ArgumentError(f"[data] expected floats for a tensor that requires grad, got {value.dtype}: cast them")
        at_once(taking(self, value))

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

    angle = complex_numbers.angle
    conj = complex_numbers.conj
    conj_physical = complex_numbers.conj_physical
    conj_physical_ = inplace.written_by(complex_numbers.conj_physical)
    is_conj = complex_numbers.is_conj
    resolve_conj = complex_numbers.resolve_conj
    resolve_neg = complex_numbers.resolve_neg

    @property
    def real(self: Any) -> Tensor:
        """The real parts: see ``alpha.real``."""
        return complex_numbers.real(self)

    @real.setter
    def real(self: Any, value: Any) -> None:
        if dtypes.is_complex(self.dtype):
            value = complex_numbers.of_parts(self, value, complex_numbers.imag(self))
        inplace.copy_(self, value)

    @property
    def imag(self: Any) -> Tensor:
        """The imaginary parts: see ``alpha.imag``."""
        return complex_numbers.imag(self)

    @imag.setter
    def imag(self: Any, value: Any) -> None:
        inplace.copy_(self, complex_numbers.of_parts(self, complex_numbers.real(self), value))

    def __complex__(self: Any) -> complex:
        return complex(self.item())

    clone = elementwise.clone
    contiguous = elementwise.contiguous

    def astype(self: Any, dtype: dtypes.DtypeLike) -> Tensor:
        """The values in another dtype; floats keep their place in the graph."""
        return elementwise.cast(self, dtypes.as_dtype(dtype, "astype"))

    def float(self: Any, memory_format: Any = None) -> Tensor:
        """As float32."""
        return _cast(self, dtypes.float32, memory_format)

    def double(self: Any, memory_format: Any = None) -> Tensor:
        """As float64."""
        return _cast(self, dtypes.float64, memory_format)

    def long(self: Any, memory_format: Any = None) -> Tensor:
        """As int64."""
        return _cast(self, dtypes.int64, memory_format)

    def int(self: Any, memory_format: Any = None) -> Tensor:
        """As int32."""
        return _cast(self, dtypes.int32, memory_format)

    def bool(self: Any, memory_format: Any = None) -> Tensor:
        """As bool: where elements differ from 0."""
        return _cast(self, dtypes.bool_, memory_format)

    def half(self: Any, memory_format: Any = None) -> Tensor:
        """As float16."""
        return _cast(self, dtypes.float16, memory_format)

    def bfloat16(self: Any, memory_format: Any = None) -> Tensor:
        """As bfloat16."""
        return _cast(self, dtypes.bfloat16, memory_format)

    def short(self: Any, memory_format: Any = None) -> Tensor:
        """As int16."""
        return _cast(self, dtypes.int16, memory_format)

    def char(self: Any, memory_format: Any = None) -> Tensor:
        """As int8."""
        return _cast(self, dtypes.int8, memory_format)

    def byte(self: Any, memory_format: Any = None) -> Tensor:
        """As uint8."""
        return _cast(self, dtypes.uint8, memory_format)

    def cfloat(self: Any, memory_format: Any = None) -> Tensor:
        """As complex64."""
        return _cast(self, dtypes.complex64, memory_format)

    def cdouble(self: Any, memory_format: Any = None) -> Tensor:
        """As complex128."""
        return _cast(self, dtypes.complex128, memory_format)

    def cpu(self: Any, memory_format: Any = None) -> Tensor:
        """On the CPU engine; itself if it is there."""
        return elementwise.to(self, "cpu", memory_format=memory_format)

    def cuda(
        self: Any, device: builtins.int = 0, non_blocking: builtins.bool = False, memory_format: Any = None
    ) -> Tensor:
        """On the CUDA engine of a device; itself if it is there. ``non_blocking`` has no effect."""
        return elementwise.to(self, f"cu32:{device}", memory_format=memory_format)

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

    def new_empty_strided(self: Any, size: Any, stride: Any, **options: Any) -> Tensor:
        """``alpha.empty_strided`` in this dtype and on this engine, unless options say otherwise."""
        return layouts.empty_strided(size, stride, **_as_this(self, options))

    def new(self: Any, *args: Any) -> Tensor:
        """An uninitialised tensor of a size in this dtype and on this engine: ``new(2, 3)`` or ``new((2, 3))``.

        ``new()`` has no elements, ``new([1, 2])`` those of a list or array, and ``new(tensor)`` those of another, whose
        memory it shares. PyTorch's legacy constructor: ``new_empty`` and ``new_tensor`` say which is meant.
        """
        if len(args) == 1 and isinstance(args[0], Tensor):
            if args[0].dtype != self.dtype or args[0].engine is not self.engine:
                raise ArgumentError(f"[new] expected a tensor of {self.dtype} on {self.engine.name}, got another")
            return args[0].detach()
        if len(args) == 1 and isinstance(args[0], list | np.ndarray):
            return tensor(args[0], dtype=self.dtype, engine=self.engine)
        return creation.empty(*(args or (0,)), dtype=self.dtype, engine=self.engine)

    def new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """``alpha.full`` in this dtype and on this engine, unless options say otherwise."""
        return creation.full(size, fill_value, **_as_this(self, options))

    # -- in place ----------------------------------------------------------------------------------------------------

    copy_ = inplace.copy_
    relu_ = inplace.written_by(activation.relu)
    bernoulli_ = distributions.bernoulli_
    cauchy_ = distributions.cauchy_
    exponential_ = distributions.exponential_
    geometric_ = distributions.geometric_
    log_normal_ = distributions.log_normal_
    normal_ = drawing.normal_
    random_ = distributions.random_
    uniform_ = drawing.uniform_
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
    __repr__ = printing.text_of
    __deepcopy__ = copying.deep_copy
    __reduce_ex__ = copying.reduced


def _as_this(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a function that makes a tensor, completed by a tensor's dtype and engine."""
    places = {"engine", "device"} & set(options)
    return {"dtype": x.dtype, **({} if places else {"engine": x.engine}), **options}


def _cast(x: Any, dtype: np.dtype[Any], format: Any) -> Tensor:
    """A tensor in another dtype, and where a memory format is named, in its order."""
    return elementwise.cast(x, dtype) if format is None else elementwise.to(x, dtype, memory_format=format)


def attach() -> None:
    """Gives Tensor the methods."""
    for family in (ArrayMethods, PointwiseMethods, FactMethods, MatrixMethods, ExchangeMethods, Methods):
        for name, method in vars(family).items():
            if isinstance(method, FunctionType | property):
                setattr(Tensor, name, method)
