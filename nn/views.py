"""AveragedViews: a network tested on several views of each image."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.nn.module import Module


class AveragedViews(Module):
    """The mean of a network's results for several views of each image: as it is, mirrored, and shifted.

    Half of the mean is the image as it is and mirrored, left to right. The other half is both again, from an image that
    is moved by some pixels down and to the right, and from one moved up and to the left, with reflected edges. Jordan,
    arXiv 2404.00498. For testing: six times the work for a better answer.

    Args:
        module: the network, of images (N, H, W, C).
        shift: by how many pixels views are shifted; 0 leaves those views out.
        mirror: whether there are mirrored views.
    """

    def __init__(self, module: Module, shift: int = 1, mirror: bool = True) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise ArgumentError(f"[AveragedViews] expected a Module, got {described(module)}")
        self.module = module
        self.shift = whole("AveragedViews", "shift", shift, least=0)
        self.mirror = flag("AveragedViews", "mirror", mirror)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to the network's result."""
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
        result: Tensor = self.module(x)
        return (result + self.module(F.flip(x, 2))) * 0.5 if self.mirror else result

    def extra_repr(self) -> str:
        return f"shift={self.shift}, mirror={self.mirror}"
