"""Lazy normalisation layers, whose number of channels the first call or a loaded state tells."""

from __future__ import annotations

from typing import Any, ClassVar

from alpha import Tensor
from alpha.dtypes import DtypeLike
from alpha.errors import ShapeError
from alpha.nn.instance_norm import InstanceNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from alpha.nn.layout import ImageLayer
from alpha.nn.lazy import LazyModule
from alpha.nn.norm import BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d
from alpha.nn.places import Device, placed


class _LazyNorm(LazyModule, ImageLayer):
    """Base of the layers whose ``num_features`` are the first input's channels."""

    forms: ClassVar[dict[str, str]]
    num_features: int
    reset_running_stats: Any
    reset_parameters: Any

    def _put_off(self) -> None:
        """Leaves the shapes of parameters and buffers open."""
        self.num_features = 0
        self._wait("weight", "bias", "running_mean", "running_var")

    def _channels(self, x: Tensor) -> int:
        """The number of an input's channels; ShapeError where it has other axes than the layer takes."""
        raise NotImplementedError

    def _misshapen(self, x: Tensor) -> ShapeError:
        return ShapeError(f"[{type(self).__name__}] expected an input {self.forms[self.layout]}, got shape {x.shape}")

    def initialize_parameters(self, x: Tensor) -> None:
        self.num_features = self._channels(x)
        waiting = self._waiting()
        for one in waiting.values():
            one.materialize((self.num_features,))
        if waiting:
            self.reset_running_stats()
            self.reset_parameters()


class _LazyBatchNorm(_LazyNorm, BatchNorm):
    """Base of the lazy batch normalisations."""

    @placed
    def __init__(
        self,
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
        super().__init__(1, eps, momentum, affine, track_running_stats, bias=bias, layout=layout)
        self._put_off()

    def _channels(self, x: Tensor) -> int:
        if x.ndim not in self.axes:
            raise self._misshapen(x)
        return x.shape[self._channel_axis(x.ndim)]


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """A BatchNorm1d whose ``num_features`` are the first input's channels; arguments as for BatchNorm1d."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """A BatchNorm2d whose ``num_features`` are the first input's channels; arguments as for BatchNorm2d."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """A BatchNorm3d whose ``num_features`` are the first input's channels; arguments as for BatchNorm3d."""

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm, InstanceNorm):
    """Base of the lazy instance normalisations; affine and with running statistics unless told otherwise."""

    @placed
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        bias: bool = True,
        layout: str | None = None,
    ) -> None:
        super().__init__(1, eps, momentum, affine, track_running_stats, bias=bias, layout=layout)
        self._put_off()

    def _channels(self, x: Tensor) -> int:
        missing = self.axes + 2 - x.ndim  # 1 for one sample alone
        if missing not in (0, 1):
            raise self._misshapen(x)
        return x.shape[self._channel_axis(self.axes + 2) - missing]


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An InstanceNorm1d whose ``num_features`` are the first input's channels; arguments as for InstanceNorm2d."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An InstanceNorm2d whose ``num_features`` are the first input's channels; arguments as for InstanceNorm2d."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An InstanceNorm3d whose ``num_features`` are the first input's channels; arguments as for InstanceNorm2d."""

    cls_to_become = InstanceNorm3d
