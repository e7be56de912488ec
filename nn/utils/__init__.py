"""What changes other modules: spectral normalisation of their weights."""

from __future__ import annotations

from alpha.nn.utils.spectral import remove_spectral_norm, spectral_norm

__all__ = ["remove_spectral_norm", "spectral_norm"]
