"""Settings under PyTorch's names: random states, threads, devices, precision, determinism, how tensors print."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import ArgumentError, EngineError


def test_states_bring_the_draws_back_to_the_bit() -> None:
    alpha.manual_seed(11)
    assert alpha.initial_seed() == 11
    alpha.rand(7)
    state = alpha.get_rng_state()
    assert state.dtype == alpha.uint8 and state.shape == (16,)

    def drawn() -> list[Any]:
        x = alpha.zeros(5)
        found = [alpha.rand(3), alpha.randn(3), x.exponential_().clone(), alpha.poisson(alpha.full((4,), 30.0))]
        return [part.tolist() for part in [*found, alpha.randperm(9), x.long().random_()]]

    first = drawn()
    assert drawn() != first
    for again in (state, state.clone(), alpha.tensor(np.asarray(state))):
        alpha.set_rng_state(again)
        assert drawn() == first
    before = alpha.get_rng_state().tolist()
    for wrong in (None, b"a" * 16, state[:8], state.long(), np.asarray(state)):
        with pytest.raises(ArgumentError, match=r"\[set_rng_state\] expected what get_rng_state returned"):
            alpha.set_rng_state(wrong)  # type: ignore[arg-type]
    assert alpha.get_rng_state().tolist() == before
    chosen = alpha.seed()
    assert chosen == alpha.initial_seed() != 11


def test_threads_of_the_cpu() -> None:
    count = alpha.get_num_threads()
    try:
        alpha.set_num_threads(1)
        assert alpha.get_num_threads() == alpha.engine("cpu").threads == 1  # type: ignore[attr-defined]
        for wrong in (0, -1, 1.5, "2", None):
            with pytest.raises(ArgumentError, match=r"\[set_num_threads\] expected num"):
                alpha.set_num_threads(wrong)  # type: ignore[arg-type]
    finally:
        alpha.set_num_threads(count)


@pytest.fixture
def default() -> Iterator[None]:
    engine = alpha.default_engine()
    yield
    alpha.set_default_engine(engine)


@pytest.mark.usefixtures("default")
def test_the_default_device() -> None:
    assert alpha.get_default_device() == alpha.device(alpha.default_engine())
    alpha.set_default_device("numpy")
    assert alpha.get_default_device() == alpha.device("numpy") and alpha.zeros(1).engine.name == "numpy"
    alpha.set_default_device(alpha.device("cpu"))
    assert alpha.zeros(1).engine.name == "cpu"
    alpha.set_default_device("numpy")
    alpha.set_default_device(None)
    assert alpha.zeros(1).engine.name == "cpu"
    with pytest.raises(ArgumentError, match=r"\[device\] expected"):
        alpha.set_default_device("nowhere")


@pytest.mark.usefixtures("default")
def test_blocks_of_devices() -> None:
    alpha.set_default_engine("cpu")
    numpy, elsewhere = alpha.device("numpy"), []
    with numpy:
        assert alpha.zeros(1).engine.name == alpha.tensor([1]).engine.name == alpha.rand(1).engine.name == "numpy"
        with alpha.device("cpu"):
            assert alpha.ones(1).engine.name == "cpu"
            with numpy:  # which is entered already
                assert alpha.arange(3).engine.name == "numpy"
            assert alpha.ones(1).engine.name == "cpu"
        assert alpha.get_default_device() == numpy
        assert alpha.zeros(1, engine="cpu").engine.name == alpha.zeros(1, device="cpu").engine.name == "cpu"
        thread = threading.Thread(target=lambda: elsewhere.append(alpha.zeros(1).engine.name))
        thread.start()
        thread.join()
    assert elsewhere == ["cpu"], "a block is of its thread"
    with pytest.raises(KeyError), numpy:
        raise KeyError
    assert alpha.zeros(1).engine.name == "cpu"
    device = alpha.device("cuda:99")
    with pytest.raises(EngineError), device:
        pass
    assert alpha.zeros(1).engine.name == "cpu"


def test_precision_of_products() -> None:
    before = alpha.get_float32_precision()
    try:
        for precision in ("ieee", "high", "medium", "highest"):
            alpha.set_float32_matmul_precision(precision)
            assert alpha.get_float32_matmul_precision() == alpha.get_float32_precision() == precision
        with pytest.raises(ArgumentError, match=r"\[set_float32_precision\] expected .* got 'lowest'"):
            alpha.set_float32_matmul_precision("lowest")
    finally:
        alpha.set_float32_precision(before)


def test_determinism_is_noted() -> None:
    try:
        alpha.use_deterministic_algorithms(True)
        assert alpha.are_deterministic_algorithms_enabled() and alpha.get_deterministic_debug_mode() == 2
        alpha.use_deterministic_algorithms(True, warn_only=True)
        assert alpha.is_deterministic_algorithms_warn_only_enabled() and alpha.get_deterministic_debug_mode() == 1
        for mode, number in (("error", 2), (1, 1), ("warn", 1), (2, 2), ("default", 0)):
            alpha.set_deterministic_debug_mode(mode)
            assert alpha.get_deterministic_debug_mode() == number
        assert not alpha.are_deterministic_algorithms_enabled()
        for wrong in (3, -1, "loud", True, None):
            with pytest.raises(ArgumentError, match=r"\[set_deterministic_debug_mode\] expected 0, 1, 2"):
                alpha.set_deterministic_debug_mode(wrong)  # type: ignore[arg-type]
    finally:
        alpha.use_deterministic_algorithms(False)


def test_names_of_types() -> None:
    assert alpha.typename(alpha.zeros(1)) == "torch.FloatTensor"
    assert alpha.typename(3) == "int" and alpha.typename([]) == "list" and alpha.typename(int) == "int"
    layer = alpha.nn.Linear(1, 1)
    assert alpha.typename(layer) == alpha.typename(alpha.nn.Linear) == "alpha.nn.linear.Linear"
    assert alpha.typename(alpha.zeros) == "alpha.functions.creation.zeros"
    assert alpha.vmap is alpha.func.vmap


@pytest.fixture
def printing() -> Iterator[None]:
    yield
    alpha.set_printoptions(profile="default")


def _shown(x: alpha.Tensor) -> str:
    return repr(x).partition(", shape")[0]


@pytest.mark.usefixtures("printing")
def test_tensors_print_as_asked() -> None:
    x = alpha.tensor([1.0, 0.123456789, 1234.5])
    before = _shown(x)
    alpha.set_printoptions(precision=2)
    assert _shown(x) == "tensor([1.00e+00, 1.23e-01, 1.23e+03]"
    alpha.set_printoptions(precision=3, sci_mode=True)
    assert _shown(x) == "tensor([1.000e+00, 1.235e-01, 1.234e+03]"
    assert _shown(alpha.tensor([1, 2])) == "tensor([1, 2]"
    alpha.set_printoptions(sci_mode=False)
    assert _shown(alpha.tensor([1e-9, 1.0])) == "tensor([0., 1.]"
    alpha.set_printoptions(profile="default")
    assert _shown(x) == before
    many = alpha.arange(1000)
    alpha.set_printoptions(edgeitems=2)
    assert _shown(many) == "tensor([  0,   1, ..., 998, 999]"
    alpha.set_printoptions(threshold=2000)
    assert "..." not in _shown(many)
    alpha.set_printoptions(profile="full", linewidth=40)
    assert "..." not in _shown(many) and max(len(line) for line in _shown(many).splitlines()) <= 40 + 7
    alpha.set_printoptions(profile="short")
    assert _shown(x) == "tensor([1.00e+00, 1.23e-01, 1.23e+03]"


@pytest.mark.usefixtures("printing")
@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": -1}, {"precision": 2.5}, {"threshold": "many"}, {"edgeitems": None, "linewidth": "wide"},
        {"profile": "long"}, {"sci_mode": np.zeros(2)}, {"edgeitems": 10**9},
    ],
)  # fmt: skip
def test_wrong_ways_to_print_change_nothing(wrong: dict[str, Any]) -> None:
    before = repr(alpha.arange(1000) / 7)
    with pytest.raises(ArgumentError, match=r"\[set_printoptions\] expected"):
        alpha.set_printoptions(**wrong)
    assert repr(alpha.arange(1000) / 7) == before
