"""The CUDA engine's random numbers: Philox on the device, equal to ``alpha.random`` to the bit."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from alpha import random
from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.random import Draw
from alpha.tensor import Tensor

SOURCES = (Source("random", REAL="float"), Source("random", REAL="double"))
BLOCK = 256

_PLACE = struct.Struct("=QQ")
_CONSTANTS = np.array([*random.LOG, *random.SIN, *random.COS, random.LN2, random.SQRT_HALF])


class RandomOperations(DeviceEngine):
    """A thread draws the numbers of one counter, whose words depend on nothing but seed and counter."""

    def random(self, draw: Draw) -> Tensor:
        out = self.empty(draw.shape, draw.dtype)
        count = math.prod(draw.shape)
        if not count:
            return out
        numbers: tuple[Any, ...] = (np.append(_CONSTANTS, (draw.second, draw.first)).tobytes(),)
        if draw.distribution == "uniform":
            numbers = random.uniform_bounds(draw)
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


def place_of_draw(engine: DeviceEngine, seed: int, offset: int, words: int) -> tuple[bytes, Tensor | None]:
    """Where a draw begins, as kernels take it: by value, and while a graph is captured from memory.

    A replay reserves as many words anew, so that it draws what the step would have drawn.
    """
    given = _PLACE.pack(seed, offset)
    if engine.capture is None:
        return given, None
    return given, engine.capture.live(given, lambda: _PLACE.pack(*random.reserve(words)))
