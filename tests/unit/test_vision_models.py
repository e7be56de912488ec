"""torchvision's networks: names, shapes, values, gradients and distributions of weights against torchvision itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import models, nn
from alpha.errors import ArgumentError, CheckpointError, ShapeError
from alpha.models import parts
from benchmarks.torchvision_models import torchvision_models

Array = np.ndarray[Any, Any]
Make = Callable[[Any], Any]
"""Makes a network of a side's models."""
ORACLE = pytest.mark.needs("torch", "torchvision")


def convnext(side: Any, **options: Any) -> Any:
    stage = side.convnext.CNBlockConfig
    return side.ConvNeXt([stage(8, 12, 1), stage(12, None, 2)], **options)


def efficientnet(side: Any, **options: Any) -> Any:
    """Stages of both kinds, with and without more channels within, with and without a shortcut."""
    fused, plain = side.efficientnet.FusedMBConvConfig, side.efficientnet.MBConvConfig
    setting = [fused(1, 3, 1, 8, 8, 2), fused(4, 3, 2, 8, 16, 2), plain(1, 3, 1, 16, 16, 1), plain(6, 5, 2, 16, 24, 2)]
    return side.EfficientNet(setting, 0.0, **options)


def transformer(side: Any, **options: Any) -> Any:
    return side.VisionTransformer(32, 8, 2, 4, 24, 40, **options)


def conv_stem(side: Any) -> Any:
    stem = side.vision_transformer.ConvStemConfig
    return transformer(side, representation_size=12, conv_stem_configs=[stem(6, 3, 4), stem(8, 3, 2)])


def regnet(side: Any, **options: Any) -> Any:
    """Stages with and without a stride, of blocks with and without a shortcut of their own."""
    parameters = side.regnet.BlockParams([2, 1, 1], [16, 16, 24], [8, 8, 12], [1.0, 0.5, 1.0], [2, 1, 2], **options)
    return side.RegNet(parameters, stem_width=8)


def swin(side: Any, version: int, window: tuple[int, int], **options: Any) -> Any:
    """Images of 37 x 37 pixels make maps of 9 x 9, 5 x 5 and 3 x 3, which no window divides."""
    module = side.swin_transformer
    if version == 2:
        options.update(block=module.SwinTransformerBlockV2, downsample_layer=module.PatchMergingV2)
    return side.SwinTransformer([4, 4], 12, [2, 1, 2], [2, 3, 4], list(window), **options)


def resnet(side: Any, **options: Any) -> Any:
    return side.ResNet(side.resnet.Bottleneck, [1, 2, 1, 1], **options)


def vgg(side: Any, batch_norm: bool) -> Any:
    features = side.vgg.make_layers([8, "M", 12, "M", 512, "M"], batch_norm)
    return side.vgg.VGG(features, init_weights=False)


NETWORKS: dict[str, tuple[int, Make]] = {
    "alexnet": (63, lambda side: side.alexnet()),
    "convnext": (32, convnext),
    "densenet": (32, lambda side: side.DenseNet(8, (2, 3), 16)),
    "efficientnet": (40, efficientnet),
    "googlenet": (32, lambda side: side.googlenet(init_weights=False, transform_input=True)),
    "inception": (75, lambda side: side.inception_v3(init_weights=False, transform_input=True)),
    "maxvit": (32, lambda side: side.maxvit.MaxVit((32, 32), 8, 2, [8, 12], [1, 2], 4, 0.2)),
    "mnasnet": (40, lambda side: side.mnasnet0_5()),
    "mobilenet_v2": (40, lambda side: side.mobilenet_v2(width_mult=0.35)),
    "mobilenet_v3": (40, lambda side: side.mobilenet_v3_small(width_mult=0.5, reduced_tail=True)),
    "mobilenet_v3 dilated": (40, lambda side: side.mobilenet_v3_small(width_mult=0.35, dilated=True)),
    "regnet_x": (40, regnet),
    "regnet_y": (40, lambda side: regnet(side, se_ratio=0.25)),
    "resnet18": (40, lambda side: side.ResNet(side.resnet.BasicBlock, [1, 1, 1, 1])),
    "resnet50": (40, resnet),
    "resnext": (40, lambda side: resnet(side, groups=4, width_per_group=8)),
    "resnet dilated": (40, lambda side: resnet(side, replace_stride_with_dilation=[False, True, True])),
    "shufflenet": (40, lambda side: side.shufflenet_v2_x0_5()),
    "squeezenet1_0": (33, lambda side: side.squeezenet1_0()),
    "squeezenet1_1": (33, lambda side: side.squeezenet1_1()),
    "swin": (37, lambda side: swin(side, 1, (3, 4))),
    "swin in one window": (37, lambda side: swin(side, 1, (2, 9))),
    "swin_v2": (37, lambda side: swin(side, 2, (4, 3))),
    "vgg": (33, lambda side: vgg(side, False)),
    "vgg_bn": (33, lambda side: vgg(side, True)),
    "vit": (32, transformer),
    "vit with a stem": (32, conv_stem),
}
"""Networks of each family, with few channels where the class allows it, and the side of their images."""


_IS_TABLE = ".relative_"
"""Part of the names of tables that transformers compute when they are made; those of biases are learned."""


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves weights uninitialised: their memory is never touched, so the largest networks cost nothing."""
    monkeypatch.setattr("alpha.nn.init.drawn", lambda tensor, draw: tensor)
    monkeypatch.setattr("alpha.nn.init.overwritten", lambda tensor, values: tensor)


def narrowed(net: Any, side: Any) -> Any:
    """AlexNet and VGG with hidden linear layers of few outputs, of which they have most of their weights."""
    if isinstance(net, torchvision_models().AlexNet | torchvision_models().VGG | models.AlexNet | models.VGG):
        linear = [place for place, layer in enumerate(net.classifier) if hasattr(layer, "in_features")]
        sizes = (net.classifier[linear[0]].in_features, 16, 12, 10)
        for place, size, following in zip(linear, sizes, sizes[1:], strict=False):
            net.classifier[place] = side.Linear(size, following)
    return net


def theirs(make: Make) -> Any:
    """torchvision's network in float64, with random weights and statistics of about the size that training gives."""
    import torch

    with torch.device("meta"):
        net = narrowed(make(torchvision_models()), torch.nn)
    if any(_IS_TABLE in key for key in net.state_dict()):
        net = make(torchvision_models())
    else:
        net = net.to_empty(device="cpu")
    net, generator = net.double(), torch.Generator().manual_seed(7)
    for key, tensor in net.state_dict().items():
        if _IS_TABLE in key and "bias" not in key:
            continue
        if key.endswith("num_batches_tracked"):
            tensor.zero_()
        elif key.endswith("running_var") or (tensor.ndim == 1 and key.endswith("weight")):
            tensor.uniform_(0.5, 1.5, generator=generator)
        else:
            fan_in = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 100
            tensor.normal_(0, math.sqrt(1.5 / fan_in), generator=generator)
    return net


def ours(make: Make, twin: Any, layout: str) -> Any:
    """Our network in float64 with the twin's state."""
    with alpha.set_image_layout(layout):
        net = narrowed(make(models), nn).double()
    state = twin.state_dict()
    net.load_state_dict(state if layout == "NCHW" else nn.models.from_torch(state, net))
    return net


def without_values(name: str, **options: Any) -> Any:
    """torchvision's network by name, whose tensors have shapes alone."""
    import torch

    parameters = torchvision_models().regnet.BlockParams
    choose = parameters.from_init_params

    def chosen(**sizes: Any) -> Any:
        with torch.device("cpu"):  # RegNet's sizes are computed with tensors
            return choose(**sizes)

    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        patch.setattr(parameters, "from_init_params", chosen)
        return torchvision_models().get_model(name, **options)


def images(size: int) -> Array:
    """(2, 3, size, size)"""
    return np.random.default_rng(5).standard_normal((2, 3, size, size))


def relative(found: Any, expected: Array) -> float:
    """The largest difference, in units of the largest expected value."""
    return float(np.abs(np.asarray(found, np.float64) - expected).max() / np.abs(expected).max())


def has_probability(part: Any) -> bool:
    """Whether a module leaves something out at random; MaxViT's have sizes of this name."""
    return isinstance(getattr(part, "p", None), float)


def shapes(net: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}


# -- the same network --------------------------------------------------------------------------------------------


@ORACLE
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", models.list_models())
def test_names_and_shapes_are_torchvisions(name: str) -> None:
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    expected = without_values(name, **options)
    net = models.get_model(name, layout="NCHW", **options)
    assert shapes(net) == shapes(expected)
    assert [name for name, _ in net.named_children()] == [name for name, _ in expected.named_children()]
    assert alpha.get_image_layout() == "NHWC"
    probabilities = [(part.p, part.training) for part in net.modules() if has_probability(part)]
    assert probabilities == [(part.p, part.training) for part in expected.modules() if has_probability(part)]
    eps = [(part.eps, getattr(part, "momentum", None)) for part in net.modules() if hasattr(part, "eps")]
    assert eps == [(part.eps, getattr(part, "momentum", None)) for part in expected.modules() if hasattr(part, "eps")]


@ORACLE
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", NETWORKS)
def test_logits(name: str) -> None:
    """In each layout in float64, and in float32."""
    import torch

    size, make = NETWORKS[name]
    twin, x = theirs(make).eval(), images(size)
    with torch.no_grad():
        expected = twin(torch.from_numpy(x)).numpy()
    first, last = ours(make, twin, "NCHW").eval(), ours(make, twin, "NHWC").eval()
    pixels = alpha.tensor(x)
    with alpha.no_grad():
        assert relative(first(pixels), expected) < 1e-9
        assert relative(last(pixels.permute(0, 2, 3, 1)), expected) < 1e-9
        assert relative(first.float()(pixels.float()), expected) < 1e-4


TRAINED = (
    "convnext",
    "densenet",
    "efficientnet",
    "googlenet",
    "maxvit",
    "mobilenet_v2",
    "regnet_y",
    "resnet50",
    "swin",
    "swin_v2",
    "vit",
)


@ORACLE
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", TRAINED)
def test_a_training_step(name: str) -> None:
    """Logits, gradients and running statistics in training mode, nothing left out at random."""
    import torch

    make = NETWORKS[name][1]
    twin, x = theirs(make).train(), images(32 if name in ("maxvit", "vit") else 64)
    net = ours(make, twin, "NCHW").train()
    for part in (*net.modules(), *twin.modules()):
        if has_probability(part):
            part.p = 0.0
    results = net(alpha.tensor(x)), twin(torch.from_numpy(x))
    if name == "googlenet":
        assert results[0]._fields == results[1]._fields
    for result in results:
        found = tuple(result) if isinstance(result, tuple) else (result,)
        sum((part * part).sum() for part in found).backward()
    gradients = dict(net.named_parameters())
    largest = max(float(parameter.grad.abs().max()) for parameter in twin.parameters())
    for key, parameter in twin.named_parameters():
        difference = np.abs(np.asarray(gradients[key].grad) - parameter.grad.numpy()).max()
        assert difference < 1e-9 * largest, key
    state = net.state_dict()
    for key, tensor in twin.state_dict().items():
        assert np.allclose(np.asarray(state[key]), tensor.numpy(), 1e-9, 1e-12), key


@ORACLE
def test_arguments_are_torchvisions() -> None:
    import torch

    def make(side: Any) -> Any:
        norm = partial((nn if side is models else torch.nn).GroupNorm, 2)
        return side.resnet18(num_classes=7, zero_init_residual=True, norm_layer=norm)

    twin, x = theirs(make).eval(), images(33)
    with torch.no_grad():
        expected = twin(torch.from_numpy(x)).numpy()
    net = ours(make, twin, "NCHW").eval()
    assert relative(net(alpha.tensor(x)).detach(), expected) < 1e-9
    zeros = make(models).layer3[1]
    assert (np.asarray(zeros.bn2.weight) == 0).all() and (np.asarray(zeros.bn1.weight) == 1).all()


DRAWN: dict[str, Make] = {
    **{name: make for name, (_, make) in NETWORKS.items() if name not in ("alexnet", "vgg", "vgg_bn")},
    "googlenet": lambda side: side.googlenet(init_weights=True),
    "inception": lambda side: side.inception_v3(init_weights=True),
}


@ORACLE
@pytest.mark.parametrize("name", DRAWN)
def test_first_weights_are_distributed_as_torchvisions(name: str) -> None:
    """Means, deviations and largest values; what is constant is equal."""
    import torch

    torch.manual_seed(0)
    alpha.manual_seed(0)
    twin, net = DRAWN[name](torchvision_models()), DRAWN[name](models).state_dict()
    for key, tensor in twin.state_dict().items():
        expected, found = tensor.numpy(), np.asarray(net[key])
        if found.ndim > 1 and found.size > 500 and expected.std() > 0:
            tolerance = 6 / math.sqrt(found.size)
            assert found.std() == pytest.approx(expected.std(), rel=tolerance), key
            assert abs(found.mean()) < tolerance * expected.std(), key
            assert np.abs(found).max() < 1.5 * np.abs(expected).max(), key
        elif expected.size > 2 and expected.std() == 0:
            assert (found == expected.flat[0]).all(), key


# -- what a user meets -------------------------------------------------------------------------------------------


def test_models_by_name() -> None:
    assert models.list_models(include="resnet*") == ["resnet101", "resnet152", "resnet18", "resnet34", "resnet50"]
    assert models.list_models(models.vgg, exclude=["*_bn", "vgg1[13]"]) == ["vgg16", "vgg19"]
    assert models.get_model_builder("SqueezeNet1_1") is models.squeezenet1_1
    assert len(models.get_model("squeezenet1_1", num_classes=3)(alpha.zeros((1, 33, 33, 3)))[0]) == 3
    callables = {name for name, value in vars(models).items() if name.islower() and callable(value)}
    assert {name for name in callables if not name.startswith("_")} == {
        *models.list_models(),
        "get_model",
        "get_model_builder",
        "list_models",
    }


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.resnet18(weights="IMAGENET1K_V1"), "[resnet18] expected weights=None, got 'IMAGENET1K_V1'"),
        (lambda: models.vgg11(pretrained=True), "[vgg11] expected weights=None, got True: weights are not downloaded"),
        (lambda: models.get_model("resnet19"), "[get_model] expected the name of a network, got 'resnet19'"),
        (lambda: models.get_model(18), "[get_model] expected the name of a network, got 18"),
        (lambda: models.alexnet(layout="CHWN"), '[alexnet] expected the layout "NHWC" or "NCHW", got'),
        (lambda: models.alexnet(num_classes=0), "[Linear] expected out_features as an integer >= 1, got 0"),
        (lambda: models.resnet18(groups=2), "[BasicBlock] expected groups=1, base_width=64 and dilation=1, got"),
        (lambda: models.resnet50(replace_stride_with_dilation=[True]), "[ResNet] expected replace_stride_with_"),
        (lambda: models.ResNet(models.resnet.BasicBlock, [1, 1]), "[ResNet] expected layers as the blocks of four"),
        (lambda: models.vgg.make_layers([8, "P"]), '[make_layers] expected cfg, apart from "M", as an integer >= 1'),
        (lambda: models.mobilenet_v2(width_mult="1"), "[make_divisible] expected a number of channels as a number"),
        (lambda: models.mobilenet_v3_small(width_mult=-1), "[make_divisible] expected a positive number of channels"),
        (lambda: models.vit_b_16(patch_size=0), "[VisionTransformer] expected patch_size as an integer >= 1, got 0"),
        (lambda: models.SqueezeNet("2_0"), '[SqueezeNet] expected version as one of "1_0", "1_1", got'),
        (lambda: models.densenet121(drop_rate=2), "[DenseNet] expected drop_rate from 0 to 1, got 2"),
        (lambda: models.googlenet(blocks=[nn.Conv2d]), "[GoogLeNet] expected blocks as three classes, got 1"),
        (lambda: models.inception_v3(inception_blocks=[]), "[Inception3] expected inception_blocks as seven classes"),
        (lambda: models.mobilenet_v2(inverted_residual_setting=[[1]]), "[MobileNetV2] expected inverted_residual_"),
        (lambda: models.MobileNetV3([], 8), "[MobileNetV3] expected inverted_residual_setting with at least one"),
        (lambda: models.EfficientNet([], 0.1), "[EfficientNet] expected inverted_residual_setting with at least one"),
        (lambda: models.ConvNeXt([]), "[ConvNeXt] expected block_setting with at least one stage, got none"),
        (lambda: models.maxvit_t(input_size=(200, 224)), "[MaxVit] expected partition_size that divides each block's"),
        (lambda: models.MaxVit((32, 32), 8, 2, [8], [1, 1], 4, 0.2), "[MaxVit] expected block_channels and block_lay"),
        (lambda: models.swin_t(depths=[2, 2]), "[SwinTransformer] expected depths and num_heads with a number for"),
        (lambda: models.swin_t(num_heads=[5, 6, 12, 24]), "[ShiftedWindowAttention] expected num_heads that divides"),
        (lambda: models.regnet.BlockParams.from_init_params(3, 9, 1, 2, 8), "[BlockParams] expected w_a >= 0, w_m > 1"),
        (lambda: models.RegNet(models.regnet.BlockParams([1], [16, 8], [8], [1], [2])), "[RegNet] expected block_par"),
        (lambda: models.RegNet(models.regnet.BlockParams([1], [20], [8], [1], [2])), "[BottleneckTransform] expected"),
        (lambda: models.vit_b_16(image_size=100), "[VisionTransformer] expected image_size as a multiple of patch"),
        (lambda: models.vision_transformer.SelfAttention(8, 3), "[SelfAttention] expected num_heads that divides"),
        (lambda: models.MNASNet(0), "[MNASNet] expected alpha > 0, got 0"),
        (lambda: models.ShuffleNetV2([1], [1]), "[ShuffleNetV2] expected three stages_repeats and five stages_out"),
        (lambda: models.shufflenetv2.InvertedResidual(4, 6, 1), "[InvertedResidual] expected a stride from 1 to 3"),
        (lambda: models.mobilenetv2.InvertedResidual(4, 4, 3, 1), "[InvertedResidual] expected stride as 1 or 2"),
        (lambda: parts.stochastic_depth(alpha.ones(2), 2, "row"), "[stochastic_depth] expected p from 0 to 1, got 2"),
        (lambda: parts.StochasticDepth(0.5, "column"), '[StochasticDepth] expected mode as one of "batch", "row", got'),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(message)


@pytest.mark.usefixtures("undrawn")
def test_images_and_states_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"expected images of 32 x 32 pixels, got \(1, 30, 32, 3\)"):
        transformer(models)(alpha.zeros((1, 30, 32, 3)))
    with pytest.raises(ShapeError, match=r"\[Encoder\] expected tokens \(N, S, hidden_dim\), got \(4, 24\)"):
        transformer(models).encoder(alpha.zeros((4, 24)))
    with pytest.raises(CheckpointError, match=r"missing: conv1\.weight"):
        models.resnet18().load_state_dict({"fc.bias": np.zeros(1000)})


@pytest.mark.parametrize(
    ("make", "new", "old"),
    [
        (lambda: models.DenseNet(4, (1,), 8), "denselayer1.norm1.", "denselayer1.norm.1."),
        (lambda: models.DenseNet(4, (1,), 8), "denselayer1.conv2.", "denselayer1.conv.2."),
        (lambda: transformer(models), "mlp.0.", "mlp.linear_1."),
        (lambda: transformer(models), "mlp.3.", "mlp.linear_2."),
    ],
)
def test_published_files_of_older_versions(make: Callable[[], nn.Module], new: str, old: str) -> None:
    """torchvision's files for DenseNet and ViT hold names that its classes had before."""
    with alpha.set_image_layout("NCHW"):
        net, other = make(), make().state_dict()
    renamed = {key.replace(new, old): np.asarray(tensor) for key, tensor in other.items()}
    assert set(renamed) != set(other)
    net.load_state_dict(renamed)
    assert all((np.asarray(tensor) == np.asarray(other[key])).all() for key, tensor in net.state_dict().items())
    assert set(nn.models.from_torch(renamed, net)) == set(other)


def test_a_users_activation_and_hooks_count() -> None:
    """Fusing leaves nothing out: a hook on a ReLU is called, and another activation in its place computes."""
    net = resnet(models).eval()
    x, seen = alpha.tensor(images(33).transpose(0, 2, 3, 1)).float(), []
    with alpha.no_grad():
        before = np.asarray(net(x))
        with net.relu.register_forward_hook(lambda module, args, result: seen.append(result.shape)):
            hooked = np.asarray(net(x))
        net.layer2[1].relu = nn.Tanh()
        after = np.asarray(net(x))
    assert seen == [(2, 17, 17, 64)]
    assert relative(hooked, before) < 1e-5
    assert relative(after, before) > 1e-3


def test_stochastic_depth() -> None:
    alpha.manual_seed(0)
    x = alpha.ones((4000, 2, 1), requires_grad=True)
    rows = np.asarray(parts.stochastic_depth(x, 0.25, "row").detach())
    assert set(np.unique(rows)) == {np.float32(0), np.float32(1 / 0.75)}
    assert (rows[:, 0] == rows[:, 1]).all()
    assert (rows == 0).mean() == pytest.approx(0.25, abs=0.03)
    whole = np.asarray(parts.stochastic_depth(x, 0.5, "batch").detach())
    assert len(np.unique(whole)) == 1
    assert (np.asarray(parts.stochastic_depth(x, 1.0, "row").detach()) == 0).all()
    assert parts.StochasticDepth(0.5, "row").eval()(x) is x
