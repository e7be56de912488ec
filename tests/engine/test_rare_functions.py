"""Functions of nn.functional that few call, beside PyTorch's: attention of given weights, conv_tbc, maxima's places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.testing import gradgradcheck

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
SIZE, HEADS, BATCH, LENGTH, KEYS = 6, 2, 3, 4, 5

ATTENTION: dict[str, dict[str, Any]] = {
    "self": {"self": True},
    "self, one sequence": {"self": True, "single": True},
    "others": {},
    "no biases": {"bias": False},
    "no weights": {"need_weights": False},
    "weights of each head": {"average_attn_weights": False},
    "separate": {"separate": True},
    "added keys": {"bias_kv": True, "add_zero_attn": True},
    "zeros": {"add_zero_attn": True, "need_weights": False},
    "static": {"static": True},
    "static and zeros": {"static": True, "add_zero_attn": True},
    "padding": {"padding": True},
    "padding and mask": {"padding": True, "mask": "bool", "bias_kv": True},
    "float mask of heads": {"mask": "float"},
    "causal": {"self": True, "mask": "causal", "is_causal": True, "need_weights": False},
    "causal, weights": {"self": True, "mask": "causal", "is_causal": True},
}


def attention_arguments(rng: np.random.Generator, case: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The function's arguments as arrays and plain values."""
    batch = () if case.get("single") else (BATCH,)
    x = rng.normal(size=(LENGTH, *batch, SIZE))
    k_size, v_size = (3, 2) if case.get("separate") else (SIZE, SIZE)
    k = x if case.get("self") else rng.normal(size=(KEYS, *batch, k_size))
    v = x if case.get("self") else rng.normal(size=(KEYS, *batch, v_size))
    keys, has_bias = k.shape[0], case.get("bias", True)
    separate, bias_kv = case.get("separate", False), case.get("bias_kv", False)
    given: list[Any] = [x, k, v, SIZE, HEADS]
    given += [None if separate else rng.normal(size=(3 * SIZE, SIZE))]
    given += [rng.normal(size=3 * SIZE) if has_bias else None]
    given += [rng.normal(size=(1, 1, SIZE)) if bias_kv else None for _ in range(2)]
    given += [case.get("add_zero_attn", False), 0.0]
    given += [rng.normal(size=(SIZE, SIZE)), rng.normal(size=SIZE) if has_bias else None]
    named = {name: case[name] for name in ("need_weights", "average_attn_weights", "is_causal") if name in case}
    if separate:
        shapes = {"q": SIZE, "k": k_size, "v": v_size}
        named |= {f"{name}_proj_weight": rng.normal(size=(SIZE, size)) for name, size in shapes.items()}
        named["use_separate_proj_weight"] = True
    if case.get("static"):
        named |= {f"static_{name}": rng.normal(size=(BATCH * HEADS, keys, SIZE // HEADS)) for name in "kv"}
    if case.get("padding"):
        named["key_padding_mask"] = np.arange(keys) >= np.array([[keys], [keys - 1], [keys - 2]])
    kind = case.get("mask")
    if kind == "bool":
        named["attn_mask"] = np.eye(LENGTH, keys) > 0
    elif kind == "float":
        named["attn_mask"] = rng.normal(size=(BATCH * HEADS, LENGTH, keys))
    elif kind == "causal":
        named["attn_mask"] = np.triu(np.ones((LENGTH, LENGTH)), 1) > 0
    return given, named


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_given_weights_matches_pytorch(engine: Engine, rng: np.random.Generator, name: str) -> None:
    import torch
    from torch.nn import functional as theirs

    given, named = attention_arguments(rng, ATTENTION[name])
    leaves: dict[int, tuple[Any, Any]] = {}

    def both(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, np.ndarray):
            return value, value
        if id(value) not in leaves:
            is_float = value.dtype == np.float64
            ours = alpha.tensor(value, engine=engine, requires_grad=is_float)
            leaves[id(value)] = ours, torch.tensor(value, requires_grad=is_float)
        return leaves[id(value)]

    pairs, options = [both(value) for value in given], {key: both(value) for key, value in named.items()}
    y, weights = F.multi_head_attention_forward(*[a for a, _ in pairs], **{key: a for key, (a, _) in options.items()})
    z, expected = theirs.multi_head_attention_forward(
        *[b for _, b in pairs], **{key: b for key, (_, b) in options.items()}
    )
    np.testing.assert_allclose(np.asarray(y.detach()), z.detach().numpy(), **TOLERANCE)
    assert (weights is None) == (expected is None)
    if weights is not None:
        np.testing.assert_allclose(np.asarray(weights.detach()), expected.detach().numpy(), **TOLERANCE)
    (y**2).sum().backward()
    (z**2).sum().backward()
    for a, b in leaves.values():
        if b.requires_grad:
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), **TOLERANCE)


def test_attention_has_second_gradients(rng: np.random.Generator) -> None:
    given, named = attention_arguments(rng, {"self": True, "bias_kv": True})
    x, others = given[0][:2, :1], [alpha.tensor(one) if isinstance(one, np.ndarray) else one for one in given[3:]]
    assert gradgradcheck(lambda x: F.multi_head_attention_forward(x, x, x, *others, **named)[0], x)


def test_dropout_is_in_training_alone(rng: np.random.Generator) -> None:
    given, _ = attention_arguments(rng, {"self": True})
    tensors = [alpha.tensor(one) if isinstance(one, np.ndarray) else one for one in given]
    tensors[10] = 0.5
    first, second = [F.multi_head_attention_forward(*tensors, training=False)[0] for _ in range(2)]
    assert (first == second).all()
    first, second = [F.multi_head_attention_forward(*tensors)[0] for _ in range(2)]
    assert not (first == second).all()


def test_attention_refuses_what_does_not_fit(rng: np.random.Generator) -> None:
    given, _ = attention_arguments(rng, {"self": True})
    tensors = [alpha.tensor(one) if isinstance(one, np.ndarray) else one for one in given]

    def called(place: int, value: Any, **named: Any) -> None:
        F.multi_head_attention_forward(*tensors[:place], value, *tensors[place + 1 :], **named)

    with pytest.raises(ShapeError, match="query, key and value"):
        called(0, alpha.randn(LENGTH, BATCH, SIZE + 1))
    with pytest.raises(ArgumentError, match="num_heads"):
        called(4, 4)
    with pytest.raises(ShapeError, match="in_proj_weight"):
        called(5, alpha.randn(SIZE, SIZE))
    with pytest.raises(ArgumentError, match="bias_k and bias_v"):
        called(7, alpha.randn(1, 1, SIZE))
    with pytest.raises(ShapeError, match="static_k"):
        called(3, SIZE, static_k=alpha.randn(2, 2, 2).double())
    with pytest.raises(ArgumentError, match="attn_mask"):
        called(3, SIZE, is_causal=True)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("pad", [0, 1, 3])
def test_convolution_with_time_first(engine: Engine, rng: np.random.Generator, pad: int) -> None:
    import torch

    arrays = rng.normal(size=(5, 2, 3)), rng.normal(size=(3, 3, 4)), rng.normal(size=4)
    ours = [alpha.tensor(one, engine=engine, requires_grad=True) for one in arrays]
    theirs = [torch.tensor(one, requires_grad=True) for one in arrays]
    with alpha.set_image_layout("NCHW"):  # which says nothing of it
        y = F.conv_tbc(*ours, pad)
    z = torch.conv_tbc(*theirs, pad)
    np.testing.assert_allclose(np.asarray(y.detach()), z.detach().numpy(), **TOLERANCE)
    (y**2).sum().backward()
    (z**2).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a.grad), b.grad.numpy(), **TOLERANCE)


def test_convolution_with_time_first_refuses_what_does_not_fit() -> None:
    x, w, b = alpha.randn(5, 2, 3), alpha.randn(3, 3, 4), alpha.randn(4)
    with pytest.raises(ShapeError, match="conv_tbc"):
        F.conv_tbc(x, w, alpha.randn(3))
    with pytest.raises(ShapeError, match="conv_tbc"):
        F.conv_tbc(x[0], w, b)
    with pytest.raises(ArgumentError, match="pad"):
        F.conv_tbc(x, w, b, -1)


POOLS = [("max_pool1d", (2, 3, 6), (2,)), ("max_pool2d", (2, 3, 6, 5), (2, 1)), ("max_pool3d", (1, 2, 4, 4, 3), (2,))]
POOLS += [("adaptive_max_pool1d", (2, 3, 7), (3,)), ("adaptive_max_pool2d", (2, 3, 7, 5), ((3, 2),))]
POOLS += [("adaptive_max_pool3d", (1, 2, 4, 5, 3), (2,))]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "shape", "args"), POOLS)
def test_pooling_with_places(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], args: tuple[Any, ...]
) -> None:
    import torch
    from torch.nn import functional as theirs

    x = rng.normal(size=shape)
    with alpha.set_image_layout("NCHW"):
        found = getattr(F, f"{name}_with_indices")(alpha.tensor(x), *args, return_indices=False)
    expected = getattr(theirs, f"{name}_with_indices")(torch.tensor(x), *args)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b.numpy())


def test_fractional_pooling_with_places(rng: np.random.Generator) -> None:
    samples = alpha.tensor(rng.uniform(size=(2, 3, 2)))
    x = alpha.tensor(rng.normal(size=(2, 6, 7, 3)))
    found = F.fractional_max_pool2d_with_indices(x, 2, output_size=(3, 4), _random_samples=samples)
    expected = F.fractional_max_pool2d(x, 2, output_size=(3, 4), return_indices=True, _random_samples=samples)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    values, places = F.fractional_max_pool3d_with_indices(alpha.randn(1, 4, 4, 4, 2), 2, output_ratio=0.5)
    assert values.shape == places.shape == (1, 2, 2, 2, 2)
    assert F.max_pool2d_with_indices.__name__ == "max_pool2d_with_indices"


def test_channels_are_shuffled_alike() -> None:
    x = alpha.randn(2, 3, 3, 6)
    assert (F.native_channel_shuffle(x, 3) == F.channel_shuffle(x, 3)).all()
