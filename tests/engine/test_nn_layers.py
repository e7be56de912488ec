"""Layers against their definitions and against PyTorch's: values, gradients, defaults, signatures, errors."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, ShapeError

Array = np.ndarray[Any, Any]

# float64 on both sides: sums of at most a few hundred products of numbers near 1.
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def channels_first(array: Array) -> Array:
    """(N, H, W, C) as (N, C, H, W), (N, L, C) as (N, C, L)."""
    return np.moveaxis(array, -1, 1).copy()


def channels_last(array: Array) -> Array:
    return np.moveaxis(array, 1, -1)


# -- against PyTorch ---------------------------------------------------------------------------------------------

IMAGE_LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Conv2d", (4, 6, 3), {}),
    ("Conv2d", (4, 6, (3, 5), (2, 1), (1, 2)), {"bias": False}),
    ("Conv2d", (4, 6, 3, 1, 2, 2, 2), {}),
    ("Conv2d", (4, 6, (3, 5)), {"padding": "same", "dilation": 2}),
    ("Conv2d", (4, 6, 2), {"padding": "valid", "groups": 2}),
    ("ConvTranspose2d", (4, 6, 3), {}),
    ("ConvTranspose2d", (4, 6, (3, 4), (2, 3), 1, (1, 2)), {"bias": False}),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, 1, 2, True, 2), {}),
    ("BatchNorm2d", (4,), {}),
    ("BatchNorm2d", (4, 1e-3, 0.3), {"affine": False}),
    ("BatchNorm2d", (4,), {"track_running_stats": False}),
    ("MaxPool2d", (2,), {}),
    ("MaxPool2d", (3, 2, 1), {}),
    ("MaxPool2d", ((3, 2), (2, 1), (1, 0), 2), {"ceil_mode": True}),
    ("AvgPool2d", (2,), {}),
    ("AvgPool2d", (3, 2, 1, True, False), {}),
    ("AdaptiveAvgPool2d", (1,), {}),
    ("AdaptiveAvgPool2d", ((3, 5),), {}),
    ("AdaptiveAvgPool2d", ((None, 2),), {}),
    ("ReLU", (), {}),
    ("LeakyReLU", (0.2,), {}),
    ("Sigmoid", (), {}),
    ("Tanh", (), {}),
    ("GELU", (), {}),
    ("GELU", ("tanh",), {}),
    ("SiLU", (), {}),
    ("Identity", (1, 2), {"any": 3}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("name", "args", "options"), IMAGE_LAYERS)
def test_image_layers_match_pytorch(
    engine: Engine, rng: np.random.Generator, name: str, args: tuple[Any, ...], options: dict[str, Any], training: bool
) -> None:
    import torch

    theirs = getattr(torch.nn, name)(*args, **options).double().train(training)
    ours = getattr(nn, name)(*args, **options).to(engine).to(alpha.float64).train(training)
    randomise(theirs, rng, torch)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    compare(engine, torch, rng, ours, theirs, rng.normal(size=(3, 9, 7, 4)))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", [(5, 4), (3, 6, 4)])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False, "momentum": 0.5}])
def test_batch_norm_1d_matches_pytorch(
    engine: Engine, rng: np.random.Generator, options: dict[str, Any], shape: tuple[int, ...], training: bool
) -> None:
    import torch

    theirs = torch.nn.BatchNorm1d(4, **options).double().train(training)
    ours = nn.BatchNorm1d(4, **options).to(engine).to(alpha.float64).train(training)
    randomise(theirs, rng, torch)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    for _ in range(3):  # running statistics accumulate
        compare(engine, torch, rng, ours, theirs, rng.normal(2, 3, size=shape))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4)])
def test_linear_matches_pytorch(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    import torch

    for bias in (True, False):
        theirs = torch.nn.Linear(4, 3, bias).double()
        ours = nn.Linear(4, 3, bias).to(engine).to(alpha.float64)
        ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
        compare(engine, torch, rng, ours, theirs, rng.normal(size=shape), images=False)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_matches_pytorch(engine: Engine, rng: np.random.Generator, dim: int) -> None:
    import torch

    compare(engine, torch, rng, nn.Softmax(dim), torch.nn.Softmax(dim), rng.normal(size=(3, 5)), images=False)


def randomise(module: Any, rng: np.random.Generator, torch: Any) -> None:
    """Other than the defaults everywhere, so that a parameter left out shows; variances positive."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, tensor.shape)))


def compare(
    engine: Engine, torch: Any, rng: np.random.Generator, ours: nn.Module, theirs: Any, x: Array, images: bool = True
) -> None:
    """Value, gradients of input and parameters, and buffers of both."""
    first, last = (channels_first, channels_last) if images else (np.array, np.array)
    x_ours = alpha.tensor(x, engine=engine, requires_grad=True)
    result = ours(x_ours)
    weights = rng.normal(size=result.shape)
    (result * alpha.tensor(weights, engine=engine)).sum().backward()
    other = torch.from_numpy(first(x)).requires_grad_()
    expected = theirs(other)
    (expected * torch.from_numpy(first(weights))).sum().backward()
    np.testing.assert_allclose(np.asarray(result), last(expected.detach().numpy()), **TOLERANCE)
    np.testing.assert_allclose(np.asarray(x_ours.grad), last(other.grad.numpy()), **TOLERANCE)
    gradients = {f"{name}": p.grad for name, p in theirs.named_parameters()}
    gradients = nn.models.from_torch(gradients)
    assert list(gradients) == [name for name, _ in ours.named_parameters()]
    for name, parameter in ours.named_parameters():
        np.testing.assert_allclose(np.asarray(parameter.grad), gradients[name], err_msg=name, **TOLERANCE)
        parameter.grad = None
    theirs.zero_grad()
    for name, array in nn.models.from_torch(theirs.state_dict(), ours).items():
        np.testing.assert_allclose(np.asarray(ours.state_dict()[name]), array, err_msg=name, **TOLERANCE)


LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("CrossEntropyLoss", {}),
    ("CrossEntropyLoss", {"reduction": "sum", "label_smoothing": 0.1}),
    ("CrossEntropyLoss", {"reduction": "none"}),
    ("CrossEntropyLoss", {"ignore_index": 2, "weight": (1.0, 2.0, 0.5, 3.0)}),
    ("MSELoss", {}),
    ("MSELoss", {"reduction": "sum"}),
    ("MSELoss", {"reduction": "none"}),
    ("BCEWithLogitsLoss", {}),
    ("BCEWithLogitsLoss", {"reduction": "sum", "pos_weight": (1.0, 2.0, 0.5, 3.0)}),
    ("BCEWithLogitsLoss", {"reduction": "none"}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_losses_match_pytorch(engine: Engine, rng: np.random.Generator, name: str, options: dict[str, Any]) -> None:
    import torch

    x = rng.normal(size=(6, 4))
    target = np.array([0, 3, 2, 1, 2, 0]) if name == "CrossEntropyLoss" else rng.uniform(size=(6, 4))
    arrays = {key: np.array(value) for key, value in options.items() if isinstance(value, tuple)}
    ours = getattr(nn, name)(**(options | {k: alpha.tensor(v, engine=engine) for k, v in arrays.items()}))
    theirs = getattr(torch.nn, name)(**(options | {k: torch.from_numpy(v) for k, v in arrays.items()}))
    x_ours, other = alpha.tensor(x, engine=engine, requires_grad=True), torch.from_numpy(x).requires_grad_()
    result, expected = ours(x_ours, alpha.tensor(target, engine=engine)), theirs(other, torch.from_numpy(target))
    np.testing.assert_allclose(np.asarray(result), expected.detach().numpy(), **TOLERANCE)
    result.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(np.asarray(x_ours.grad), other.grad.numpy(), **TOLERANCE)
    assert ours.state_dict().keys() == theirs.state_dict().keys()


LAYERS = {
    "Conv2d": (2, 3, 5),
    "ConvTranspose2d": (2, 3, 5),
    "Conv1d": (2, 3, 5),
    "Conv3d": (2, 3, 5),
    "ConvTranspose1d": (2, 3, 5),
    "ConvTranspose3d": (2, 3, 5),
    "Linear": (2, 3),
    "BatchNorm1d": (2,),
    "BatchNorm2d": (2,),
    "LayerNorm": (2,),
    "GroupNorm": (2, 4),
    "InstanceNorm2d": (2,),
    "Embedding": (2, 3),
    "Upsample": (2,),
    "ReLU": (),
    "LeakyReLU": (),
    "Sigmoid": (),
    "Tanh": (),
    "GELU": (),
    "SiLU": (),
    "Softmax": (1,),
    "Softmin": (1,),
    "LogSoftmax": (1,),
    "Threshold": (0.5, 2.0),
    **dict.fromkeys(
        (
            "CELU",
            "ELU",
            "GLU",
            "Hardshrink",
            "Hardsigmoid",
            "Hardswish",
            "Hardtanh",
            "LogSigmoid",
            "Mish",
            "PReLU",
            "ReLU6",
            "SELU",
            "Softplus",
            "Softshrink",
            "Softsign",
            "Tanhshrink",
        ),
        (),
    ),
    "MaxPool2d": (2,),
    "AvgPool2d": (2,),
    "AdaptiveAvgPool2d": (2,),
    "Dropout": (),
    "Flatten": (),
    "CrossEntropyLoss": (),
    "MSELoss": (),
    "BCEWithLogitsLoss": (),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", LAYERS)
def test_signatures_are_pytorchs(name: str) -> None:
    """Same names and defaults; whatever may be given by position has PyTorch's position."""
    import torch

    theirs = inspect.signature(getattr(torch.nn, name)).parameters
    ours = {key: p for key, p in inspect.signature(getattr(nn, name)).parameters.items() if key != "layout"}
    assert set(ours) <= set(theirs)
    positional = [key for key, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == list(theirs)[: len(positional)]
    for key, parameter in ours.items():
        assert parameter.default == theirs[key].default, key
    assert list(getattr(nn, name)(*LAYERS[name]).state_dict()) == list(
        getattr(torch.nn, name)(*LAYERS[name]).state_dict()
    )


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("Linear", (300, 200), {}),
        ("Conv2d", (24, 60, 5), {"groups": 3}),
        ("ConvTranspose2d", (24, 60, 5), {"groups": 3}),
        ("Conv1d", (60, 120, 9), {"groups": 3}),
        ("ConvTranspose3d", (12, 18, 3), {"groups": 3}),
    ],
)
def test_default_initialisation_is_pytorchs(name: str, args: tuple[int, ...], options: dict[str, Any]) -> None:
    """Both uniform on the same interval: compared by their largest values and deviations."""
    import torch

    alpha.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    for key, tensor in theirs.named_parameters():
        drawn, expected = np.asarray(getattr(ours, key)), tensor.detach().numpy()
        assert drawn.size == expected.size
        # For n uniform draws the largest is below the bound by about 1/n of it; the deviation's error is 0.45/sqrt(n).
        n = drawn.size
        assert np.abs(drawn).max() == pytest.approx(np.abs(expected).max(), rel=10 / n), key
        assert drawn.std() == pytest.approx(expected.std(), rel=4 / math.sqrt(n)), key


def test_layers_are_made_the_same_from_the_same_seed() -> None:
    alpha.manual_seed(5)
    first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)).state_dict()
    alpha.manual_seed(5)
    second = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)).state_dict()
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)).state_dict()
    for key, value in first.items():
        np.testing.assert_array_equal(value.numpy(), second[key].numpy())
        assert not np.array_equal(value.numpy(), other[key].numpy())


# -- batch normalisation by its definition -----------------------------------------------------------------------


@pytest.mark.parametrize("activation", [None, "relu", "leaky_relu"])
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_fused_batch_norm_is_its_parts(
    engine: Engine, rng: np.random.Generator, training: bool, with_residual: bool, activation: str | None
) -> None:
    layer = nn.BatchNorm2d(5).to(engine).to(alpha.float64).train(training)
    state = {key: rng.uniform(0.5, 1.5, 5) for key in ("weight", "bias", "running_mean", "running_var")}
    layer.load_state_dict(state)
    x, residual = rng.normal(size=(3, 4, 6, 5)), rng.normal(size=(3, 4, 6, 5))
    mean, var = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if training else (state["running_mean"], state["running_var"])
    expected = (x - mean) / np.sqrt(var + 1e-5) * state["weight"] + state["bias"] + residual * with_residual
    slope = {None: 1.0, "relu": 0.0, "leaky_relu": 0.3}[activation]
    expected = np.where(expected > 0, expected, expected * slope)
    shortcut = alpha.tensor(residual, engine=engine) if with_residual else None
    result = layer(alpha.tensor(x, engine=engine), residual=shortcut, activation=activation, negative_slope=0.3)
    np.testing.assert_allclose(np.asarray(result), expected, **TOLERANCE)
    running = np.asarray(layer.running_mean)
    share = 0.1 if training else 0.0
    np.testing.assert_allclose(running, (1 - share) * state["running_mean"] + share * mean, **TOLERANCE)


def test_cumulative_average_survives_a_checkpoint(engine: Engine, rng: np.random.Generator) -> None:
    batches = [alpha.tensor(rng.normal(size=(8, 3)), engine=engine) for _ in range(4)]
    whole, first = (nn.BatchNorm1d(3, momentum=None).to(engine).to(alpha.float64) for _ in range(2))
    for batch in batches:
        whole(batch)
    for batch in batches[:2]:
        first(batch)
    second = nn.BatchNorm1d(3, momentum=None).to(engine).to(alpha.float64)
    second.load_state_dict({key: value.numpy().copy() for key, value in first.state_dict().items()})
    for batch in batches[2:]:
        second(batch)
    assert int(second.num_batches_tracked) == 4
    np.testing.assert_array_equal(np.asarray(second.running_mean), np.asarray(whole.running_mean))
    mean = np.mean([batch.numpy().mean(0) for batch in batches], 0)
    np.testing.assert_allclose(np.asarray(whole.running_mean), mean, **TOLERANCE)


def test_reset_running_stats(engine: Engine, rng: np.random.Generator) -> None:
    layer = nn.BatchNorm1d(3, momentum=None).to(engine)
    layer(alpha.tensor(rng.normal(size=(8, 3)).astype(np.float32), engine=engine))
    layer.reset_running_stats()
    assert np.asarray(layer.running_mean).tolist() == [0] * 3
    assert np.asarray(layer.running_var).tolist() == [1] * 3
    assert int(layer.num_batches_tracked) == 0


# -- dropout, flatten, padding -----------------------------------------------------------------------------------


def test_dropout_only_in_training(engine: Engine) -> None:
    x = alpha.tensor(np.ones((1000, 10), np.float32), engine=engine)
    layer = nn.Dropout(0.25)
    alpha.manual_seed(1)
    first = layer(x).numpy().copy()
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((first == 0).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 10000)
    alpha.manual_seed(1)
    np.testing.assert_array_equal(layer(x).numpy(), first)
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())
    np.testing.assert_array_equal(nn.Dropout(0)(x).numpy(), x.numpy())


def test_flatten_is_row_major_over_rows_columns_channels(engine: Engine, rng: np.random.Generator) -> None:
    array = rng.normal(size=(2, 3, 4, 5))
    images = alpha.tensor(array, engine=engine).contiguous((1, 2, 0, 3))  # the order activations have in memory
    np.testing.assert_array_equal(np.asarray(nn.Flatten()(images)), array.reshape(2, 60))
    np.testing.assert_array_equal(np.asarray(nn.Flatten(0, 1)(images)), array.reshape(6, 4, 5))


def test_same_padding_keeps_the_size(engine: Engine) -> None:
    x = alpha.tensor(np.ones((1, 6, 8, 2), np.float32), engine=engine)
    assert nn.Conv2d(2, 3, (3, 5), padding="same", dilation=(2, 1)).to(engine)(x).shape == (1, 6, 8, 3)
    assert nn.Conv2d(2, 3, (2, 4), padding="same").to(engine)(x).shape == (1, 6, 8, 3)  # one more behind than before
    assert nn.Conv2d(2, 3, 3, padding="valid").to(engine)(x).shape == (1, 4, 6, 3)


# -- errors ------------------------------------------------------------------------------------------------------

BAD_CONSTRUCTORS = [
    (lambda: nn.Conv2d(0, 3, 3), "[Conv2d] expected in_channels as an integer >= 1, got 0"),
    (lambda: nn.Conv2d(4, 6, 3, groups=3), "[Conv2d] expected groups that divide in_channels and out_channels, got"),
    (lambda: nn.Conv2d(4, 6, (3, 3, 3)), "[Conv2d] expected kernel_size as one or two integers >= 1, got (3, 3, 3)"),
    (lambda: nn.Conv2d(4, 6, 3, stride=0), "[Conv2d] expected stride as one or two integers >= 1, got 0"),
    (lambda: nn.Conv2d(4, 6, 3, padding=-1), "[Conv2d] expected padding as one or two integers >= 0, got -1"),
    (lambda: nn.Conv2d(4, 6, 3, padding="full"), '[Conv2d] expected padding as numbers, "same" or "valid", got'),
    (lambda: nn.Conv2d(4, 6, 3, 2, "same"), '[Conv2d] expected stride 1 for padding="same", got stride=(2, 2)'),
    (lambda: nn.Conv2d(4, 6, 3, padding_mode="mirror"), '[Conv2d] expected padding_mode as one of "zeros", "reflect"'),
    (lambda: nn.ConvTranspose2d(4, 6, 3, output_padding=-1), "[ConvTranspose2d] expected output_padding as one or two"),
    (lambda: nn.Linear(2.5, 3), "[Linear] expected in_features as an integer >= 1, got 2.5"),
    (lambda: nn.BatchNorm2d(True), "[BatchNorm2d] expected num_features as an integer >= 1, got True"),
    (lambda: nn.BatchNorm1d(3, momentum=2.0), "[BatchNorm1d] expected eps >= 0 and momentum from 0 to 1 or None"),
    (lambda: nn.Dropout(1.5), "[Dropout] expected p from 0 to 1, got 1.5"),
    (lambda: nn.GELU("erf"), '[GELU] expected approximate as one of "none", "tanh", got \'erf\''),
    (lambda: nn.MaxPool2d(0), "[MaxPool2d] expected kernel_size as one or two integers >= 1, got 0"),
    (lambda: nn.AdaptiveAvgPool2d((1, 0)), "[AdaptiveAvgPool2d] expected output_size as one or two integers >= 1"),
    (lambda: nn.MSELoss(reduction="max"), '[MSELoss] expected reduction as one of "mean", "sum", "none", got'),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2), "[CrossEntropyLoss] expected label_smoothing from 0 to 1, got 2"),
]


@pytest.mark.parametrize(("make", "message"), BAD_CONSTRUCTORS)
def test_constructors_check_their_arguments(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_unsupported_options_are_absent() -> None:
    with pytest.raises(TypeError):
        nn.Sigmoid(inplace=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        nn.Module(3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("layer", "shape", "function"),
    [
        (lambda: nn.Conv2d(3, 4, 3), (2, 8, 8, 4), "conv2d"),
        (lambda: nn.Conv2d(3, 4, 3), (8, 3), "conv2d"),
        (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 8, 8, 4), "conv_transpose2d"),
        (lambda: nn.Linear(3, 4), (2, 5), "linear"),
        (lambda: nn.BatchNorm2d(3), (2, 8, 8, 4), "batch_norm"),
        (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (2, 8, 8, 4), "batch_norm"),
        (lambda: nn.BatchNorm2d(3), (2, 3), "batch_norm"),
        (lambda: nn.BatchNorm1d(3), (2, 8, 8, 3), "batch_norm"),
        (lambda: nn.MaxPool2d(2), (8, 3), "max_pool2d"),
        (lambda: nn.AvgPool2d(9), (2, 8, 8, 3), "avg_pool2d"),
        (lambda: nn.AdaptiveAvgPool2d(1), (8, 8), "adaptive_avg_pool2d"),
    ],
)
def test_wrong_shapes_name_the_function(engine: Engine, layer: Any, shape: tuple[int, ...], function: str) -> None:
    x = alpha.tensor(np.ones(shape, np.float32), engine=engine)
    with pytest.raises(ShapeError) as caught:
        layer().to(engine)(x)
    message = str(caught.value)
    assert message.startswith(f"[{function}] expected") and "\n" not in message
    assert str(shape) in message or str(shape[1]) in message


@pytest.mark.parametrize("shape", [(1, 3), (1, 1, 3)])
def test_one_value_a_channel_cannot_be_normalised_in_training(engine: Engine, shape: tuple[int, ...]) -> None:
    x = alpha.tensor(np.ones(shape, np.float32), engine=engine)
    layer = nn.BatchNorm1d(3).to(engine)
    with pytest.raises(ShapeError, match=r"\[batch_norm\] expected more than 1 value per channel when training, got"):
        layer(x)
    assert layer.eval()(x).shape == shape
    with pytest.raises(ShapeError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3, track_running_stats=False).to(engine).eval()(x)


def test_a_wrong_activation_is_refused(engine: Engine) -> None:
    x = alpha.tensor(np.ones((2, 2, 2, 3), np.float32), engine=engine)
    with pytest.raises(AlphaError, match=r"\[batch_norm\].*'gelu'"):
        nn.BatchNorm2d(3).to(engine)(x, activation="gelu")
