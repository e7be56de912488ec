"""Tensor: making, showing, exchanging with NumPy and others, its methods and conversions."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, GraphError, ShapeError
from alpha.functions import (
    contraction,
    diagonals,
    elementwise,
    extremes,
    factorisations,
    householder,
    indexing,
    inplace,
    joining,
    linalg,
    lookups,
    lu_factors,
    matrices,
    products,
    pseudo_inverse,
    reduction,
    running,
    scattering,
    selection,
    shape,
    solving,
    sorting,
    splitting,
    statistics,
    triangular,
    vector_norms,
    views,
)
from alpha.testing import assert_close

Array = np.ndarray[Any, Any]


# -- making ------------------------------------------------------------------------------------------------------


def test_dtypes_of_new_tensors(engine: Engine) -> None:
    def made(data: Any, dtype: Any = None) -> str:
        return str(alpha.tensor(data, dtype, engine=engine).dtype)

    assert made(1) == made([1, 2]) == "int64"
    assert made(1.0) == made([[1.0, 2]]) == made([]) == "float32"
    assert made(True) == made([True, False]) == "bool"
    assert made(np.zeros(2)) == "float64" and made(np.float64(1)) == "float64"
    assert made(np.zeros(2, np.uint8)) == "uint8" and made(np.zeros(2, np.int32)) == "int32"
    assert made([1, 2], alpha.float32) == made([1, 2], "float32") == "float32"
    assert made([1.5, 2], int) == "int64" and made([1, 2], float) == "float64" and made([1, 0], bool) == "bool"
    assert made(alpha.tensor([1.0])) == "float32"


def test_what_makes_no_tensor(engine: Engine) -> None:
    with pytest.raises(ArgumentError, match=r"\[tensor\] expected an array or nested lists of one shape"):
        alpha.tensor([[1, 2], [3]], engine=engine)
    for data in (np.zeros(2, np.uint64), np.zeros(2, np.longdouble), "text", [None]):
        with pytest.raises(DtypeError, match=r"\[tensor\] expected"):
            alpha.tensor(data, engine=engine)
    with pytest.raises(DtypeError, match=r"\[tensor\] expected one of the dtypes float32, .*, got uint64"):
        alpha.tensor([1.0], dtype=np.uint64, engine=engine)
    assert (
        issubclass(DtypeError, TypeError) and issubclass(ShapeError, ValueError) and issubclass(ShapeError, AlphaError)
    )


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (300, "uint8"), ([1, -1], "uint8"), (np.int64(256), "uint8"), (2**40, "int32"), (math.nan, "int32"),
        ([[math.inf]], "int64"), (9.3e18, "int64"), (2**63, "int64"), ([0.5, -1.0], "uint8"),
    ],
)  # fmt: skip
def test_a_number_that_the_dtype_does_not_hold_is_refused(engine: Engine, data: Any, dtype: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[tensor\] expected numbers that {dtype} holds, -?\d+ to \d+, got "):
        alpha.tensor(data, dtype, engine=engine)


def test_numbers_at_the_limits_are_held_and_arrays_are_cast(engine: Engine) -> None:
    for data, dtype, expected in (
        ([0, 255, 255.9, -0.9], "uint8", [0, 255, 255, 0]),
        ([-(2**63), 2**63 - 1], "int64", [-(2**63), 2**63 - 1]),
        ([2, 0, math.nan], "bool", [True, False, True]),
        (np.array([300, -1]), "uint8", [44, 255]),
        (1e300, "float32", math.inf),
    ):
        assert alpha.tensor(data, dtype, engine=engine).tolist() == expected


# -- views -------------------------------------------------------------------------------------------------------


def test_view_gives_another_shape_to_the_same_memory(engine: Engine) -> None:
    x = alpha.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), engine=engine)
    for seen in (x.view(6, -1), x.view((6, 4)), x.view([6, 4]), x.permute(1, 0, 2).permute(1, 0, 2).view(6, 4)):
        assert seen.shape == (6, 4) and seen.storage is x.storage
        assert seen.tolist() == np.arange(24).reshape(6, 4).tolist()
    x.view(-1).mul_(2)
    assert x[1, 2, 3].item() == 46
    assert x.view(2, 3, 4) is not x
    for wrong, message in (
        ((5, 5), "expected a shape of 24 elements with at most one -1, got"),
        ((-1, -1), "expected a shape of 24 elements with at most one -1, got"),
    ):
        with pytest.raises(ShapeError, match=rf"\[view\] {message}"):
            x.view(wrong)
    with pytest.raises(ShapeError, match=r"\[view\] expected a shape that fits the strides, got \(24,\)"):
        x.permute(2, 0, 1).view(24)


def test_view_is_in_the_graph(engine: Engine) -> None:
    x = alpha.ones(2, 3, requires_grad=True, engine=engine)
    (x.view(3, 2) * alpha.tensor([1.0, 2.0], engine=engine)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1, 2, 1], [2, 1, 2]]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_view_reads_the_bits_as_another_dtype(engine: Engine, dtype: str) -> None:
    values = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    for x, array in (
        (alpha.tensor(values, engine=engine), values),
        (alpha.tensor(values, engine=engine)[1:, ::2, 2:], values[1:, ::2, 2:]),
    ):
        seen = x.view(np.dtype(dtype))
        assert seen.storage is x.storage and str(seen.dtype) == dtype
        np.testing.assert_array_equal(np.asarray(seen), array.view(dtype))
    with pytest.raises(ShapeError, match=r"\[view\] expected a last axis that lies without gaps in whole numbers"):
        alpha.zeros(2, 3, engine=engine).view(alpha.float64)
    with pytest.raises(ShapeError, match=r"\[view\] expected a last axis"):
        alpha.zeros(2, 4, engine=engine).permute(1, 0).view(alpha.uint8)


def test_the_data_is_copied(engine: Engine) -> None:
    x = np.ones(3, np.float32)
    t = alpha.tensor(x, engine=engine)
    x[0] = 5
    assert t.tolist() == [1, 1, 1]
    u = alpha.tensor(t, engine=engine)
    u.add_(1)
    assert t.tolist() == [1, 1, 1]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_an_arrays_memory_order_is_kept(engine: Engine, rng: np.random.Generator, order: tuple[int, ...]) -> None:
    x = rng.standard_normal((2, 3, 4)).transpose(order)
    t = alpha.tensor(x, engine=engine)
    np.testing.assert_array_equal(t.numpy(), x)
    assert t.strides == tuple(s // 8 for s in x.strides)
    np.testing.assert_array_equal(alpha.tensor(x[::-1, ::2], engine=engine).numpy(), x[::-1, ::2])


# -- what it is --------------------------------------------------------------------------------------------------


def test_properties(engine: Engine) -> None:
    t = alpha.zeros(2, 3, 4, engine=engine)
    assert (t.shape, t.ndim, t.dim(), t.numel(), t.nbytes) == ((2, 3, 4), 3, 3, 24, 96)
    assert t.size() == (2, 3, 4) and t.size(-1) == 4 and t.stride() == (12, 4, 1) and len(t) == 2
    assert t.engine is engine and t.is_leaf and not t.requires_grad and t.grad is None and t.version == 0
    assert t.is_contiguous() and not t.T.is_contiguous() and t.T.is_contiguous((2, 1, 0))
    assert t.permute(1, 2, 0).memory_order() == (2, 0, 1)
    with pytest.raises(TypeError, match=r"\[len\]"):
        len(alpha.tensor(1.0, engine=engine))


def test_scalars(engine: Engine) -> None:
    one = alpha.tensor([[2.5]], engine=engine)
    assert one.item() == 2.5 and float(one) == 2.5 and int(one) == 2 and bool(one)
    assert not alpha.tensor(0, engine=engine) and range(5)[alpha.tensor(3, engine=engine)] == 3
    for convert in (float, int, lambda x: x.item()):
        with pytest.raises(ShapeError, match=r"\[item\] expected a tensor of one element, got shape \(2,\)"):
            convert(alpha.ones(2, engine=engine))
    with pytest.raises(ShapeError, match=r"\[bool\] expected a tensor of one element"):
        bool(alpha.ones(2, engine=engine))
    with pytest.raises(TypeError, match=r"\[index\]"):
        range(5)[one]


def test_repr(engine: Engine) -> None:
    x = alpha.tensor([[1.0, 2.0]], requires_grad=True, engine=engine)
    assert repr(x) == f"tensor([[1., 2.]], shape=(1, 2), dtype=float32, engine={engine.name}, requires_grad=True)"
    assert repr(x * 2).endswith("grad_fn=mul)")
    assert repr(alpha.tensor(3, engine=engine)) == f"tensor(3, shape=(), dtype=int64, engine={engine.name})"
    assert len(repr(alpha.zeros(1000, 1000, engine=engine))) < 1000


# -- exchange ----------------------------------------------------------------------------------------------------


def test_numpy_shares_memory_on_the_cpu(cpu: CPUEngine, rng: np.random.Generator) -> None:
    t = alpha.tensor(rng.standard_normal((2, 3)), engine=cpu)
    array = t.numpy()
    array[0, 0] = 7
    assert t[0, 0].item() == 7
    assert np.shares_memory(t.T.numpy(), array)
    with pytest.raises(GraphError, match=r"\[numpy\] expected a tensor outside the graph"):
        t.requires_grad_().numpy()


def test_an_array_keeps_the_memory_alive(cpu: CPUEngine) -> None:
    before = cpu.memory.in_use
    array = alpha.ones(1000, engine=cpu).numpy()
    assert cpu.memory.in_use > before
    scratch = alpha.zeros(1000, engine=cpu)  # would take the freed block
    assert array.sum() == 1000 and scratch.sum().item() == 0
    del array, scratch
    assert cpu.memory.in_use == before


def test_array_protocol(engine: Engine) -> None:
    x = alpha.tensor([[1.0, 2.0]], requires_grad=True, engine=engine)
    assert np.asarray(x).tolist() == [[1, 2]]
    assert np.asarray(x, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(x), np.asarray(x))


@pytest.mark.needs("torch")
def test_dlpack(engine: Engine, rng: np.random.Generator) -> None:
    import torch

    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    t = alpha.tensor(x, engine=engine).permute(2, 0, 1)
    on_host = t.to("cpu")  # a capsule of a GPU's memory is for libraries that use it there
    other = torch.from_dlpack(on_host)
    np.testing.assert_array_equal(other.numpy(), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(np.from_dlpack(on_host), x.transpose(2, 0, 1))
    assert alpha.tensor(np.asarray(other), engine=engine).shape == (4, 2, 3)


def test_tolist(engine: Engine) -> None:
    assert alpha.tensor([[1, 2], [3, 4]], engine=engine).T.tolist() == [[1, 3], [2, 4]]


# -- operators and methods ---------------------------------------------------------------------------------------


def test_operators_are_the_functions(engine: Engine, rng: np.random.Generator) -> None:
    x, y = rng.uniform(1, 2, (2, 3)), rng.uniform(1, 2, (2, 3))
    t, u = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    pairs = [
        (t + u, x + y),
        (t - u, x - y),
        (t * u, x * y),
        (t / u, x / y),
        (t // u, x // y),
        (t % u, x % y),
        (t**u, x**y),
        (t @ u.T, x @ y.T),
        (2 + t, 2 + x),
        (2 - t, 2 - x),
        (2 * t, 2 * x),
        (2 / t, 2 / x),
        (5 // t, 5 // x),
        (5 % t, 5 % x),
        (2**t, 2**x),
        (-t, -x),
        (+t, x),
        (abs(-t), x),
        (t < u, x < y),
        (t <= 1.5, x <= 1.5),
        (t < 1.5, x < 1.5),
        (t == t.clone(), np.ones_like(x, bool)),
        (t != u, x != y),
    ]
    for ours, expected in pairs:
        assert_close(ours, expected)


METHODS = [
    ("abs", ()),
    ("exp", ()),
    ("log", ()),
    ("sqrt", ()),
    ("square", ()),
    ("pow", (3,)),
    ("sin", ()),
    ("cos", ()),
    ("tanh", ()),
    ("sigmoid", ()),
    ("relu", ()),
    ("clamp", (0.2, 0.8)),
    ("softmax", (0,)),
    ("log_softmax", (1,)),
    ("isfinite", ()),
    ("sum", (1,)),
    ("mean", (0,)),
    ("var", (1,)),
    ("std", ()),
    ("prod", (1,)),
    ("logsumexp", (0,)),
    ("norm", ()),
    ("max", ()),
    ("min", ()),
    ("argmax", (1,)),
    ("argmin", ()),
    ("any", (0,)),
    ("all", ()),
    ("cumsum", (1,)),
    ("reshape", ((4, 3),)),
    ("permute", ((1, 0),)),
    ("transpose", (0, 1)),
    ("expand", ((2, 3, 4),)),
    ("flatten", ()),
    ("squeeze", ()),
    ("unsqueeze", (1,)),
    ("flip", (0,)),
    ("clone", ()),
    ("contiguous", ()),
]


@pytest.mark.parametrize("name, arguments", METHODS, ids=[name for name, _ in METHODS])
def test_methods_are_the_functions(engine: Engine, rng: np.random.Generator, name: str, arguments: Any) -> None:
    t = alpha.tensor(rng.uniform(0.1, 1, (3, 4)).astype(np.float32), engine=engine)
    ours, function = getattr(t, name)(*arguments), getattr(alpha, name)(t, *arguments)
    assert ours.shape == function.shape and ours.dtype == function.dtype
    np.testing.assert_array_equal(ours.numpy(), function.numpy())


def test_every_function_of_a_tensor_is_a_method() -> None:
    """The function itself, or a method of its name that takes shapes and axes one by one as well."""
    families = (
        contraction, diagonals, elementwise, extremes, indexing, inplace, joining, linalg, lookups, products, reduction,
        running, scattering, selection, shape, sorting, splitting, statistics, vector_norms, views, factorisations,
        householder, lu_factors, matrices, pseudo_inverse, solving, triangular,
    )  # fmt: skip
    functions = {name for family in families for name in family.__all__}
    of_several = {
        "cat", "concat", "stack", "getitem", "setitem", "one_hot", "linear", "cast", "concatenate", "hstack", "vstack",
        "dstack", "row_stack", "column_stack", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "einsum",
        "broadcast_shapes", "broadcast_tensors", "chain_matmul", "tensordot", "tril_indices", "triu_indices",
        "std_mean", "var_mean", "searchsorted", "bucketize", "bilinear", "lu_unpack",
    }  # fmt: skip
    # PyTorch's tensors have these neither:
    of_several |= {"is_tensor", "can_cast", "promote_types", "result_type", "rsub", "unravel_index"}
    absent = {name for name in functions - of_several if not hasattr(alpha.Tensor, name)}
    assert not absent, f"expected a method for each function, got none for {sorted(absent)}"


def test_functions_written_into_their_argument(engine: Engine, rng: np.random.Generator) -> None:
    values = rng.uniform(0.1, 1, (3, 4)).astype(np.float32)
    for name, arguments in METHODS:
        if not hasattr(alpha.Tensor, f"{name}_"):
            continue
        t = alpha.tensor(values, engine=engine)
        expected = np.asarray(getattr(t, name)(*arguments))
        assert getattr(t, f"{name}_")(*arguments) is t
        np.testing.assert_array_equal(np.asarray(t), expected)
        leaf = alpha.tensor(values, requires_grad=True, engine=engine)
        plain = alpha.tensor(values, requires_grad=True, engine=engine)
        changed = leaf * 1
        assert getattr(changed, f"{name}_")(*arguments) is changed
        changed.sum().backward()
        getattr(plain, name)(*arguments).sum().backward()
        np.testing.assert_array_equal(np.asarray(leaf.grad), np.asarray(plain.grad))
        with pytest.raises(GraphError, match=rf"\[{name}_\] expected a tensor that is not a leaf of the graph"):
            getattr(leaf, f"{name}_")(*arguments)
    with pytest.raises(DtypeError, match=r"\[exp_\] expected a value that int64 can hold, got float32"):
        alpha.tensor([1, 2], engine=engine).exp_()
    with pytest.raises(ArgumentError, match=r"\[exp_\] expected the arguments of exp, got others"):
        alpha.ones(2, engine=engine).exp_(1)
    x = alpha.tensor([-3, 4], engine=engine)
    assert x.abs_().tolist() == [3, 4] and x.clamp_(max=3).tolist() == [3, 3] and x.eq_(3).tolist() == [1, 1]


def test_methods_that_take_another_tensors_shape(engine: Engine) -> None:
    x, other = alpha.arange(3.0, engine=engine), alpha.zeros(2, 3, engine=engine)
    assert x.expand_as(other).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert x.reshape_as(alpha.zeros(3, 1, engine=engine)).shape == x.view_as(alpha.zeros(3, 1)).shape == (3, 1)
    assert x.repeat(2, 2).shape == (2, 6) and x.tile(2).shape == (6,) and x.broadcast_to(2, 3).shape == (2, 3)
    assert x.where(x > 0, -1.0).tolist() == [-1, 1, 2]
    with pytest.raises(ShapeError, match=r"\[repeat\] expected a count for each of 2 axes or more, got \(2,\)"):
        other.repeat(2)


def test_methods_that_return_several(engine: Engine) -> None:
    t = alpha.tensor([[3.0, 1.0, 2.0]], engine=engine)
    values, indices = t.sort(1, descending=True)
    assert values.tolist() == [[3, 2, 1]] and indices.tolist() == [[0, 2, 1]]
    assert t.max(1)[1].tolist() == [0] and t.min(1, keepdim=True)[0].shape == (1, 1)
    assert [p.shape for p in t.split(2, 1)] == [(1, 2), (1, 1)] and len(t.chunk(3, 1)) == 3
    assert t.permute(1, 0).shape == t.T.shape == (3, 1) and t.reshape(3, 1).shape == (3, 1)
    assert t.expand(2, -1).shape == (2, 3) and t.flip(0, 1).tolist() == [[2, 1, 3]]


def test_tensors_hash_by_identity(engine: Engine) -> None:
    x, y = alpha.ones(2, engine=engine), alpha.ones(2, engine=engine)
    assert len({x, y, x}) == 2


def test_two_engines_in_one_process(engine: Engine) -> None:
    other = CPUEngine("64MB")
    x = alpha.ones(3, engine=other)
    assert x.engine is other and other.memory.in_use > 0
    y = x.to(engine)
    assert y.engine is engine and y.tolist() == [1, 1, 1]
    assert (y + 1).to(other).engine is other


def test_out_of_memory_leaves_the_engine_usable() -> None:
    small = CPUEngine("8MB")
    x = alpha.ones(1000, engine=small)
    with pytest.raises(MemoryError, match=r"\[memory\] expected room for .*cap 8.0 MiB"):
        alpha.zeros(1 << 22, engine=small)
    assert (x + 1).sum().item() == 2000


def test_copies_of_tensors(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True, engine=engine)
    y = copy.deepcopy(x)
    assert y is not x and y.storage is not x.storage and y.requires_grad and y.tolist() == [1, 2]
    with pytest.raises(GraphError, match=r"\[deepcopy\]"):
        copy.deepcopy(x * 2)
