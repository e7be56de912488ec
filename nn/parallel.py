"""PyTorch's DataParallel, of one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.arguments import listed
from alpha.errors import EngineError
from alpha.nn.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls its module: with one device, or none named, there is nothing to share out, as in PyTorch.

    Args:
        module: the network.
        device_ids: at most one device; EngineError for more, which are not implemented.
        output_device, dim: as in PyTorch; they matter with several devices alone.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        _check(device_ids)
        self.module = module
        self.output_device, self.dim = output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Calls a module on one device: see ``DataParallel``."""
    _check(device_ids)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))


def _check(device_ids: Sequence[Any] | None) -> None:
    if device_ids is not None and len(listed("DataParallel", "device_ids", device_ids)) > 1:
        raise EngineError(
            f"[DataParallel] expected one device, got {len(device_ids)}: training on several is not implemented"
        )
