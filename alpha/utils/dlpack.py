"""DLPack: tensors to and from other libraries without copying, in the host's memory."""

from __future__ import annotations

from typing import Any

from alpha import Tensor, from_dlpack
from alpha.errors import ArgumentError, described

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule with a tensor's memory, for another library's ``from_dlpack``, which takes it once.

    Of an engine whose memory the host does not reach it is a copy on the host.
    """
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"[to_dlpack] expected a tensor, got {described(tensor)}")
    return tensor.__dlpack__()
