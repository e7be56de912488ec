"""The steps of recurrent layers: each is one point-wise pass behind a product, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from alpha.engine import Engine
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.expressions.symbols import Symbol
from alpha.functions.elementwise import sigmoid, tanh, where
from alpha.records import RowPass
from alpha.tensor import Tensor


class Memory(NamedTuple):
    """What a layer keeps of all steps, as matrices of a row per element, for backward too.

    Attributes:
        gates: the input's products, and after its step what backward needs of the gates.
        before, after: the hidden states before and after the steps.
        cells_before, cells_after: the LSTM's cells.
        inner: the GRU's products of the state for its new one; the LSTM's hidden states before their projection.
    """

    gates: Tensor
    before: Tensor
    after: Tensor
    cells_before: Tensor | None
    cells_after: Tensor | None
    inner: Tensor | None


class Gradients(NamedTuple):
    """What a step's gradients are computed from, beside that of the state after it, and where they go.

    Attributes:
        y: the results' gradients.
        gates, products: the gradients of the input's products, and of the states'; the same but for the GRU.
        cells: (batch, size), the gradient of the LSTM's cells after the step, overwritten by that of those before.
        past: (batch, size), the part of the gradient of the GRU's states before the step that no product gives.
    """

    y: Tensor
    gates: Tensor
    products: Tensor
    cells: Tensor | None
    past: Tensor | None


def columns(x: Tensor, parts: int) -> list[Tensor]:
    """Views of a matrix cut into parts of equally many columns."""
    size = x.shape[1] // parts
    shape = x.shape[0], size
    return [Tensor(x.storage, x.offset + k * size * x.strides[1], shape, x.strides, x.dtype) for k in range(parts)]


def _row(x: Tensor) -> Tensor:
    """A vector as a matrix of one row; a view."""
    return Tensor(x.storage, x.offset, (1, *x.shape), (x.shape[0] * x.strides[0], *x.strides), x.dtype)


def _program(function: Callable[..., tuple[Any, ...]], count: int) -> Program:
    """The program of a function of so many tensors that gives several results."""
    graph = Graph()
    inputs = [graph.input(place) for place in range(count)]
    results = function(*[Symbol(graph, node) for node in inputs])
    return Program(graph, [result.node for result in results], inputs)


class Cell:
    """A kind of recurrent layer.

    Attributes:
        name: the kind's.
        gates: how many vectors as long as the hidden state a step's products have.
    """

    def __init__(
        self,
        name: str,
        gates: int,
        forward: Callable[..., tuple[Any, ...]],
        backward: Callable[..., tuple[Any, ...]],
        inputs: tuple[int, int],
    ) -> None:
        """``forward`` and ``backward``: a step's point-wise functions; ``inputs``: how many tensors they take."""
        self.name, self.gates = name, gates
        self._functions, self._inputs = (forward, backward), inputs

    @cached_property
    def _forward(self) -> Program:
        return _program(self._functions[0], self._inputs[0])

    @cached_property
    def _backward(self) -> Program:
        return _program(self._functions[1], self._inputs[1])

    def biases(self, engine: Engine, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The bias that is added to the input's products, and one of a step's own."""
        return None if b_ih is None or b_hh is None else engine.elementwise("add", b_ih, b_hh), None

    def forward(self, memory: Memory, bias: Tensor | None, is_projected: bool) -> RowPass:
        """A step, of which each call gives the state's product; ``bias``: the step's own."""
        return self._pass(memory, self._forward, (memory.gates, 0), (memory.after,))

    def backward(self, memory: Memory, grads: Gradients) -> RowPass:
        """The gradients of a step's products, of which each call gives the gradient of the state after the step."""
        return self._pass(memory, self._backward, (grads.y, 0, memory.after), (grads.gates,))

    def _pass(self, memory: Memory, program: Program, tensors: tuple[Any, ...], outs: tuple[Any, ...]) -> RowPass:
        parts = self.gates if program is self._forward else 1
        return RowPass(self.name, program, tensors, outs, memory.gates.shape[0], parts)


class LstmCell(Cell):
    """The long short-term memory: gates i, f, g, o."""

    def forward(self, memory: Memory, bias: Tensor | None, is_projected: bool) -> RowPass:
        gates = columns(memory.gates, 4)
        outs = *gates, memory.cells_after, memory.inner if is_projected else memory.after
        return self._pass(memory, self._forward, (*gates, 0, 1, 2, 3, memory.cells_before), outs)

    def backward(self, memory: Memory, grads: Gradients) -> RowPass:
        given = grads.y, 0, grads.cells, *columns(memory.gates, 4), memory.cells_before, memory.cells_after
        return self._pass(memory, self._backward, given, (*columns(grads.gates, 4), grads.cells))


class GruCell(Cell):
    """The gated recurrent unit: gates r, z and the new state n."""

    def biases(self, engine: Engine, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if b_ih is None or b_hh is None:
            return None, None
        both = engine.copied(b_ih)
        *first, _ = columns(_row(both), 3)
        *others, inner = columns(_row(b_hh), 3)
        for mine, other in zip(first, others, strict=True):
            engine.elementwise("add", mine, other, out=mine)
        return both, inner

    def forward(self, memory: Memory, bias: Tensor | None, is_projected: bool) -> RowPass:
        gates = columns(memory.gates, 3)
        bias = memory.gates.engine.full((1, 1), 0, memory.gates.dtype) if bias is None else bias
        return self._pass(
            memory, self._forward, (*gates, 0, 1, 2, bias, memory.before), (*gates, memory.inner, memory.after)
        )

    def backward(self, memory: Memory, grads: Gradients) -> RowPass:
        outs = *columns(grads.gates, 3), *columns(grads.products, 3), grads.past
        return self._pass(
            memory, self._backward, (grads.y, 0, *columns(memory.gates, 3), memory.inner, memory.before), outs
        )


# -- the point-wise functions ------------------------------------------------------------------------------------


def _tanh(x: Any, product: Any) -> tuple[Any, ...]:
    return (tanh(x + product),)


def _tanh_backward(dy: Any, dh: Any, h: Any) -> tuple[Any, ...]:
    return ((dy + dh) * (1 - h * h),)


def _relu(x: Any, product: Any) -> tuple[Any, ...]:
    total = x + product
    return (where(total < 0, 0.0, total),)


def _relu_backward(dy: Any, dh: Any, h: Any) -> tuple[Any, ...]:
    return (where(h <= 0, 0.0, dy + dh),)


def _lstm(*given: Any) -> tuple[Any, ...]:
    *products, c = given
    i, f, g, o = (x + product for x, product in zip(products[:4], products[4:], strict=True))
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    after = f * c + i * g
    return i, f, g, o, after, o * tanh(after)


def _lstm_backward(*given: Any) -> tuple[Any, ...]:
    dy, dh, dc, i, f, g, o, before, after = given
    dh, bend = dy + dh, tanh(after)
    dc = dc + dh * o * (1 - bend * bend)
    di, df = dc * g * (i * (1 - i)), dc * before * (f * (1 - f))
    return di, df, dc * i * (1 - g * g), dh * bend * (o * (1 - o)), dc * f


def _gru(xr: Any, xz: Any, xn: Any, pr: Any, pz: Any, pn: Any, bias: Any, h: Any) -> tuple[Any, ...]:
    r, z, inner = sigmoid(xr + pr), sigmoid(xz + pz), pn + bias
    n = tanh(xn + r * inner)
    return r, z, n, inner, n + z * (h - n)


def _gru_backward(dy: Any, dh: Any, r: Any, z: Any, n: Any, inner: Any, h: Any) -> tuple[Any, ...]:
    dh = dy + dh
    dn = dh * (1 - z) * (1 - n * n)
    dr, dz = dn * inner * (r * (1 - r)), dh * (h - n) * (z * (1 - z))
    return dr, dz, dn, dr, dz, dn * r, dh * z


CELLS: dict[str, Cell] = {
    "tanh": Cell("tanh", 1, _tanh, _tanh_backward, (2, 3)),
    "relu": Cell("relu", 1, _relu, _relu_backward, (2, 3)),
    "lstm": LstmCell("lstm", 4, _lstm, _lstm_backward, (9, 9)),
    "gru": GruCell("gru", 3, _gru, _gru_backward, (8, 7)),
}
