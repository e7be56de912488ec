"""Recurrent layers, cells and packed sequences beside PyTorch's: results and all gradients from equal weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, ShapeError
from alpha.nn.utils import rnn
from alpha.testing import gradgradcheck
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
INPUTS, HIDDEN = 3, 5

LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bidirectional": True}),
    ("LSTM", {}),
    ("LSTM", {"num_layers": 2, "bias": False, "batch_first": True}),
    ("LSTM", {"bidirectional": True, "proj_size": 2, "num_layers": 2}),
    ("GRU", {}),
    ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("GRU", {"bias": False}),
]


class Pair:
    """A layer here and PyTorch's with the same weights, in float64, and tensors of the same numbers for both."""

    def __init__(self, engine: Engine, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        import torch

        self.torch, self.engine = torch, engine
        self.theirs = getattr(torch.nn, name)(*args, **options).double()
        self.ours = getattr(nn, name)(*args, **options).to(engine).double()
        self.ours.load_state_dict({key: value.numpy() for key, value in self.theirs.state_dict().items()})
        self.given: list[tuple[alpha.Tensor, Any]] = []

    def tensors(self, array: Array) -> tuple[alpha.Tensor, Any]:
        """Leaves of both sides."""
        pair = alpha.tensor(array, engine=self.engine, requires_grad=True), self.torch.tensor(array, requires_grad=True)
        self.given.append(pair)
        return pair

    def compare(self, ours: list[alpha.Tensor], theirs: list[Any], rng: np.random.Generator) -> None:
        """Compares results, and the gradients of their sum weighted by random numbers."""
        total, expected = alpha.tensor(0.0, alpha.float64, engine=self.engine), 0.0
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.detach(), other.detach().numpy(), **TOLERANCE)
            weights = rng.normal(size=one.shape)
            total = total + (one * alpha.tensor(weights, engine=self.engine)).sum()
            expected = expected + (other * self.torch.tensor(weights)).sum()
        total.backward()
        expected.backward()
        for one, other in (*self.given, *zip(self.ours.parameters(), self.theirs.parameters(), strict=True)):
            assert one.grad is not None
            np.testing.assert_allclose(one.grad, other.grad.numpy(), **TOLERANCE)


def flat(result: Any) -> list[Any]:
    """The tensors of (output, states), whose states may be a tuple."""
    output, states = result
    return [output, *(states if isinstance(states, tuple) else [states])]


def states_of(pair: Pair, name: str, options: dict[str, Any], batch: tuple[int, ...], rng: Any) -> tuple[Any, Any]:
    places = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    h = pair.tensors(rng.normal(size=(places, *batch, options.get("proj_size") or HIDDEN)))
    if name != "LSTM":
        return h
    c = pair.tensors(rng.normal(size=(places, *batch, HIDDEN)))
    return (h[0], c[0]), (h[1], c[1])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["batch", "single", "packed", "no states"])
@pytest.mark.parametrize(("name", "options"), LAYERS)
def test_layers_match_pytorch(
    engine: Engine, rng: np.random.Generator, name: str, options: dict[str, Any], kind: str
) -> None:
    pair = Pair(engine, name, (INPUTS, HIDDEN), options)
    assert list(pair.ours.state_dict()) == list(pair.theirs.state_dict())
    assert repr(pair.ours) == repr(pair.theirs)
    batch: tuple[int, ...] = () if kind == "single" else (4,)
    shape = (*batch, 6) if options.get("batch_first") and batch else (6, *batch)
    x, tx = pair.tensors(rng.normal(size=(*shape, INPUTS)))
    states = None, None
    if kind != "no states":
        states = states_of(pair, name, options, batch, rng)
    if kind != "packed":
        pair.compare(flat(pair.ours(x, states[0])), flat(pair.theirs(tx, states[1])), rng)
        return
    first, lengths = options.get("batch_first", False), [2, 6, 1, 6]
    pack = pair.torch.nn.utils.rnn
    y, last = pair.ours(rnn.pack_padded_sequence(x, lengths, first, enforce_sorted=False), states[0])
    ty, t_last = pair.theirs(pack.pack_padded_sequence(tx, lengths, first, enforce_sorted=False), states[1])
    padded, found = rnn.pad_packed_sequence(y, first, -1.5, total_length=7)
    t_padded, t_found = pack.pad_packed_sequence(ty, first, -1.5, total_length=7)
    assert found.tolist() == t_found.tolist() == lengths
    pair.compare(flat((padded, last)), flat((t_padded, t_last)), rng)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"proj_size": 2}])
def test_gradients_of_one_result_twice(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], which: int
) -> None:
    """Only some of the results are used, the input needs no gradient, and backward runs twice."""
    pair = Pair(engine, "LSTM", (INPUTS, HIDDEN), options)
    x = rng.normal(size=(4, 2, INPUTS))
    y = flat(pair.ours(alpha.tensor(x, engine=engine)))[which]
    expected = flat(pair.theirs(pair.torch.tensor(x)))[which]
    for _ in range(2):
        (y * y).sum().backward(retain_graph=True)
        (expected * expected).sum().backward(retain_graph=True)
    for one, other in zip(pair.ours.parameters(), pair.theirs.parameters(), strict=True):
        assert one.grad is not None
        np.testing.assert_allclose(one.grad, other.grad.numpy(), **TOLERANCE)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("batch", [(), (4,)])
@pytest.mark.parametrize(
    ("name", "options"),
    [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu", "bias": False}), ("LSTMCell", {}), ("GRUCell", {})],
)
def test_cells_match_pytorch(
    engine: Engine, rng: np.random.Generator, name: str, options: dict[str, Any], batch: tuple[int, ...]
) -> None:
    """Two steps in a row, and the start from nothing."""
    pair = Pair(engine, name, (INPUTS, HIDDEN), options)
    assert repr(pair.ours) == repr(pair.theirs)
    xs = [pair.tensors(rng.normal(size=(*batch, INPUTS))) for _ in range(2)]
    h, t = None, None
    for x, tx in xs:
        h, t = pair.ours(x, h), pair.theirs(tx, t)
    pair.compare(list(h) if isinstance(h, tuple) else [h], list(t) if isinstance(t, tuple) else [t], rng)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_steps_one_by_one_give_the_same(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """A sequence in two pieces, the second from the first's states, is the whole."""
    layer = getattr(nn, name)(INPUTS, HIDDEN).to(engine).double()
    x = alpha.tensor(rng.normal(size=(5, 2, INPUTS)), engine=engine)
    whole, last = layer(x)
    first, states = layer(x[:2])
    second, end = layer(x[2:], states)
    np.testing.assert_allclose(alpha.concat([first, second]).detach(), whole.detach(), **TOLERANCE)
    for one, other in zip(flat((second, end))[1:], flat((whole, last))[1:], strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), **TOLERANCE)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_gradcheck(engine: Engine, rng: np.random.Generator, name: str) -> None:
    layer = getattr(nn, name)(2, 3).to(engine).double()
    gradcheck_on(engine, lambda x: layer(x)[0], rng.normal(size=(3, 2, 2)))


SECOND: list[tuple[str, dict[str, Any], str]] = [
    ("RNN", {}, "batch"),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bias": False}, "single"),
    ("LSTM", {"bidirectional": True}, "packed"),
    ("LSTM", {"num_layers": 2, "proj_size": 1, "batch_first": True}, "batch"),
    ("LSTM", {"bias": False}, "single"),
    ("GRU", {"bidirectional": True}, "packed"),
    ("GRU", {"num_layers": 2}, "batch"),
    ("RNNCell", {}, "cell"),
    ("LSTMCell", {"bias": False}, "cell"),
    ("GRUCell", {}, "cell"),
]


def with_weights(layer: nn.Module, x: Array, first: bool, kind: str) -> tuple[Any, list[alpha.Tensor]]:
    """A layer as a function of its input and all of its weights, and these."""
    names, weights = zip(*layer.named_parameters(), strict=True)

    def function(x: Any, *given: Any) -> Any:
        if kind == "packed":
            x = rnn.pack_padded_sequence(x, [1, 3], first, enforce_sorted=False)
        result = alpha.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,))
        if kind == "cell":
            return result
        output, states = result
        return (output.data if kind == "packed" else output), *(states if isinstance(states, tuple) else [states])

    return function, [alpha.tensor(x, engine=weights[0].engine), *[weight.detach() for weight in weights]]


@pytest.mark.parametrize(("name", "options", "kind"), SECOND)
def test_gradients_have_gradients(
    engine: Engine, rng: np.random.Generator, name: str, options: dict[str, Any], kind: str
) -> None:
    """The second gradients of the input and of every weight, on shapes that nothing divides."""
    layer = getattr(nn, name)(2, 2, **options).to(engine).double()
    shape = {"single": (3, 2), "cell": (3, 2)}.get(kind, (2, 3, 2) if options.get("batch_first") else (3, 2, 2))
    function, given = with_weights(layer, rng.normal(size=shape), options.get("batch_first", False), kind)
    assert gradgradcheck(function, *given)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_penalties_on_gradients_match_pytorch(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """The gradient of the squared gradients of the input and of the first states, at all weights."""
    options = {"num_layers": 2, "bidirectional": True}
    pair = Pair(engine, name, (INPUTS, HIDDEN), options)
    x, tx = pair.tensors(rng.normal(size=(4, 2, INPUTS)))
    states, t_states = states_of(pair, name, options, (2,), rng)
    ours, theirs = zip(*pair.given, strict=True)
    slopes = alpha.autograd.grad((pair.ours(x, states)[0] ** 3).sum(), ours, create_graph=True)
    expected = pair.torch.autograd.grad((pair.theirs(tx, t_states)[0] ** 3).sum(), theirs, create_graph=True)
    pair.compare([(one * one).sum() for one in slopes], [(one * one).sum() for one in expected], rng)


def test_dropout_is_between_layers_in_training_alone() -> None:
    layer = nn.LSTM(INPUTS, HIDDEN, 2, dropout=1.0)
    x = alpha.randn(4, 2, INPUTS)
    assert (layer(x)[0] == layer(alpha.randn(4, 2, INPUTS))[0]).all()  # the second layer sees nothing
    layer.eval()
    assert not (layer(x)[0] == layer(alpha.randn(4, 2, INPUTS))[0]).all()
    with pytest.warns(UserWarning, match="several layers"):
        nn.GRU(2, 3, dropout=0.5)


def test_initial_weights_are_uniform_by_the_hidden_size() -> None:
    layer = nn.GRU(40, 64)
    for parameter in layer.parameters():
        assert 0.95 / 8 < float(abs(parameter.detach()).max()) <= 1 / 8
    layer.flatten_parameters()
    assert [len(weights) for weights in nn.LSTM(2, 3, 2, bidirectional=True).all_weights] == [4] * 4


def test_an_output_that_is_overwritten_is_noticed() -> None:
    layer = nn.LSTM(INPUTS, HIDDEN)
    y, _ = layer(alpha.randn(4, 2, INPUTS))
    y.detach().fill_(0)
    with pytest.raises(AlphaError, match="in-place operation overwrote"):
        y.sum().backward()


def test_an_empty_batch() -> None:
    layer = nn.GRU(INPUTS, HIDDEN)
    y, h = layer(alpha.zeros(4, 0, INPUTS))
    assert (y.shape, h.shape) == ((4, 0, HIDDEN), (1, 0, HIDDEN))


# -- packing -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_matches_pytorch(rng: np.random.Generator, batch_first: bool) -> None:
    import torch

    theirs = torch.nn.utils.rnn
    arrays = [rng.normal(size=(length, 2)) for length in (3, 1, 4, 3)]
    ours, other = [alpha.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    for side in ("right", "left"):
        padded = rnn.pad_sequence(ours, batch_first, 2.5, side)
        np.testing.assert_array_equal(padded, theirs.pad_sequence(other, batch_first, 2.5, side))
    packed, t_packed = rnn.pack_sequence(ours, False), theirs.pack_sequence(other, False)
    np.testing.assert_array_equal(packed.data, t_packed.data)
    assert packed.batch_sizes.tolist() == t_packed.batch_sizes.tolist()
    assert packed.sorted_indices is not None
    assert packed.sorted_indices.tolist() == t_packed.sorted_indices.tolist()
    for one, array in zip(rnn.unpack_sequence(packed), arrays, strict=True):
        np.testing.assert_array_equal(one, array)
    assert packed.float().data.dtype == alpha.float32
    assert packed.double().to("cpu").data.dtype == alpha.float64


def test_bad_arguments_are_refused() -> None:
    x = alpha.zeros(4, 2, INPUTS)
    lstm = nn.LSTM(INPUTS, HIDDEN)
    with pytest.raises(ShapeError, match=r"expected an input \(steps, batch, 3\)"):
        lstm(alpha.zeros(4, 2, 7))
    with pytest.raises(ShapeError, match="at least one step"):
        lstm(alpha.zeros(0, 2, INPUTS))
    with pytest.raises(ShapeError, match=r"states of shape \(1, 2, 5\)"):
        nn.GRU(INPUTS, HIDDEN)(x, alpha.zeros(1, 3, HIDDEN))
    with pytest.raises(ArgumentError, match="tuple"):
        lstm(x, alpha.zeros(1, 2, HIDDEN))
    with pytest.raises(DtypeError, match="one dtype"):
        lstm(x.double())
    with pytest.raises(ArgumentError, match="proj_size"):
        nn.LSTM(2, 3, proj_size=3)
    with pytest.raises(ArgumentError, match="nonlinearity"):
        nn.RNN(2, 3, nonlinearity="selu")
    with pytest.raises(ShapeError, match="states of shape"):
        nn.GRUCell(2, 3)(alpha.zeros(4, 2), alpha.zeros(5, 3))
    with pytest.raises(ArgumentError, match="do not grow"):
        rnn.pack_padded_sequence(x, [1, 2])
    for lengths in ([1], [0, 1], [5, 1], [1.5, 1.0]):
        with pytest.raises(ArgumentError, match="lengths"):
            rnn.pack_padded_sequence(x, lengths)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="PackedSequence"):
        rnn.pad_packed_sequence(x)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="differ in length alone"):
        rnn.pad_sequence([alpha.zeros(2, 3), alpha.zeros(2, 4)])
