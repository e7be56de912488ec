"""The recipes of train_cifar10.py: what each sets, and the parts of training that it takes from the settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import common
import numpy as np

from alpha import datasets, nn, optim
from alpha.errors import ArgumentError

RECIPES: dict[str, common.Settings] = {
    "paper": {},
    "modern": {
        "style": "torchvision",
        "stem": "3x3",
        "augment": True,
        "epochs": 30,
        "optimizer": "nesterov",
        "lr": 0.1,
        "schedule": "one-cycle",
        "weight_decay": 5e-4,
        "label_smoothing": 0.1,
        "average": 0.999,
    },
    "fast": {
        "model": "airbench",
        "style": "fast",
        "augment": "alternating",
        "batch_size": 2000,
        "epochs": 8,
        "optimizer": "muon",
        "lr": 0.24,
        "schedule": "linear",
        "label_smoothing": 0.2,
    },
}
"""What a recipe sets where the command line says nothing.

paper: the networks and settings of Zhang et al., arXiv 2306.15951. modern: ResNet18 for small images with cropped and
mirrored images, SGD with Nesterov's momentum, one cycle of the learning rate, label smoothing, weight decay and an
average of the weights, that is tested. fast: Jordan's small network and training, arXiv 2404.00498, with Muon for its
filters: whitened patches, shifts with reflected edges, flips that alternate between epochs, rates that fall linearly,
and six views of each test image.
"""

PARTS = {
    "modern": ("style",),
    "fast": ("model", "style", "stem", "augment", "optimizer", "schedule", "weight_decay", "average"),
}
"""Options that are part of a recipe: another value is not that recipe."""

NETWORKS = {"modern": ("resnet18", "resnet34")}
"""The networks that a recipe is for, where it is not for all."""

SCHEDULES = ("constant", "one-cycle")

# Jordan's rates of the fast recipe are for a loss that is a sum over a batch: for our mean they are multiplied by the
# batch's size. The linear layer's is for logits that are a ninth of its result.
_BIAS_LR, _HEAD_LR = 0.053, 8.3e-4
_DECAY = 2e-6  # what a rate and its weight decay multiply to
_WHITENING_EPOCHS = 3  # how long the whitening layer's bias trains
_WHITENING_IMAGES = 5000
_WHITENING_EPS = 1.25e-4  # 5e-4 for pixels of variance 1; in -1..1 they have a quarter of it


def check_options(given: Mapping[str, Any], recipe: str) -> None:
    """ArgumentError where the command line contradicts the recipe that it names."""
    for name in PARTS.get(recipe, ()):
        wanted = RECIPES[recipe].get(name)
        if given[name] is not None and given[name] != wanted:
            option = name.replace("_", "-")
            raise ArgumentError(
                f"[--recipe] expected no --{option} with the recipe {recipe}, which has its own, got {given[name]}: "
                f"leave --{option} or --recipe out"
            )
    networks = NETWORKS.get(recipe)
    if networks is not None and given["model"] not in (None, *networks):
        raise ArgumentError(
            f"[--recipe] expected --model {' or '.join(networks)} with the recipe {recipe}, got {given['model']}: "
            "choose one of them, or leave --recipe out"
        )


def prepare(net: nn.Module, data: datasets.ArrayDataset) -> None:
    """What a new network learns of the training images before it trains: the filters that whiten their patches."""
    if isinstance(net, nn.models.Airbench):
        pixels = data.images[:_WHITENING_IMAGES]
        net.whiten(datasets.transforms.ToUnitRange()(pixels, np.random.default_rng()), _WHITENING_EPS)


def tested(settings: common.Settings, net: nn.Module) -> nn.Module:
    """The network as the recipe tests it."""
    if settings.get("recipe") != "fast":
        return net
    return nn.AveragedViews(net, mirror=settings["dataset"] != "digits")


def make_optimizers(settings: common.Settings, net: nn.Module) -> list[optim.Optimizer]:
    """The optimizers, that of most parameters first."""
    if settings["optimizer"] == "muon":
        return _make_fast_optimizers(settings, net)
    return [_make_optimizer(settings, net)]


def _make_fast_optimizers(settings: common.Settings, net: nn.Module) -> list[optim.Optimizer]:
    """Muon for the filters; SGD for the whitening layer's bias, the others, and the linear layer, in this order."""
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    filters = [p for p in trained.values() if p.ndim == 4]
    muon = optim.Muon(filters, settings["lr"], 0.0, momentum=0.6, nesterov=True, ns_steps=3, rescale=True)
    whitening = trained.pop("whitening.bias")
    biases = [p for p in trained.values() if p.ndim == 1]
    heads = [p for p in trained.values() if p.ndim == 2]
    images = settings["batch_size"]
    groups = [
        {"params": params, "lr": lr * images, "weight_decay": _DECAY / lr}
        for params, lr in (([whitening], _BIAS_LR), (biases, _BIAS_LR), (heads, _HEAD_LR))
    ]
    return [muon, optim.SGD(groups, momentum=0.85, nesterov=True)]


def _make_optimizer(settings: common.Settings, net: nn.Module) -> optim.Optimizer:
    """One optimizer; weight decay, where the settings say some, is of matrices and filters, not of vectors."""
    make = common.OPTIMIZERS[settings["optimizer"]]
    if settings["weight_decay"] is None:
        return make(net.parameters(), lr=settings["lr"])
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    return make([group for group in groups if group["params"]], lr=settings["lr"])


def make_schedules(
    settings: common.Settings, optimizers: Sequence[optim.Optimizer], batches: int
) -> list[optim.LRScheduler]:
    """A schedule of the learning rate for each optimizer, for epochs of so many batches; none where it is constant."""
    steps = settings["epochs"] * batches
    if settings["schedule"] == "one-cycle":
        return [optim.OneCycleLR(one, settings["lr"], steps, cycle_momentum=False) for one in optimizers]
    if settings["schedule"] == "linear":
        muon, sgd = optimizers
        falling = partial(_falling, steps)
        whitening = partial(_falling, min(_WHITENING_EPOCHS * batches, steps))
        return [optim.LambdaLR(muon, falling), optim.LambdaLR(sgd, [whitening, falling, falling])]
    return []


def freeze_resting(settings: common.Settings, optimizers: Sequence[optim.Optimizer]) -> None:
    """Parameters whose rate has fallen to 0 need no gradients any more, nor do the layers before them."""
    if settings["schedule"] == "linear":
        for group in [group for optimizer in optimizers for group in optimizer.param_groups if group["lr"] == 0]:
            for p in group["params"]:
                p.requires_grad_(False)


def _falling(steps: int, step: int) -> float:
    """From 1 to 0 in so many steps."""
    return max(0.0, 1 - step / steps)


def make_average(settings: common.Settings, net: nn.Module) -> optim.AveragedModel[nn.Module] | None:
    """The average of the network's weights and statistics; None where the settings want none."""
    if not settings["average"]:
        return None
    return optim.AveragedModel(net, settings["average"], use_buffers=True)


def add_options(parser: common.Parser, default: Any) -> None:
    """The recipe's options; ``default(text, option)`` says a help text with the option's default."""
    group = parser.add_argument_group("recipe")
    group.add_argument("--recipe", choices=RECIPES, help=default("sets what the options below do not", "recipe"))
    group.add_argument("--schedule", choices=SCHEDULES, help=default("of the learning rate", "schedule"))
    group.add_argument(
        "--weight-decay", metavar="X", type=common.non_negative, help="of filters (default: the optimizer's own)"
    )
    group.add_argument("--label-smoothing", metavar="X", type=share, help=default("0..1", "label_smoothing"))
    group.add_argument(
        "--average", metavar="DECAY", type=share, help=default("test an average of the weights; 0: none", "average")
    )


def share(text: str) -> float:
    """A number in 0..1, for argparse."""
    value = common.non_negative(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"expected a number in 0..1, got {text!r}")
    return value
