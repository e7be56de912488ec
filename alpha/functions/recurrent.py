"""Recurrent layers: RNN, LSTM and GRU over a sequence, one layer and direction at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.conversion import tensor
from alpha.dtypes import int64
from alpha.engine import Engine
from alpha.errors import DtypeError
from alpha.functions.autocasting import lowered
from alpha.functions.cells import CELLS, Cell, Gradients, Memory
from alpha.functions.lookups import index_select
from alpha.functions.nothing import nothing
from alpha.functions.operands import check_float
from alpha.functions.unrolled import unrolled
from alpha.tensor import Tensor


class Steps(NamedTuple):
    """The steps of sequences whose elements are the rows of a matrix: step by step, and in a step one per sequence.

    Attributes:
        sizes: how many sequences take part in each step, the longest first: never more than in the step before.
        reverse: whether the last step is computed first.
    """

    sizes: tuple[int, ...]
    reverse: bool

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return self.sizes[0]

    @property
    def rows(self) -> int:
        """The number of elements."""
        return sum(self.sizes)

    @property
    def is_even(self) -> bool:
        """Whether all sequences are equally long."""
        return self.sizes[0] == self.sizes[-1]

    def spans(self) -> list[tuple[int, int]]:
        """The first row of each step and their number, in the order in which steps are computed."""
        stops = list(accumulate(self.sizes))
        found = [(end - size, size) for end, size in zip(stops, self.sizes, strict=True)]
        return found[::-1] if self.reverse else found

    def first_places(self) -> list[int]:
        """The row of each sequence in the step that is computed first of its own."""
        if not self.reverse:
            return list(range(self.batch))
        places = [0] * self.batch
        for start, count in reversed(self.spans()):
            places[:count] = range(start, start + count)
        return places


class States:
    """A state before and after every step, as the rows of two matrices.

    Of sequences of one length, the state before a step is the same memory as that after the step before.
    """

    def __init__(self, engine: Engine, steps: Steps, first: Tensor) -> None:
        """``first``: the state (batch, size) before the first step."""
        self._engine, self._is_even = engine, steps.is_even
        rows, batch, size = steps.rows, steps.batch, first.shape[1]
        self.latest = first
        if steps.is_even:
            memory = engine.empty((rows + batch, size), first.dtype)
            one, other = _rows(memory, 0, rows), _rows(memory, batch, rows)
            self.before, self.after = (other, one) if steps.reverse else (one, other)
            engine.copy(first, _rows(memory, rows if steps.reverse else 0, batch))
        else:
            self.before, self.after = (engine.empty((rows, size), first.dtype) for _ in range(2))
            self.latest = engine.copied(first, (0, 1))

    def begin(self, start: int, count: int) -> Tensor:
        """The states before a step."""
        before = _rows(self.before, start, count)
        if not self._is_even:
            self._engine.copy(_rows(self.latest, 0, count), before)
        return before

    def end(self, start: int, count: int) -> None:
        """Takes note of the states after a step."""
        after = _rows(self.after, start, count)
        if self._is_even:
            self.latest = after
        else:
            self._engine.copy(after, _rows(self.latest, 0, count))


def _overwritten(engine: Engine, whole: Tensor, first: Tensor) -> Tensor:
    """A matrix whose first rows are these; the others stay as they are."""
    if first.shape == whole.shape:
        return first
    engine.copy(first, _rows(whole, 0, first.shape[0]))
    return whole


def _first_states(before: Tensor, places: list[int]) -> Tensor:
    """The states before the first steps, out of those before all steps; outside the graph."""
    return index_select(before.detach(), 0, tensor(places, dtype=int64, engine=before.engine))


def _rows(x: Tensor, start: int, count: int) -> Tensor:
    """A view of some rows of a matrix."""
    return Tensor(x.storage, x.offset + start * x.strides[0], (count, x.shape[1]), x.strides, x.dtype)


def _turned(w: Tensor) -> Tensor:
    """A view of the transposed matrix."""
    return Tensor(w.storage, w.offset, w.shape[::-1], w.strides[::-1], w.dtype)


class Recurrent(Function):
    """A layer over sequences in one direction.

    The input's products are one product of all rows; each step is a product of the state and one point-wise pass.
    Backward goes back over the steps alike, and then finds the weights' gradients by one product each.
    """

    fresh = True

    def forward(
        self, kind: str, steps: Steps, x: Tensor, h: Tensor, c: Tensor | None, *weights: Any
    ) -> tuple[Tensor, ...]:
        w_ih, w_hh, b_ih, b_hh, w_hr = weights
        self.cell, self.steps, engine = CELLS[kind], steps, x.engine
        bias, inner_bias = self.cell.biases(engine, b_ih, b_hh)
        gates, _ = engine.linear(x, w_ih, bias)
        hidden = States(engine, steps, h)
        cells = None if c is None else States(engine, steps, c)
        has_inner = kind == "gru" or w_hr is not None
        inner = engine.empty((steps.rows, w_hh.shape[0] // self.cell.gates), x.dtype) if has_inner else None
        before, after = (None, None) if cells is None else (cells.before, cells.after)
        memory = Memory(gates, hidden.before, hidden.after, before, after, inner)
        step, turned = engine.row_pass(self.cell.forward(memory, inner_bias, w_hr is not None)), _turned(w_hh)
        for start, count in steps.spans():
            state = hidden.begin(start, count)
            if cells is not None:
                cells.begin(start, count)
            step(start, count, engine.matmul(state, turned))
            if w_hr is not None and inner is not None:
                product = engine.matmul(_rows(inner, start, count), _turned(w_hr))
                engine.copy(product, _rows(hidden.after, start, count))
            hidden.end(start, count)
            if cells is not None:
                cells.end(start, count)
        if True in self.needs:
            self.save(x, w_ih, w_hh, w_hr, b_ih, b_hh, *memory)
        last = [engine.copied(one.latest, (0, 1)) for one in (hidden, cells) if one is not None]
        return hidden.after, *last

    def backward(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, w_hr, _, _, *kept = self.saved
        walk = _Backward(self.cell, self.steps, Memory._make(kept), w_hh, w_hr, grads)
        walk.run()
        _, _, need_x, need_h, need_c, need_w, need_u, need_b, need_d, need_r = self.needs
        engine, dw, db, du, dd = x.engine, None, None, None, None
        if need_w or need_b:
            dw, db = engine.linear_weight_grad(x, walk.gates, need_b)
        if need_u or need_d:
            copies = walk.products is walk.gates and db is not None  # the biases' gradients are equal
            du, dd = engine.linear_weight_grad(kept[1], walk.products, need_d and not copies)
            dd = engine.copied(db) if copies and need_d and db is not None else dd
        dr = engine.matmul(_turned(walk.projected), kept[5]) if need_r and walk.projected is not None else None
        dx = engine.linear_input_grad(walk.gates, w_ih) if need_x else None
        return None, None, dx, walk.h if need_h else None, walk.c if need_c else None, dw, du, db, dd, dr

    def backward_in_graph(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, w_hr, b_ih, b_hh, *kept = self.saved
        memory, places = Memory._make(kept), self.steps.first_places()
        h = self.argument_in_graph(3, _first_states(memory.before, places))
        c = None
        if memory.cells_before is not None:
            c = self.argument_in_graph(4, _first_states(memory.cells_before, places))

        def formula(x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor | None) -> tuple[Tensor, ...]:
            return unrolled(self.cell.name, self.steps.spans(), x, (h, c), weights)

        return None, None, *by_formula(formula, (x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr), grads)


class _Backward:
    """The way back over the steps.

    Attributes:
        gates, products: the gradients of the input's products, and of the states'; the same memory but for the GRU.
        projected: the gradients of the LSTM's projected states.
        h, c: the gradients of the states before the steps that are done; at last of the first ones.
    """

    def __init__(
        self,
        cell: Cell,
        steps: Steps,
        memory: Memory,
        w_hh: Tensor,
        w_hr: Tensor | None,
        grads: tuple[Tensor | None, ...],
    ) -> None:
        self._steps, self._w_hh, self._w_hr = steps, w_hh, w_hr
        engine = self._engine = w_hh.engine
        self._dy = grads[0]
        zero = engine.full((1, 1), 0, w_hh.dtype)
        self.gates = engine.empty(memory.gates.shape, w_hh.dtype)
        is_gru = cell.name == "gru"
        self.products = engine.empty(memory.gates.shape, w_hh.dtype) if is_gru else self.gates
        self.projected = None if w_hr is None else engine.empty(memory.after.shape, w_hh.dtype)
        self.h = self._first(grads[1], memory.after)
        self.c = None if memory.cells_after is None else self._first(grads[2], memory.cells_after)
        self._past = engine.empty(self.h.shape, w_hh.dtype) if is_gru else None
        y = zero if self._dy is None or w_hr is not None else self._dy
        given = Gradients(y, self.gates, self.products, self.c, self._past)
        self._pass = engine.row_pass(cell.backward(memory, given))

    def _first(self, grad: Tensor | None, states: Tensor) -> Tensor:
        """The gradient of the last states: a tensor to be written to."""
        if grad is not None:
            return self._engine.copied(grad, (0, 1))
        return self._engine.full((self._steps.batch, states.shape[1]), 0, states.dtype)

    def run(self) -> None:
        """Goes back over all steps."""
        for start, count in reversed(self._steps.spans()):
            self._step(start, count)

    def _step(self, start: int, count: int) -> None:
        engine, dh = self._engine, _rows(self.h, 0, count)
        if self.projected is not None and self._w_hr is not None:
            total = _rows(self.projected, start, count)
            if self._dy is None:
                engine.copy(dh, total)
            else:
                engine.elementwise("add", dh, _rows(self._dy, start, count), out=total)
            dh = engine.matmul(total, self._w_hr)
        self._pass(start, count, dh)
        before = engine.matmul(_rows(self.products, start, count), self._w_hh)
        if self._past is not None:
            engine.elementwise("add", before, _rows(self._past, 0, count), out=before)
        self.h = _overwritten(engine, self.h, before)


@lowered
def recurrent(
    kind: str, steps: Steps, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The states after all steps, as rows, and the last state of each sequence; of the LSTM also its last cell.

    Args:
        kind: ``"tanh"``, ``"relu"``, ``"lstm"`` or ``"gru"``.
        steps: how the rows of x are divided into steps.
        x: (rows, inputs).
        states: the state (batch, size) before the first step, and the LSTM's cell.
        weights: of the input and of the state, their biases, and the LSTM's projection; None for what there is not.
    """
    h, c = states[0], states[1] if len(states) > 1 else None
    given = [one for one in (x, *states, *weights) if one is not None]
    check_float(kind, *given)
    x.engine.check_owner(kind, *given)
    for one in given:
        if one.dtype != x.dtype:
            raise DtypeError(
                f"[{kind}] expected the input, the states and the weights of one dtype, got {x.dtype} and {one.dtype}: "
                "cast the input, or the layer by .float() or .double()"
            )
    if steps.batch == 0:
        return tuple([nothing(one.shape, *given) for one in (h, h, c) if one is not None])
    result: tuple[Tensor, ...] = Recurrent.apply(kind, steps, x, h, c, *weights)
    return result
