"""ConvolutionOperations: the CUDA engine's three operators of C-K-S, from tensors to plans to launches."""

from __future__ import annotations

import math
import struct
from typing import Any

from alpha import dtypes
from alpha.engine import IMAGE_ORDER
from alpha.errors import EngineError, ShapeError
from alpha.geometry import Axis, Geometry
from alpha.tensor import Storage, Tensor
from cu32 import planner, tables, tf32
from cu32.base import DeviceEngine, c_type
from cu32.compiler import Source
from cu32.parts import sum_parts
from cu32.planner import Plan, Problem

MACS = {"conv2d": 0, "conv2d_input_grad": 0, "conv2d_weight_grad": 0}
"""Multiply-adds that the last call of each operator asked for: rows x taps x channels over its list of tiles."""

_FILTERS = {"forward": "BY_DEPTH", "input_grad": "BY_WIDTH"}


def _gather_source(real: str, tile: planner.Tile, load: str, operator: str, wide: bool = False) -> Source:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return Source("conv", REAL=real, LOAD=load, FILTER=_FILTERS[operator], **tile.macros, **offset)


def _leap_source(real: str, tile: planner.Tile, load: str, wide: bool = False) -> Source:
    offset: dict[str, Any] = {"OFFSET": "int64"} if wide else {}
    return Source("conv_weight", REAL=real, LOAD=load, **tile.macros, **offset)


SOURCES = (
    *(
        _gather_source("float", tile, load, operator)
        for load, listed in planner.GATHER.items()
        for tile in listed
        for operator in _FILTERS
    ),
    *(_gather_source("double", planner.DOUBLE, load, operator) for load in ("FLAT", "SCALAR") for operator in _FILTERS),
    *(_leap_source("float", tile, load) for load, listed in planner.LEAP.items() for tile in listed),
    _leap_source("double", planner.DOUBLE, "SCALAR"),
)


class ConvolutionOperations(DeviceEngine):
    """Convolutions over images with any strides whose channels are contiguous; other images are copied first."""

    def conv2d(self, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, groups: int) -> Tensor:
        x, w = self._image(x), self.dense(w, range(4))
        out = self.empty((x.shape[0], *geometry.output, w.shape[0]), x.dtype, IMAGE_ORDER)
        _check(x, out, w, geometry, groups)
        self._gather("forward", x, w, out, bias, geometry, groups, accumulate=False)
        return out

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
        shape = (dy.shape[0], *geometry.input, w.shape[3] * groups)
        adds = accumulate is not None and accumulate.shape == shape and accumulate.is_contiguous(IMAGE_ORDER)
        out = accumulate if accumulate is not None and adds else self.empty(shape, dy.dtype, IMAGE_ORDER)
        _check(out, dy, w, geometry, groups)
        self._gather("input_grad", dy, w, out, bias, geometry, groups, accumulate=adds)
        if accumulate is not None and out is not accumulate:
            return self.elementwise("add", accumulate, out, out=accumulate)
        return out

    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        x, dy = self._image(x), self._image(dy)
        dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
        _check(x, dy, dw, geometry, groups)
        problem = Problem(
            "weight_grad",
            geometry,
            x.shape[0],
            dw.shape[3],
            dw.shape[0] // groups,
            groups,
            c_type(x.dtype),
            _reads_four(x, dw.shape[3]) and _reads_four(dy, dw.shape[0] // groups),
            _wide(x, dy, dw),
            splits=True,
        )
        plan = self._plan(problem)
        if plan.parts == 1:
            self._leap(plan, x, dy, dw)
        else:
            parts = self.scratch(plan.parts * dw.nbytes)
            self._leap(plan, x, dy, parts)
            sum_parts(self, parts, plan.parts, dw)
        products = int(tables.leaps(geometry, x.shape[0]).sum())
        MACS["conv2d_weight_grad"] = products * dw.shape[3] * dw.shape[0]
        return dw

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
            _wide(source, w, out),
            splits=not accumulate,
        )
        plan = self._plan(problem)
        bias = None if bias is None else self.dense(bias, (0,))
        target: Tensor | Storage = out if plan.parts == 1 else self.scratch(plan.parts * out.nbytes)
        listed = tables.tiles(geometry.rows, geometry.columns, forward, source.shape[0], plan.tile.rows)
        place = self.constant(("tiles", geometry, forward, source.shape[0], plan.tile.rows), lambda: listed.tiles)
        axes = [table for axis in (geometry.rows, geometry.columns) for table in self._classes(axis, forward)]
        addresses = struct.pack("5q", place.address, *(table.address for table in axes))
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
            addresses,
            _gather_sizes(plan, source, w, out, column_tiles, accumulate),
            shared=shared,
        )
        if isinstance(target, Storage):
            sum_parts(self, target, plan.parts, out)
        name = "conv2d" if forward else "conv2d_input_grad"
        MACS[name] = listed.products * in_channels * out_channels * groups

    def _classes(self, axis: Axis, forward: bool) -> tuple[Tensor, Tensor]:
        """An axis's classes and their members on the device."""
        classes = tables.by_output(axis) if forward else tables.by_input(axis)
        return (
            self.constant(("classes", axis, forward), classes.class_array),
            self.constant(("members", axis, forward), classes.member_array),
        )

    def _leap(self, plan: Plan, x: Tensor, dy: Tensor, target: Tensor | Storage) -> None:
        """Sk-dilated-V2 into ``target``, one result a part."""
        p, g = plan.problem, plan.problem.geometry
        out_tiles = math.ceil(p.out_channels / plan.tile.rows)
        in_tiles = math.ceil(p.in_channels / plan.tile.columns)
        taps = g.rows.filter * g.columns.filter
        sizes = struct.pack(
            "17q",
            p.images,
            p.in_channels,
            p.out_channels,
            in_tiles,
            out_tiles,
            g.columns.filter,
            *x.strides[:3],
            x.strides[1] * g.rows.stride,
            x.strides[2] * g.columns.stride,
            *dy.strides[:3],
            plan.parts,
            p.out_channels * p.groups * taps * p.in_channels,
            p.in_channels % 4 == 0,
        )
        source_file, kernel, shared = _kernel(plan)
        self.launch(
            source_file,
            kernel,
            (p.groups * out_tiles * in_tiles, taps, plan.parts),
            plan.tile.threads,
            x,
            dy,
            target,
            self.constant(("runs", g.rows), tables.by_tap(g.rows).array),
            self.constant(("runs", g.columns), tables.by_tap(g.columns).array),
            sizes,
            shared=shared,
        )

    def _plan(self, problem: Problem) -> Plan:
        """On the tensor cores where the precision allows it and they serve, else in float32."""
        if tf32.serves(self, problem):
            return tf32.plan(problem, self.device)
        return planner.plan(problem, self.device.multiprocessors)

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
    """``struct Gather`` of kernels/tile.cuh."""
    p, g = plan.problem, plan.problem.geometry
    forward = p.operator == "forward"
    rows, columns = ((tables.by_output if forward else tables.by_input)(axis) for axis in (g.rows, g.columns))
    depth, width = (p.in_channels, p.out_channels) if forward else (p.out_channels, p.in_channels)
    row, column, one_filter = w.shape[2] * w.shape[3], w.shape[3], math.prod(w.shape[1:])
    return struct.pack(
        "24q",
        p.images,
        depth,
        width,
        p.groups,
        column_tiles,
        *source.strides[:3],
        rows.step_a * source.strides[1],
        columns.step_a * source.strides[2],
        *((1, one_filter) if forward else (one_filter, 1)),
        p.out_channels * one_filter,
        row,
        column,
        rows.step_b * row,
        columns.step_b * column,
        *out.strides[:3],
        out.numel(),
        plan.parts,
        width % 4 == 0 and out.address % 16 == 0,
        accumulate,
    )


def _check(x: Tensor, y: Tensor, w: Tensor, geometry: Geometry, groups: int) -> None:
    """EngineError where images are not of the geometry's sizes, ShapeError where filters are not."""
    if x.shape[1:3] != geometry.input or y.shape[1:3] != geometry.output or x.shape[0] != y.shape[0]:
        raise EngineError(
            f"[convolution] expected images of {geometry.input} and results of {geometry.output}, got x: {x.shape} and "
            f"y: {y.shape}"
        )
    expected = (y.shape[3], *geometry.filter, x.shape[3] // groups)
    if w.shape != expected or w.shape[0] % groups or x.shape[3] % groups:
        raise ShapeError(f"[convolution] expected filters {expected} in {groups} groups, got {w.shape}")


def _extent(x: Tensor) -> int:
    """Elements from a tensor's first to the end of its last."""
    return sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + 1


def _wide(*tensors: Tensor) -> bool:
    """Whether an offset within one of them needs more than 32 bits, the walk's step beyond the end counted in."""
    return any(_extent(x) >= 2**30 for x in tensors)


def _reads_four(x: Tensor, channels: int) -> bool:
    """Whether four channels of a group may be read at once anywhere in an image of float32."""
    steps = [s for n, s in zip(x.shape[:3], x.strides[:3], strict=True) if n > 1]
    return x.dtype == dtypes.float32 and channels % 4 == 0 and x.address % 16 == 0 and all(s % 4 == 0 for s in steps)
