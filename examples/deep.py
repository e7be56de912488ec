"""What the examples of deep architectures share: data sets as rows, a classifier's training, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
import run_folder

import alpha
from alpha import datasets, nn, optim

DIGITS = ("mnist", "mnist-t10k", "digits")
"""MNIST; its 10,000 test images alone, of which the last 2,000 test; scikit-learn's digits, 8 x 8."""

_TRAIN_OF_T10K = 8000
_DOTS = 2
"""Side of the square of dots that shows one pixel of an image in a grid."""
_MARGIN = 130
"""Dots for the names before the rows of a grid."""


def add_digits(parser: common.Parser) -> None:
    """--dataset, --data."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "--dataset",
        choices=DIGITS,
        default="mnist",
        help="mnist; mnist-t10k: its test images alone, 8,000 to train and 2,000 to test; digits: scikit-learn's "
        "(default: mnist)",
    )
    group.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")


def load_digits(name: str, root: str | None) -> tuple[datasets.ArrayDataset, datasets.ArrayDataset]:
    """The training and the test images of a data set of digits."""
    if name == "digits":
        return datasets.Digits(size=8, channels=1), datasets.Digits(train=False, size=8, channels=1)
    if name == "mnist":
        return datasets.MNIST(root, train=True), datasets.MNIST(root, train=False)
    whole = datasets.MNIST(root, train=False)
    parts = slice(None, _TRAIN_OF_T10K), slice(_TRAIN_OF_T10K, None)
    train, test = (
        datasets.ArrayDataset(whole.images[part], whole.labels[part], whole.classes, whole.transform) for part in parts
    )
    return train, test


def rows(data: datasets.ArrayDataset) -> common.Array:
    """The images as rows of pixels in 0..1, float32."""
    return data.images.reshape(len(data), -1) / np.float32(255)


def train_epoch(net: nn.Module, optimizer: optim.Optimizer, batches: datasets.DataLoader, progress: Any) -> float:
    """Trains a classifier for an epoch, moving a progress bar on; returns the mean loss."""
    total = 0.0
    net.train()
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        progress.set_postfix_str(f"loss {loss.item():.4f}", refresh=False)
        progress.update(len(y))
    return total / len(batches.dataset)


def answers(net: nn.Module, x: common.Array) -> common.Array:
    """A classifier's classes for rows that fit into memory at once."""
    with alpha.no_grad():
        logits: common.Array = np.asarray(net.eval()(alpha.tensor(x)))
    classes: common.Array = logits.argmax(axis=1)
    return classes


def draw_images(path: Path, lines: Sequence[tuple[str, common.Array]], title: str = "") -> None:
    """Draws lines of grey images (n, H, W), each line with its name, each image in the range of its values."""
    figure_class = run_folder.find_matplotlib(path.name)
    if figure_class is None:
        return
    columns = max(len(images) for _, images in lines)
    height, width = lines[0][1].shape[1:]
    figure = figure_class(figsize=(0.8 * columns + 1, 0.8 * height / width * len(lines) + 0.6), layout="constrained")
    figure.suptitle(title)
    panels: Any = figure.subplots(len(lines), columns, squeeze=False)
    for line, (name, images) in zip(panels, lines, strict=True):
        for axes in line:
            axes.set_axis_off()
        for axes, image in zip(line, images, strict=False):
            axes.imshow(image, cmap="gray")
        line[0].set_title(name, loc="left", fontsize=9)
    run_folder.save_figure(figure, path)


def draw_grid(path: Path, images: common.Array, names: Sequence[str] = ()) -> None:
    """Draws images (rows, columns, H, W, C) of values in 0..1 as one grid, with the names before its rows."""
    figure_class = run_folder.find_matplotlib(path.name)
    if figure_class is None:
        return
    framed = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)), constant_values=1)
    rows_, columns, height, width, _ = framed.shape
    grid = framed.transpose(0, 2, 1, 3, 4).reshape(rows_ * height, columns * width, -1)
    margin, across, down = (_MARGIN if names else 0), _DOTS * columns * width, _DOTS * rows_ * height
    figure = figure_class(figsize=((margin + across) / run_folder.DPI, down / run_folder.DPI))
    axes: Any = figure.add_axes((margin / (margin + across), 0, across / (margin + across), 1))
    axes.imshow(grid, interpolation="nearest")
    axes.set_frame_on(False)
    axes.set_xticks([])
    axes.tick_params(left=False)
    axes.set_yticks((np.arange(len(names)) + 0.5) * height, names, fontsize=9)
    run_folder.save_figure(figure, path)
