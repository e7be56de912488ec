"""Attention against float64 NumPy and PyTorch: values, gradients, masks, dropout, memory, bits, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import random
from alpha.composed import attention as composed
from alpha.engine import AttentionSettings, AttentionState, Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from tests.engine.checks import gradcheck_on, sized
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]
Heads = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

SHAPES: list[tuple[Heads, dict[str, Any]]] = [
    (((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)), {}),
    (((1, 2, 70, 40), (1, 2, 200, 40), (1, 2, 200, 72)), {"is_causal": True}),
    (((2, 150, 16), (2, 35, 16), (2, 35, 17)), {"is_causal": True}),
    (((1, 35, 3), (1, 140, 3), (1, 140, 1)), {"scale": -1.3}),
    (((7, 0), (9, 0), (9, 2)), {}),
    (((3, 4), (2, 3, 5, 4), (2, 1, 5, 2)), {}),
    (((2, 1, 1, 4), (3, 5, 4), (5, 2)), {"is_causal": True}),
    (((2, 6, 9, 8), (2, 2, 33, 8), (2, 2, 33, 4)), {"enable_gqa": True}),
]
# float32: sums of up to 200 products of numbers up to 4, and a softmax of them.
LIMITS = {np.float32: {"rtol": 1e-4, "atol": 2e-5}, np.float64: {"rtol": 1e-11, "atol": 1e-12}}


def compare_with_pytorch(engine: Engine, arrays: list[Array], mask: Array | None, dtype: Any, **options: Any) -> None:
    """Result and gradients in a dtype against PyTorch's in float64; a float mask's gradient too."""
    import torch

    ours = [alpha.tensor(a.astype(dtype), engine=engine).requires_grad_() for a in arrays]
    theirs = [torch.tensor(a.astype(dtype).astype(np.float64), requires_grad=True) for a in arrays]
    masks: tuple[Any, Any] = (None, None)
    if mask is not None:
        masks = alpha.tensor(mask, engine=engine), torch.tensor(mask)
        if mask.dtype != bool:
            masks = masks[0].to(dtype).requires_grad_(), masks[1].requires_grad_()
            ours, theirs = [*ours, masks[0]], [*theirs, masks[1]]
    y = F.scaled_dot_product_attention(*ours[:3], attn_mask=masks[0], **options)
    expected = torch.nn.functional.scaled_dot_product_attention(*theirs[:3], attn_mask=masks[1], **options)
    dy = np.random.default_rng(9).normal(size=tuple(expected.shape)).astype(dtype)
    y.backward(alpha.tensor(dy, engine=engine))
    expected.backward(torch.tensor(dy.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(y.detach()), expected.detach().numpy(), **LIMITS[dtype])
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(np.asarray(mine.grad), other.grad.numpy(), **LIMITS[dtype])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shapes", "options"), SHAPES, ids=str)
def test_matches_pytorch(
    engine: Engine, rng: np.random.Generator, shapes: Heads, options: dict[str, Any], dtype: Any
) -> None:
    compare_with_pytorch(engine, [rng.normal(size=shape) for shape in shapes], None, dtype, **options)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(40, 150), (2, 1, 1, 150), (3, 40, 1), (2, 3, 40, 150), (1, 150)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_masks(engine: Engine, rng: np.random.Generator, shape: Any, kind: str, dtype: Any) -> None:
    """A query that sees no key has the result 0, as in PyTorch; a float mask has a gradient."""
    arrays = [rng.normal(size=size) for size in ((2, 3, 40, 8), (2, 3, 150, 8), (2, 3, 150, 4))]
    mask = rng.random(shape) < 0.5
    if shape == (40, 150):
        mask[3] = False
    if kind == "added":
        mask = np.where(mask, rng.normal(size=shape), -np.inf)
    compare_with_pytorch(engine, arrays, mask, dtype)


@pytest.mark.needs("torch")
def test_masks_of_shared_heads(engine: Engine, rng: np.random.Generator) -> None:
    arrays = [rng.normal(size=size) for size in ((2, 6, 4, 8), (2, 2, 5, 8), (2, 2, 5, 3))]
    for shape in ((6, 4, 5), (2, 1, 4, 5), (4, 5)):
        compare_with_pytorch(engine, arrays, rng.normal(size=shape), np.float64, enable_gqa=True)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(engine: Engine, rng: np.random.Generator, causal: bool) -> None:
    if engine.name.startswith("cu32"):
        pytest.skip("float64 gradients are the other engines'")
    q, k, v = (rng.normal(size=shape) for shape in ((2, 4, 3), (2, 5, 3), (2, 5, 2)))
    assert gradcheck_on(engine, lambda *a: F.scaled_dot_product_attention(*a, is_causal=causal), q, k, v)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_is_that_of_the_scores(engine: Engine, rng: np.random.Generator, dtype: Any) -> None:
    """Element i of the scores is kept by the uniform number at place i, in backward too."""
    q, k, v = (rng.normal(size=shape).astype(dtype) for shape in ((2, 3, 37, 4), (2, 3, 45, 4), (2, 3, 45, 6)))
    alpha.manual_seed(3)
    place = random.get_state()
    seed, offset = random.reserve(2 * 3 * 37 * 45)
    random.set_state(place)
    keep = random.uniforms(seed, offset, 2 * 3 * 37 * 45).reshape(2, 3, 37, 45) >= 0.3
    x = [alpha.tensor(a, engine=engine).requires_grad_() for a in (q, k, v)]
    y = F.scaled_dot_product_attention(*x, dropout_p=0.3)
    z = [alpha.tensor(a.astype(np.float64), engine=engine).requires_grad_() for a in (q, k, v)]
    p = F.softmax(z[0] @ z[1].transpose(-1, -2) / 2, -1) * alpha.tensor(keep / 0.7, engine=engine)
    expected = p @ z[2]
    dy = rng.normal(size=y.shape).astype(dtype)
    y.backward(alpha.tensor(dy, engine=engine))
    expected.backward(alpha.tensor(dy.astype(np.float64), engine=engine))
    np.testing.assert_allclose(np.asarray(y.detach()), np.asarray(expected.detach()), **LIMITS[dtype])
    for mine, other in zip(x, z, strict=True):
        np.testing.assert_allclose(np.asarray(mine.grad), np.asarray(other.grad), **LIMITS[dtype])
    assert not np.asarray(F.scaled_dot_product_attention(*(a.detach() for a in x), dropout_p=1.0)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("scores", [(2, 3, 5, 7), (3, 8, 4), (1, 9, 1), (2, 1, 2, 6, 33)], ids=str)
def test_parts_of_the_scores_are_dropped_as_the_whole(engine: Engine, scores: tuple[int, ...], dtype: str) -> None:
    """Any queries and first keys, in any memory order, by the words at their places in the whole."""
    rng = np.random.default_rng(5)
    settings = AttentionSettings(1.0, False, 0.4, 12345678901234, 2**64 - 3)
    whole = rng.normal(size=scores).astype(dtype)
    whole[..., 0, 0] = np.nan  # which is dropped too
    numbers = random.uniforms(settings.seed, settings.offset, whole.size).reshape(scores)
    wide = whole.astype(np.float32) if dtype == "float16" else whole  # halves are rounded once
    expected = np.where(numbers >= 0.4, wide * wide.dtype.type(1 / 0.6), 0).astype(dtype)
    queries, keys = scores[-2:]
    parts = {
        (0, queries, keys),
        (0, queries, max(1, keys - 1)),
        (queries // 2, queries, keys),
        (queries - 1, queries, 1),
    }
    for first, last, seen in sorted(parts):
        block = alpha.tensor(whole[..., first:last, :seen], engine=engine)
        turned = block.transpose(-1, -2).contiguous().transpose(-1, -2)
        roomy = alpha.tensor(np.repeat(whole[..., first:last, :seen], 3, -1), engine=engine)[..., 1::3]
        for is_again, x in enumerate((block, turned, roomy)):
            found = np.asarray(engine.dropped_scores(x, settings, scores, first, bool(is_again)))
            np.testing.assert_array_equal(found, expected[..., first:last, :seen])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}], ids=str)
@pytest.mark.parametrize("block", [1, 100, 260])
def test_blocks_change_no_bit_of_dropout(
    engine: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, block: int, options: dict[str, Any]
) -> None:
    """The scores of 2 x 9 queries and 13 keys at once, and by one to ten queries at a time."""
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((2, 9, 4), (2, 13, 4), (2, 13, 6), (9, 13))]
    found = []
    for size in (composed.BLOCK, block):
        monkeypatch.setattr(composed, "BLOCK", size)
        alpha.manual_seed(4)
        q, k, v, mask = (alpha.tensor(a, engine=engine).requires_grad_() for a in arrays)
        chosen = {**options, "attn_mask": mask} if "attn_mask" in options else options
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, **chosen).square().sum().backward()
        found.append([x.grad for x in (q, k, v, mask) if x.grad is not None])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), **LIMITS[np.float32])


@pytest.mark.slow
def test_strides_and_memory_order(engine: Engine, rng: np.random.Generator) -> None:
    """Heads cut from one product are read where they lie, and the result lies as the query does."""
    x = alpha.tensor(rng.normal(size=(2, 9, 3 * 12)), engine=engine)
    q, k, v = (part.reshape(2, 9, 3, 4).transpose(1, 2) for part in x.split(12, 2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = F.scaled_dot_product_attention(*(a.clone() for a in (q, k, v)), is_causal=True)
    np.testing.assert_allclose(np.asarray(y), np.asarray(expected), rtol=1e-12)
    assert y.transpose(1, 2).is_contiguous()
    turned = [alpha.tensor(np.asarray(a).swapaxes(-1, -2).copy(), engine=engine).transpose(-1, -2) for a in (q, k, v)]
    np.testing.assert_allclose(
        np.asarray(F.scaled_dot_product_attention(*turned, is_causal=True)), np.asarray(expected), rtol=1e-12
    )


@pytest.mark.slow
def test_large_scores_do_not_overflow(engine: Engine) -> None:
    q, k = (alpha.tensor(np.float32([[1e3, 0], [0, 1e3]]), engine=engine) for _ in range(2))
    v = alpha.tensor(np.float32([[1, 2], [3, 4]]), engine=engine)
    np.testing.assert_array_equal(np.asarray(F.scaled_dot_product_attention(q, k, v)), np.asarray(v))


def test_hidden_scores_do_not_count_whatever_they_are(engine: Engine) -> None:
    q, v = (alpha.tensor(np.ones((2, 2), np.float32), engine=engine) for _ in range(2))
    k = alpha.tensor(np.float32([[1, 1], [np.nan, np.inf]]), engine=engine)
    mask = alpha.tensor(np.array([[True, False], [True, False]]), engine=engine)
    np.testing.assert_array_equal(np.asarray(F.scaled_dot_product_attention(q, k, v, mask)), 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_array_equal(np.asarray(y), [[1, 1], [np.nan, np.nan]])


def test_empty(engine: Engine) -> None:
    def f(*shape: int) -> alpha.Tensor:
        return alpha.zeros(shape, engine=engine).requires_grad_()

    for shapes in (
        ((2, 0, 4), (2, 3, 4), (2, 3, 5)),
        ((2, 3, 4), (2, 0, 4), (2, 0, 5)),
        ((2, 3, 4), (2, 3, 4), (2, 3, 0)),
        ((0, 3, 4), (0, 3, 4), (0, 3, 2)),
    ):
        given = [f(*shape) for shape in shapes]
        y = F.scaled_dot_product_attention(*given)
        assert y.shape == (*shapes[0][:-1], shapes[2][-1])
        assert not np.asarray(y.detach()).any()
        y.sum().backward()
        assert all(x.grad is not None and not np.asarray(x.grad).any() for x in given)


@pytest.mark.slow
def test_bits_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    results = []
    for threads in (1, 2, 3):
        engine = alpha.engine("cpu", threads=threads)
        given = np.random.default_rng(1)
        q, k, v = (
            alpha.tensor(given.normal(size=(1, 2, 1100, 8)).astype(np.float32), engine=engine).requires_grad_()
            for _ in range(3)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y.square().sum().backward()
        results.append([np.asarray(t).tobytes() for t in (y.detach(), q.grad, k.grad, v.grad)])
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
def test_8192_tokens_fit_into_1_gb() -> None:
    """8 heads of 64 numbers: the scores alone would take 2 GB."""
    code_engine = alpha.engine("cpu")
    before = code_engine.memory.cap
    alpha.engine("cpu", memory="1GB")
    try:
        q, k, v = (alpha.randn((1, 8, 8192, 64), engine=code_engine).requires_grad_() for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        for x in (q, k, v):
            assert x.grad is not None
            assert np.isfinite(np.asarray(x.grad)).all()
    finally:
        alpha.engine("cpu", memory=before)


@pytest.mark.slow
def test_blocks_of_the_default(engine: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default for any engine goes by blocks of queries, and gives the same."""
    from alpha.composed import attention

    length = sized(engine, 40, 10)
    q, k, v = (engine.from_numpy(rng.normal(size=(2, length, 4)).astype(np.float32)) for _ in range(3))
    settings = AttentionSettings(0.5, True, 0.2, 7, 9)
    monkeypatch.setattr(attention, "BLOCK", 6 * 2 * length)
    for results in (engine.attention(q, k, v, None, settings), attention.attention(engine, q, k, v, None, settings)):
        state = AttentionState(q, k, v, None, *results)
        grads = attention.attention_grad(engine, q, state, settings, (True, True, True, False))
        expected = engine.attention_grad(q, state, settings, (True, True, True, False))
        for mine, other in zip(grads[:3], expected[:3], strict=True):
            assert mine is not None
            assert other is not None
            np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-4, atol=1e-5)


def test_errors(engine: Engine) -> None:
    def f(*shape: int, dtype: str = "float32") -> alpha.Tensor:
        return alpha.zeros(shape, dtype=dtype, engine=engine)

    attend = F.scaled_dot_product_attention
    q, k, v = f(2, 3, 4), f(2, 5, 4), f(2, 5, 6)
    with pytest.raises(ShapeError, match=r"query \(\.\.\., L, E\)"):
        attend(q, f(2, 5, 3), v)
    with pytest.raises(ShapeError, match="two axes or more"):
        attend(f(4), k, v)
    with pytest.raises(ShapeError, match="broadcast"):
        attend(q, f(3, 5, 4), f(3, 5, 6))
    with pytest.raises(ShapeError, match="attn_mask"):
        attend(q, k, v, f(3, 4))
    with pytest.raises(ShapeError, match="attn_mask"):
        attend(q, k, v, f(7, 1, 3, 5))
    with pytest.raises(DtypeError, match="attn_mask of bool or float32"):
        attend(q, k, v, f(3, 5, dtype="int64"))
    with pytest.raises(DtypeError, match="one dtype"):
        attend(q, k, f(2, 5, 6, dtype="float64"))
    with pytest.raises(ArgumentError, match="got both"):
        attend(q, k, v, f(3, 5), is_causal=True)
    with pytest.raises(ArgumentError, match="dropout_p"):
        attend(q, k, v, dropout_p=1.5)
    with pytest.raises(ArgumentError, match="scale"):
        attend(q, k, v, scale="1")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="divide"):
        attend(f(5, 3, 4), k, v, enable_gqa=True)
