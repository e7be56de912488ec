"""ConvolutionOperations: the CPU engine's three operators of C-K-S, from tensors to plans to kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from alpha import bands
from alpha.autograd import is_inference
from alpha.cpu import (
    depthwise,
    few_channels,
    image_lanes,
    panels,
    planner,
    plans,
    positions,
    tap_columns,
    tap_rows,
    winograd,
    winograd_gradient,
)
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import convolution as kernels
from alpha.cpu.kernels import depthwise as depthwise_kernels
from alpha.cpu.kernels import few_channels as few_channels_kernels
from alpha.cpu.kernels import image_lanes as image_lanes_kernels
from alpha.cpu.kernels import panels as panels_kernels
from alpha.cpu.kernels import positions as positions_kernels
from alpha.cpu.kernels import tap_columns as tap_columns_kernels
from alpha.cpu.kernels import tap_rows as tap_rows_kernels
from alpha.cpu.kernels import winograd as winograd_kernels
from alpha.cpu.kernels import winograd_gradient as winograd_gradient_kernels
from alpha.cpu.kernels import winograd_stages
from alpha.cpu.kernels.microkernel import ACTIVATE, ADD, BIAS, STORE
from alpha.engine import IMAGE_ORDER
from alpha.errors import EngineError, ShapeError
from alpha.geometry import Geometry
from alpha.tensor import Tensor

MACS = {"conv2d": 0, "conv2d_input_grad": 0, "conv2d_weight_grad": 0}
"""Multiply-adds that the last call of each operator issued, as counted by its kernel."""


SET_BYTES, WAYS = 4096, 8
"""Of the first cache: lines so far apart share a set, which holds so many of them."""

APART = 5 * 64
"""Bytes between the copies of images: a tile's fall into sets all over the cache, as its panel of filters does."""

FEW_BYTES = 1 << 20
"""Of a copy that may lie beside the pool."""

SPREAD_WORK = 1000
"""Least operations for each number of x that repay its copy."""


class ConvolutionOperations(HostEngine):
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
        x = self._image(x)
        if groups == 1:
            x = self._spread(x, geometry, w.shape[0])
        shape = (x.shape[0], *geometry.output, w.shape[0])
        plain = residual is None and slope is None
        out, added = self._target(shape, x.dtype, accumulate if plain else None)
        added = residual if added is None else added
        if geometry.long_output:
            MACS["conv2d"] = self._in_bands(geometry, True, groups, x, w, out, bias, added, slope)
            return self._accumulated(out, accumulate)
        w, geometry = _reaching(w, geometry), geometry.reached
        problem = _problem(x, out, geometry, groups)
        MACS["conv2d"] = self._convolve(problem, True, x, w, out, bias, added, slope)
        return self._accumulated(out, accumulate)

    def conv2d_input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        dy = self._image(dy)
        out, added = self._target((dy.shape[0], *geometry.input, w.shape[3] * groups), dy.dtype, accumulate)
        if geometry.long_input:
            MACS["conv2d_input_grad"] = self._in_bands(geometry, False, groups, dy, w, out, bias, added, None)
            return self._accumulated(out, accumulate)
        w, geometry = _reaching(w, geometry), geometry.reached
        problem = _problem(out, dy, geometry, groups)
        MACS["conv2d_input_grad"] = self._convolve(problem, False, dy, w, out, bias, added)
        return self._accumulated(out, accumulate)

    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        if x.dtype != dy.dtype:  # the kernels read both by x's
            raise ShapeError(f"[convolution] expected dy of x's {x.dtype}, got {dy.dtype}: convert one of them")
        if geometry.reached is not geometry:  # taps that reach x nowhere have a gradient of zero
            dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
            rows, columns = (
                slice(axis.reaching.start, axis.reaching.stop) for axis in (geometry.rows, geometry.columns)
            )
            filters = self.array(dw)
            filters.fill(0)
            filters[:, rows, columns] = self.array(self.conv2d_weight_grad(x, dy, geometry.reached, groups))
            return dw
        x, dy = self._image(x), self._image(dy)
        if geometry.columns.extent > bands.SPAN and geometry.columns.dilation > 1:
            return self._weight_grad_by_taps(x, dy, geometry, groups)
        if geometry.long_output:
            return self._weight_grad_in_bands(x, dy, geometry, groups)
        problem = _problem(x, dy, geometry, groups)
        algorithm = planner.weight_algorithm(problem)
        if algorithm == "depthwise":
            return self._depthwise_weight_grad(depthwise.plan(problem, True, True), problem, x, dy)
        if algorithm == "tap rows":
            if dy.shape[0] > 1 and dy.strides[0] > dy.strides[2]:  # its products read a pixel's images side by side
                dy = self.dense(dy, IMAGE_ORDER)
                problem = _problem(x, dy, geometry, groups)
            return self._tap_rows(tap_rows.plan(problem), problem, x, dy)
        if algorithm == "few channels":
            return self._few_channels(few_channels.plan(problem), problem, x, dy)
        if algorithm in winograd.RESULTS:
            tiled = winograd_gradient.plan(problem, winograd.RESULTS[algorithm])
            return self._winograd_gradient(tiled, problem, x, dy)
        plan = plans.weight_grad(problem)
        dw = self.empty((dy.shape[3], *geometry.filter, problem.group_in), x.dtype)
        target = dw if plan.parts == 1 else self.empty((plan.parts, *dw.shape), x.dtype)
        if plan.clear:
            self.array(target).fill(0)
        MACS["conv2d_weight_grad"] = self.launch(
            kernels.leap, _tag(x), plan.rows, plan.columns, plan.sizes, plan.pack, x.address, dy.address,
            target.address, tasks=plan.tasks,
        )  # fmt: skip
        return self._sum_of_parts(target, dw)

    def _in_bands(
        self,
        geometry: Geometry,
        by_output: bool,
        groups: int,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        slope: float | None,
    ) -> int:
        """``_convolve``, a band of the result after the other."""
        parts, all_positions = bands.parts(geometry, by_output)
        if residual is not None and residual is not out:
            residual = self.dense(residual, IMAGE_ORDER)
        if not all_positions:
            self._between_bands(out, bias, residual, slope)
        macs = 0
        for part in parts:
            source, target = (part.of_inputs, part.of_outputs)[:: 1 if by_output else -1]
            from_x, to = source(x), target(out)
            added = to if residual is out else None if residual is None else target(residual)
            cut, reached = _reaching(w, part.geometry), part.geometry.reached
            ends = (from_x, to) if by_output else (to, from_x)
            macs += self._convolve(_problem(*ends, reached, groups), by_output, from_x, cut, to, bias, added, slope)
        return macs

    def _between_bands(self, out: Tensor, bias: Tensor | None, residual: Tensor | None, slope: float | None) -> None:
        """What no product is added to: the bias, the residual, and the activation of both."""
        if residual is out:
            if bias is not None:
                self.elementwise("add", out, bias, out=out)
            return
        if bias is None:
            self.fill(out, 0)
        else:
            self.copy(bias, out)
        if residual is not None:
            self.elementwise("add", out, residual, out=out)
        if slope is not None:
            for row, first in itertools.product(range(out.shape[1]), range(0, out.shape[2], bands.EMPTY)):
                values = self.array(out)[:, row, first : first + bands.EMPTY]
                np.multiply(values, values.dtype.type(slope), out=values, where=~(values > 0))

    def _weight_grad_in_bands(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """The sum of the filter gradients of all bands of outputs."""
        dw, macs = None, 0
        for part in bands.parts(geometry, True)[0]:
            own = self.conv2d_weight_grad(part.of_inputs(x), part.of_outputs(dy), part.geometry, groups)
            macs += MACS["conv2d_weight_grad"]
            dw = own if dw is None else self.elementwise("add", dw, own, out=dw)
        MACS["conv2d_weight_grad"] = macs
        if dw is None:
            dw = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype)
            self.fill(dw, 0)
        return dw

    def _weight_grad_by_taps(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """Taps of the columns one by one, where they lie so far apart that little between them is ever met."""
        dw, macs = self.empty((dy.shape[3], *geometry.filter, x.shape[3] // groups), x.dtype), 0
        self.fill(dw, 0)
        for tap, part in bands.taps(geometry):
            own = self.conv2d_weight_grad(part.of_inputs(x), part.of_outputs(dy), part.geometry, groups)
            macs += MACS["conv2d_weight_grad"]
            to = (dw.shape[0], dw.shape[1], 1, dw.shape[3])
            self.copy(own, dw.view(dw.offset + tap * dw.strides[2], to, dw.strides))
        MACS["conv2d_weight_grad"] = macs
        return dw

    def _depthwise_weight_grad(
        self, plan: depthwise.DepthwisePlan, problem: plans.Problem, x: Tensor, dy: Tensor
    ) -> Tensor:
        dw = self.empty((problem.groups, *problem.geometry.filter, 1), x.dtype)
        target = dw if plan.parts == 1 else self.empty((plan.parts, *dw.shape), x.dtype)
        MACS["conv2d_weight_grad"] = self.launch(
            depthwise_kernels.depthwise_weight, _tag(x), plan.starts, plan.rows, plan.columns, plan.sizes,
            x.address, dy.address, self.array(target).reshape(plan.parts, problem.groups, -1), tasks=plan.tasks,
        )  # fmt: skip
        return self._sum_of_parts(target, dw)

    def _few_channels(self, plan: few_channels.FewPlan, problem: plans.Problem, x: Tensor, dy: Tensor) -> Tensor:
        dw = self.empty((dy.shape[3], *problem.geometry.filter, problem.group_in), x.dtype)
        target = dw if plan.parts == 1 else self.empty((plan.parts, *dw.shape), x.dtype)
        filters = self.array(target).reshape(plan.parts, problem.groups, problem.group_out, dw.shape[1], -1)
        MACS["conv2d_weight_grad"] = self.launch(
            few_channels_kernels.few_channels, _tag(x), plan.rows, plan.columns, plan.sizes, x.address,
            dy.address, filters, tasks=plan.parts * problem.groups,
        )  # fmt: skip
        return self._sum_of_parts(target, dw)

    def _tap_rows(self, plan: tap_rows.TapRowsPlan, problem: plans.Problem, x: Tensor, dy: Tensor) -> Tensor:
        height, width = problem.geometry.filter
        shape = (problem.groups, height, width * problem.group_in, problem.group_out)
        parts = self.empty((plan.parts, *shape), x.dtype)
        MACS["conv2d_weight_grad"] = self.launch(
            tap_rows_kernels.tap_rows, _tag(x), plan.tables, plan.sizes, x.address, dy.address,
            self.array(parts), tasks=plan.parts * problem.groups,
        )  # fmt: skip
        turned = self.array(parts)[0]
        if plan.parts > 1:
            turned = self.array(self._sum_of_parts(parts, self.empty(shape, x.dtype)))
        dw = self.empty((dy.shape[3], height, width, problem.group_in), x.dtype)
        filters = self.array(dw).reshape(problem.groups, problem.group_out, height, -1)
        np.copyto(filters, turned.transpose(0, 3, 1, 2))
        return dw

    def _winograd_gradient(
        self, plan: winograd_gradient.GradientPlan, problem: plans.Problem, x: Tensor, dy: Tensor
    ) -> Tensor:
        form = winograd_gradient_kernels.transforms(plan.form)
        sums = self.empty(plan.shape)
        parts = sums if plan.sizes.parts == 1 else self.empty((plan.sizes.parts, *plan.shape))
        MACS["conv2d_weight_grad"] = self.launch(
            winograd_gradient_kernels.sums, _tag(x), form, plan.rows_from, plan.rows_to, plan.columns_from,
            plan.columns_to, plan.sizes, x.address, dy.address, parts.address, tasks=plan.tasks,
        )  # fmt: skip
        self._sum_of_parts(parts, sums)
        dw = self.empty((dy.shape[3], *problem.geometry.filter, problem.group_in))
        self.launch(
            winograd_gradient_kernels.filters, _tag(x), form, plan.sizes, sums.address, dw.address,
            tasks=dy.shape[3],
        )  # fmt: skip
        return dw

    def _sum_of_parts(self, parts: Tensor, total: Tensor) -> Tensor:
        """The sum over the first axis, which one part alone does not have."""
        if parts is not total:
            count, tasks = parts.shape[0], -(-total.numel() // kernels.PART_NUMBERS)
            flat = self.array(parts).reshape(count, -1)
            self.launch(kernels.add_parts, flat, self.array(total).ravel(), tasks=tasks)
        return total

    def _convolve(
        self,
        problem: plans.Problem,
        by_output: bool,
        x: Tensor,
        w: Tensor,
        out: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        slope: float | None = None,
    ) -> int:
        """A convolution (``by_output``) or an input gradient, from ``x`` into ``out``, by the planner's algorithm."""
        wanted = (problem.out_channels, *problem.geometry.filter, problem.group_in)
        if w.shape != wanted or w.dtype != x.dtype:  # what the plans' offsets trust
            raise ShapeError(f"[convolution] expected filters {wanted} of {x.dtype}, got {w.shape} of {w.dtype}")
        ends = self._ends(out, bias, residual, slope is not None)
        tag, algorithm = x.dtype.type(slope or 0), planner.algorithm(problem, by_output)
        if algorithm == "depthwise":
            each = depthwise.plan(problem, by_output, False)
            taps = self._dense_array(self.array(w)).reshape(problem.groups, -1)
            macs: int = self.launch(
                depthwise_kernels.depthwise, tag, each.starts, each.rows, each.columns, each.sizes,
                x.address, taps, *ends.arguments, tasks=each.tasks,
            )  # fmt: skip
        elif algorithm in winograd.RESULTS:
            tiled = winograd.plan(problem, by_output, winograd.RESULTS[algorithm])
            packed = self._kept(
                w, tiled.packed_shape, tiled.form.name, lambda packed: self._transform(w, tiled, packed)
            )
            if tiled.stages:
                return sum(self._winograd_stages(tiled, stages, tag, x, packed, ends) for stages in tiled.stages)
            form = winograd_kernels.transforms(tiled.form)
            macs = self.launch(
                winograd_kernels.winograd, tag, form, tiled.rows_from, tiled.rows_to, tiled.columns_from,
                tiled.columns_to, tiled.sizes, x.address, packed.address, *ends.arguments, tasks=tiled.tasks,
            )  # fmt: skip
        elif algorithm == "panels":
            own = panels.plan(problem, by_output)
            kind, filters = self._own_panels(w, own.packed_shape, by_output)
            macs = self.launch(
                panels_kernels.panels, tag, kind, own.blocks, own.rows, own.columns, own.sizes,
                x.address, filters.address, *ends.arguments, tasks=own.tasks,
            )  # fmt: skip
        elif algorithm == "lanes":
            across = image_lanes.plan(problem, by_output)
            packed = self._packed(w, across.packed_shape, by_output)
            macs = self.launch(
                image_lanes_kernels.image_lanes, tag, across.bands, across.rows, across.columns,
                across.heights, across.sizes, x.address, packed.address, *ends.arguments, tasks=across.tasks,
            )  # fmt: skip
        elif algorithm == "columns":
            beside = tap_columns.plan(problem, by_output)
            packed = self._packed_rows(w, beside.packed_shape, by_output)
            macs = self.launch(
                tap_columns_kernels.tap_columns, tag, beside.rows, beside.columns, beside.sizes, x.address,
                packed.address, *ends.arguments, tasks=beside.tasks,
            )  # fmt: skip
        elif algorithm == "positions":
            few = positions.plan(problem, by_output)
            packed = self._packed(w, few.packed_shape, by_output)
            macs = self.launch(
                positions_kernels.positions, tag, few.blocks, few.rows, few.columns, few.sizes, x.address,
                packed.address, *ends.arguments, tasks=few.tasks,
            )  # fmt: skip
        else:
            plan = plans.forward(problem) if by_output else plans.input_grad(problem)
            packed = self._packed(w, plan.packed_shape, by_output)
            macs = self.launch(
                kernels.gather, tag, plan.order, plan.rows, plan.columns, plan.runs, plan.sizes, x.address,
                packed.address, *ends.arguments, tasks=plan.tasks,
            )  # fmt: skip
        return macs

    def _ends(self, out: Tensor, bias: Tensor | None, residual: Tensor | None, activates: bool) -> _Ends:
        """How results are finished: the kernels find the residual's elements by one distance from the result's."""
        for name, tensor, shape in (("bias", bias, out.shape[3:]), ("residual", residual, out.shape)):
            if tensor is not None and (tensor.shape != shape or tensor.dtype != out.dtype):
                raise ShapeError(
                    f"[convolution] expected a {name} {shape} of {out.dtype}, got {tensor.shape} of {tensor.dtype}"
                )
        bias = None if bias is None else self.dense(bias, (0,))
        if residual is not None and not _lies_as(residual, out):
            residual = self.dense(residual, IMAGE_ORDER)
        mode = ACTIVATE if activates else STORE
        mode |= BIAS if bias is not None else STORE
        mode |= ADD if residual is not None else STORE
        distance = 0 if residual is None else residual.address - out.address
        return _Ends((out.address, mode, 0 if bias is None else bias.address, distance), (bias, residual))

    def _target(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], accumulate: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Where a result is written, and what is added to it: both are ``accumulate`` where the kernels can do that."""
        if accumulate is not None and (accumulate.shape, accumulate.dtype) == (shape, dtype) and _is_image(accumulate):
            return accumulate, accumulate
        return self.empty(shape, dtype, IMAGE_ORDER), None

    def _accumulated(self, out: Tensor, accumulate: Tensor | None) -> Tensor:
        """The result, added into ``accumulate`` unless it was written there."""
        if accumulate is None or accumulate is out:
            return out
        return self.elementwise("add", accumulate, out, out=accumulate)

    def _image(self, x: Tensor) -> Tensor:
        """x as the kernels read it; a copy in image order where it is not so."""
        return x if _is_image(x) else self.dense(x, IMAGE_ORDER)

    def _spread(self, x: Tensor, geometry: Geometry, channels: int) -> Tensor:
        """x, or a copy with room after each image, where a tile's images would lie in one set of the first cache."""
        pixel, item = x.shape[3], x.dtype.itemsize
        apart = x.strides[0] * item % SET_BYTES or min(x.shape[0], ISA.rows) <= WAYS
        if pixel >= plans.RUN_CHANNELS or apart:
            return x
        if 2 * channels * geometry.useful < SPREAD_WORK * math.prod(geometry.input):
            return x
        row = x.shape[2] * pixel
        image = x.shape[1] * row + APART // item
        out = self.empty((x.shape[0] * image,), x.dtype).view(0, x.shape, (image, row, pixel, 1))
        if x.strides[1:] != out.strides[1:]:
            self.copy(x, out)
            return out
        self.launch(
            kernels.spread, _tag(x), x.shape[0], x.address, x.strides[0] * item, out.address, image * item,
            x.shape[1] * row * item,
        )  # fmt: skip
        return out

    def _transform(self, w: Tensor, plan: winograd.WinogradPlan, packed: Tensor) -> None:
        """Winograd's filters, in the panels that the plan wants."""
        kernel = winograd_kernels.pack_by_output if plan.by_output else winograd_kernels.pack_by_input
        w = self.dense(w, range(4))
        form = winograd_kernels.transforms(plan.form)
        self.launch(kernel, _tag(w), form, w.address, plan.sizes, packed.address)

    def _winograd_stages(
        self,
        plan: winograd.WinogradPlan,
        stages: winograd_stages.StageSizes,
        tag: Any,
        x: Tensor,
        w: Tensor,
        ends: _Ends,
    ) -> int:
        """Winograd's algorithm for some images, with all inputs, all products and all results one after the other."""
        form, places = winograd_kernels.transforms(plan.form), plan.form.places
        values = self.empty((places * stages.step // 4,))
        products = self.empty((plan.packed_shape[0] * places * stages.rows * plan.sizes.panel,))
        self.launch(
            winograd_stages.inputs, form, plan.rows_from, plan.columns_from, plan.sizes, stages,
            x.address, values.address, tasks=stages.tiles,
        )  # fmt: skip
        macs: int = self.launch(
            winograd_stages.products, tag, places, plan.sizes, stages, values.address, w.address,
            products.address, tasks=plan.product_tasks(stages),
        )  # fmt: skip
        self.launch(
            winograd_stages.results, tag, form, plan.rows_to, plan.columns_to, plan.sizes, stages,
            products.address, *ends.arguments, tasks=stages.tiles,
        )  # fmt: skip
        return macs

    def _packed(self, w: Tensor, shape: tuple[int, ...], by_output: bool) -> Tensor:
        """The filters in the panels that the plan wants."""
        groups, _, taps, _, _ = shape

        def pack(packed: Tensor) -> None:
            source = self._dense_array(self.array(w)).reshape(groups, w.shape[0] // groups, taps, w.shape[3])
            kernel = kernels.pack_by_output if by_output else kernels.pack_by_input
            self.launch(kernel, source, self.array(packed))

        return self._kept(w, shape, "by output" if by_output else "by input", pack)

    def _dense_array(self, array: Array) -> Array:
        """The array, or a row-major copy: a large one in the pool."""
        if array.flags.c_contiguous or array.nbytes <= FEW_BYTES:
            return np.ascontiguousarray(array)
        copy = self.array(self.empty(array.shape, array.dtype))
        np.copyto(copy, array)
        return copy

    def _own_panels(self, w: Tensor, shape: tuple[int, ...], by_output: bool) -> tuple[int, Tensor]:
        """The filters for tasks that read their own panels, and their kind: packed only where they serve again."""
        if is_inference() and not w.storage.exported:
            return panels_kernels.PACKED, self._packed(w, shape, by_output)
        return panels_kernels.BY_OUTPUT if by_output else panels_kernels.BY_INPUT, self.dense(w, range(4))

    def _packed_rows(self, w: Tensor, shape: tuple[int, ...], by_output: bool) -> Tensor:
        """The filters' rows in the panels that the plan wants: their taps and result channels are the columns."""
        groups, _, taps, depth, _ = shape

        def pack(packed: Tensor) -> None:
            filters = self.array(w)
            if by_output:
                turned = filters.reshape(groups, -1, *filters.shape[1:]).transpose(0, 3, 1, 2, 4)
                source = self._dense_array(turned).reshape(groups, -1, taps, depth)
                self.launch(kernels.pack_by_output, source, self.array(packed))
            else:
                source = self._dense_array(filters).reshape(groups, depth, taps, -1)
                self.launch(kernels.pack_by_input, source, self.array(packed))

        return self._kept(w, shape, "rows by output" if by_output else "rows by input", pack)

    def _kept(self, w: Tensor, shape: tuple[int, ...], how: str, pack: Callable[[Tensor], None]) -> Tensor:
        """The filters packed to a shape in some way, anew where they have changed.

        Inference keeps them with the filters' storage, and packs once. Training changes filters before they serve
        again, so they go back to the pool, as where a NumPy array shares the storage and may change it unseen.
        """
        key = ("packed", how, w.offset, w.shape, w.strides, shape)
        kept: tuple[int, Tensor] | None = w.storage.cache.pop(key, None)
        if kept is not None and kept[0] == w.version and not w.storage.exported:
            packed = kept[1]
        else:
            packed = self.empty(shape, w.dtype)
            pack(packed)
        if not w.storage.exported and is_inference():
            w.storage.cache[key] = (w.version, packed)
        return packed


class _Ends(NamedTuple):
    """The kernels' arguments for what is written, and the tensors that they point to, kept alive."""

    arguments: tuple[int, int, int, int]
    tensors: tuple[Tensor | None, Tensor | None]


def _lies_as(x: Tensor, other: Tensor) -> bool:
    """Whether elements of the same index lie equally far apart; of one shape."""
    return x.strides == other.strides or all(
        a == b for a, b, size in zip(x.strides, other.strides, x.shape, strict=True) if size > 1
    )


def _is_image(x: Tensor) -> bool:
    """Whether channels are contiguous, and each pixel a run of memory of its own."""
    return (x.strides[3] == 1 or x.shape[3] == 1) and min(x.strides[:3]) >= x.shape[3]


def _reaching(w: Tensor, geometry: Geometry) -> Tensor:
    """The view of filters' taps that ``geometry.reached`` has."""
    if geometry.reached is geometry or w.shape[1:3] != geometry.filter:
        return w
    rows, columns = geometry.rows.reaching, geometry.columns.reaching
    offset = w.offset + rows.start * w.strides[1] + columns.start * w.strides[2]
    return w.view(offset, (w.shape[0], len(rows), len(columns), w.shape[3]), w.strides)


def _problem(x: Tensor, y: Tensor, geometry: Geometry, groups: int) -> plans.Problem:
    """The plan's key; EngineError where images are not of the geometry's sizes, which the plan's offsets trust."""
    if x.shape[1:3] != geometry.input or y.shape[1:3] != geometry.output or x.shape[0] != y.shape[0]:
        raise EngineError(
            f"[convolution] expected images of {geometry.input} and results of {geometry.output}, got x: {x.shape} and "
            f"y: {y.shape}"
        )
    return plans.called(geometry, x.shape[0], x.shape[3], y.shape[3], groups, x.dtype.itemsize, x.strides, y.strides)


def _tag(x: Tensor) -> Any:
    """A number whose type tells the kernels theirs."""
    return x.dtype.type(0)
