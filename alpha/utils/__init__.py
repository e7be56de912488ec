"""What PyTorch programs import from ``torch.utils`` and ``torchvision.utils``."""

from __future__ import annotations

from alpha.utils import checkpoint, data, dlpack, safetensors
from alpha.utils.images import make_grid, save_image

__all__ = ["checkpoint", "data", "dlpack", "make_grid", "safetensors", "save_image"]
