"""The transposed convolutions of generators that the suites huge2 and segregation measure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from alpha.conv.problem import INPUT_GRAD
from alpha.cpu.conv.problem import Problem, dense_problem
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
        """The geometry of the convolution whose input gradient the layer is."""
        padding = (self.padding, self.padding - self.output_padding)
        axis = Axis(self.result, self.filter, self.stride, padding)
        return Geometry(axis, axis)

    def problem(self, batch: int) -> Problem:
        """The problem that the CPU engine plans, for images in its memory order."""
        return dense_problem(INPUT_GRAD, self.geometry, batch, self.out_channels, self.in_channels, 1)

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

# The same without output padding, so that results have odd sizes; the conditional GAN's with filters of 3x3, for those
# of 4x4 make even ones.
ODD = (
    Generator("odd DCGAN DC1", 4, 1024, 512, 5, 2, 0),
    Generator("odd DCGAN DC2", 8, 512, 256, 5, 2, 0),
    Generator("odd DCGAN DC3", 16, 256, 128, 5, 2, 0),
    Generator("odd DCGAN DC4", 32, 128, 3, 5, 2, 0),
    Generator("odd cGAN DC1", 8, 256, 128, 3, 1, 0),
    Generator("odd cGAN DC2", 16, 128, 3, 3, 1, 0),
)

# EB-GAN's generator of 256x256 images (Zhao et al., arXiv 1609.03126): filters of 4x4 and stride 2 from 4x4 on. Zeros
# inserted between and around one image's sources of all six layers take 35.5 MB, which agrees with the "up to 35 MB"
# that Tida et al. (arXiv 2502.20493) save on it.
EB_GAN = tuple(
    Generator(f"EB-GAN DC{at + 1}", 4 << at, source, result, 4, 1, 0)
    for at, (source, result) in enumerate(pairwise((2048, 1024, 512, 256, 128, 64, 3)))
)
