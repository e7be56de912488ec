"""Trains a small network of atrous convolutions to tell the class of every pixel in scenes of handwritten digits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import confusion
import deep
import numpy as np
import run_folder

import alpha
from alpha import datasets, nn, optim
from alpha.errors import ArgumentError

COLUMNS = ("epoch", "loss", "pixel_accuracy", "mean_iou", "images_per_s")

_SHOWN = 6  # scenes in the picture


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser(__doc__ or "")
    count = common.positive_int
    deep.add_digits(parser)
    group = parser.add_argument_group("scenes")
    group.add_argument("--scenes", metavar="N", type=count, default=2000, help="to train on (default: 2000)")
    group.add_argument("--test-scenes", metavar="N", type=count, default=400, help="(default: 400)")
    group.add_argument("--size", metavar="N", type=count, default=80, help="their height and width (default: 80)")
    group = parser.add_argument_group("network and training")
    group.add_argument(
        "--base-width", metavar="N", type=count, default=16, help="channels of the first block (default: 16)"
    )
    group.add_argument("--epochs", metavar="N", type=count, default=6, help="(default: 6)")
    group.add_argument("--batch-size", metavar="N", type=count, default=16, help="at least 2 (default: 16)")
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, default=3e-3, help="Adam's (default: 0.003)")
    group.add_argument("--seed", metavar="N", type=common.seed, default=0, help="of all that is random (default: 0)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs/segmentation"),
        help="where metrics.csv, model.safetensors and scenes.png go (default: runs/segmentation)",
    )  # fmt: skip
    parser.add_engine()
    return parser


def load_scenes(options: Any) -> tuple[datasets.DigitScenes, datasets.DigitScenes]:
    """Scenes to train on and scenes to test with, which share neither digits nor backgrounds."""
    last = options.scenes % options.batch_size or options.batch_size
    if last < 2:
        raise ArgumentError(
            f"[--batch-size] expected batches of at least 2 of the {options.scenes} scenes, got a last one of {last}: "
            "BatchNorm wants more than one image; choose another size"
        )
    train, test = deep.load_digits(options.dataset, options.data)
    return (
        datasets.DigitScenes(train, options.scenes, options.size, seed=2 * options.seed),
        datasets.DigitScenes(test, options.test_scenes, options.size, seed=2 * options.seed + 1),
    )


def answers(net: nn.Module, x: alpha.Tensor) -> common.Array:
    """The class of every pixel, (N, H, W)."""
    with alpha.no_grad():
        return np.asarray(net.eval()(x).argmax(-1))


def test(net: nn.Module, scenes: datasets.DigitScenes, batch_size: int) -> dict[str, float]:
    """Pixel accuracy and mean IoU of the answers for a data set of scenes."""
    classes = len(scenes.classes)
    counts = np.zeros((classes, classes), np.int64)
    for x, y in datasets.DataLoader(scenes, batch_size):
        counts += confusion.confusion(np.asarray(y), answers(net, x), classes)
    return {"pixel_accuracy": confusion.pixel_accuracy(counts), "mean_iou": confusion.mean_iou(counts)}


def train(net: nn.Module, train_scenes: datasets.DigitScenes, test_scenes: datasets.DigitScenes, options: Any) -> None:
    """Trains, tests after each epoch, and writes both into metrics.csv."""
    optimizer = optim.Adam(net.parameters(), lr=options.lr)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    batches = datasets.DataLoader(train_scenes, options.batch_size, shuffle=True)
    history: list[dict[str, float]] = []
    for epoch in range(1, options.epochs + 1):
        title = f"epoch {epoch}/{options.epochs}"
        start = time.perf_counter()
        with common.bar(len(train_scenes), title) as progress:
            loss = deep.train_epoch(net, optimizer, batches, progress)
        speed = len(train_scenes) / (time.perf_counter() - start)
        schedule.step()
        figures = test(net, test_scenes, options.batch_size)
        history.append({"epoch": epoch, "loss": loss, **figures, "images_per_s": round(speed, 1)})
        rows = [[line[name] for name in COLUMNS] for line in history]
        common.write_csv(options.out / "metrics.csv", [COLUMNS, *rows])
        print(f"{title}: loss {loss:.4f}, pixel accuracy {100 * figures['pixel_accuracy']:.2f} %, "
              f"mean IoU {100 * figures['mean_iou']:.1f} %, {speed:.0f} images/s", flush=True)  # fmt: skip


def draw(path: Path, net: nn.Module, scenes: datasets.DigitScenes) -> None:
    """Draws the first scenes, their true classes and the answers, one below the other."""
    figure_class = run_folder.find_matplotlib(path.name)
    if figure_class is None:
        return
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    shown = min(_SHOWN, len(scenes))
    x, _ = scenes.batch(np.arange(shown), np.random.default_rng())
    colours = np.concatenate([np.zeros((1, 3)), colormaps["tab10"](np.arange(10))[:, :3]])
    lines = {
        "scene": scenes.images[:shown],
        "truth": colours[scenes.labels[:shown]],
        "prediction": colours[answers(net, alpha.tensor(x))],
    }
    figure = figure_class(figsize=(1.4 * shown + 0.4, 5), layout="constrained")
    for row, (name, images) in zip(figure.subplots(len(lines), shown, squeeze=False), lines.items(), strict=True):
        for axes, image in zip(row, images, strict=True):
            axes.imshow(image)
            axes.set_axis_off()
        row[0].set_title(name, loc="left", fontsize=9)
    patches = [Patch(color=colour, label=name) for colour, name in zip(colours, scenes.classes, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=8)
    run_folder.save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and draws, after Ctrl-C with what there is by then; returns the exit code."""
    options = make_parser().parse_args(argv)
    common.use_engine(vars(options))
    train_scenes, test_scenes = load_scenes(options)
    common.make_folder(options.out)
    alpha.manual_seed(options.seed)
    net = nn.models.deeplab_small(len(train_scenes.classes), base_width=options.base_width)
    code = 0
    try:
        train(net, train_scenes, test_scenes, options)
    except KeyboardInterrupt:
        code = 130
    alpha.save(net.state_dict(), options.out / "model.safetensors")
    draw(options.out / "scenes.png", net, test_scenes)
    print(f"metrics.csv, model.safetensors and scenes.png are in {options.out}")
    return code


if __name__ == "__main__":
    common.run(main)
