"""Normalisation of each channel by itself, InstanceNorm1d to 3d, or by its neighbours, LocalResponseNorm."""

from __future__ import annotations

from typing import ClassVar

from alpha import Tensor, int64
from alpha import functions as F
from alpha.arguments import flag, number
from alpha.dtypes import DtypeLike
from alpha.errors import ShapeError
from alpha.functions.operands import check_tensor
from alpha.nn import init
from alpha.nn.arguments import positive, probability
from alpha.nn.function_layer import FunctionLayer
from alpha.nn.layer_norm import Affine
from alpha.nn.layout import ImageLayer
from alpha.nn.places import Device, empty, placed


class InstanceNorm(Affine, ImageLayer):
    """Base of the layers: normalisation of each channel of each sample by itself."""

    axes: ClassVar[int]
    forms: ClassVar[dict[str, str]]  # the inputs' axes by layout

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None  # stays 0, as PyTorch's: the average needs no count

    @placed
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        bias: bool = True,
        layout: str | None = None,
    ) -> None:
        name = type(self).__name__
        self.num_features = positive(num_features, "num_features", name)
        self.momentum = probability(momentum, "momentum", name)
        self.affine = affine = flag(name, "affine", affine)
        tracked = flag(name, "track_running_stats", track_running_stats)
        self.track_running_stats = track_running_stats = tracked
        super().__init__((self.num_features,), eps, affine, flag(name, "bias", bias) and affine)
        self._set_layout(layout)
        self.register_buffer("running_mean", empty(self.num_features) if track_running_stats else None)
        self.register_buffer("running_var", empty(self.num_features) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", empty(dtype=int64) if track_running_stats else None)
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Sets the running mean to 0, the running variance to 1 and the count of batches to 0."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                init.constant_(buffer, value)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ..., num_features) to the same; one sample without the axis of the batch too."""
        if x.ndim == self.axes + 1:
            alone: Tensor = self.forward(x.unsqueeze(0)).squeeze(0)
            return alone
        self._check_channels("instance_norm", x, self.num_features, (self.axes + 2,), self.forms[self.layout])
        use_sample_statistics = self.training or self.running_mean is None
        return F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            use_sample_statistics,
            self.momentum,
            self.eps,
            layout=self.layout,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class InstanceNorm1d(InstanceNorm):
    """Instance normalisation of sequences (N, L, C) or (L, C); arguments as for ``InstanceNorm2d``."""

    axes = 1
    forms: ClassVar = {"NHWC": "(N, L, C)", "NCHW": "(N, C, L)"}


class InstanceNorm2d(InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over each channel of each image (N, H, W, C).

    Ulyanov et al., arXiv 1607.08022. With running statistics, training updates them by the mean over the images of
    their means and unbiased variances, and evaluation uses them.

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: share of the newest batch in the running statistics.
        affine: whether weight and bias are learned.
        track_running_stats: whether there are running statistics; without them each image's statistics are always used.
        bias: whether a bias is learned beside the weight.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
        layout: the order of axes, as for ``Conv2d``.
    """

    axes = 2
    forms: ClassVar = {"NHWC": "(N, H, W, C)", "NCHW": "(N, C, H, W)"}


class InstanceNorm3d(InstanceNorm):
    """Instance normalisation of volumes (N, D, H, W, C) or (D, H, W, C); arguments as for ``InstanceNorm2d``."""

    axes = 3
    forms: ClassVar = {"NHWC": "(N, D, H, W, C)", "NCHW": "(N, C, D, H, W)"}


class LocalResponseNorm(FunctionLayer, function=F.local_response_norm):
    """x / (k + alpha * mean(x^2)) ^ beta, the mean over ``size`` channels around. Krizhevsky et al., NIPS 2012."""


class CrossMapLRN2d(ImageLayer):
    """x / (k + alpha * mean(x^2)) ^ beta of images, the mean over the channels around: ``LocalResponseNorm``.

    Of an even ``size`` the window is one channel smaller, but the mean is still over ``size``. In PyTorch's layer the
    first channel stays in the windows that have left it; here it does not.

    Args:
        size: channels in a window.
        alpha, beta, k: as in the formula.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1, *, layout: str | None = None
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        self.size = positive(size, "size", "CrossMapLRN2d")
        self.alpha, self.beta = number("CrossMapLRN2d", "alpha", alpha), number("CrossMapLRN2d", "beta", beta)
        number("CrossMapLRN2d", "k", k)
        self.k = k

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to the same."""
        check_tensor("CrossMapLRN2d", x)
        if x.ndim != 4:
            raise ShapeError(f"[CrossMapLRN2d] expected images with 4 axes, got {x.shape}")
        width = self.size - 1 + self.size % 2
        share = self.alpha * width / self.size
        return F.local_response_norm(x, width, share, self.beta, self.k, layout=self.layout)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
