"""The folder a training run leaves: settings.json, metrics.csv, loss.png, model and checkpoint."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import common
import numpy as np

from alpha.errors import ArgumentError
from alpha.serialization import replacing

COLUMNS = ("step", "epoch", "loss", "accuracy", "images_per_s", "lr")


class RunFolder:
    """The paths of a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "settings.json"
        self.metrics = path / "metrics.csv"
        self.picture = path / "loss.png"
        self.events = path / "tensorboard"
        self.weights = path / "model.safetensors"
        self.checkpoint = path / "checkpoint.safetensors"

    def create(self) -> None:
        """Makes the folder; ArgumentError if it cannot be written to, or holds a run that would be overwritten."""
        common.make_folder(self.path)
        for file in (self.checkpoint, self.weights, self.metrics):
            if file.exists():
                raise ArgumentError(
                    f"[--out] expected a folder without a run, got {self.path} with {file.name}: go on with it by "
                    f"--resume {self.path}, or choose another place"
                )


def find(path: Path) -> RunFolder:
    """The run of a folder, or of the checkpoint in it; ArgumentError if there is no checkpoint."""
    folder = RunFolder(path if path.is_dir() else path.parent)
    checkpoint = folder.checkpoint if path.is_dir() else path
    if checkpoint.name != folder.checkpoint.name or not checkpoint.is_file():
        raise ArgumentError(
            f"[--resume] expected a run's folder, or the checkpoint.safetensors in it, got {path}: give the folder "
            "that the run was writing to"
        )
    return folder


class Metrics:
    """metrics.csv: one row a step, written at once, with every digit of the loss.

    Args:
        path: the file.
        step: rows up to this step are kept; those after it belong to steps that are done again.
    """

    def __init__(self, path: Path, step: int) -> None:
        rows = [row for row in read_rows(path) if int(row[0]) <= step] if path.exists() else []
        common.write_csv(path, [COLUMNS, *rows])
        # A line at a time reaches the system, so that what kills the process costs no row.
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  (__exit__ closes it)

    def write(self, step: int, epoch: int, loss: float, accuracy: float, images_per_s: float, lr: float) -> None:
        """Adds the row of a step."""
        self._file.write(f"{step},{epoch},{loss!r},{accuracy!r},{images_per_s:.1f},{lr!r}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()


def read_rows(path: Path) -> list[list[str]]:
    """The rows of metrics.csv without its header; a last one that a crash cut short is left out."""
    whole = path.read_text().rpartition("\n")[0]
    return [row for row in csv.reader(whole.splitlines()[1:]) if len(row) == len(COLUMNS)]


def plot(folder: RunFolder, title: str) -> None:
    """Draws loss and accuracy over the steps into loss.png, or says why not."""
    rows = read_rows(folder.metrics)
    figure_class = find_matplotlib("loss.png")
    if figure_class is None or not rows:
        return
    values = np.array([[float(row[0]), float(row[2]), 100 * float(row[3])] for row in rows]).T
    figure = figure_class(figsize=(9, 3.6), layout="constrained")
    figure.suptitle(title)
    for axes, series, label in zip(figure.subplots(1, 2), values[1:], ("loss", "accuracy (%)"), strict=True):
        axes.plot(values[0], series, color="tab:blue", alpha=0.3, linewidth=0.8, label="each step")
        span = max(1, len(rows) // 50)
        if span > 1:
            middle = values[0][span - 1 :] - (span - 1) / 2
            mean = np.convolve(series, np.full(span, 1 / span), "valid")
            axes.plot(middle, mean, color="tab:blue", label=f"mean of {span}")
        axes.set_xlabel("training step")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, folder.picture)


def find_matplotlib(picture: str) -> Any:
    """Matplotlib's Figure; None, with a line on stdout, where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"{picture} was not drawn, for want of matplotlib: pip install 'dragon-alpha[plot]'")
        return None
    return Figure


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure as PNG, whole or not at all."""
    with replacing("save_figure", path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
