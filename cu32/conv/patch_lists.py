"""Lists of tiles that are rectangles of positions times images, with the patch of pixels that each needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from alpha import caches
from alpha.cu32.conv import patches
from alpha.cu32.conv.rectangles import Rectangle, covered
from alpha.cu32.conv.tables import Array, Classes
from alpha.cu32.costs import L2, Tile
from alpha.cu32.structs import KernelStruct
from alpha.geometry import Geometry

PATCH_TILE = KernelStruct("conv_patch.cuh", "PatchTile")

DEPTH = 16
"""Channels that a patch has; the kernel says the same."""

PIXEL = DEPTH * 4
"""Bytes of a pixel's channels."""

TOGETHER = 8
"""Images that a tile has a multiple of: as many rows as a fragment reads at once."""

RATE = 600.0
"""Multiply-adds per cycle and multiprocessor where warps have 64 x 64 sums and the caches keep up, about."""


class Line(NamedTuple):
    """Along one axis: where members of a class, so many, and their taps lie among the patch's pixels.

    Attributes:
        extent: pixels.
        before: from the first pixel to the first member's first tap, as a step of the source index.
        pixel: from a pixel to the next, the same.
        origin: the pixel of the first member's first tap.
        step, tap: from a member to the next, and from a tap to the next, in pixels.
    """

    extent: int
    before: int
    pixel: int
    origin: int
    step: int
    tap: int


def line(classes: Classes, taps: int, members: int) -> Line:
    """The pixels are as near to each other as members and taps need it. Without taps there are none."""
    if not taps:
        return Line(0, 0, 1, 0, 0, 0)
    step, tap = (classes.member_step if members > 1 else 0), (classes.step_a if taps > 1 else 0)
    pixel = math.gcd(step, tap) or 1
    before = max(0, -step) * (members - 1) + max(0, -tap) * (taps - 1)
    extent = (abs(step) * (members - 1) + abs(tap) * (taps - 1)) // pixel + 1
    return Line(extent, before, pixel, before // pixel, step // pixel, tap // pixel)


@dataclass(frozen=True)
class PatchTiles:
    """A list of tiles, the longest sums first.

    Attributes:
        tiles: (tiles, fields) int32 for a kernel.
        taps, pixels: of each, the taps, and the pixels of its patch times images.
        products: pairs of row and tap.
    """

    tiles: Array
    taps: Array
    pixels: Array
    products: int

    @property
    def largest(self) -> int:
        """Rows of the largest patch."""
        return int(self.pixels.max())


@dataclass(frozen=True, eq=False)
class _Pair:
    """A class of rows and one of columns, their taps, and what tiles of theirs are made of.

    Attributes:
        axes: the classes of both axes.
        numbers: which classes.
        images: N.
        rows: of a tile.
        capacity: rows that a patch may have.
    """

    axes: tuple[Classes, Classes]
    numbers: tuple[int, int]
    images: int
    rows: int
    capacity: int

    @cached_property
    def taps(self) -> tuple[int, int]:
        """Along both axes."""
        down, across = (int(axis.taps[number]) for axis, number in zip(self.axes, self.numbers, strict=True))
        return down, across

    @cached_property
    def size(self) -> tuple[int, int]:
        """Members along both axes."""
        down, across = (int(axis.size[number]) for axis, number in zip(self.axes, self.numbers, strict=True))
        return down, across

    def lines(self, down: int, across: int) -> tuple[Line, Line]:
        """Those of so many members."""
        return self._line(0, down), self._line(1, across)

    def _line(self, axis: int, members: int) -> Line:
        found = self._known.get((axis, members))
        if found is None:
            taps = self.taps[axis] if all(self.taps) else 0
            found = self._known[axis, members] = line(self.axes[axis], taps, members)
        return found

    @cached_property
    def _known(self) -> dict[tuple[int, int], Line]:
        """Lines by axis and number of members."""
        return {}

    def pixels(self, down: int, across: int) -> int:
        """Pixels of a patch of so many positions."""
        return self._line(0, down).extent * self._line(1, across).extent

    def pitch(self, down: int, across: int) -> int:
        """Images of a tile of so many positions: as evenly as there is room for them; 0 if there is none."""
        pixels = self.pixels(down, across)
        taps, most = math.prod(self.taps), self.rows // (down * across)
        if pixels:
            most = min(most, self.capacity // pixels, taps * self.rows // pixels)
        most = most // TOGETHER * TOGETHER
        return _whole(-(-self.images // -(-self.images // most))) if most else 0

    def price(self, columns: int) -> Callable[[int, int], float]:
        """What so many positions cost, of all images and one patch's depth: cycles to multiply, and to bring pixels."""
        taps = math.prod(self.taps)
        multiplying = max(1, taps) * self.rows * columns * DEPTH / RATE

        def of(down: int, across: int) -> float:
            pitch = self.pitch(down, across)
            if not pitch:
                return math.inf
            pixels = self.pixels(down, across)
            return -(-self.images // pitch) * (multiplying + pixels * pitch * PIXEL / L2)

        return of

    def entries(self, rectangle: Rectangle) -> Array:
        """The tiles of a grid of equal rectangles."""
        pitch = self.pitch(rectangle.down, rectangle.across)
        down, across = self.lines(rectangle.down, rectangle.across)
        image, r, c = (
            index.ravel()
            for index in np.meshgrid(
                np.arange(0, self.images, pitch),
                rectangle.row + rectangle.down * np.arange(rectangle.rows),
                rectangle.column + rectangle.across * np.arange(rectangle.columns),
                indexing="ij",
            )
        )
        rows, columns = self.axes
        members = rows.start[self.numbers[0]] + r, columns.start[self.numbers[1]] + c
        values = {
            "taps_down": self.taps[0] if down.extent else 0,
            "taps_across": self.taps[1] if across.extent else 0,
            "first_tap_down": rows.first_b[self.numbers[0]],
            "first_tap_across": columns.first_b[self.numbers[1]],
            "member_down": members[0],
            "member_across": members[1],
            "down": rectangle.down,
            "across": rectangle.across,
            "image": image,
            "images": np.minimum(pitch, self.images - image),
            "pitch": pitch,
            "height": down.extent,
            "width": across.extent,
            "source_down": rows.first_a[members[0]] - down.before,
            "source_across": columns.first_a[members[1]] - across.before,
            "pixel_down": down.pixel,
            "pixel_across": across.pixel,
            "origin_down": down.origin,
            "origin_across": across.origin,
            "step_down": down.step,
            "step_across": across.step,
            "tap_down": down.tap,
            "tap_across": across.tap,
        }
        table = np.empty((len(image), len(values)), np.int32)
        for place, one in enumerate(PATCH_TILE.fields):
            table[:, place] = values[one.name]
        return table


def _whole(images: int) -> int:
    return -(-images // TOGETHER) * TOGETHER


@caches.kept
def patch_tiles(geometry: Geometry, forward: bool, images: int, tile: Tile, capacity: int) -> PatchTiles | None:
    """Covers each class's positions by tiles, for the least time; None where a patch has no room for one position."""
    axes = patches.classes(geometry, forward)
    found, products = [], 0
    for numbers in np.ndindex(len(axes[0].taps), len(axes[1].taps)):
        pair = _Pair(axes, (numbers[0], numbers[1]), images, tile.rows, capacity)
        rectangles = covered(*pair.size, tile.rows // TOGETHER, pair.price(tile.columns))
        if rectangles is None:
            return None
        found += [pair.entries(rectangle) for rectangle in rectangles]
        products += math.prod(pair.size) * math.prod(pair.taps)
    table = np.concatenate(found)
    named = {one.name: table[:, place].astype(np.int64) for place, one in enumerate(PATCH_TILE.fields)}
    taps = named["taps_down"] * named["taps_across"]
    pixels = named["height"] * named["width"] * named["pitch"]
    order = np.lexsort((named["image"], -taps))  # tiles that share pixels one after the other
    return PatchTiles(np.ascontiguousarray(table[order]), taps[order], pixels[order], products * images)
