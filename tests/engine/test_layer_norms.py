"""Layer, group and instance norm against float64 NumPy and PyTorch: values, gradients, running statistics, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha import nn
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, EngineError, ShapeError
from tests.engine.checks import gradcheck_on
from tests.engine.test_nn_layers import compare, randomise
from tests.tiers import FLOAT_NAMES, FLOATS

Array = np.ndarray[Any, Any]
EPS = 1e-5
# float64: sums of at most a few hundred numbers of size 10, divided by deviations near 1.
EXACT = {"rtol": 1e-11, "atol": 1e-11}


def reference(x: Array, axes: tuple[int, ...]) -> Array:
    """(x - mean) / sqrt(var + eps) over some axes."""
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPS)


def grouped(x: Array, groups: int) -> Array:
    """Each sample's groups of neighbouring channels, one by one."""
    size = x.shape[-1] // groups
    parts = [x[..., g * size : (g + 1) * size] for g in range(groups)]
    return np.concatenate([reference(part, tuple(range(1, x.ndim))) for part in parts], -1)


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Away from zero mean, so that cancellation would show."""
    return rng.normal(3, 2, shape)


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "normalized"),
    [((3, 5), (5,)), ((5,), (5,)), ((2, 3, 4), (3, 4)), ((1, 1, 7), (7,)), ((2, 3, 5, 4), (3, 5, 4)), ((4, 1), (1,))],
    ids=str,
)
def test_layer_norm(engine: Engine, rng: np.random.Generator, shape: Any, normalized: Any, dtype: Any) -> None:
    x, weight, bias = draw(rng, shape).astype(dtype), *(rng.normal(size=normalized).astype(dtype) for _ in range(2))
    t = [alpha.tensor(a, engine=engine) for a in (x, weight, bias)]
    expected = reference(x, tuple(range(len(shape) - len(normalized), len(shape))))
    # float32: a dozen roundings of values of size 10, on results of size 1.
    limits = EXACT if dtype == np.float64 else {"rtol": 1e-5, "atol": 5e-6}
    np.testing.assert_allclose(
        np.asarray(F.layer_norm(t[0], normalized, t[1], t[2])), expected * weight + bias, **limits
    )
    np.testing.assert_allclose(np.asarray(F.layer_norm(t[0], normalized, t[1])), expected * weight, **limits)
    np.testing.assert_allclose(np.asarray(F.layer_norm(t[0], normalized, None, t[2])), expected + bias, **limits)
    np.testing.assert_allclose(np.asarray(F.layer_norm(t[0], normalized)), expected, **limits)
    axes = tuple(range(len(shape) - len(normalized), len(shape)))
    for eps in (None, 1e-3):
        added = np.finfo(dtype).eps if eps is None else eps
        expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(axes, keepdims=True) + added)
        got = [F.rms_norm(t[0], normalized, part, eps) for part in (None, t[1])]
        np.testing.assert_allclose(np.asarray(got[0]), expected, **limits)
        np.testing.assert_allclose(np.asarray(got[1]), expected * weight, **limits)


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 3, 5, 6), 3), ((1, 1, 1, 6), 2), ((3, 4, 1, 5), 5), ((2, 2, 3, 7), 1)], ids=str
)
def test_group_and_instance_norm(
    engine: Engine, rng: np.random.Generator, shape: Any, groups: int, dtype: Any, image_order: bool
) -> None:
    x, weight, bias = draw(rng, shape).astype(dtype), *(rng.normal(size=shape[-1]).astype(dtype) for _ in range(2))
    t = [alpha.tensor(a, engine=engine) for a in (x, weight, bias)]
    t[0] = t[0].contiguous(IMAGE_ORDER if image_order else None)
    limits = EXACT if dtype == np.float64 else {"rtol": 1e-5, "atol": 5e-6}
    y = F.group_norm(t[0], groups, t[1], t[2])
    np.testing.assert_allclose(np.asarray(y), grouped(x, groups) * weight + bias, **limits)
    if shape[1:3] != (1, 1):
        expected = reference(x, (1, 2)) * weight + bias
        np.testing.assert_allclose(np.asarray(F.instance_norm(t[0], None, None, t[1], t[2])), expected, **limits)


def test_large_mean_does_not_cancel(engine: Engine, rng: np.random.Generator) -> None:
    """Mean 1000, deviation 1: a variance from plain sums of squares would lose every digit in float32."""
    x = (rng.standard_normal((2, 6, 5, 8)) + 1000).astype(np.float32)
    t = alpha.tensor(x, engine=engine)
    # The sum and the mean are rounded by half a step of float32 each, 2 ** -15 at 1000; the deviation of 8 values
    # is 1/3 at least.
    limits = {"rtol": 1e-5, "atol": 6 * 2**-15}
    np.testing.assert_allclose(np.asarray(F.layer_norm(t, (8,))), reference(x, (3,)), **limits)
    np.testing.assert_allclose(np.asarray(F.group_norm(t, 2)), grouped(x, 2), **limits)
    np.testing.assert_allclose(np.asarray(F.instance_norm(t)), reference(x, (1, 2)), **limits)


def test_a_batch_without_samples_stays_empty(engine: Engine) -> None:
    x = alpha.zeros((0, 2, 3, 4), engine=engine)
    layer = nn.InstanceNorm2d(4, track_running_stats=True).to(engine)
    assert layer(x).shape == F.group_norm(x, 2).shape == F.layer_norm(x, 4).shape == x.shape
    assert np.asarray(layer.running_mean).tolist() == [0] * 4


# -- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients(engine: Engine, rng: np.random.Generator, affine: tuple[bool, bool]) -> None:
    x, parts = draw(rng, (2, 3, 2, 4)), rng.normal(size=(2, 4))

    def with_parts(norm: Any, *given: Any) -> Any:
        """The arguments weight and bias, where they are wanted."""
        rest = list(given)
        return norm(*(rest.pop(0) if wanted else None for wanted in affine))

    given = [part for part, wanted in zip(parts, affine, strict=True) if wanted]
    assert gradcheck_on(engine, lambda t, *g: with_parts(lambda w, b: F.layer_norm(t, 4, w, b), *g), x, *given)
    assert gradcheck_on(engine, lambda t, *g: with_parts(lambda w, b: F.group_norm(t, 2, w, b), *g), x, *given)
    assert gradcheck_on(
        engine, lambda t, *g: with_parts(lambda w, b: F.instance_norm(t, None, None, w, b), *g), x, *given
    )


def test_gradients_of_parts_shaped_as_x(engine: Engine, rng: np.random.Generator) -> None:
    """Then no axis is summed over: weight and bias have x's own gradients' shape, and memory of their own."""
    x, weight, bias = draw(rng, (3, 4)), *rng.normal(size=(2, 3, 4))
    assert gradcheck_on(engine, lambda t, w, b: F.layer_norm(t, (3, 4), w, b), x, weight, bias)
    assert gradcheck_on(engine, lambda w, b: F.layer_norm(alpha.tensor(x, engine=engine), (3, 4), w, b), weight, bias)
    assert gradcheck_on(engine, lambda t, w: F.rms_norm(t, (3, 4), w, 1e-3), x, weight)
    assert gradcheck_on(engine, lambda t: F.rms_norm(t.permute(1, 0), 3), x)


def test_gradients_in_evaluation(engine: Engine, rng: np.random.Generator) -> None:
    mean, var = rng.normal(size=4), rng.uniform(0.5, 2, 4)

    def norm(x: alpha.Tensor, weight: alpha.Tensor, bias: alpha.Tensor) -> alpha.Tensor:
        running = (alpha.tensor(mean, engine=engine), alpha.tensor(var, engine=engine))
        return F.instance_norm(x, *running, weight, bias, use_input_stats=False)

    assert gradcheck_on(engine, norm, draw(rng, (2, 3, 2, 4)), *rng.normal(size=(2, 4)))


# -- against PyTorch ---------------------------------------------------------------------------------------------

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("GroupNorm", (3, 6), {}, (2, 5, 3, 6)),
    ("GroupNorm", (1, 5, 1e-3), {"affine": False}, (3, 1, 1, 5)),
    ("GroupNorm", (7, 7), {}, (1, 4, 3, 7)),
    ("InstanceNorm2d", (5,), {}, (3, 4, 3, 5)),
    ("InstanceNorm2d", (5, 1e-3, 0.3, True), {}, (1, 1, 7, 5)),
    ("InstanceNorm2d", (5,), {"affine": True, "track_running_stats": True}, (3, 4, 3, 5)),
    ("InstanceNorm2d", (1,), {"momentum": 1.0, "track_running_stats": True}, (2, 2, 1, 1)),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_image_layers_match_pytorch(
    engine: Engine, rng: np.random.Generator, name: str, args: Any, options: Any, shape: Any, training: bool
) -> None:
    import torch

    theirs = getattr(torch.nn, name)(*args, **options).double().train(training)
    ours = getattr(nn, name)(*args, **options).to(engine).to(alpha.float64).train(training)
    randomise(theirs, rng, torch)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    for _ in range(2):  # running statistics accumulate
        compare(engine, torch, rng, ours, theirs, draw(rng, shape))


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("args", "options", "shape"),
    [
        ((5,), {}, (4, 3, 5)),
        (([3, 5], 1e-3), {}, (2, 3, 5)),
        ((5,), {"bias": False}, (5,)),
        ((5,), {"elementwise_affine": False}, (2, 5)),
        (((1, 1, 3),), {}, (2, 1, 1, 3)),
    ],
)
def test_layer_norm_matches_pytorch(
    engine: Engine, rng: np.random.Generator, args: Any, options: Any, shape: Any
) -> None:
    import torch

    theirs = torch.nn.LayerNorm(*args, **options).double()
    ours = nn.LayerNorm(*args, **options).to(engine).to(alpha.float64)
    randomise(theirs, rng, torch)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    compare(engine, torch, rng, ours, theirs, draw(rng, shape), images=False)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("args", [(5,), ((3, 5),), (5, 1e-3), (5, None, False)])
def test_rms_norm_matches_pytorch(engine: Engine, rng: np.random.Generator, args: Any) -> None:
    import torch

    theirs, ours = torch.nn.RMSNorm(*args).double(), nn.RMSNorm(*args).to(engine).to(alpha.float64)
    randomise(theirs, rng, torch)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    compare(engine, torch, rng, ours, theirs, draw(rng, (2, 3, 5)), images=False)


@pytest.mark.needs("torch")
def test_layers_begin_as_pytorchs() -> None:
    import torch

    for name, args in (
        ("LayerNorm", (5,)),
        ("RMSNorm", (5,)),
        ("GroupNorm", (2, 4)),
        ("InstanceNorm2d", (3, 1e-5, 0.1, True, True)),
    ):
        ours, theirs = getattr(nn, name)(*args).state_dict(), getattr(torch.nn, name)(*args).state_dict()
        assert list(ours) == list(theirs)
        for key, value in ours.items():
            np.testing.assert_array_equal(value.numpy(), theirs[key].numpy())
    assert repr(nn.LayerNorm((2, 3))) == "LayerNorm((2, 3), eps=1e-05, elementwise_affine=True, bias=True)"
    assert repr(nn.RMSNorm(3)) == "RMSNorm((3,), eps=None, elementwise_affine=True)"
    assert repr(nn.GroupNorm(2, 4)) == "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)"


def test_reset_running_stats(engine: Engine, rng: np.random.Generator) -> None:
    layer = nn.InstanceNorm2d(3, track_running_stats=True).to(engine)
    layer(alpha.tensor(rng.normal(size=(2, 3, 3, 3)).astype(np.float32), engine=engine))
    assert np.asarray(layer.running_var).tolist() != [1] * 3
    layer.reset_running_stats()
    assert np.asarray(layer.running_mean).tolist() == [0] * 3
    assert np.asarray(layer.running_var).tolist() == [1] * 3


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.LayerNorm(0), "[LayerNorm] expected normalized_shape as an integer >= 1, got 0"),
        (lambda: nn.LayerNorm(()), "[LayerNorm] expected normalized_shape with at least one length, got none"),
        (lambda: nn.LayerNorm(3, eps=-1.0), "[LayerNorm] expected eps >= 0, got -1.0"),
        (lambda: nn.RMSNorm(()), "[RMSNorm] expected normalized_shape with at least one length, got none"),
        (lambda: nn.RMSNorm(3, eps=-1.0), "[RMSNorm] expected eps >= 0, got -1.0"),
        (lambda: nn.GroupNorm(3, 4), "[GroupNorm] expected num_groups that divide num_channels, got num_groups=3"),
        (lambda: nn.GroupNorm(0, 4), "[GroupNorm] expected num_groups as an integer >= 1, got 0"),
        (lambda: nn.InstanceNorm2d(3, momentum=2), "[InstanceNorm2d] expected momentum from 0 to 1, got 2"),
    ],
)
def test_constructors_check_their_arguments(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (lambda x: F.layer_norm(x, 5), "[layer_norm] expected x of shape (..., 5), got (1, 1, 1, 4): "),
        (lambda x: F.layer_norm(x, ()), "[layer_norm] expected normalized_shape with at least one length, got none"),
        (lambda x: F.layer_norm(x, (1, 4), x), "[layer_norm] expected weight of shape (1, 4) for x: (1, 1, 1, 4), got"),
        (
            lambda x: F.group_norm(x, 3),
            "[group_norm] expected x (N, ..., C) with C in 3 equal groups, got (1, 1, 1, 4)",
        ),
        (lambda x: F.group_norm(x, 4), "[group_norm] expected more than one value per group, got x: (1, 1, 1, 4): use"),
        (lambda x: F.group_norm(x, 2, bias=x), "[group_norm] expected bias of shape (4,) for x: (1, 1, 1, 4), got"),
        (lambda x: F.instance_norm(x[0, 0]), "[instance_norm] expected x with 3 axes or more, (N, ..., C), got (1, 4)"),
        (F.instance_norm, "[instance_norm] expected more than one value per channel and sample, got x: (1,"),
        (nn.GroupNorm(1, 3), "[group_norm] expected x (N, ..., 3), got (1, 1, 1, 4): channels come last"),
        (nn.InstanceNorm2d(3), "[instance_norm] expected x with 4 axes, the last of 3 channels, got (1,"),
    ],
)
def test_wrong_shapes(engine: Engine, norm: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        norm(alpha.ones((1, 1, 1, 4), engine=engine))
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_bad_dtypes_engines_and_statistics(engine: Engine) -> None:
    x, ones = alpha.ones((2, 3, 3, 4), engine=engine), alpha.ones((4,), engine=engine)
    with pytest.raises(DtypeError, match=r"\[layer_norm\] expected weight of float32 as x, got float64: cast one"):
        F.layer_norm(x, 4, alpha.ones((4,), dtype=alpha.float64, engine=engine))
    with pytest.raises(DtypeError, match=r"\[group_norm\] expected float32 or float64, got int64"):
        F.group_norm(x.long(), 2)
    with pytest.raises(ArgumentError, match=r"\[instance_norm\] expected running_mean and running_var, both or"):
        F.instance_norm(x, ones)
    with pytest.raises(ArgumentError, match="got none: pass both"):
        F.instance_norm(x, use_input_stats=False)
    if engine.name != "cpu":
        with pytest.raises(EngineError, match=r"\[layer_norm\]"):
            F.layer_norm(x, 4, alpha.ones((4,), engine="cpu"))


# -- the CPU engine's kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize(
    "shape", [(1000, 70), (300, 1029), (3, 20000), (5000, 3), (401, 17), (99, 64), (9, 2), (5000, 16)]
)
def test_rows_of_any_size_and_order_have_the_same_bits_for_any_threads(
    rng: np.random.Generator, shape: tuple[int, int], dtype: str
) -> None:
    from alpha.cpu.engine import CPUEngine

    engine = CPUEngine("1GB")
    arrays = [(rng.standard_normal(size) + 3).astype(dtype) for size in (shape, shape, shape[1:], shape[1:])]
    x, dy, weight, bias = [alpha.tensor(array, engine=engine) for array in arrays]
    wide = [array.astype(np.float64) for array in arrays]
    mean, std = wide[0].mean(1, keepdims=True), np.sqrt(wide[0].var(1, keepdims=True) + 0.5)
    normal, g = (wide[0] - mean) / std, wide[1] * wide[2]
    dx = (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)) / std
    expected = normal * wide[2] + wide[3], dx, (wide[1] * normal).sum(0), wide[1].sum(0)
    found = []
    for threads in (1, 2, 5):
        engine.configure(threads=threads)
        y, statistics = engine.row_norm(x, weight, bias, 1, 0.5, True)
        gradients = engine.row_norm_grad(dy, x, weight, statistics, 1, True, (True,) * 3)
        found.append([np.asarray(part) for part in (y, *gradients)])
    for got in found[1:]:
        assert [part.tobytes() for part in got] == [part.tobytes() for part in found[0]]
    for got, want in zip(found[0], expected, strict=True):
        unit = np.finfo(got.dtype).eps
        np.testing.assert_allclose(got, want, rtol=64 * unit, atol=64 * unit * np.abs(want).max())
