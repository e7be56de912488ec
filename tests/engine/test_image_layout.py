"""Images as (N, C, H, W): the same numbers as with channels last, by views, and PyTorch's to rounding."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError, ShapeError

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def channels_last_by_default() -> Iterator[None]:
    yield
    alpha.set_image_layout("NHWC")


# Function, options, and the shapes of its tensors with channels second.
CALLS: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]]]] = {
    "conv2d": ("conv2d", {"stride": 2, "padding": 1}, [(2, 3, 7, 5), (4, 3, 3, 2), (4,)]),
    "conv2d in groups": ("conv2d", {"padding": (0, 1), "groups": 2}, [(2, 4, 7, 5), (6, 2, 2, 3)]),
    "conv1d": ("conv1d", {"stride": 2, "padding": 1}, [(2, 3, 7), (4, 3, 3), (4,)]),
    "conv3d": ("conv3d", {"stride": (1, 2, 1), "padding": 1}, [(1, 3, 4, 5, 3), (4, 3, 3, 2, 2), (4,)]),
    "conv_transpose1d": ("conv_transpose1d", {"stride": 2}, [(2, 3, 4), (3, 4, 3), (4,)]),
    "conv_transpose2d": (
        "conv_transpose2d",
        {"stride": 2, "padding": 1, "output_padding": 1},
        [(2, 3, 4, 5), (3, 2, 3, 3), (2,)],
    ),
    "conv_transpose3d": ("conv_transpose3d", {"stride": 2}, [(1, 3, 2, 3, 4), (3, 2, 2, 3, 2), (2,)]),
    "max_pool2d": ("max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, [(2, 3, 7, 5)]),
    "avg_pool2d": ("avg_pool2d", {"kernel_size": (3, 2), "stride": 2, "padding": 1}, [(2, 3, 7, 5)]),
    "adaptive_avg_pool2d": ("adaptive_avg_pool2d", {"output_size": (3, 2)}, [(2, 3, 7, 5)]),
    "group_norm": ("group_norm", {"num_groups": 2}, [(2, 4, 7, 5)]),
    "group_norm of sequences": ("group_norm", {"num_groups": 2}, [(3, 4, 5)]),
    "instance_norm": ("instance_norm", {}, [(2, 4, 7, 5)]),
    "interpolate": ("interpolate", {"scale_factor": 2, "mode": "bilinear"}, [(2, 4, 7, 5)]),
    "interpolate nearest": ("interpolate", {"size": (9, 3)}, [(2, 4, 7, 5)]),
    "interpolate bicubic": ("interpolate", {"size": (9, 3), "mode": "bicubic"}, [(2, 4, 7, 5)]),
    "interpolate area": ("interpolate", {"size": 3, "mode": "area"}, [(2, 4, 7)]),
    "interpolate trilinear": ("interpolate", {"size": (4, 3, 7), "mode": "trilinear"}, [(2, 4, 3, 5, 4)]),
    "interpolate smooth": ("interpolate", {"size": 3, "mode": "bilinear", "antialias": True}, [(2, 4, 8, 7)]),
    "same padding of an even filter": ("conv2d", {"padding": "same"}, [(2, 3, 7, 5), (4, 3, 2, 4)]),
    "max_pool1d": ("max_pool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, [(2, 3, 8)]),
    "max_pool3d": ("max_pool3d", {"kernel_size": (2, 3, 2), "padding": 1, "dilation": 2}, [(2, 3, 6, 7, 5)]),
    "avg_pool1d": ("avg_pool1d", {"kernel_size": 3, "padding": 1, "ceil_mode": True}, [(2, 3, 8)]),
    "avg_pool2d over a number": ("avg_pool2d", {"kernel_size": 2, "divisor_override": 3}, [(2, 3, 7, 5)]),
    "avg_pool3d": (
        "avg_pool3d",
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
        [(2, 3, 6, 7, 5)],
    ),
    "lp_pool2d": ("lp_pool2d", {"norm_type": 2, "kernel_size": 3}, [(2, 3, 7, 5)]),
    "adaptive_avg_pool1d": ("adaptive_avg_pool1d", {"output_size": 3}, [(2, 3, 8)]),
    "adaptive_avg_pool3d": ("adaptive_avg_pool3d", {"output_size": (2, 3, None)}, [(2, 3, 6, 7, 5)]),
    "adaptive_max_pool2d": ("adaptive_max_pool2d", {"output_size": (3, 5)}, [(2, 3, 7, 5)]),
    "adaptive_max_pool3d": ("adaptive_max_pool3d", {"output_size": (2, 3, 4)}, [(2, 3, 6, 7, 5)]),
    "local_response_norm": ("local_response_norm", {"size": 3, "alpha": 0.5}, [(2, 5, 7, 4)]),
    "pixel_shuffle": ("pixel_shuffle", {"upscale_factor": 2}, [(2, 8, 3, 4)]),
    "pixel_unshuffle": ("pixel_unshuffle", {"downscale_factor": 2}, [(2, 3, 4, 6)]),
    "channel_shuffle": ("channel_shuffle", {"groups": 2}, [(2, 6, 3, 4)]),
    "unfold": ("unfold", {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1, "stride": 2}, [(2, 3, 7, 5)]),
    "fold": ("fold", {"output_size": (5, 6), "kernel_size": (2, 3), "padding": (1, 0)}, [(2, 18, 24)]),
}


def arrays(rng: np.random.Generator, shapes: list[tuple[int, ...]]) -> list[Array]:
    return [rng.normal(size=shape) for shape in shapes]


def leaves(engine: Engine, values: list[Array]) -> list[Tensor]:
    return [alpha.tensor(value, requires_grad=True, engine=engine) for value in values]


def results(out: Tensor, tensors: list[Tensor], slopes: Array) -> list[Array]:
    """The result and the gradients of its sum, weighted."""
    (out * alpha.tensor(slopes, engine=out.engine)).sum().backward()
    return [np.asarray(out), *(np.asarray(tensor.grad) for tensor in tensors)]


@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_are_those_of_channels_last(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """To the bit: only views change, whichever way the layout is named."""
    function, options, shapes = CALLS[name]
    values = arrays(rng, shapes)
    last = [np.moveaxis(value, 1, -1) if value.ndim > 2 else value for value in values]
    tensors = leaves(engine, last)
    plain = getattr(F, function)(*tensors, **options)
    slopes = rng.normal(size=plain.shape)
    expected = [np.moveaxis(x, -1, 1) if x.ndim > 2 else x for x in results(plain, tensors, slopes)]

    def with_argument(*given: Tensor) -> Tensor:
        return getattr(F, function)(*given, **options, layout="NCHW")  # type: ignore[no-any-return]

    def in_a_block(*given: Tensor) -> Tensor:
        with alpha.set_image_layout("NCHW"):
            return getattr(F, function)(*given, **options)  # type: ignore[no-any-return]

    calls: list[Callable[..., Tensor]] = [with_argument, in_a_block]
    for call in calls:
        tensors = leaves(engine, values)
        found = results(call(*tensors), tensors, np.moveaxis(slopes, -1, 1))
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            # An engine may add in another order where images lie otherwise in memory.
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", CALLS)
def test_the_numbers_are_pytorchs(engine: Engine, rng: np.random.Generator, name: str) -> None:
    import torch

    function, options, shapes = CALLS[name]
    values = arrays(rng, shapes)
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    expected = getattr(torch.nn.functional, function)(*theirs, **options)
    slopes = rng.normal(size=tuple(expected.shape))
    (expected * torch.tensor(slopes)).sum().backward()
    alpha.set_image_layout("NCHW")
    tensors = leaves(engine, values)
    found = results(getattr(F, function)(*tensors, **options), tensors, slopes)
    for one, other in zip(found, [expected.detach(), *(x.grad for x in theirs)], strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-10, atol=1e-11)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_are_the_second_axis_of_the_losses(engine: Engine, rng: np.random.Generator, reduction: str) -> None:
    import torch

    logits, labels = rng.normal(size=(2, 4, 3, 5)), rng.integers(0, 4, (2, 3, 5))
    for name in ("cross_entropy", "nll_loss"):
        leaf = torch.tensor(logits, requires_grad=True)
        expected = getattr(torch.nn.functional, name)(leaf, torch.tensor(labels), reduction=reduction)
        expected.sum().backward()
        ours = alpha.tensor(logits, requires_grad=True, engine=engine)
        target = alpha.tensor(labels, engine=engine)
        found = getattr(F, name)(ours, target, reduction=reduction, layout="NCHW")
        found.sum().backward()
        np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(ours.grad), leaf.grad.numpy(), rtol=1e-10, atol=1e-14)


def network(package: Any) -> Any:
    """A small network, of our layers or of PyTorch's."""
    return package.Sequential(
        package.Conv2d(3, 8, 3, padding=1, bias=False),
        package.BatchNorm2d(8),
        package.ReLU(),
        package.MaxPool2d(2),
        package.ConvTranspose2d(8, 6, 3, stride=2),
        package.GroupNorm(2, 6),
        package.LeakyReLU(0.1),
        package.Conv2d(6, 16, (3, 2), stride=2, padding=1),
        package.BatchNorm2d(16),
        package.AdaptiveAvgPool2d(2),
        package.Flatten(),
        package.Linear(64, 5),
    )


@pytest.mark.needs("torch")
def test_a_network_takes_pytorchs_weights_and_trains_as_it_does(engine: Engine, rng: np.random.Generator) -> None:
    import torch

    theirs = network(torch.nn).double()
    alpha.set_image_layout("NCHW")
    ours = network(nn).to(engine).to(alpha.float64)
    assert [(key, value.shape) for key, value in ours.state_dict().items()] == [
        (key, tuple(value.shape)) for key, value in theirs.state_dict().items()
    ]
    ours.load_state_dict(theirs.state_dict())
    mine = optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    other = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        x, y = rng.normal(size=(6, 3, 12, 10)), rng.integers(0, 5, 6)
        loss = F.cross_entropy(ours(alpha.tensor(x, engine=engine)), alpha.tensor(y, engine=engine))
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
        for optimizer, one in ((mine, loss), (other, expected)):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
    with alpha.no_grad(), torch.no_grad():  # folded convolutions
        found = np.asarray(ours.eval()(alpha.tensor(x, engine=engine)))
        np.testing.assert_allclose(found, theirs.eval()(torch.tensor(x)).numpy(), rtol=1e-8, atol=1e-10)
    back = nn.models.to_torch(ours)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(back[key].numpy(), value.numpy(), rtol=1e-9, atol=1e-11)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))


def test_filters_and_activations_lie_in_memory_as_with_channels_last(engine: Engine) -> None:
    """So that no call copies them; wherever the network is moved, and in copies of it."""
    last = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).to(engine)
    with alpha.set_image_layout("NCHW"):
        second = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).to(engine)
    x = alpha.rand(2, 6, 5, 3, engine=engine)
    y, seen = last(x), second(x.permute(0, 3, 1, 2))
    assert seen.shape == (2, 8, 6, 5) and seen.permute(0, 2, 3, 1).strides == y.strides
    for net in (second, copy.deepcopy(second), second.to(alpha.float64), second.to(alpha.float32)):
        weight = net[0].weight
        assert weight.shape == (8, 3, 3, 3) and weight.strides == (27, 1, 9, 3)
    second(x.permute(0, 3, 1, 2)).sum().backward()
    assert second[0].weight.grad.strides == (27, 1, 9, 3)


def test_a_layer_keeps_the_layout_in_which_it_was_made(engine: Engine) -> None:
    with alpha.set_image_layout("NCHW"):
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(3), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)]
    layers += [nn.Conv2d(3, 4, 3, layout="NCHW"), nn.GroupNorm(3, 3, layout="NCHW"), nn.MaxPool2d(2, layout="NCHW")]
    layers += [nn.InstanceNorm2d(3, layout="NCHW"), nn.AdaptiveAvgPool2d(2, layout="NCHW")]
    assert alpha.get_image_layout() == "NHWC" and nn.Conv2d(3, 4, 3).weight.shape == (4, 3, 3, 3)
    for layer in layers:
        layer.to(engine)
        assert layer.layout == "NCHW"
        channels = 4 if isinstance(layer, nn.Conv2d) else 3
        assert layer(alpha.rand(2, 3, 6, 10, engine=engine)).shape[:2] == (2, channels)


@pytest.mark.parametrize("name", ["resnet18", "vgg16", "deeplab_small"])
def test_the_models_follow_the_layout(name: str) -> None:
    alpha.manual_seed(0)
    last = getattr(nn.models, name)(10, base_width=4) if name != "deeplab_small" else nn.models.deeplab_small(10)
    with alpha.set_image_layout("NCHW"):
        second = getattr(nn.models, name)(10, base_width=4) if name != "deeplab_small" else nn.models.deeplab_small(10)
    moved = {key: np.moveaxis(np.asarray(value), -1, 1) for key, value in last.state_dict().items() if value.ndim == 4}
    second.load_state_dict({**{key: np.asarray(value) for key, value in last.state_dict().items()}, **moved})
    x = alpha.rand(2, 32, 32, 3)
    with alpha.no_grad():
        expected, found = last.eval()(x), second.eval()(x.permute(0, 3, 1, 2))
    found = found.permute(0, 2, 3, 1) if found.ndim == 4 else found
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_a_dcgan_follows_the_layout() -> None:
    with alpha.set_image_layout("NCHW"):
        generator, critic = nn.models.DCGANGenerator(base_width=4), nn.models.DCGANDiscriminator(base_width=4)
    images = generator(alpha.randn(3, generator.latent_size))
    assert images.shape == (3, 3, 32, 32) and critic(images).shape == (3,)
    with pytest.raises(ShapeError, match=r"expected images \(N, 3, 32, 32\), got .*: channels come second"):
        critic(images.permute(0, 2, 3, 1))


def test_initialisation_counts_fans_by_the_layout() -> None:
    weight = alpha.zeros(8, 3, 5, 2)
    assert nn.init.fans(weight) == (30, 120)
    with alpha.set_image_layout("NCHW"):
        assert nn.init.fans(weight) == (30, 80)
        first = nn.init.dirac_(alpha.zeros(4, 3, 3, 5), groups=2)
    last = nn.init.dirac_(alpha.zeros(4, 3, 5, 3), groups=2)
    assert np.array_equal(np.asarray(first), np.moveaxis(np.asarray(last), -1, 1))


def test_averaged_views_follow_the_layout(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 9, 9, 3)).astype(np.float32)
    weight = rng.normal(size=(9, 9, 3)).astype(np.float32)

    class Scores(nn.Module):
        def __init__(self, weight: Array) -> None:
            super().__init__()
            self.weight = nn.Parameter(np.ascontiguousarray(weight))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).sum((1, 2, 3))

    expected = nn.AveragedViews(Scores(weight), shift=2)(alpha.tensor(x))
    with alpha.set_image_layout("NCHW"):
        found = nn.AveragedViews(Scores(weight.transpose(2, 0, 1)), shift=2)(alpha.tensor(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(np.asarray(found.detach()), np.asarray(expected.detach()), rtol=1e-4, atol=1e-4)


# -- the switch --------------------------------------------------------------------------------------------------


def test_the_layout_is_set_by_a_call_or_for_a_block() -> None:
    seen = alpha.get_image_layout
    alpha.set_image_layout("NCHW")
    assert seen() == "NCHW"
    with alpha.set_image_layout("NHWC"):
        assert seen() == "NHWC"
        with alpha.set_image_layout("NCHW"):
            assert seen() == "NCHW"
        alpha.set_image_layout("NCHW")  # until the block ends
        assert seen() == "NCHW"
    assert seen() == "NCHW"
    alpha.set_image_layout("NHWC")
    found: list[str] = []
    with alpha.set_image_layout("NCHW"):
        thread = threading.Thread(target=lambda: found.append(seen()))
        thread.start()
        thread.join()
    alpha.set_image_layout("NCHW")
    thread = threading.Thread(target=lambda: found.append(seen()))
    thread.start()
    thread.join()
    assert found == ["NHWC", "NCHW"], "a block is its thread's own, a call is everybody's"
    with pytest.raises(ArgumentError, match=r'\[set_image_layout\] expected the layout "NHWC" or "NCHW", got'):
        alpha.set_image_layout("NHW")
    with pytest.raises(ArgumentError, match=r'\[Conv2d\] expected the layout "NHWC" or "NCHW", got 3'):
        nn.Conv2d(3, 3, 3, layout=3)  # type: ignore[arg-type]


# -- the other layout is noticed ---------------------------------------------------------------------------------


def made(layer: Any, **options: Any) -> Callable[[Tensor], Tensor]:
    """The call of a layer that is made anew for it, in the layout then in force."""

    def call(x: Tensor) -> Tensor:
        return layer(**options)(x)  # type: ignore[no-any-return]

    return call


def test_images_that_most_likely_have_the_other_layout_are_refused() -> None:
    first, last = alpha.rand(2, 3, 32, 32), alpha.rand(2, 28, 28, 1)
    for call in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 2),
        lambda x: F.interpolate(x, scale_factor=2),
        made(nn.MaxPool2d, kernel_size=2),
        made(nn.AvgPool2d, kernel_size=2),
        made(nn.AdaptiveAvgPool2d, output_size=2),
        made(nn.Upsample, scale_factor=2),
    ):
        with pytest.raises(ShapeError, match=r'look like \(N, C, H, W\): call alpha.set_image_layout\("NCHW"\), or'):
            call(first)
        with (
            alpha.set_image_layout("NCHW"),
            pytest.raises(ShapeError, match=r'look like \(N, H, W, C\): call alpha.set_image_layout\("NHWC"\), or'),
        ):
            call(last)
        call(last)
        call(alpha.rand(2, 3, 5, 5))
        with alpha.set_image_layout("NCHW"):
            call(first)
    assert F.max_pool2d(first, 2, layout="NHWC").shape == (2, 1, 16, 32)
    assert nn.MaxPool2d(2, layout="NHWC")(first).shape == (2, 1, 16, 32)


def test_errors_of_shapes_name_the_layout() -> None:
    x, w = alpha.rand(2, 3, 32, 32), alpha.rand(4, 3, 3, 3)
    with pytest.raises(ShapeError, match=r'for \(N, C, H, W\) call alpha.set_image_layout\("NCHW"\)'):
        F.conv2d(x, w)
    with pytest.raises(ShapeError, match=r'the layout is "NCHW", x: \(2, 32, 32, 3\)'):
        F.conv2d(x.permute(0, 2, 3, 1), w, layout="NCHW")
    with pytest.raises(ShapeError, match=r"the last of 3 channels, got \(2, 3, 32, 32\): channels come last, as"):
        nn.BatchNorm2d(3)(x)
    with pytest.raises(ShapeError, match=r"the second of 3 channels, got \(2, 32, 32, 3\): channels come second, as"):
        nn.BatchNorm2d(3, layout="NCHW")(x.permute(0, 2, 3, 1))


@pytest.mark.needs("torch")
def test_pytorchs_filters_are_not_taken_for_ours() -> None:
    import torch

    state = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).state_dict()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = np.array(net[0].weight.detach())
    with pytest.raises(
        CheckpointError, match=r"expected filters \(OC, ..., IC\) for 0.weight, got a tensor of PyTorch"
    ):
        net.load_state_dict(state)
    np.testing.assert_array_equal(np.asarray(net[0].weight.detach()), before)
    net.load_state_dict(nn.models.from_torch(state, net))
    with alpha.set_image_layout("NCHW"):
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).load_state_dict(state)
