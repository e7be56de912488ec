"""Functions of whole arrays beside PyTorch's: values and gradients, in place and through views, integers, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, IndexingError, ShapeError

Array = np.ndarray[Any, Any]

ROWS, COLUMNS = 4, 6
RNG = np.random.default_rng(0)
INDEX, UP, ENTRIES = RNG.integers(0, COLUMNS, (ROWS, COLUMNS)), RNG.integers(0, ROWS, (2, COLUMNS)), np.array([0, 2, 3])
ONCE = RNG.permuted(np.tile(np.arange(COLUMNS), (ROWS, 1)), axis=1)
FLAT, MASK = RNG.permutation(ROWS * COLUMNS)[:5], RNG.random((ROWS, COLUMNS)) > 0.4

Call = Callable[..., Any]
"""A call with a library, what makes a tensor of an array, and two tensors of float64 (ROWS, COLUMNS)."""

FUNCTIONS: dict[str, Call] = {
    "mm": lambda f, t, x, y: f.mm(x, y.T),
    "bmm": lambda f, t, x, y: f.bmm(x[None], y.T[None]),
    "addmm": lambda f, t, x, y: f.addmm(x[:, :4], x, y.T, beta=0.5, alpha=2.0),
    "addmm without x": lambda f, t, x, y: f.addmm(t(np.full(4, np.nan)), x, y.T, beta=0),
    "addmv": lambda f, t, x, y: f.addmv(y[:, 0], x, y[0]),
    "addbmm": lambda f, t, x, y: f.addbmm(x[:2, :2], x.reshape(3, 2, 4), y.reshape(3, 4, 2), alpha=3),
    "baddbmm": lambda f, t, x, y: f.baddbmm(x[0, :2], x.reshape(3, 2, 4), y.reshape(3, 4, 2)),
    "addr": lambda f, t, x, y: f.addr(x, y[:, 0], y[0], beta=2),
    "inner": lambda f, t, x, y: f.inner(x, y[0]),
    "chain_matmul": lambda f, t, x, y: f.chain_matmul(x, y.T, x, y.T[:, :1]),
    "einsum": lambda f, t, x, y: f.einsum("...ij,kj->k...i", x.reshape(2, 2, 6), y),
    "einsum of one": lambda f, t, x, y: f.einsum("iij->ji", x.reshape(2, 2, 6)),
    "einsum of four": lambda f, t, x, y: f.einsum("ij,kj,k,il->l", x, y, y[:, 0], x),
    "einsum of sublists": lambda f, t, x, y: f.einsum(x, [0, 1], y, [2, 1], [2, 0]),
    "tensordot": lambda f, t, x, y: f.tensordot(x.reshape(2, 2, 6), y.reshape(6, 2, 2), dims=([2, 0], [0, 1])),
    "kron": lambda f, t, x, y: f.kron(x, y[0, :2]),
    "cross": lambda f, t, x, y: f.cross(x.reshape(2, 3, 4), y.reshape(2, 3, 4), 1),
    "trace": lambda f, t, x, y: f.trace(x),
    "var with a correction": lambda f, t, x, y: f.var(x, (0, 1), correction=1.3),
    "std_mean": lambda f, t, x, y: f.std_mean(x, 1, keepdim=True),
    "nanmean": lambda f, t, x, y: f.nanmean(f.where(t(MASK), x, float("nan")), 1),
    "aminmax": lambda f, t, x, y: f.aminmax(x, dim=1),
    "amax of equal": lambda f, t, x, y: f.amax(x * 0.0 + y[0, 0], (0, 1)),
    "median of all": lambda f, t, x, y: f.median(x),
    "median": lambda f, t, x, y: f.median(x, 1),
    "nanmedian": lambda f, t, x, y: f.nanmedian(f.where(t(MASK), x, float("nan")), 1),
    "quantile": lambda f, t, x, y: f.quantile(x, t(np.array([0.2, 0.7])), 1, keepdim=True),
    "nanquantile": lambda f, t, x, y: f.nanquantile(f.where(t(MASK), x, float("nan")), 0.3, 1),
    "midpoint": lambda f, t, x, y: f.quantile(x, 0.3, interpolation="midpoint"),
    "cov": lambda f, t, x, y: f.cov(x, fweights=t(np.arange(1, 7)), aweights=t(np.ones(6) / 2)),
    "corrcoef": lambda f, t, x, y: f.corrcoef(x),
    "dist": lambda f, t, x, y: f.dist(x, y, 3),
    "renorm": lambda f, t, x, y: f.renorm(x, 2, 0, 1.5),
    "cumprod": lambda f, t, x, y: f.cumprod(x, 0),
    "cumprod through zeros": lambda f, t, x, y: f.cumprod(x * t(MASK.astype(float)), 1),
    "cummax": lambda f, t, x, y: f.cummax(x, 1),
    "cummin of columns": lambda f, t, x, y: f.cummin(x, 0),
    "logcumsumexp": lambda f, t, x, y: f.logcumsumexp(x * 20, 1),
    "diff": lambda f, t, x, y: f.diff(x, 2, 1, prepend=y[:, :1]),
    "trapezoid": lambda f, t, x, y: f.trapezoid(x, y[0]),
    "cumulative_trapezoid": lambda f, t, x, y: f.cumulative_trapezoid(x, dx=0.5, dim=0),
    "gradient": lambda f, t, x, y: f.gradient(x, spacing=(t(np.array([0.0, 1, 3, 4])), 2.0), edge_order=2)
    if f is alpha else f.gradient(x, spacing=(t(np.array([0.0, 1, 3, 4])), t(np.arange(6) * 2.0)), edge_order=2),
    "sort": lambda f, t, x, y: f.sort(x, 0, True),
    "topk": lambda f, t, x, y: f.topk(x, 3, largest=False),
    "kthvalue": lambda f, t, x, y: f.kthvalue(x, 2, 0, True),
    "take": lambda f, t, x, y: f.take(x, t(INDEX)),
    "take_along_dim": lambda f, t, x, y: f.take_along_dim(x, t(INDEX)),
    "masked_select": lambda f, t, x, y: f.masked_select(x, t(MASK[0])),
    "repeat_interleave": lambda f, t, x, y: f.repeat_interleave(x, t(np.array([2, 0, 1, 3])), 0),
    "scatter": lambda f, t, x, y: f.scatter(x, 1, t(ONCE), y),
    "scatter_add": lambda f, t, x, y: f.scatter_add(x, 0, t(UP), y[:2]),
    "scatter_reduce, mean": lambda f, t, x, y: f.scatter_reduce(x, 1, t(INDEX), y, "mean", include_self=False),
    "scatter_reduce, prod": lambda f, t, x, y: f.scatter_reduce(x, 1, t(INDEX), y * t(MASK * 1.0), "prod"),
    "scatter_reduce, amin": lambda f, t, x, y: f.scatter_reduce(x, 1, t(INDEX), y, "amin", include_self=False),
    "index_reduce": lambda f, t, x, y: f.index_reduce(x, 0, t(np.array([1, 1, 3])), y[:3], "amax"),
    "index_put": lambda f, t, x, y: f.index_put(x, (t(UP[0]), t(INDEX[0])), y[0], True),
    "diag_embed": lambda f, t, x, y: f.diag_embed(x, 1, 0, 2),
    "diagonal": lambda f, t, x, y: f.diagonal(x.reshape(2, 3, 4), -1, 2, 0),
    "block_diag": lambda f, t, x, y: f.block_diag(x, y[0], y[:, :2]),
    "tril": lambda f, t, x, y: f.tril(x, 1) + f.triu(y, -1),
    "diagonal_scatter": lambda f, t, x, y: f.diagonal_scatter(x, y[0, :4], 2),
    "slice_scatter": lambda f, t, x, y: f.slice_scatter(x, y[:, :2], 1, 1, 6, 3),
    "unfold": lambda f, t, x, y: x.unfold(1, 3, 2),
    "as_strided": lambda f, t, x, y: f.as_strided(x, (3, 3), (2, 1), 1),
    "roll": lambda f, t, x, y: f.roll(x, (1, -2), (0, 1)),
    "rot90": lambda f, t, x, y: f.rot90(x, 3),
    "tensor_split": lambda f, t, x, y: f.tensor_split(x, (1, 4), 1),
    "unflatten": lambda f, t, x, y: x.unflatten(1, (-1, 2)).movedim((0, 1), (1, 2)),
    "stacks": lambda f, t, x, y: f.dstack((f.hstack((x, y)), f.hstack((y, x)))),
    "column_stack": lambda f, t, x, y: f.column_stack((x, y[:, 0])),
    "combinations": lambda f, t, x, y: f.combinations(x[0], 3),
    "cartesian_prod": lambda f, t, x, y: f.cartesian_prod(x[0], y[1]),
    "sum_to_size": lambda f, t, x, y: x.sum_to_size(1, 6) + x.mT.sum_to_size(6, 1).H,
}  # fmt: skip


IN_PLACE: dict[str, Call] = {
    "scatter_": lambda t, x, y: x.scatter_(1, t(ONCE), y),
    "scatter_ of a number": lambda t, x, y: x.scatter_(1, t(INDEX), 0.5),
    "scatter_add_": lambda t, x, y: x.scatter_add_(0, t(UP), y[:2]),
    "scatter_add_ to a row": lambda t, x, y: x[1:3].scatter_add_(1, t(INDEX[:2]), y[:2]),
    "scatter_add_, transposed": lambda t, x, y: x.T.scatter_add_(0, t(INDEX.T.copy()), y.T),
    "scatter_reduce_": lambda t, x, y: x.scatter_reduce_(1, t(INDEX), y, "amax"),
    "index_add_": lambda t, x, y: x.index_add_(0, t(ENTRIES), y[:3], alpha=2),
    "index_copy_": lambda t, x, y: x.index_copy_(0, t(ENTRIES), y[:3]),
    "index_fill_": lambda t, x, y: x.index_fill_(1, t(ENTRIES), 3.0),
    "index_put_": lambda t, x, y: x.index_put_((t(ENTRIES),), y[0], True),
    "put_": lambda t, x, y: x.put_(t(FLAT), y[0, :5]),
    "masked_scatter_": lambda t, x, y: x.masked_scatter_(t(MASK), y),
    "tril_": lambda t, x, y: x.tril_(),
    "cumprod_": lambda t, x, y: x.cumprod_(0),
    "addmm_": lambda t, x, y: x.addmm_(y, y.T @ y, beta=0.5),
    "fill_diagonal_": lambda t, x, y: x.fill_diagonal_(7.0),
    "a diagonal": lambda t, x, y: x.diagonal(1).mul_(2),
    "windows": lambda t, x, y: x.unfold(1, 2, 2).mul_(3.0),
    "an entry": lambda t, x, y: x.select(1, 2).add_(y[:, 0]),
}


def _gradients(lib: Any, make: Callable[[Any], Any], call: Call, arrays: list[Array]) -> list[Array]:
    """The results of a call, and the gradients of their weighted sum."""
    leaves = [make(a).requires_grad_() for a in arrays]
    found = call(*leaves)
    results = [
        part for part in (found if isinstance(found, tuple | list) else [found]) if part.dtype == leaves[0].dtype
    ]
    total: Any = 0.0
    for part in results:
        weights = make(np.cos(np.arange(part.numel(), dtype=float)).reshape(tuple(part.shape)))
        total = total + (part * weights).sum()
    total.backward()
    gradients = [np.zeros(a.shape) if x.grad is None else np.array(x.grad) for x, a in zip(leaves, arrays, strict=True)]
    return [np.array(part.detach()) for part in results] + gradients


def _compare(ours: list[Array], theirs: list[Array]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


def _inputs() -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((ROWS, COLUMNS)) for _ in range(2)]


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(engine: Engine, name: str) -> None:
    torch = pytest.importorskip("torch")
    call = FUNCTIONS[name]

    def tensor(a: Any) -> Any:
        return alpha.tensor(a, engine=engine)

    ours = _gradients(alpha, tensor, lambda x, y: call(alpha, tensor, x, y), _inputs())
    _compare(ours, _gradients(torch, torch.tensor, lambda x, y: call(torch, torch.tensor, x, y), _inputs()))


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_and_through_views(engine: Engine, name: str) -> None:
    torch = pytest.importorskip("torch")

    def written(make: Callable[[Any], Any]) -> Call:
        def call(x: Any, y: Any) -> Any:
            out = x * 1.0
            IN_PLACE[name](make, out, y)
            return out

        return call

    def tensor(a: Any) -> Any:
        return alpha.tensor(a, engine=engine)

    ours = _gradients(alpha, tensor, written(tensor), _inputs())
    _compare(ours, _gradients(torch, torch.tensor, written(torch.tensor), _inputs()))


OF_INTEGERS: dict[str, Call] = {
    "mm": lambda f, t, x: f.mm(x, x.T),
    "addmm": lambda f, t, x: f.addmm(x[:, :4], x, x.T, beta=2, alpha=3),
    "sort": lambda f, t, x: f.sort(x, dim=1, stable=True),
    "argsort": lambda f, t, x: f.argsort(x, descending=True, stable=True),
    "topk": lambda f, t, x: f.topk(x, 2)[0],
    "median": lambda f, t, x: f.median(x, 1)[0],
    "mode": lambda f, t, x: f.mode(x, 1),
    "unique": lambda f, t, x: f.unique(x, return_inverse=True, return_counts=True),
    "unique, rows": lambda f, t, x: f.unique(x, dim=0, return_inverse=True),
    "unique_consecutive": lambda f, t, x: f.unique_consecutive(x, return_inverse=True, return_counts=True),
    "nonzero": lambda f, t, x: f.nonzero(x, as_tuple=True),
    "where": lambda f, t, x: f.where(x > 1),
    "searchsorted": lambda f, t, x: f.searchsorted(f.sort(x)[0], x, right=True, out_int32=True),
    "bucketize": lambda f, t, x: f.bucketize(x, t(np.array([1, 3]))),
    "isin": lambda f, t, x: f.isin(x, 2, invert=True),
    "bincount": lambda f, t, x: f.bincount(x.reshape(-1), t(np.arange(24.0)), 9),
    "repeat_interleave": lambda f, t, x: f.repeat_interleave(x[0] * 0 + 2),
    "cumprod": lambda f, t, x: f.cumprod(x, 1),
    "cummax": lambda f, t, x: f.cummax(x, 1),
    "scatter_add": lambda f, t, x: f.scatter_add(x, 1, t(INDEX), x),
    "scatter_reduce": lambda f, t, x: f.scatter_reduce(x, 1, t(INDEX), x, "mean"),
    "index_reduce": lambda f, t, x: f.index_reduce(x, 0, t(ENTRIES), x[:3], "prod", include_self=False),
    "index_fill": lambda f, t, x: f.index_fill(x, 0, t(ENTRIES), 1),
    "count_nonzero": lambda f, t, x: f.count_nonzero(x, 1),
    "trace": lambda f, t, x: f.trace(x),
    "triu": lambda f, t, x: f.triu(x, 1),
    "diff": lambda f, t, x: f.diff(x),
    "meshgrid": lambda f, t, x: f.meshgrid(x[0], x[:, 1], indexing="xy"),
    "tril_indices": lambda f, t, x: f.tril_indices(3, 4, 1),
}


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
def test_integers_and_bools(engine: Engine, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(2).integers(0, 2 if dtype == "bool" else 5, (ROWS, COLUMNS)).astype(dtype)
    for name, call in OF_INTEGERS.items():
        try:
            theirs = call(torch, torch.tensor, torch.tensor(x))
        except (RuntimeError, NotImplementedError):  # PyTorch has no such function of bools
            continue
        ours = call(alpha, lambda a: alpha.tensor(a, engine=engine), alpha.tensor(x, engine=engine))
        parts = [list(r) if isinstance(r, tuple | list) else [r] for r in (ours, theirs)]
        for one, other in zip(*parts, strict=True):
            got, want = np.asarray(one), other.numpy()
            assert (got.dtype, got.shape) == (want.dtype, want.shape), name
            np.testing.assert_array_equal(got, want, name)


def test_a_tensor_without_axes_has_axis_0(engine: Engine) -> None:
    x = alpha.tensor(2.0, engine=engine, requires_grad=True)
    for name in ("sum", "mean", "prod", "amax", "argmax", "cumsum", "cumprod", "logsumexp", "squeeze", "median"):
        found = getattr(alpha, name)(x, 0)
        assert (found[0] if isinstance(found, tuple) else found).shape == (), name
    assert x.sort(-1).values.item() == x.topk(1).values.item() == x.max(0).values.item() == 2.0
    assert x.gather(0, alpha.tensor(0, engine=engine)).shape == () and x.transpose(0, -1).shape == ()
    with pytest.raises(ShapeError, match=r"\[sum\] expected an axis"):
        x.sum(1)


def test_order_of_many_numbers(engine: Engine) -> None:
    """Kernels for long lines, NaN and equal numbers among them."""
    rng = np.random.default_rng(3)
    values = rng.integers(-300, 300, (3, 5000)).astype(np.float32)
    values[0, 7] = values[2, :2] = np.nan
    for array in (values, rng.integers(-300, 300, (3, 5000)), rng.integers(0, 2, (3, 5000)).astype(bool)):
        x = alpha.tensor(array, engine=engine)
        order = np.argsort(array, 1, kind="stable")
        ordered = np.take_along_axis(array, order, 1)
        np.testing.assert_array_equal(np.asarray(x.argsort(1)), order)
        for k in (1, 10, 600):
            top, places = x.topk(k, 1)
            np.testing.assert_array_equal(np.asarray(top), ordered[:, ::-1][:, :k])
            np.testing.assert_array_equal(np.take_along_axis(array, np.asarray(places), 1), np.asarray(top))
            np.testing.assert_array_equal(np.asarray(x.topk(k, 1, largest=False).values), ordered[:, :k])
            np.testing.assert_array_equal(np.asarray(x.kthvalue(k, 1).values), ordered[:, k - 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: alpha.mm(x, x), ShapeError, r"\[matmul\] expected x.shape\[-1\]"),
        (lambda x: alpha.bmm(x, x), ShapeError, r"\[bmm\] expected tensors of 3 and 3 axes"),
        (lambda x: alpha.addmm(x, x, x.T), ShapeError, r"\[addmm\] expected x to broadcast"),
        (lambda x: alpha.einsum("ij,jk", x), ArgumentError, r"\[einsum\] expected 2 tensors"),
        (lambda x: alpha.einsum("ij,ij->i?", x, x), ArgumentError, r"\[einsum\] expected letters"),
        (lambda x: alpha.einsum("ij,ji->", x, x), ShapeError, r"\[einsum\] expected one length"),
        (lambda x: alpha.tensordot(x, x, 1), ShapeError, r"\[tensordot\] expected pairs of axes"),
        (lambda x: x.topk(7), ArgumentError, r"\[topk\] expected k <= 6"),
        (lambda x: x.kthvalue(0), ArgumentError, r"\[kthvalue\] expected k >= 1"),
        (lambda x: x.quantile(2.0), ArgumentError, r"\[quantile\] expected q within 0..1"),
        (lambda x: x.quantile(0.5, interpolation="cubic"), ArgumentError, r"\[quantile\] expected interpolation"),
        (lambda x: x.scatter(1, x.long(), x.double()), DtypeError, r"\[scatter\] expected src of float32"),
        (lambda x: x.scatter(1, x.long() + 9, x), IndexingError, r"\[scatter\] expected indices within axis 1"),
        (lambda x: x.scatter_add(0, x.long(), x[:2]), ShapeError, r"\[scatter_add\] expected an index no longer"),
        (lambda x: x.scatter_reduce(0, x.long(), x, "max"), ArgumentError, r"\[scatter_reduce\] expected reduce"),
        (lambda x: x.index_add(0, x[:, 0].long(), x[:2]), ShapeError, r"\[index_add\] expected a source of shape"),
        (lambda x: x.index_put(x.long(), x), ArgumentError, r"\[index_put\] expected a tuple"),
        (lambda x: x.masked_scatter(x > -1, x[:2]), ShapeError, r"\[masked_scatter\] expected at least 24 elements"),
        (lambda x: x.narrow(1, 4, 3), ArgumentError, r"\[narrow\] expected length <= 2"),
        (lambda x: x.hsplit(4), ArgumentError, r"\[hsplit\] expected sections that divide 6"),
        (lambda x: x.as_strided((9, 9), (9, 9)), ShapeError, r"\[as_strided\] expected a size and strides within"),
        (lambda x: x.unfold(1, 7, 1), ArgumentError, r"\[unfold\] expected size <= 6"),
        (lambda x: x.diagonal(0, 1, 1), ShapeError, r"\[diagonal\] expected two different axes"),
        (lambda x: x.movedim((0, 0), (0, 1)), ShapeError, r"\[movedim\] expected as many different"),
        (alpha.bincount, DtypeError, r"\[bincount\] expected a vector of integers"),
        (lambda x: alpha.histc(x, min=1, max=0), ArgumentError, r"\[histc\] expected a finite range"),
        (lambda x: alpha.cross(x, x), ShapeError, r"\[cross\] expected an axis of length 3"),
        (lambda x: x.repeat_interleave(x), ShapeError, r"\[repeat_interleave\] expected 24 ints"),
    ],
)
def test_bad_input_is_told(engine: Engine, call: Callable[[Any], Any], error: type[AlphaError], message: str) -> None:
    with pytest.raises(error, match=message):
        np.asarray(call(alpha.zeros((ROWS, COLUMNS), engine=engine)))  # a device may tell when it is waited for


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"])
@pytest.mark.parametrize(("shape", "dim"), [((0, 2, 4), 0), ((2, 0, 4), 1), ((2, 0, 4), 0), ((3, 2, 0), 1), ((0,), 0)])
def test_running_values_of_nothing(engine: Engine, name: str, shape: tuple[int, ...], dim: int) -> None:
    x = alpha.zeros(shape, engine=engine, requires_grad=True)
    found = getattr(alpha, name)(x, dim)
    values = found[0] if isinstance(found, tuple) else found
    values.sum().backward()
    assert values.shape == shape and x.grad is not None and x.grad.shape == shape


def test_histograms_of_points(engine: Engine, rng: np.random.Generator) -> None:
    points, weights = rng.standard_normal((5, 20, 2)), rng.uniform(0.5, 2, (5, 20))
    x, w = alpha.tensor(points, engine=engine), alpha.tensor(weights, engine=engine)
    edges = [np.array([-2.0, -0.5, 0.0, 1.0]), np.array([-1.0, 0.25, 3.0])]
    ours = [alpha.tensor(found, engine=engine) for found in edges]
    for density in (False, True):
        for bins, given in ((4, 4), ([3, 2], [3, 2]), (ours, edges)):
            expected, _ = np.histogramdd(points.reshape(-1, 2), given, weights=weights.reshape(-1), density=density)
            found = alpha.histogramdd(x, bins, weight=w, density=density)
            np.testing.assert_allclose(np.asarray(found.hist), expected, rtol=1e-12)
            assert [len(part) for part in found.bin_edges] == [n + 1 for n in expected.shape]
    inside = alpha.histogramdd(x, 3, range=[-1, 1, 0, 2]).hist
    assert inside.sum().item() == (np.abs(points[..., 0]) <= 1)[(points[..., 1] >= 0) & (points[..., 1] <= 2)].sum()
    wrongs: list[tuple[Any, dict[str, Any]]] = [
        (x, {"bins": [3]}),
        (x, {"bins": 0}),
        (x, {"bins": 3, "range": [0, 1]}),
        (x, {"bins": 3, "range": [1, 0, 0, 1]}),
        (x, {"bins": 3, "weight": w[0]}),
        (x, {"bins": [ours[0].flip(0), 3]}),
        (x[0, 0], {"bins": 3}),
        (x.long(), {"bins": 3}),
    ]
    for points_given, options in wrongs:
        with pytest.raises(AlphaError, match=r"\[histogramdd\] expected"):
            alpha.histogramdd(points_given, **options)
