"""What changes other modules, and sequences of different lengths."""

from __future__ import annotations

from alpha.nn.utils import rnn
from alpha.nn.utils.spectral import remove_spectral_norm, spectral_norm

__all__ = ["remove_spectral_norm", "rnn", "spectral_norm"]
