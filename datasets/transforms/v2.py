"""The transforms by the name that torchvision's second version has: ``from alpha.datasets.transforms import v2``."""

from __future__ import annotations

from alpha.datasets.transforms import *  # noqa: F403
