"""Cross entropy on the device where its kernels differ by shape: team sizes, long rows, steps, wrong labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha import functions as F
from alpha.cu32.base import DeviceEngine
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError

Array = np.ndarray[Any, Any]

# Every size of a team, one more and one less; a row for a whole block, with full and uneven lanes.
COLUMNS = [1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 100, 1023, 1024, 1025, 2311]


def definition(logits: Array, labels: Array, smoothing: float) -> tuple[Array, Array]:
    """Losses and probabilities in float64."""
    x = logits.astype(np.float64)
    classes = x.shape[1]
    log_p = x - x.max(1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    target = (1 - smoothing) * np.eye(classes)[labels] + smoothing / classes
    return -(target * log_p).sum(1), np.exp(log_p)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_every_team_size(cu32: Engine, rng: np.random.Generator, columns: int, dtype: str, smoothing: float) -> None:
    rows = 3 if columns >= 1000 else 37
    logits = (rng.standard_normal((rows, columns)) * 4 + 50).astype(dtype)
    labels = rng.integers(0, columns, rows)
    scale = rng.standard_normal(rows).astype(dtype)
    losses, p = cu32.cross_entropy(cu32.from_numpy(logits), cu32.from_numpy(labels), smoothing)
    expected, softmax = definition(logits, labels, smoothing)
    tolerance = 5e-6 if dtype == "float32" else 1e-12  # differences of logits around 50 are exact to an ulp of theirs
    np.testing.assert_allclose(losses.numpy(), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(p.numpy(), softmax, rtol=tolerance)
    dx = cu32.cross_entropy_grad(p, cu32.from_numpy(labels), cu32.from_numpy(scale), smoothing)
    target = (1 - smoothing) * np.eye(columns)[labels] + smoothing / columns
    np.testing.assert_allclose(dx.numpy(), scale[:, None] * (softmax - target), rtol=0, atol=4 * tolerance)


def test_rows_columns_labels_and_scales_with_steps(cu32: Engine, rng: np.random.Generator) -> None:
    logits, labels = rng.standard_normal((24, 10)), rng.integers(0, 5, 24)
    x, y = cu32.from_numpy(logits), cu32.from_numpy(labels)
    one = cu32.from_numpy(np.array([0.5]))
    views = [
        (x.strided(0, (12, 5), (20, 2)), logits[::2, ::2]),
        (x.strided(3, (12, 5), (20, 1)), logits[::2, 3:8]),
        (x.strided(0, (5, 5), (1, 10)), logits[:5, :5].T),
    ]
    for view, array in views:
        count = len(array)
        losses, p = cu32.cross_entropy(view, y.strided(1, (count,), (2,)), 0.0)
        picked = labels[1 : 1 + 2 * count : 2]
        expected, softmax = definition(array, picked, 0.0)
        np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-13)
        dx = cu32.cross_entropy_grad(p, y.strided(1, (count,), (2,)), one.strided(0, (count,), (0,)), 0.0)
        np.testing.assert_allclose(dx.numpy(), 0.5 * (softmax - np.eye(5)[picked]), atol=1e-15)


@pytest.mark.parametrize("columns", [10, 1500])
def test_a_label_out_of_range_is_never_followed(cu32: Engine, columns: int) -> None:
    wrong = [-1, columns, 2**40, -(2**62)]
    logits = cu32.from_numpy(np.zeros((5, columns), np.float32))
    labels = cu32.from_numpy(np.array([*wrong, 0]))
    losses, p = cu32.cross_entropy(logits, labels, 0.0)
    assert np.isnan(losses.numpy()).tolist() == [True] * 4 + [False]
    assert np.allclose(p.numpy(), 1 / columns)


@pytest.mark.parametrize("columns", [4, 1100])
def test_impossible_classes_and_what_is_not_finite(cu32: Engine, columns: int) -> None:
    logits = np.zeros((5, columns), np.float32)
    logits[0, 1] = -np.inf  # an impossible class: the others share
    logits[1, 1] = -np.inf  # and it is the label
    logits[2, 0] = np.inf
    logits[3, 2] = np.nan
    logits[4] = -np.inf
    losses, p = cu32.cross_entropy(cu32.from_numpy(logits), cu32.from_numpy(np.array([0, 1, 0, 0, 0])), 0.0)
    assert losses.numpy()[0] == pytest.approx(np.log(columns - 1)) and p.numpy()[0, 1] == 0
    assert losses.numpy()[1] == np.inf
    assert np.isnan(losses.numpy()[2:]).all() and np.isnan(p.numpy()[3:]).all()


def test_large_logits_stay_finite_and_runs_agree_to_the_bit(cu32: Engine, rng: np.random.Generator) -> None:
    logits = cu32.from_numpy((rng.standard_normal((9, 1300)) * 1e4).astype(np.float32))
    labels = cu32.from_numpy(rng.integers(0, 1300, 9))
    runs = [cu32.cross_entropy(logits, labels, 0.2) for _ in range(2)]
    assert np.isfinite(runs[0][0].numpy()).all() and np.isfinite(runs[0][1].numpy()).all()
    assert runs[0][0].numpy().tobytes() == runs[1][0].numpy().tobytes()


def test_no_rows(cu32: Engine) -> None:
    logits, labels = cu32.from_numpy(np.zeros((0, 3), np.float32)), cu32.from_numpy(np.zeros(0, np.int64))
    losses, p = cu32.cross_entropy(logits, labels, 0.0)
    assert losses.shape == (0,) and p.shape == (0, 3)
    assert cu32.cross_entropy_grad(p, labels, losses, 0.0).shape == (0, 3)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("rows, columns", [(1, 1), (700, 3), (37, 10), (300, 1025), (5, 2311)])
def test_a_loss_at_once(cu32: Engine, rng: np.random.Generator, rows: int, columns: int, reduction: str) -> None:
    """Its parts and gradient; some rows are ignored, one of infinite logits among them; twice, with the same bits."""
    logits, labels = 3 * rng.standard_normal((rows, columns)), rng.integers(0, columns, rows)
    labels[::3] = 10_000
    if rows > 3:
        logits[3] = np.inf
    kept = labels != 10_000
    grad = rng.standard_normal(rows if reduction == "none" else ())
    check = RangeCheck(ArgumentError, "{value} at {position}")
    given = [cu32.from_numpy(x) for x in (logits, np.repeat(labels, 2), grad)]
    runs = []
    for _ in range(2):
        found = cu32.cross_entropy_loss(given[0], given[1].strided(0, (rows,), (2,)), 10_000, reduction, 0.1, check)
        assert found is not None
        loss, *saved = found
        runs.append([loss, *saved, cu32.cross_entropy_loss_grad(given[2], *saved, 0.1)])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    loss, _, followed, factor, dx = runs[0]
    np.testing.assert_array_equal(followed.numpy(), np.where(kept, labels, -1))
    losses, p = definition(np.where(kept[:, None], logits, 0), np.where(kept, labels, 0), 0.1)
    losses, share = losses * kept, 1.0
    if reduction != "none":
        count = kept.sum() if reduction == "mean" else 1
        share = 1 / count if count else np.inf
        losses = losses.sum() / count if count else np.nan
    np.testing.assert_allclose(loss.numpy(), losses, rtol=1e-12)
    np.testing.assert_allclose(factor.numpy(), share, rtol=1e-15)
    target = 0.9 * np.eye(columns)[np.where(kept, labels, 0)] + 0.1 / columns
    with np.errstate(invalid="ignore"):  # where no row counts
        expected = (grad[:, None] if grad.ndim else grad) * np.where(kept[:, None], (p - target) * share, 0)
    np.testing.assert_allclose(dx.numpy(), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("rows, columns", [(1, 1), (700, 3), (1025, 10), (5, 2311)])
def test_a_likelihood_at_once(cu32: Engine, rng: np.random.Generator, rows: int, columns: int, reduction: str) -> None:
    """Rows lie across; an ignored one is infinite."""
    x, labels = rng.standard_normal((columns, rows)), rng.integers(0, columns, rows)
    labels[::3], x[:, ::3] = -7, np.inf
    kept = labels != -7
    grad = rng.standard_normal(rows if reduction == "none" else ())
    check = RangeCheck(ArgumentError, "{value} at {position}")
    across = cu32.from_numpy(x).strided(0, (rows, columns), (1, rows))
    loss, followed, factor = cu32.nll_loss(across, cu32.from_numpy(labels), -7, reduction, check)
    count = kept.sum() if reduction == "mean" else 1
    losses = np.where(kept, -x[np.maximum(labels, 0), np.arange(rows)], 0)
    if reduction != "none":
        losses = losses.sum() / count if count else np.nan
    np.testing.assert_allclose(loss.numpy(), losses, rtol=1e-12)
    dx = cu32.nll_loss_grad(cu32.from_numpy(grad), followed, factor, columns)
    expected = np.zeros((rows, columns))
    if kept.any():
        expected[kept, labels[kept]] = -(grad[kept] if grad.ndim else grad) / count
    np.testing.assert_allclose(dx.numpy(), expected, rtol=1e-14)


def test_a_loss_at_once_is_one_launch_and_names_the_first_wrong_label(
    cu32: DeviceEngine,
) -> None:
    x, y = cu32.from_numpy(np.zeros((600, 10), np.float32)), np.arange(600) % 10
    for function in (F.cross_entropy, F.nll_loss):
        function(x, cu32.from_numpy(y))
        before = cu32.device.launches
        function(x, cu32.from_numpy(y))
        assert cu32.device.launches == before + 1
    y[[417, 5]] = 10, -3
    loss = F.cross_entropy(x, cu32.from_numpy(y))
    with pytest.raises(ArgumentError, match=r"^\[cross_entropy\] expected labels in 0..9 .* got -3 at row 5"):
        loss.item()
    cu32.synchronize()  # and only once
