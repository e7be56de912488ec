"""Tests the network that a training run left, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import common
import recipes
from run_folder import RunFolder

import alpha
from alpha.errors import ArgumentError, CheckpointError

NEEDED = ("model", "style", "base_width", "dataset", "data", "batch_size")


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser(__doc__ or "")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder, or the model.safetensors in it")
    parser.add_argument("--data", metavar="DIR", help="the folder the data lies in (default: as in training)")
    parser.add_argument("--batch-size", metavar="N", type=common.positive_int, help="(default: as in training)")
    parser.add_engine()
    return parser


def read_settings(folder: RunFolder) -> common.Settings:
    """What the network was made with; ArgumentError if settings.json is missing or not of a run."""
    settings = common.read_json(folder.settings)
    absent = [name for name in NEEDED if not isinstance(settings, dict) or name not in settings]
    if absent:
        raise ArgumentError(
            f"[evaluate] expected a run's settings in {folder.settings}, got none for {', '.join(absent)}: give the "
            "folder that train_cifar10.py wrote"
        )
    return dict(settings)


def print_classes(classes: Sequence[str], images: common.Array, right: common.Array) -> None:
    """A row for each class: its test images, the right answers among them, their share."""
    width = max(len("class"), *map(len, classes))
    print(f"{'class':<{width}}  images  right  accuracy")
    for name, count, hits in zip(classes, images, right, strict=True):
        share = f"{100 * hits / count:.1f} %" if count else "-"
        print(f"{name:<{width}}  {count:6d}  {hits:5d}  {share:>8}")


def main(argv: Sequence[str] | None = None) -> int:
    """Tests and prints; returns the exit code."""
    options = vars(make_parser().parse_args(argv))
    folder = RunFolder(options["run"] if options["run"].is_dir() else options["run"].parent)
    weights = folder.weights if options["run"].is_dir() else options["run"]
    settings = read_settings(folder)
    engine = common.use_engine(options)
    state = alpha.load(weights)
    data = common.make_dataset(settings["dataset"], options["data"] or settings["data"], train=False)
    net = common.make_model(settings, len(data.classes)).to(engine)
    try:
        net.load_state_dict(state)
    except CheckpointError as error:
        raise CheckpointError(
            f"[evaluate] expected the weights of the {settings['model']} that {folder.settings} names, got another "
            f"model's in {weights}: {error}"
        ) from error
    images, right = common.test(recipes.tested(settings, net), data, options["batch_size"] or settings["batch_size"])
    print_classes(data.classes, images, right)
    common.print_accuracy(images, right)
    return 0


if __name__ == "__main__":
    common.run(main)
