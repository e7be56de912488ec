"""The engines of this process: one per device, made when first requested."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha.devices import CUDA, device, engine_of_block
from alpha.engine import Engine
from alpha.errors import ArgumentError, EngineError, described

Factory = Callable[[], Engine] | Callable[[int], Engine]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class _Kind(NamedTuple):
    """Engines of one name: what makes them, and whether there is one for each device number."""

    factory: Callable[..., Engine]
    numbered: bool


_kinds: dict[str, _Kind] = {}
_engines: dict[str, Engine] = {}
_default: Engine | None = None


def register_engine(name: str, factory: Factory, numbered: bool = False) -> None:
    """Makes an engine of one's own known by a name, for ``alpha.engine(name)``, ``.to(name)`` and pickles.

    Args:
        name: lower-case letters, digits and underscores, a letter first; not the name of an engine or a dtype.
        factory: called without arguments when the engine is first asked for; the engine's ``name`` is this name.
        numbered: whether there are several devices: the factory is then called with a device's number, its engine's
            name is ``f"{name}:{number}"``, and ``name`` alone means ``f"{name}:0"``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _is_dtype(name):
        raise ArgumentError(
            "[register_engine] expected a name of lower-case letters, digits and underscores, a letter first and no "
            f"dtype's, got {described(name)}"
        )
    if not callable(factory):
        raise ArgumentError(f"[register_engine] expected a function that makes an engine, got {described(factory)}")
    kind = _Kind(factory, numbered)
    if name == CUDA or _kinds.setdefault(name, kind) is not kind:
        raise ArgumentError(f"[register_engine] expected a new name, got {name!r}, which is taken: choose another")


def engine(name: str = "cpu", memory: str | int | None = None, threads: int | None = None) -> Engine:
    """The engine of a device. Asked for again it is the same engine, with what is given changed.

    Args:
        name: ``"cpu"``; ``"cu32"`` (also ``"cu32:0"``), ``"cu32:1"``, ...: NVIDIA GPUs, for which PyTorch's ``"cuda"``
            stands too; ``"numpy"``: the reference engine, slow and short; or a name given to ``register_engine``.
        memory: cap of its memory pool, as ``"8GB"`` or a number of bytes; at first 90 % of the machine's memory, or of
            the GPU's that is free.
        threads: threads that compute, of the CPU engine alone; at first as many as the process may use.

    Errors: EngineError where the engine cannot be had here: it says which of driver, package, compiler and device is
    missing, and how to get it.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"[engine] expected an engine's name, got {described(name)}")
    found = _engines.get(name)
    if found is None:  # without a lock: should two threads make one at once, the first counts
        full, make = _maker(name)
        found = _engines.get(full)
        if found is None:
            found = _engines.setdefault(full, _checked(full, make()))
    options: dict[str, Any] = {"memory": memory, "threads": threads}
    found.configure(**{key: value for key, value in options.items() if value is not None})
    return found


def is_name(text: str) -> bool:
    """Whether a text begins with the name of an engine: ``.to(text)`` then means one."""
    first = text.partition(":")[0]
    return first in _kinds or first == CUDA


def _is_dtype(name: str) -> bool:
    """Whether NumPy takes a name for a dtype: ``.to(name)`` then means that."""
    try:
        np.dtype(name)
    except TypeError:
        return False
    return True


def _maker(name: str) -> tuple[str, Callable[[], Engine]]:
    """The engine's full name, and what makes it."""
    first, colon, number = name.partition(":")
    first = "cu32" if first == CUDA else first
    kind = _kinds.get(first)
    if kind is not None and not kind.numbered and not colon:
        return name, kind.factory
    if kind is not None and kind.numbered and (not colon or (number.isdecimal() and str(int(number)) == number)):
        device = int(number or 0)
        return f"{first}:{device}", lambda: kind.factory(device)
    names = ", ".join(
        f'"{known}" or "{known}:" and a device\'s number' if listed.numbered else f'"{known}"'
        for known, listed in _kinds.items()
    )
    raise EngineError(f"[engine] expected {names}, got {name!r}")


def _checked(name: str, made: Engine) -> Engine:
    """What a factory made; EngineError unless it is an engine of that name, by which pickles find it again."""
    if not isinstance(made, Engine) or made.name != name:
        got = f"one named {made.name!r}" if isinstance(made, Engine) else described(made)
        raise EngineError(f"[engine] expected the factory of {name!r} to make an engine of that name, got {got}")
    return made


def default_engine() -> Engine:
    """The engine that new tensors go to when none is named.

    It is that of a ``with alpha.device(...)`` block, else what ``set_default_engine`` set, else the CPU's.
    """
    return engine_of_block() or _default or _engines.get("cpu") or engine("cpu")


def set_default_engine(value: Engine | str) -> None:
    """Sets the engine that new tensors go to when none is named."""
    global _default
    _default = resolve(value)


def resolve(value: Any) -> Engine:
    """An engine from itself, from its name, from a device, or the default one from None."""
    if value is None:
        return default_engine()
    if isinstance(value, Engine):
        return value
    return value.engine if isinstance(value, device) else engine(value)


def _cpu() -> Engine:
    from alpha.cpu.engine import CPUEngine

    return CPUEngine()


def _cu32(device: int) -> Engine:
    from alpha.cu32.compiler import check_compiler
    from alpha.cu32.driver import device as find_device

    found = find_device(device)  # driver and package first: without them a compiler is of no use
    check_compiler()
    from alpha.cu32.engine import CUDAEngine

    return CUDAEngine(found.ordinal)


def _numpy() -> Engine:
    from alpha.numpy_engine import NumPyEngine

    return NumPyEngine()


register_engine("cpu", _cpu)
register_engine("cu32", _cu32, numbered=True)
register_engine("numpy", _numpy)
