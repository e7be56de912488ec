"""Tensor's methods by which other libraries read it: DLPack, and the Python array API standard's namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from alpha import dlpack
from alpha.errors import ArgumentError, described
from alpha.functions import casting
from alpha.tensor import Tensor

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""The versions of the array API standard that ``alpha.array_api`` serves: each has all that the ones before have."""


class ExchangeMethods:
    """What other libraries ask a tensor for; ``self`` is a Tensor."""

    def __dlpack__(
        self: Any,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the values in the host's memory, which it shares where the engine computes there.

        GraphError if the tensor requires a gradient, BufferError where NumPy makes no such capsule.
        """
        return dlpack.capsule_of(self.numpy(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self: Any) -> Any:
        """Where ``__dlpack__`` has its memory, by DLPack's numbers: the host's, (1, 0)."""
        return self.numpy().__dlpack_device__()

    def __array_namespace__(self: Any, /, *, api_version: str | None = None) -> ModuleType:
        """``alpha.array_api``: the functions of the array API standard, in any version from 2021.12 to 2025.12."""
        from alpha import array_api  # here: loaded when first used

        if api_version is not None and api_version not in VERSIONS:
            raise ArgumentError(
                f"[__array_namespace__] expected api_version as one of {', '.join(VERSIONS)}, got "
                f"{described(api_version)}"
            )
        return array_api

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Tensor:
        """On a device, itself if it is there: ``to`` by the array API standard's name.

        ``stream`` is None: what is copied is there when the call returns.
        """
        if stream is not None:
            raise ArgumentError(f"[to_device] expected stream=None, got {described(stream)}: leave it out")
        return casting.to(self, device)
