"""LU, LDL and packed QR factors, what is solved with them, and ranks: beyond the small samples of PyTorch's OpInfo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import linalg
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, GraphError, IndexingError, NumericsError, ShapeError
from alpha.functions import elimination
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on, sized

Array = np.ndarray[Any, Any]

SHAPES = [(1, 1), (5, 5), (40, 40), (70, 33), (33, 70), (2, 3, 4, 4), (0, 3, 3), (3, 0), (0, 3)]
"""Those of more than 32 columns take several blocks."""


def matrices(engine: Engine, rng: np.random.Generator, *shape: int, dtype: Any = np.float64) -> tuple[Array, Any]:
    array = rng.standard_normal(shape).astype(dtype)
    return array, alpha.tensor(array, engine=engine)


# -- LU ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lu_factors(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    a, x = matrices(engine, rng, *shape)
    p, lower, upper = linalg.lu(x)
    steps = min(shape[-2:])
    assert p.shape == (*shape[:-1], shape[-2]) and lower.shape[-1] == upper.shape[-2] == steps
    assert_close(p @ lower @ upper, a, atol=1e-12)
    assert (np.abs(lower.numpy()) <= 1).all() and np.array_equal(np.triu(lower.numpy()), np.broadcast_to(
        np.eye(shape[-2], steps), lower.shape
    ))  # fmt: skip
    packed, pivots = linalg.lu_factor(x)
    assert packed.shape == shape and pivots.shape == (*shape[:-2], steps) and pivots.dtype == alpha.int32
    assert_close(packed, np.tril(lower.numpy(), -1)[..., :steps] @ np.eye(steps, shape[-1]) + np.concatenate(
        [upper.numpy(), np.zeros((*shape[:-2], shape[-2] - steps, shape[-1]))], -2
    ))  # fmt: skip


@pytest.mark.needs("torch")
def test_pivots_are_lapacks(rng: np.random.Generator) -> None:
    import torch

    for shape in SHAPES:
        for dtype in (np.float32, np.float64):
            a = rng.standard_normal(shape).astype(dtype)
            a[..., :1, :] = 0
            found, theirs = linalg.lu_factor_ex(alpha.tensor(a)), torch.linalg.lu_factor_ex(torch.tensor(a))
            np.testing.assert_array_equal(found.pivots.numpy(), theirs.pivots.numpy())
            np.testing.assert_array_equal(found.info.numpy(), theirs.info.numpy())
            if shape[-1] == shape[-2]:
                found, theirs = linalg.ldl_factor_ex(alpha.tensor(a)), torch.linalg.ldl_factor_ex(torch.tensor(a))
                np.testing.assert_array_equal(found.pivots.numpy(), theirs.pivots.numpy())
                np.testing.assert_array_equal(found.info.numpy(), theirs.info.numpy())


def test_factors_without_exchanges(engine: Engine, rng: np.random.Generator) -> None:
    a, x = matrices(engine, rng, 2, 6, 6)
    p, lower, upper = linalg.lu(x, pivot=False)
    assert p.shape == (0,)
    assert_close(lower @ upper, a, rtol=1e-8, atol=1e-8)
    assert x.lu(pivot=False).pivots.tolist() == [[1, 2, 3, 4, 5, 6]] * 2
    none = linalg.lu(alpha.tensor([[0.0, 1.0], [1.0, 0.0]], engine=engine), pivot=False)
    assert np.isinf(none.L.numpy()).any()


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 3, 3)], ids=str)
def test_gradients_of_lu(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    a, _ = matrices(engine, rng, *shape)
    assert gradcheck_on(engine, lambda x: linalg.lu(x)[1:], a)
    assert gradcheck_on(engine, lambda x: linalg.lu_factor(x).LU, a)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_solutions_by_lu(engine: Engine, rng: np.random.Generator, left: bool, adjoint: bool) -> None:
    n = sized(engine, 40, 6)
    a, x = matrices(engine, rng, 2, 1, n, n)
    b, y = matrices(engine, rng, 3, *((n, 2) if left else (2, n)))
    found = linalg.lu_solve(*linalg.lu_factor(x), y, left=left, adjoint=adjoint)
    matrix = np.swapaxes(a, -1, -2) if adjoint else a
    assert found.shape == (2, 3, *b.shape[1:])
    assert_close(matrix @ found.numpy() if left else found.numpy() @ matrix, np.broadcast_to(b, found.shape), atol=1e-9)
    assert_close(alpha.lu_solve(y if left else y.mT, *linalg.lu_factor(x)), np.linalg.solve(a, b if left else b.mT))


def test_zero_pivots_are_reported(engine: Engine) -> None:
    x = alpha.tensor([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]], engine=engine)
    assert linalg.lu_factor_ex(x).info.tolist() == [2, 0]
    assert x.lu(get_infos=True)[2].tolist() == [2, 0]  # type: ignore[misc]
    inverse, info = linalg.inv_ex(x)
    assert info.tolist() == [2, 0] and inverse[1].tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert not np.isfinite(inverse[0].numpy()).any()
    result, info = linalg.solve_ex(x, x[1:])
    assert info.tolist() == [2, 0] and result[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert linalg.solve_ex(x[0], x).info.tolist() == 2
    assert linalg.solve_ex(x[1], x).info.shape == ()
    for call in (
        lambda: linalg.lu_factor(x),
        lambda: linalg.lu_factor_ex(x, check_errors=True),
        lambda: linalg.inv_ex(x, check_errors=True),
        lambda: linalg.solve_ex(x, x, check_errors=True),
        lambda: linalg.solve(x, x),
    ):
        with pytest.raises(NumericsError, match=r"^\[(lu_factor|lu_factor_ex|inv_ex|solve_ex|solve)\] expected"):
            call()


def test_triangles_with_zeros_give_infinities(engine: Engine) -> None:
    x, one = alpha.tensor([[0.0, 5.0], [0.0, 2.0]], engine=engine), alpha.ones(2, 1, engine=engine)
    assert linalg.solve_triangular(x, one, upper=True).tolist() == [[-np.inf], [0.5]]
    assert linalg.solve_triangular(x, one, upper=True, unitriangular=True).tolist() == [[-4.0], [1.0]]


def test_large_triangles(engine: Engine, rng: np.random.Generator) -> None:
    a, x = matrices(engine, rng, 2, 75, 75)
    a += 20 * np.eye(75)
    b, y = matrices(engine, rng, 2, 75, 3)
    x = alpha.tensor(a, engine=engine)
    assert_close(linalg.solve_triangular(x, y, upper=True), np.linalg.solve(np.triu(a), b))
    assert_close(linalg.solve_triangular(x, y, upper=False), np.linalg.solve(np.tril(a), b))


def test_a_failing_minor_is_reported(engine: Engine) -> None:
    x = alpha.tensor([[[1.0, 2.0], [2.0, 1.0]], [[4.0, 2.0], [2.0, 2.0]], [[-1.0, 0.0], [0.0, 1.0]]], engine=engine)
    factors, info = linalg.cholesky_ex(x)
    assert info.tolist() == [2, 0, 1]
    assert factors[1].tolist() == [[2.0, 0.0], [1.0, 1.0]] and factors[0, :, 0].tolist() == [1.0, 2.0]
    with pytest.raises(NumericsError, match=r"\[cholesky_ex\]"):
        linalg.cholesky_ex(x, check_errors=True)


# -- LDL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 2, 9, 9), (0, 0), (50, 50)], ids=str)
@pytest.mark.parametrize("diagonal", [True, False])
def test_solutions_by_ldl(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...], diagonal: bool) -> None:
    a, _ = matrices(engine, rng, *shape)
    a = a + np.swapaxes(a, -1, -2)
    if not diagonal and shape[-1] > 1:
        a *= 1 - np.eye(shape[-1])
    b, y = matrices(engine, rng, *shape[:-1], 3)
    factors = linalg.ldl_factor(alpha.tensor(np.tril(a), engine=engine))
    if not diagonal and shape[-1] > 1:
        assert (factors.pivots.numpy() < 0).any()
    assert_close(a @ linalg.ldl_solve(*factors, y).numpy(), b, atol=1e-8)


def test_gradients_of_a_solution_by_ldl(engine: Engine, rng: np.random.Generator) -> None:
    a, _ = matrices(engine, rng, 2, 5, 5)
    a = (a + np.swapaxes(a, -1, -2)) * (1 - np.eye(5)) + np.eye(5) * [0, 0, 3, 0, 9]
    b, _ = matrices(engine, rng, 2, 5, 2)
    packed, pivots = linalg.ldl_factor(alpha.tensor(a, engine=engine))
    assert {1, -1} == set(np.sign(pivots.numpy()).ravel())
    assert gradcheck_on(engine, lambda packed, y: linalg.ldl_solve(packed, pivots, y), packed.numpy(), b)
    with pytest.raises(GraphError, match=r"\[ldl_factor\]"):
        linalg.ldl_factor(packed.requires_grad_()).LD.sum().backward()


def test_growth_is_bounded_where_the_diagonal_is_small(rng: np.random.Generator) -> None:
    a = rng.standard_normal((200, 8, 8))
    a = (a + np.swapaxes(a, -1, -2)) * (1 - np.eye(8)) + 1e-9 * np.eye(8)
    ld, _, _ = elimination.ldl_factored(a)
    assert np.abs(ld).max() < 1e3 * np.abs(a).max()


# -- reflections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6), (2, 40, 35), (3, 0), (0, 4, 3)], ids=str)
def test_packed_qr_factors(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    a, x = matrices(engine, rng, *shape)
    packed, tau = alpha.geqrf(x)
    assert packed.shape == shape and tau.shape == (*shape[:-2], min(shape[-2:]))
    upper = packed.triu()
    assert_close(alpha.ormqr(packed, tau, upper), a, atol=1e-12)
    assert_close(alpha.ormqr(packed, tau, x, transpose=True), upper.numpy(), atol=1e-12)
    assert_close(alpha.ormqr(packed, tau, upper.mT, left=False, transpose=True), np.swapaxes(a, -1, -2), atol=1e-12)
    if shape[-1] <= shape[-2]:
        q = alpha.orgqr(packed, tau).numpy()
        assert_close(np.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(shape[-1]), q.shape[:-2] + (shape[-1],) * 2))
        np.testing.assert_array_equal(linalg.householder_product(packed, tau).numpy(), q)


def test_gradients_of_reflections(engine: Engine, rng: np.random.Generator) -> None:
    packed, tau, c = rng.standard_normal((4, 3)), np.array([0.5, 0.0, 1.5]), rng.standard_normal((4, 2))
    assert gradcheck_on(engine, alpha.ormqr, packed, tau, c)
    assert gradcheck_on(engine, lambda p, t, c: alpha.ormqr(p, t, c, False, True), packed, tau, c.T.copy())
    assert gradcheck_on(engine, linalg.householder_product, packed, tau)
    with pytest.raises(GraphError, match=r"\[geqrf\]"):
        alpha.geqrf(alpha.ones(2, 2, requires_grad=True, engine=engine)).a.sum().backward()


# -- singular values ---------------------------------------------------------------------------------------------------


def test_low_ranks(engine: Engine, rng: np.random.Generator) -> None:
    alpha.manual_seed(0)
    u, _ = np.linalg.qr(rng.standard_normal((2, 30, 8)))
    v, _ = np.linalg.qr(rng.standard_normal((2, 20, 8)))
    a = u * 0.1 ** np.arange(8) @ np.swapaxes(v, -1, -2)
    values = np.broadcast_to(0.1 ** np.arange(5), (2, 5))
    for matrix in (a, np.swapaxes(a, -1, -2)):
        x = alpha.tensor(matrix, engine=engine)
        found = alpha.svd_lowrank(x, 7)
        assert found[0].shape == (2, matrix.shape[1], 7) and found[2].shape == (2, matrix.shape[2], 7)
        assert_close(found[1][:, :5], values, rtol=1e-6, atol=0)
        assert_close(found[0] * found[1].unsqueeze(-2) @ found[2].mT, matrix, atol=1e-6)
        moved = alpha.svd_lowrank(x + 7, 7, M=alpha.full((1, matrix.shape[2]), 7.0, dtype="float64", engine=engine))
        assert_close(moved[1][:, :5], values, rtol=1e-6)
        centred = np.linalg.svd(matrix - matrix.mean(-2, keepdims=True), compute_uv=False)
        assert_close(alpha.pca_lowrank(x, 8)[1][:, :5], centred[..., :5], rtol=1e-6)
    assert alpha.pca_lowrank(x)[1].shape == (2, 6)
    assert alpha.svd_lowrank(x, 100)[1].shape == (2, 20) and alpha.svd_lowrank(x, 0, 0)[0].shape == (2, 20, 0)


def test_tolerances_of_each_matrix(engine: Engine) -> None:
    x = alpha.tensor(np.broadcast_to(np.diag([4.0, 2.0, 1.0]), (2, 3, 3)).copy(), engine=engine)
    rtol, atol = [alpha.tensor(values, dtype="float64", engine=engine) for values in ([0.3, 0.6], [3.0, 0.0])]
    assert linalg.matrix_rank(x, rtol=rtol).tolist() == [2, 1]
    assert linalg.matrix_rank(x, atol=atol).tolist() == [1, 3]
    assert linalg.matrix_rank(x[0], rtol=rtol).tolist() == [2, 1]
    assert linalg.matrix_rank(x, tol=atol).tolist() == [1, 3]
    found = linalg.pinv(x, rtol=rtol)
    np.testing.assert_array_equal(found.numpy(), [np.diag([0.25, 0.5, 0]), np.diag([0.25, 0, 0])])
    np.testing.assert_array_equal(linalg.pinv(x[0], rtol=rtol).numpy(), found.numpy())
    assert gradcheck_on(engine, lambda x: linalg.pinv(x, rtol=rtol * 0), x[0].numpy())
    with pytest.raises(ArgumentError, match=r"\[pinv\] expected rtol without a gradient"):
        linalg.pinv(x, rtol=rtol.clone().requires_grad_())
    with pytest.raises(ShapeError, match=r"\[matrix_rank\]"):
        linalg.matrix_rank(x, rtol=alpha.zeros(3, engine=engine))


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_bad_arguments(engine: Engine) -> None:
    x = alpha.tensor([[2.0, 1.0], [1.0, 3.0]], engine=engine)
    packed, pivots = linalg.lu_factor(x)
    for call in (
        lambda p: linalg.lu_solve(packed, p, x),
        lambda p: alpha.lu_unpack(packed, p),
        lambda p: linalg.ldl_solve(packed, p, x),
    ):
        with pytest.raises(IndexingError, match=r"expected pivots in 1\.\.2"):
            call(pivots + 2)
        with pytest.raises(IndexingError, match=r"expected pivots in 1\.\.2"):
            call(pivots * 0)
        with pytest.raises(ShapeError, match=r"expected pivots of shape \(2,\)"):
            call(pivots[:1])
        with pytest.raises(DtypeError, match="expected pivots as int32, got float32"):
            call(pivots.float())
    with pytest.raises(DtypeError, match=r"\[lu_solve\] expected tensors of one dtype"):
        linalg.lu_solve(packed, pivots, x.double())
    with pytest.raises(ShapeError, match=r"\[lu_solve\] expected B with 2 rows"):
        linalg.lu_solve(packed, pivots, x[:1])
    with pytest.raises(ShapeError, match=r"\[lu_factor\] expected matrices"):
        linalg.lu_factor(x[0])
    with pytest.raises(DtypeError, match=r"\[lu\] expected float"):
        x.long().lu()
    with pytest.raises(ShapeError, match=r"\[ormqr\]"):
        alpha.ormqr(x, x[0], x[:1])
    with pytest.raises(ShapeError, match=r"\[orgqr\]"):
        alpha.orgqr(x[:1], x[0, :1])
    with pytest.raises(ArgumentError, match=r"\[pca_lowrank\] expected q of at most"):
        alpha.pca_lowrank(x, 3)
    with pytest.raises(ArgumentError, match=r"\[svd_lowrank\] expected niter >= 0"):
        alpha.svd_lowrank(x, 1, -1)
    with pytest.raises(NumericsError, match=r"\[ldl_factor\] expected invertible"):
        linalg.ldl_factor(x * 0)
