"""The paper's training experiment: a network of Zhang et al. (arXiv 2306.15951) trained by us and by PyTorch.

Several runs of either side, each in a process of its own, from the same initial weights and batches; the loss every ten
steps. Writes report.json, report.md and curves.png. What was stopped, or killed, goes on with --resume.
"""

from __future__ import annotations

import csv
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
from paper_sides import SIDES, Folder
from run_folder import find_matplotlib, save_figure

import alpha
from alpha import nn
from alpha.errors import AlphaError, ArgumentError

DEFAULTS: common.Settings = {
    "model": "resnet18",
    "dataset": "cifar10",
    "data": None,
    "base_width": 64,
    "epochs": 25,
    "steps": None,
    "runs": 2,
    "batch_size": 512,
    "lr": 1e-3,
    "every": 10,
    "checkpoint_every": 200,
    "against": "torch",
    "seed": 0,
    "engine": "cpu",
    "threads": None,
    "memory": None,
}
"""The paper's settings: Adam with its usual numbers, batch 512, dropout 0.1 as the networks have it."""

WINDOW = 10
"""Kept losses that are averaged before curves are compared: a single step's loss is its batch's."""


def make_parser() -> common.Parser:
    """The command line. Options that are not given stay None, so that --resume can tell."""
    parser = common.Parser(__doc__ or "")
    positive = common.positive_int
    group = parser.add_argument_group("experiment")
    group.add_argument("--model", choices=common.MODELS, help="(default: resnet18)")
    group.add_argument("--dataset", choices=common.DATASETS, help="(default: cifar10)")
    group.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")
    group.add_argument("--base-width", metavar="N", type=positive, help="its first stage's channels (default: 64)")
    group.add_argument("--epochs", metavar="N", type=positive, help="(default: 25)")
    group.add_argument("--steps", metavar="N", type=positive, help="most steps of a run")
    group.add_argument("--runs", metavar="R", type=positive, help="of each side, each with its own seed (default: 2)")
    group.add_argument("--batch-size", metavar="N", type=positive, help="(default: 512)")
    group.add_argument("--lr", metavar="RATE", type=common.learning_rate, help="Adam's (default: 0.001)")
    group.add_argument("--every", metavar="N", type=positive, help="steps from one kept loss to the next (default: 10)")
    group.add_argument("--against", choices=("torch", "none"), help="the opponent (default: torch)")
    group.add_argument("--seed", metavar="N", type=common.seed, help="the first run's (default: 0)")
    group.add_argument(
        "--checkpoint-every", metavar="N", type=positive, help="steps from one checkpoint to the next (default: 200)"
    )
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, help="(default: runs/paper-MODEL-DATASET)")
    group.add_argument("--resume", metavar="DIR", type=Path, help="go on with the experiment in this folder")
    group.add_argument(
        "--reference",
        metavar="DIR",
        type=Path,
        help="a folder of published curves, alpha-loss.csv and pytorch-loss.csv",
    )
    parser.add_engine()
    return parser


# -- the experiment ----------------------------------------------------------------------------------------------------


def open_experiment(given: Mapping[str, Any]) -> tuple[Path, common.Settings]:
    """The folder and its settings: made, or those of the one to go on with."""
    options = {name: given[name] for name in DEFAULTS if given[name] is not None}
    if given["resume"] is not None:
        file = given["resume"] / "settings.json"
        if options or given["out"] is not None:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in [*options, *(["out"] if given["out"] else [])])
            raise ArgumentError(f"[--resume] expected the settings it was started with, got {named}: leave them out")
        if not file.is_file():
            raise ArgumentError(f"[--resume] expected a folder of reproduce_paper.py, got {given['resume']}")
        return given["resume"], dict(common.read_json(file))
    settings = {**DEFAULTS, **options}
    out = given["out"] or Path("runs") / f"paper-{settings['model']}-{settings['dataset']}"
    if (out / "settings.json").exists():
        raise ArgumentError(f"[--out] expected a new folder, got {out}, which holds an experiment: --resume {out}")
    common.make_folder(out)
    write_weights(out, settings)
    common.write_json(out / "settings.json", settings)
    return out, settings


def write_weights(out: Path, settings: common.Settings) -> None:
    """Each run's initial weights, in PyTorch's layout; drawn on the CPU, whatever trains."""
    classes = len(common.make_dataset(settings["dataset"], settings["data"], train=True).classes)
    for run in range(settings["runs"]):
        alpha.manual_seed(settings["seed"] + run)
        state = nn.models.to_torch(common.make_model({**settings, "style": "paper"}, classes))
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in state.items()}
        np.savez(out / f"weights-{run}.npz", **arrays)


def train_all(out: Path, settings: common.Settings) -> int:
    """Trains what is not trained yet, side by side run after run; the exit code of the first that did not end well."""
    sides = SIDES if settings["against"] == "torch" else SIDES[:1]
    for run in range(settings["runs"]):
        for side in sides:
            if not Folder(out, side, run).result.exists():
                code = run_side(out, side, run)
                if code:
                    return code
    return 0


def run_side(out: Path, side: str, run: int) -> int:
    """A run of a side in a process of its own, which takes signals as this one does; its exit code."""
    script = str(Path(__file__).with_name("paper_sides.py"))
    process = subprocess.Popen([sys.executable, script, str(out), side, str(run)])
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        while True:
            try:
                code = process.wait()
                return 128 - code if code < 0 else code  # ended by a signal before it could take it
            except KeyboardInterrupt:  # Ctrl-C reaches the process too, which saves and ends
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


# -- what came of it ---------------------------------------------------------------------------------------------------


def read_results(out: Path, settings: common.Settings) -> dict[str, list[common.Settings]]:
    """Every run's result by side."""
    sides = SIDES if settings["against"] == "torch" else SIDES[:1]
    runs = range(settings["runs"])
    return {side: [dict(common.read_json(Folder(out, side, run).result)) for run in runs] for side in sides}


def curves(results: Sequence[common.Settings]) -> tuple[common.Array, common.Array]:
    """The steps, and the losses (runs, steps)."""
    steps = np.array([step for step, _ in results[0]["losses"]])
    return steps, np.array([[loss for _, loss in result["losses"]] for result in results])


def windows(losses: common.Array) -> common.Array:
    """Means over WINDOW kept losses (runs, windows); of all where there are fewer."""
    size = min(WINDOW, losses.shape[1])
    whole = losses.shape[1] // size * size
    means: common.Array = losses[:, :whole].reshape(len(losses), -1, size).mean(2)
    return means


def compare(ours: common.Array, theirs: common.Array) -> common.Settings:
    """How our mean curve lies to PyTorch's runs, by windows: within their band, and as far from their mean as they are.

    The band at a window goes from PyTorch's lowest run to its highest, and on either side as much further as the runs
    are apart there in the root mean square: so few runs show less than the spread they come from.
    """
    mine, other = windows(ours), windows(theirs)
    spread = float(np.sqrt(((other - other.mean(0)) ** 2).mean()))
    low, high = other.min(0) - spread, other.max(0) + spread
    inside = (mine.mean(0) >= low) & (mine.mean(0) <= high)
    return {
        "windows": int(inside.size),
        "inside": int(inside.sum()),
        "rms_distance": float(np.sqrt(((mine.mean(0) - other.mean(0)) ** 2).mean())),
        "torch_rms_spread": spread,
    }


def make_report(settings: common.Settings, results: Mapping[str, list[common.Settings]]) -> common.Settings:
    """What report.json holds."""
    keys = ("s_per_epoch", "train_accuracy", "test_accuracy", "peak_mib", "file_mb")
    sides = {
        side: {key: [run[key] for run in runs] for key in keys} | {"last_loss": [run["losses"][-1][1] for run in runs]}
        for side, runs in results.items()
    }
    report = {"sides": sides, "settings": settings, "versions": common.versions(["torch"]), "machine": common.machine()}
    if "torch" in results:
        report["curves"] = compare(curves(results["alpha"])[1], curves(results["torch"])[1])
        seconds = {side: statistics.mean(found["s_per_epoch"]) for side, found in sides.items()}
        report["ratio"] = seconds["torch"] / seconds["alpha"]
    return report


def table(report: common.Settings) -> str:
    """The report as Markdown: a row a side, means over the runs with their range."""
    titles = ["", "s/epoch", "train accuracy", "test accuracy", "peak MiB", "weights MB", "last loss"]
    lines = [titles, [":--"] + ["--:"] * (len(titles) - 1)]
    names = {"alpha": "Dragon-Alpha", "torch": "PyTorch"}
    for side, found in report["sides"].items():
        cells = [
            _spread(found["s_per_epoch"], "{:.2f}"),
            _spread(found["train_accuracy"], "{:.2f} %"),
            _spread(found["test_accuracy"], "{:.2f} %"),
            _spread(found["peak_mib"], "{:.0f}"),
            f"{found['file_mb'][0]:.1f}",
            _spread(found["last_loss"], "{:.4f}"),
        ]
        lines.append([names[side], *cells])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    if "curves" in report:
        found = report["curves"]
        text += (
            f"\n\nOurs is {report['ratio']:.2f} times as fast. Of {found['windows']} windows of {WINDOW} kept losses "
            f"our mean lies within PyTorch's band in {found['inside']}. From PyTorch's mean it is "
            f"{found['rms_distance']:.4f} in the root mean square, PyTorch's runs {found['torch_rms_spread']:.4f}."
        )
    return text


def _spread(values: Sequence[float], form: str) -> str:
    """The mean, and in brackets the least and the most where there are several."""
    text = form.format(statistics.mean(values))
    return text if len(values) == 1 else f"{text} ({form.format(min(values))} to {form.format(max(values))})"


def read_curve(file: Path) -> tuple[common.Array, common.Array]:
    """A published curve: rows of step and loss."""
    try:
        with open(file, newline="") as lines:
            rows = [[float(cell) for cell in row] for row in csv.reader(lines) if row]
        values = np.array(rows).reshape(-1, 2).T
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"[--reference] expected rows of step and loss in {file}, got {common.one_line(error)}: give the folder "
            "that holds alpha-loss.csv and pytorch-loss.csv"
        ) from error
    return values[0], values[1]


def read_reference(folder: Path | None) -> dict[str, tuple[common.Array, common.Array]]:
    """The published curves by their names in the picture."""
    if folder is None:
        return {}
    names = {"alpha-loss.csv": "Dragon-Alpha, published", "pytorch-loss.csv": "PyTorch, published"}
    return {name: read_curve(folder / file) for file, name in names.items()}


def draw(
    path: Path,
    settings: common.Settings,
    results: Mapping[str, list[common.Settings]],
    published: Mapping[str, tuple[common.Array, common.Array]],
) -> None:
    """Loss over steps: each run thin, the mean of a side bold, and the published curves as far as the runs go."""
    figure_class = find_matplotlib(path.name)
    if figure_class is None:
        return
    figure = figure_class(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    look = {"torch": ("tab:orange", "PyTorch", 2.5), "alpha": ("tab:blue", "Dragon-Alpha", 1.2)}
    last = 0
    for side in reversed(list(results)):
        colour, name, width = look[side]
        steps, losses = curves(results[side])
        last = max(last, int(steps[-1]))
        for one in losses:
            axes.plot(steps, one, color=colour, alpha=0.25, linewidth=0.7)
        label = f"{name}, mean of {len(losses)}" if len(losses) > 1 else name
        axes.plot(steps, losses.mean(0), color=colour, linewidth=width, label=label)
    for (name, (steps, losses)), style in zip(published.items(), ("--", ":"), strict=False):
        shown = steps <= last
        axes.plot(steps[shown], losses[shown], style, color="gray", linewidth=1, label=name)
    axes.set_title(
        f"{settings['model']} on {settings['dataset']}, batch {settings['batch_size']}, {settings['engine']}"
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, compares and writes; returns the exit code."""
    given = vars(make_parser().parse_args(argv))
    published = read_reference(given["reference"])
    out, settings = open_experiment(given)
    code = train_all(out, settings)
    if code:
        script = shlex.join([sys.executable, str(Path(__file__)), "--resume", str(out)])
        if code not in (130, 143):
            raise AlphaError(
                f"[reproduce_paper] expected every run to end, got exit code {code}: see above, then {script}"
            )
        print(f"stopped, all saved; go on with: {script}", file=sys.stderr)
        return code
    results = read_results(out, settings)
    report = make_report(settings, results)
    common.write_json(out / "report.json", report)
    common.write_text(out / "report.md", table(report) + "\n")
    draw(out / "curves.png", settings, results, published)
    print(table(report))
    print(f"report.json, report.md and curves.png are in {out}")
    return 0


if __name__ == "__main__":
    common.run(main)
