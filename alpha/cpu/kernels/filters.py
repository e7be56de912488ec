"""Filters packed as panels, parts of filter gradients added up, and images moved apart."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.compile import compiled
from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import draw_task
from alpha.cpu.kernels.microkernel import copy_vectors
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.vectors import integer, transpose

VECTOR_BYTES = ISA.bytes

PART_NUMBERS = 16384
"""Numbers per task of ``add_parts``."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _add_rows(_typing: Any, tag: Any, rows: Any, step: Any, count: Any, total: Any, numbers: Any) -> Any:
    """Adds up ``count`` rows of so many numbers, ``step`` bytes apart: each vector of the sum in a register."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, rows, step, count, total, numbers = arguments
        runs = Runs(builder, tag)

        def add_up(offset: Any, index: int, left: Any) -> None:
            first = builder.add(rows, offset)
            total_so_far = cgutils.alloca_once_value(builder, runs.load_part(first, left))
            with cgutils.for_range_slice(builder, integer(1), count, integer(1), integer(0).type) as (row, _):
                part = runs.load_part(builder.add(first, builder.mul(row, step)), left)
                builder.store(builder.fadd(builder.load(total_so_far), part), total_so_far)
            runs.store_part(builder.load(total_so_far), builder.add(total, offset), left)

        runs.for_each_vector(numbers, 1, add_up)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 5), codegen


@compiled
def add_parts(share, parts, total):  # type: ignore[no-untyped-def]
    """total[i] = sum over p of parts[p, i], in the order of p."""
    count, item, zero = total.size, total.itemsize, total.dtype.type(0)
    tasks = (count + PART_NUMBERS - 1) // PART_NUMBERS
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        start = task * PART_NUMBERS
        numbers = min(PART_NUMBERS, count - start)
        offset = start * item
        _add_rows(zero, parts.ctypes.data + offset, count * item, parts.shape[0], total.ctypes.data + offset, numbers)


@compiled
def spread(share, tag, images, x, step, out, out_step, nbytes):  # type: ignore[no-untyped-def]
    """Copies images of ``nbytes`` contiguous bytes to places further apart; writes up to 63 bytes beyond each."""
    while True:
        image = draw_task(share, images)
        if image >= images:
            break
        copy_vectors(tag, x + image * step, 64, out + image * out_step, 64, (nbytes + 63) // 64, 64)
    return 0


ROW_BLOCK = 8
"""Output channels per task of ``pack_by_input``."""


@compiled
def pack_by_output(share, w, packed):  # type: ignore[no-untyped-def]
    """Packs filters (G, OC, T, IC) by output channels: (G, panels, T, IC, panel); zeros fill the last panel."""
    groups, panels, taps, depth, width = packed.shape
    channels = w.shape[1]
    tasks = groups * panels * taps
    zero, item = w.dtype.type(0), w.itemsize
    lanes = VECTOR_BYTES // item
    while True:
        task = draw_task(share, tasks)
        if task >= tasks:
            break
        group = task // (panels * taps)
        panel = task // taps % panels
        tap = task % taps
        base = panel * width
        full = min(width, channels - base)
        whole_lanes, whole_depth = full // lanes * lanes, depth // lanes * lanes
        for k in range(0, whole_depth, lanes):
            for lane in range(0, whole_lanes, lanes):
                transpose(
                    zero,
                    w.ctypes.data + (((group * channels + base + lane) * taps + tap) * depth + k) * item,
                    taps * depth * item,
                    packed.ctypes.data + ((task * depth + k) * width + lane) * item,
                    width * item,
                    lanes,
                )
        for lane in range(full):
            for k in range(whole_depth if lane < whole_lanes else 0, depth):
                packed[group, panel, tap, k, lane] = w[group, base + lane, tap, k]
        for k in range(depth):
            for lane in range(full, width):
                packed[group, panel, tap, k, lane] = zero


@compiled
def pack_by_input(share, w, packed):  # type: ignore[no-untyped-def]
    """Packs filters (G, OC, T, IC) by input channels: (G, panels, T, OC, panel); zeros fill the last panel.

    A task takes ROW_BLOCK output channels: it reads that many streams and writes that many rows at a time.
    """
    groups, panels, taps, depth, width = packed.shape
    channels = w.shape[3]
    blocks = (depth + ROW_BLOCK - 1) // ROW_BLOCK
    zero = w.dtype.type(0)
    while True:
        task = draw_task(share, groups * blocks)
        if task >= groups * blocks:
            break
        group = task // blocks
        first = task % blocks * ROW_BLOCK
        last = min(first + ROW_BLOCK, depth)
        for tap in range(taps):
            for panel in range(panels):
                base = panel * width
                full = min(width, channels - base)
                for k in range(first, last):
                    if full == width:
                        for lane in range(width):
                            packed[group, panel, tap, k, lane] = w[group, k, tap, base + lane]
                    else:
                        for lane in range(full):
                            packed[group, panel, tap, k, lane] = w[group, k, tap, base + lane]
                        for lane in range(full, width):
                            packed[group, panel, tap, k, lane] = zero
