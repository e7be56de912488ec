"""Plans of Winograd's algorithm for the filter's gradient: blocks of channels, and parts of the tiles and images."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpha import caches
from alpha.cpu.isa import ISA
from alpha.cpu.kernels.winograd_forms import Form
from alpha.cpu.kernels.winograd_gradient import GradientSizes
from alpha.cpu.plans import FEW_TASKS, PART_BYTES, PARTS, Array, Problem, check_offsets, extent
from alpha.cpu.winograd import form_of, inside, tile_offsets
from alpha.errors import EngineError

IN_BLOCK, OUT_BLOCKS = 64, (128, 64, 32)
"""Channels of x, and of dy, a task, about: its sums and what is added to them stay near the second cache. Of dy fewer
where there are few tasks."""

ROWS = 64
"""Tiles times images whose products are summed at a time, about."""

PART_UNITS = 3
"""Least times that a part adds to its sums."""


@dataclass(frozen=True)
class GradientPlan:
    """Tables and sizes.

    Attributes:
        form: the convolution's matrices.
        rows_from: offsets of each tile row's rows of x, -1 outside; ``columns_from`` likewise.
        rows_to: offsets of its rows of dy, -1 outside; ``columns_to`` likewise.
        units: how often sums are added to, by all parts.
        shape: of the sums of a part: groups, blocks of dy's channels and of x's, places, panels, channels, panel.
        macs: products that it computes.
    """

    form: Form
    rows_from: Array
    rows_to: Array
    columns_from: Array
    columns_to: Array
    sizes: GradientSizes
    units: int
    shape: tuple[int, ...]
    macs: int

    @property
    def tasks(self) -> int:
        """Parts of pairs of blocks of channels."""
        return self.sizes.parts * math.prod(self.shape[:3])


def serves(problem: Problem, results: int = 2) -> bool:
    """Whether the algorithm can compute it: there is a form, float32, images side by side."""
    beside = (problem.in_channels, problem.out_channels) == (problem.x_strides[0], problem.y_strides[0])
    fits = problem.item == 4 and (problem.images == 1 or beside)
    return fits and form_of(problem, True, results) is not None


@caches.kept
def plan(problem: Problem, results: int = 2) -> GradientPlan:
    """The plan of a problem that it serves."""
    form = form_of(problem, True, results)
    if form is None:
        raise EngineError(f"[winograd] expected a problem that has a form, got {problem.geometry}: ask serves first")
    g, item = problem.geometry, problem.item
    x_steps, dy_steps = ([s * item for s in strides] for strides in (problem.x_strides, problem.y_strides))
    rows_from, rows_to = tile_offsets(g.rows, form, True, x_steps[1], dy_steps[1])
    columns_from, columns_to = tile_offsets(g.columns, form, True, x_steps[2], dy_steps[2])
    sides = (
        ("x", (rows_from, columns_from), x_steps[0], g.input, problem.in_channels, problem.x_strides),
        ("dy", (rows_to, columns_to), dy_steps[0], g.output, problem.out_channels, problem.y_strides),
    )
    for name, (rows, columns), step, size, channels, strides in sides:
        run = (problem.images - 1) * step + channels * item
        limit = extent((problem.images, *size), channels, strides, item)
        check_offsets(name, (inside(rows), inside(columns)), run, limit)
    tiles, panel = len(rows_to) * len(columns_to), ISA.panel(item)
    panels = math.ceil(problem.group_in / math.ceil(problem.group_in / IN_BLOCK) / panel)
    in_blocks = math.ceil(problem.group_in / (panels * panel))
    chunk = math.ceil(problem.images / math.ceil(problem.images / ROWS))
    together = max(1, min(ROWS // chunk, tiles))
    units = math.ceil(tiles / together) * math.ceil(problem.images / chunk)
    for most in OUT_BLOCKS:
        out_blocks = math.ceil(problem.group_out / most)
        out_block = math.ceil(problem.group_out / out_blocks)
        shape = (problem.groups, out_blocks, in_blocks, form.places, panels, out_block, panel)
        blocks = math.prod(shape[:3])
        parts = _parts(blocks, units, math.prod(shape) * item)
        if parts * blocks >= FEW_TASKS:
            break
    sizes = GradientSizes(
        images=problem.images,
        chunk=chunk,
        tiles=together,
        tile_columns=len(columns_to),
        groups=problem.groups,
        in_channels=problem.group_in,
        out_channels=problem.group_out,
        in_block=panels * panel,
        out_block=out_block,
        parts=parts,
        x_image=problem.in_channels * item,  # also of one image, whatever its stride
        dy_image=problem.out_channels * item,
    )
    macs = form.places * tiles * problem.images * problem.in_channels * problem.group_out
    return GradientPlan(form, rows_from, rows_to, columns_from, columns_to, sizes, units, shape, macs)


def _parts(blocks: int, units: int, nbytes: int) -> int:
    """So many that there are about PARTS tasks; never by thread count, for the same order of sums on any machine."""
    return max(1, min(math.ceil(PARTS / blocks), units // PART_UNITS, PART_BYTES // nbytes))
