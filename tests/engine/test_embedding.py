"""Embedding against NumPy and PyTorch: rows, gradients of repeated rows, the padding's row, indices out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError, IndexingError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

INDICES = [np.array([[3, 0, 3], [6, 3, 1]]), np.array(2), np.array([], np.int64), np.zeros((1, 1, 5), np.int64)]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("index", INDICES, ids=lambda index: str(index.shape))
@pytest.mark.parametrize("padding", [None, 3, -7])
def test_rows_and_gradients(engine: Engine, rng: np.random.Generator, index: Any, padding: Any, kind: Any) -> None:
    table = rng.normal(size=(7, 5))
    weight = alpha.tensor(table, engine=engine, requires_grad=True)
    y = F.embedding(alpha.tensor(index.astype(kind), engine=engine), weight, padding)
    np.testing.assert_array_equal(np.asarray(y), table[index])
    dy = rng.normal(size=y.shape)
    y.backward(alpha.tensor(dy, engine=engine))
    expected = np.zeros_like(table)
    np.add.at(expected, index, dy)
    if padding is not None:
        expected[padding] = 0
    # float64: at most five numbers near 1 are added up, in any order.
    np.testing.assert_allclose(np.asarray(weight.grad), expected, rtol=1e-14, atol=1e-14)


def test_gradcheck(engine: Engine, rng: np.random.Generator) -> None:
    index = alpha.tensor(INDICES[0], engine=engine)
    assert gradcheck_on(engine, lambda w: F.embedding(index, w), rng.normal(size=(7, 3)))
    # A table that lies column by column in memory, and one that is itself a result.
    assert gradcheck_on(engine, lambda w: F.embedding(index, w), np.asfortranarray(rng.normal(size=(7, 3))))
    assert gradcheck_on(engine, lambda w: F.embedding(index, (w * 2).T), rng.normal(size=(3, 7)))


def test_other_uses_of_the_table_keep_the_paddings_gradient(engine: Engine, rng: np.random.Generator) -> None:
    weight = alpha.tensor(rng.normal(size=(4, 2)), engine=engine, requires_grad=True)
    index = alpha.tensor([0, 1, 1], engine=engine)
    doubled = weight * 2
    (F.embedding(index, doubled, 1).sum() + doubled.sum()).backward()
    assert np.asarray(weight.grad).tolist() == [[4, 4], [2, 2], [2, 2], [2, 2]]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("padding", [None, 0, 4, -2])
def test_matches_pytorch(engine: Engine, rng: np.random.Generator, padding: int | None) -> None:
    import torch

    theirs = torch.nn.Embedding(7, 3, padding).double()
    ours = nn.Embedding(7, 3, padding).to(engine).to(alpha.float64)
    assert ours.padding_idx == theirs.padding_idx
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    index, weights = INDICES[0], rng.normal(size=(2, 3, 3))
    y, expected = ours(alpha.tensor(index, engine=engine)), theirs(torch.from_numpy(index))
    (y * alpha.tensor(weights, engine=engine)).sum().backward()
    (expected * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_array_equal(np.asarray(y), expected.detach().numpy())
    np.testing.assert_allclose(np.asarray(ours.weight.grad), theirs.weight.grad.numpy(), rtol=1e-14, atol=1e-14)


def test_initialisation() -> None:
    alpha.manual_seed(0)
    layer = nn.Embedding(400, 30, padding_idx=-1)
    drawn = np.asarray(layer.weight)
    assert layer.weight.requires_grad and drawn[399].tolist() == [0] * 30
    # 11,970 draws: their mean and deviation lie within five standard errors of 0 and 1.
    assert abs(drawn[:399].mean()) < 5 / np.sqrt(11970) and abs(drawn[:399].std() - 1) < 5 / np.sqrt(2 * 11970)
    assert repr(layer) == "Embedding(400, 30, padding_idx=399)" and repr(nn.Embedding(2, 3)) == "Embedding(2, 3)"


@pytest.mark.parametrize("wrong", [7, -1, 100])
def test_indices_out_of_range(engine: Engine, wrong: int) -> None:
    weight = alpha.ones((7, 5), engine=engine)
    with pytest.raises(IndexError, match=rf"\[embedding\] expected indices in 0..6, got {wrong}: use a weight of more"):
        F.embedding(alpha.tensor([0, wrong, 3], engine=engine), weight)
        engine.synchronize()  # where an engine reports what would have made it wait
    assert issubclass(IndexingError, IndexError)


def test_an_index_that_was_overwritten(engine: Engine) -> None:
    """An error, or the gradient of the rows that were taken where the engine follows a copy; never another's."""
    weight, index = alpha.ones((3, 1), engine=engine).requires_grad_(), alpha.tensor([0, 2], engine=engine)
    y = F.embedding(index, weight)
    index.fill_(1)
    try:
        y.sum().backward()
    except GraphError as error:
        assert str(error).startswith("[Embedding.backward]")
    else:
        assert np.asarray(weight.grad).tolist() == [[1], [0], [1]]


def test_bad_input(engine: Engine) -> None:
    weight, index = alpha.ones((7, 5), engine=engine), alpha.tensor([0, 2], engine=engine)
    with pytest.raises(DtypeError, match=r"\[embedding\] expected an index of integers, got float32: cast it"):
        F.embedding(index.float(), weight)
    with pytest.raises(DtypeError, match=r"\[embedding\] expected an index of integers, got bool"):
        F.embedding(index.bool(), weight)
    with pytest.raises(DtypeError, match=r"\[embedding\] expected float32 or float64, got int64"):
        F.embedding(index, weight.long())
    with pytest.raises(ShapeError, match=r"\[embedding\] expected a weight \(rows, columns\), got shape \(7,\)"):
        F.embedding(index, weight[:, 0])
    with pytest.raises(ArgumentError, match=r"\[embedding\] expected padding_idx within 7 rows, got 7"):
        F.embedding(index, weight, 7)
    with pytest.raises(ArgumentError, match=r"\[Embedding\] expected padding_idx within 7 rows, got -8"):
        nn.Embedding(7, 3, -8)
    with pytest.raises(ArgumentError, match=r"\[Embedding\] expected num_embeddings as an integer >= 1, got 0"):
        nn.Embedding(0, 3)


def test_gradients_of_many_rows_and_columns(engine: Engine, rng: np.random.Generator) -> None:
    """More columns than a task of the CPU's kernel has, rows that repeat, in several shapes of the index."""
    weight = rng.standard_normal((7, 150)).astype(np.float32)
    for shape in ((40,), (5, 8), (), (2, 0)):
        index = rng.integers(-7, 7, shape)
        table = alpha.tensor(weight, engine=engine, requires_grad=True)
        picked = table[alpha.tensor(index, engine=engine)]
        grad = rng.standard_normal((*shape, 150)).astype(np.float32)
        picked.backward(alpha.tensor(grad, engine=engine))
        expected = np.zeros((7, 150))
        np.add.at(expected, index, grad)
        assert_close(table.grad, expected, rtol=1e-5, atol=1e-5)  # sums of some 40 float32
