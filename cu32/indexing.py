"""IndexingOperations: reading and writing what index tensors and masks select, the same to the bit in every run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from alpha.cu32.arrays import THREADS, VECTOR_BYTES, WORDS, moved, number, pointer
from alpha.cu32.base import DeviceEngine, c_type
from alpha.cu32.compiler import Source
from alpha.cu32.strided import Layout, Plan, Shape, merged_axes, plan
from alpha.dtypes import ALL, default_int, is_bool, is_float, widest_float
from alpha.engine import Index, Operand
from alpha.errors import DtypeError
from alpha.tensor import Tensor, dense_strides

CHUNK = 32
"""Neighbours in sorted order that one thread adds up: CHUNK in kernels/accumulate.cu."""

_POSITIONS = Source("positions")
_MOVE = {
    size: {w: Source("indexing", DTYPE=name, WIDTH=w) for w in (1, VECTOR_BYTES // size)}
    for size, (name, _) in WORDS.items()
}
_WIDE = {dtype: VECTOR_BYTES // dtype.itemsize if is_float(dtype) else 1 for dtype in ALL}
_ADD = {dtype: {w: Source("accumulate", DTYPE=c_type(dtype), WIDTH=w) for w in {1, _WIDE[dtype]}} for dtype in ALL}
SOURCES = (
    _POSITIONS,
    *(source for table in (_MOVE, _ADD) for widths in table.values() for source in widths.values()),
)

Axes = tuple[tuple[int, int], ...]
"""Lengths and strides in the indexed tensor."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index selects of a tensor x: the axes of slices, and where among them the index tensors' axes stand.

    Attributes:
        offset: of the element at the start of all slices, and at 0 of what index tensors count.
        before, after: axes of slices before and after the index tensors'.
        shape: what the index tensors broadcast to.
        displacement: int64, one element for each of ``shape`` or one that broadcasts to it.
        step: what its elements are multiplied with.
        even: the largest power of two, up to 16, that divides every displacement.
        limit: the number of elements that are there, on the device, where the host does not know it: of a mask.
        unique: whether no element is selected twice.
    """

    offset: int
    before: Axes
    after: Axes
    shape: Shape
    displacement: Tensor
    step: int
    even: int
    limit: Tensor | None
    unique: bool

    @property
    def result(self) -> Shape:
        """The shape of what is selected."""
        return (*(n for n, _ in self.before), *self.shape, *(n for n, _ in self.after))

    @property
    def slices(self) -> Layout:
        """The slices' axes in x, 0 along the index tensors', in the result's order."""
        strides = (*(s for _, s in self.before), *(0 for _ in self.shape), *(s for _, s in self.after))
        return self.result, strides

    @property
    def index(self) -> Layout:
        """The displacement's axes, 0 along the slices', in the result's order."""
        d = self.displacement
        missing = len(self.shape) - d.ndim
        entry_strides = (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(d.shape, d.strides, strict=True))
        return self.result, (*(0 for _ in self.before), *entry_strides, *(0 for _ in self.after))

    def by_rows(self, displacement: Tensor, value_step: int) -> Selection:
        """The selection with the index tensors' elements as one leading axis, along which values lie a step apart."""
        axes, even = (*self.before, *self.after), math.gcd(self.even, value_step)
        return Selection(self.offset, (), axes, displacement.shape, displacement, 1, even, None, self.unique)


class IndexingOperations(DeviceEngine):
    """Index tensors become displacements in memory; what is selected twice is sorted by them, so that its order is
    fixed and no atomics are needed."""

    def gather(self, x: Tensor, index: Index) -> Tensor:
        selection = self._select(x, index, count=True)
        out = self.empty(selection.result, x.dtype)
        if out.numel() == 0:
            return out
        size = x.dtype.itemsize
        source = pointer(x, selection.offset)
        layouts = ((out.shape, out.strides), selection.slices, selection.index)
        width = VECTOR_BYTES // size
        planned = _rows_plan(layouts, 0 if source.offset % width or selection.even % width else width)
        tensors = (out, source, selection.displacement)
        for piece in planned.pieces:
            grid = self.blocks(piece.steps, THREADS)
            kernel = _MOVE[size][planned.width]
            self.launch(kernel, "gather", grid, THREADS, piece.loop, *moved(tensors, piece.offsets), selection.step)
        return out

    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        selection = self._select(out, index, count=False)
        if math.prod(selection.result) == 0:
            return
        source = self._values(selection, out, values) if isinstance(values, Tensor) else None
        value = 0 if isinstance(values, Tensor) else values
        varies = source is not None and any(
            n > 1 and stride for n, stride in zip(*_index_axes(selection, source), strict=True)
        )
        if selection.unique or (not accumulate and not varies):
            self._write(selection, out, source, value, accumulate)
        else:
            self._write_sorted(selection, out, source, value, accumulate)

    # -- what an index selects -----------------------------------------------------------------------------------

    def _select(self, x: Tensor, index: Index, count: bool) -> Selection:
        """The selection; ``count`` makes the host wait for the number of elements that a mask holds."""
        offset, axis = x.offset, 0
        axes: list[tuple[int, int]] = []
        terms: list[tuple[Tensor, int]] = []
        masks: list[tuple[Tensor, Shape]] = []
        places: list[int] = []  # of the entries that count as index tensors: ints do beside them
        starts: list[int] = []  # axes of slices before each of these
        for place, entry in enumerate(index):
            if entry is None:
                axes.append((1, 0))
                continue
            if isinstance(entry, slice):
                start, stop, step = entry.indices(x.shape[axis])
                length = len(range(start, stop, step))
                offset += start * x.strides[axis] if length else 0
                axes.append((length, x.strides[axis] * step))
                axis += 1
                continue
            places.append(place)
            starts.append(len(axes))
            if isinstance(entry, Tensor) and is_bool(entry.dtype):
                masks.append((entry, x.strides[axis : axis + entry.ndim]))
                axis += entry.ndim
                continue
            if isinstance(entry, Tensor):
                if entry.dtype != default_int:
                    raise DtypeError(f"[index] expected int64 or bool, got {entry.dtype}: cast it with .long()")
                terms.append((entry, x.strides[axis]))
            else:
                offset += entry * x.strides[axis]
            axis += 1
        together = all(b - a == 1 for a, b in pairwise(places))
        at = starts[0] if starts and together else 0
        return self._selection(offset, tuple(axes[:at]), tuple(axes[at:]), terms, masks, count)

    def _selection(
        self,
        offset: int,
        before: Axes,
        after: Axes,
        terms: list[tuple[Tensor, int]],
        masks: list[tuple[Tensor, Shape]],
        count: bool,
    ) -> Selection:
        strides = [step for _, step in terms] + [stride for _, mask_strides in masks for stride in mask_strides]
        even = math.gcd(VECTOR_BYTES, *strides)
        limit = None
        alone = len(masks) == 1 and not terms
        for mask, mask_strides in masks:
            displacement, limit = self._selected(mask, mask_strides)
            if count or not alone:
                held = int(self.to_numpy(limit)) if limit is not None else 0
                displacement, limit = displacement.strided(0, (held,), (1,)), None
            terms.append((displacement, 1))
        shape = np.broadcast_shapes(*(term.shape for term, _ in terms))
        if not terms:
            terms.append((self.constant(("indexing.zero",), lambda: np.zeros(1, np.int64)), 0))
        unique = alone or math.prod(shape) == 1
        displacement, step = terms[0] if len(terms) == 1 else (self._displacements(terms, shape), 1)
        return Selection(offset, before, after, shape, displacement, step, even, limit, unique)

    def _selected(self, mask: Tensor, strides: Shape) -> tuple[Tensor, Tensor | None]:
        """Displacements of the elements that a mask holds, as many as it might, and on the device their number."""
        count = mask.numel()
        if count == 0:
            return self.empty((0,), default_int), None
        order = tuple(range(mask.ndim))
        flat = self.dense(mask, order)
        flat = flat.strided(flat.offset, (count,), (1,))
        ranks = self.cumsum(flat, 0)
        out = self.empty((count,), default_int)
        dense = mask.shape, dense_strides(mask.shape)
        for piece in plan(dense, ((mask.shape, strides),), 1).pieces:
            here, ahead = piece.offsets
            tensors = (pointer(flat, flat.offset + here), out, pointer(ranks, here))
            self.launch(_POSITIONS, "selected", self.blocks(piece.steps, THREADS), THREADS, piece.loop, *tensors, ahead)
        return out, ranks.strided(count - 1, (), ())

    def _displacements(self, terms: Sequence[tuple[Tensor, int]], shape: Shape) -> Tensor:
        """The dense sum of index tensors times their steps."""
        out = self.empty(shape, default_int)
        if out.numel() == 0:
            return out
        left = list(terms)
        while left:
            now, left = left[:3], left[3:]
            layouts = tuple((t.shape, t.strides) for t, _ in now)
            tensors = [t for t, _ in now] + [None] * (3 - len(now))
            steps = [step for _, step in now] + [0] * (3 - len(now))
            for piece in plan((out.shape, out.strides), layouts, 1).pieces:
                there = moved((out, *tensors), (*piece.offsets, 0, 0, 0)[:4])
                grid = self.blocks(piece.steps, THREADS)
                self.launch(_POSITIONS, "displacements", grid, THREADS, piece.loop, *there, *steps)
            if left:
                left.insert(0, (out, 1))
        return out

    # -- writing -------------------------------------------------------------------------------------------------

    def _values(self, selection: Selection, out: Tensor, values: Tensor) -> Tensor:
        """Values as a view of the selection's shape, of out's dtype, apart from out's memory."""
        if values.dtype != out.dtype or values.storage is out.storage:
            copied = self.empty_like(values, out.dtype)
            self.copy(values, copied)
            values = copied
        missing = len(selection.result) - values.ndim
        strides = (0,) * missing + tuple(
            0 if n == 1 else stride for n, stride in zip(values.shape, values.strides, strict=True)
        )
        # The host does not know how many elements a mask selects: values may end before the selection does.
        return Tensor(values.storage, values.offset, selection.result, strides, values.dtype)

    def _write(self, selection: Selection, out: Tensor, values: Tensor | None, value: Any, accumulate: bool) -> None:
        """Writes or adds where no element is selected twice, or all that is written to one is the same."""
        target = pointer(out, selection.offset)
        planned, source = self._write_plan(selection, target, values, accumulate)
        constant = _constant(value, out.dtype, accumulate)
        for piece in planned.pieces:
            grid = self.blocks(piece.steps, THREADS)
            _, there, read, first = piece.offsets
            tensors = moved((target, values), (there, read))
            common = (piece.loop, *tensors, selection.displacement, selection.step, constant)
            if accumulate:
                self.launch(source, "add_selected", grid, THREADS, *common, selection.limit, first)
            else:
                self.launch(source, "assign", grid, THREADS, *common, None, 0, selection.limit, first, 0)

    def _write_sorted(
        self, selection: Selection, out: Tensor, values: Tensor | None, value: Any, accumulate: bool
    ) -> None:
        """Writes or adds in the order of places in memory, and of the index tensors' elements where these are equal."""
        displacement = selection.displacement
        if selection.step != 1 or displacement.shape != selection.shape or not displacement.is_contiguous():
            displacement = self._displacements([(displacement, selection.step)], selection.shape)
        keys, order = self.sort(displacement.strided(displacement.offset, (displacement.numel(),), (1,)), 0)
        source, step = self._row_values(selection, values) if values is not None else (None, 0)
        rows = selection.by_rows(keys, step)
        target = pointer(out, rows.offset)
        if accumulate:
            self._add_sorted(rows, target, source, value, order, step)
            return
        planned, kernels = self._write_plan(rows, target, source, False)
        constant = _constant(value, out.dtype, False)
        for piece in planned.pieces:
            grid = self.blocks(piece.steps, THREADS)
            _, there, read, first = piece.offsets
            tensors = moved((target, source), (there, read))
            self.launch(
                kernels, "assign", grid, THREADS, piece.loop, *tensors, keys, 1, constant, order, step, None, first,
                keys.numel(),
            )  # fmt: skip

    def _row_values(self, selection: Selection, values: Tensor) -> tuple[Tensor, int]:
        """Values as (1, slices), and how far they lie apart along the index tensors' axes taken as one."""
        shape, strides = _index_axes(selection, values)
        axes = merged_axes((shape, dense_strides(shape)), ((shape, strides),))
        head, tail = len(selection.before), len(selection.before) + len(shape)
        if len(axes) > 1:
            order = (*range(head, tail), *range(head), *range(tail, values.ndim))
            values = self.dense(values, order)
            _, strides = _index_axes(selection, values)
            axes = merged_axes((shape, dense_strides(shape)), ((shape, strides),))
        lengths = (1, *values.shape[:head], *values.shape[tail:])
        steps = (0, *values.strides[:head], *values.strides[tail:])
        return Tensor(values.storage, values.offset, lengths, steps, values.dtype), axes[0][1][1]

    def _add_sorted(
        self, rows: Selection, target: Tensor, values: Tensor | None, value: Any, order: Tensor, value_step: int
    ) -> None:
        """Sums in chunks of neighbours; then those runs of one place that go over several chunks."""
        count = rows.shape[0]
        chunks = -(-count // CHUNK)
        columns = math.prod(n for n, _ in rows.after)
        by_chunk = rows.by_rows(rows.displacement.strided(0, (chunks,), (1,)), value_step)
        planned, source = self._write_plan(by_chunk, target, values, True)
        heads, tails = (self.empty((chunks * columns,), widest_float) for _ in range(2))
        constant = _constant(value, target.dtype, True)
        for piece in planned.pieces:
            kept, there, read, first = piece.offsets
            partial = moved((heads, tails), (kept, kept))
            tensors = moved((target, values), (there, read))
            grid = self.blocks(piece.steps, THREADS)
            self.launch(
                source, "add_chunks", grid, THREADS, piece.loop, *partial, *tensors, rows.displacement, 1, constant,
                order, value_step, first, count,
            )  # fmt: skip
        for piece in planned.pieces if chunks > 1 else ():
            kept, there, _, first = piece.offsets
            partial = moved((heads, tails, target), (kept, kept, there))
            grid = self.blocks(piece.steps, THREADS)
            self.launch(
                source, "join_chunks", grid, THREADS, piece.loop, *partial, rows.displacement, 1, first, count, columns
            )  # fmt: skip

    def _write_plan(
        self, selection: Selection, target: Tensor, values: Tensor | None, accumulate: bool
    ) -> tuple[Plan, Source]:
        """The loop over a selection, and the kernels for its width."""
        size = target.dtype.itemsize
        kernels = _ADD[target.dtype] if accumulate else _MOVE[size]
        width = max(kernels)
        aligned = target.offset % width == 0 and selection.even % width == 0
        aligned = aligned and (values is None or values.offset % width == 0)
        shape = selection.result
        read = None if values is None else (values.shape, values.strides)
        layouts = ((shape, dense_strides(shape)), selection.slices, read, selection.index)
        planned = _rows_plan(layouts, width if aligned else 0)
        return planned, kernels[planned.width]


@lru_cache(maxsize=8192)
def _rows_plan(layouts: tuple[Layout | None, ...], width: int) -> Plan:
    """A loop over a selection: in vectors, without a tail, where its innermost axis is a slice dense in the tensor.

    ``layouts``: the selection, the tensor, values where there are any to be read, the displacement.
    """
    out, *operands = layouts
    if out is None:
        raise ValueError("[index] expected the layout of the selection, got None")
    length, steps = merged_axes(out, operands)[0]
    dense = steps[1] == 1 and steps[-1] == 0
    return plan(out, tuple(operands), width if width and dense and length % width == 0 else 1)


def _index_axes(selection: Selection, values: Tensor) -> Layout:
    """The lengths and strides that values have along the index tensors' axes."""
    head, tail = len(selection.before), len(selection.before) + len(selection.shape)
    return values.shape[head:tail], values.strides[head:tail]


def _constant(value: Any, dtype: np.dtype[Any], accumulate: bool) -> Any:
    """A number as the kernels take it: of the dtype for those that add, as its bits for those that move."""
    if accumulate:
        return number(value, dtype)
    return np.full(1, value, dtype).view(WORDS[dtype.itemsize][1])[0]
