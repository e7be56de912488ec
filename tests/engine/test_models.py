"""The networks: sizes, names, values and gradients against the same networks in PyTorch, weights both ways."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError, ShapeError
from tests.engine.checks import sized

NAMES = ("resnet18", "resnet34", "vgg16", "vgg19")
HEADS = {"cifar10": 10, "ilsvrc2012": 1000}
"""The paper's heads, and the classes of the data sets that they are for."""
PAPER_COUNTS = {
    "cifar10": {"resnet18": 12_619_722, "resnet34": 22_868_810, "vgg16": 14_878_922, "vgg19": 20_187_338},
    "ilsvrc2012": {"resnet18": 13_328_424, "resnet34": 23_510_568, "vgg16": 58_711_592, "vgg19": 64_020_008},
}
PAPER_MIB = {
    "cifar10": {"resnet18": 48.2, "resnet34": 87.3, "vgg16": 56.7, "vgg19": 77.0},
    "ilsvrc2012": {"resnet18": 50.9, "resnet34": 89.8, "vgg16": 223.0, "vgg19": 244.0},
}
"""Sizes of the weights as published (Zhang et al., arXiv 2306.15951, Table V)."""
TORCHVISION_COUNTS = {"resnet18": 11_689_512, "resnet34": 21_797_672, "vgg16": 138_357_544, "vgg19": 143_667_240}


def make(name: str, style: str = "paper", **options: Any) -> nn.Module:
    net = getattr(nn.models, name)(style=style, **options)
    assert isinstance(net, nn.Module)
    return net


def twin(name: str, style: str = "paper", **options: Any) -> Any:
    return importlib.import_module("benchmarks.torch_models").torch_twin(name, style, **options)


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


# -- sizes and names ---------------------------------------------------------------------------------------------


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves weights uninitialised: their memory is never touched, so the largest networks cost nothing."""
    monkeypatch.setattr("alpha.nn.init.drawn", lambda tensor, draw: tensor)
    monkeypatch.setattr("alpha.nn.init.overwritten", lambda tensor, values: tensor)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", NAMES)
def test_parameter_counts(name: str) -> None:
    assert count(make(name)) == PAPER_COUNTS["cifar10"][name]
    assert count(make(name, num_classes=1000, head="ilsvrc2012")) == PAPER_COUNTS["ilsvrc2012"][name]
    assert count(make(name, "torchvision", num_classes=1000)) == TORCHVISION_COUNTS[name]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_published_sizes(name: str, head: str) -> None:
    """With or without BatchNorm's running statistics the weights are within 0.5 % of the paper's MiB.

    The paper does not say which it counts. With the statistics, and 300 to 500 bytes per tensor for its name and shape
    in a file, all eight sizes come out digit for digit, cut to three digits; without them that would take about 1,100
    bytes per tensor. The published digits cannot tell whether the linear layers have biases: those of the VGGs' hidden
    ones are 0.01 % of the weights. Here all linear layers have them.
    """
    net = make(name, num_classes=HEADS[head], head=head)
    published = PAPER_MIB[head][name]
    state = {key: tensor for key, tensor in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    assert 4 * count(net) / 2**20 == pytest.approx(published, rel=0.005)
    assert sum(tensor.numel() * 4 for tensor in state.values()) / 2**20 == pytest.approx(published, rel=0.005)
    for file_header in (300, 500):  # bytes per tensor
        size = sum(4 * tensor.numel() + file_header for tensor in state.values()) / 2**20
        digits = 1 if size < 100 else 0
        assert int(size * 10**digits) / 10**digits == published


def test_the_papers_networks_layer_by_layer() -> None:
    """No convolution has a bias, every linear layer has one, and where dropout, BatchNorm and LeakyReLU stand."""
    for name, head in ((name, head) for name in NAMES for head in HEADS):
        modules = list(make(name, base_width=1, head=head).modules())
        assert all(conv.bias is None for conv in modules if isinstance(conv, nn.Conv2d))
        assert all(linear.bias is not None for linear in modules if isinstance(linear, nn.Linear))
        assert all(act.negative_slope == 0.01 for act in modules if isinstance(act, nn.LeakyReLU))
        assert all((bn.eps, bn.momentum) == (1e-5, 0.1) for bn in modules if isinstance(bn, nn.BatchNorm2d))
    vgg = make("vgg16", base_width=2, head="ilsvrc2012", num_classes=7)
    conv, bn, act, pool, linear, drop = "Conv2d", "BatchNorm2d", "LeakyReLU", "MaxPool2d", "Linear", "Dropout"
    pair = [conv, act, conv, bn, act, pool]
    assert kinds(vgg.features) == pair * 2 + [conv, act, *pair] * 3
    assert kinds(vgg.classifier) == [linear, act, drop, linear, act, drop, linear]
    assert widths(vgg.classifier) == [8 * 2 * 16, 128, 64, 7]
    assert widths(make("vgg19").classifier) == [512, 256, 128, 10]
    for name, hidden in (("resnet18", 128), ("resnet34", 256)):
        resnet = make(name)
        assert kinds(resnet.fc) == [drop, linear, act, drop, linear]
        assert widths(resnet.fc) == [512, hidden, 10]
        assert widths(make(name, head="ilsvrc2012", num_classes=3).fc) == [512, 512, 3]
        assert resnet.conv1.kernel_size == (7, 7) and resnet.conv1.stride == (2, 2)


def kinds(row: Any) -> list[str]:
    return [type(module).__name__ for module in row]


def widths(head: Any) -> list[int]:
    """What a head's first linear layer takes, and what each of its linear layers gives."""
    linears = [module for module in head if isinstance(module, nn.Linear)]
    return [linears[0].in_features, *(linear.out_features for linear in linears)]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("style", "options"), [("paper", {}), ("paper", {"head": "ilsvrc2012"}), ("torchvision", {})])
@pytest.mark.parametrize("name", NAMES)
def test_state_has_the_twins_names_and_shapes_in_its_order(name: str, style: str, options: dict[str, Any]) -> None:
    theirs = twin(name, style, base_width=4, **options).state_dict()
    ours = nn.models.to_torch(make(name, style, base_width=4, **options))
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        assert ours[key].shape == value.shape and ours[key].dtype == value.dtype, key


def test_names_are_torchvisions() -> None:
    """A few that torchvision's published weights have, spelled out: the twin is ours too and proves nothing here."""
    resnet = make("resnet18", "torchvision", base_width=4).state_dict()
    for key in ("conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight", "fc.bias"):
        assert key in resnet
    assert len([key for key in resnet if "downsample" in key]) == 3 * 6
    vgg16, vgg19 = (make(name, "torchvision", base_width=1).state_dict() for name in ("vgg16", "vgg19"))
    assert [key for key in vgg16 if key.endswith("weight")] == [
        *(f"features.{i}.weight" for i in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)),
        *(f"classifier.{i}.weight" for i in (0, 3, 6)),
    ]
    assert "features.34.bias" in vgg19


# -- values and gradients ----------------------------------------------------------------------------------------


CASES = [
    *((name, "paper", 32, {}) for name in NAMES),
    ("resnet18", "torchvision", 64, {}),
    ("resnet18", "torchvision", 32, {"stem": "3x3"}),
    ("resnet34", "torchvision", 64, {}),
    ("vgg16", "torchvision", 64, {}),
    ("vgg19", "torchvision", 64, {}),
    ("resnet18", "paper", 64, {"head": "ilsvrc2012"}),
    ("resnet34", "paper", 32, {"head": "ilsvrc2012"}),
    ("vgg16", "paper", 64, {"head": "ilsvrc2012", "image_size": 64}),
    ("vgg19", "paper", 64, {"head": "ilsvrc2012", "image_size": 64}),
]
EVALUATED = [
    *(CASES[index] for index in (0, 2, 4, 5, 7)),
    ("resnet34", "paper", 128, {"head": "ilsvrc2012"}),
    ("vgg16", "paper", 128, {"head": "ilsvrc2012"}),
    ("vgg19", "paper", 64, {"image_size": 64}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "style", "size", "options"), CASES)
def test_loss_gradients_and_statistics_match_the_twin(
    engine: Engine, rng: np.random.Generator, name: str, style: str, size: int, options: dict[str, Any]
) -> None:
    """float64, so that both differ by rounding of about 1e-16 per step alone, through at most 34 layers."""
    import torch

    options = {"base_width": sized(engine, 8, 4), "num_classes": 5, "dropout": 0.0, **options}
    ours = make(name, style, **options).to(engine).to(alpha.float64)
    theirs = twin(name, style, **options).double()
    theirs.load_state_dict(nn.models.to_torch(ours))
    size = options.get("image_size", sized(engine, size, 32))
    x, labels = rng.normal(size=(4, size, size, 3)), rng.integers(0, 5, 4)
    x_ours = alpha.tensor(x, engine=engine, requires_grad=True)
    other = torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).requires_grad_()
    loss = nn.functional.cross_entropy(ours(x_ours), alpha.tensor(labels, engine=engine))
    expected = torch.nn.functional.cross_entropy(theirs(other), torch.from_numpy(labels))
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    close("input", x_ours.grad, other.grad.numpy().transpose(0, 2, 3, 1))
    gradients = nn.models.from_torch({key: p.grad for key, p in theirs.named_parameters()}, flattened_maps=maps(ours))
    for key, parameter in ours.named_parameters():
        close(key, parameter.grad, gradients[key])
    state = nn.models.from_torch(theirs.state_dict(), ours)
    for key, buffer in ours.named_buffers():
        close(key, buffer, state[key])


def maps(net: nn.Module) -> dict[str, tuple[int, int]]:
    return getattr(net, "flattened_maps", {})


def close(name: str, actual: Any, expected: Any) -> None:
    """Within 1e-9 of the tensor's largest value; 1e-13 for those that are 0 but for rounding (a bias before a BN)."""
    limit = 1e-9 * np.abs(expected).max() + 1e-13
    assert actual is not None and np.abs(np.asarray(actual) - expected).max() <= limit, name


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "style", "size", "options"), EVALUATED)
def test_evaluation_matches_the_twin_after_weights_came_from_it(
    engine: Engine, rng: np.random.Generator, name: str, style: str, size: int, options: dict[str, Any]
) -> None:
    import torch

    options = {"base_width": 4, "num_classes": 7, **options}
    theirs, ours = twin(name, style, **options).double().eval(), make(name, style, **options).to(engine)
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # other statistics than the initial ones
            module.running_mean.copy_(torch.from_numpy(rng.normal(0, 0.1, module.num_features)))
            module.running_var.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, module.num_features)))
    ours.to(alpha.float64).load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    x = rng.normal(size=(2, size, size, 3))
    with alpha.no_grad():
        result = ours.eval()(alpha.tensor(x, engine=engine)).numpy()
    expected = theirs(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).detach().numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_dropout_works_in_training_alone(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.normal(size=(2, 32, 32, 3)).astype(np.float32), engine=engine)
    for name in ("resnet18", "vgg16"):
        net = make(name, base_width=4).to(engine)
        assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.1, 0.1]
        with alpha.no_grad():
            first, second = net(x).numpy().copy(), net(x).numpy().copy()
            assert not np.array_equal(first, second)
            net.eval()
            np.testing.assert_array_equal(net(x).numpy().copy(), net(x).numpy())


def test_initialisation_by_style() -> None:
    alpha.manual_seed(0)
    paper, torchvision = make("resnet18"), make("resnet18", "torchvision")
    # kaiming-uniform with a = sqrt(5): std 1/sqrt(3 fan_in); kaiming-normal over fan_out: sqrt(2 / fan_out).
    assert np.asarray(paper.layer1[0].conv1.weight).std() == pytest.approx((3 * 576) ** -0.5, rel=0.02)
    assert np.asarray(torchvision.layer1[0].conv1.weight).std() == pytest.approx((2 / 576) ** 0.5, rel=0.02)
    assert np.asarray(torchvision.conv1.weight).std() == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.05)
    vgg = make("vgg16", "torchvision", base_width=8)
    assert np.asarray(vgg.classifier[0].weight).std() == pytest.approx(0.01, rel=0.01)
    assert not np.asarray(vgg.classifier[0].bias).any() and not np.asarray(vgg.features[0].bias).any()


# -- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "style"), [("resnet18", "paper"), ("vgg16", "torchvision")])
def test_weights_go_to_torch_and_back(name: str, style: str) -> None:
    net = make(name, style, base_width=4)
    back = nn.models.from_torch(nn.models.to_torch(net), net)
    assert list(back) == list(net.state_dict())
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(back[key], value.numpy())
        assert not np.shares_memory(back[key], value.numpy())


def test_weights_without_torch_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    net = nn.Sequential(nn.Conv2d(2, 3, (4, 5)), nn.ConvTranspose2d(3, 2, (4, 5)), nn.BatchNorm2d(2))
    arrays = nn.models.to_torch(net)
    assert all(isinstance(value, np.ndarray) for value in arrays.values())
    assert arrays["0.weight"].shape == (3, 2, 4, 5) and arrays["1.weight"].shape == (3, 2, 4, 5)
    assert arrays["2.num_batches_tracked"].shape == () and arrays["2.num_batches_tracked"].dtype == np.int64
    np.testing.assert_array_equal(arrays["0.weight"], np.asarray(net[0].weight).transpose(0, 3, 1, 2))
    for key, value in nn.models.from_torch(arrays).items():
        np.testing.assert_array_equal(value, np.asarray(net.state_dict()[key]))


@pytest.mark.needs("torch")
def test_a_linear_layer_behind_flattened_maps_is_reordered(engine: Engine, rng: np.random.Generator) -> None:
    import torch

    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 2 * 3, 5)).double()
    ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 2 * 3, 5)).to(engine).to(alpha.float64)
    x = rng.normal(size=(2, 4, 5, 3))
    expected = theirs(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).detach().numpy()
    where = {"2": (2, 3)}
    for module in (ours, None):
        ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), module, flattened_maps=where))
        np.testing.assert_allclose(np.asarray(ours(alpha.tensor(x, engine=engine))), expected, rtol=1e-12, atol=1e-14)
    for key, value in nn.models.to_torch(ours, flattened_maps=where).items():
        assert torch.equal(value, theirs.state_dict()[key])
    with pytest.raises(ArgumentError, match=r"\[from_torch\] expected flattened_maps for 2: its 24 inputs may be maps"):
        nn.models.from_torch(theirs.state_dict(), ours)
    assert set(nn.models.from_torch(theirs.state_dict(), ours, flattened_maps={})) == set(ours.state_dict())
    with pytest.raises(ArgumentError, match=r"inputs are maps of 35 positions for 2\.weight, got shape \(5, 24\)"):
        nn.models.from_torch(theirs.state_dict(), ours, flattened_maps={"2": (5, 7)})


@pytest.mark.needs("torch")
@pytest.mark.parametrize("momentum", [0.1, None])
def test_the_count_of_batches_is_kept(momentum: float | None) -> None:
    import torch

    theirs = torch.nn.BatchNorm2d(3, momentum=momentum)
    theirs(torch.ones(2, 3, 4, 4))
    ours = nn.BatchNorm2d(3, momentum=momentum)
    ours(alpha.ones(2, 4, 4, 3))
    assert int(ours.num_batches_tracked) == int(theirs.num_batches_tracked) == 1
    ours.eval()(alpha.ones(2, 4, 4, 3))
    theirs.train()(torch.ones(2, 3, 4, 4))
    assert int(ours.num_batches_tracked) == 1
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    assert int(ours.num_batches_tracked) == int(nn.models.to_torch(ours)["num_batches_tracked"]) == 2
    assert int(nn.models.from_torch(theirs.state_dict())["num_batches_tracked"]) == 2


def test_a_state_from_before_batches_were_counted_leaves_the_count() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    net(alpha.ones(2, 4, 4, 3))
    state = net.state_dict()
    older = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert net.load_state_dict(older).missing_keys == []
    assert int(net[0].num_batches_tracked) == 1
    with pytest.raises(CheckpointError, match=r"missing: 1\.num_batches_tracked"):
        net.load_state_dict({key: value for key, value in state.items() if key != "1.num_batches_tracked"})


@pytest.mark.needs("torch")
def test_half_precision_weights_are_widened() -> None:
    import torch

    for dtype in (torch.bfloat16, torch.float16):
        arrays = nn.models.from_torch(torch.nn.Linear(3, 2).to(dtype).state_dict())
        assert all(value.dtype == np.float32 for value in arrays.values())


def test_weights_of_another_model_are_refused() -> None:
    net = make("resnet18", base_width=4)
    with pytest.raises(CheckpointError) as caught:
        nn.models.from_torch(nn.models.to_torch(make("resnet18", base_width=8)), net)
    assert str(caught.value).startswith("[from_torch] expected the state of this ResNet, got another's (misshaped: ")
    assert "conv1.weight expected (4, 7, 7, 3), got (8, 7, 7, 3)" in str(caught.value)
    with pytest.raises(ArgumentError, match=r"\[from_torch\] expected tensors by name, got dict for 'model'"):
        nn.models.from_torch({"model": {}}, net)


def test_state_survives_a_file(tmp_path: Path) -> None:
    first, second = make("vgg16", base_width=4), make("vgg16", base_width=4)
    alpha.save(first.state_dict(), tmp_path / "vgg.safetensors")
    second.load_state_dict(alpha.load(tmp_path / "vgg.safetensors"))
    for key, value in first.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[key].numpy(), value.numpy())


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.models.resnet18(style="big"), '[resnet18] expected style as one of "paper", "torchvision", got'),
        (lambda: nn.models.vgg19(style="bn"), '[vgg19] expected style as one of "paper", "torchvision", got'),
        (lambda: nn.models.resnet18(stem="3x3"), '[resnet18] expected no stem with style="paper"'),
        (
            lambda: nn.models.resnet34(style="torchvision", stem="5x5"),
            '[resnet34] expected stem as one of "7x7", "3x3"',
        ),
        (lambda: nn.models.resnet34(style="torchvision", dropout=0.1), "[resnet34] expected no dropout with style="),
        (lambda: nn.models.resnet34(head="mnist"), '[resnet34] expected head as one of "cifar10", "ilsvrc2012", got'),
        (lambda: nn.models.vgg16(head="imagenet"), '[vgg16] expected head as one of "cifar10", "ilsvrc2012", got'),
        (
            lambda: nn.models.resnet18(style="torchvision", head="cifar10"),
            "[resnet18] expected no head with style=\"torchvision\", which has its own, got 'cifar10'",
        ),
        (
            lambda: nn.models.vgg19(style="torchvision", head="ilsvrc2012"),
            "[vgg19] expected no head with style=\"torchvision\", which has its own, got 'ilsvrc2012'",
        ),
        (
            lambda: nn.models.vgg16(head="ilsvrc2012", image_size=48),
            "[vgg16] expected image_size to be a multiple of 32",
        ),
        (lambda: nn.models.vgg16(num_classes=0), "[vgg16] expected num_classes as an integer >= 1, got 0"),
        (lambda: nn.models.vgg16(base_width=1.5), "[vgg16] expected base_width as an integer >= 1, got 1.5"),
        (lambda: nn.models.vgg16(dropout=2), "[Dropout] expected p from 0 to 1, got 2"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_images_of_a_wrong_size_are_refused(engine: Engine) -> None:
    x = alpha.tensor(np.zeros((2, 64, 64, 3), np.float32), engine=engine)
    for head in HEADS:  # for images of 32 x 32, and of 128 x 128
        with pytest.raises(ShapeError, match=r"\[linear\]"):
            make("vgg16", base_width=4, head=head).to(engine)(x)


@pytest.mark.needs("torch")
def test_the_twin_says_what_it_knows_and_that_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in (("alexnet", {}), ("vgg16", {"head": "mnist"})):
        with pytest.raises(ArgumentError, match=r"\[torch_twin\] expected resnet18, resnet34, vgg16 or vgg19"):
            twin(name, **options)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.torch_models")
    with pytest.raises(ImportError, match=r"\[torch_models\] expected PyTorch to compare with, got none: pip install"):
        importlib.import_module("benchmarks.torch_models")
