"""The recipes of train_cifar10.py: what each sets, and the parts of training that it takes from the settings."""

from __future__ import annotations

import argparse
from typing import Any

import common

from alpha import nn, optim

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
}
"""What a recipe sets where the command line says nothing.

paper: the networks and settings of Zhang et al., arXiv 2306.15951. modern: ResNet18 for small images with cropped and
mirrored images, SGD with Nesterov's momentum, one cycle of the learning rate, label smoothing, weight decay and an
average of the weights, that is tested.
"""

SCHEDULES = ("constant", "one-cycle")


def make_optimizer(settings: common.Settings, net: nn.Module) -> optim.Optimizer:
    """The optimizer; weight decay, where the settings say some, is of matrices and filters, not of vectors."""
    make = common.OPTIMIZERS[settings["optimizer"]]
    if settings["weight_decay"] is None:
        return make(net.parameters(), lr=settings["lr"])
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    return make([group for group in groups if group["params"]], lr=settings["lr"])


def make_schedule(
    settings: common.Settings, optimizer: optim.Optimizer, steps: int
) -> optim.lr_scheduler.LRScheduler | None:
    """The schedule of the learning rate over so many steps; None where it is constant."""
    if settings["schedule"] == "constant":
        return None
    return optim.OneCycleLR(optimizer, settings["lr"], steps, cycle_momentum=False)


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
