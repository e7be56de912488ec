"""alpha.tensor: tensors made of arrays, numbers and nested lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dlpack, dtypes, engines
from alpha.arguments import as_array, within_memory
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, described
from alpha.places import chosen
from alpha.tensor import Tensor


def tensor(
    data: Any,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: Engine | str | None = None,
    device: Any = None,
) -> Tensor:
    """A tensor with a copy of an array, a number or nested lists, on an engine (by default the default engine).

    Without ``dtype`` arrays keep theirs; Python floats become float32, ints int64. ArgumentError where a number, or one
    in a list, is beyond an integer ``dtype``; arrays and tensors are cast as NumPy casts them.
    """
    target = engines.resolve(engine if device is None else chosen("tensor", engine, device))
    if isinstance(data, Tensor):
        data = data.engine.to_numpy(data.detach())
    python = not hasattr(data, "dtype")
    is_foreign = not python and not isinstance(data, np.ndarray) and str(data.dtype) == "torch.bfloat16"
    array = _of_torch(data) if is_foreign else as_array("tensor", data)
    if dtype is None:
        dtype = array.dtype
        if python and dtypes.has_gradients(dtype):
            kind = dtypes.default_float
            dtype = dtypes.complex_of(kind) if dtypes.is_complex(dtype) else kind
    wanted = dtypes.as_dtype(dtype, "tensor")
    if array.dtype != wanted:
        if not dtypes.holds_numbers(array.dtype):
            raise DtypeError(f"[tensor] expected numbers, got an array of {array.dtype}: convert it first")
        if python and dtypes.is_complex(array.dtype) and not dtypes.is_complex(wanted):
            raise DtypeError(f"[tensor] expected numbers that {wanted} holds, got complex ones: take a complex dtype")
        if (python or isinstance(data, np.generic)) and dtypes.is_integer(wanted):
            _check_held(array, wanted)
        if array.size * wanted.itemsize > target.memory.cap:
            target.allocate(array.size * wanted.itemsize)  # which says so before NumPy tries
        with np.errstate(all="ignore"):  # what does not fit becomes what NumPy makes of it
            array = within_memory("tensor", lambda: array.astype(wanted))
    out = target.from_numpy(array)
    return out.requires_grad_(requires_grad) if requires_grad is not False else out


def _of_torch(data: Any) -> np.ndarray[Any, Any]:
    """PyTorch's numbers of a dtype that it makes no NumPy arrays of."""
    try:
        return dlpack.array_of(dlpack.Capsule(data.detach()))
    except (AttributeError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ArgumentError(
            f"[tensor] expected a tensor in the host's memory, got {described(data)}: call its .cpu() first"
        ) from error


def _check_held(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """ArgumentError where one of some numbers is beyond an integer dtype, or no number."""
    least, most = dtypes.limits(dtype)
    if dtypes.is_float(array.dtype):
        whole = np.trunc(array)
        below, above = np.asarray([least, most + 1], dtypes.widest_float)  # which float16 does not hold
        beyond = ~((whole >= below) & (whole < above))  # of NaN it is true
    else:
        known = np.iinfo(array.dtype if np.issubdtype(array.dtype, np.integer) else np.uint8)  # bools are 0 and 1
        beyond = (array < max(least, known.min)) | (array > min(most, known.max))
    if beyond.any():
        found = described(array[beyond][0].item())
        raise ArgumentError(
            f"[tensor] expected numbers that {dtype} holds, {least} to {most}, got {found}: take another dtype"
        )
