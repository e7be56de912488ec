"""The suite segregation's opponent: what separate sub-kernels compute, how many elements, and EB-GAN's figure."""

from __future__ import annotations

import pytest

from alpha.errors import ArgumentError
from alpha.geometry import transposed_input
from benchmarks.generators import EB_GAN, ODD, Generator
from benchmarks.sub_kernels import SubKernel, elements, sub_geometries, sub_kernels

SMALL = [
    Generator(f"{size}, {filter}x{filter}, {stride}, {padding}, {extra}", size, 1, 1, filter, padding, extra, stride)
    for size in (1, 2, 5)
    for filter in range(1, 8)
    for stride in range(1, filter + 1)
    for padding in range(filter - stride + 1)
    for extra in range(stride)
    if transposed_input(size, filter, stride, padding, extra, 1) >= 1
]


def split(layer: Generator) -> list[SubKernel]:
    """The sub-kernels of a layer's axis."""
    return sub_kernels(layer.size, layer.filter, layer.stride, layer.padding, layer.result)


@pytest.mark.parametrize("layers", [SMALL, ODD, EB_GAN], ids=["small", "odd", "EB-GAN"])
def test_they_compute_the_transposed_convolution(layers: list[Generator]) -> None:
    """Every product of the definition once, in the element of the result where interleaving puts it."""
    for layer in layers:
        wanted = {(o * layer.stride + f - layer.padding, o, f) for o in range(layer.size) for f in range(layer.filter)}
        found = [
            (remainder + layer.stride * at, o, part.taps[tap])
            for remainder, part in enumerate(split(layer))
            for at, met in enumerate(part.axis.by_output)
            for o, tap in met
        ]
        inside = [one for one in found if one[0] < layer.result]
        assert sorted(inside) == sorted(one for one in wanted if 0 <= one[0] < layer.result), layer.name


@pytest.mark.parametrize("layers", [SMALL, ODD, EB_GAN], ids=["small", "odd", "EB-GAN"])
def test_elements_are_those_of_all_outputs(layers: list[Generator]) -> None:
    """Counted one by one: every output is as large as the largest, that of the elements 0, stride, 2 * stride..."""
    for layer in layers:
        outputs = [geometry.output for _, _, geometry in sub_geometries(split(layer))]
        largest = len(range(0, layer.result, layer.stride))
        assert outputs == [(largest, largest)] * layer.stride**2
        assert elements(layer.result, layer.stride) ** 2 == sum(rows * columns for rows, columns in outputs)


def test_extra_elements_come_with_odd_results_alone() -> None:
    for layer in ODD:
        assert layer.result % 2 == 1 and elements(layer.result, 2) == layer.result + 1
    for layer in EB_GAN:
        assert layer.result == 2 * layer.size == elements(layer.result, 2)


def test_eb_gan_is_the_one_that_is_published() -> None:
    """The zeros that Tida et al. save: 35 MB of sources with zeros between and around their elements, an image."""
    assert EB_GAN[0].size == 4 and EB_GAN[-1].result == 256
    inserted = sum(4 * layer.in_channels * layer.baseline.spread**2 for layer in EB_GAN)
    assert inserted == pytest.approx(35.5e6, rel=1e-3)


@pytest.mark.parametrize("layer", [Generator("gaps", 4, 1, 1, 2, 0, 0, 3), Generator("cut", 4, 1, 1, 3, 4, 1)])
def test_what_generators_have_not_is_refused(layer: Generator) -> None:
    """A stride over the filter, and padding that leaves a part of the source out."""
    with pytest.raises(ArgumentError, match="expected sizes, stride and dilation >= 1 and low padding >= 0"):
        split(layer)
