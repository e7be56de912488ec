"""TF32 on the tensor cores: where it serves, and what its kernels cost and need.

A factor is rounded to 10 bits of mantissa, to nearest (see kernels/ptx.cuh), so it is off by at most 2**-11 of itself
and a product by at most 2**-10 of its own; sums are float32. cuBLAS and cuDNN round, or cut off, at the same bit.

What to expect of a Hopper GPU: mma.sync reaches some 60 to 65 % of the peak of TF32, which takes Hopper's own wgmma.
With 64 x 64 sums per warp the reads of shared memory, 32 wavefronts for every 32 instructions, and the copies into it
ask for nearly as many cycles as the instructions do; and what the second-level cache brings a multiprocessor, about
28 bytes per cycle, feeds tiles of 128 x 128 at no more than 450 multiply-adds per cycle. So 200 to 250 TFLOP/s on an
H100 where such tiles fill the device, four times its float32.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpha.cu32.base import DeviceEngine
from alpha.cu32.costs import LATENCY, WARP, Chip, Kernel, Tile, panel_cycles

LOAD = "TF32"
"""How a plan of these kernels names its loads."""

OLDEST = (8, 0)
"""The first compute capability with TF32 and asynchronous copies."""

THREADS = 128
"""Threads per block of every kernel here: four warps."""

DEPTH = 32
"""Depth of a stage: kernels/tensor_core.cuh says the same."""

TILES = {Tile(128, 128, 16, 8, DEPTH): 600.0, Tile(128, 64, 8, 8, DEPTH): 480.0, Tile(64, 64, 8, 4, DEPTH): 330.0}
"""Tiles, and multiply-adds per cycle and multiprocessor with each where it is full and the caches keep up, about."""

PEAK = {(8, 0): 512, (9, 0): 1024}
"""Multiply-adds per cycle of a multiprocessor's tensor cores by compute capability."""

OTHER_PEAK = 128
"""The same of those not listed."""

_RESIDENT = {(128, 128): 2, (128, 64): 3, (64, 64): 4}
"""Blocks of a tile whose registers fit into one multiprocessor."""


def enabled(engine: DeviceEngine) -> bool:
    """Whether the engine may round operands to TF32, and its device can."""
    return engine.precision == "high" and engine.device.capability >= OLDEST


def shared_bytes(tile: int) -> int:
    """Dynamic shared memory of a block of gemm_tf32."""
    return stages(3 if tile == 128 else 4, tile, tile)


def stages(number: int, rows: int, columns: int) -> int:
    """Bytes of so many stages' panels."""
    return number * DEPTH * (rows + columns) * 4


def products(chip: Chip) -> list[Kernel]:
    """The matrix products' kernels that fit the device."""
    return fitting(chip, {tile: shared_bytes(tile.rows) for tile in TILES if tile.rows == tile.columns})


def fitting(chip: Chip, shared: Mapping[Tile, int]) -> list[Kernel]:
    """The kernels of tiles whose shared memory a block may have."""
    return [_kernel(chip, tile, nbytes) for tile, nbytes in shared.items() if nbytes <= chip.shared_per_block]


def _kernel(chip: Chip, tile: Tile, shared: int) -> Kernel:
    """As fast as its rate where the multiprocessor is full of its blocks; slower where the caches cannot keep up."""
    held = chip.shared_per_multiprocessor // (shared + 2048)  # beside the stages: tables of rows, the driver's own
    resident = max(1, min(held, _RESIDENT[tile.rows, tile.columns]))
    rate = min(TILES[tile], 0.9 * PEAK.get(chip.capability, OTHER_PEAK))
    full = max(tile.rows * tile.columns * DEPTH / rate, panel_cycles(chip, tile, DEPTH))
    warps = resident * THREADS / WARP
    return Kernel(tile, LOAD, DEPTH, full * warps / (warps + LATENCY), resident)
