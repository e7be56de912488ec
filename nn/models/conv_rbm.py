"""ConvRBM: a restricted Boltzmann machine over images whose hidden units share filters. Lee et al., ICML 2009."""

from __future__ import annotations

from typing import Any

from alpha import Tensor
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry
from alpha.nn.arguments import Size, pair, positive
from alpha.nn.models import training
from alpha.nn.models.rbm import BoltzmannMachine, Statistics


class ConvRBM(BoltzmannMachine):
    """Binary images (n, H, W, in_channels) and binary hidden maps (n, H - FH + 1, W - FW + 1, filters).

    E(v, h) = -sum(b v) - sum(c h) - sum(h conv(v, weight)), the convolution valid with stride 1; b is one number a
    channel, c one per filter. p(h | v) takes a convolution, p(v | h) a transposed one with the same filters. Gradients
    are sums over positions: take a learning rate as many times smaller than an RBM's. There is no max-pooling.

    Args:
        in_channels: channels of the images.
        filters: hidden maps.
        kernel_size: the filters' size, one number or (rows, columns).
        k: Gibbs steps of the negative phase.
        persistent: whether its chains go on from one batch to the next (PCD), else start at each batch (CD).
        chains, image_size: number of chains and size of their images, where they are persistent.

    Attributes:
        weight, visible_bias, hidden_bias: (filters, FH, FW, in_channels), (in_channels,) and (filters,).
        particles: buffer, states of the persistent chains (chains, H, W, in_channels); None without.
        history: of the last ``fit``.
    """

    def __init__(
        self,
        in_channels: int,
        filters: int,
        kernel_size: Size,
        k: int = 1,
        persistent: bool = False,
        chains: int = 64,
        image_size: Size | None = None,
    ) -> None:
        self.in_channels = positive(in_channels, "in_channels", "ConvRBM")
        self.filters = positive(filters, "filters", "ConvRBM")
        self.kernel_size = pair(kernel_size, "kernel_size", "ConvRBM")
        if persistent != (image_size is not None):
            raise ArgumentError(
                f"[ConvRBM] expected image_size with persistent chains and only there, got persistent={persistent} and "
                f"image_size={image_size}: it is the size of the chains' images"
            )
        particles = None
        if image_size is not None:
            particles = (positive(chains, "chains", "ConvRBM"), *pair(image_size, "image_size", "ConvRBM"), in_channels)
            self._check_size(particles, "ConvRBM")
        super().__init__((filters, *self.kernel_size, in_channels), in_channels, filters, k, particles)

    def hidden_inputs(self, v: Tensor) -> Tensor:
        """(n, H, W, in_channels) to (n, H - FH + 1, W - FW + 1, filters)."""
        return F.conv2d(v, self.weight, self.hidden_bias, layout="NHWC")

    def visible_inputs(self, h: Tensor) -> Tensor:
        """(n, H - FH + 1, W - FW + 1, filters) to (n, H, W, in_channels)."""
        return F.conv_transpose2d(h, self.weight, self.visible_bias, layout="NHWC")

    def statistics(self, v: Tensor, h: Tensor) -> Statistics:
        """Means over the images of the filters' gradients, and of the sums of v and of h over positions."""
        geometry = Geometry.make((v.shape[1], v.shape[2]), self.kernel_size)
        weight = v.engine.conv2d_weight_grad(v.detach(), h.detach(), geometry, 1)
        n = len(v)
        return weight / n, v.sum((0, 1, 2)) / n, h.sum((0, 1, 2)) / n

    def rows(self, x: Any, function: str) -> Tensor:
        data = training.rows_of(x, (None, None, self.in_channels), function, self.weight)
        self._check_size(data.shape, function)
        training.check_unit_range(data, function)
        return data

    def _check_size(self, shape: tuple[int, ...], function: str) -> None:
        if shape[1] < self.kernel_size[0] or shape[2] < self.kernel_size[1]:
            raise ShapeError(
                f"[{function}] expected images of at least {self.kernel_size}, got {shape[1:3]}: use smaller filters"
            )

    def extra_repr(self) -> str:
        return (
            f"in_channels={self.in_channels}, filters={self.filters}, kernel_size={self.kernel_size}, k={self.k}, "
            f"persistent={self.particles is not None}"
        )
