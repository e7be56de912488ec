"""What changes other modules and their gradients: limits on gradients, spectral normalisation of weights."""

from __future__ import annotations

from alpha.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from alpha.nn.utils.spectral import remove_spectral_norm, spectral_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "remove_spectral_norm",
    "spectral_norm",
]
