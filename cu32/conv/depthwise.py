"""depthwise: ConvV2 and KS-deconv-V2 where every channel has filters of its own: kernels/depthwise.cu.

It is bound by memory: it has to read its source and write its result once, 4 * N * C * (IH * IW + OH * OW) bytes of
float32 (what is added to is read as well), as a filter gradient has to read x and dy: for 512 images of 32 channels of
112 x 112 and a 3x3 filter at stride 1, 1.64 GB, 0.49 ms of an H100's 3.35 TB/s. The 1.85e9 multiply-adds take a tenth
of that. kernels/depthwise.cu and depthwise_weight.cu say what reaches the caches.
"""

from __future__ import annotations

import math

from alpha import caches
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import patches, tables
from alpha.cu32.conv.patches import THREADS, Cover, Launch, PatchAlgorithm
from alpha.cu32.conv.problem import Problem
from alpha.cu32.conv.tables import Classes
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Tensor

DEPTHWISE = KernelStruct("depthwise.cu", "Depthwise")

DOWN, ACROSS = 2, {0: 2, 1: 4, 2: 2}
"""Positions of a patch, down and, by STEP, across; the kernels say the same."""

COUNTS_LIMIT = tables.LIMIT - (1 << 20)
"""Positions times images, and images times channels, that the kernels count in 32 bits: a thread goes on to the first
that is not there any more, and rounded up the parts of a sum may have some more than there are."""


def _source(real: str, vec: int, step: int) -> Source:
    return Source("depthwise", REAL=real, VEC=vec, STEP=step)


SOURCES = (
    *(_source("float", vec, step) for vec in (4, 1) for step in (0, 1, 2)),
    _source("double", 1, 0),
)


class Depthwise(PatchAlgorithm):
    """A thread has the positions of a patch of one channel, or of four."""

    name = "depthwise"
    file = "depthwise"

    def serves(self, problem: Problem) -> bool:
        return serves(problem)

    def launch(self, problem: Problem) -> Launch:
        return _launch(problem)

    def filters(self, engine: DeviceEngine, w: Tensor, problem: Problem) -> Tensor:
        return engine.dense(w, (1, 2, 3, 0))  # so that neighbouring threads' are neighbours


def serves(problem: Problem) -> bool:
    """Whether every channel of x has filters of its own, and what kernels hold in 32 bits is in range."""
    if problem.groups == 1 or problem.group_in != 1:
        return False
    counts = problem.out_channels, math.prod(problem.geometry.output)
    return problem.images * max(counts) < COUNTS_LIMIT and patches.steps_fit(problem)


@caches.kept
def _launch(problem: Problem) -> Launch:
    p, g = problem, problem.geometry
    channels = p.out_channels if p.forward else p.in_channels  # of the result
    vec, step = _vector(p), _step(patches.classes(g, p.forward)[1], p.real)
    lanes = p.images * (channels // vec)
    width = patches.power_of_two(lanes, 32, THREADS)
    cover = Cover(g.rows, g.columns, p.forward, DOWN, ACROSS[step], THREADS // width)
    sizes = DEPTHWISE.pack(
        patches=cover.pack(p, g.filter[1] * p.out_channels, p.out_channels),
        channels=channels,
        width=width,
        filters=1 if p.forward else p.group_out,
        divisor=p.group_out if p.forward else 1,
    )
    grid = -(-lanes // width) * len(cover.listed.tiles)
    macs = cover.listed.products * p.images * p.out_channels
    return Launch(_source(p.real, vec, step), grid, cover, sizes, macs)


def _vector(problem: Problem) -> int:
    """Channels of a thread: four where they may be read at once from all operands, else one."""
    filters = problem.aligned.filters or math.prod(problem.geometry.filter) > 1  # else turned into memory of their own
    images = problem.x_fours(problem.in_channels) and problem.y_fours(problem.out_channels)
    return 4 if images and problem.group_out == 1 and filters and problem.aligned.bias else 1


def _step(columns: Classes, real: str) -> int:
    """STEP of depthwise.cu: 1 or 2 where a line's elements are neighbours, else 0."""
    near = abs(columns.step_a) == 1 or columns.taps.max() <= 1
    return columns.member_step if near and columns.member_step in (1, 2) and real == "float" else 0
