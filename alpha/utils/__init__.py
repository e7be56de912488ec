"""What PyTorch programs import from ``torch.utils`` and ``torchvision.utils``."""

from __future__ import annotations

from alpha.utils import data

__all__ = ["data"]
