"""Restores occluded faces by a stacked denoising autoencoder, and measures how far that helps to recognise them.

After Zhang & Zhang, ICTAI 2013: the autoencoder learns from pairs of an occluded and the whole face; the recogniser, a
fully connected network, has seen whole faces only. Both know the people, neither the images that are tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import deep
import numpy as np
import occlusion

import alpha
from alpha import datasets, nn, optim
from alpha.errors import ArgumentError

_SHOWN = 4  # faces a kind of occlusion in the picture


def make_parser() -> common.Parser:
    """The command line."""
    parser = common.Parser((__doc__ or "").partition("\n")[0])
    count, rate = common.positive_int, common.non_negative
    group = parser.add_argument_group("data")
    group.add_argument("--data", metavar="DIR", help="the folder of s1, s2, ... (default: $ALPHA_DATA, then ./data)")
    group.add_argument("--train-images", metavar="N", type=count, default=7, help="of each person (default: 7)")
    group.add_argument("--reduce", metavar="N", type=count, default=2, help="faces N times smaller (default: 2)")
    group.add_argument(
        "--copies", metavar="N", type=count, default=1,
        help="occluded copies of each training face and its mirror image, by each kind (default: 1)",
    )  # fmt: skip
    group = parser.add_argument_group("restoring")
    group.add_argument(
        "--hidden", metavar="N", type=count, nargs="+", default=[500, 250], help="lengths of codes (default: 500 250)"
    )
    group.add_argument("--pretrain", metavar="N", type=count, default=5, help="epochs per layer (default: 5)")
    group.add_argument("--fine-tune", metavar="N", type=count, default=16, help="epochs (default: 16)")
    group.add_argument("--lr", metavar="RATE", type=rate, default=1e-3, help="Adam's (default: 0.001)")
    group = parser.add_argument_group("recognising")
    group.add_argument("--units", metavar="N", type=count, default=300, help="hidden units (default: 300)")
    group.add_argument("--epochs", metavar="N", type=count, default=30, help="(default: 30)")
    parser.add_argument(
        "--seeds", metavar="N", type=count, default=3, help="runs, each with a split of its own (default: 3)"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs/faces"),
        help="where report.json and faces.png go (default: runs/faces)",
    )  # fmt: skip
    parser.add_engine()
    return parser


def load(options: Any, seed: int) -> tuple[datasets.ORLFaces, datasets.ORLFaces]:
    """The training and the test faces of a seed's split."""
    train, test = (
        datasets.ORLFaces(options.data, part, train_images=options.train_images, seed=seed, reduce=options.reduce)
        for part in (True, False)
    )
    if len(train.classes) < 2:
        raise ArgumentError(f"[--data] expected at least two people, got {len(train.classes)}: give more folders")
    return train, test


def whole(data: datasets.ArrayDataset) -> common.Array:
    """The faces (n, H, W) in 0..1."""
    return data.images[..., 0] / np.float32(255)


def train_restorer(
    faces: common.Array, options: Any, rng: np.random.Generator
) -> nn.models.StackedDenoisingAutoencoder:
    """Pre-trained on whole faces layer by layer, fine-tuned on pairs of an occluded and the whole face."""
    covered = [occlusion.occlude(faces, kind, rng) for _ in range(options.copies) for kind in occlusion.KINDS]
    clean = faces.reshape(len(faces), -1)
    given = np.concatenate([clean, *(images.reshape(clean.shape) for images in covered)])
    goal = np.concatenate([clean] * (len(covered) + 1))
    net = nn.models.StackedDenoisingAutoencoder([clean.shape[1], *options.hidden], level=0.2, activation="leaky_relu")
    net.fit(clean, options.pretrain, lr=options.lr, progress=True)
    return net.fine_tune(given, goal, options.fine_tune, lr=options.lr, progress=True)


def train_recogniser(faces: common.Array, labels: common.Array, classes: int, options: Any) -> nn.models.MLP:
    """A network that tells people apart, from whole faces."""
    net = nn.models.MLP([faces[0].size, options.units, classes])
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    pairs = list(zip(faces, labels.tolist(), strict=True))
    batches = datasets.DataLoader(pairs, 40, shuffle=True)
    with common.bar(options.epochs * len(faces), "recogniser") as progress:
        for _ in range(options.epochs):
            deep.train_epoch(net, optimizer, batches, progress)
    return net


def measure(
    restorer: nn.models.StackedDenoisingAutoencoder, net: nn.Module, test: datasets.ORLFaces, rng: np.random.Generator
) -> tuple[dict[str, float], list[tuple[str, common.Array]]]:
    """Accuracies in per cent, and lines of a picture: occluded, restored and true faces."""
    faces = whole(test)

    def restored(images: common.Array) -> common.Array:
        return np.asarray(restorer.reconstruct(images.reshape(len(images), -1))).reshape(images.shape)

    def accuracy(images: common.Array) -> float:
        return 100 * float(np.mean(deep.answers(net, images) == test.labels))

    figures = {"whole": accuracy(faces), "whole, restored": accuracy(restored(faces))}
    shown = rng.permutation(len(faces))[:_SHOWN]
    lines: list[list[common.Array]] = [[], [], []]
    for kind in occlusion.KINDS:
        covered = occlusion.occlude(faces, kind, rng)
        again = restored(covered)
        figures |= {kind: accuracy(covered), f"{kind}, restored": accuracy(again)}
        for line, images in zip(lines, (covered, again, faces), strict=True):
            line.append(images[shown])
    for suffix in ("", ", restored"):
        figures[f"occluded{suffix}"] = float(np.mean([figures[f"{kind}{suffix}"] for kind in occlusion.KINDS]))
    names = ("occluded", "restored", "true")
    return figures, [(name, np.concatenate(images)) for name, images in zip(names, lines, strict=True)]


def run_seed(options: Any, seed: int) -> tuple[dict[str, float], list[tuple[str, common.Array]]]:
    """Trains both networks on one split and measures."""
    alpha.manual_seed(seed)
    rng = np.random.default_rng(seed)
    train, test = load(options, seed)
    faces = whole(train)
    both, labels = np.concatenate([faces, faces[:, :, ::-1]]), np.concatenate([train.labels, train.labels])
    restorer = train_restorer(both, options, rng)
    net = train_recogniser(both, labels, len(train.classes), options)
    return measure(restorer, net, test, rng)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs every seed and reports after each; returns the exit code."""
    options = make_parser().parse_args(argv)
    common.use_engine(vars(options))
    load(options, 0)  # what is wrong with the data is said before a folder is made
    common.make_folder(options.out)
    results: list[dict[str, float]] = []
    for seed in range(options.seeds):
        figures, lines = run_seed(options, seed)
        results.append(figures)
        mean = {name: float(np.mean([result[name] for result in results])) for name in figures}
        settings = {**vars(options), "out": str(options.out)}
        report = {"settings": settings, "accuracy": mean, "gain": mean["occluded, restored"] - mean["occluded"]}
        common.write_json(options.out / "report.json", {**report, "seeds": results, "versions": common.versions()})
        if seed == 0:
            deep.draw_images(options.out / "faces.png", lines)
        print(f"seed {seed}: whole {figures['whole']:.1f} %, occluded {figures['occluded']:.1f} %, "
              f"restored {figures['occluded, restored']:.1f} %", flush=True)  # fmt: skip
    print_table(mean, len(results))
    print(f"report.json and faces.png are in {options.out}")
    return 0


def print_table(mean: dict[str, float], seeds: int) -> None:
    """A row for each kind of test face: accuracy as it is, and restored."""
    print(f"accuracy, mean of {seeds}  as it is  restored")
    for kind in ("whole", *occlusion.KINDS, "occluded"):
        print(f"{kind:<20} {mean[kind]:8.1f} % {mean[f'{kind}, restored']:7.1f} %")


if __name__ == "__main__":
    common.run(main)
