"""PyTorch's place for ``checkpoint``."""

from __future__ import annotations

from alpha.autograd.checkpoints import checkpoint

__all__ = ["checkpoint"]
