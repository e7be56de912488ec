"""Upsample: the layer that resizes images."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.errors import ArgumentError
from alpha.nn.arguments import Size, choice
from alpha.nn.layout import ImageLayer

Scale = float | tuple[float, float]


class Upsample(ImageLayer):
    """Images (N, H, W, C) of another height and width; see ``functional.interpolate``.

    Args:
        size: rows and columns of the result.
        scale_factor: instead of a size: the result's over the input's, rounded down.
        mode: ``"nearest"`` or ``"bilinear"``.
        align_corners: of ``"bilinear"``: whether the corner pixels' centres stay corners.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: Scale | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        *,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        if (size is None) == (scale_factor is None):
            got = "neither" if size is None else "both"
            raise ArgumentError(f"[Upsample] expected either a size or a scale_factor, got {got}")
        self.size = size
        self.scale_factor = scale_factor
        self.mode = choice(mode, ("nearest", "bilinear"), "mode", "Upsample")
        self.align_corners = align_corners

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, OH, OW, C)."""
        aim = (self.size, self.scale_factor)
        return F.interpolate(self._seen(x), *aim, self.mode, self.align_corners, layout=self.layout)

    def extra_repr(self) -> str:
        aim = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{aim}, mode={self.mode!r}"
