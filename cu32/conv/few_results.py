"""few_results: ConvV2 and KS-deconv-V2 to so few channels that tiles of them would be nearly empty.

An input gradient to an image, the last layer of a generator, a segmentation's head: all of a position's channels are
one thread's, and eight threads share the sum (kernels/few_results.cu). Memory has to read the source once, 4 * depth
bytes per position, for taps * WIDTH * depth multiply-adds: 27 per float for 3x3 and three channels, below the 40 or so
at which an H100's FMAs become the bound, so it is bound by memory, by 4x4 filters and on by both.
"""

from __future__ import annotations

import math

from alpha import caches
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import patches
from alpha.cu32.conv.patches import THREADS, Cover, Launch, PatchAlgorithm
from alpha.cu32.conv.problem import Problem
from alpha.cu32.structs import KernelStruct
from alpha.tensor import Tensor

SIZES = KernelStruct("few_results.cu", "Few")

WIDTHS = (1, 2, 3, 4)
"""Channels of a result that the kernel computes."""

LEAST_DEPTH = 16
"""Fewest channels to sum over that keep half its lanes busy."""

LANES, ACROSS = 8, 8
"""Threads that share a patch, and positions of one; the kernel says the same."""


def _source(width: int) -> Source:
    return Source("few_results", WIDTH=width)


SOURCES = tuple(map(_source, WIDTHS))


class FewResults(PatchAlgorithm):
    """One to four channels of results, in float32."""

    name = "few_results"
    file = "few_results"

    def serves(self, problem: Problem) -> bool:
        width, depth = _width_and_depth(problem)
        fours = (problem.x_fours if problem.forward else problem.y_fours)(depth)
        if problem.groups != 1 or width not in WIDTHS or depth < LEAST_DEPTH or not fours:
            return False
        across = patches.classes(problem.geometry, problem.forward)[1]
        near = across.member_step == 1 and bool(abs(across.step_a) == 1 or across.taps.max() <= 1)
        return near and patches.steps_fit(problem)

    def launch(self, problem: Problem) -> Launch:
        return _launch(problem)

    def filters(self, engine: DeviceEngine, w: Tensor, problem: Problem) -> Tensor:
        """Filters with the summed channels innermost, aligned."""
        order = (0, 1, 2, 3) if problem.forward else (3, 1, 2, 0)
        if w.address % 16 == 0 and w.is_contiguous(order):
            return w
        turned = engine.empty(w.shape, w.dtype, order)
        engine.copy(w, turned)
        return turned


def _width_and_depth(problem: Problem) -> tuple[int, int]:
    """Channels of the result, and those that are summed over."""
    both = problem.out_channels, problem.in_channels
    return both if problem.forward else both[::-1]


@caches.kept
def _launch(problem: Problem) -> Launch:
    p, g = problem, problem.geometry
    width, depth = _width_and_depth(p)
    together = patches.power_of_two(p.images, 1, THREADS // LANES)
    cover = Cover(g.rows, g.columns, p.forward, 1, ACROSS, THREADS // LANES // together)
    sizes = SIZES.pack(
        patches=cover.pack(p, g.filter[1] * depth, depth),
        depth=depth,
        width=together,
        b_column=math.prod(g.filter) * depth,
    )
    grid = -(-p.images // together) * len(cover.listed.tiles)
    return Launch(_source(width), grid, cover, sizes, cover.listed.products * p.images * width * depth)
