"""What each algorithm of a convolution costs, in cycles of one core: the planner's model, in the open.

A model of the micro-kernels: two fused multiply-adds and two loads a cycle, chains of four cycles, so much for each
tile's beginning and end; and of the filters, which every block of rows reads anew, at the pace of the caches behind the
second one. It ranks algorithms, and says about how long they take where the caches hold what the plans mean them to.
"""

from __future__ import annotations

import math

from alpha.cpu import (
    depthwise,
    image_lanes,
    panels,
    plans,
    positions,
    tap_columns,
    tap_rows,
    winograd,
    winograd_gradient,
)
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.convolution import COUNT
from alpha.cpu.kernels.image_lanes import VECTORS
from alpha.cpu.kernels.microkernel import NARROW_ROWS, NARROW_SCATTERED_ROWS, SCATTERED_ROWS, TALL_HEIGHTS
from alpha.cpu.kernels.positions import RUNS, TAPS
from alpha.cpu.kernels.winograd import operations
from alpha.cpu.kernels.winograd_forms import transposed
from alpha.cpu.plans import Problem

LATENCY = 4
"""Cycles from a multiply-add to the next that takes its result."""

TILE = 40
"""Cycles of a tile's beginning and end: pointers, the loop's start, reading and writing its sums."""

ROW = 6
"""Cycles to find where a row of scattered ones lies."""

TRANSFORM, RESULT = 0.75, 0.8
"""Cycles a load, addition or store of a vector of Winograd's inputs, and of its results, and what the caches cost."""

SCATTER, SUMS = 0.55, 1.3
"""Of the filter's gradient by Winograd's products: cycles an operation on its transformed tiles, and of its sums' terms
against those of other tiles."""

LAUNCHES = 50_000
"""Cycles to begin and end the launches that follow a filter gradient's first one, of all cores."""

ADDED = 4.0
"""Cycles a vector of a tile's sums that are read and written in the second cache."""

TURN = 2.5
"""Cycles a vector of images to transpose it."""

WRITE = 2.0
"""Cycles a number to put it where the result's images lie."""

SUM = 1.5
"""Cycles a number to add a tap's product to its result."""

NEAR, FAR = 12.0, 4.0
"""Bytes of filters a cycle that a core reads where the last cache holds them all, and where it does not."""

PACK, PACK_FAR = 1.5, 1.5
"""Cycles a number to pack the filters, and more where the last cache does not hold what is packed."""

PACK_NEAR = 0.8
"""Of a panel that its only reader packs, where filters are not packed before: written in the second cache."""

COPIES = 0.15
"""Of the filter gradient's time: copying x and dy to where they are read."""

PIECE = 4.0
"""Cycles to copy a panel's vectors of a pixel of x, or a tile's numbers of a pixel of dy."""

COPY = 30.0
"""Cycles a vector of x that is copied for a position and an image, in pieces that overlap."""

LAST_CACHE = 12 << 20
"""Bytes of filters that the last cache holds beside all else, about."""


def cycles(problem: Problem, by_output: bool, algorithm: str, packs: bool = False) -> float:
    """Cycles of one core for a convolution (``by_output``) or an input gradient, with its filters' packing if asked."""
    if algorithm == "depthwise":
        return depthwise.cycles(problem)
    if algorithm in winograd.RESULTS:
        tiled = winograd.plan(problem, by_output, winograd.RESULTS[algorithm])
        computing, packed = _winograd(tiled), tiled.packed_shape
    elif algorithm == "positions":
        few = positions.plan(problem, by_output)
        computing, packed = _positions(few), few.packed_shape
    elif algorithm == "panels":
        return _panels(panels.plan(problem, by_output), packs)
    elif algorithm == "lanes":
        across = image_lanes.plan(problem, by_output)
        computing, packed = _lanes(problem, across), across.packed_shape
    elif algorithm == "columns":
        beside = tap_columns.plan(problem, by_output)
        computing, packed = _columns(beside), beside.packed_shape
    else:
        plan = plans.forward(problem) if by_output else plans.input_grad(problem)
        computing, packed = _images(problem, plan), plan.packed_shape
    return computing + (_packing(math.prod(packed) * problem.item, problem.item) if packs else 0)


def weight_cycles(problem: Problem, algorithm: str) -> float:
    """Cycles of one core for the filter's gradient."""
    g, s = problem.geometry, problem
    if algorithm == "depthwise":
        return depthwise.cycles(problem)
    if algorithm in winograd.RESULTS:
        return _winograd_gradient(problem, winograd.RESULTS[algorithm])
    if algorithm == "tap rows":  # as if none were trimmed
        rows = g.columns.filter * s.group_in
        vectors = 1 if rows in TALL_HEIGHTS else ISA.vectors
        panels = math.ceil(s.group_out / (vectors * ISA.lanes(s.item)))
        term = sum(_step(height, vectors) for height in tap_rows.heights(rows)) * panels
        pieces = 2 * math.prod(g.input)  # a row's are copied one by one
        return s.groups * s.images * (term * g.useful / g.columns.filter * (1 + COPIES) + pieces * PIECE)
    if algorithm == "few channels":
        taps = g.rows.filter * g.columns.filter  # of the widest trim
        columns = taps * s.group_in
        panels, copies = math.ceil(columns / ISA.panel(s.item)), COPY * math.ceil(columns / ISA.lanes(s.item))
        return s.groups * g.useful / taps * s.images * (panels * _rows(s.group_out)[0] * (1 + COPIES) + copies)
    return _taps(problem)


def _step(rows: int, vectors: int = ISA.vectors) -> float:
    """Cycles of one term of a tile's sums."""
    return max(rows * vectors / 2, (rows + vectors) / 2, LATENCY)


def _rows(count: int, vectors: int = ISA.vectors) -> tuple[float, int]:
    """Cycles of a term for so many rows of a panel of so many vectors, and the tiles that they make."""
    most = ISA.rows if vectors > 1 else NARROW_ROWS
    whole, rest = divmod(count, most)
    total, tiles = whole * _step(most, vectors), whole
    for rows in (8, 4, 2, 1):
        while rows < most and rest >= rows:
            total, tiles, rest = total + _step(rows, vectors), tiles + 1, rest - rows
    return total, tiles


def _in_chunks(images: int, chunk: int, vectors: int = ISA.vectors, factor: int = 1) -> tuple[float, int]:
    """``_rows`` of so many rows an image, of all chunks of images."""
    whole, rest = divmod(images, chunk)
    terms, tiles = _rows(chunk * factor, vectors)
    last, few = _rows(rest * factor, vectors)
    return whole * terms + last, whole * tiles + few


def _packing(nbytes: int, item: int) -> float:
    """Cycles to pack filters into so many bytes: the more of the last cache they take, the more go to memory."""
    return nbytes / item * (PACK + PACK_FAR * min(1, nbytes / LAST_CACHE))


def _total(computing: float, passes: float, nbytes: float) -> float:
    """Cycles of computing, or of reading packed filters so often where that takes longer."""
    return max(computing, passes * nbytes / (NEAR if nbytes <= LAST_CACHE else FAR))


def _images(problem: Problem, plan: plans.GatherPlan) -> float:
    s, g = plan.sizes, problem.geometry
    vectors, chunks = s.panel // ISA.lanes(s.item), math.ceil(s.images / s.chunk)
    terms, tiles = _in_chunks(s.images, s.chunk, vectors)
    panels = s.groups * math.ceil(s.channels / s.panel)
    places, blocks = plan.order.size, math.ceil(s.depth / s.depth_block)
    computing = panels * (terms * g.useful * s.depth + tiles * places * blocks * TILE)
    passes = chunks * g.useful / (g.rows.filter * g.columns.filter)
    return _total(computing, passes, math.prod(plan.packed_shape) * s.item)


def _positions(plan: positions.PositionPlan) -> float:
    s, rows, columns = plan.sizes, plan.rows, plan.columns
    taps = rows.table[TAPS, plan.blocks[:, 0]] * columns.table[TAPS, plan.blocks[:, 1]]
    taps = taps * columns.table[RUNS, plan.blocks[:, 1]]
    vectors = s.panel // ISA.lanes(s.item)
    tile = SCATTERED_ROWS if vectors > 1 else NARROW_SCATTERED_ROWS
    tiles = -(-plan.blocks[:, 3] // tile)
    panels, blocks = s.groups * math.ceil(s.channels / s.panel), math.ceil(s.depth / s.depth_block)
    terms = float((tiles * taps).sum()) * s.depth * _step(tile, vectors)
    finding = float(plan.blocks[:, 3].sum()) * ROW * math.ceil(panels / s.together)
    computing = panels * (terms + float(tiles.sum()) * blocks * TILE) + finding
    return _total(computing, float(taps.sum()) / s.most_taps, math.prod(plan.packed_shape) * s.item)


def _panels(plan: panels.PanelPlan, packs: bool) -> float:
    s, rows, columns = plan.sizes, plan.rows, plan.columns
    taps = rows.table[TAPS, plan.blocks[:, 0]] * columns.table[TAPS, plan.blocks[:, 1]]
    tiles = -(-plan.blocks[:, 3] // SCATTERED_ROWS)
    parts = math.ceil(s.depth / s.depth_block)
    terms = float((tiles * taps).sum()) * s.depth * _step(SCATTERED_ROWS)
    begun = float(tiles.sum()) * parts * (TILE + SCATTERED_ROWS * ISA.vectors * ADDED)
    finding = float(plan.blocks[:, 3].sum()) * parts * ROW
    packing = PACK_NEAR * s.taps * s.depth * s.panel if packs else 0
    return _total(plan.tasks * (terms + begun + finding + packing), 1, math.prod(plan.packed_shape) * s.item)


def _lanes(problem: Problem, plan: image_lanes.LanePlan) -> float:
    s, bands = plan.sizes, plan.bands
    chunks, blocks = s.groups * math.ceil(s.images / s.chunk), math.ceil(s.depth / s.depth_block)
    term = sum(max(rows * VECTORS / 2, LATENCY * (1 if rows < 4 else 2)) for rows in plan.heights.tolist())
    tiles = plan.rows.pairs.shape[1] * s.columns * blocks * len(plan.heights)
    turned = int((bands[:, 3] - bands[:, 2]).sum()) * s.source_columns * s.depth * VECTORS
    written = plan.rows.pairs.shape[1] * s.columns * s.channels * s.chunk
    cycles = term * problem.geometry.useful * s.depth + tiles * TILE + turned * TURN + written * WRITE
    return float(chunks * cycles)


def _columns(plan: tap_columns.TapColumnsPlan) -> float:
    s, whole = plan.sizes, plan.sizes.chunk == plan.sizes.images
    vectors = s.panel // ISA.lanes(s.item)
    runs, factor = (1, s.source_columns) if whole else (s.source_columns, 1)
    terms, tiles = _in_chunks(s.images, s.chunk, vectors, factor)
    products = s.panels * runs * (terms * int(plan.rows.pairs[COUNT].sum()) * s.depth + tiles * s.rows * TILE)
    added = s.images * s.rows * s.channels * (s.columns * WRITE + int(plan.columns.pairs[COUNT].sum()) * SUM)
    return float(s.groups * (products + added))


def _winograd(plan: winograd.WinogradPlan) -> float:
    s, panels, places = plan.sizes, plan.packed_shape[0], plan.form.places
    tiles = len(plan.rows_to) * len(plan.columns_to)
    vectors = tiles * s.images * s.groups * s.depth / ISA.lanes(4)
    transforms = vectors * TRANSFORM * operations(plan.form.b)
    transforms += tiles * s.images * panels * ISA.vectors * RESULT * operations(plan.form.a)
    filter_bytes = math.prod(plan.packed_shape) * 4
    if plan.stages:
        chunks = sum(math.ceil(stages.rows / stages.chunk) for stages in plan.stages)
        terms, made = _rows(math.ceil(tiles * s.images / chunks))
        products = chunks * panels * places * (terms * s.depth + made * TILE)
        moved = 2 * places * tiles * s.images * (s.depth + s.channels) * 4 / NEAR
        return _total(products + transforms + moved, len(plan.stages), filter_bytes)
    groups = math.ceil(tiles / s.tiles)
    terms, made = _in_chunks(s.images, s.chunk, factor=s.tiles)
    products = groups * panels * places * (terms * s.depth + made * TILE)
    return _total(products + transforms, groups * math.ceil(s.images / s.chunk), filter_bytes)


def _taps(problem: Problem) -> float:
    """A filter gradient of all products: its terms, its copies, and its parts' sums."""
    g, s = problem.geometry, problem
    plan = plans.weight_grad(problem)
    sizes, taps = plan.sizes, g.rows.filter * g.columns.filter
    vectors = sizes.panel // ISA.lanes(s.item)
    panels = math.ceil(s.group_in / sizes.panel)
    term, tiles = _rows(s.group_out, vectors)
    pieces = math.prod(g.input) * panels + math.prod(g.output) * tiles
    copied = s.images * (g.useful * panels * term * (1 + COPIES) + pieces * PIECE)
    runs = math.ceil(g.rows.output / sizes.row_chunk) * math.ceil(g.columns.output / sizes.column_chunk)
    runs *= plan.parts * math.ceil(sizes.part / sizes.chunk)
    added = runs * taps * panels * tiles * TILE
    several = plan.parts * sizes.filter_bytes / NEAR + LAUNCHES if plan.parts > 1 else 0
    return s.groups * (copied + added) + several


def _winograd_gradient(problem: Problem, results: int) -> float:
    plan = winograd_gradient.plan(problem, results)
    s, (_, out_blocks, in_blocks, places, _, out_block, panel) = plan.sizes, plan.shape
    images = len(plan.rows_to) * len(plan.columns_to) * s.images
    products, (whole, rest) = 0.0, divmod(s.in_channels, panel)
    narrow = 0 < rest <= ISA.lanes(4)
    for vectors, count in ((ISA.vectors, whole + (rest > 0) - narrow), (1, narrow)):
        term, made = _rows(out_block, vectors)
        added = plan.units * (made * TILE + out_block * vectors * ADDED)
        products += out_blocks * count * places * (images * term * SUMS + added)
    x_vectors, dy_vectors = math.ceil(s.in_channels / ISA.lanes(4)), math.ceil(s.out_channels / ISA.lanes(4))
    transforms = out_blocks * x_vectors * operations(plan.form.b)
    transforms += in_blocks * dy_vectors * operations(transposed(plan.form.a))
    moved = (s.parts + 1) * math.prod(plan.shape[1:]) * 4 / NEAR
    ends = s.out_channels * x_vectors * TRANSFORM * operations(transposed(plan.form.g)) + moved
    return s.groups * (products + images * SCATTER * transforms + ends) + LAUNCHES
