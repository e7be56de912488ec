"""ConvolutionOperations: the CUDA engine's three operators of C-K-S, from tensors to plans to launches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha import bands, dtypes
from alpha.cu32 import depthwise, few_channels, patches, planner, tables, tf32
from alpha.cu32.base import MAX_GRID_YZ, DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.parts import sum_parts
from alpha.cu32.planner import Plan, Problem
from alpha.cu32.structs import KernelStruct
from alpha.engine import IMAGE_ORDER, Epilogue
from alpha.errors import EngineError, ShapeError
from alpha.geometry import Axis, Geometry
from alpha.tensor import Storage, Tensor

GATHER = KernelStruct("tile.cuh", "Gather")
LEAP = KernelStruct("leap.cuh", "Leap")

MACS = {"conv2d": 0, "conv2d_input_grad": 0, "conv2d_weight_grad": 0}
"""Multiply-adds that the last call of each operator asked for: rows x taps x channels over its list of tiles."""

FILTER_LIMIT = 2**30
"""Elements of filters: kernels hold offsets in them in 32 bits."""

TERMS_LIMIT = 2**30
"""Terms (output row, output column, image) of a filter gradient's sums: conv_weight*.cu count them in 32 bits, those of
a panel beyond the end included."""

MOST_TAPS = MAX_GRID_YZ
"""Taps of a launch of conv_weight*.cu, which has a block for each along the grid's second axis."""

_FILTERS = {"forward": "BY_DEPTH", "input_grad": "BY_WIDTH"}


def _gather_source(real: str, tile: planner.Tile, load: str, operator: str, wide: bool = False) -> Source:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return Source("conv", REAL=real, LOAD=load, FILTER=_FILTERS[operator], **tile.macros, **offset)


def _leap_source(real: str, tile: planner.Tile, load: str, wide: bool = False) -> Source:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return Source("conv_weight", REAL=real, LOAD=load, **tile.macros, **offset)


_GATHERED = [("float", tile, load) for load, listed in planner.GATHER.items() for tile in listed]
_GATHERED += [("double", planner.DOUBLE, load) for load in ("FLAT", "SCALAR")]
_LEAPT = [("float", tile, load) for load, listed in planner.LEAP.items() for tile in listed]
_LEAPT += [("double", planner.DOUBLE, "SCALAR")]
SOURCES = (
    *(
        _gather_source(*kernel, operator, wide)
        for kernel in _GATHERED
        for operator in _FILTERS
        for wide in (False, True)
        if not (wide and kernel[2] == "FLAT")  # its table of offsets holds 32 bits
    ),
    *(_leap_source(*kernel, wide) for kernel in _LEAPT for wide in (False, True)),
)


class ConvolutionOperations(DeviceEngine):
    """Convolutions over images with any strides whose channels are contiguous; other images are copied first."""

    def conv2d(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        residual: Tensor | None = None,
        slope: float | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        x, w = self._image(x), self.dense(w, range(4))
        shape = (x.shape[0], *geometry.output, w.shape[0])
        plain = residual is None and slope is None
        out, adds = self._target(shape, x.dtype, accumulate if plain else None)
        _check(x, out, w, geometry, groups)
        part = bands.middle(geometry, True)
        if part is None:
            self._gather("forward", x, w, out, bias, geometry, groups, accumulate=adds)
        else:
            found = self.conv2d(part.of_inputs(x), w, bias, part.geometry, groups)
            self._put(found, part.of_outputs(out), out, bias, adds)
        if not plain:
            out = self._activated(out, residual, slope)
        return self._accumulated(out, accumulate)

    def _activated(self, out: Tensor, residual: Tensor | None, slope: float | None) -> Tensor:
        """act(out + residual)."""
        # BatchNorm's kernel, which adds and activates in one pass, with statistics that change nothing.
        channels = out.shape[3]
        mean = self.constant(("zeros", channels, out.dtype), lambda: np.zeros(channels, out.dtype))
        var = self.constant(("ones", channels, out.dtype), lambda: np.ones(channels, out.dtype))
        return self.batch_norm_inference(out, mean, var, 0.0, Epilogue(slope=slope), residual)[0]

    def conv2d_input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        dy, w = self._image(dy), self.dense(w, range(4))
        out, adds = self._target((dy.shape[0], *geometry.input, w.shape[3] * groups), dy.dtype, accumulate)
        _check(out, dy, w, geometry, groups)
        part = bands.middle(geometry, False)
        if part is None:
            self._gather("input_grad", dy, w, out, bias, geometry, groups, accumulate=adds)
        else:
            found = self.conv2d_input_grad(part.of_outputs(dy), w, part.geometry, groups, bias)
            self._put(found, part.of_inputs(out), out, bias, adds)
        return self._accumulated(out, accumulate)

    def _put(self, found: Tensor, place: Tensor, out: Tensor, bias: Tensor | None, adds: bool) -> None:
        """The results of a part of all positions where they belong, the bias alone beside them; or added there."""
        if adds and bias is None:
            self.elementwise("add", place, found, out=place)
            return
        if adds:
            total = self.empty_like(out)
            self._put(found, total.view(place.offset - out.offset, place.shape, place.strides), total, bias, False)
            self.elementwise("add", out, total, out=out)
            return
        if bias is None:
            self.fill(out, 0)
        else:
            self.copy(bias, out)
        self.copy(found, place)

    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        x, dy = self._image(x), self._image(dy)
        dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
        _check(x, dy, dw, geometry, groups)
        if x.shape[0] * math.prod(geometry.output) >= TERMS_LIMIT:
            return self._weight_grad_of_pieces(x, dy, geometry, groups)
        products = tables.leap_products(geometry, x.shape[0])
        MACS["conv2d_weight_grad"] = products * dw.shape[3] * dw.shape[0]
        if depthwise.serves_weight(x, dw, geometry, groups):
            fours = _reads_four(x, x.shape[3]) and _reads_four(dy, dy.shape[3])
            depthwise.weight_grad(self, x, dy, dw, geometry, fours)
            return dw
        if few_channels.serves_weight(x, dy, dw, geometry, groups) and not _wide(x, dy):
            many = max(dy, x, key=lambda image: image.shape[3])
            few_channels.weight_grad(self, x, dy, dw, geometry, _reads_four(many, many.shape[3]))
            return dw
        problem = Problem(
            "weight_grad",
            geometry,
            x.shape[0],
            dw.shape[3],
            dw.shape[0] // groups,
            groups,
            c_type(x.dtype),
            _reads_four(x, dw.shape[3]) and _reads_four(dy, dw.shape[0] // groups),
            _wide(x, dy),
            splits=True,
        )
        self._leap_by(planner.chosen(self, problem, lambda p: self._leap_by(p, x, dy, self.empty_like(dw))), x, dy, dw)
        return dw

    def _weight_grad_of_pieces(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """The sum of the gradients of so few images each that no sum has too many terms."""
        positions = math.prod(geometry.output)
        most = (TERMS_LIMIT - 1) // positions
        if most == 0:
            raise EngineError(
                f"[conv2d_weight_grad] expected fewer than {TERMS_LIMIT} positions of an output image, got "
                f"{positions}: use smaller images"
            )
        total = self.conv2d_weight_grad(_images(x, 0, most), _images(dy, 0, most), geometry, groups)
        products = MACS["conv2d_weight_grad"]
        for first in range(most, x.shape[0], most):
            found = self.conv2d_weight_grad(_images(x, first, most), _images(dy, first, most), geometry, groups)
            self.elementwise("add", total, found, out=total)
            products += MACS["conv2d_weight_grad"]
        MACS["conv2d_weight_grad"] = products
        return total

    def _gather(
        self,
        operator: str,
        source: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        accumulate: bool,
    ) -> None:
        """ConvV2 or KS-deconv-V2 into ``out``, in as many parts as planned."""
        forward = operator == "forward"
        bias = None if bias is None else self.dense(bias, (0,))
        if self._gather_untiled(forward, source, w, out, bias, geometry, groups, accumulate):
            return
        in_channels, out_channels = w.shape[3], w.shape[0] // groups
        vector = in_channels % 4 == 0 and w.address % 16 == 0
        problem = Problem(
            operator,
            geometry,
            source.shape[0],
            in_channels,
            out_channels,
            groups,
            c_type(source.dtype),
            vector and _reads_four(source, in_channels if forward else out_channels),
            _wide(source, out),
            splits=not accumulate,
        )
        plan = planner.chosen(
            self, problem, lambda p: self._gather_by(p, source, w, self.empty_like(out), bias, accumulate)
        )
        self._gather_by(plan, source, w, out, bias, accumulate)

    def _gather_untiled(
        self,
        forward: bool,
        source: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        accumulate: bool,
    ) -> bool:
        """Whether one of the kernels without tiles of channels has computed it, for filters of few channels."""
        name = "conv2d" if forward else "conv2d_input_grad"
        if depthwise.serves(source, geometry, w, groups, forward):
            fours = _reads_four(source, source.shape[3]) and _reads_four(out, out.shape[3])
            found = depthwise.convolve(self, forward, source, w, out, bias, geometry, fours, accumulate)
            MACS[name] = found * w.shape[0]
            return True
        if few_channels.serves(source, w, geometry, groups, forward) and _reads_four(source, source.shape[3]):
            found = few_channels.convolve(self, forward, source, w, out, bias, geometry, accumulate)
            MACS[name] = found * w.shape[0] * w.shape[3]
            return True
        return False

    def _gather_by(
        self, plan: Plan, source: Tensor, w: Tensor, out: Tensor, bias: Tensor | None, accumulate: bool
    ) -> None:
        """The same by a plan."""
        p, geometry = plan.problem, plan.problem.geometry
        forward, groups, in_channels, out_channels = p.operator == "forward", p.groups, p.in_channels, p.out_channels
        target: Tensor | Storage = out if plan.parts == 1 else self.scratch(plan.parts * out.nbytes)
        listed = tables.tiles(geometry.rows, geometry.columns, forward, source.shape[0], plan.tile.rows)
        place = self.constant(("tiles", geometry, forward, source.shape[0], plan.tile.rows), lambda: listed.tiles)
        held = patches.gather_tables(self, place, geometry, forward)
        column_tiles = math.ceil((out_channels if forward else in_channels) / plan.tile.columns)
        source_file, kernel, shared = _kernel(plan)
        self.launch(
            source_file,
            kernel,
            (len(listed.tiles) * groups * column_tiles, plan.parts),
            plan.tile.threads,
            source,
            w,
            target,
            bias,
            patches.addresses(held),
            _gather_sizes(plan, source, w, out, column_tiles, accumulate),
            shared=shared,
        )
        if isinstance(target, Storage):
            sum_parts(self, target, plan.parts, out)
        name = "conv2d" if forward else "conv2d_input_grad"
        MACS[name] = listed.products * in_channels * out_channels * groups

    def _leap_by(self, plan: Plan, x: Tensor, dy: Tensor, dw: Tensor) -> None:
        """Sk-dilated-V2 by a plan, its parts added; a filter of very many taps is made in several pieces."""
        height, width = plan.problem.geometry.filter
        if height * width <= MOST_TAPS:
            self._leap_piece(plan, x, dy, dw, (0, 0))
            return
        down, across = max(1, MOST_TAPS // width), min(width, MOST_TAPS)
        for row in range(0, height, down):
            for column in range(0, width, across):
                size = (min(down, height - row), min(across, width - column))
                piece = self.empty((dw.shape[0], *size, dw.shape[3]), dw.dtype)
                self._leap_piece(plan, x, dy, piece, (row, column))
                offset = dw.offset + row * dw.strides[1] + column * dw.strides[2]
                self.copy(piece, dw.view(offset, piece.shape, dw.strides))

    def _leap_piece(self, plan: Plan, x: Tensor, dy: Tensor, dw: Tensor, first: tuple[int, int]) -> None:
        """The gradient of a filter, or of a rectangle of it whose first tap is ``first``: dw has its size."""
        if plan.parts == 1:
            self._leap(plan, x, dy, dw, dw, first)
            return
        parts = self.scratch(plan.parts * dw.nbytes)
        self._leap(plan, x, dy, parts, dw, first)
        sum_parts(self, parts, plan.parts, dw)

    def _leap(
        self, plan: Plan, x: Tensor, dy: Tensor, target: Tensor | Storage, dw: Tensor, first: tuple[int, int]
    ) -> None:
        """Sk-dilated-V2 into ``target``, one result of dw's size a part."""
        p, g = plan.problem, plan.problem.geometry
        out_tiles = math.ceil(p.out_channels / plan.tile.rows)
        in_tiles = math.ceil(p.in_channels / plan.tile.columns)
        rows, columns = (self._runs(axis, tap) for axis, tap in zip((g.rows, g.columns), first, strict=True))
        x_image, x_row, x_column = x.strides[:3]
        y_image, y_row, y_column = dy.strides[:3]
        sizes = LEAP.pack(
            images=p.images,
            in_width=p.in_channels,
            out_width=p.out_channels,
            in_tiles=in_tiles,
            out_tiles=out_tiles,
            filter_columns=dw.shape[2],
            x_image=x_image,
            x_row=x_row,
            x_column=x_column,
            x_step_row=x_row * g.rows.stride,
            x_step_column=x_column * g.columns.stride,
            y_image=y_image,
            y_row=y_row,
            y_column=y_column,
            parts=plan.parts,
            part_stride=dw.numel(),
            aligned=p.in_channels % 4 == 0,
        )
        source_file, kernel, shared = _kernel(plan)
        self.launch(
            source_file,
            kernel,
            (p.groups * out_tiles * in_tiles, dw.shape[1] * dw.shape[2], plan.parts),
            plan.tile.threads,
            x,
            dy,
            target,
            rows,
            columns,
            sizes,
            shared=shared,
        )

    def _runs(self, axis: Axis, first: int) -> Tensor:
        """What each tap of an axis meets, from a tap on."""
        table = self.constant(("runs", axis), tables.by_tap(axis).array)
        shape = (table.shape[0] - first, *table.shape[1:])
        return table.view(table.offset + first * table.strides[0], shape, table.strides)

    def _target(self, shape: tuple[int, ...], dtype: np.dtype[Any], accumulate: Tensor | None) -> tuple[Tensor, bool]:
        """Where a result is written, and whether by adding to what is there: ``accumulate`` where it lies dense."""
        if accumulate is not None and accumulate.shape == shape and accumulate.is_contiguous(IMAGE_ORDER):
            return accumulate, True
        return self.empty(shape, dtype, IMAGE_ORDER), False

    def _accumulated(self, out: Tensor, accumulate: Tensor | None) -> Tensor:
        """The result, added into ``accumulate`` unless it was written there."""
        if accumulate is None or accumulate is out:
            return out
        return self.elementwise("add", accumulate, out, out=accumulate)

    def _image(self, x: Tensor) -> Tensor:
        """x with contiguous channels, each pixel a run of memory; a copy in image order where it is not so."""
        if (x.strides[3] == 1 or x.shape[3] == 1) and min(x.strides[:3]) >= x.shape[3]:
            return x
        return self.dense(x, IMAGE_ORDER)


def _kernel(plan: Plan) -> tuple[Source, str, int]:
    """The source, the kernel and the bytes of dynamic shared memory that a plan launches."""
    p = plan.problem
    if plan.load == tf32.LOAD:
        return tf32.kernel(plan)
    if p.operator == "weight_grad":
        return _leap_source(p.real, plan.tile, plan.load, p.wide), "conv_weight", 0
    return _gather_source(p.real, plan.tile, plan.load, p.operator, p.wide), "conv", 0


def _gather_sizes(plan: Plan, source: Tensor, w: Tensor, out: Tensor, column_tiles: int, accumulate: bool) -> bytes:
    """The sizes and strides of a convolution or an input gradient."""
    p, g = plan.problem, plan.problem.geometry
    forward = p.operator == "forward"
    rows, columns = ((tables.by_output if forward else tables.by_input)(axis) for axis in (g.rows, g.columns))
    depth, width = (p.in_channels, p.out_channels) if forward else (p.out_channels, p.in_channels)
    row, column, one_filter = w.shape[2] * w.shape[3], w.shape[3], math.prod(w.shape[1:])
    return GATHER.pack(
        images=p.images,
        depth=depth,
        width=width,
        groups=p.groups,
        column_tiles=column_tiles,
        a_image=source.strides[0],
        a_row=source.strides[1],
        a_column=source.strides[2],
        a_tap_row=rows.step_a * source.strides[1],
        a_tap_column=columns.step_a * source.strides[2],
        b_depth=1 if forward else one_filter,
        b_width=one_filter if forward else 1,
        b_group=p.out_channels * one_filter,
        b_row=row,
        b_column=column,
        b_tap_row=rows.step_b * row,
        b_tap_column=columns.step_b * column,
        out_image=out.strides[0],
        out_row=out.strides[1],
        out_column=out.strides[2],
        part_stride=out.numel(),
        parts=plan.parts,
        aligned=width % 4 == 0 and out.address % 16 == 0,
        accumulate=accumulate,
    )


def _check(x: Tensor, y: Tensor, w: Tensor, geometry: Geometry, groups: int) -> None:
    """EngineError where images are not of the geometry's sizes, filters too large; ShapeError where they don't fit."""
    if x.shape[1:3] != geometry.input or y.shape[1:3] != geometry.output or x.shape[0] != y.shape[0]:
        raise EngineError(
            f"[convolution] expected images of {geometry.input} and results of {geometry.output}, got x: {x.shape} and "
            f"y: {y.shape}"
        )
    expected = (y.shape[3], *geometry.filter, x.shape[3] // groups)
    if w.shape != expected or w.shape[0] % groups or x.shape[3] % groups:
        raise ShapeError(f"[convolution] expected filters {expected} in {groups} groups, got {w.shape}")
    if w.numel() >= FILTER_LIMIT:
        raise EngineError(f"[convolution] expected fewer than {FILTER_LIMIT} elements of filters, got {w.numel()}")


def _extent(x: Tensor) -> int:
    """Elements from a tensor's first to the end of its last."""
    return sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + 1


def _images(x: Tensor, first: int, most: int) -> Tensor:
    """So many of a batch's images from the first on, or what is left of them."""
    shape = (min(most, x.shape[0] - first), *x.shape[1:])
    return x.view(x.offset + first * x.strides[0], shape, x.strides)


def _wide(*tensors: Tensor) -> bool:
    """Whether an offset within one of them needs more than 32 bits, the walk's step beyond the end counted in."""
    return any(_extent(x) >= 2**30 for x in tensors)


def _reads_four(x: Tensor, channels: int) -> bool:
    """Whether four channels of a group may be read at once anywhere in an image of float32."""
    steps = [s for n, s in zip(x.shape[:3], x.strides[:3], strict=True) if n > 1]
    return x.dtype == dtypes.float32 and channels % 4 == 0 and x.address % 16 == 0 and all(s % 4 == 0 for s in steps)
