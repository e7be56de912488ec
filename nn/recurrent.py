"""Recurrent layers over whole sequences: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import warnings
from itertools import product
from typing import Any

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.cells import CELLS
from alpha.functions.operands import check_tensor
from alpha.functions.recurrent import Steps, recurrent
from alpha.nn import init
from alpha.nn.arguments import choice, positive, probability
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed
from alpha.nn.utils.rnn import PackedSequence

States = Tensor | tuple[Tensor, Tensor]
"""The hidden states; of an LSTM those and the cells."""


class RNNBase(Module):
    """Base of the layers.

    The weights of layer k are ``weight_ih_l{k}`` (gates * hidden_size, inputs), ``weight_hh_l{k}`` (gates *
    hidden_size, states) and ``bias_ih_l{k}``, ``bias_hh_l{k}`` (gates * hidden_size,), those of the reverse direction
    end in ``_reverse``; an LSTM's projections are ``weight_hr_l{k}`` (proj_size, hidden_size).

    Args:
        mode: ``"RNN_TANH"``, ``"RNN_RELU"``, ``"LSTM"`` or ``"GRU"``.
        input_size: length of an input.
        hidden_size: length of a state.
        num_layers: how many layers there are, each over the states of the one below.
        bias: whether biases are learned.
        batch_first: whether inputs and results are (batch, steps, ...) instead of (steps, batch, ...).
        dropout: probability of dropout between layers, in training.
        bidirectional: whether each layer reads the sequences in both directions.
        proj_size: length of the LSTM's projected states; 0 for none.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.mode = choice(mode, ("RNN_TANH", "RNN_RELU", "LSTM", "GRU"), "mode", name)
        self.input_size = positive(input_size, "input_size", name)
        self.hidden_size = positive(hidden_size, "hidden_size", name)
        self.num_layers = positive(num_layers, "num_layers", name)
        self.bias, self.batch_first = flag(name, "bias", bias), flag(name, "batch_first", batch_first)
        self.dropout = probability(dropout, "dropout", name)
        self.bidirectional = flag(name, "bidirectional", bidirectional)
        self.proj_size = positive(proj_size, "proj_size", name, least=0)
        if self.proj_size and (mode != "LSTM" or self.proj_size >= self.hidden_size):
            raise ArgumentError(
                f"[{name}] expected proj_size less than hidden_size {hidden_size}, of an LSTM alone, got {proj_size}"
            )
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn(
                f"[{name}] expected several layers for dropout, which is between layers, got dropout={dropout} and "
                "num_layers=1: nothing is dropped",
                stacklevel=3,
            )
        self._kind = self.mode.removeprefix("RNN_").lower()
        for layer, suffix in product(range(self.num_layers), self._suffixes()):
            self._add_weights(layer, suffix)
        self.reset_parameters()

    def _suffixes(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _add_weights(self, layer: int, suffix: str) -> None:
        states = self.proj_size or self.hidden_size
        inputs = states * len(self._suffixes()) if layer else self.input_size
        rows = CELLS[self._kind].gates * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, states)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (states, self.hidden_size)
        for name, shape in shapes.items():
            setattr(self, f"{name}_l{layer}{suffix}", empty_parameter(*shape))

    def _weights(self, layer: int, suffix: str) -> list[Parameter | None]:
        """The weights of a layer in one direction, in the order of ``recurrent``."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [getattr(self, f"{name}_l{layer}{suffix}", None) for name in names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        places = product(range(self.num_layers), self._suffixes())
        return [[one for one in self._weights(*place) if one is not None] for place in places]

    def reset_parameters(self) -> None:
        """Draws all weights uniform on ±1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: PyTorch gathers the weights for cuDNN by it, here they are used as they lie."""

    # -- forward -------------------------------------------------------------------------------------------------

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """The last layer's states after every step, and all layers' last states.

        Args:
            input: (steps, batch, input_size), (batch, steps, input_size) with ``batch_first``, (steps, input_size) of
                one sequence, or a PackedSequence.
            hx: the first states, (num_layers * directions, batch, size); 0 by default; an LSTM's as (states, cells).

        Returns:
            output: as the input, of length directions * size.
            h_n: as ``hx``.
        """
        if isinstance(input, PackedSequence):
            return self._of_packed(input, hx)
        self._check_input(input)
        is_single = input.ndim == 2
        axis = 0 if is_single or not self.batch_first else 1
        x = F.unsqueeze(input, 1) if is_single else F.transpose(input, 0, 1) if axis else input
        steps, batch, inputs = x.shape
        states = self._states(x, batch, hx, is_single)
        y, last = self._run((batch,) * steps, F.reshape(x, (steps * batch, inputs)), states)
        y = F.reshape(y, (steps, batch, y.shape[1]))
        if is_single:
            y, last = F.squeeze(y, 1), [F.squeeze(one, 1) for one in last]
        return F.transpose(y, 0, 1) if axis else y, self._packed_states(last)

    def _of_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        sizes = packed.sizes()
        if packed.data.ndim != 2 or packed.data.shape[1] != self.input_size:
            raise ShapeError(
                f"[{type(self).__name__}] expected packed data (elements, {self.input_size}), got {packed.data.shape}"
            )
        states = self._states(packed.data, sizes[0], hx, False)
        if packed.sorted_indices is not None and hx is not None:
            states = [F.index_select(one, 1, packed.sorted_indices) for one in states]
        y, last = self._run(sizes, packed.data, states)
        if packed.unsorted_indices is not None:
            last = [F.index_select(one, 1, packed.unsorted_indices) for one in last]
        return packed._replace(data=y), self._packed_states(last)

    def _packed_states(self, states: list[Tensor]) -> States:
        return (states[0], states[1]) if self.mode == "LSTM" else states[0]

    def _check_input(self, x: Tensor) -> None:
        name = type(self).__name__
        check_tensor(name, x)
        axes = "(batch, steps, {})" if self.batch_first else "(steps, batch, {})"
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            wanted = axes.format(self.input_size)
            raise ShapeError(f"[{name}] expected an input {wanted} or (steps, {self.input_size}), got {x.shape}")
        if not x.shape[1 if self.batch_first and x.ndim == 3 else 0]:
            raise ShapeError(f"[{name}] expected at least one step, got an input of shape {x.shape}")

    def _states(self, x: Tensor, batch: int, hx: Any, is_single: bool) -> list[Tensor]:
        """The first states (layers, batch, size), and the cells."""
        name, places = type(self).__name__, self.num_layers * len(self._suffixes())
        sizes = [self.proj_size or self.hidden_size] + [self.hidden_size] * (self.mode == "LSTM")
        if hx is None:
            return [alpha.zeros((places, batch, size), dtype=x.dtype, engine=x.engine) for size in sizes]
        if len(sizes) == 2 and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise ArgumentError(f"[{name}] expected hx as a tuple (states, cells), got {type(hx).__name__}")
        given = list(hx) if len(sizes) == 2 else [hx]
        check_tensor(name, *given)
        for one, size in zip(given, sizes, strict=True):
            wanted = (places, size) if is_single else (places, batch, size)
            if one.shape != wanted:
                raise ShapeError(f"[{name}] expected states of shape {wanted}, got {one.shape}")
        return [F.unsqueeze(one, 1) for one in given] if is_single else given

    def _run(self, sizes: tuple[int, ...], x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The last layer's results of rows, and the last states of all layers."""
        suffixes, last = self._suffixes(), []
        for layer in range(self.num_layers):
            outputs = []
            for place, suffix in enumerate(suffixes):
                first = [one[layer * len(suffixes) + place] for one in states]
                steps = Steps(sizes, place == 1)
                output, *final = recurrent(self._kind, steps, x, first, self._weights(layer, suffix))
                outputs.append(output)
                last.append(final)
            x = F.concat(outputs, 1) if len(outputs) > 1 else outputs[0]
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, [F.stack(list(parts)) for parts in zip(*last, strict=True)]

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, default in (*defaults.items(), ("bidirectional", False)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with max(., 0) instead of tanh. Elman, Cognitive Science 14, 1990.

    Arguments as for ``RNNBase``; ``nonlinearity``: ``"tanh"`` or ``"relu"``.
    """

    @placed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        self.nonlinearity = choice(nonlinearity, ("tanh", "relu"), "nonlinearity", "RNN")
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


class LSTM(RNNBase):
    """Long short-term memory. Hochreiter & Schmidhuber, Neural Computation 9, 1997.

    i, f, o = sigmoid(W x + b + U h + d) and g = tanh(W x + b + U h + d), each by its part of the rows in the order
    i, f, g, o; c' = f * c + i * g; h' = o * tanh(c'). With ``proj_size`` h' = W_hr (o * tanh(c')). Arguments as for
    ``RNNBase``; states are tuples (h, c).
    """

    @placed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        options = bias, batch_first, dropout, bidirectional, proj_size
        super().__init__("LSTM", input_size, hidden_size, num_layers, *options)


class GRU(RNNBase):
    """Gated recurrent unit. Cho et al., arXiv 1406.1078.

    r, z = sigmoid(W x + b + U h + d) and n = tanh(W x + b + r * (U h + d)), each by its part of the rows in the order
    r, z, n; h' = (1 - z) * n + z * h. Arguments as for ``RNNBase``.
    """

    @placed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
