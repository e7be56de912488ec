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
    found = _of_gpu("as_tensor", data, None)
    if found is not None:
        return _converted(found, dtype, found.engine if engine is None and device is None else where)
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
    kept = engine is None and device is None
    found = _of_gpu("asarray", obj, copy)
    if found is not None:
        out = _converted(found, dtype, found.engine if kept else where)
        is_shared = out.storage is found.storage and not copy
    elif isinstance(obj, Tensor):
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
    """A tensor of an object with ``__dlpack__``, or of a DLPack capsule, whose memory it shares.

    Memory on a GPU is shared by a tensor on the engine of that GPU. Where the memory cannot be shared it is copied,
    with a warning, as by ``from_numpy``.

    Args:
        copy: True copies in any case; False is an error where the memory cannot be shared.
    """
    target = None if engine is None and device is None else _engine("from_dlpack", engine, device)
    copy = None if copy is None else flag("from_dlpack", "copy", copy)
    array, is_writable, gpu = _of_dlpack("from_dlpack", ext_tensor)
    if gpu is not None:
        found = foreign.on_gpu("from_dlpack", gpu, array, copy, is_writable)
        return found if target is None else _moved("from_dlpack", found, target, copy)
    target = engines.resolve(None) if target is None else target
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


def _moved(function: str, x: Tensor, engine: Engine, copy: bool | None) -> Tensor:
    """A tensor over another library's memory on an engine; ArgumentError where that is a copy that is not wanted."""
    if x.engine is not engine and copy is False:
        raise ArgumentError(
            f"[{function}] expected memory that a tensor on {engine.name} can share, got one on {x.engine.name}: allow "
            "a copy"
        )
    return to(x, engine) if x.engine is not engine else x


def _of_gpu(function: str, obj: Any, copy: bool | None) -> Tensor | None:
    """A tensor over an object's memory on a GPU; None where it has none there."""
    if isinstance(obj, Tensor) or type(obj).__module__.startswith("numpy"):
        return None
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        first: Any = engines.engine("cu32")
        engine: Any = engines.engine(f"cu32:{first.gpu_of(interface['data'][0])}")
        stream = interface.get("stream")
        engine.follow(int(engine.stream.handle if stream is None else stream))
        array = foreign.addressed(obj, interface)
        dtypes.as_dtype(array.dtype, function)
        return foreign.on_gpu(function, engine, array, copy)
    try:
        kind, _ = dlpack.device_of(obj)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError):
        return None  # whoever asks for the memory is told
    if kind != dlpack.CUDA:
        return None
    array, is_writable, gpu = _of_dlpack(function, obj)
    return None if gpu is None else foreign.on_gpu(function, gpu, array, copy, is_writable)


def _array(function: str, obj: Any, dtype: Any) -> tuple[Array | None, bool]:
    """An array over an object's memory, None where it has none to share; and whether it may be written to anyway."""
    if isinstance(obj, np.ndarray):
        return obj, False
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return _of_dlpack(function, obj)[:2]
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


def _of_dlpack(function: str, obj: Any) -> tuple[Array, bool, Engine | None]:
    """An array over the memory of an object that has DLPack, whether it may be written to whatever NumPy says, and the
    engine of the GPU that has the memory, if one has: then nobody may read the array.
    """

    def own_stream(number: int) -> int:
        engine: Any = engines.engine(f"cu32:{number}")
        return int(engine.stream.handle)

    try:
        capsule = dlpack.Capsule(obj, own_stream)
        array = dlpack.array_of(capsule)
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ArgumentError(
            f"[{function}] expected a tensor in the host's memory, or a GPU's, that takes part in DLPack, got "
            f"{described(obj)}: {' '.join(str(error).split())}"
        ) from error
    dtypes.as_dtype(array.dtype, function)
    if capsule.gpu is None:
        return array, capsule.is_writable, None
    engine: Any = engines.engine(f"cu32:{capsule.gpu}")
    engine.follow(int(engine.stream.handle))
    return array, capsule.is_writable, engine


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
