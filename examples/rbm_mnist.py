"""Trains a restricted Boltzmann machine on MNIST: its filters, what it reconstructs, and whether it overfits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import common
import deep
import numpy as np
import run_folder

import alpha
from alpha import nn

_SHOWN = 10


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser(__doc__ or "")
    deep.add_digits(parser)
    group = parser.add_argument_group("machine and training")
    group.add_argument(
        "--hidden", metavar="N", type=common.positive_int, default=200, help="hidden units (default: 200)"
    )
    group.add_argument("--k", metavar="N", type=common.positive_int, default=1, help="Gibbs steps (default: 1)")
    group.add_argument(
        "--persistent", action="store_true", help="chains go on from batch to batch (PCD), else start at it (CD)"
    )
    group.add_argument("--epochs", metavar="N", type=common.positive_int, default=15, help="(default: 15)")
    group.add_argument("--batch-size", metavar="N", type=common.positive_int, default=64, help="(default: 64)")
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, default=0.05, help="(default: 0.05)")
    group.add_argument("--seed", metavar="N", type=common.seed, default=0, help="of all that is random (default: 0)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs/rbm"),
        help="where weights, free_energy.csv and pictures go (default: runs/rbm)",
    )  # fmt: skip
    parser.add_engine()
    return parser


def write_results(
    out: Path, rbm: nn.models.RBM, history: list[dict[str, float]], held_out: common.Array, side: int
) -> None:
    """Leaves the weights, the curve and the pictures."""
    alpha.save(rbm.state_dict(), out / "model.safetensors")
    names = ("error", "free_energy", "held_out_free_energy")
    lines = [[epoch, *(figures[name] for name in names)] for epoch, figures in enumerate(history, 1)]
    common.write_csv(out / "free_energy.csv", [("epoch", *names), *lines])
    filters = np.asarray(rbm.weight)[: 5 * _SHOWN].reshape(-1, side, side)
    rows_of_filters = [filters[start : start + _SHOWN] for start in range(0, len(filters), _SHOWN)]
    deep.draw_images(out / "filters.png", [("", images) for images in rows_of_filters], "filters of hidden units")
    some = held_out[:_SHOWN]
    restored = np.asarray(rbm.reconstruct(some))
    pictures = [("held out", some.reshape(-1, side, side)), ("reconstructed", restored.reshape(-1, side, side))]
    deep.draw_images(out / "reconstructions.png", pictures)
    draw_curve(out / "free_energy.png", history)


def draw_curve(path: Path, history: list[dict[str, float]]) -> None:
    """Free energies over the epochs: where the two part, the machine overfits."""
    figure_class = run_folder.find_matplotlib(path.name)
    if figure_class is None or not history:
        return
    figure = figure_class(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    epochs = range(1, len(history) + 1)
    for name, label in (("free_energy", "trained on"), ("held_out_free_energy", "held out")):
        axes.plot(epochs, [figures[name] for figures in history], marker=".", label=label)
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean free energy")
    axes.grid(alpha=0.3)
    axes.legend()
    run_folder.save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and draws, after Ctrl-C what there is by then; returns the exit code."""
    options = make_parser().parse_args(argv)
    common.use_engine(vars(options))
    train, test = deep.load_digits(options.dataset, options.data)
    common.make_folder(options.out)
    alpha.manual_seed(options.seed)
    data, held_out = deep.rows(train), deep.rows(test)
    rbm = nn.models.RBM(data.shape[1], options.hidden, options.k, options.persistent, chains=options.batch_size)
    history: list[dict[str, float]] = []
    code = 0
    try:
        rbm.fit(
            data, options.epochs, options.batch_size, options.lr,
            held_out=held_out, callback=lambda epoch, figures: history.append(figures), progress=True,
        )  # fmt: skip
    except KeyboardInterrupt:
        code = 130
    if history:
        write_results(options.out, rbm, history, held_out, train.images.shape[1])
        last = history[-1]
        print(f"epoch {len(history)}: reconstruction error {last['error']:.4f}, free energy {last['free_energy']:.2f}, "
              f"held out {last['held_out_free_energy']:.2f}; pictures are in {options.out}")  # fmt: skip
    return code


if __name__ == "__main__":
    common.run(main)
