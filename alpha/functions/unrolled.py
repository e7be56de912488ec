"""Recurrent layers step by step from differentiable functions: what gradients of their gradients are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpha.functions.activation import relu
from alpha.functions.elementwise import sigmoid, tanh
from alpha.functions.joining import concat
from alpha.functions.linalg import linear
from alpha.functions.splitting import chunk
from alpha.functions.views import narrow
from alpha.tensor import Tensor

Step = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], tuple[Tensor, "Tensor | None"]]
"""The input's and the state's products, the state and the LSTM's cell before a step, to those after it."""


def _tanh(x: Tensor, product: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return tanh(x + product), None


def _relu(x: Tensor, product: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return relu(x + product), None


def _lstm(x: Tensor, product: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    i, f, g, o = chunk(x + product, 4, 1)
    after = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(after), after


def _gru(x: Tensor, product: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    (xr, xz, xn), (pr, pz, pn) = chunk(x, 3, 1), chunk(product, 3, 1)
    z = sigmoid(xz + pz)
    n = tanh(xn + sigmoid(xr + pr) * pn)
    return n + z * (h - n), None


STEPS: dict[str, Step] = {"tanh": _tanh, "relu": _relu, "lstm": _lstm, "gru": _gru}


def unrolled(
    kind: str,
    spans: Sequence[tuple[int, int]],
    x: Tensor,
    states: tuple[Tensor, Tensor | None],
    weights: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """The results of ``alpha.functions.recurrent.recurrent``, each step by functions that have second gradients.

    ``spans``: the first row of each step and their number, in the order in which steps are computed. ``states``: the
    first ones, and the LSTM's cells. ``weights``: as there.
    """
    (h, c), (w_ih, w_hh, b_ih, b_hh, w_hr) = states, weights
    assert w_ih is not None and w_hh is not None
    step, gates = STEPS[kind], linear(x, w_ih, b_ih)
    outputs: dict[int, Tensor] = {}
    for start, count in spans:
        before, cell = narrow(h, 0, 0, count), None if c is None else narrow(c, 0, 0, count)
        after, cell = step(narrow(gates, 0, start, count), linear(before, w_hh, b_hh), before, cell)
        after = after if w_hr is None else linear(after, w_hr)
        outputs[start] = after
        h = _overwritten(h, after)
        c = None if c is None or cell is None else _overwritten(c, cell)
    rows = concat([outputs[start] for start in sorted(outputs)], 0)
    return (rows, h) if c is None else (rows, h, c)


def _overwritten(whole: Tensor, first: Tensor) -> Tensor:
    """A matrix with other first rows."""
    rows, count = whole.shape[0], first.shape[0]
    return first if count == rows else concat([first, narrow(whole, 0, count, rows - count)], 0)
