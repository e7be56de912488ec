"""RemovableHandle: what registering a hook gives."""

from __future__ import annotations

from typing import Any

from alpha.changes import at_once


class RemovableHandle:
    """Removes a hook: by ``handle.remove()``, or at the end of ``with handle:``."""

    def __init__(self, hooks: dict[RemovableHandle, Any], hook: Any) -> None:
        """Adds a hook to those of a table."""
        self._hooks = hooks
        hooks[self] = hook

    @classmethod
    def first(cls, hooks: dict[RemovableHandle, Any], hook: Any) -> RemovableHandle:
        """Adds a hook before all others of a table."""
        handle = cls.of(hooks)
        at_once([(dict.clear, hooks), (dict.update, hooks, {handle: hook, **hooks})])
        return handle

    @classmethod
    def of(cls, hooks: dict[RemovableHandle, Any]) -> RemovableHandle:
        """A handle for a hook that the caller registers."""
        handle = cls.__new__(cls)
        handle._hooks = hooks
        return handle

    def remove(self) -> None:
        """Removes the hook; a second call does nothing."""
        self._hooks.pop(self, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
