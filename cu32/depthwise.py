"""Depthwise convolutions, a filter a channel: which kernel and which pieces of work, from tensors to launches.

They are bound by memory. A forward pass or an input gradient has to read its source and write its result once,
4 * N * C * (IH * IW + OH * OW) bytes of float32 (what is added to is read as well), a filter gradient to read x and dy:
for 512 images of 32 channels of 112 x 112 and a 3x3 filter at stride 1, 1.64 GB, 0.49 ms of an H100's 3.35 TB/s. The
1.85e9 multiply-adds take a tenth of that. kernels/depthwise.cu and depthwise_weight.cu say what reaches the caches.
"""

from __future__ import annotations

import math

from alpha.cu32 import patches, selfcheck, tables
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.parts import sum_parts
from alpha.cu32.patches import Cover
from alpha.cu32.structs import KernelStruct
from alpha.cu32.tables import Classes
from alpha.geometry import Geometry
from alpha.tensor import Storage, Tensor

DEPTHWISE = KernelStruct("depthwise.cu", "Depthwise")
WEIGHT_SIZES = KernelStruct("depthwise_weight.cu", "Sizes")

THREADS = 256
"""Threads a block; the kernels say the same."""

DOWN, ACROSS = 2, {0: 2, 1: 4, 2: 2}
"""Positions of a patch, down and, by STEP, across; the kernels say the same."""

SIDES = {4: (3,), 1: (3, 5, 7)}
"""Squares of taps whose sums a thread of depthwise_weight.cu holds, by VEC."""

WAVES = 4
"""Blocks a multiprocessor that the sums of a filter gradient are cut for; two are resident."""

COUNTS_LIMIT = tables.LIMIT - (1 << 20)
"""Positions times images, and images times channels, that the kernels count in 32 bits: a thread goes on to the first
that is not there any more, and rounded up the parts of a sum may have some more than there are."""

LEAST_ITEMS, MOST_ITEMS = 4, 256
"""Items of a thread of a filter gradient: fewer don't pay for adding up, more would lose digits of float32."""


def _source(real: str, vec: int, step: int) -> Source:
    return Source("depthwise", REAL=real, VEC=vec, STEP=step)


def _weight_source(real: str, vec: int, step: int, side: int) -> Source:
    return Source("depthwise_weight", REAL=real, VEC=vec, STEP=step, SIDE=side)


SOURCES = (
    *(_source("float", vec, step) for vec in (4, 1) for step in (0, 1, 2)),
    _source("double", 1, 0),
    *(_weight_source("float", vec, step, 3) for vec in (4, 1) for step in (0, 1, 2)),
    *(_weight_source("float", 1, step, side) for step in (1, 2) for side in (5, 7)),
    _weight_source("double", 1, 0, 3),
)


def serves(source: Tensor, geometry: Geometry, w: Tensor, groups: int, forward: bool) -> bool:
    """Whether depthwise.cu computes it."""
    return _suits(source, geometry, w, groups, forward) and selfcheck.sound(source.engine, "depthwise")


def serves_weight(x: Tensor, dw: Tensor, geometry: Geometry, groups: int) -> bool:
    """Whether depthwise_weight.cu computes it: its passes over the filter are the grid's second axis."""
    passes = math.prod(-(-f // min(SIDES[4])) for f in geometry.filter)
    fits = passes <= MAX_GRID_YZ and _suits(x, geometry, dw, groups, forward=True)
    return fits and selfcheck.sound(x.engine, "depthwise_weight")


def _suits(source: Tensor, geometry: Geometry, w: Tensor, groups: int, forward: bool) -> bool:
    """Whether every channel of x has filters of its own, and what kernels hold in 32 bits is in range."""
    if groups == 1 or w.shape[3] != 1:
        return False
    counts = source.shape[0] * w.shape[0], source.shape[0] * math.prod(geometry.output)
    return max(counts) < COUNTS_LIMIT and patches.steps_fit(source, geometry, forward)


def convolve(
    engine: DeviceEngine,
    forward: bool,
    source: Tensor,
    w: Tensor,
    out: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    vector: bool,
    accumulate: bool,
) -> int:
    """ConvV2 or KS-deconv-V2 into ``out``; the products it computed of a channel.

    Args:
        source, out: images with contiguous channels.
        vector: whether four channels of either may be read at once.
        accumulate: whether to add to what ``out`` holds.
    """
    # Filters by tap, so that neighbouring threads' are neighbours.
    w = engine.dense(w, (1, 2, 3, 0))
    filters = w.shape[0] // (source.shape[3] if forward else out.shape[3])
    aligned = w.address % 16 == 0 and (bias is None or bias.address % 16 == 0)
    vec = 4 if vector and filters == 1 and aligned else 1
    real = c_type(out.dtype)
    step = _step(patches.classes(geometry, forward)[1], real)
    lanes = out.shape[0] * (out.shape[3] // vec)
    width = patches.power_of_two(lanes, 32, THREADS)
    cover = Cover(geometry.rows, geometry.columns, forward, DOWN, ACROSS[step], THREADS // width)
    held = cover.tables(engine)
    engine.launch(
        _source(real, vec, step),
        "depthwise",
        -(-lanes // width) * len(cover.listed.tiles),
        THREADS,
        source,
        w,
        out,
        bias,
        patches.addresses(held),
        DEPTHWISE.pack(
            patches=cover.pack(source, w, out, accumulate),
            channels=out.shape[3],
            width=width,
            filters=1 if forward else filters,
            divisor=filters if forward else 1,
        ),
    )
    return cover.listed.products * out.shape[0]


def weight_grad(engine: DeviceEngine, x: Tensor, dy: Tensor, dw: Tensor, geometry: Geometry, vector: bool) -> None:
    """Sk-dilated-V2 into ``dw``, its sum in as many parts as fill the device."""
    g, channels = geometry, dy.shape[3]
    filters = channels // x.shape[3]
    real, side = c_type(dw.dtype), max(g.filter)
    vec = 4 if vector and filters == 1 and side <= max(SIDES[4]) else 1
    step = g.columns.stride if g.columns.dilation == 1 and g.columns.stride in (1, 2) and real == "float" else 0
    side = 3 if step == 0 else next((s for s in SIDES[vec] if s >= side), max(SIDES[vec]))
    width = _channel_width(channels // vec)
    tiles, passes = -(-channels // vec // width), math.prod(-(-f // side) for f in g.filter)
    items = g.output[0] * -(-g.output[1] // ACROSS[step]) * x.shape[0]
    parts = _parts(items, THREADS // width, WAVES * engine.device.multiprocessors / (tiles * passes))
    each = -(-items // parts)
    target: Tensor | Storage = dw if parts == 1 else engine.scratch(parts * dw.nbytes)
    engine.launch(
        _weight_source(real, vec, step, side),
        "depthwise_weight",
        (tiles, passes, parts),
        THREADS,
        x,
        dy,
        target,
        _weight_sizes(x, dy, dw, g, width, each),
    )
    if isinstance(target, Storage):
        sum_parts(engine, target, parts, dw)


def _step(columns: Classes, real: str) -> int:
    """STEP of depthwise.cu: 1 or 2 where a line's elements are neighbours, else 0."""
    near = abs(columns.step_a) == 1 or columns.taps.max() <= 1
    return columns.member_step if near and columns.member_step in (1, 2) and real == "float" else 0


def _channel_width(packs: int) -> int:
    """Threads along channels: of the powers of two up to a warp the largest that leaves the fewest idle."""
    fewest = 1 << max(0, min(3, (packs - 1).bit_length()))  # eight threads read whole lines
    return min((w for w in (32, 16, 8, 4, 2, 1) if w >= fewest), key=lambda w: -(-packs // w) * w)


def _parts(items: int, threads: int, wanted: float) -> int:
    """Parts of a sum of so many items that ``threads`` threads of a block share."""
    most, least = max(1, items // (threads * LEAST_ITEMS)), -(-items // (threads * MOST_ITEMS))
    return min(items, MAX_GRID_YZ, max(least, min(most, math.ceil(wanted))))


def _weight_sizes(x: Tensor, dy: Tensor, dw: Tensor, g: Geometry, width: int, items: int) -> bytes:
    """The sizes and strides of a filter gradient."""
    x_image, x_row, x_column = x.strides[:3]
    y_image, y_row, y_column = dy.strides[:3]
    return WEIGHT_SIZES.pack(
        images=x.shape[0],
        channels=dy.shape[3],
        divisor=dy.shape[3] // x.shape[3],
        out_rows=g.output[0],
        out_columns=g.output[1],
        in_rows=g.input[0],
        in_columns=g.input[1],
        filter_rows=g.filter[0],
        filter_columns=g.filter[1],
        stride_row=g.rows.stride,
        stride_column=g.columns.stride,
        padding_row=g.rows.padding[0],
        padding_column=g.columns.padding[0],
        dilation_row=g.rows.dilation,
        dilation_column=g.columns.dilation,
        x_image=x_image,
        x_row=x_row,
        x_column=x_column,
        y_image=y_image,
        y_row=y_row,
        y_column=y_column,
        width=width,
        items=items,
        part_stride=dw.numel(),
    )
