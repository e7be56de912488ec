"""Questions under the names of ``torch.accelerator``: the accelerator is the GPU of the engine ``cu32``."""

from __future__ import annotations

from alpha import cuda
from alpha.arguments import flag
from alpha.devices import device

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether there is one that can be used."""
    return cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> device | None:
    """``device("cuda")``, or None where there is none that can be used, whatever ``check_available`` says."""
    flag("current_accelerator", "check_available", check_available)
    return device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The number of the device that ``"cuda"`` means: always 0."""
    return cuda.current_device()


def synchronize(device: device | str | int | None = None) -> None:
    """Waits until all work of a device is done."""
    cuda.synchronize(device)
