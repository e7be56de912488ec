"""Upsample: the layers that resize sequences, images and volumes."""

from __future__ import annotations

from typing import Any

from alpha import functions as F
from alpha.errors import ArgumentError
from alpha.nn.arguments import choice
from alpha.nn.function_layer import FunctionLayer

_MODES = ("nearest", "linear", "bilinear", "bicubic", "trilinear", "nearest-exact", "area")


class _Upsample(FunctionLayer):
    """Base of the layers that are given a size or a scale."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if (self.size is None) == (self.scale_factor is None):
            got = "neither" if self.size is None else "both"
            raise ArgumentError(f"[{type(self).__name__}] expected either a size or a scale_factor, got {got}")

    def extra_repr(self) -> str:
        aim = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{aim}, mode={self.mode!r}" if "mode" in vars(self) else aim


class Upsample(
    _Upsample, function=F.interpolate, options="size scale_factor mode align_corners recompute_scale_factor"
):
    """Images (N, H, W, C) of another height and width; see ``functional.interpolate``.

    Args:
        size: rows and columns of the result.
        scale_factor: instead of a size: the result's over the input's, rounded down.
        mode: ``"nearest"``, ``"bilinear"`` or another of ``functional.interpolate``'s.
        align_corners: of ``"bilinear"`` and its like: whether the corner pixels' centres stay corners.
        recompute_scale_factor: whether the factor is the sizes' where a ``scale_factor`` is given.
        layout: the order of axes, as for ``Conv2d``.
    """

    def _checked(self, name: str, value: Any) -> Any:
        return choice(value, _MODES, "mode", "Upsample") if name == "mode" else value


class UpsamplingNearest2d(_Upsample, function=F.upsample_nearest):
    """Images of another height and width, each pixel the nearest one."""


class UpsamplingBilinear2d(_Upsample, function=F.upsample_bilinear):
    """Images of another height and width, between pixels, corners staying corners."""
