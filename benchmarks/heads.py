"""DeepLab's heads, which the suite deeplab measures: networks of dilated convolutions, written once for all sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from alpha.geometry import Geometry

Array = np.ndarray[Any, Any]

_MARGIN = 8
"""Biases over the root mean square of what the filters give: so far no value comes near ReLU's kink."""


@dataclass(frozen=True)
class Convolution:
    """A convolution of stride 1 that keeps height and width, with bias; ReLU follows but for scores."""

    name: str
    size: int
    in_channels: int
    out_channels: int
    filter: int = 1
    dilation: int = 1
    relu: bool = True

    @property
    def padding(self) -> int:
        """Zeros at each end of rows and columns."""
        return self.filter // 2 * self.dilation

    @property
    def extent(self) -> int:
        """Side of the filter with zeros inserted between its taps."""
        return (self.filter - 1) * self.dilation + 1

    @property
    def without_dilation(self) -> Convolution:
        """The same convolution by filters with zeros between their taps."""
        return replace(self, filter=self.extent, dilation=1)

    @property
    def geometry(self) -> Geometry:
        """Its index arithmetic."""
        return Geometry.make(*((n, n) for n in (self.size, self.filter, 1, self.padding, self.dilation)))

    def useful_gflop(self, batch: int) -> float:
        """10^9 floating-point operations without any zero."""
        return 2e-9 * self.geometry.macs(batch, self.in_channels, self.out_channels)

    def nominal_gflop(self, batch: int) -> float:
        """10^9 floating-point operations, those with the padding's zeros counted in."""
        return 2e-9 * self.geometry.nominal * batch * self.in_channels * self.out_channels

    def inserted(self, w: Array) -> Array:
        """Filters (OC, FH, FW, IC) with zeros between their taps: those of ``without_dilation``."""
        wide = np.zeros((self.out_channels, self.extent, self.extent, self.in_channels), w.dtype)
        wide[:, :: self.dilation, :: self.dilation] = w
        return wide


class Operations(Protocol):
    """What a side computes a head with; images as the side has them."""

    def convolve(self, step: Convolution, x: Any) -> Any:
        """A convolution with its bias, and ReLU if it has one."""

    def mean(self, x: Any) -> Any:
        """The mean over height and width, as images of one pixel."""

    def join(self, branches: Sequence[Any]) -> Any:
        """Images one behind the other along channels; images of one pixel are repeated to the first one's size."""


@dataclass(frozen=True)
class Head:
    """A head of DeepLab on maps of a backbone, everything but the batch.

    Args:
        name: with the backbone.
        size: H and W of the maps.
        in_channels: of the maps.
        width: channels of the head's own maps.
        rates: dilations of the 3x3 convolutions. Several make atrous spatial pyramid pooling: a 1x1 convolution, those
            of the rates and the mean over the map behind a 1x1 convolution, side by side; joined and projected by a 1x1
            convolution. A single one is followed by a 1x1 convolution and the classes' scores.
        classes: of the scores; 0 where the head has none.
    """

    name: str
    size: int
    in_channels: int
    width: int
    rates: tuple[int, ...]
    classes: int = 0

    @cached_property
    def branches(self) -> tuple[Convolution, ...]:
        """The convolutions that see the maps."""
        atrous = [self._step(f"rate {rate}", self.in_channels, 3, rate) for rate in self.rates]
        return tuple(([] if len(atrous) == 1 else [self._step("1x1", self.in_channels)]) + atrous)

    @cached_property
    def pooled(self) -> Convolution:
        """That of the mean over the map."""
        return Convolution("pooled", 1, self.in_channels, self.width)

    @cached_property
    def last(self) -> tuple[Convolution, ...]:
        """The convolutions behind the branches, in their order."""
        if len(self.rates) > 1:
            return (self._step("projection", (len(self.branches) + 1) * self.width),)
        scores = Convolution("scores", self.size, self.width, self.classes, relu=False)
        return self._step("1x1", self.width), scores

    @property
    def steps(self) -> tuple[Convolution, ...]:
        """All convolutions."""
        return (*self.branches, *([self.pooled] if len(self.rates) > 1 else []), *self.last)

    def useful_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of all convolutions without any zero."""
        return sum(step.useful_gflop(batch) for step in self.steps)

    def nominal_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of all convolutions with the padding's zeros."""
        return sum(step.nominal_gflop(batch) for step in self.steps)

    def inserted_gflop(self, batch: int) -> float:
        """10^9 floating-point operations of all convolutions with the zeros between taps and without the padding's."""
        return sum(step.without_dilation.useful_gflop(batch) for step in self.steps)

    def compute(self, operations: Operations, x: Any) -> Any:
        """The head's result for maps (N, H, W, in_channels)."""
        results = [operations.convolve(step, x) for step in self.branches]
        if len(self.rates) > 1:
            results.append(operations.convolve(self.pooled, operations.mean(x)))
            results = [operations.join(results)]
        (y,) = results
        for step in self.last:
            y = operations.convolve(step, y)
        return y

    def _step(self, name: str, in_channels: int, filter: int = 1, dilation: int = 1) -> Convolution:
        return Convolution(name, self.size, in_channels, self.width, filter, dilation)


class Tensors:
    """A head's x (N, H, W, IC) and dy, filters (OC, FH, FW, IC) and biases (OC,) by the convolutions' names.

    A bias lifts half of the channels so far above 0 and pushes the others so far below that rounding decides nowhere
    what ReLU lets through: otherwise two correct results would differ by whole terms of a gradient.
    """

    def __init__(self, head: Head, batch: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.x = rng.uniform(-1, 1, (batch, head.size, head.size, head.in_channels)).astype(np.float32)
        self.dy = rng.uniform(-1, 1, (batch, head.size, head.size, head.last[-1].out_channels)).astype(np.float32)
        self.filters: dict[str, Array] = {}
        self.biases: dict[str, Array] = {}
        self._draw(head.branches + ((head.pooled,) if len(head.rates) > 1 else ()), math.sqrt(1 / 3), rng)
        size = _root_mean_square(math.sqrt(1 / 3))
        for step in head.last:
            self._draw((step,), size, rng)
            size = _root_mean_square(size)

    def _draw(self, steps: Sequence[Convolution], size: float, rng: np.random.Generator) -> None:
        """Filters that keep their input's root mean square, and biases beside it."""
        for step in steps:
            shape = (step.out_channels, step.filter, step.filter, step.in_channels)
            bound = math.sqrt(3 / math.prod(shape[1:]))
            self.filters[step.name] = rng.uniform(-bound, bound, shape).astype(np.float32)
            signs = np.where(np.arange(step.out_channels) % 2, -1, 1)
            self.biases[step.name] = (_MARGIN * size * signs).astype(np.float32)


def _root_mean_square(size: float) -> float:
    """The root mean square behind a convolution and ReLU of input of that root mean square: half of it is 0."""
    return size * math.sqrt((_MARGIN**2 + 1) / 2)


# DeepLabV3's heads (Chen et al., arXiv 1706.05587) on images of 513x513 at an output stride of 16: behind ResNet-50 or
# -101, and behind MobileNetV2 as its authors have it (arXiv 1801.04381); and DeepLab-LargeFOV behind VGG16 on
# 321x321 (Chen et al., arXiv 1606.00915). The first is that of ``nn.models.deeplab_small`` on maps of the same size.
HEADS = (
    Head("deeplab_small", 33, 64, 64, (6, 12, 18)),
    Head("DeepLabV3 MobileNetV2", 33, 320, 256, (6, 12, 18)),
    Head("DeepLabV3 ResNet", 33, 2048, 256, (6, 12, 18)),
    Head("LargeFOV VGG16", 41, 512, 1024, (12,), 21),
)
