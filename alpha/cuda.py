"""``alpha.cuda``: what programs ask of ``torch.cuda``, for the engine ``cu32``."""

from __future__ import annotations

import importlib
from typing import Any

from alpha import engines, random
from alpha.engine import Engine
from alpha.errors import EngineError
from alpha.typed_tensors import typed

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "synchronize",
]

BFloat16Tensor, BoolTensor, ByteTensor = typed("BFloat16", "cuda"), typed("Bool", "cuda"), typed("Byte", "cuda")
CharTensor, DoubleTensor, FloatTensor = typed("Char", "cuda"), typed("Double", "cuda"), typed("Float", "cuda")
HalfTensor, IntTensor, LongTensor = typed("Half", "cuda"), typed("Int", "cuda"), typed("Long", "cuda")
ShortTensor = typed("Short", "cuda")


def __getattr__(name: str) -> Any:
    """``alpha.cuda.amp``, which is ``alpha.amp``."""
    if name == "amp":
        return importlib.import_module("alpha.amp")
    raise AttributeError(f"module 'alpha.cuda' has no attribute {name!r}")


def _engine(place: Any) -> Engine:
    """The engine of a device: ``None`` is the first, a number or a name the one of that number."""
    if place is None:
        return engines.engine("cu32")
    found = engines.engine(f"cu32:{place}") if isinstance(place, int) else engines.resolve(place)
    if found.name.partition(":")[0] != "cu32":
        raise EngineError(f'[cuda] expected a GPU: None, a number, "cuda" or "cuda:<number>", got {place!r}')
    return found


def is_available() -> bool:
    """Whether a GPU, its driver, PyCUDA and a compiler for its kernels are there, so that ``cu32`` can be used."""
    try:
        _engine(None)
    except EngineError:
        return False
    return True


def device_count() -> int:
    """How many GPUs the driver has; 0 where ``is_available`` is False."""
    if not is_available():
        return 0
    from alpha.cu32.driver import device_count as count

    return count()


def current_device() -> int:
    """The number of the device that ``"cuda"`` means without a number: always 0."""
    return 0


def get_device_name(device: Any = None) -> str:
    """The GPU's name, as its driver tells."""
    return str(_engine(device).device.name)  # type: ignore[attr-defined]


def synchronize(device: Any = None) -> None:
    """Waits until the GPU has done all that it was given."""
    _engine(device).synchronize()


def empty_cache(device: Any = None) -> None:
    """Gives the memory that the pool holds and no tensor uses back to the driver."""
    _engine(device).memory.release_cached()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors use."""
    return int(_engine(device).memory.in_use)


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool holds, in use or not."""
    return int(_engine(device).memory.held)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used at once since the start or ``reset_peak_memory_stats``."""
    return int(_engine(device).memory.peak)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begins to count the most bytes in use anew."""
    _engine(device).memory.reset_peak()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the GPU's memory, as its driver tells."""
    free, total = _engine(device).device.memory_info()  # type: ignore[attr-defined]
    return int(free), int(total)


def manual_seed(seed: int) -> None:
    """``alpha.manual_seed``: one sequence of random numbers serves all engines."""
    random.manual_seed(seed)


manual_seed_all = manual_seed
