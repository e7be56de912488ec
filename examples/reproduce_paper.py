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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import common
import numpy as np
from paper_sides import IMAGE_FOLDER, PRECISIONS, SIDES, Folder, from_root, make_data
from run_folder import find_matplotlib, save_figure

import alpha
from alpha import nn
from alpha.errors import AlphaError, ArgumentError, DataError
from alpha.serialization import replacing

DEFAULTS: common.Settings = {
    "model": "resnet18",
    "dataset": "cifar10",
    "data": None,
    "size": None,
    "workers": 0,
    "base_width": 64,
    "head": "cifar10",
    "epochs": 25,
    "torch_epochs": None,
    "steps": None,
    "runs": 2,
    "batch_size": 512,
    "lr": 1e-3,
    "precision": "float32",
    "every": 10,
    "checkpoint_every": 200,
    "against": "torch",
    "seed": 0,
    "busy": False,
    "engine": "cpu",
    "threads": None,
    "memory": None,
}
"""The paper's settings: Adam with its usual numbers, batch 512, dropout 0.1 as the networks have it."""

ILSVRC: common.Settings = {"size": 128, "workers": common.cores(), "head": "ilsvrc2012", "batch_size": 256}
"""What differs for a folder of images: the paper's form of ILSVRC2012, decoded by processes of their own."""

WINDOW = 10
"""Kept losses that are averaged before curves are compared: a single step's loss is its batch's."""


def make_parser() -> common.Parser:
    """The command line. Options that are not given stay None, so that --resume can tell."""
    parser = common.Parser(__doc__ or "")
    positive = common.positive_int
    group = parser.add_argument_group("experiment")
    group.add_argument("--model", choices=common.MODELS, help="(default: resnet18)")
    group.add_argument("--dataset", choices=(*common.DATASETS, IMAGE_FOLDER), help="(default: cifar10)")
    group.add_argument(
        "--data",
        metavar="DIR",
        help="the folder it lies in (default: $ALPHA_DATA, then ./data); of an imagefolder DIR/train/CLASS/... and "
        "DIR/val/CLASS/...",
    )
    group.add_argument("--size", metavar="N", type=positive, help="side of an imagefolder's images (default: 128)")
    group.add_argument(
        "--workers", metavar="N", type=common.seed, help="processes that decode images (default: 0; imagefolder: all)"
    )
    group.add_argument("--base-width", metavar="N", type=positive, help="its first stage's channels (default: 64)")
    group.add_argument(
        "--head", choices=common.HEADS, help="its linear layers (default: cifar10; imagefolder: ilsvrc2012)"
    )
    group.add_argument("--epochs", metavar="N", type=positive, help="(default: 25)")
    group.add_argument("--torch-epochs", metavar="N", type=positive, help="PyTorch's, where they are fewer")
    group.add_argument("--steps", metavar="N", type=positive, help="most steps of a run")
    group.add_argument(
        "--runs",
        metavar="R",
        type=positive,
        help="of each side, each with its own seed (default: 2); with --resume, more",
    )
    group.add_argument("--batch-size", metavar="N", type=positive, help="(default: 512; imagefolder: 256)")
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, help="Adam's (default: 0.001)")
    group.add_argument(
        "--precision", choices=PRECISIONS, help="bf16: both sides within autocast to bfloat16 (default: float32)"
    )
    group.add_argument("--every", metavar="N", type=positive, help="steps from one kept loss to the next (default: 10)")
    group.add_argument("--against", choices=("torch", "none"), help="the opponent (default: torch)")
    group.add_argument("--seed", metavar="N", type=common.seed, help="the first run's (default: 0)")
    group.add_argument(
        "--checkpoint-every", metavar="N", type=positive, help="steps from one checkpoint to the next (default: 200)"
    )
    group.add_argument(
        "--busy",
        action="store_const",
        const=True,
        help="other programs run meanwhile: the report leaves times and speed out",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, help="(default: runs/paper-MODEL-DATASET)")
    group.add_argument("--resume", metavar="DIR", type=Path, help="go on with the experiment in this folder")
    group.add_argument("--json", metavar="FILE", type=Path, help="write the report here too")
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
        others = [name for name in (*options, *(["out"] if given["out"] else [])) if name != "runs"]
        if others:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
            raise ArgumentError(f"[--resume] expected the settings it was started with, got {named}: leave them out")
        return given["resume"], reopened(given["resume"], given["runs"])
    settings = {**DEFAULTS, **(ILSVRC if options.get("dataset") == IMAGE_FOLDER else {}), **options}
    check(settings)
    out = given["out"] or Path("runs") / f"paper-{settings['model']}-{settings['dataset']}"
    if (out / "settings.json").exists():
        raise ArgumentError(f"[--out] expected a new folder, got {out}, which holds an experiment: --resume {out}")
    common.make_folder(out)
    write_weights(out, settings)
    common.write_json(out / "settings.json", settings)
    return out, settings


def reopened(out: Path, runs: int | None) -> common.Settings:
    """The settings of the experiment in a folder, with more runs where so many are asked for."""
    file = out / "settings.json"
    if not file.is_file():
        raise ArgumentError(f"[--resume] expected a folder of reproduce_paper.py, got {out}")
    settings = dict(common.read_json(file))
    absent = [name for name in DEFAULTS if name not in settings]
    if absent:
        raise ArgumentError(
            f"[--resume] expected an experiment of this version, got no {', '.join(absent)} in {file}: begin a new one"
        )
    if runs is not None and runs < settings["runs"]:
        raise ArgumentError(f"[--runs] expected at least the {settings['runs']} it was started with, got {runs}")
    if runs is not None and runs > settings["runs"]:
        settings["runs"] = runs
        write_weights(out, settings)
        common.write_json(file, settings)
    else:
        write_weights(out, settings)
    return settings


def check(settings: common.Settings) -> None:
    """ArgumentError where options contradict each other."""
    fewer = settings["torch_epochs"]
    if fewer is not None and (settings["against"] != "torch" or fewer > settings["epochs"]):
        raise ArgumentError(
            f"[--torch-epochs] expected at most --epochs {settings['epochs']} against torch, got {fewer} against "
            f"{settings['against']}"
        )
    if settings["dataset"] != IMAGE_FOLDER and settings["size"] is not None:
        raise ArgumentError(
            f"[--size] expected --dataset {IMAGE_FOLDER}, got {settings['dataset']}, which has its own: leave it out"
        )
    if settings["dataset"] == IMAGE_FOLDER and settings["data"] is None:
        raise ArgumentError("[--data] expected the folder that holds train and val, got none: give --data DIR")


def write_weights(out: Path, settings: common.Settings) -> None:
    """Initial weights in PyTorch's layout of every run that is still to be trained, unless they are there.

    They are drawn on the CPU, whatever trains, and depend on the seed alone. A folder that came without them, with the
    results of the runs that have ended, can be gone on with.
    """
    classes = make_data(settings, train=True).classes
    other = make_data(settings, train=False).classes
    if other != classes:
        name = min(set(classes) ^ set(other))
        raise DataError(f"[--data] expected the same classes to train on and to test with, got {name!r} in one only")
    for run in range(settings["runs"]):
        file = out / f"weights-{run}.npz"
        if file.exists() or all(Folder(out, side, run).result.exists() for side in sides_of(settings)):
            continue
        alpha.manual_seed(settings["seed"] + run)
        state = nn.models.to_torch(common.make_model({**settings, "style": "paper"}, len(classes)))
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in state.items()}
        with replacing("reproduce_paper", file) as temporary, open(temporary, "wb") as target:
            np.savez(target, **arrays)


def sides_of(settings: common.Settings) -> tuple[str, ...]:
    """Who trains: we, and PyTorch where it is compared with."""
    return SIDES if settings["against"] == "torch" else SIDES[:1]


def train_all(out: Path, settings: common.Settings) -> int:
    """Trains what is not trained yet, side by side run after run; the exit code of the first that did not end well."""
    for run in range(settings["runs"]):
        for side in sides_of(settings):
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
    runs = range(settings["runs"])
    return {
        side: [dict(common.read_json(Folder(out, side, run).result)) for run in runs] for side in sides_of(settings)
    }


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


def band(values: common.Array) -> tuple[common.Array, common.Array, float]:
    """From the lowest of some runs (runs, ...) to the highest, and how far they are apart in the root mean square.

    On either side the band goes as much further as that: so few runs show less than the spread they come from.
    """
    spread = float(np.sqrt(((values - values.mean(0)) ** 2).mean()))
    return values.min(0) - spread, values.max(0) + spread, spread


def compare(ours: common.Array, theirs: common.Array) -> common.Settings:
    """How our mean curve lies to PyTorch's runs, by windows: within their band, and how far from their mean.

    Where one side was trained for longer, only the steps of both are compared.
    """
    steps = min(ours.shape[1], theirs.shape[1])
    mine, other = windows(ours[:, :steps]), windows(theirs[:, :steps])
    low, high, spread = band(other)
    inside = (mine.mean(0) >= low) & (mine.mean(0) <= high)
    return {
        "windows": int(inside.size),
        "inside": int(inside.sum()),
        "rms_distance": float(np.sqrt(((mine.mean(0) - other.mean(0)) ** 2).mean())),
        "torch_rms_spread": spread,
    }


def compare_accuracy(ours: Sequence[float], theirs: Sequence[float]) -> common.Settings:
    """Our mean test accuracy beside the band of PyTorch's runs, in per cent."""
    low, high, _ = band(np.array(theirs))
    mean = statistics.mean(ours)
    return {
        "ours": mean,
        "torch": statistics.mean(theirs),
        "torch_band": [float(low), float(high)],
        "inside": bool(low <= mean <= high),
    }


def make_report(
    settings: common.Settings,
    results: Mapping[str, list[common.Settings]],
    published: Mapping[str, tuple[common.Array, common.Array]],
) -> common.Settings:
    """What report.json holds; ``python -m benchmarks.report`` tells of it too."""
    keys = (*(() if settings["busy"] else ("s_per_epoch",)), "train_accuracy", "test_accuracy", "peak_mib", "file_mb")
    sides = {
        side: {key: [run[key] for run in runs] for key in keys} | {"last_loss": [run["losses"][-1][1] for run in runs]}
        for side, runs in results.items()
    }
    losses = {side: curves(runs) for side, runs in results.items()}
    steps = losses["alpha"][0]
    measured = from_root("benchmarks.common")
    report: common.Settings = {
        "benchmark": "examples/reproduce_paper.py",
        "command": command(settings),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": measured.machine(),
        "versions": measured.versions(),
        "settings": settings
        | {"suite": "reproduction", "data": None, "threads": settings["threads"] or common.cores()},
        "sides": sides,
        "steps": steps.tolist(),
        "losses": {side: found.tolist() for side, (_, found) in losses.items()},
        "published": {name: _until(int(steps[-1]), *curve) for name, curve in published.items()},
    }
    if "torch" in results:
        report["curves"] = compare(losses["alpha"][1], losses["torch"][1])
        if settings["torch_epochs"] in (None, settings["epochs"]):
            report["accuracy"] = compare_accuracy(*(sides[side]["test_accuracy"] for side in SIDES))
        if not settings["busy"]:
            seconds = {side: statistics.mean(found["s_per_epoch"]) for side, found in sides.items()}
            report["ratio"] = seconds["torch"] / seconds["alpha"]
    return report | {"text": table(report)}


def command(settings: common.Settings) -> str:
    """The command that asks for these settings, without what is told anyway and without anyone's paths."""
    usual = DEFAULTS | (ILSVRC if settings["dataset"] == IMAGE_FOLDER else {})
    words = ["python", "examples/reproduce_paper.py"]
    for name, value in settings.items():
        if name == "data" and value is not None:
            words += ["--data", "DIR"]
        elif value is True:
            words += [f"--{name}"]
        elif value != usual[name] or name in ("model", "epochs"):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _until(last: int, steps: common.Array, losses: common.Array) -> list[list[float]]:
    shown = steps <= last
    return [steps[shown].tolist(), losses[shown].tolist()]


def table(report: common.Settings) -> str:
    """The report as Markdown: one row per side, means over the runs with their range; below it how they compare."""
    lines = [["", "epochs", *(title for title, _ in COLUMNS.values())]]
    lines += [[":--"] + ["--:"] * (len(lines[0]) - 1)]
    names = {"alpha": "Dragon-Alpha", "torch": "PyTorch"}
    epochs = {"alpha": report["settings"]["epochs"]}
    epochs["torch"] = report["settings"]["torch_epochs"] or epochs["alpha"]
    for side, found in report["sides"].items():
        cells = [_spread(found[key], form) if key in found else "-" for key, (_, form) in COLUMNS.items()]
        lines.append([names[side], str(epochs[side]), *cells])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text + ("\n\n" + comparison(report) if "curves" in report else "")


COLUMNS = {
    "s_per_epoch": ("s/epoch", "{:.2f}"),
    "train_accuracy": ("train accuracy", "{:.2f} %"),
    "test_accuracy": ("test accuracy", "{:.2f} %"),
    "peak_mib": ("peak MiB", "{:.0f}"),
    "file_mb": ("weights MB", "{:.1f}"),
    "last_loss": ("last loss", "{:.4f}"),
}
"""Titles and forms of the report's columns by what they show. Seconds per epoch are those of median steps."""


def comparison(report: common.Settings) -> str:
    """The sentences that compare both sides: speed, curves, accuracy."""
    found = report["curves"]
    if len(report["sides"]["torch"]["test_accuracy"]) == 1:
        return (
            f"From PyTorch's run ours is {found['rms_distance']:.4f} in the root mean square over {found['windows']} "
            f"windows of {WINDOW} kept losses. One run does not tell how much PyTorch's runs vary: take --runs 4."
        )
    text = (
        f"Of {found['windows']} windows of {WINDOW} kept losses our mean lies within PyTorch's band in "
        f"{found['inside']}. From PyTorch's mean it is {found['rms_distance']:.4f} in the root mean square, PyTorch's "
        f"runs {found['torch_rms_spread']:.4f}."
    )
    if "ratio" in report:
        text = f"Ours is {report['ratio']:.2f} times as fast. {text}"
    if "accuracy" in report:
        accuracy = report["accuracy"]
        (low, high), place = accuracy["torch_band"], "within" if accuracy["inside"] else "not within"
        text += f" Our test accuracy is {accuracy['ours']:.2f} %, {place} PyTorch's band of {low:.2f} to {high:.2f} %."
    return text


def _spread(values: Sequence[float], form: str) -> str:
    """The mean, and in brackets the least and the most where there are several."""
    mean, least, most = (form.format(value) for value in (statistics.mean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least} to {most})"


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


def draw(path: Path, report: common.Settings) -> None:
    """The loss over the steps, where Matplotlib is there."""
    if find_matplotlib(path.name) is not None:
        save_figure(from_root("benchmarks.pictures").loss_curves(report), path)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, compares and writes; returns the exit code."""
    given = vars(make_parser().parse_args(argv))
    published = read_reference(given["reference"])
    from_root("benchmarks.common").check_writable("reproduce_paper", given["json"])
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
    report = make_report(settings, results, published)
    for file in (out / "report.json", *([given["json"]] if given["json"] is not None else [])):
        from_root("benchmarks.common").write_json(file, report)
    common.write_text(out / "report.md", report["text"] + "\n")
    draw(out / "curves.png", report)
    print(report["text"])
    print(f"report.json, report.md and curves.png are in {out}")
    return 0


if __name__ == "__main__":
    common.run(main)
