"""Lays our loss curve over PyTorch's: same initial weights, same batches in the same order, step by step.

Three networks train side by side: ours, PyTorch's in its contiguous layout and PyTorch's in channels_last. Rounding
alone drives the last two apart; ours may be as far from PyTorch as PyTorch is from itself. Writes losses.csv,
curves.png and report.json.
"""

from __future__ import annotations

import importlib
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import common
import numpy as np
from run_folder import find_matplotlib, save_figure

import alpha
from alpha import datasets, nn
from alpha.errors import ArgumentError, NumericsError

NAMES = ("alpha", "torch", "torch channels_last")
EARLY = 20  # steps after which the curves are compared too, before rounding has grown


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser(__doc__ or "")
    group = parser.add_argument_group("network")
    group.add_argument("--model", choices=common.MODELS, default="resnet18", help="(default: resnet18)")
    group.add_argument("--style", choices=common.STYLES, default="paper", help="(default: paper)")
    group.add_argument(
        "--base-width",
        metavar="N",
        type=common.positive_int,
        default=64,
        help="its first stage's channels (default: 64)",
    )
    group.add_argument("--dropout", metavar="P", type=float, default=0.0, help="on both sides (default: 0, none)")
    group = parser.add_argument_group("data")
    group.add_argument("--dataset", choices=common.DATASETS, default="cifar10", help="(default: cifar10)")
    group.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")
    group = parser.add_argument_group("training")
    group.add_argument("--steps", metavar="N", type=common.positive_int, default=200, help="(default: 200)")
    group.add_argument("--batch-size", metavar="N", type=common.positive_int, default=128, help="(default: 128)")
    group.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="(default: float32)")
    group.add_argument("--optimizer", choices=("adam", "adamw", "sgd"), default="adam", help="(default: adam)")
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, default=1e-3, help="(default: 0.001)")
    group.add_argument("--seed", metavar="N", type=common.seed, default=0, help="of weights and order (default: 0)")
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, help="(default: runs/compare-MODEL-DTYPE)")
    parser.add_engine()
    return parser


# -- the three sides ---------------------------------------------------------------------------------------------------


class Side(Protocol):
    """One network in training."""

    def take(self, images: common.Array, labels: common.Array) -> tuple[Any, Any]:
        """A batch (N, H, W, 3) and its labels, as tensors laid out as the network likes it."""

    def step(self, x: Any, y: Any) -> float:
        """Forward, backward, update; returns the loss."""


class AlphaSide:
    """Ours."""

    def __init__(self, options: common.Settings, classes: int) -> None:
        alpha.manual_seed(options["seed"])
        self.dtype = np.dtype(options["dtype"])
        self.net = common.make_model(options, classes, **dropout(options)).to(self.dtype).train()
        self.optimizer = common.OPTIMIZERS[options["optimizer"]](self.net.parameters(), lr=options["lr"])

    def take(self, images: common.Array, labels: common.Array) -> tuple[alpha.Tensor, alpha.Tensor]:
        return alpha.tensor(images.astype(self.dtype)), alpha.tensor(labels)

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss)


class TorchSide:
    """PyTorch's network of the same weights, in one of its memory formats."""

    def __init__(self, torch: Any, options: common.Settings, classes: int, weights: Any, memory_format: Any) -> None:
        self.torch, self.format = torch, memory_format
        self.dtype = getattr(torch, options["dtype"])
        twin = _torch_twin()(
            options["model"], options["style"], classes, base_width=options["base_width"], **dropout(options)
        )
        self.net = twin.to(self.dtype)
        self.net.load_state_dict(weights)
        self.net.to(memory_format=memory_format).train()
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        momentum = {"momentum": 0.9} if options["optimizer"] == "sgd" else {}
        # fused is its fastest
        self.optimizer = kinds[options["optimizer"]](self.net.parameters(), lr=options["lr"], fused=True, **momentum)

    def take(self, images: common.Array, labels: common.Array) -> tuple[Any, Any]:
        x = self.torch.from_numpy(images).to(self.dtype).permute(0, 3, 1, 2)
        return x.contiguous(memory_format=self.format), self.torch.from_numpy(labels)

    def step(self, x: Any, y: Any) -> float:
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


def dropout(options: common.Settings) -> dict[str, float]:
    """The network's option; torchvision's ResNets have none."""
    if options["style"] == "torchvision" and options["model"].startswith("resnet"):
        if options["dropout"]:
            raise ArgumentError("[--dropout] expected 0 for torchvision's ResNets, which have none: leave it out")
        return {}
    return {"dropout": options["dropout"]}


def import_torch() -> Any:
    """PyTorch; ArgumentError where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ArgumentError(
            f"[compare_pytorch] expected PyTorch to compare with, got {common.one_line(error)}: pip install "
            '"dragon-alpha[compare]"'
        ) from error


def _torch_twin() -> Any:
    """benchmarks.torch_models.torch_twin, from beside the examples."""
    root = str(Path(__file__).resolve().parent.parent)
    if root not in sys.path:
        sys.path.append(root)
    return importlib.import_module("benchmarks.torch_models").torch_twin


def make_sides(options: common.Settings, classes: int) -> list[Side]:
    """The three networks, all with the first one's weights."""
    torch = import_torch()
    ours = AlphaSide(options, classes)
    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    torch.manual_seed(options["seed"])
    formats = (torch.contiguous_format, torch.channels_last)
    weights = nn.models.to_torch(ours.net)
    return [ours, *(TorchSide(torch, options, classes, weights, layout) for layout in formats)]


# -- the comparison ----------------------------------------------------------------------------------------------------


def batches(options: common.Settings, data: datasets.ArrayDataset) -> Iterator[tuple[common.Array, common.Array]]:
    """As many shuffled full batches as there are steps, over as many epochs as that takes."""
    loader = datasets.DataLoader(data, options["batch_size"], shuffle=True, drop_last=True, seed=options["seed"])
    left = options["steps"]
    while left:
        for x, y in loader:
            yield np.array(x), np.array(y)
            left -= 1
            if not left:
                return


def compare(
    options: common.Settings, sides: list[Side], data: datasets.ArrayDataset
) -> tuple[common.Array, common.Array]:
    """Trains the sides in turn on each batch; returns losses and seconds, (steps, 3) each."""
    losses: list[list[float]] = []
    seconds: list[list[float]] = []
    with common.bar(options["steps"], "compare", unit=" steps") as bar:
        for images, labels in batches(options, data):
            pairs = [side.take(images, labels) for side in sides]
            losses.append([])
            seconds.append([])
            for name, side, (x, y) in zip(NAMES, sides, pairs, strict=True):
                start = time.perf_counter()
                losses[-1].append(side.step(x, y))
                seconds[-1].append(time.perf_counter() - start)
                if not math.isfinite(losses[-1][-1]):
                    raise NumericsError(
                        f"[compare_pytorch] expected a finite loss at step {len(losses)}, got {losses[-1][-1]} from "
                        f"{name}: lower --lr"
                    )
            bar.set_postfix_str(f"alpha {losses[-1][0]:.4f}, torch {losses[-1][1]:.4f}", refresh=False)
            bar.update()
    return np.array(losses), np.array(seconds)


def distances(losses: common.Array) -> dict[str, float]:
    """How far ours is from PyTorch's, and PyTorch's two layouts from each other."""
    difference = np.abs(losses[:, 0] - losses[:, 1])
    spread = np.abs(losses[:, 1] - losses[:, 2])
    return {
        "max_abs_diff": float(difference.max()),
        "mean_abs_diff": float(difference.mean()),
        "torch_spread_max": float(spread.max()),
        "torch_spread_mean": float(spread.mean()),
    }


def make_report(options: common.Settings, losses: common.Array, seconds: common.Array) -> common.Settings:
    """What report.json holds. The first step, which compiles and allocates, is left out of the medians."""
    timed = seconds[1:] if len(seconds) > 1 else seconds
    medians = [statistics.median(column) for column in timed.T.tolist()]
    return {
        **distances(losses),
        "alpha_s_per_step": medians[0],
        "torch_s_per_step": min(medians[1:]),
        "torch_contiguous_s_per_step": medians[1],
        "torch_channels_last_s_per_step": medians[2],
        f"first_{EARLY}_steps": distances(losses[:EARLY]),
        "settings": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
        "versions": common.versions(["torch"]),
        "machine": common.machine(),
    }


# -- what is left behind -----------------------------------------------------------------------------------------------


def write_losses(path: Path, losses: common.Array) -> None:
    """step,alpha,torch: every digit of our loss and of PyTorch's in its contiguous layout."""
    rows = [[step, repr(row[0]), repr(row[1])] for step, row in enumerate(losses.tolist(), 1)]
    common.write_csv(path, [["step", "alpha", "torch"], *rows])


def draw(path: Path, options: common.Settings, losses: common.Array) -> None:
    """The curves, and below them how far they are apart."""
    figure_class = find_matplotlib(path.name)
    if figure_class is None:
        return
    steps = np.arange(1, len(losses) + 1)
    figure = figure_class(figsize=(8, 6.5), layout="constrained")
    figure.suptitle(
        f"{options['model']} ({options['style']}) on {options['dataset']}: batch {options['batch_size']}, "
        f"{options['optimizer']} {options['lr']:g}, {options['dtype']}"
    )
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    top.plot(steps, losses[:, 1], color="tab:orange", linewidth=2.5, alpha=0.7, label="PyTorch")
    top.plot(steps, losses[:, 0], color="tab:blue", linewidth=1, label="Dragon-Alpha")
    top.set_ylabel("training loss")
    apart = np.abs(losses[:, [0, 2]] - losses[:, [1]])
    apart[apart == 0] = np.nan  # has no place on a logarithmic axis: a gap
    bottom.semilogy(steps, apart[:, 1], color="tab:orange", label="|PyTorch channels_last - PyTorch|")
    bottom.semilogy(steps, apart[:, 0], color="tab:blue", label="|Dragon-Alpha - PyTorch|")
    bottom.set_ylabel("difference of the losses")
    bottom.set_xlabel("training step")
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


def summary(report: common.Settings) -> str:
    """The figures that matter, in three lines."""
    ours, theirs = report["alpha_s_per_step"], report["torch_s_per_step"]
    return (
        f"|alpha - torch|:                mean {report['mean_abs_diff']:.3g}, most {report['max_abs_diff']:.3g}\n"
        f"|torch channels_last - torch|:  mean {report['torch_spread_mean']:.3g}, "
        f"most {report['torch_spread_max']:.3g}\n"
        f"seconds per step:               alpha {ours:.3f}, torch {theirs:.3f} ({theirs / ours:.2f} times)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and writes; returns the exit code."""
    options = vars(make_parser().parse_args(argv))
    import_torch()
    common.use_engine(options)
    out = options["out"] or Path("runs") / f"compare-{options['model']}-{options['dtype']}"
    common.make_folder(out)
    data = common.make_dataset(options["dataset"], options["data"], train=True)
    sides = make_sides(options, len(data.classes))
    losses, seconds = compare(options, sides, data)
    report = make_report(options, losses, seconds)
    write_losses(out / "losses.csv", losses)
    draw(out / "curves.png", options, losses)
    common.write_json(out / "report.json", report)
    print(summary(report))
    print(f"losses.csv, curves.png and report.json are in {out}")
    return 0


if __name__ == "__main__":
    common.run(main)
