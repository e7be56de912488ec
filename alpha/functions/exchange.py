"""Tensors from other libraries' objects, sharing their memory where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dlpack, dtypes, engines, foreign
from alpha.arguments import flag, whole
from alpha.conversion import tensor
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, described
from alpha.functions.elementwise import cast, clone, to
from alpha.functions.operands import check_tensor
from alpha.places import chosen
from alpha.tensor import Tensor

__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "frombuffer", "to_dlpack"]

Array = np.ndarray[Any, Any]


def as_tensor(data: Any, dtype: dtypes.DtypeLike | None = None, device: Any = None, *, engine: Any = None) -> Tensor:
    """``tensor(data, dtype)`` that copies no more than it must.

    A tensor with the dtype and the engine is returned as it is, and a NumPy array's memory is shared.
    """
    where = _engine("as_tensor", engine, device)
    if isinstance(data, Tensor):
        return _converted(data, dtype, data.engine if engine is None and device is None else where)
    shared = _shared(data, dtype, where) if isinstance(data, np.ndarray) else None
    return tensor(data, dtype, engine=where) if shared is None else shared


def asarray(
    obj: Any,
    *,
    dtype: dtypes.DtypeLike | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
    engine: Any = None,
) -> Tensor:
    """A tensor from a tensor, an array, an object with DLPack or a buffer, a number or nested lists.

    Args:
        obj: of a buffer (``bytes``, ``bytearray``, ``memoryview``) the bytes are read as ``dtype``, float32 by default.
        copy: None shares the memory where it can be shared, True never does, and False is an error where it cannot be.
        requires_grad: None keeps a tensor's; False takes it out of the graph.
    """
    where = _engine("asarray", engine, device)
    copy = None if copy is None else flag("asarray", "copy", copy)
    requires_grad = None if requires_grad is None else flag("asarray", "requires_grad", requires_grad)
    out: Tensor | None
    if isinstance(obj, Tensor):
        kept = engine is None and device is None
        out = _converted(obj.detach() if requires_grad is False else obj, dtype, obj.engine if kept else where)
        is_shared = out.storage is obj.storage
    else:
        source, is_writable = _array("asarray", obj, dtype)
        out = None if source is None or copy else _shared(source, dtype, where, is_writable)
        is_shared = out is not None
        if out is None:
            out = tensor(obj if source is None else source, dtype, engine=where)
    if copy is False and not is_shared:
        raise ArgumentError(
            f"[asarray] expected an object whose memory a tensor can share, got {described(obj)}: allow a copy"
        )
    if copy and is_shared:
        out = clone(out)
    return out.requires_grad_() if requires_grad and not out.requires_grad else out


def from_numpy(ndarray: Array, *, engine: Any = None, device: Any = None) -> Tensor:
    """A tensor that shares an array's memory: what is written to one is seen in the other.

    Autograd does not see writes through the array. The tensor is a copy, with a warning that says why, where an array
    is read-only, has negative strides or unaligned numbers, or ends where the engine's kernels, which read a little
    beyond, may not read; on an engine that computes elsewhere it is a copy as well.
    """
    if not isinstance(ndarray, np.ndarray):
        raise DtypeError(f"[from_numpy] expected a NumPy array, got {described(ndarray)}: use alpha.tensor")
    return _shared_or_copied("from_numpy", ndarray, _engine("from_numpy", engine, device))


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None, engine: Any = None) -> Tensor:
    """A tensor of an object with ``__dlpack__``, or of a DLPack capsule, in the host's memory, which it shares.

    Where the memory cannot be shared it is copied, with a warning, as by ``from_numpy``.

    Args:
        copy: True copies in any case; False is an error where the memory cannot be shared.
    """
    target = _engine("from_dlpack", engine, device)
    copy = None if copy is None else flag("from_dlpack", "copy", copy)
    array, is_writable = _of_dlpack("from_dlpack", ext_tensor)
    if copy:
        return target.from_numpy(array)
    why = foreign.obstacle(target, array, is_writable)
    if copy is False and why:
        raise ArgumentError(
            f"[from_dlpack] expected memory that a tensor can share, got a tensor that {why}: allow a copy"
        )
    return _shared_or_copied("from_dlpack", array, target, is_writable)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule over a tensor's memory, for one ``from_dlpack``; newer code hands over the tensor itself.

    GraphError for a tensor that requires grad.
    """
    check_tensor("to_dlpack", tensor)
    return tensor.__dlpack__()


def frombuffer(
    buffer: Any, *, dtype: dtypes.DtypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor of one axis over the bytes of an object with Python's buffer protocol, on the CPU engine.

    Args:
        buffer: ``bytearray``, ``memoryview``, ``mmap``, ``array.array``; of what is read-only, as ``bytes`` is, the
            tensor is a copy, with a warning.
        dtype: what the bytes are read as.
        count: elements; all by default.
        offset: bytes to leave out at the beginning.
    """
    kind = dtypes.as_dtype(dtype, "frombuffer")
    count = whole("frombuffer", "count", count, least=-1)
    offset = whole("frombuffer", "offset", offset, least=0)
    try:
        array = np.frombuffer(buffer, kind, count, offset)
    except (TypeError, ValueError, BufferError, AttributeError) as error:
        wanted = count if count >= 0 else "whole"
        raise ArgumentError(
            f"[frombuffer] expected a buffer of {wanted} elements of {kind} from byte {offset} on, got "
            f"{described(buffer)}: {error}"
        ) from error
    _check_bools("frombuffer", array)
    out = _shared_or_copied("frombuffer", array, engines.engine("cpu"))
    return out.requires_grad_() if flag("frombuffer", "requires_grad", requires_grad) else out


# -- what they are made of ---------------------------------------------------------------------------------------------


def _engine(function: str, engine: Any, device: Any) -> Engine:
    return engines.resolve(engine if device is None else chosen(function, engine, device))


def _converted(data: Tensor, dtype: Any, engine: Engine) -> Tensor:
    moved = to(data, engine) if data.engine is not engine else data
    return moved if dtype is None else cast(moved, dtypes.as_dtype(dtype))


def _array(function: str, obj: Any, dtype: Any) -> tuple[Array | None, bool]:
    """An array over an object's memory, None where it has none to share; and whether it may be written to anyway."""
    if isinstance(obj, np.ndarray):
        return obj, False
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return _of_dlpack(function, obj)
    if not isinstance(obj, bytes | bytearray | memoryview):
        return None, False
    kind = dtypes.default_float if dtype is None else dtypes.as_dtype(dtype, function)
    try:
        array = np.frombuffer(obj, kind)
    except ValueError as error:
        raise ArgumentError(f"[{function}] expected a buffer of whole elements of {kind}, got {error}") from error
    _check_bools(function, array)
    return array, False


def _check_bools(function: str, array: Array) -> None:
    """ArgumentError for bytes beyond 0 and 1 that are to be read as bools, which computing relies on."""
    if dtypes.is_bool(array.dtype) and array.size and array.view(np.uint8).max() > 1:
        raise ArgumentError(f"[{function}] expected bytes of 0 and 1 for bools, got others: read them as uint8")


def _of_dlpack(function: str, obj: Any) -> tuple[Array, bool]:
    """An array over the memory of an object that has DLPack, and whether it may be written to whatever NumPy says."""
    try:
        capsule = dlpack.Capsule(obj)
        array = dlpack.array_of(capsule)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ArgumentError(
            f"[{function}] expected a tensor in the host's memory that takes part in DLPack, got {described(obj)}: "
            f"{' '.join(str(error).split())}"
        ) from error
    dtypes.as_dtype(array.dtype, function)
    return array, capsule.is_writable


def _shared(array: Array, dtype: Any, engine: Engine, is_writable: bool = False) -> Tensor | None:
    """A tensor over an array's memory; None where it cannot be, or is to have another dtype."""
    if dtypes.as_dtype(array.dtype if dtype is None else dtype, "as_tensor") != array.dtype:
        return None
    return foreign.sharing(engine, array, is_writable)


def _shared_or_copied(function: str, array: Array, engine: Engine, is_writable: bool = False) -> Tensor:
    """A tensor over an array's memory, or with a warning a copy of it."""
    dtypes.as_dtype(array.dtype, function)
    shared = foreign.sharing(engine, array, is_writable)
    if shared is not None:
        return shared
    if engine.memory.is_on_host:
        foreign.warn(function, foreign.obstacle(engine, array, is_writable))
    return engine.from_numpy(array)
