"""What PyTorch programs import from ``torch.utils`` and ``torchvision.utils``."""

from __future__ import annotations

from alpha.utils import data
from alpha.utils.images import make_grid, save_image

__all__ = ["data", "make_grid", "save_image"]
