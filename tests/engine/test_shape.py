"""Shapes: views and copies against NumPy, sharing of memory, gradients; creation functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]


def factorisations(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of n elements, with axes of length 1 between."""

    def grow(left: int) -> st.SearchStrategy[tuple[int, ...]]:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        more = st.sampled_from(divisors).flatmap(lambda d: grow(left // d).map(lambda rest: (d, *rest)))
        return st.one_of(st.just((left,)), more) if left > 1 else st.sampled_from([(), (1,), (1, 1)])

    return grow(n)


@given(order=st.permutations(range(3)), data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reshape_of_permuted(engine: Engine, order: list[int], data: Any) -> None:
    x = np.arange(2 * 6 * 4, dtype=np.float64).reshape(2, 6, 4)
    wanted = data.draw(factorisations(48))
    t = alpha.tensor(x, requires_grad=True, engine=engine)
    y = t.permute(order).reshape(wanted)
    expected = x.transpose(order).reshape(wanted)
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    # It is a view exactly where NumPy finds one.
    shared = np.shares_memory(x.transpose(order).reshape(wanted), x)
    assert (y.storage is t.storage) == shared
    weights = np.random.default_rng(0).standard_normal(wanted)
    (y * weights).sum().backward()
    assert t.grad is not None
    np.testing.assert_array_equal(
        t.grad.numpy(), weights.reshape([x.shape[a] for a in order]).transpose(np.argsort(order))
    )


def test_reshape(engine: Engine) -> None:
    x = alpha.arange(24, engine=engine).reshape(2, 3, 4)
    assert x.reshape(-1, 4).shape == (6, 4) == x.reshape((6, -1)).shape
    assert x.reshape(24).storage is x.storage
    assert x.reshape(2, 3, 4) is x
    assert alpha.zeros(0, 3, engine=engine).reshape(3, 0).shape == (3, 0)
    assert alpha.zeros(0, 3, engine=engine).reshape(-1, 3).shape == (0, 3)
    assert alpha.ones(1, engine=engine).reshape(()).shape == ()
    for wrong in ((5, 5), (-1, 5), (-1, -1), (-2, 12)):
        with pytest.raises(ShapeError, match=r"\[reshape\]"):
            x.reshape(wrong)
    with pytest.raises(ShapeError, match=r"\[reshape\]"):
        alpha.zeros(0, 3, engine=engine).reshape(0, -1)


def test_views_share_memory_and_version(engine: Engine) -> None:
    x = alpha.arange(24, dtype=alpha.float32, engine=engine).reshape(2, 3, 4)
    views = [
        x.permute(2, 0, 1),
        x.transpose(0, -1),
        x.T,
        x.unsqueeze(1),
        x.reshape(1, 2, 3, 4).squeeze(),
        x.expand(5, 2, 3, 4),
        x.flatten(),
        *x.split(2, 1),
        *x.chunk(2, -1),
    ]
    for view in views:
        assert view.storage is x.storage
    x.mul_(0)
    for view in views:
        assert not view.any().item() and view.version == x.version


def test_axes_against_numpy(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 1, 3, 4)).astype(np.float32)
    t = alpha.tensor(x, engine=engine)
    assert_close(t.permute(3, 0, 2, 1), x.transpose(3, 0, 2, 1))
    assert_close(t.permute(-1, 0, 2, 1), x.transpose(3, 0, 2, 1))
    assert_close(t.transpose(1, -1), x.swapaxes(1, -1))
    assert_close(t.T, x.T)
    assert_close(t.squeeze(), x.squeeze())
    assert_close(t.squeeze(1), x.squeeze(1))
    assert t.squeeze(0).shape == x.shape
    assert_close(t.unsqueeze(-1), x[..., None])
    assert_close(t.unsqueeze(0), x[None])
    assert_close(t.flatten(1), x.reshape(2, -1))
    assert_close(t.flatten(1, 2), x.reshape(2, 3, 4))
    assert alpha.tensor(1.0, engine=engine).flatten().shape == (1,)
    assert_close(t.expand(2, 5, -1, -1), np.broadcast_to(x, (2, 5, 3, 4)))
    assert_close(alpha.broadcast_to(t, (7, 2, 1, 3, 4)), np.broadcast_to(x, (7, 2, 1, 3, 4)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: alpha.permute(x, (2, 0, 1)),
        lambda x: alpha.transpose(x, 0, 2),
        lambda x: alpha.reshape(x, (4, 6)),
        lambda x: alpha.reshape(x.T, (4, 6)),
        lambda x: alpha.flatten(x, 1),
        lambda x: alpha.unsqueeze(x, 1),
        lambda x: alpha.squeeze(x[:, :1], 1),
        lambda x: alpha.expand(x[:, :1], (5, 2, 3, 4)),
        lambda x: alpha.flip(x, (0, -1)),
        lambda x: alpha.tile(x, (2, 1, 3)),
        lambda x: alpha.pad(x, (1, 2, 0, 3), value=7.0),
        lambda x: alpha.split(x, [1, 2], 1),
        lambda x: alpha.split(x, 2, 1)[1],
        lambda x: alpha.chunk(x, 3, -1),
        lambda x: alpha.concat([x, x * 2, x], 1),
        lambda x: alpha.stack([x, x * 2], -1),
    ],
)
def test_gradients(engine: Engine, rng: np.random.Generator, function: Any) -> None:
    assert gradcheck_on(engine, function, rng.standard_normal((2, 3, 4)))
    assert gradcheck_on(engine, function, rng.standard_normal((3, 4, 2)).transpose(2, 0, 1))


def test_concat_and_stack(engine: Engine, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal((2, 5)).astype(np.float32)
    t, u = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    assert_close(alpha.concat([t, u], 1), np.concatenate([x, y], 1))
    assert_close(alpha.cat([t, t], -2), np.concatenate([x, x], 0))
    assert_close(alpha.concat((t, u[:, :0]), 1), x)
    assert_close(alpha.stack([t, t], 1), np.stack([x, x], 1))
    assert_close(alpha.stack([t, t], -1), np.stack([x, x], -1))
    assert alpha.concat([t, alpha.ones(1, 3, dtype=alpha.int64, engine=engine)]).dtype == alpha.float32
    image = alpha.zeros(2, 4, 4, 3, engine=engine).contiguous((1, 2, 0, 3))
    assert alpha.concat([image, image], 3).memory_order() == (1, 2, 0, 3)
    for wrong in ([t, u], [t, t[0]]):
        with pytest.raises(ShapeError, match=r"\[concat\] expected shapes that differ only along axis 0"):
            alpha.concat(wrong)
    with pytest.raises(ShapeError, match=r"\[stack\]"):
        alpha.stack([t, u])
    with pytest.raises(ArgumentError, match=r"\[concat\] expected at least one tensor"):
        alpha.concat([])
    with pytest.raises(DtypeError, match=r"\[concat\] expected a Tensor, got float"):
        alpha.concat([t, 1.0])


def test_concat_of_one_tensor_twice_adds_up_its_gradient(engine: Engine) -> None:
    x = alpha.ones(2, requires_grad=True, engine=engine)
    (alpha.concat([x, x]) * alpha.tensor([1.0, 2, 3, 4], engine=engine)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 6]


def test_split_and_chunk(engine: Engine) -> None:
    x = alpha.arange(10, engine=engine)
    assert [p.tolist() for p in x.split(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [p.shape[0] for p in x.split([3, 0, 7])] == [3, 0, 7]
    assert [p.shape[0] for p in alpha.chunk(x, 4)] == [3, 3, 3, 1]
    with pytest.raises(ShapeError, match=r"\[split\] expected sizes that add up to 10"):
        x.split([3, 3])
    with pytest.raises(ArgumentError, match=r"\[split\] expected a size >= 1"):
        x.split(0)
    with pytest.raises(ArgumentError, match=r"\[chunk\]"):
        alpha.chunk(x, 0)


def test_gradient_through_some_of_the_pieces(engine: Engine) -> None:
    x = alpha.ones(6, requires_grad=True, engine=engine)
    _, middle, _ = x.split(2)
    (middle * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 3, 3, 0, 0]


@pytest.mark.needs("torch")
def test_pad_flip_tile(engine: Engine, rng: np.random.Generator) -> None:
    import torch

    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    t = alpha.tensor(x, engine=engine)
    for padding in ((1, 2), (0, 1, 2, 0), (1, 1, 0, 0, 3, 2)):
        assert_close(alpha.pad(t, padding, value=-1.5), torch.nn.functional.pad(torch.tensor(x), padding, value=-1.5))
    assert_close(alpha.flip(t, 1), np.flip(x, 1))
    assert_close(alpha.flip(t, (0, 2)), np.flip(x, (0, 2)))
    assert all(s >= 0 for s in alpha.flip(t, (0, 2)).strides)
    for repeats in (2, (2, 1), (1, 2, 3), (2, 1, 1, 2)):
        assert_close(alpha.tile(t, repeats), np.tile(x, repeats))
    assert alpha.flip(t[:0], 0).shape == (0, 3, 4)
    with pytest.raises(ShapeError, match=r"\[pad\] expected a pair"):
        alpha.pad(t, (1,))
    with pytest.raises(ShapeError, match=r"\[pad\]"):
        alpha.pad(t, (-9, 0))


@pytest.mark.parametrize(
    ("mode", "numpy_mode", "padding"),
    [
        ("reflect", "reflect", (4, 3, 2, 0)),
        ("replicate", "edge", (9, 1, 0, 7, 1, 0)),
        ("circular", "wrap", (5, 2, 0, 0, 2, 1)),
        ("reflect", "reflect", (0, 0)),
    ],
)
def test_padding_with_elements(
    engine: Engine, rng: np.random.Generator, mode: str, numpy_mode: Any, padding: tuple[int, ...]
) -> None:
    array = rng.standard_normal((2, 3, 5))
    pairs = [(0, 0)] * (3 - len(padding) // 2) + [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)][::-1]
    x = alpha.tensor(array, engine=engine)
    found = alpha.nn.functional.pad(x, padding, mode)
    np.testing.assert_array_equal(found.numpy(), np.pad(array, pairs, numpy_mode))
    assert found.storage is not x.storage
    gradcheck_on(engine, lambda t: alpha.pad(t, padding, mode), array)


def test_padding_with_elements_that_there_are_not(engine: Engine) -> None:
    x = alpha.zeros(2, 3, engine=engine)
    for arguments, message in (
        (
            ((3, 0), "reflect"),
            r'at most 2 elements before or behind axis 1 of shape \(2, 3\) with mode "reflect"',
        ),
        (((0, 4), "circular"), r"at most 3 elements .* got 0 and 4"),
    ):
        with pytest.raises(ShapeError, match=message):
            alpha.pad(x, *arguments)
    with pytest.raises(ShapeError, match="at most 0 elements"):
        alpha.pad(alpha.zeros(0, engine=engine), (1, 0), "replicate")
    with pytest.raises(ArgumentError, match="a number is given as value="):
        alpha.pad(x, (1, 1), 7.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match='expected a value with mode="constant" alone'):
        alpha.pad(x, (1, 1), "reflect", 1.0)


def test_errors(engine: Engine) -> None:
    x = alpha.zeros(2, 3, engine=engine)
    cases: list[tuple[str, Any]] = [
        ("permute", lambda: x.permute(0, 0)),
        ("transpose", lambda: x.transpose(0, 2)),
        ("expand", lambda: x.expand(2, 4)),
        ("expand", lambda: x.expand(3)),
        ("squeeze", lambda: x.squeeze(2)),
        ("unsqueeze", lambda: x.unsqueeze(4)),
        ("flatten", lambda: x.flatten(1, 0)),
    ]
    for name, case in cases:
        with pytest.raises(ShapeError, match=rf"\[{name}\]"):
            case()


# -- creation ----------------------------------------------------------------------------------------------------


def test_constants(engine: Engine) -> None:
    assert alpha.zeros(2, 3, engine=engine).tolist() == [[0.0] * 3] * 2
    assert alpha.ones((2,), dtype=alpha.int32, engine=engine).dtype == alpha.int32
    assert alpha.full((2, 2), 7, engine=engine).dtype == alpha.int64
    assert alpha.full(3, 1.5, engine=engine).tolist() == [1.5] * 3
    assert alpha.full((), True, engine=engine).item() is True
    assert alpha.eye(2, 3, engine=engine).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert alpha.empty(2, 0, engine=engine).numel() == 0
    assert alpha.zeros(2, requires_grad=True, engine=engine).requires_grad
    image = alpha.zeros(2, 4, 5, 3, engine=engine).contiguous((1, 2, 0, 3))
    like = alpha.ones_like(image, dtype=alpha.float64)
    assert like.dtype == alpha.float64 and like.memory_order() == (1, 2, 0, 3) and like.all().item()
    assert alpha.full_like(image, 3).max().item() == 3
    assert not alpha.zeros_like(image).any().item()
    with pytest.raises(ShapeError, match=r"\[zeros\] expected a shape of ints >= 0, got \(2, -1\)"):
        alpha.zeros(2, -1, engine=engine)
    with pytest.raises(DtypeError, match=r"\[ones\]"):
        alpha.ones(2, dtype="uint64", engine=engine)


def test_arange(engine: Engine) -> None:
    assert alpha.arange(4, engine=engine).tolist() == [0, 1, 2, 3]
    assert alpha.arange(4, engine=engine).dtype == alpha.int64
    assert alpha.arange(1, 8, 3, engine=engine).tolist() == [1, 4, 7]
    assert alpha.arange(3, 0, -1, engine=engine).tolist() == [3, 2, 1]
    assert alpha.arange(0, 1, 0.25, engine=engine).dtype == alpha.float32
    assert alpha.arange(3, dtype=alpha.float64, engine=engine).dtype == alpha.float64
    for wrong in ((0, 5, 0), (0, math.inf)):
        with pytest.raises(ArgumentError, match=r"\[arange\]"):
            alpha.arange(*wrong, engine=engine)


def test_random_numbers_follow_the_seed(engine: Engine) -> None:
    alpha.manual_seed(3)
    first = alpha.rand(1000, engine=engine), alpha.randn(1000, engine=engine)
    alpha.manual_seed(3)
    again = alpha.rand(1000, engine=engine), alpha.randn(1000, engine=engine)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    uniform, normal = first
    assert uniform.min().item() >= 0 and uniform.max().item() < 1
    # 1000 draws: means within 4 standard errors.
    assert abs(uniform.mean().item() - 0.5) < 4 * 0.29 / math.sqrt(1000)
    assert abs(normal.mean().item()) < 4 / math.sqrt(1000) and abs(normal.std().item() - 1) < 0.1
