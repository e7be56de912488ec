"""ALGORITHMS: the one list of what can compute convolutions."""

from __future__ import annotations

from alpha.cpu.conv.algorithm import Algorithm
from alpha.cpu.conv.columns import Columns
from alpha.cpu.conv.depthwise import Depthwise
from alpha.cpu.conv.few_channels import FewChannels
from alpha.cpu.conv.images import Images
from alpha.cpu.conv.lanes import Lanes
from alpha.cpu.conv.panels import Panels
from alpha.cpu.conv.positions import Positions
from alpha.cpu.conv.tap_rows import TapRows
from alpha.cpu.conv.taps import Taps
from alpha.cpu.conv.winograd import Winograd, WinogradOfWords
from alpha.cpu.conv.winograd_gradient import WinogradGradient

ALGORITHMS: list[Algorithm] = [
    Depthwise(),
    Images(),
    Positions(),
    Panels(),
    TapRows(),
    FewChannels(),
    Taps(),
    Winograd("winograd", 2),
    Winograd("winograd3", 3),
    Winograd("winograd4", 4),
    WinogradOfWords("winograd_words", 2),
    WinogradGradient("winograd", 2),
    WinogradGradient("winograd3", 3),
    WinogradGradient("winograd4", 4),
    Lanes(),
    Columns(),
]
"""In order of preference, which decides where costs are equal. One name belongs to one algorithm of an operator."""
