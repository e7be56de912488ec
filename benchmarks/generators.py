"""The transposed convolutions of generators that the suite huge2 measures."""

from __future__ import annotations

from dataclasses import dataclass

from alpha.cpu.plans import Problem, dense_problem
from alpha.geometry import Axis, Geometry
from benchmarks.zero_insertion import ZeroInsertion


@dataclass(frozen=True)
class Generator:
    """A generator's layer: a transposed convolution of square images with a square filter, everything but the batch."""

    name: str
    size: int
    in_channels: int
    out_channels: int
    filter: int
    padding: int
    output_padding: int
    stride: int = 2

    @property
    def baseline(self) -> ZeroInsertion:
        """As the baseline computes it."""
        return ZeroInsertion(self.size, self.filter, self.stride, self.padding, self.output_padding)

    @property
    def result(self) -> int:
        """H and W of its result."""
        return self.baseline.result

    @property
    def geometry(self) -> Geometry:
        """Of the convolution whose input gradient it is."""
        padding = (self.padding, self.padding - self.output_padding)
        axis = Axis(self.result, self.filter, self.stride, padding)
        return Geometry(axis, axis)

    def problem(self, batch: int) -> Problem:
        """What the CPU engine plans, of images in its own order."""
        return dense_problem(self.geometry, batch, self.out_channels, self.in_channels, 1)

    def useful_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of it, or of one of its gradients, without any zero."""
        return 2e-9 * self.geometry.macs(batch, self.out_channels, self.in_channels)


# The layers of HUGE2's Table 1 (Shi et al., arXiv 1907.11210): DCGAN's and a conditional GAN's.
GENERATORS = (
    Generator("DCGAN DC1", 4, 1024, 512, 5, 2, 1),
    Generator("DCGAN DC2", 8, 512, 256, 5, 2, 1),
    Generator("DCGAN DC3", 16, 256, 128, 5, 2, 1),
    Generator("DCGAN DC4", 32, 128, 3, 5, 2, 1),
    Generator("cGAN DC1", 8, 256, 128, 4, 1, 0),
    Generator("cGAN DC2", 16, 128, 3, 4, 1, 0),
)
