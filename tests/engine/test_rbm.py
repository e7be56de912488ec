"""RBM against enumeration of all its states in float64: energies, probabilities, gradients, and what training does."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, NumericsError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on, sized

Array = np.ndarray[Any, Any]

VISIBLE, HIDDEN = 8, 6


def states(units: int) -> Array:
    """All 2 ** units states, a row each."""
    return np.array(list(product((0.0, 1.0), repeat=units)))


class Exact:
    """The distribution of a machine by enumeration: every state's energy from the definition."""

    def __init__(self, weight: Array, visible_bias: Array, hidden_bias: Array) -> None:
        self.v, self.h = states(weight.shape[1]), states(weight.shape[0])
        # -E of every pair, (visible states, hidden states)
        self.weight, self.visible_bias, self.hidden_bias = weight, visible_bias, hidden_bias
        scores = (self.v @ visible_bias)[:, None] + self.h @ hidden_bias + self.v @ weight.T @ self.h.T
        self.free_energy = -np.log(np.exp(scores).sum(1))
        self.log_z = float(np.log(np.exp(scores).sum()))
        self.joint = np.exp(scores - self.log_z)

    def statistics(self) -> tuple[Array, Array, Array]:
        """Means of h v', v and h under the model, and so the exact negative phase."""
        return self.h.T @ self.joint.T @ self.v, self.joint.sum(1) @ self.v, self.joint.sum(0) @ self.h

    def positive(self, data: Array) -> tuple[Array, Array, Array]:
        """The same under the data and p(h | v), state by state."""
        scores = data @ self.weight.T @ self.h.T + self.h @ self.hidden_bias
        p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return (p @ self.h).T @ data / len(data), data.mean(0), (p @ self.h).mean(0)

    def log_likelihood(self, data: Array) -> float:
        """Mean of log p(v)."""
        places = (data @ (2 ** np.arange(self.v.shape[1])[::-1])).astype(int)
        return float(np.mean(-self.free_energy[places])) - self.log_z


def machine(
    engine: Engine, rng: np.random.Generator, scale: float = 0.7, **options: Any
) -> tuple[nn.models.RBM, Exact]:
    """A machine in float64 whose couplings are not small, and its distribution."""
    rbm = nn.models.RBM(VISIBLE, HIDDEN, **options).to(engine).to(alpha.float64)
    values = [rng.normal(0, scale, shape) for shape in ((HIDDEN, VISIBLE), VISIBLE, HIDDEN)]
    rbm.load_state_dict(
        dict(zip(("weight", "visible_bias", "hidden_bias"), values, strict=True)), strict=not options.get("persistent")
    )
    return rbm, Exact(*values)


def exact_of(rbm: nn.models.RBM) -> Exact:
    return Exact(*(np.array(p.detach(), np.float64) for p in (rbm.weight, rbm.visible_bias, rbm.hidden_bias)))


# -- the distribution --------------------------------------------------------------------------------------------------


def test_free_energy_is_the_enumerated_sum(engine: Engine, rng: np.random.Generator) -> None:
    rbm, exact = machine(engine, rng)
    v = engine.from_numpy(exact.v)
    with alpha.no_grad():
        assert_close(rbm.free_energy(v), exact.free_energy)
        for h in exact.h[::13]:
            rows = engine.from_numpy(np.tile(h, (len(exact.v), 1)))
            score = exact.v @ exact.visible_bias + h @ exact.hidden_bias + exact.v @ exact.weight.T @ h
            assert_close(rbm.energy(v, rows), -score)


def test_conditional_probabilities_are_the_enumerated_ones(engine: Engine, rng: np.random.Generator) -> None:
    rbm, exact = machine(engine, rng)
    with alpha.no_grad():
        hidden = exact.joint @ exact.h / exact.joint.sum(1, keepdims=True)
        assert_close(rbm.hidden_probabilities(engine.from_numpy(exact.v)), hidden)
        visible = exact.joint.T @ exact.v / exact.joint.sum(0)[:, None]
        assert_close(rbm.visible_probabilities(engine.from_numpy(exact.h)), visible)
    assert_close(rbm.transform(exact.v), hidden)
    reconstruction = 1 / (1 + np.exp(-(hidden @ exact.weight + exact.visible_bias)))
    assert_close(rbm.reconstruct(exact.v), reconstruction)


def test_free_energy_far_from_zero_is_finite_and_differentiable(engine: Engine, rng: np.random.Generator) -> None:
    rbm = nn.models.RBM(3, 2).to(engine).to(alpha.float64)
    rbm.load_state_dict(
        {"weight": [[900.0] * 3, [-900.0] * 3], "visible_bias": np.zeros(3), "hidden_bias": np.zeros(2)}
    )
    # softplus(900 n) is 900 n in float64, softplus(-900 n) is 0.
    with alpha.no_grad():
        assert_close(rbm.free_energy(engine.from_numpy(np.eye(3))), np.full(3, -900.0) - 0.0)
    small, _ = machine(engine, rng)
    assert gradcheck_on(engine, small.free_energy, rng.uniform(size=(4, VISIBLE)))
    flat = nn.models.RBM(2, 1).to(engine).to(alpha.float64)
    flat.load_state_dict({"weight": np.zeros((1, 2)), "visible_bias": np.zeros(2), "hidden_bias": np.zeros(1)})
    flat.free_energy(engine.from_numpy(np.ones((1, 2)))).sum().backward()
    assert_close(flat.hidden_bias.grad, [-0.5])  # at 0 too, where max(x, 0) has a kink


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_the_positive_phase_is_exact(engine: Engine, rng: np.random.Generator) -> None:
    rbm, exact = machine(engine, rng)
    data = rng.integers(0, 2, (11, VISIBLE)).astype(np.float64)
    v = engine.from_numpy(data)
    with alpha.no_grad():
        found = rbm.statistics(v, rbm.hidden_probabilities(v))
    for ours, expected in zip(found, exact.positive(data), strict=True):
        assert_close(ours, expected)


def test_autograd_of_the_free_energies_gives_the_exact_gradient(engine: Engine, rng: np.random.Generator) -> None:
    rbm, exact = machine(engine, rng)
    data = rng.integers(0, 2, (9, VISIBLE)).astype(np.float64)
    everything = engine.from_numpy(exact.v)
    probabilities = engine.from_numpy(exact.joint.sum(1))
    loss = rbm.free_energy(engine.from_numpy(data)).mean() - (rbm.free_energy(everything) * probabilities).sum()
    loss.backward()
    gradients = (rbm.weight.grad, rbm.visible_bias.grad, rbm.hidden_bias.grad)
    for ours, negative, positive in zip(gradients, exact.statistics(), exact.positive(data), strict=True):
        assert_close(ours, negative - positive, rtol=1e-11)


@pytest.mark.parametrize("persistent", [False, True])
def test_long_chains_approach_the_exact_gradient(engine: Engine, rng: np.random.Generator, persistent: bool) -> None:
    """The negative phase is a mean over independent chains: within 5 standard errors of the enumerated one.

    62 numbers are compared; by chance one in 28,000 runs would be beyond. 100 steps forget the start by far.
    """
    chains = sized(engine, 6000, 500)
    rbm, exact = machine(engine, rng, scale=0.5, k=100, persistent=persistent, chains=chains)
    alpha.manual_seed(7)
    data = rng.integers(0, 2, (chains, VISIBLE)).astype(np.float64)
    found = [np.array(g) for g in rbm.gradients(engine.from_numpy(data))]
    # Deviations of h v', v and h under the model, with h the probabilities: those of states are no smaller.
    h = exact.joint @ exact.h / exact.joint.sum(1, keepdims=True)
    p = exact.joint.sum(1)
    terms = (h[:, :, None] * exact.v[:, None, :], exact.v, h)
    for ours, negative, positive, term in zip(found, exact.statistics(), exact.positive(data), terms, strict=True):
        mean = np.tensordot(p, term, 1)
        assert_close(mean, negative)
        error = np.sqrt(np.tensordot(p, (term - mean) ** 2, 1) / chains)
        assert np.all(np.abs(ours - (negative - positive)) <= 5 * error)
        assert np.any(np.abs(ours) > 5 * error), "else zeros would pass too"


def test_one_step_is_biased_towards_the_data(engine: Engine, rng: np.random.Generator) -> None:
    """CD-1's expectation, by enumeration of both draws, is what many chains give, and not the exact gradient."""
    chains = sized(engine, 6000, 500)
    rbm, exact = machine(engine, rng, scale=1.0)
    alpha.manual_seed(8)
    data = np.tile(exact.v[37], (chains, 1))
    found = np.array(rbm.gradients(engine.from_numpy(data))[1])
    conditional = exact.joint / exact.joint.sum(1, keepdims=True)
    backward = exact.joint / exact.joint.sum(0)
    expected = (conditional[37] @ backward.T) @ exact.v - exact.v[37]
    error = np.sqrt(0.25 / chains)
    assert np.abs(found - expected).max() <= 5 * error
    assert np.abs(exact.statistics()[1] - exact.v[37] - expected).max() > 10 * np.sqrt(0.25 / 6000)


def test_samples_have_their_probabilities(engine: Engine) -> None:
    alpha.manual_seed(3)
    p = np.tile([0.0, 0.1, 0.5, 0.97, 1.0], (sized(engine, 20_000, 2000), 1))
    drawn = np.array(nn.models.rbm.bernoulli(engine.from_numpy(p)))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert np.all(np.abs(drawn.mean(0) - p[0]) <= 5 * np.sqrt(p[0] * (1 - p[0]) / len(p)))


# -- training ----------------------------------------------------------------------------------------------------------


def patterns(rng: np.random.Generator, count: int) -> Array:
    """Rows that have a structure to learn: one of two halves is on, with noise."""
    halves = np.where(rng.integers(0, 2, (count, 1)), [1] * 4 + [0] * 4, [0] * 4 + [1] * 4)
    return np.abs(halves - (rng.random((count, VISIBLE)) < 0.05)).astype(np.float64)


@pytest.mark.parametrize(("k", "persistent"), [(1, False), (3, False), (1, True)])
def test_training_raises_the_exact_likelihood(
    engine: Engine, rng: np.random.Generator, k: int, persistent: bool
) -> None:
    alpha.manual_seed(11)
    data = patterns(rng, 60)
    rbm = nn.models.RBM(VISIBLE, HIDDEN, k, persistent, chains=40).to(engine).to(alpha.float64)
    before = exact_of(rbm).log_likelihood(data)
    rbm.fit(data, epochs=sized(engine, 60, 15), batch_size=20, lr=0.2, momentum=0.5, weight_decay=1e-4)
    after = exact_of(rbm).log_likelihood(data)
    assert before == pytest.approx(-VISIBLE * np.log(2), abs=0.05)
    assert after > before + sized(engine, 2.0, 0.5)
    assert after < 0


def test_history_callback_and_self(engine: Engine, rng: np.random.Generator) -> None:
    data, others = patterns(rng, 30), patterns(rng, 10)
    seen = []
    rbm = nn.models.RBM(VISIBLE, HIDDEN).to(engine)
    fitted = rbm.fit(
        data,
        epochs=3,
        batch_size=8,
        held_out=others,
        seed=1,
        callback=lambda epoch, figures: seen.append((epoch, figures)),
    )
    assert fitted is rbm
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    assert set(rbm.history) == {"error", "free_energy", "held_out_free_energy"}
    for name, values in rbm.history.items():
        assert values == [figures[name] for _, figures in seen]
    with alpha.no_grad():
        last = rbm.free_energy(engine.from_numpy(others.astype(np.float32))).mean().item()
    assert rbm.history["held_out_free_energy"][-1] == pytest.approx(last, rel=1e-5)
    assert "held_out_free_energy" not in rbm.fit(data, 1).history


@pytest.mark.parametrize("persistent", [False, True])
def test_runs_repeat_bit_for_bit(engine: Engine, rng: np.random.Generator, persistent: bool) -> None:
    data = patterns(rng, 30).astype(np.float32)

    def run(seed: int) -> dict[str, bytes]:
        alpha.manual_seed(4)
        rbm = nn.models.RBM(VISIBLE, HIDDEN, persistent=persistent, chains=5).to(engine)
        rbm.fit(data, epochs=2, batch_size=7, seed=seed)
        return {name: np.array(value).tobytes() for name, value in rbm.state_dict().items()}

    first = run(1)
    assert run(1) == first
    assert run(2) != first
    assert ("particles" in first) == persistent


def test_a_seed_leaves_the_global_sequence_alone(cpu: Engine, rng: np.random.Generator) -> None:
    alpha.manual_seed(5)
    rbm = nn.models.RBM(VISIBLE, HIDDEN)
    before = alpha.random.get_state()
    rbm.fit(patterns(rng, 10), 1, seed=1)
    assert alpha.random.get_state() == before
    rbm.fit(patterns(rng, 10), 1)
    assert alpha.random.get_state() != before


def test_one_update_is_the_rule_by_hand(engine: Engine, rng: np.random.Generator) -> None:
    """Two batches of one row: W += lr (CD - decay W), with momentum, biases without decay."""
    rbm, exact = machine(engine, rng)
    twin, _ = machine(engine, rng)
    twin.load_state_dict(rbm.state_dict())
    data = exact.v[[3, 200]]
    rbm.fit(data, 1, 1, lr=0.1, momentum=0.9, weight_decay=0.01, seed=6)
    values = [np.array(p.detach()) for p in (twin.weight, twin.visible_bias, twin.hidden_bias)]
    velocity = [np.zeros_like(value) for value in values]
    alpha.manual_seed(6)
    for place in alpha.random.permutation(2):
        gradients = twin.gradients(engine.from_numpy(data[place : place + 1]))
        for number, gradient in enumerate(gradients):
            decay = 0.01 * values[number] if number == 0 else 0
            velocity[number] = 0.9 * velocity[number] + np.array(gradient) + decay
            values[number] = values[number] - 0.1 * velocity[number]
        twin.load_state_dict(dict(zip(("weight", "visible_bias", "hidden_bias"), values, strict=True)))
    for name, value in zip(("weight", "visible_bias", "hidden_bias"), values, strict=True):
        assert_close(rbm.state_dict()[name], value)


def test_chains_go_on_and_are_part_of_the_state(engine: Engine, rng: np.random.Generator) -> None:
    rbm, exact = machine(engine, rng, persistent=True, chains=3)
    assert rbm.particles is not None and rbm.particles.shape == (3, VISIBLE)
    start = np.array(rbm.particles)
    rbm.gradients(engine.from_numpy(exact.v[:5]))
    moved = np.array(rbm.particles)
    assert set(np.unique(moved)) <= {0.0, 1.0} and not np.array_equal(start, moved)
    other, _ = machine(engine, rng, persistent=True, chains=3)
    other.load_state_dict(rbm.state_dict())
    np.testing.assert_array_equal(np.array(other.particles), moved)
    assert "particles" not in nn.models.RBM(2, 2).state_dict()


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_misuse_says_what_was_expected(cpu: Engine) -> None:
    rbm = nn.models.RBM(4, 3)
    for arguments, message in (
        ({"visible": 0, "hidden": 1}, r"\[RBM\] expected visible as an integer >= 1, got 0"),
        ({"visible": 4, "hidden": 1.5}, r"\[RBM\] expected hidden as an integer >= 1, got 1.5"),
        ({"visible": 4, "hidden": 1, "k": 0}, r"\[RBM\] expected k as an integer >= 1, got 0"),
        ({"visible": 4, "hidden": 1, "persistent": True, "chains": 0}, r"\[RBM\] expected chains"),
    ):
        with pytest.raises(ArgumentError, match=message):
            nn.models.RBM(**arguments)
    with pytest.raises(ShapeError, match=r"\[RBM.fit\] expected rows \(n, 4\), n >= 1, got \(2, 5\)"):
        rbm.fit(np.zeros((2, 5)))
    with pytest.raises(ShapeError, match=r"\[transform\] expected rows \(n, 4\), n >= 1, got \(0, 4\)"):
        rbm.transform(np.zeros((0, 4)))
    with pytest.raises(ArgumentError, match=r"\[RBM.fit\] expected values in 0..1, got -1..1: scale them"):
        rbm.fit(np.array([[-1.0, 1, 0, 0]]))
    with pytest.raises(ArgumentError, match=r"\[RBM\] expected epochs as an integer >= 1, got 0"):
        rbm.fit(np.zeros((2, 4)), 0)
    with pytest.raises(ShapeError, match=r"\[RBM\] expected hidden units \(n, 3\), got \(1, 4\)"):
        rbm.visible_probabilities(alpha.zeros(1, 4))
    with pytest.raises(ArgumentError, match=r"\[gibbs\] expected steps"):
        rbm.gibbs(alpha.zeros(1, 4), 0)
    with pytest.raises(NumericsError, match=r"\[RBM\] expected a finite error, got nan in epoch \d+: lower lr"):
        rbm.fit(np.eye(4, dtype=np.float32), 5, lr=1e38, momentum=0.9, seed=0)


def test_rows_come_as_arrays_or_tensors_of_any_kind(engine: Engine) -> None:
    rbm = nn.models.RBM(3, 2).to(engine)
    rows = np.eye(3)
    expected = np.array(rbm.transform(rows))
    for x in (rows.astype(bool), rows.astype(np.int64), rows.tolist(), alpha.tensor(rows, engine=engine)):
        result = rbm.transform(x)
        assert result.engine is engine and not result.requires_grad
        np.testing.assert_array_equal(np.array(result), expected)
