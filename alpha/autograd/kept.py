"""What functions keep for backward: tensors, and what stands for results that are made again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.autograd.function import Function


class Remade:
    """In what functions save, a result of another function that is not kept: that function makes it again, once.

    Attributes:
        function: which function.
        shape: the result's.
        version: the version at which it was saved; another one after it was written to.
        value: the result, once it has been made again.
    """

    __slots__ = ("__weakref__", "function", "shape", "value", "version")

    def __init__(self, function: Function, result: Tensor) -> None:
        self.function, self.shape, self.version = function, result.shape, result.storage.version
        self.value: Tensor | None = None

    @property
    def storage(self) -> Remade:
        """What has the version."""
        return self

    def made(self) -> Tensor:
        """The result."""
        if self.value is None:
            self.value = self.function.remake()
        return self.value


def value_of(saved: Any) -> Any:
    """The tensor that was saved, or that is made again."""
    return saved.made() if isinstance(saved, Remade) else saved


def is_alone(tensor: Tensor) -> bool:
    """Whether no other tensor has a tensor's memory."""
    return _references(tensor.storage) == _ALONE


class _Holder:
    """What holds a storage, as a tensor does."""

    __slots__ = ("storage",)
    storage: object


def _references_if_alone() -> int:
    """What ``_references`` says of a storage that one tensor holds."""
    holder = _Holder()
    holder.storage = object()
    return _references(holder.storage)


_references = sys.getrefcount
_ALONE = _references_if_alone()
