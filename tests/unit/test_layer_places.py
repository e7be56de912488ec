"""The arguments ``device`` and ``dtype`` of layers: where their parameters are made, and of which floats."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import ArgumentError, DtypeError
from alpha.nn.places import placed

LAYERS: dict[str, tuple[Any, ...]] = {
    "AdaptiveLogSoftmaxWithLoss": (8, 10, [4]),
    "BatchNorm1d": (3,),
    "BatchNorm2d": (3,),
    "BatchNorm3d": (3,),
    "Bilinear": (2, 3, 4),
    "Conv1d": (3, 4, 2),
    "Conv2d": (3, 4, 2),
    "Conv3d": (3, 4, 2),
    "ConvTranspose1d": (3, 4, 2),
    "ConvTranspose2d": (3, 4, 2),
    "ConvTranspose3d": (3, 4, 2),
    "Embedding": (5, 3),
    "EmbeddingBag": (5, 3),
    "GRU": (3, 4),
    "GRUCell": (3, 4),
    "GroupNorm": (2, 4),
    "InstanceNorm1d": (3, 1e-5, 0.1, True, True),
    "InstanceNorm2d": (3, 1e-5, 0.1, True, True),
    "InstanceNorm3d": (3, 1e-5, 0.1, True, True),
    "LSTM": (3, 4, 2),
    "LSTMCell": (3, 4),
    "LayerNorm": (3,),
    "LazyBatchNorm1d": (),
    "LazyBatchNorm2d": (),
    "LazyBatchNorm3d": (),
    "LazyConv1d": (4, 2),
    "LazyConv2d": (4, 2),
    "LazyConv3d": (4, 2),
    "LazyConvTranspose1d": (4, 2),
    "LazyConvTranspose2d": (4, 2),
    "LazyConvTranspose3d": (4, 2),
    "LazyInstanceNorm1d": (),
    "LazyInstanceNorm2d": (),
    "LazyInstanceNorm3d": (),
    "LazyLinear": (4,),
    "Linear": (3, 4),
    "MultiheadAttention": (4, 2, 0.0, True, True),
    "PReLU": (),
    "RMSNorm": (3,),
    "RNN": (3, 4),
    "RNNBase": ("GRU", 3, 4),
    "RNNCell": (3, 4),
    "RNNCellBase": (3, 4, True, 2),
    "SyncBatchNorm": (3,),
    "Transformer": (4, 2, 1, 1, 8),
    "TransformerDecoderLayer": (4, 2, 8),
    "TransformerEncoderLayer": (4, 2, 8),
}


def test_all_layers_with_parameters_have_them() -> None:
    def takes(name: str) -> bool:
        layer = getattr(nn, name)
        return (
            isinstance(layer, type) and issubclass(layer, nn.Module) and "device" in inspect.signature(layer).parameters
        )

    assert {name for name in dir(nn) if takes(name)} == set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_and_buffers_are_made_there(name: str) -> None:
    layer = getattr(nn, name)(*LAYERS[name], device="toy", dtype=alpha.float64)
    tensors = [*layer.parameters(), *layer.buffers()]
    assert tensors and all(one.engine is alpha.engine("toy") for one in tensors)
    assert {str(one.dtype) for one in tensors} <= {"float64", "int64"} and tensors[0].dtype == alpha.float64
    plain = getattr(nn, name)(*LAYERS[name])
    assert all(one.engine is alpha.default_engine() and one.dtype != alpha.float64 for one in plain.parameters())


def test_one_argument_leaves_the_other_to_the_defaults() -> None:
    with alpha.device("toy"):
        assert nn.Linear(2, 3, dtype="float64").weight.engine is alpha.engine("toy")
        assert nn.Linear(2, 3, device="cpu").weight.engine is alpha.engine("cpu")
    before = alpha.get_default_dtype()
    try:
        alpha.set_default_dtype(alpha.float64)
        assert nn.Linear(2, 3, device="toy").weight.dtype == alpha.float64
    finally:
        alpha.set_default_dtype(before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype: str) -> None:
    layer = nn.Linear(3, 4, True, None, dtype)
    assert str(layer.weight.dtype) == dtype and layer(alpha.ones(2, 3).to(layer.weight.dtype)).shape == (2, 4)


def test_the_numbers_are_drawn_in_that_dtype() -> None:
    """A weight of float64 has more digits than one of float32 that was cast."""
    weight = np.asarray(nn.Linear(30, 40, dtype=alpha.float64).weight.detach())
    assert (weight.astype(np.float32) != weight).any()


class Outer(nn.Module):
    """A layer of a user's own: what it makes inherits its place, or says another."""

    @placed
    def __init__(self, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.inherits = nn.Linear(2, 2)
        self.differs = nn.Linear(2, 2, dtype=alpha.float32)


def test_layers_within_layers() -> None:
    net = Outer("toy", alpha.float64)
    assert net.inherits.weight.engine is net.differs.weight.engine is alpha.engine("toy")
    assert net.inherits.weight.dtype == alpha.float64 and net.differs.weight.dtype == alpha.float32


def test_an_error_or_another_thread_changes_nothing() -> None:
    with pytest.raises(ArgumentError, match=r"\[Linear\] expected out_features"):
        nn.Linear(2, -1, dtype=alpha.float64)
    assert nn.Linear(2, 2).weight.dtype == alpha.float32
    found = []

    class Asks(nn.Module):
        @placed
        def __init__(self, device: Any = None, dtype: Any = None) -> None:
            super().__init__()
            thread = threading.Thread(target=lambda: found.append(nn.Linear(2, 2).weight.dtype))
            thread.start()
            thread.join()

    Asks(dtype=alpha.float64)
    assert found == [alpha.float32]


def test_bad_places() -> None:
    with pytest.raises(DtypeError, match=r"\[Linear\] expected dtype as .*, got int64: parameters carry gradients"):
        nn.Linear(2, 2, dtype="int64")
    with pytest.raises(DtypeError, match=r"\[Conv2d\] expected .*, got 'flaot'"):
        nn.Conv2d(2, 2, 1, dtype="flaot")
    with pytest.raises(alpha.errors.AlphaError, match="meta"):
        nn.LayerNorm(3, device="meta")


def test_what_has_no_dtype_behind_device() -> None:
    with pytest.raises(TypeError, match=r"\[placed\] expected dtype behind device"):

        @placed
        def init(self: Any, device: Any = None, other: Any = None) -> None:
            raise AssertionError
