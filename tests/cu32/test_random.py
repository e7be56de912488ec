"""Random numbers made on the device: the CPU's, to the bit; fresh ones in each replay of a captured step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.functions as F
from alpha import nn, random
from alpha.cu32 import dropout, strided
from alpha.engine import Engine
from tests.cu32.captures import Captured, capturing
from tests.cu32.test_arrays import PLACES

SHAPES = [(), (1,), (2,), (3,), (4,), (5,), (1023,), (70_001,), (33, 7), (0, 3)]
DRAWS = [random.draw_uniform, random.draw_normal]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", DRAWS)
def test_draws_are_the_hosts_to_the_bit(cu32: Engine, make: Any, dtype: str) -> None:
    for shape in SHAPES:
        for offset in (0, 2**32 - 100, 2**64 - 5):  # the counter's low word, then all of it, runs over on the way
            random.set_state({"seed": 2**64 - 12345, "offset": offset})
            draw = make(shape, -1.5, 2.25, dtype)
            made = cu32.random(draw)
            assert made.shape == shape and made.dtype == dtype
            assert made.numpy().tobytes() == draw.numpy().tobytes()


def test_a_uniform_draw_never_returns_its_end(cu32: Engine) -> None:
    random.manual_seed(0)
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert (cu32.random(random.draw_uniform(1000, float(low), float(high))).numpy() == low).all()


def test_functions_and_initialisers_draw_the_same_on_both_engines(cu32: Engine) -> None:
    def drawn(engine: Engine | str) -> list[bytes]:
        random.manual_seed(3)
        weight = F.empty(6, 3, 3, 5, engine=engine)
        made = [F.rand(5, 3, engine=engine), F.randn(7, dtype="float64", engine=engine)]
        made += [init(weight).clone() for init in (nn.init.uniform_, nn.init.normal_, nn.init.kaiming_normal_)]
        flipped = weight.permute(3, 1, 0, 2)  # elements count in logical order, whatever the memory's
        return [tensor.numpy().tobytes() for tensor in (*made, nn.init.uniform_(flipped))]

    from alpha.cpu.engine import CPUEngine

    assert drawn(cu32) == drawn(CPUEngine(memory="64MB"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", DRAWS)
def test_a_replay_draws_what_the_step_would_have_drawn(cu32: Engine, make: Any, dtype: str) -> None:
    random.manual_seed(6)
    expected = [make((5, 3), 1.0, 2.0, dtype).numpy() for _ in range(3)]
    random.manual_seed(6)
    captured = Captured(cu32)
    draw = make((5, 3), 1.0, 2.0, dtype)
    with capturing(cu32, captured):
        cu32.random(draw)
    for want in expected:
        captured.store(cu32)
        # A launch like the captured one, its arguments those of the first draw, its memory that of the replay.
        again = Captured(cu32)
        again.rooms = captured.rooms
        with capturing(cu32, again):
            made = cu32.random(draw)
        assert made.numpy().tobytes() == want.tobytes()
        captured.replay()


def test_a_replay_of_dropout_draws_afresh(cu32: Engine) -> None:
    x = cu32.from_numpy(np.ones((6, 7), np.float32))
    random.manual_seed(9)
    expected = [F.dropout(x, 0.5).numpy().tobytes() for _ in range(3)]
    random.manual_seed(9)
    captured = Captured(cu32)
    place = random.reserve(x.numel())
    with capturing(cu32, captured):
        cu32.dropout(x, 0.5, *place)
    for want in expected:
        captured.store(cu32)
        again = Captured(cu32)
        again.rooms = captured.rooms
        with capturing(cu32, again):
            y, _ = cu32.dropout(x, 0.5, *place)
        assert y.numpy().tobytes() == want
        captured.replay()


def test_dropout_of_more_axes_than_the_kernel_takes(cu32: Engine, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 1, 3, 1, 2, 1, 2, 1, 2)).astype(np.float32)
    x = cu32.from_numpy(values).permute(8, 0, 1, 7, 2, 3, 6, 4, 5)
    y, mask = cu32.dropout(x, 0.4, 1, 2)
    keep = random.uniforms(1, 2, values.size).reshape(x.shape) >= np.float32(0.4)
    assert np.array_equal(mask.numpy(), keep)
    assert np.array_equal(y.numpy(), np.where(keep, x.numpy() * np.float32(1 / 0.6), 0))
    assert y.memory_order() == x.memory_order()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dropout_has_the_cpus_bits_wherever_tensors_lie(cu32: Engine, rng: np.random.Generator, dtype: Any) -> None:
    cpu = alpha.engine("cpu")
    values = rng.standard_normal(4096).astype(dtype)
    for place, _ in PLACES.values():
        here, there = (engine.from_numpy(values).strided(*place) for engine in (cu32, cpu))
        for seed, offset in ((2**64 - 5, 2**32 - 20), (7, 2**63)):
            mine, theirs = (x.engine.dropout(x, 0.3, seed, offset) for x in (here, there))
            for one, other in zip(mine, theirs, strict=True):
                assert one.strides == other.strides and one.numpy().tobytes() == other.numpy().tobytes()


def test_dropout_in_pieces(cu32: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beyond 32 bits takes several launches; here the bound is 50 elements."""
    monkeypatch.setattr(strided, "plan", functools.partial(strided.plan, limit=50))
    monkeypatch.setattr(dropout, "_plan", dropout._plan.__wrapped__)
    values = rng.standard_normal((5, 3, 52)).astype(np.float32)
    keep = random.uniforms(5, 6, values.size).reshape(values.shape) >= np.float32(0.25)
    for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
        x = cu32.empty(values.shape, alpha.float32, order)
        cu32.copy(cu32.from_numpy(values), x)
        y, mask = cu32.dropout(x, 0.25, 5, 6)
        assert np.array_equal(mask.numpy(), keep)
        assert np.array_equal(y.numpy(), np.where(keep, values * np.float32(1 / 0.75), 0))


def test_dropout_of_vectors_that_do_not_lie_on_16_bytes(cu32: Engine, rng: np.random.Generator) -> None:
    wide = cu32.from_numpy(rng.standard_normal(1000).astype(np.float32))
    for view in (
        wide.strided(1, (99,), (1,)),
        wide.strided(3, (4, 3, 8), (8, 32, 1)),
        wide.strided(4, (4, 3, 8), (9, 36, 1)),
        wide.strided(4, (4, 3, 8), (8, 40, 1)),
        wide.strided(0, (4, 3, 6), (6, 24, 1)),
    ):
        y, mask = cu32.dropout(view, 0.25, 5, 6)
        keep = random.uniforms(5, 6, view.numel()).reshape(view.shape) >= np.float32(0.25)
        assert np.array_equal(mask.numpy(), keep)
        assert np.array_equal(y.numpy(), np.where(keep, view.numpy() * np.float32(1 / 0.75), 0))


def test_a_module_made_on_the_device_has_the_cpus_weights(cu32: Engine) -> None:
    before = alpha.default_engine()
    weights = []
    try:
        for engine in (before, cu32):
            alpha.set_default_engine(engine)
            random.manual_seed(1)
            weights.append([p.detach().numpy().tobytes() for p in nn.Linear(7, 5).parameters()])
    finally:
        alpha.set_default_engine(before)
    assert weights[0] == weights[1]
