"""Batch normalisation layers: BatchNorm1d, BatchNorm2d, BatchNorm3d."""

from __future__ import annotations

from typing import ClassVar

from alpha import Tensor, int64, no_grad
from alpha import functions as F
from alpha.arguments import flag, number
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, ShapeError
from alpha.nn import init
from alpha.nn.arguments import positive
from alpha.nn.layout import ImageLayer
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty, empty_parameter, placed
from alpha.records import BatchNormState, RunningStatistics, ToNormalise


class BatchNorm(ImageLayer):
    """Normalisation over all axes but that of channels, with an optional residual and activation fused."""

    axes: tuple[int, ...]  # how many axes its input may have
    forms: ClassVar[dict[str, str]]  # the inputs' axes by layout
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    @placed
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        bias: bool = True,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self._set_layout(layout)
        self.num_features = positive(num_features, "num_features", name)
        eps = number(name, "eps", eps)
        momentum = None if momentum is None else number(name, "momentum", momentum)
        affine, bias = flag(name, "affine", affine), flag(name, "bias", bias)
        track_running_stats = flag(name, "track_running_stats", track_running_stats)
        if not eps >= 0 or (momentum is not None and not 0 <= momentum <= 1):
            raise ArgumentError(
                f"[{name}] expected eps >= 0 and momentum from 0 to 1 or None, got eps={eps} and momentum={momentum}"
            )
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.weight = empty_parameter(self.num_features) if affine else None
        self.bias = empty_parameter(self.num_features) if affine and bias else None
        self.register_buffer("running_mean", empty(self.num_features) if track_running_stats else None)
        self.register_buffer("running_var", empty(self.num_features) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", empty(dtype=int64) if track_running_stats else None)
        self.reset_running_stats()
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Sets the running mean to 0, the running variance to 1 and the count of batches to 0."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                init.constant_(buffer, value)

    def reset_parameters(self) -> None:
        """Sets the weight to 1 and the bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        activation: str | None = None,
        negative_slope: float = 0.01,
    ) -> Tensor:
        """act(normalised x * weight + bias + residual), in one pass over memory.

        Args:
            x: channels where the layout has them.
            residual: added before the activation, shaped as x.
            activation: ``None``, ``"relu"`` or ``"leaky_relu"``.
            negative_slope: the leaky_relu's.
        """
        self._check_channels("batch_norm", x, self.num_features, self.axes, self.forms[self.layout])
        running = (self.running_mean, self.running_var)
        share = 0.0
        if self.training and self.running_mean is not None:
            share = 1.0 if self.momentum is None else self.momentum
            if self.momentum is None and self.running_var is not None:
                # The layer then takes the batch's statistics, for _average to work with.
                running = (F.zeros_like(self.running_mean), F.zeros_like(self.running_var))
        counter = self.num_batches_tracked if share > 0 else None
        counted = None if counter is None else counter.version
        statistics = RunningStatistics(*running, share, counter)
        y = self._normalised(x, statistics, residual, activation, negative_slope)
        if running[0] is not self.running_mean and counter is not None and counter.version != counted:
            self._average(counter, *running)
        return y

    def to_normalise(self, x: Tensor, state: BatchNormState | None = None) -> ToNormalise | None:
        """What a call in training does with images (N, H, W, C) alone; None where it does something else or more.

        ``state``: their statistics, where they are known.
        """
        running = self.running_in_training()
        if running is None or x.ndim != 4 or x.shape[-1] != self.num_features or x.numel() == self.num_features:
            return None
        return ToNormalise(x, self.weight, self.bias, running, self.eps, state)

    def running_in_training(self) -> RunningStatistics | None:
        """What a call in training updates, of images (N, H, W, C) alone; None where it does something else or more."""
        if not self.training or self.layout != "NHWC" or not self.momentum or self.running_mean is None:
            return None
        return RunningStatistics(self.running_mean, self.running_var, self.momentum, self.num_batches_tracked)

    def _normalised(
        self,
        x: Tensor,
        running: RunningStatistics,
        residual: Tensor | None,
        activation: str | None,
        negative_slope: float,
    ) -> Tensor:
        """The result; in training the batch's statistics go into the running ones."""
        batch_statistics = self.training or self.running_mean is None
        if batch_statistics and x.numel() == self.num_features:
            raise ShapeError(
                f"[batch_norm] expected more than 1 value per channel when training, got x: {x.shape}: use a larger "
                "batch, or eval()"
            )
        return F.batch_norm(
            x,
            running.mean,
            running.var,
            self.weight,
            self.bias,
            training=batch_statistics,
            momentum=running.momentum,
            eps=self.eps,
            residual=residual,
            activation=activation,
            negative_slope=negative_slope,
            num_batches_tracked=running.batches,
            layout=self.layout,
        )

    @no_grad()
    def _average(self, counter: Tensor, mean: Tensor | None, var: Tensor | None) -> None:
        """Takes a batch's statistics into the average over all batches, where the engine keeps their count."""
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            if running is not None and new is not None:
                running.add_((new - running) / counter)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(BatchNorm):
    """Batch normalisation of (N, C), or of (N, L, C), over all axes but the last. Ioffe & Szegedy, arXiv 1502.03167.

    y = (x - mean) / sqrt(var + eps) * weight + bias. In training mode mean and (biased) variance are the batch's, and
    the running statistics take over ``momentum`` of them (of the unbiased variance); in evaluation mode the running
    statistics are used.

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: share of the newest batch in the running statistics; None for the average over all batches.
        affine: whether weight and bias are learned.
        track_running_stats: whether there are running statistics; without them each batch's statistics are always used.
        bias: whether a bias is learned beside the weight.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
        layout: the order of axes, as for ``Conv2d``.
    """

    axes = (2, 3)
    forms: ClassVar = {"NHWC": "(N, C) or (N, L, C)", "NCHW": "(N, C) or (N, C, L)"}


class BatchNorm2d(BatchNorm):
    """Batch normalisation of images (N, H, W, C) over N, H and W; arguments as for BatchNorm1d.

    ``forward`` takes a residual and an activation to be fused: ``bn(x, residual=shortcut, activation="relu")``.
    """

    axes = (4,)
    forms: ClassVar = {"NHWC": "(N, H, W, C)", "NCHW": "(N, C, H, W)"}


class BatchNorm3d(BatchNorm):
    """Batch normalisation of volumes (N, D, H, W, C) over all axes but the last; arguments as for BatchNorm1d."""

    axes = (5,)
    forms: ClassVar = {"NHWC": "(N, D, H, W, C)", "NCHW": "(N, C, D, H, W)"}
