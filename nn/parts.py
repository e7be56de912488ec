"""Parts: a module's own modules, parameters or buffers as a dict that reads and writes its attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from alpha.errors import ArgumentError


class Parts(MutableMapping[str, Any]):
    """The parts of one kind by name, as PyTorch's ``_modules``, ``_parameters`` and ``_buffers``.

    Args:
        module: whose they are.
        found: tells them.
        register: makes a part of this kind an attribute under a new name.
    """

    def __init__(self, module: Any, found: Callable[[], dict[str, Any]], register: Callable[[str, Any], None]) -> None:
        self._module, self._found, self._register = module, found, register

    def __getitem__(self, name: str) -> Any:
        return self._found()[name]

    def __setitem__(self, name: str, part: Any) -> None:
        if name in self._found():
            setattr(self._module, name, part)
        elif name in vars(self._module) and vars(self._module)[name] is not None:
            raise ArgumentError(
                f"[{type(self._module).__name__}] expected a name of this kind of part or a new one, got {name!r}, "
                "which is another attribute"
            )
        else:
            self._register(name, part)

    def __delitem__(self, name: str) -> None:
        if name not in self._found():
            raise KeyError(name)
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(self._found())
