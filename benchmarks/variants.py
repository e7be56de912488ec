"""The operators of C-K-S without one of its ideas or without both: what trimming and splitting gain, each alone.

untrimmed: the same algorithms on tensors that hold the padding's zeros, so that no filter has anything to trim. The
zeros are put there beforehand and cost no time.

zeros inserted: a deconvolution or a dilated convolution as a stride-1 convolution over a dY that holds zeros between
its elements, and all padding: what is left where nothing is split. These zeros are put there in every call, since dY
comes without them.

On the CPU all run with the direct algorithm, never Winograd's, and so does the row "direct" that they are beside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from alpha.engine import IMAGE_ORDER
from alpha.geometry import Axis, Geometry
from benchmarks.suites import Layer

DIRECT, UNTRIMMED, INSERTED = "direct", "untrimmed", "zeros inserted"

VARIANTS = {
    "conv": (DIRECT, UNTRIMMED),
    "deconv": (DIRECT, UNTRIMMED, INSERTED),
    "dilated": (DIRECT, UNTRIMMED, INSERTED),
}
"""By operator. A stride-1 convolution without trimming multiplies all the zeros there are."""

Call = Callable[[], Any]


def variant(engine: Any, layer: Layer, operator: str, name: str, x: Any, w: Any, dy: Any) -> Call:
    """A call of a variant, which computes what the operator does.

    Args:
        x, w, dy: (N, IH, IW, IC), (OC, FH, FW, IC / groups) and (N, OH, OW, OC) on the engine.
    """
    call = {"conv": _conv, "deconv": _deconv, "dilated": _dilated}[operator](engine, layer, x, w, dy, name)

    def run() -> Any:
        with _direct(engine):
            return call()

    return run


def _direct(engine: Any) -> AbstractContextManager[None]:
    if engine.name != "cpu":
        return nullcontext()
    from alpha.cpu import planner

    return planner.use("images")


def _conv(engine: Any, layer: Layer, x: Any, w: Any, _dy: Any, name: str) -> Call:
    geometry = layer.geometry
    if name == UNTRIMMED:
        x, geometry = padded(engine, x, layer.padding), _both(unpadded(geometry.rows))

    def call() -> Any:
        w.storage.touch()  # as after an optimizer's step: the filters are packed anew
        return engine.conv2d(x, w, None, geometry, layer.groups)

    return call


def _deconv(engine: Any, layer: Layer, _x: Any, w: Any, dy: Any, name: str) -> Call:
    axis = layer.geometry.rows
    if name == DIRECT:
        return lambda: engine.conv2d_input_grad(dy, w, layer.geometry, layer.groups)
    if name == UNTRIMMED:
        wide, border = surrounded(axis)
        source = padded(engine, dy, border)
        return lambda: engine.conv2d_input_grad(source, w, _both(wide), layer.groups)
    wide, border = surrounded(Axis(axis.input, axis.filter, 1, axis.padding, axis.dilation))
    inserted, place = _between_zeros(engine, dy, layer.stride, wide.output, border)

    def call() -> Any:
        place()
        return engine.conv2d_input_grad(inserted, w, _both(wide), layer.groups)

    return call


def _dilated(engine: Any, layer: Layer, x: Any, _w: Any, dy: Any, name: str) -> Call:
    axis = layer.geometry.rows
    if name == DIRECT:
        return lambda: engine.conv2d_weight_grad(x, dy, layer.geometry, layer.groups)
    source, bare = padded(engine, x, layer.padding), unpadded(axis)
    if name == UNTRIMMED:
        return lambda: engine.conv2d_weight_grad(source, dy, _both(bare), layer.groups)
    every = Axis(bare.input, axis.filter, 1, (0, 0), axis.dilation)
    inserted, place = _between_zeros(engine, dy, layer.stride, every.output, 0)

    def call() -> Any:
        place()
        return engine.conv2d_weight_grad(source, inserted, _both(every), layer.groups)

    return call


# -- zeros that are there ----------------------------------------------------------------------------------------------


def unpadded(axis: Axis) -> Axis:
    """The same outputs from an input that holds its padding."""
    return Axis(axis.input + sum(axis.padding), axis.filter, axis.stride, (0, 0), axis.dilation)


def surrounded(axis: Axis) -> tuple[Axis, int]:
    """The same input from outputs with so many zeros at both ends that every tap meets one: the axis, and how many."""
    border = -(-(axis.extent - 1) // axis.stride)
    low = axis.padding[0] + border * axis.stride
    outputs = axis.output + 2 * border
    high = (outputs - 1) * axis.stride + axis.extent - axis.input - low
    return Axis(axis.input, axis.filter, axis.stride, (low, high), axis.dilation), border


def padded(engine: Any, images: Any, border: int) -> Any:
    """Images with so many zeros on all four sides."""
    n, height, width, channels = images.shape
    out = engine.empty((n, height + 2 * border, width + 2 * border, channels), images.dtype, IMAGE_ORDER)
    engine.fill(out, 0)
    engine.copy(images, _window(out, border, 1, images.shape))
    return out


def _between_zeros(engine: Any, dy: Any, stride: int, side: int, border: int) -> tuple[Any, Call]:
    """An image tensor of a side for dY's elements a stride apart inside a border, and what fills it."""
    n, _, _, channels = dy.shape
    out = engine.empty((n, side, side, channels), dy.dtype, IMAGE_ORDER)
    window = _window(out, border, stride, dy.shape)

    def place() -> None:
        engine.fill(out, 0)
        engine.copy(dy, window)

    return out, place


def _window(out: Any, border: int, step: int, shape: tuple[int, ...]) -> Any:
    """The view of every ``step``-th pixel of images, from ``border`` on."""
    n, rows, columns, channels = out.strides
    return out.strided(out.offset + border * (rows + columns), shape, (n, rows * step, columns * step, channels))


def _both(axis: Axis) -> Geometry:
    return Geometry(axis, axis)
