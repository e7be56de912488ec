"""Layers that rearrange pixels and channels, take windows apart and put them together."""

from __future__ import annotations

from alpha.nn import functional as F
from alpha.nn.function_layer import FunctionLayer


class PixelShuffle(FunctionLayer, function=F.pixel_shuffle):
    """Each pixel's C r^2 channels as r x r pixels of C channels."""


class PixelUnshuffle(FunctionLayer, function=F.pixel_unshuffle):
    """r x r pixels of C channels as one of C r^2 channels."""


class ChannelShuffle(FunctionLayer, function=F.channel_shuffle):
    """The first channel of each group, then the second of each, and so on."""


class Unfold(FunctionLayer, function=F.unfold, axes=2):
    """Each window of images as a column."""


class Fold(FunctionLayer, function=F.fold, axes=2):
    """Columns added up where their windows lie in images of the ``output_size``."""
