"""Tensor: a strided view of a pool's block on an engine, with its place in the graph."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, axes_in_order, flag, one_axis
from alpha.errors import (
    ArgumentError,
    DtypeError,
    GraphError,
    ScalarError,
    ShapeError,
    described,
)
from alpha.hooks import RemovableHandle

if TYPE_CHECKING:
    from alpha.autograd import Function
    from alpha.engine import Engine
    from alpha.mempool import MemoryPool
    from alpha.methods import Methods
else:
    Methods = object  # alpha.methods attaches them: they are made of functions, which need Tensor first


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

    is_mirrored = False  # whether another storage holds the same: see alpha.mirrors

    def __init__(self, engine: Engine, pool: MemoryPool, nbytes: int) -> None:
        self._block, self._loan = pool.lend(nbytes)  # the block returns to the pool when the loan is dropped
        self.engine = engine
        self.pool = pool
        self.address = self._block.address
        self.nbytes = nbytes
        self.version = 0
        self.cache: dict[Hashable, Any] = {}  # values derived from the contents, with the version that they are from
        self.waiting: weakref.ref[Function] | None = (
            None  # what made the contents and is told who saves or changes them
        )
        self.exported = False  # whether arrays that the version does not see may write to it

    def touch(self, writes: int = 1) -> None:
        """Counts writes: what was saved or derived from the old contents is no longer valid.

        ``changes.versions`` does this where an interrupt must find all of a change made or none.
        """
        self.version += writes
        if self.waiting is not None:
            self.tell_written()

    def tell_written(self) -> None:
        """Tells what made the contents that they are no longer those."""
        waiting, self.waiting = self.waiting, None
        function = waiting() if waiting is not None else None
        if function is not None:
            function.note_written()

    def repeat(self) -> None:
        """Repeats what was written in the storages that hold the same."""


class Tensor(Methods):
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
        "address",
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

    def __init__(
        self, storage: Any = None, offset: Any = None, shape: Any = None, strides: Any = None, dtype: Any = None
    ) -> None:
        if dtype is None:
            storage, offset, shape, strides, dtype = self._parts_of(storage, offset, shape, strides)
        self.storage: Storage = storage
        self.offset: int = offset
        # The first element's, in the engine's memory. It is asked for several times a call, and so kept.
        self.address: int = storage.address + offset * dtype.itemsize if offset else storage.address
        self.shape: Shape = shape
        self.strides: Shape = strides
        self.dtype: np.dtype[Any] = dtype
        self.requires_grad = False
        self.grad: Tensor | None = None
        self._node: Function | None = None
        self._output = 0
        self._array: Any = None
        self._leaf_hooks: dict[RemovableHandle, Callable[[Tensor], Tensor | None]] | None = None
        # The tensor that a view shares memory with, and the version at which their places in the graph last agreed:
        # -1 for a view made within no_grad, which stays outside the graph.
        self._base: Tensor | None = None
        self._base_version = 0

    @staticmethod
    def dense(engine: Engine, shape: Shape, dtype: np.dtype[Any], order: Sequence[int] | None = None) -> Tensor:
        """An uninitialised tensor without gaps; ``order`` lists the axes from outermost to innermost."""
        strides, count = _dense_layout(shape, None if order is None else tuple(order))
        return Tensor(engine.allocate(count * dtype.itemsize), 0, shape, strides, dtype)

    def strided(self, offset: int, shape: Shape, strides: Shape) -> Tensor:
        """A tensor over the same storage, outside the graph: elements offset + sum of index * stride, in elements.

        ShapeError where some element lies outside the storage. ``view`` and ``reshape`` give another shape to the same
        elements.
        """
        storage, dtype = self.storage, self.dtype
        if not is_within(storage, dtype, offset, shape, strides):
            raise ShapeError(
                f"[strided] expected an offset, a shape and strides within {storage.nbytes // dtype.itemsize} elements "
                f"of memory, got {described((offset, shape, strides))}: for another shape use .reshape"
            )
        return Tensor(storage, offset, shape, strides, dtype)

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine that holds it."""
        return self.storage.engine

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def version(self) -> int:
        """Number of in-place writes to the storage so far."""
        return self.storage.version

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_leaf(self) -> bool:
        """Whether it is no recorded function's result."""
        return self._node is None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.numel() * self.dtype.itemsize

    def dim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def stride(self, dim: int | None = None) -> Any:
        """Elements from one entry to the next along each axis, or along one."""
        return self.strides if dim is None else self.strides[one_axis("stride", dim, len(self.shape))]

    def memory_order(self) -> tuple[int, ...]:
        """Axes from outermost to innermost in memory; axes of length 1 and broadcast axes keep their place."""
        return _memory_order(self.shape, self.strides)

    def is_contiguous(self, order: Sequence[int] | None = None, *, memory_format: Any = None) -> bool:
        """Whether it has no gaps and lies in memory in the given order of axes or format (row-major by default)."""
        if memory_format is not None:
            order = self._order_of_one("is_contiguous", order, memory_format)
        try:
            return _is_dense(self.shape, self.strides, None if order is None else tuple(order))
        except (TypeError, ValueError, IndexError, MemoryError):
            return _is_dense(self.shape, self.strides, axes_in_order("is_contiguous", order, len(self.shape)))

    # -- in and out ----------------------------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The values as a NumPy array: a view of the same memory where the host can reach it, else a copy.

        Autograd does not see writes to such a view, and engines cache nothing with a storage that has one.
        GraphError if the tensor requires a gradient, unless ``force`` says that it may.
        """
        if self.requires_grad and not flag("numpy", "force", force):
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

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise ShapeError(f"[item] expected a tensor of one element, got shape {self.shape}: index it first")
        return self.engine.to_numpy(self.detach()).item()

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self.engine.to_numpy(self.detach()).tolist()

    def __len__(self) -> int:
        if not self.shape:
            raise ScalarError("[len] expected a tensor with axes, got one without: read its element with .item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __format__(self, spec: str) -> str:
        """Formats a tensor without axes like its number, ``f"{loss:.3f}"``; any other takes no format."""
        if not self.shape and type(self) is Tensor:
            return format(self.item(), spec)
        if spec:
            raise ScalarError(
                f"[format] expected a tensor without axes for {spec!r}, got shape {self.shape}: format .item() of one "
                "element, or .numpy()"
            )
        return str(self)

    def __pos__(self) -> Tensor:
        return self

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(f"[bool] expected a tensor of one element, got shape {self.shape}: use .any() or .all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if dtypes.has_gradients(self.dtype) or self.numel() != 1:
            raise ScalarError(
                f"[index] expected an integer tensor of one element, got {self.dtype} of shape {self.shape}: cast it, "
                "or index it first"
            )
        return int(self.item())

    # -- the graph -----------------------------------------------------------------------------------------------

    def detach(self) -> Tensor:
        """The same values outside the graph, sharing memory and version."""
        return Tensor(self.storage, self.offset, self.shape, self.strides, self.dtype)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets ``requires_grad`` of a leaf; returns self."""
        if self._node is not None:
            raise GraphError("[requires_grad_] expected a leaf, got a function's result: use .detach() first")
        requires_grad = flag("requires_grad_", "requires_grad", requires_grad)
        if requires_grad and not dtypes.has_gradients(self.dtype):
            raise DtypeError(f"[requires_grad_] expected {dtypes.float_names()}, got {self.dtype}: cast it first")
        self.requires_grad = requires_grad
        return self

    def retain_grad(self) -> None:
        """Makes backward keep the gradient of a function's result in ``.grad`` too."""
        if self._node is not None:
            retained = self._node._retained
            if retained is None:
                self._node._retained = retained = {}
            retained[self._output] = weakref.ref(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls ``hook(grad)`` when this tensor's gradient is known; what it returns (if not None) replaces it.

        For a leaf it sees each contribution before it is added to ``.grad``. Returns a handle, whose ``remove()``
        removes it.
        """
        if not self.requires_grad:
            raise GraphError("[register_hook] expected a tensor that requires grad, got one that does not")
        if not callable(hook):
            raise ArgumentError(f"[register_hook] expected a function of the gradient, got {described(hook)}")
        if self._node is not None:
            table = self._node._hooks
            if table is None:
                self._node._hooks = table = {}
            hooks = table.setdefault(self._output, {})
        else:
            self._leaf_hooks = hooks = self._leaf_hooks if self._leaf_hooks is not None else {}
        return RemovableHandle(hooks, hook)

    def _enter(self, node: Function, output: int) -> None:
        self._node, self._output, self.requires_grad = node, output, True


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> Shape:
    """Strides without gaps for axes laid out from outermost to innermost in ``order``."""
    return _dense_layout(tuple(shape), None if order is None else tuple(order))[0]


def memory_order(shape: Shape, strides: Shape) -> Shape:
    """Axes from outermost to innermost in memory: see ``Tensor.memory_order``."""
    return _memory_order(shape, strides)


# A program has few shapes and uses them in every step: what follows from a shape is cached.


@lru_cache(maxsize=8192)
def _dense_layout(shape: Shape, order: Shape | None) -> tuple[Shape, int]:
    """The strides of a tensor without gaps, and the number of its elements."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= max(int(shape[axis]), 1)
    return tuple(strides), math.prod(shape)


def is_within(storage: Storage, dtype: np.dtype[Any], offset: Any, shape: Any, strides: Any) -> bool:
    """Whether all elements of a geometry lie within a storage."""
    try:
        low, high = extent(shape, strides)
        inside = type(offset) is int and offset + low >= 0 and (offset + high) * dtype.itemsize <= storage.nbytes
    except (TypeError, ValueError):
        return False
    return inside and type(shape) is tuple and type(strides) is tuple


@lru_cache(maxsize=8192)
def extent(shape: Shape, strides: Shape) -> tuple[int, int]:
    """The first element and the one past the last, relative to the offset; TypeError or ValueError if invalid."""
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
    wanted, _ = _dense_layout(shape, order)
    return all(n <= 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


@lru_cache(maxsize=8192)
def has_no_gaps(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie dense in some order of the axes."""
    return _is_dense(shape, strides, _memory_order(shape, strides))


@lru_cache(maxsize=8192)
def _memory_order(shape: Shape, strides: Shape) -> Shape:
    if len(shape) < 2:
        return (0,) * len(shape)
    key = [-stride if size > 1 and stride else None for size, stride in zip(shape, strides, strict=True)]
    ordered = iter(sorted((a for a, k in enumerate(key) if k is not None), key=lambda a: (key[a], a)))
    return tuple(next(ordered) if k is not None else a for a, k in enumerate(key))
