"""Numbers that algorithms of a transposed convolution read and write, counted.

Each pass over arrays counts every number that it reads and every number that it writes, whatever caches hold; a
product of matrices counts its two operands and its result once. A convolution without zeros is a product per output
position, whose left operand is what its taps meet; so does im2col count, with the zeros that it meets besides.
"""

from __future__ import annotations

import math
from dataclasses import replace

from alpha.conv.problem import FORWARD
from alpha.cpu import planner
from alpha.cpu.conv.algorithm import filter_numbers
from alpha.cpu.conv.problem import Problem
from benchmarks.zero_insertion import ZeroInsertion


def forward(problem: Problem, packs: bool) -> int:
    """Accesses of our transposed convolution, a problem's input gradient; ``packs``: with packing the filters."""
    return _convolution(problem, packs)


def training(problem: Problem) -> int:
    """Accesses of our transposed convolution with both gradients."""
    g, s = problem.geometry, problem
    pairs = g.useful * s.images * (s.in_channels + s.out_channels)  # of each tap: what it meets on either side
    copies = 2 * s.images * (math.prod(g.input) * s.in_channels + math.prod(g.output) * s.out_channels)
    source = _convolution(replace(problem, operator=FORWARD), True)  # the gradient of what the layer reads
    return forward(problem, True) + source + pairs + copies + filter_numbers(problem)


def baseline_forward(layer: ZeroInsertion, images: int, channels: tuple[int, int]) -> int:
    """Accesses of the baseline: source written with zeros, read by im2col, its matrix written, and multiplied."""
    results, matrix = images * layer.result**2 * channels[1], _product(layer, images, channels[0])
    return _columns(layer, images, channels[0]) + matrix + _weights(layer, channels) + results


def baseline_training(layer: ZeroInsertion, images: int, channels: tuple[int, int]) -> int:
    """Accesses of the baseline's both gradients: im2col again, two products, im2col's reverse, zeros taken out."""
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


def _convolution(problem: Problem, packs: bool) -> int:
    """A convolution or an input gradient by the algorithm that the planner takes."""
    return planner.choose(problem, packs).accesses(problem, packs)
