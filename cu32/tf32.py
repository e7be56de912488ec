"""TF32 on the tensor cores: where it serves, and what its kernels cost and need.

A factor is rounded to 10 bits of mantissa, to nearest (see kernels/ptx.cuh), so it is off by at most 2**-11 of itself
and a product by at most 2**-10 of its own; sums are float32. cuBLAS and cuDNN round, or cut off, at the same bit.

Threefold, a product is float32's: a factor is split into two numbers of TF32, and three of their four products are
added, so that at most 2**-21 of the product is left out, of either sign (kernels/tensor_core.cuh). Sums of eight terms
are added in float32, an eighth of the roundings of a multiply-add each. Of random factors results are nearer to the
exact ones, by half, than those of multiply-adds, and of exponents between -40 and 40 about as near. Multiply-adds are
better where a sum has few terms that count, or neighbours that cancel, and so hardly rounds: then what products leave
out is all there is, up to twice what roundings are. So short sums go to the multiply-adds.

What to expect of a Hopper GPU: mma.sync reaches some 60 to 65 % of the peak of TF32, which takes Hopper's own wgmma.
With 64 x 64 sums per warp the reads of shared memory, 32 wavefronts for every 32 instructions, and the copies into it
ask for nearly as many cycles as the instructions do; and what the second-level cache brings a multiprocessor, about
28 bytes per cycle, feeds tiles of 128 x 128 at no more than 450 multiply-adds per cycle. So 200 to 250 TFLOP/s on an
H100 where such tiles fill the device, four times its float32. Threefold, the instructions alone are the bound: of the
212 multiply-adds per cycle that they leave, simulated schedulers reach 129 to 158.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpha.cu32.base import DeviceEngine
from alpha.cu32.costs import LATENCY, WARP, Chip, Kernel, Tile, panel_cycles

LOAD, THREEFOLD = "TF32", "THREEFOLD"
"""How plans of these kernels name their loads."""

OLDEST = (8, 0)
"""The first compute capability with TF32 and asynchronous copies."""

THREADS = 128
"""Threads per block of every kernel here: four warps."""

DEPTH = 32
"""Depth of a stage: kernels/tensor_core.cuh says the same."""

TILES = {Tile(128, 128, 16, 8, DEPTH): 600.0, Tile(128, 64, 8, 8, DEPTH): 480.0, Tile(64, 64, 8, 4, DEPTH): 330.0}
"""Tiles, and multiply-adds per cycle and multiprocessor with each where it is full and the caches keep up, about."""

THREEFOLD_TILES = dict(zip(TILES, (140.0, 145.0, 145.0), strict=True))
"""The same of products of three."""

FEWEST_TERMS = 256
"""Terms of a sum from which on it is made of products of three."""

PEAK = {(8, 0): 512, (9, 0): 1024}
"""Multiply-adds per cycle of a multiprocessor's tensor cores by compute capability."""

OTHER_PEAK = 128
"""The same of those not listed."""

_RESIDENT = {(128, 128): 2, (128, 64): 3, (64, 64): 4}
"""Blocks of a tile whose registers fit into one multiprocessor."""


_ALLOWED = {"highest": (False, True), "ieee": (False, False), "high": (True, False), "medium": (True, False)}
"""What a precision allows: operands rounded to TF32, and float32 made of three products."""


def allowed(engine: DeviceEngine) -> tuple[bool, bool]:
    """Both at once: whether the engine may round operands to TF32, and make float32 of three products in TF32."""
    if engine.device.capability < OLDEST:
        return False, False
    return _ALLOWED[engine.precision]


def enabled(engine: DeviceEngine) -> bool:
    """Whether the engine may round operands to TF32, and its device can."""
    return allowed(engine)[0]


def threefold(engine: DeviceEngine) -> bool:
    """Whether the engine may make float32 of three products in TF32, and its device can."""
    return allowed(engine)[1]


def shared_bytes(tile: int) -> int:
    """Dynamic shared memory of a block of gemm_tf32."""
    return stages(3 if tile == 128 else 4, tile, tile)


def stages(number: int, rows: int, columns: int) -> int:
    """Bytes of so many stages' panels."""
    return number * DEPTH * (rows + columns) * 4


def products(chip: Chip, load: str = LOAD) -> list[Kernel]:
    """The matrix products' kernels that fit the device."""
    return fitting(chip, {tile: shared_bytes(tile.rows) for tile in TILES if tile.rows == tile.columns}, load)


def fitting(chip: Chip, shared: Mapping[Tile, int], load: str = LOAD) -> list[Kernel]:
    """The kernels of tiles whose shared memory a block may have."""
    return [_kernel(chip, tile, nbytes, load) for tile, nbytes in shared.items() if nbytes <= chip.shared_per_block]


def _kernel(chip: Chip, tile: Tile, shared: int, load: str) -> Kernel:
    """As fast as its rate where the multiprocessor is full of its blocks; slower where the caches cannot keep up."""
    held = chip.shared_per_multiprocessor // (shared + 2048)  # beside the stages: tables of rows, the driver's own
    resident = max(1, min(held, _RESIDENT[tile.rows, tile.columns]))
    tiles, count = (THREEFOLD_TILES, 3) if load == THREEFOLD else (TILES, 1)
    rate = min(tiles[tile], 0.9 * PEAK.get(chip.capability, OTHER_PEAK) / count)
    full = max(tile.rows * tile.columns * DEPTH / rate, panel_cycles(chip, tile, DEPTH))
    warps = resident * THREADS / WARP
    return Kernel(tile, load, DEPTH, full * warps / (warps + LATENCY), resident)
