"""The engines of this process: one a device, made when first asked for."""

from __future__ import annotations

import threading
from typing import Any

from alpha.engine import Engine
from alpha.errors import ArgumentError, EngineError

_lock = threading.Lock()
_engines: dict[str, Engine] = {}
_default: Engine | None = None


def engine(name: str = "cpu", memory: str | int | None = None, threads: int | None = None) -> Engine:
    """The engine of a device: ``"cpu"``. Asked for again it is the same engine, with what is given changed.

    Args:
        name: the device.
        memory: cap of its memory pool, as ``"8GB"`` or a number of bytes; at first 90 % of the machine's memory.
        threads: threads that compute; at first as many as the process may use.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"[engine] expected an engine's name, got {name!r}")
    device, _, _ = name.partition(":")
    with _lock:
        found = _engines.get(name)
        if found is None:
            found = _engines[name] = _make(name, device)
    options: dict[str, Any] = {"memory": memory, "threads": threads}
    found.configure(**{key: value for key, value in options.items() if value is not None})
    return found


def _make(name: str, device: str) -> Engine:
    if name == "cpu":
        from alpha.cpu.engine import CPUEngine

        return CPUEngine()
    missing = ": the CUDA engine is not part of this version" if device == "cu32" else ""
    raise EngineError(f'[engine] expected an engine of this installation ("cpu"), got {name!r}{missing}')


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
