"""The instruction path: which vectors and which register tile the kernels use on this processor."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

import llvmlite.binding as llvm

from alpha.errors import ArgumentError

_log = logging.getLogger(__name__)

L1_SET_STRIDE, L1_WAYS = 4096, 8
"""Addresses L1_SET_STRIDE bytes apart share a set of the L1 cache, which holds L1_WAYS lines."""


@dataclass(frozen=True)
class Isa:
    """An instruction path and its register tile: ``rows`` x ``vectors`` accumulators of ``bytes`` each.

    The tile, its operands' registers and one broadcast fill the register file: 32 of 64 bytes for AVX-512, 16 of 32
    for AVX2. The generic path's 16-byte vectors exist on every 64-bit processor.
    """

    name: str
    bytes: int
    rows: int
    vectors: int
    requires: tuple[str, ...]

    def lanes(self, itemsize: int) -> int:
        """Numbers per vector."""
        return self.bytes // itemsize

    def panel(self, itemsize: int) -> int:
        """Columns per tile: the width of a packed filter panel."""
        return self.lanes(itemsize) * self.vectors

    def panel_of(self, channels: int, itemsize: int) -> int:
        """The panels' width for so many channels: a single vector where they fit into it."""
        return self.lanes(itemsize) if channels <= self.lanes(itemsize) else self.panel(itemsize)


PATHS = (
    Isa("avx512", 64, 12, 2, ("avx512f",)),
    Isa("avx2", 32, 6, 2, ("avx2", "fma")),
    Isa("generic", 16, 4, 2, ()),
)


def _detect() -> Isa:
    """The widest path of this processor, or the one that ``ALPHA_CPU_ISA`` names.

    A path that the processor lacks serves to test that path's tiles: LLVM makes its vectors of narrower ones, slowly.
    """
    features = llvm.get_host_cpu_features()
    available = [path for path in PATHS if all(features.get(feature, False) for feature in path.requires)]
    wanted = os.environ.get("ALPHA_CPU_ISA")
    if not wanted:
        return available[0]
    for path in PATHS:
        if path.name == wanted:
            if path not in available:
                _log.warning("this processor has no %s: its vectors are made of narrower ones, slowly", path.name)
            return path
    raise ArgumentError(
        f"[alpha.cpu] expected ALPHA_CPU_ISA to be one of {', '.join(p.name for p in PATHS)}, got {wanted!r}: name "
        "one, or leave it empty for this processor's widest"
    )


ISA = _detect()
"""The instruction path of this process."""

FUSED = bool(llvm.get_host_cpu_features().get("fma", llvm.get_process_triple().startswith("aarch64")))
"""Whether the processor multiplies and adds in one rounding."""

HALVES = bool(llvm.get_host_cpu_features().get("f16c", llvm.get_process_triple().startswith("aarch64")))
"""Whether the processor converts float16."""

DOTS = ISA.bytes == 64 and bool(llvm.get_host_cpu_features().get("avx512bf16", False))
"""Whether the processor multiplies pairs of bfloat16 and adds both products to a float32 in one instruction."""
