"""The folder a training run leaves: settings.json, metrics.csv, loss.png, model and checkpoint."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import common
import numpy as np

from alpha.errors import ArgumentError, CheckpointError
from alpha.serialization import replacing

COLUMNS = ("step", "epoch", "loss", "accuracy", "images_per_s", "lr")
DPI = 120
"""Dots an inch of the pictures."""


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

    @classmethod
    def to_resume(cls, path: Path, out: Path | None) -> Self:
        """The run of a folder, or of the checkpoint in it; ArgumentError if there is none, or ``out`` is elsewhere."""
        folder = cls(path if path.is_dir() else path.parent)
        checkpoint = folder.checkpoint if path.is_dir() else path
        if checkpoint.name != folder.checkpoint.name or not checkpoint.is_file():
            raise ArgumentError(
                f"[--resume] expected a run's folder, or the checkpoint.safetensors in it, got {path}: give the folder "
                "that the run was writing to"
            )
        if out is not None and out.resolve() != folder.path.resolve():
            raise ArgumentError(
                f"[--resume] expected the run to go on in {folder.path}, got --out {out}: leave --out out"
            )
        return folder


class Metrics:
    """metrics.csv: one row per step, written at once, with every digit of its numbers.

    Args:
        path: the file.
        step: rows up to this step are kept; those after it belong to steps that are done again.
        columns: their names, the step's first.
    """

    def __init__(self, path: Path, step: int, columns: Sequence[str] = COLUMNS) -> None:
        rows = [row for row in read_rows(path) if int(row[0]) <= step] if path.exists() else []
        common.write_csv(path, [columns, *rows])
        self._path = path
        # A line at a time reaches the system, so that what kills the process costs no row.
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  (__exit__ closes it)

    def write(self, *row: float | str) -> None:
        """Adds the row of a step; CheckpointError where the disk is full."""
        try:
            self._file.write(",".join(map(str, row)) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"[{self._path.name}] expected to write a row to {self._path}, got {error.strerror}: free space, then "
                f"go on with --resume {self._path.parent}; the last checkpoint is whole"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(*([OSError] if kind is not None else [])):  # what could not be written cannot be at the end
            self._file.close()


def read_rows(path: Path) -> list[list[str]]:
    """The rows of metrics.csv without its header; a last one that a crash cut short is left out."""
    whole = path.read_text().rpartition("\n")[0]
    header, *rows = csv.reader(whole.splitlines() or [""])
    return [row for row in rows if len(row) == len(header)]


def plot(folder: RunFolder, title: str) -> None:
    """Draws loss and accuracy over the steps into loss.png, or says why not."""
    rows = read_rows(folder.metrics)
    values = np.array([[float(row[0]), float(row[2]), 100 * float(row[3])] for row in rows]).T
    if rows:
        plot_curves(folder.picture, title, values[0], {"loss": values[1], "accuracy (%)": values[2]})


def plot_curves(path: Path, title: str, steps: common.Array, curves: Mapping[str, common.Array]) -> None:
    """Draws series over the steps beside each other, each with a running mean; or says why not."""
    figure_class = find_matplotlib(path.name)
    if figure_class is None:
        return
    figure = figure_class(figsize=(9, 3.6), layout="constrained")
    figure.suptitle(title)
    for axes, (label, series) in zip(figure.subplots(1, len(curves)), curves.items(), strict=True):
        axes.plot(steps, series, color="tab:blue", alpha=0.3, linewidth=0.8, label="each step")
        span = max(1, len(steps) // 50)
        if span > 1:
            middle = steps[span - 1 :] - (span - 1) / 2
            mean = np.convolve(series, np.full(span, 1 / span), "valid")
            axes.plot(middle, mean, color="tab:blue", label=f"mean of {span}")
        axes.set_xlabel("training step")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


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
        figure.savefig(temporary, format="png", dpi=DPI)
