"""TensorBoard's event files, by the ``tensorboard`` package's own writer."""

from __future__ import annotations

try:
    import tensorboard as _tensorboard  # noqa: F401
except ImportError as error:
    raise ImportError(
        "[alpha.utils.tensorboard] expected the package tensorboard, got none: pip install tensorboard"
    ) from error

from alpha.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
