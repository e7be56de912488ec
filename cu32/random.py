"""The CUDA engine's random numbers: Philox on the device, equal to ``alpha.random`` to the bit."""

from __future__ import annotations

import math

from alpha import random, steps
from alpha.cu32.base import DeviceEngine, c_type, of_reals
from alpha.cu32.compiler import Source
from alpha.cu32.structs import KernelStruct
from alpha.random import Draw
from alpha.tensor import Tensor

SOURCES = of_reals("random")
BLOCK = 256

PLACE = KernelStruct("philox.cuh", "Place")
NORMAL = KernelStruct("random.cu", "Normal")


class RandomOperations(DeviceEngine):
    """A thread draws the numbers of one counter, whose words depend on nothing but seed and counter."""

    def random(self, draw: Draw) -> Tensor:
        steps.check_draw(self, draw)
        out = self.empty(draw.shape, draw.dtype)
        count = math.prod(draw.shape)
        if not count:
            return out
        numbers = random.uniform_bounds(draw) if draw.distribution == "uniform" else (_normal(draw),)
        self.launch(
            Source("random", REAL=c_type(draw.dtype)),
            draw.distribution,
            self.blocks(count * draw.dtype.itemsize // 16 + 1, BLOCK),
            BLOCK,
            out,
            count,
            *numbers,
            *place_of_draw(self, draw.seed, draw.offset, draw.words),
        )
        return out


def _normal(draw: Draw) -> bytes:
    """How words become normal numbers."""
    return NORMAL.pack(
        log=random.LOG, sin=random.SIN, cos=random.COS, ln2=random.LN2, sqrt_half=random.SQRT_HALF, std=draw.second,
        mean=draw.first,
    )  # fmt: skip


def place_of_draw(
    engine: DeviceEngine, seed: int, offset: int, words: int, is_again: bool = False
) -> tuple[bytes, Tensor | None]:
    """Where a draw begins, as kernels take it: by value, and while a graph is captured from memory.

    A replay draws what the step would have drawn (``alpha.graphs.Redraws``).
    """
    given = PLACE.pack(seed=seed, offset=offset)
    refresh = None if engine.capture is None else engine.capture.redraws.refresh(seed, offset, words, is_again)
    if engine.capture is None or refresh is None:
        return given, None

    def fresh() -> bytes:
        seed, offset = refresh()
        return PLACE.pack(seed=seed, offset=offset)

    return given, engine.capture.live(given, fresh)
