"""Tensor: a strided view of a pool's block on an engine, with its place in the graph."""

from __future__ import annotations

import builtins
import math
import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import dtypes
from alpha.errors import (
    AlphaError,
    ArgumentError,
    DtypeError,
    GraphError,
    OutOfMemoryError,
    ScalarError,
    ShapeError,
    described,
)

if TYPE_CHECKING:
    from alpha.autograd import Function
    from alpha.engine import Engine
    from alpha.mempool import MemoryPool

Shape = tuple[int, ...]


class Storage:
    """A block of an engine's memory; the tensors and arrays that view it share it, and its version."""

    __slots__ = (
        "__weakref__",
        "_block",
        "_loan",
        "address",
        "cache",
        "engine",
        "exported",
        "nbytes",
        "pool",
        "version",
        "waiting",
    )

    def __init__(self, engine: Engine, pool: MemoryPool, nbytes: int) -> None:
        self._block, self._loan = pool.lend(nbytes)  # the block goes back to the pool when the loan is dropped
        self.engine = engine
        self.pool = pool
        self.address = self._block.address
        self.nbytes = nbytes
        self.version = 0
        self.cache: dict[Hashable, Any] = {}  # what an engine derived from the contents, with the version it saw
        self.waiting: weakref.ref[Function] | None = None  # who wants to know when a function saves the contents
        self.exported = False  # whether arrays that the version does not see may write to it

    def touch(self, writes: int = 1) -> None:
        """Gives the contents a new version after writes: what was saved or derived of the old ones serves no more.

        ``changes.versions`` does so where an interrupt must find all of a change made or none.
        """
        self.version += writes

    def __reduce__(self) -> tuple[Any, ...]:
        return copying.reduced_storage(self)


class Tensor:
    """An n-dimensional array on an engine. Make one with ``alpha.tensor(array)``.

    Strides count elements. ``requires_grad`` makes functions record a graph, ``backward()`` walks it.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_base",
        "_base_version",
        "_leaf_hooks",
        "_node",
        "_output",
        "dtype",
        "grad",
        "offset",
        "requires_grad",
        "shape",
        "storage",
        "strides",
    )

    # Makes NumPy leave ``array + tensor`` to Tensor.__radd__.
    __array_priority__ = 1000
    __hash__ = object.__hash__

    def __init__(self, storage: Storage, offset: int, shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> None:
        self.storage = storage
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.requires_grad = False
        self.grad: Tensor | None = None
        self._node: Function | None = None
        self._output = 0
        self._array: Any = None
        self._leaf_hooks: list[Callable[[Tensor], Tensor | None]] | None = None
        # Of a view: the tensor whose memory it shares, and the version at which their places in the graph agreed;
        # -1 for a view made within no_grad of a tensor in the graph, which stays outside.
        self._base: Tensor | None = None
        self._base_version = 0

    @staticmethod
    def dense(engine: Engine, shape: Shape, dtype: np.dtype[Any], order: Sequence[int] | None = None) -> Tensor:
        """An uninitialised tensor without gaps; ``order`` lists the axes from outermost to innermost."""
        strides = _dense_strides(shape, None if order is None else tuple(order))
        return Tensor(engine.allocate(math.prod(shape) * dtype.itemsize), 0, shape, strides, dtype)

    def view(self, offset: int, shape: Shape, strides: Shape) -> Tensor:
        """A tensor over the same storage, outside the graph: elements offset + sum of index * stride, in elements.

        ShapeError where some element lies outside the storage. For another shape of the same elements use ``reshape``.
        """
        storage, dtype = self.storage, self.dtype
        if not is_within(storage, dtype, offset, shape, strides):
            raise ShapeError(
                f"[view] expected an offset, a shape and strides within {storage.nbytes // dtype.itemsize} elements of "
                f"memory, got {described((offset, shape, strides))}: for another shape use .reshape"
            )
        return Tensor(storage, offset, shape, strides, dtype)

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine it lives on."""
        return self.storage.engine

    @property
    def version(self) -> int:
        """Number of in-place writes to the storage so far."""
        return self.storage.version

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def address(self) -> int:
        """Address of the first element in the engine's memory."""
        return self.storage.address + self.offset * self.dtype.itemsize

    @property
    def is_leaf(self) -> bool:
        """Whether no function made it (or none that was recorded)."""
        return self._node is None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.numel() * self.dtype.itemsize

    def dim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the length of one axis."""
        return self.shape if axis is None else self.shape[one_axis("size", axis, len(self.shape))]

    def stride(self) -> Shape:
        """Elements from one entry to the next along each axis."""
        return self.strides

    def memory_order(self) -> tuple[int, ...]:
        """Axes from outermost to innermost in memory (axes of length 1 and broadcast ones where they stand)."""
        return _memory_order(self.shape, self.strides)

    def is_contiguous(self, order: Sequence[int] | None = None) -> bool:
        """Whether it has no gaps and lies in memory in the given order of axes (row-major by default)."""
        try:
            return _is_dense(self.shape, self.strides, None if order is None else tuple(order))
        except (TypeError, ValueError, IndexError, MemoryError):
            return _is_dense(self.shape, self.strides, axes_in_order("is_contiguous", order, len(self.shape)))

    # -- in and out ----------------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as a NumPy array: a view of the same memory where the host can reach it, else a copy.

        Writes to a view go unseen by the version guard; what engines keep with a storage they keep for it no more.
        GraphError if the tensor requires a gradient.
        """
        if self.requires_grad:
            raise GraphError("[numpy] expected a tensor outside the graph, got one that requires grad: use .detach()")
        self.storage.exported = True
        return self.engine.to_numpy(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.engine.to_numpy(self.detach())
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"[__array__] expected dtype {self.dtype} for a view, got {dtype}: allow a copy")
            return array.astype(dtype)
        if copy is not None and copy is not False:
            return array.copy()
        self.storage.exported = True
        return array

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise ShapeError(f"[item] expected a tensor of one element, got shape {self.shape}: index it first")
        return self.engine.to_numpy(self.detach()).item()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with memory of its own on the same engine, its gradient copied too; what shared memory shares it."""
        return copying.deep_copy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """What ``pickle`` and ``copy.copy`` make it of: memory, layout, dtype; a leaf, without its gradient."""
        return copying.reduced(self)

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self.engine.to_numpy(self.detach()).tolist()

    def __repr__(self) -> str:
        values = np.array2string(
            self.engine.to_numpy(self.detach()), separator=", ", threshold=100, edgeitems=3, precision=4
        )
        parts = [f"shape={self.shape}", f"dtype={self.dtype}", f"engine={self.engine.name}"]
        if self._node is not None:
            parts.append(f"grad_fn={type(self._node).__name__}")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"tensor({values}, {', '.join(parts)})".replace("\n", "\n       ")

    def __len__(self) -> int:
        if not self.shape:
            raise ScalarError("[len] expected a tensor with axes, got one without: read its element with .item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __reversed__(self) -> Tensor:
        """The entries along the first axis in reverse order, as a tensor."""
        return F.flip(self, (0,)) if self.shape else self

    def __contains__(self, value: object) -> builtins.bool:
        """Whether any element equals a number (or those of a tensor, broadcast)."""
        if not is_operand(value):
            raise ArgumentError(
                f"[in] expected a number or a tensor to look for, got {type(value).__name__}: in a list of tensors "
                "compare by any(x is y for y in tensors)"
            )
        return builtins.bool(F.any(F.eq(self, value)).item())

    def __format__(self, spec: str) -> str:
        """A tensor without axes as its number is, ``f"{loss:.3f}"``; any other as its repr alone."""
        if not self.shape and type(self) is Tensor:
            return format(self.item(), spec)
        if spec:
            raise ScalarError(
                f"[format] expected a tensor without axes for {spec!r}, got shape {self.shape}: format .item() of one "
                "element, or .numpy()"
            )
        return str(self)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(f"[bool] expected a tensor of one element, got shape {self.shape}: use .any() or .all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if dtypes.is_float(self.dtype) or self.numel() != 1:
            raise ScalarError(
                f"[index] expected an integer tensor of one element, got {self.dtype} of shape {self.shape}: cast it, "
                "or index it first"
            )
        return int(self.item())

    # -- the graph -----------------------------------------------------------------------------------------------

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = False) -> None:
        """Adds the gradient of this tensor to ``.grad`` of every leaf that requires one.

        Args:
            gradient: gradient of the final result with respect to this tensor; 1 for a tensor of one element.
            retain_graph: keep the saved tensors for another backward.
        """
        self._follow_base()
        if not self.requires_grad:
            raise GraphError(
                "[backward] expected a tensor made from one that requires grad, got one outside the graph: set "
                "requires_grad=True on an input, and compute outside no_grad"
            )
        if gradient is None:
            if self.numel() != 1:
                raise GraphError(
                    f"[backward] expected a gradient for a tensor of shape {self.shape}, got none: reduce it to one "
                    "element (.sum(), .mean()) or pass gradient="
                )
            gradient = self.engine.empty_like(self)
            self.engine.fill(gradient, 1)
        elif not isinstance(gradient, Tensor):
            raise DtypeError(f"[backward] expected a Tensor as gradient, got {described(gradient)}")
        elif gradient.shape != self.shape:
            raise ShapeError(f"[backward] expected a gradient of shape {self.shape}, got {gradient.shape}")
        autograd.backward([self], [gradient], retain_graph)

    def detach(self) -> Tensor:
        """The same values outside the graph, sharing memory and version."""
        return Tensor(self.storage, self.offset, self.shape, self.strides, self.dtype)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets ``requires_grad`` of a leaf; returns self."""
        if self._node is not None:
            raise GraphError("[requires_grad_] expected a leaf, got a function's result: use .detach() first")
        requires_grad = flag("requires_grad_", "requires_grad", requires_grad)
        if requires_grad and not dtypes.is_float(self.dtype):
            raise DtypeError(f"[requires_grad_] expected float32 or float64, got {self.dtype}: cast it first")
        self.requires_grad = requires_grad
        return self

    def retain_grad(self) -> None:
        """Has backward keep the gradient of a function's result in ``.grad`` too."""
        if self._node is not None:
            self._node._retained[self._output] = weakref.ref(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Calls ``hook(grad)`` when this tensor's gradient is known; what it returns (if not None) replaces it.

        For a leaf it sees each contribution before it is added to ``.grad``. Returns a function that removes it.
        """
        if not self.requires_grad:
            raise GraphError("[register_hook] expected a tensor that requires grad, got one that does not")
        if not callable(hook):
            raise ArgumentError(f"[register_hook] expected a function of the gradient, got {described(hook)}")
        if self._node is not None:
            hooks = self._node._hooks.setdefault(self._output, [])
        else:
            self._leaf_hooks = hooks = self._leaf_hooks if self._leaf_hooks is not None else []
        hooks.append(hook)
        return lambda: hooks.remove(hook)

    def _enter(self, node: Function, output: int) -> None:
        self._node, self._output, self.requires_grad = node, output, True

    def _set_base(self, source: Tensor) -> None:
        """Notes that this tensor views another's memory, unless it is a copy or that tensor itself."""
        if self.storage is source.storage and self is not source:
            self._base = base = source._base if source._base is not None else source
            self._base_version = -1 if base.requires_grad and not autograd.is_grad_enabled() else self.version

    def _follow_base(self) -> None:
        """Takes a view's place in the graph from its base again after an in-place write to the shared memory."""
        if self._base is not None and 0 <= self._base_version != self.version:
            version = self.version
            leaf = self.requires_grad and self._node is None
            if self._base.requires_grad and not leaf:
                inplace.follow(self, self._base)
            self._base_version = version

    def _settle_grad(self, before: Tensor | None, grad: Tensor) -> None:
        """Makes ``grad`` this leaf's gradient, in the memory of the one before if there was one; twice is as once."""
        if self._node is None:
            graphs.note_leaf(self, before)
        if before is None:
            self.grad = grad
            return
        self.engine.copy(grad, before)
        before.storage.touch()

    # -- element-wise --------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return F.add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return F.add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return F.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return F.sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return F.mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return F.mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return F.div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return F.div(other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return F.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return F.floor_divide(other, self)

    def __mod__(self, other: Any) -> Tensor:
        return F.remainder(self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return F.remainder(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return F.pow(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return F.pow(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return F.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return F.matmul(other, self)

    def __neg__(self) -> Tensor:
        return F.neg(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return F.abs(self)

    def __invert__(self) -> Tensor:
        return F.logical_not(_boolean("~", self))

    def __and__(self, other: Any) -> Tensor:
        return F.logical_and(_boolean("&", self), _boolean("&", other))

    def __rand__(self, other: Any) -> Tensor:
        return F.logical_and(_boolean("&", other), _boolean("&", self))

    def __or__(self, other: Any) -> Tensor:
        return F.logical_or(_boolean("|", self), _boolean("|", other))

    def __ror__(self, other: Any) -> Tensor:
        return F.logical_or(_boolean("|", other), _boolean("|", self))

    def __xor__(self, other: Any) -> Tensor:
        return F.logical_xor(_boolean("^", self), _boolean("^", other))

    def __rxor__(self, other: Any) -> Tensor:
        return F.logical_xor(_boolean("^", other), _boolean("^", self))

    # What no function takes (None, a string) is unequal, as everywhere in Python.
    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return F.eq(self, other) if is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return F.ne(self, other) if is_operand(other) else NotImplemented

    def __lt__(self, other: Any) -> Tensor:
        return F.lt(self, other)

    def __le__(self, other: Any) -> Tensor:
        return F.le(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return F.gt(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return F.ge(self, other)

    def abs(self) -> Tensor:
        """Absolute values."""
        return F.abs(self)

    def pow(self, exponent: Any) -> Tensor:
        """``self ** exponent``."""
        return F.pow(self, exponent)

    def square(self) -> Tensor:
        """``self * self``."""
        return F.square(self)

    def exp(self) -> Tensor:
        """e to the power of each element."""
        return F.exp(self)

    def log(self) -> Tensor:
        """Natural logarithms."""
        return F.log(self)

    def sqrt(self) -> Tensor:
        """Square roots."""
        return F.sqrt(self)

    def sin(self) -> Tensor:
        """Sines."""
        return F.sin(self)

    def cos(self) -> Tensor:
        """Cosines."""
        return F.cos(self)

    def tanh(self) -> Tensor:
        """Hyperbolic tangents."""
        return F.tanh(self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""
        return F.sigmoid(self)

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return F.relu(self)

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Elements limited to min..max; the gradient is 0 outside."""
        return F.clamp(self, min, max)

    def softmax(self, dim: int = -1) -> Tensor:
        """exp(x) / sum(exp(x)) along an axis."""
        return F.softmax(self, dim)

    def log_softmax(self, dim: int = -1) -> Tensor:
        """x - log(sum(exp(x))) along an axis."""
        return F.log_softmax(self, dim)

    def isfinite(self) -> Tensor:
        """Where elements are neither infinite nor NaN."""
        return F.isfinite(self)

    # -- dtype, engine, layout -----------------------------------------------------------------------------------

    def astype(self, dtype: dtypes.DtypeLike) -> Tensor:
        """The values in another dtype; floats keep their place in the graph."""
        return F.cast(self, dtypes.as_dtype(dtype, "astype"))

    def float(self) -> Tensor:
        """As float32."""
        return F.cast(self, dtypes.float32)

    def double(self) -> Tensor:
        """As float64."""
        return F.cast(self, dtypes.float64)

    def long(self) -> Tensor:
        """As int64."""
        return F.cast(self, dtypes.int64)

    def int(self) -> Tensor:
        """As int32."""
        return F.cast(self, dtypes.int32)

    def bool(self) -> Tensor:
        """As bool: where elements differ from 0."""
        return F.cast(self, dtypes.bool_)

    def to(self, target: Any) -> Tensor:
        """On another engine (an Engine or its name), or in another dtype; itself where nothing changes."""
        return F.to(self, target)

    def cpu(self) -> Tensor:
        """On the CPU engine; itself if it is there."""
        return F.to(self, "cpu")

    def cuda(self, device: builtins.int = 0) -> Tensor:
        """On the CUDA engine of a device; itself if it is there."""
        return F.to(self, f"cu32:{device}")

    def clone(self) -> Tensor:
        """A copy with its own memory, in the graph."""
        return F.clone(self)

    def contiguous(self, order: Sequence[builtins.int] | None = None) -> Tensor:
        """Itself if dense in the given order of axes (row-major by default), else such a copy."""
        return F.contiguous(self, order)

    # -- reductions ----------------------------------------------------------------------------------------------

    def sum(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """Sum over an axis, several, or all."""
        return F.sum(self, dim, keepdim)

    def mean(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """Mean over an axis, several, or all."""
        return F.mean(self, dim, keepdim)

    def var(self, dim: Any = None, unbiased: builtins.bool = True, keepdim: builtins.bool = False) -> Tensor:
        """Variance over an axis, several, or all; divided by n - 1 unless ``unbiased`` is False."""
        return F.var(self, dim, unbiased, keepdim)

    def std(self, dim: Any = None, unbiased: builtins.bool = True, keepdim: builtins.bool = False) -> Tensor:
        """Square root of ``var``."""
        return F.std(self, dim, unbiased, keepdim)

    def prod(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """Product over an axis, several, or all."""
        return F.prod(self, dim, keepdim)

    def max(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """The largest element; along an axis ``(values, indices)`` as in PyTorch."""
        return F.max(self, dim, keepdim)

    def min(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """The smallest element; along an axis ``(values, indices)`` as in PyTorch."""
        return F.min(self, dim, keepdim)

    def logsumexp(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """log(sum(exp(x))) over an axis, several, or all."""
        return F.logsumexp(self, dim, keepdim)

    def norm(self, p: builtins.float = 2, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """(sum(|x| ** p)) ** (1 / p) over an axis, several, or all."""
        return F.norm(self, p, dim, keepdim)

    def argmax(self, dim: builtins.int | None = None) -> Tensor:
        """Index of the largest element, along an axis or in the flattened tensor."""
        return F.argmax(self, dim)

    def argmin(self, dim: builtins.int | None = None) -> Tensor:
        """Index of the smallest element, along an axis or in the flattened tensor."""
        return F.argmin(self, dim)

    def any(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """Whether any element differs from 0."""
        return F.any(self, dim, keepdim)

    def all(self, dim: Any = None, keepdim: builtins.bool = False) -> Tensor:
        """Whether every element differs from 0."""
        return F.all(self, dim, keepdim)

    def cumsum(self, dim: builtins.int) -> Tensor:
        """Running sums along an axis."""
        return F.cumsum(self, dim)

    def sort(self, dim: builtins.int = -1, descending: builtins.bool = False) -> tuple[Tensor, Tensor]:
        """Values in order along an axis, and their indices."""
        return F.sort(self, dim, descending)

    # -- shape ---------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""
        return F.permute(self, tuple(reversed(range(self.ndim))))

    def reshape(self, *shape: Any) -> Tensor:
        """Another shape for the same elements in row-major order; a view where the strides allow it."""
        return F.reshape(self, _sequence(shape))

    def permute(self, *axes: Any) -> Tensor:
        """The axes in another order; a view."""
        return F.permute(self, _sequence(axes))

    def transpose(self, first: builtins.int, second: builtins.int) -> Tensor:
        """Two axes exchanged; a view."""
        return F.transpose(self, first, second)

    def expand(self, *shape: Any) -> Tensor:
        """Broadcast to a shape; a view."""
        return F.expand(self, _sequence(shape))

    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """A run of axes made into one."""
        return F.flatten(self, start_dim, end_dim)

    def squeeze(self, dim: Any = None) -> Tensor:
        """Without its axes of length 1, or without one of them."""
        return F.squeeze(self, dim)

    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """With an axis of length 1 put in."""
        return F.unsqueeze(self, dim)

    def split(self, size: builtins.int | Sequence[builtins.int], dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Pieces of a size (the last may be smaller), or of the sizes in a list, along an axis; views."""
        return F.split(self, size, dim)

    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """At most so many pieces of equal length (the last may be smaller) along an axis; views."""
        return F.chunk(self, chunks, dim)

    def flip(self, *dims: builtins.int) -> Tensor:
        """The elements in reverse order along axes; a copy."""
        return F.flip(self, _sequence(dims))

    def gather(self, dim: builtins.int, index: Tensor) -> Tensor:
        """The elements at given positions along an axis; see ``alpha.gather``."""
        return F.gather(self, dim, index)

    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        """With a number where the mask holds."""
        return F.masked_fill(self, mask, value)

    def __getitem__(self, key: Any) -> Tensor:
        return F.getitem(self, key)

    # -- in place ------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        F.setitem(self, key, value)

    def __delitem__(self, key: Any) -> None:
        raise ScalarError("[del] expected a list, got a tensor, whose shape stays: select what remains, or use a mask")

    def __iadd__(self, other: Any) -> Tensor:
        return F.add_(self, other)

    def __isub__(self, other: Any) -> Tensor:
        return F.sub_(self, other)

    def __imul__(self, other: Any) -> Tensor:
        return F.mul_(self, other)

    def __itruediv__(self, other: Any) -> Tensor:
        return F.div_(self, other)

    def add_(self, other: Any) -> Tensor:
        """``self += other``."""
        return F.add_(self, other)

    def sub_(self, other: Any) -> Tensor:
        """``self -= other``."""
        return F.sub_(self, other)

    def mul_(self, other: Any) -> Tensor:
        """``self *= other``."""
        return F.mul_(self, other)

    def div_(self, other: Any) -> Tensor:
        """``self /= other``."""
        return F.div_(self, other)

    def copy_(self, source: Any) -> Tensor:
        """``self[...] = source``."""
        return F.copy_(self, source)

    def fill_(self, value: Any) -> Tensor:
        """Every element set to a number."""
        return F.copy_(self, value)

    def zero_(self) -> Tensor:
        """Every element set to 0."""
        return F.copy_(self, False)  # which every dtype holds


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> Shape:
    """Strides without gaps for axes laid out from outermost to innermost in ``order``."""
    return _dense_strides(tuple(shape), None if order is None else tuple(order))


# A program has few shapes, and asks for them in every step: what follows from one is kept.


@lru_cache(maxsize=8192)
def _dense_strides(shape: Shape, order: Shape | None) -> Shape:
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= max(int(shape[axis]), 1)
    return tuple(strides)


def is_within(storage: Storage, dtype: np.dtype[Any], offset: Any, shape: Any, strides: Any) -> builtins.bool:
    """Whether all elements of a geometry lie within a storage."""
    try:
        low, high = _extent(shape, strides)
        inside = (
            type(offset) is builtins.int and offset + low >= 0 and (offset + high) * dtype.itemsize <= storage.nbytes
        )
    except (TypeError, ValueError):
        return False
    return inside and type(shape) is tuple and type(strides) is tuple


@lru_cache(maxsize=8192)
def _extent(shape: Shape, strides: Shape) -> tuple[int, int]:
    """The first element and the end of the last, from a tensor's offset on; TypeError or ValueError for no geometry."""
    low, high, empty = 0, 1, False
    for n, stride in zip(shape, strides, strict=True):
        if operator.index(n) < 0:
            raise ValueError("negative length")
        operator.index(stride)
        empty = empty or n == 0
        low += min((n - 1) * stride, 0)
        high += max((n - 1) * stride, 0)
    return (1 << 63, -1 << 63) if empty else (low, high)


@lru_cache(maxsize=8192)
def _is_dense(shape: Shape, strides: Shape, order: Shape | None) -> bool:
    wanted = _dense_strides(shape, order)
    return all(n <= 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


@lru_cache(maxsize=8192)
def _memory_order(shape: Shape, strides: Shape) -> Shape:
    if len(shape) < 2:
        return (0,) * len(shape)
    key = [-stride if size > 1 and stride else None for size, stride in zip(shape, strides, strict=True)]
    ordered = iter(sorted((a for a, k in enumerate(key) if k is not None), key=lambda a: (key[a], a)))
    return tuple(next(ordered) if k is not None else a for a, k in enumerate(key))


def _boolean(operator: str, value: Any) -> Any:
    """An operand of a logical operator; DtypeError unless it is bool, for integers' bits have no such functions."""
    dtype = getattr(value, "dtype", None)
    if dtype != dtypes.bool_ if dtype is not None else not isinstance(value, bool):
        raise DtypeError(f"[{operator}] expected bool, got {dtype or type(value).__name__}: compare first, as in x > 0")
    return value


def _sequence(values: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(1, 2)`` and ``f((1, 2))`` alike."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], tuple | list) else values


def tensor(
    data: Any,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: Engine | str | None = None,
) -> Tensor:
    """A tensor with a copy of an array, a number or nested lists, on an engine (by default the default engine).

    Without ``dtype`` arrays keep theirs; Python floats become float32, ints int64.
    """
    target = engines.resolve(engine)
    if isinstance(data, Tensor):
        data = data.engine.to_numpy(data.detach())
    array = as_array("tensor", data)
    if dtype is None:
        python = not hasattr(data, "dtype")
        dtype = dtypes.float32 if python and array.dtype == np.float64 else array.dtype
    wanted = dtypes.as_dtype(dtype, "tensor")
    if array.dtype != wanted:
        if array.dtype.kind not in "biuf":
            raise DtypeError(f"[tensor] expected numbers, got an array of {array.dtype}: convert it first")
        if array.size * wanted.itemsize > target.memory.cap:
            target.allocate(array.size * wanted.itemsize)  # which says so before NumPy tries
        with np.errstate(all="ignore"):  # what does not fit becomes what NumPy makes of it
            array = _within_memory("tensor", lambda: array.astype(wanted))
    out = target.from_numpy(array)
    return out.requires_grad_(requires_grad) if requires_grad is not False else out


def as_array(function: str, data: Any) -> np.ndarray[Any, Any]:
    """``np.asarray(data)``; ArgumentError for what no array can be made of, OutOfMemoryError for too much."""
    try:
        return _within_memory(function, lambda: np.asarray(data))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, AlphaError):
            raise
        raise ArgumentError(
            f"[{function}] expected an array or nested lists of one shape, got {described(data)}: {error}"
        ) from error


def _within_memory(function: str, make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    try:
        return make()
    except MemoryError as error:
        if isinstance(error, OutOfMemoryError):
            raise
        raise OutOfMemoryError(f"[{function}] expected room for an array beside the pool, got: {error}") from error


from alpha import autograd, copying, engines, graphs  # noqa: E402  (these modules need Tensor)
from alpha import functions as F  # noqa: E402
from alpha.functions import inplace  # noqa: E402
from alpha.functions.operands import axes_in_order, flag, is_operand, one_axis  # noqa: E402
