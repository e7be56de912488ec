"""Recurrent layers of one step: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.operands import check_tensor
from alpha.functions.recurrent import Steps, recurrent
from alpha.nn import init
from alpha.nn.arguments import choice, positive
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class RNNCellBase(Module):
    """Base of the cells: ``weight_ih`` (gates * hidden_size, input_size), ``weight_hh`` (gates * hidden_size,
    hidden_size), ``bias_ih`` and ``bias_hh`` (gates * hidden_size,)."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    _kind: str

    @placed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        """``num_chunks``: vectors as long as the state that a step's products have, 4 for the LSTM."""
        super().__init__()
        name = type(self).__name__
        self.input_size = positive(input_size, "input_size", name)
        self.hidden_size = positive(hidden_size, "hidden_size", name)
        self.bias = flag(name, "bias", bias)
        rows = positive(num_chunks, "num_chunks", name) * self.hidden_size
        self.weight_ih = empty_parameter(rows, self.input_size)
        self.weight_hh = empty_parameter(rows, self.hidden_size)
        self.bias_ih = empty_parameter(rows) if self.bias else None
        self.bias_hh = empty_parameter(rows) if self.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all weights uniform on ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _run(self, x: Tensor, states: list[Any] | None) -> list[Tensor]:
        """The states after a step; those before are 0 unless given."""
        name, count = type(self).__name__, 2 if self._kind == "lstm" else 1
        check_tensor(name, x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            wanted = f"(batch, {self.input_size}) or ({self.input_size},)"
            raise ShapeError(f"[{name}] expected an input {wanted}, got {x.shape}")
        shape = (*x.shape[:-1], self.hidden_size)
        if states is None:
            states = [alpha.zeros(shape, dtype=x.dtype, engine=x.engine)] * count
        check_tensor(name, *states)
        for one in states:
            if one.shape != shape:
                raise ShapeError(f"[{name}] expected states of shape {shape}, got {one.shape}")
        is_single = x.ndim == 1
        if is_single:
            x, states = F.unsqueeze(x, 0), [F.unsqueeze(one, 0) for one in states]
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None
        _, *after = recurrent(self._kind, Steps((x.shape[0],), False), x, states, weights)
        return [F.squeeze(one, 0) for one in after] if is_single else after

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with max(., 0) instead of tanh.

    Args:
        input_size: length of an input.
        hidden_size: length of the state.
        bias: whether biases are learned.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        self.nonlinearity = choice(nonlinearity, ("tanh", "relu"), "nonlinearity", "RNNCell")
        super().__init__(input_size, hidden_size, bias, num_chunks=1)
        self._kind = self.nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size), or (input_size,), and the state before, 0 by default, to the state after."""
        return self._run(input, None if hx is None else [hx])[0]

    def extra_repr(self) -> str:
        shown = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + shown


class LSTMCell(RNNCellBase):
    """A step of an LSTM; arguments as for RNNCell."""

    _kind = "lstm"

    @placed
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None, dtype: DtypeLike = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(batch, input_size), or (input_size,), and (state, cell) before, 0 by default, to (state, cell) after."""
        if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise ArgumentError(f"[LSTMCell] expected hx as a tuple (state, cell), got {type(hx).__name__}")
        h, c = self._run(input, None if hx is None else list(hx))
        return h, c


class GRUCell(RNNCellBase):
    """A step of a GRU; arguments as for RNNCell."""

    _kind = "gru"

    @placed
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device = None, dtype: DtypeLike = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size), or (input_size,), and the state before, 0 by default, to the state after."""
        return self._run(input, None if hx is None else [hx])[0]
