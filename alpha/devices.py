"""Devices by PyTorch's names: ``device("cpu")``; ``device("cuda:1")``, which is the engine ``cu32:1``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from alpha.arguments import whole
from alpha.errors import ArgumentError, described
from alpha.scopes import Scope, Scoped

if TYPE_CHECKING:
    from alpha.engine import Engine

CUDA = "cuda"
"""PyTorch's name for what the engine ``cu32`` runs on."""


def torch_name(name: str) -> str:
    """PyTorch's name for an engine: ``"cuda:1"`` for ``"cu32:1"``; of others their own."""
    first, colon, number = name.partition(":")
    return f"{CUDA}{colon}{number}" if first == "cu32" else name


class _Thread(threading.local):
    """A thread's ``with`` blocks of devices, innermost last, with their engines."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Scope, Engine]] = []


_THREAD = _Thread()
_are_there_blocks = False


def engine_of_block() -> Engine | None:
    """The engine of the innermost ``with device(...)`` block that runs on this thread; None outside of any."""
    if _are_there_blocks:
        for scope, engine in reversed(_THREAD.blocks):
            if scope.is_open:
                return engine
    return None


class device(Scoped):
    """Where tensors are: an engine under PyTorch's name for it.

    As a context manager it is where tensors are made, on this thread and for which no engine is named.

    Args:
        type: ``"cpu"``, ``"cuda"`` (the engine ``cu32``), the name of another engine, each with ``":1"`` for a number
            of a device; such a number alone, of ``"cuda"``; an engine; or a device.
        index: the device's number, where the type names none.

    Attributes:
        type: the name without a number.
        index: the number, or None.
    """

    _local = Scoped()._local  # one for all devices, of which many are made: a block finds the lock that it took last

    def __init__(self, type: Any, index: int | None = None) -> None:
        from alpha import engines  # here: it imports this module
        from alpha.engine import Engine

        if isinstance(type, device):
            name = str(type)
        elif isinstance(type, Engine):
            name = torch_name(type.name)
        elif isinstance(type, str):
            name = type
        elif isinstance(type, int) and not isinstance(type, bool):
            name = f"cuda:{whole('device', 'the number of a device', type, least=0)}"
        else:
            raise ArgumentError(
                f'[device] expected "cpu", "cuda", "cuda:1", an engine or a number, got {described(type)}'
            )
        kind, colon, number = name.partition(":")
        wrong = bool(colon) and not (number.isdecimal() and str(int(number)) == number)
        if wrong or not engines.is_name(kind) or (colon and index is not None):
            raise ArgumentError(
                f'[device] expected "cpu", "cuda", "cuda:1" or another engine, got {described(name)}'
                f"{'' if index is None else f' and the number {described(index)}'}"
            )
        self.type = torch_name(kind)
        self.index = int(number) if colon else None if index is None else whole("device", "index", index, least=0)

    def prepare(self, scope: Scope) -> None:
        global _are_there_blocks
        _THREAD.blocks = [block for block in _THREAD.blocks if not block[0].is_over] + [(scope, self.engine)]
        _are_there_blocks = True

    @property
    def engine(self) -> Engine:
        """The engine of the device."""
        from alpha import engines

        return engines.engine(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{number})"

    def __reduce__(self) -> Any:
        return device, (str(self),)
