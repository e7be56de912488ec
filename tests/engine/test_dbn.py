"""DBN: passes by hand, greedy training, the network it unfolds into, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.testing import assert_close

Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def stack(engine: Engine, rng: np.random.Generator, sizes: Any = (7, 5, 4)) -> tuple[nn.models.DBN, list[Any]]:
    """A net in float64, and weight, visible bias and hidden bias of each machine."""
    net = nn.models.DBN(sizes).to(engine).to(alpha.float64)
    values = []
    for visible, hidden, rbm in zip(sizes, sizes[1:], net.rbms, strict=False):
        values.append([rng.normal(size=shape) for shape in ((hidden, visible), visible, hidden)])
        rbm.load_state_dict(dict(zip(("weight", "visible_bias", "hidden_bias"), values[-1], strict=True)))
    return net, values


def test_up_and_down_by_hand(engine: Engine, rng: np.random.Generator) -> None:
    net, values = stack(engine, rng)
    x = h = rng.uniform(size=(3, 7))
    for weight, _, bias in values:
        h = sigmoid(h @ weight.T + bias)
    assert_close(net.transform(x), h)
    assert_close(net(engine.from_numpy(x)), h)
    v = h
    for weight, bias, _ in reversed(values):
        v = sigmoid(v @ weight + bias)
    assert_close(net.reconstruct(x), v)


@pytest.mark.parametrize("persistent", [False, True])
def test_fit_is_greedy(engine: Engine, rng: np.random.Generator, persistent: bool) -> None:
    """The same as fitting each machine by hand on what the one below makes of the rows."""
    x, others = rng.uniform(size=(20, 7)), rng.uniform(size=(6, 7))
    options = {"k": 2, "persistent": persistent, "chains": 4}
    alpha.manual_seed(1)
    net = nn.models.DBN([7, 5, 4], **options).to(engine)
    alpha.manual_seed(1)
    machines = [nn.models.RBM(*units, **options).to(engine) for units in ((7, 5), (5, 4))]
    assert net.fit(x, 2, held_out=others, seed=3, batch_size=6, lr=0.1) is net
    alpha.manual_seed(3)
    machines[0].fit(x, 2, held_out=others, batch_size=6, lr=0.1)
    below = [machines[0].transform(rows) for rows in (x, others)]
    machines[1].fit(below[0], 2, held_out=below[1], batch_size=6, lr=0.1)
    for ours, expected in zip(net.rbms, machines, strict=True):
        for name, value in expected.state_dict().items():
            np.testing.assert_array_equal(np.array(ours.state_dict()[name]), np.array(value))
    assert net.history == [machine.history for machine in machines]
    assert [len(history["held_out_free_energy"]) for history in net.history] == [2, 2]


def test_state_has_a_name_for_every_machine(engine: Engine) -> None:
    assert list(nn.models.DBN([3, 2, 2]).state_dict()) == [
        f"rbms.{n}.{name}" for n in (0, 1) for name in ("weight", "visible_bias", "hidden_bias")
    ]


def test_the_network_it_unfolds_into_starts_where_it_is_and_learns(engine: Engine, rng: np.random.Generator) -> None:
    net, values = stack(engine, rng)
    mlp = net.to_mlp(3, dropout=0.25)
    assert mlp.sizes == (7, 5, 4, 3)
    assert next(mlp.parameters()).engine is engine and next(mlp.parameters()).dtype == alpha.float64
    x = rng.uniform(size=(6, 7))
    last = mlp.linears[-1]
    expected = np.array(net.transform(x)) @ np.array(last.weight.detach()).T + np.array(last.bias.detach())
    assert_close(mlp.eval()(engine.from_numpy(x)), expected)
    labels = alpha.tensor(np.array([0, 1, 2, 0, 1, 2]), engine=engine)
    optimizer = alpha.optim.Adam(mlp.parameters(), lr=0.05)
    losses = []
    for _ in range(100):
        loss = nn.functional.cross_entropy(mlp(engine.from_numpy(x)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    for rbm, (weight, _, _) in zip(net.rbms, values, strict=True):  # copies: the machines stay as they were
        np.testing.assert_array_equal(np.array(rbm.weight.detach()), weight)


def test_misuse_says_what_was_expected() -> None:
    with pytest.raises(ArgumentError, match=r"\[DBN\] expected sizes as a list of at least two lengths, got \[3\]"):
        nn.models.DBN([3])
    net = nn.models.DBN([3, 2])
    with pytest.raises(ShapeError, match=r"\[transform\] expected rows \(n, 3\), n >= 1, got \(2, 4\)"):
        net.transform(np.zeros((2, 4)))
    with pytest.raises(ArgumentError, match=r"\[RBM.fit\] expected values in 0..1"):
        net.fit(np.full((2, 3), 2.0))
    with pytest.raises(ArgumentError, match=r"\[MLP\] expected sizes as an integer >= 1, got 0"):
        net.to_mlp(0)
