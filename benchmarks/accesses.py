"""Numbers that algorithms of a transposed convolution read and write, counted.

Each pass over arrays counts every number that it reads and every number that it writes, whatever caches hold; a
product of matrices counts its two operands and its result once. A convolution without zeros is a product an output
position, whose left operand is what its taps meet; so does im2col count, with the zeros that it meets besides.
"""

from __future__ import annotations

import math

from alpha.cpu import planner, winograd
from alpha.cpu.plans import Problem
from benchmarks.zero_insertion import ZeroInsertion


def forward(problem: Problem, packs: bool) -> int:
    """Of our transposed convolution, the input gradient of a problem; with the filters' packing, or packed before."""
    return _convolution(problem, False, packs)


def training(problem: Problem) -> int:
    """Of ours with both gradients."""
    g, s = problem.geometry, problem
    pairs = g.useful * s.images * (s.in_channels + s.out_channels)  # of each tap: what it meets on either side
    copies = 2 * s.images * (math.prod(g.input) * s.in_channels + math.prod(g.output) * s.out_channels)
    return forward(problem, True) + _convolution(problem, True, True) + pairs + copies + _filters(problem)


def baseline_forward(layer: ZeroInsertion, images: int, channels: tuple[int, int]) -> int:
    """Of the baseline: source with zeros written, read by im2col, whose matrix is written, and read by the product."""
    results, matrix = images * layer.result**2 * channels[1], _product(layer, images, channels[0])
    return _columns(layer, images, channels[0]) + matrix + _weights(layer, channels) + results


def baseline_training(layer: ZeroInsertion, images: int, channels: tuple[int, int]) -> int:
    """Of the baseline with both gradients: im2col again, two products, im2col's reverse, the zeros taken out."""
    source, result = channels
    results, matrix = images * layer.result**2 * result, _product(layer, images, source)
    spread = images * layer.spread**2 * source
    filters = _columns(layer, images, source) + matrix + results + _weights(layer, channels)
    inputs = results + _weights(layer, channels) + matrix  # the product
    inputs += 3 * matrix + spread + images * layer.size**2 * source  # each number added: read, and read and written
    return baseline_forward(layer, images, channels) + filters + inputs


def _columns(layer: ZeroInsertion, images: int, source: int) -> int:
    spread = images * layer.spread**2 * source
    return images * layer.size**2 * source + spread + 2 * _product(layer, images, source)


def _product(layer: ZeroInsertion, images: int, source: int) -> int:
    """Numbers of im2col's matrix."""
    return images * (layer.result * layer.filter) ** 2 * source


def _weights(layer: ZeroInsertion, channels: tuple[int, int]) -> int:
    return layer.filter**2 * math.prod(channels)


def _filters(problem: Problem) -> int:
    return math.prod(problem.geometry.filter) * problem.in_channels * problem.group_out


def _convolution(problem: Problem, by_output: bool, packs: bool) -> int:
    """A convolution or an input gradient by the algorithm that the planner takes."""
    g, algorithm, filters = problem.geometry, planner.algorithm(problem, by_output, packs), _filters(problem)
    source, result, size = problem.in_channels, problem.out_channels, g.output
    if not by_output:
        source, result, size = result, source, g.input
    results = problem.images * math.prod(size) * result
    if algorithm in winograd.RESULTS:
        plan = winograd.plan(problem, by_output, winograd.RESULTS[algorithm])
        tiles = len(plan.rows_to) * len(plan.columns_to) * problem.images
        inputs = tiles * (plan.form.inputs**2 + 2 * plan.form.places) * source
        products = 2 * tiles * plan.form.places * result
        packed = math.prod(plan.packed_shape)
        return inputs + products + results + packed + (filters + packed if packs else 0)
    met = g.useful * problem.images * source
    made = 0
    if algorithm == "columns":
        width = g.columns.input if by_output else g.columns.output
        met = g.rows.useful * width * problem.images * source
        made = size[0] * problem.images * result * (width * g.columns.filter + g.columns.useful)
    return met + made + results + filters + (2 * filters if packs else 0)
