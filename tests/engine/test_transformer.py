"""MultiheadAttention and the Transformer's layers beside PyTorch's, from equal weights, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from tests.engine.test_recurrent import TOLERANCE, Pair

Array = np.ndarray[Any, Any]
SIZE, HEADS, BATCH, LENGTH, KEYS = 6, 2, 3, 4, 5


def masks(kind: str, rng: np.random.Generator, square: bool = False) -> tuple[Array | None, Array | None]:
    """The attention's mask and the padding's, such that each query sees a key."""
    keys = LENGTH if square else KEYS
    hidden = rng.random((LENGTH, keys)) < 0.4
    hidden[:, 0] = False
    padding = np.zeros((BATCH, keys), bool)
    padding[0, -2:] = True
    scores = rng.normal(size=(BATCH * HEADS, LENGTH, keys))
    causal = np.triu(np.ones((LENGTH, keys), bool), 1)
    found: dict[str, tuple[Array | None, Array | None]] = {
        "none": (None, None),
        "bools": (hidden, padding),
        "padding": (None, padding),
        "floats": (scores, np.where(padding, -np.inf, 0.0)),
        "causal": (causal, None),
    }
    return found[kind]


def both(pair: Pair, *arrays: Array | None) -> tuple[list[Any], list[Any]]:
    """Constants for both sides."""
    ours = [None if a is None else alpha.tensor(a, engine=pair.engine) for a in arrays]
    return ours, [None if a is None else pair.torch.tensor(a) for a in arrays]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("weights", ["none", "mean", "each"])
@pytest.mark.parametrize(
    ("options", "kind", "same"),
    [
        ({}, "none", True),
        ({"batch_first": True}, "bools", False),
        ({"bias": False}, "floats", False),
        ({"kdim": 3, "vdim": 7}, "padding", False),
        ({"add_bias_kv": True, "add_zero_attn": True}, "bools", False),
        ({"add_zero_attn": True, "batch_first": True}, "floats", False),
        ({"batch_first": True}, "causal", True),
    ],
)
def test_attention_matches_pytorch(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], kind: str, same: bool, weights: str
) -> None:
    pair = Pair(engine, "MultiheadAttention", (SIZE, HEADS), options)
    assert list(pair.ours.state_dict()) == list(pair.theirs.state_dict())
    sizes = [(LENGTH, SIZE)] if same else [(LENGTH, SIZE), (KEYS, options.get("kdim", SIZE))]
    if "vdim" in options:
        sizes.append((KEYS, options["vdim"]))
    shapes = [(BATCH, n, m) if options.get("batch_first") else (n, BATCH, m) for n, m in sizes]
    given = [pair.tensors(rng.normal(size=shape)) for shape in shapes]
    given += [given[-1]] * (3 - len(given))
    ours, theirs = both(pair, *masks(kind, rng, same))
    named = {"need_weights": weights != "none", "average_attn_weights": weights == "mean"}
    if kind == "causal":
        named["is_causal"] = True
    y, w = pair.ours(*[a for a, _ in given], attn_mask=ours[0], key_padding_mask=ours[1], **named)
    ty, tw = pair.theirs(*[b for _, b in given], attn_mask=theirs[0], key_padding_mask=theirs[1], **named)
    assert (w is None) == (tw is None)
    pair.compare([y] if w is None else [y, w], [ty] if tw is None else [ty, tw], rng)


@pytest.mark.needs("torch")
def test_attention_without_a_batch(engine: Engine, rng: np.random.Generator) -> None:
    pair = Pair(engine, "MultiheadAttention", (SIZE, HEADS), {})
    x, tx = pair.tensors(rng.normal(size=(LENGTH, SIZE)))
    padding = np.array([False, False, True, False])
    (ours,), (theirs,) = both(pair, padding)
    pair.compare(list(pair.ours(x, x, x, ours)), list(pair.theirs(tx, tx, tx, theirs)), rng)


LAYER_OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm_first": True, "activation": "gelu", "batch_first": True},
    {"bias": False, "layer_norm_eps": 1e-3},
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["none", "bools", "causal"])
@pytest.mark.parametrize("options", LAYER_OPTIONS)
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_layers_match_pytorch(
    engine: Engine, rng: np.random.Generator, name: str, options: dict[str, Any], kind: str
) -> None:
    pair = Pair(engine, name, (SIZE, HEADS, 7), {"dropout": 0.0, **options})
    assert list(pair.ours.state_dict()) == list(pair.theirs.state_dict())
    first = options.get("batch_first")
    x, tx = pair.tensors(rng.normal(size=(BATCH, LENGTH, SIZE) if first else (LENGTH, BATCH, SIZE)))
    ours, theirs = both(pair, *masks(kind, rng, True))
    if name == "TransformerEncoderLayer":
        pair.compare([pair.ours(x, *ours)], [pair.theirs(tx, *theirs)], rng)
        return
    memory, t_memory = pair.tensors(rng.normal(size=(BATCH, KEYS, SIZE) if first else (KEYS, BATCH, SIZE)))
    more, t_more = both(pair, *masks("none" if kind == "causal" else kind, rng))
    args = [pair.ours(x, memory, ours[0], more[0], ours[1], more[1], kind == "causal")]
    pair.compare(args, [pair.theirs(tx, t_memory, theirs[0], t_more[0], theirs[1], t_more[1], kind == "causal")], rng)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("single", [False, True])
def test_the_whole_matches_pytorch(engine: Engine, rng: np.random.Generator, single: bool) -> None:
    pair = Pair(engine, "Transformer", (SIZE, HEADS, 2, 2, 8, 0.0), {"batch_first": True})
    shown = repr(pair.theirs).replace("NonDynamicallyQuantizableLinear", "Linear")
    assert repr(pair.ours) == shown
    assert list(pair.ours.state_dict()) == list(pair.theirs.state_dict())
    batch = () if single else (BATCH,)
    src, t_src = pair.tensors(rng.normal(size=(*batch, KEYS, SIZE)))
    tgt, t_tgt = pair.tensors(rng.normal(size=(*batch, LENGTH, SIZE)))
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=alpha.float64).to(engine)
    t_mask = pair.torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=pair.torch.float64)
    np.testing.assert_array_equal(mask, t_mask)
    pair.compare([pair.ours(src, tgt, tgt_mask=mask)], [pair.theirs(t_src, t_tgt, tgt_mask=t_mask)], rng)


def test_weights_begin_as_pytorchs() -> None:
    layer = nn.MultiheadAttention(64, 4, add_bias_kv=True)
    assert layer.in_proj_weight is not None and layer.bias_k is not None and layer.in_proj_bias is not None
    bound = (6 / (64 * 4)) ** 0.5
    assert 0.98 * bound < float(abs(layer.in_proj_weight.detach()).max()) <= bound
    assert not layer.in_proj_bias.detach().any()
    assert layer.bias_k.detach().std() > 0
    weights = [p for p in nn.Transformer(16, 2, 1, 1, 32).parameters() if p.ndim > 1]
    for weight in weights:
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.9 * bound < float(abs(weight.detach()).max()) <= bound


def test_dropout_drops_in_training_alone() -> None:
    layer = nn.MultiheadAttention(SIZE, HEADS, dropout=1.0, bias=False)
    x = alpha.randn(LENGTH, BATCH, SIZE)
    for need in (True, False):
        assert not layer(x, x, x, need_weights=need)[0].any()
    assert layer.eval()(x, x, x)[0].any()
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(SIZE, HEADS, 8, dropout=0.5), 2)
    assert (stack(x) != stack(x)).any()
    assert (stack.eval()(x) == stack(x)).all()


def test_a_function_may_be_the_activation_and_hooks_are_called() -> None:
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 8, dropout=0.0)
    x, calls = alpha.randn(LENGTH, BATCH, SIZE), []
    expected = layer(x).detach()
    layer.linear1.register_forward_hook(lambda module, args, result: calls.append(result))
    np.testing.assert_allclose(layer(x).detach(), expected, rtol=1e-6, atol=1e-6)
    assert len(calls) == 1
    ours = nn.TransformerEncoderLayer(SIZE, HEADS, 8, 0.0, lambda x: x.relu())
    ours.load_state_dict(layer.state_dict())
    np.testing.assert_allclose(ours(x).detach(), expected, **{**TOLERANCE, "atol": 1e-6})


def test_bad_arguments_are_refused() -> None:
    layer, x = nn.MultiheadAttention(SIZE, HEADS), alpha.zeros(LENGTH, BATCH, SIZE)
    with pytest.raises(ArgumentError, match="num_heads that divides"):
        nn.MultiheadAttention(6, 4)
    with pytest.raises(ShapeError, match="query, key and value"):
        layer(x, x, alpha.zeros(LENGTH, BATCH, 5))
    with pytest.raises(ShapeError, match="attn_mask"):
        layer(x, x, x, attn_mask=alpha.zeros(2, 2))
    with pytest.raises(ShapeError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=alpha.zeros(2, 2))
    with pytest.raises(DtypeError, match="bool or floats"):
        layer(x, x, x, attn_mask=alpha.zeros(LENGTH, LENGTH, dtype=alpha.int64))
    with pytest.raises(ArgumentError, match="attn_mask beside is_causal"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(ArgumentError, match="activation"):
        nn.TransformerEncoderLayer(SIZE, HEADS, activation="selu")
    with pytest.raises(ShapeError, match="one batch"):
        nn.Transformer(SIZE, HEADS, 1, 1, 8)(x, alpha.zeros(LENGTH, BATCH + 1, SIZE))
