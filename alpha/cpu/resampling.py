"""The CPU engine's resampling: each pixel's rows and columns come from tables, in one pass over the images."""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.arguments import Shape
from alpha.cpu import tasks
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.images import ImagePlan, image_plan, in_runs
from alpha.cpu.loops import machine
from alpha.cpu.loops import resampling as loops
from alpha.cpu.tasks import Record
from alpha.engine import WeightedPairs
from alpha.errors import ShapeError
from alpha.tensor import Tensor


class ResamplingOperations(HostEngine):
    """Resampling. Results lie in image order (H, W, N, C), those of images that lie one after another as these do."""

    def resample(self, x: Tensor, rows: WeightedPairs, columns: WeightedPairs) -> Tensor:
        x = in_runs(self, x)
        item = x.dtype.itemsize
        found = _plan(rows, columns, x.shape, x.strides, item)
        out = found.result.empty(self, x.dtype)
        if found.record.tasks:
            job = _JOB(found.record.address, x.storage.address + x.offset * item, out.storage.address)
            tasks.run(found.loop, job, found.record.tasks, self.threads)
        return out


_JOB = struct.Struct("3q").pack


class Plan(NamedTuple):
    """How images of a size are resampled."""

    result: ImagePlan
    loop: machine.Loop
    record: Record
    tables: list[Array]
    """Those that the record has the addresses of."""


@caches.kept
def _plan(rows: WeightedPairs, columns: WeightedPairs, shape: Shape, strides: Shape, item: int) -> Plan:
    for pairs, length in zip((rows, columns), shape[1:3], strict=True):
        first, last = pairs.span
        if first < 0 or last >= length:
            raise ShapeError(f"[resample] expected pairs within an axis of {length}, got {last}")
    size = len(rows.starts) - 1, len(columns.starts) - 1
    read_once = all(pairs.chooses or pairs.reads_once for pairs in (rows, columns))
    result = image_plan(shape, strides, size, item, in_image_order=False, read_once=read_once)
    tables = [*_tables(rows, item), *_tables(columns, item)]
    record = Record((*result.pixels, *loops.Resampling(*[table.ctypes.data for table in tables])))
    return Plan(result, _loop(8 * item, rows.chooses and columns.chooses, result.streams), record, tables)


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
