"""The engines of this process: one a device, made when first asked for."""

from __future__ import annotations

from typing import Any

from alpha.engine import Engine
from alpha.errors import ArgumentError, EngineError, described

_engines: dict[str, Engine] = {}
_default: Engine | None = None


def engine(name: str = "cpu", memory: str | int | None = None, threads: int | None = None) -> Engine:
    """The engine of a device. Asked for again it is the same engine, with what is given changed.

    Args:
        name: ``"cpu"``, or ``"cu32"`` (also ``"cu32:0"``), ``"cu32:1"``, ...: NVIDIA GPUs.
        memory: cap of its memory pool, as ``"8GB"`` or a number of bytes; at first 90 % of the machine's memory, or of
            the GPU's that is free.
        threads: threads that compute, of the CPU engine alone; at first as many as the process may use.

    Errors: EngineError where the engine cannot be had here: it says which of driver, package, compiler and device is
    missing, and how to get it.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"[engine] expected an engine's name, got {described(name)}")
    full = "cu32:0" if name == "cu32" else name
    found = _engines.get(full)
    if found is None:  # without a lock: should two threads make one at once, the first counts
        found = _engines.setdefault(full, _make(full))
    options: dict[str, Any] = {"memory": memory, "threads": threads}
    found.configure(**{key: value for key, value in options.items() if value is not None})
    return found


def _make(name: str) -> Engine:
    device, _, ordinal = name.partition(":")
    if name == "cpu":
        from alpha.cpu.engine import CPUEngine

        return CPUEngine()
    if device == "cu32" and ordinal.isdecimal() and str(int(ordinal)) == ordinal:
        from alpha.cu32.compiler import check_compiler
        from alpha.cu32.driver import device as find_device

        found = find_device(int(ordinal))  # driver and package first: without them a compiler is of no use
        check_compiler()
        from alpha.cu32.engine import CUDAEngine

        return CUDAEngine(found.ordinal)
    raise EngineError(f'[engine] expected "cpu", "cu32" or "cu32:" and a device\'s number, got {name!r}')


def default_engine() -> Engine:
    """The engine that new tensors go to when none is named: the CPU's unless ``set_default_engine`` said otherwise."""
    return _default if _default is not None else engine("cpu")


def set_default_engine(value: Engine | str) -> None:
    """Sets the engine that new tensors go to when none is named."""
    global _default
    _default = resolve(value)


def resolve(value: Engine | str | None) -> Engine:
    """An engine from itself, from its name, or the default one from None."""
    if value is None:
        return default_engine()
    if isinstance(value, Engine):
        return value
    return engine(value)
