"""AveragedViews: a network tested on several views of each image."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.images import channels_last, channels_second
from alpha.nn.layout import ImageLayer
from alpha.nn.module import Module


class AveragedViews(ImageLayer):
    """The mean of a network's results for several views of each image: as it is, mirrored, and shifted.

    Half of the mean is the image as it is and mirrored, left to right. The other half is both again, from an image that
    is moved by some pixels down and to the right, and from one moved up and to the left, with reflected edges. Jordan,
    arXiv 2404.00498. For testing: six times the work for a better answer.

    Args:
        module: the network, of images (N, H, W, C).
        shift: by how many pixels views are shifted; 0 leaves those views out.
        mirror: whether there are mirrored views.
        layout: the order of axes, as for ``Conv2d``.
    """

    def __init__(self, module: Module, shift: int = 1, mirror: bool = True, *, layout: str | None = None) -> None:
        super().__init__()
        self._set_layout(layout)
        if not isinstance(module, Module):
            raise ArgumentError(f"[AveragedViews] expected a Module, got {described(module)}")
        self.module = module
        self.shift = whole("AveragedViews", "shift", shift, least=0)
        self.mirror = flag("AveragedViews", "mirror", mirror)

    def forward(self, x: Tensor) -> Tensor:
        """Images to the network's result."""
        x = channels_last(x) if self.layout == "NCHW" else x
        if x.ndim != 4 or min(x.shape[1:3]) <= self.shift:
            raise ShapeError(
                f"[AveragedViews] expected images (N, H, W, C) of more than {self.shift} pixels a side, got {x.shape}"
            )
        mean = self._sides(x)
        if self.shift:
            s, (height, width) = self.shift, x.shape[1:3]
            padded = F.pad(x, (0, 0, s, s, s, s), "reflect")
            corners = padded[:, :height, :width], padded[:, 2 * s :, 2 * s :]
            mean = mean * 0.5 + (self._sides(corners[0]) + self._sides(corners[1])) * 0.25
        return mean

    def _sides(self, x: Tensor) -> Tensor:
        """The mean of the image and its mirror image."""
        result = self._run(x)
        return (result + self._run(F.flip(x, 2))) * 0.5 if self.mirror else result

    def _run(self, x: Tensor) -> Tensor:
        """The network's result for images with channels last, which it gets in its layout."""
        result: Tensor = self.module(channels_second(x) if self.layout == "NCHW" else x)
        return result

    def extra_repr(self) -> str:
        return f"shift={self.shift}, mirror={self.mirror}"
