"""The transforms by the name that torchvision's second version has: ``from alpha.datasets.transforms import v2``."""

from __future__ import annotations

from alpha.datasets import transforms
from alpha.datasets.transforms import *  # noqa: F403

__all__ = [*transforms.__all__]  # noqa: PLE0604 (they are strings)
