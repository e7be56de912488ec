"""A device's own speeds, measured once and kept by its name: the cost model stands on them instead of an H100's.

``make gpu-operators`` measures and writes them; the engine reads them when it first plans on such a device.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from alpha import cache as disk
from alpha.errors import ArgumentError

SPEEDS = ("fma_gflops", "memory_gb_per_s", "l2_gb_per_s")

PLAUSIBLE = {"fma_gflops": (8.0, 512.0), "memory_gb_per_s": (0.5, 256.0), "l2_gb_per_s": (2.0, 1024.0)}
"""Least and most per cycle of a multiprocessor: FLOP or bytes. What lies outside was measured wrong."""


@dataclass(frozen=True)
class Figures:
    """What a whole device reached.

    Attributes:
        fma_gflops: float32 multiply-adds out of registers, an FMA counted as two, in GFLOP/s.
        memory_gb_per_s: copying within the device's memory, reads and writes counted.
        l2_gb_per_s: reading what the second-level cache holds.
    """

    fma_gflops: float
    memory_gb_per_s: float
    l2_gb_per_s: float

    def per_cycle(self, name: str, multiprocessors: int, clock: int) -> float:
        """One of ``SPEEDS`` in FLOP or bytes per cycle of a multiprocessor, at a clock in Hz."""
        return 1e9 * float(getattr(self, name)) / (multiprocessors * clock)

    def check(self, multiprocessors: int, clock: int) -> None:
        """ArgumentError where a figure cannot be a device's."""
        for name in SPEEDS:
            value = getattr(self, name)
            least, most = PLAUSIBLE[name]
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ArgumentError(f"[figures] expected {name} as a number, got {value!r}: measure again")
            found = self.per_cycle(name, multiprocessors, clock)
            if not least <= found <= most:
                raise ArgumentError(
                    f"[figures] expected {name} of {least} to {most} per cycle of a multiprocessor, got {found:.3g} "
                    f"from {value:.4g} on {multiprocessors} multiprocessors: measure again on an idle device"
                )


def path(device: str) -> Path:
    """The file with a device's figures; ``device`` is its name."""
    return disk.directory("devices") / f"{hashlib.sha256(device.encode()).hexdigest()[:32]}.json"


def write(device: str, multiprocessors: int, clock: int, figures: Figures, **more: Any) -> None:
    """Keeps figures for later processes; ``more`` tells a reader of the file where they are from.

    Errors: ArgumentError for figures that no device has; OSError where the file cannot be written.
    """
    figures.check(multiprocessors, clock)
    content = {**more, "device": device, "multiprocessors": multiprocessors, "clock": clock, **asdict(figures)}
    disk.write_atomically(path(device), json.dumps(content, indent=1).encode())


def read(device: str, multiprocessors: int, clock: int) -> Figures | None:
    """What was kept for such a device; None where nothing was, or, with a warning, nothing that can be used."""
    file = path(device)
    try:
        text = file.read_bytes()
    except OSError:
        return None
    try:
        content = json.loads(text)
        if content["device"] != device or content["multiprocessors"] != multiprocessors:
            raise ValueError(f"those of {content['multiprocessors']} multiprocessors of {content['device']}")
        figures = Figures(*(content[name] for name in SPEEDS))
        figures.check(multiprocessors, clock)
    except (ValueError, KeyError, TypeError) as error:
        warnings.warn(
            f"[figures] expected the speeds of {device} in {file}, got {error}: the cost model takes an H100's; "
            "make gpu-operators measures them anew",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return figures
