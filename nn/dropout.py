"""Dropout: random zeros in training."""

from __future__ import annotations

from typing import Any

from alpha import functions as F
from alpha.nn.arguments import probability
from alpha.nn.function_layer import FunctionLayer

_OPTIONS = "p inplace"


class _Dropout(FunctionLayer):
    """Base of the layers that drop in training and change nothing otherwise; ``inplace`` writes the result into x."""

    def _checked(self, name: str, value: Any) -> Any:
        return probability(value, "p", type(self).__name__) if name == "p" else super()._checked(name, value)

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "training": self.training}

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout, function=F.dropout, options=_OPTIONS):
    """In training zeroes each element with probability p and scales the others by 1 / (1 - p); else changes nothing.

    The draws come from ``alpha.random`` and repeat after ``alpha.manual_seed``. ``inplace`` writes the result into x.
    """


class Dropout1d(_Dropout, function=F.dropout1d, options=_OPTIONS):
    """``Dropout`` of whole channels of sequences (N, L, C)."""


class Dropout2d(_Dropout, function=F.dropout2d, options=_OPTIONS):
    """``Dropout`` of whole channels of images (N, H, W, C)."""


class Dropout3d(_Dropout, function=F.dropout3d, options=_OPTIONS):
    """``Dropout`` of whole channels of volumes (N, D, H, W, C)."""


class AlphaDropout(_Dropout, function=F.alpha_dropout, options=_OPTIONS):
    """Dropout for networks of SELU, which keeps mean and variance."""


class FeatureAlphaDropout(_Dropout, function=F.feature_alpha_dropout, options=_OPTIONS):
    """``AlphaDropout`` of whole channels."""
