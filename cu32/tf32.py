"""TF32 on the tensor cores: where it serves, and the launches of its convolutions."""

from __future__ import annotations

from cu32.base import DeviceEngine

THREADS = 128
"""Threads a block of every kernel here: four warps."""

OLDEST = (8, 0)
"""The first compute capability with TF32 and asynchronous copies."""

DEPTH = 32
"""Depth of a stage."""


def enabled(engine: DeviceEngine) -> bool:
    """Whether the engine may round operands to TF32, and its device can."""
    return engine.precision == "high" and engine.device.capability >= OLDEST


def shared_bytes(tile: int) -> int:
    """Dynamic shared memory of a block of gemm_tf32: the panels of its stages, of the larger layout."""
    stages = 3 if tile == 128 else 4
    return stages * 2 * DEPTH * (tile + 8) * 4
