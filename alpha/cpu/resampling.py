"""The CPU engine's resampling: each pixel's rows and columns come from tables, in one pass over the images."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.copies import LARGE_BYTES
from alpha.cpu.isa import ISA
from alpha.cpu.loops import machine
from alpha.cpu.loops import resampling as loops
from alpha.cpu.loops.parts import equal_parts
from alpha.cpu.loops.pixels import PIECE_BYTES, TASK_BYTES
from alpha.cpu.pooling import in_runs, runs_of
from alpha.engine import IMAGE_ORDER, WeightedPairs
from alpha.errors import ShapeError
from alpha.tensor import Tensor, dense_strides

LONG_PIECE_BYTES = 1 << 16
"""Bytes of a piece of a run where no two positions share more than a pixel: nothing is read again from a cache, and
memory is read and written faster in long runs. To double 32 MB takes 25 % less than in pieces of 4 KB."""


class ResamplingOperations(HostEngine):
    """Resampling. Results lie in image order (H, W, N, C), those of images that lie one after another as these do."""

    def resample(self, x: Tensor, rows: WeightedPairs, columns: WeightedPairs) -> Tensor:
        x = in_runs(self, x)
        item = x.dtype.itemsize
        found = _plan(rows, columns, x.shape, x.strides, item)
        out = Tensor(self.allocate(found.nbytes), 0, found.shape, found.strides, x.dtype)
        if found.tasks:
            job = _JOB(found.address, x.storage.address + x.offset * item, out.storage.address)
            tasks.run(found.loop, job, found.tasks, self.threads)
        return out


_JOB = struct.Struct("3q").pack


class Plan(NamedTuple):
    """How images of a size are resampled: the result's bytes, shape and strides, and what the kernel reads."""

    nbytes: int
    shape: Shape
    strides: Shape
    tasks: int
    loop: machine.Loop
    address: int
    """The record's."""
    kept: tuple[Array, ...]
    """The record, and the tables that it has the addresses of."""


@caches.kept
def _plan(rows: WeightedPairs, columns: WeightedPairs, shape: Shape, strides: Shape, item: int) -> Plan:
    images, *size, channels = shape
    for pairs, length in zip((rows, columns), size, strict=True):
        first, last = pairs.span
        if first < 0 or last >= length:
            raise ShapeError(f"[resample] expected pairs within an axis of {length}, got {last}")
    height, width = len(rows.starts) - 1, len(columns.starts) - 1
    result = (images, height, width, channels)
    runs, length, from_run = runs_of(shape, strides)
    order = dense_strides(result, IMAGE_ORDER if runs == 1 else None)
    if all(pairs.chooses or pairs.reads_once for pairs in (rows, columns)):
        piece = equal_parts(length, LONG_PIECE_BYTES // item, ISA.lanes(item))
    else:
        piece = min(length, PIECE_BYTES // item)
    pieces = -(-length // max(piece, 1))
    pixels = max(1, TASK_BYTES // max(1, piece * item))
    blocks = -(-height * width // pixels)
    read, write = [stride * item for stride in strides], [stride * item for stride in order]
    down, across = _tables(rows, item), _tables(columns, item)
    words = loops.Resampling(
        runs * pieces * blocks if math.prod(result) else 0, pixels, blocks, pieces, piece, length, height, width,
        down[0].ctypes.data, down[1].ctypes.data, down[2].ctypes.data, across[0].ctypes.data, across[1].ctypes.data,
        across[2].ctypes.data, read[1], read[2], from_run * item, write[1], write[2], write[0],
    )  # fmt: skip
    record = np.array(words, np.int64)
    streams = math.prod(result) * item >= LARGE_BYTES and not any(step % ISA.bytes for step in write[:3])
    loop = _loop(8 * item, rows.chooses and columns.chooses, streams)
    return Plan(
        math.prod(result) * item, result, order, words.tasks, loop, record.ctypes.data, (record, *down, *across)
    )


@cache
def _loop(bits: int, moves: bool, streams: bool) -> machine.Loop:
    """The compiled kernel; see ``alpha.cpu.loops.resampling``."""
    return machine.loop(loops.ir_of(bits, moves, streams))


def _tables(pairs: WeightedPairs, item: int) -> list[Array]:
    """The starts, the sources and the weights as the kernel takes them."""
    weights = pairs.weights32 if item == 4 else pairs.weights
    kinds = (np.int64, np.int64, weights.dtype)
    tables = zip((pairs.starts, pairs.sources, weights), kinds, strict=True)
    return [np.ascontiguousarray(table, kind) for table, kind in tables]
