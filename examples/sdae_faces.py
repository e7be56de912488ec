"""Restores occluded faces by a stacked denoising autoencoder, and measures how far that helps to recognise them.

After Zhang & Zhang, ICTAI 2013: the autoencoder learns from pairs of an occluded and the whole face; the recogniser, a
fully connected network, has seen whole faces only. Both know the people, neither the images that are tested. Beside
the autoencoder stands a plain MLP: the same network, trained on the same pairs from random weights.
"""

from __future__ import annotations

import math
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

AUTOENCODER, MLP = "autoencoder", "plain MLP"
Restorers = dict[str, nn.models.StackedDenoisingAutoencoder]
"""The networks that restore faces, by these names."""


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


def make_pairs(faces: common.Array, options: Any, rng: np.random.Generator) -> tuple[common.Array, common.Array]:
    """Rows that are given, whole faces and their occluded copies, and rows that shall come out."""
    covered = [occlusion.occlude(faces, kind, rng) for _ in range(options.copies) for kind in occlusion.KINDS]
    clean = faces.reshape(len(faces), -1)
    given = np.concatenate([clean, *(images.reshape(clean.shape) for images in covered)])
    return given, np.concatenate([clean] * (len(covered) + 1))


def make_restorer(faces: common.Array, options: Any) -> nn.models.StackedDenoisingAutoencoder:
    """The network of both restorers, untrained."""
    sizes = [faces[0].size, *options.hidden]
    return nn.models.StackedDenoisingAutoencoder(sizes, level=0.2, activation="leaky_relu")


def train_autoencoder(
    faces: common.Array, pairs: tuple[common.Array, common.Array], options: Any
) -> nn.models.StackedDenoisingAutoencoder:
    """Pre-trained on whole faces layer by layer, fine-tuned on pairs of an occluded and the whole face."""
    net = make_restorer(faces, options)
    net.fit(faces.reshape(len(faces), -1), options.pretrain, lr=options.lr, progress=True)
    return net.fine_tune(*pairs, options.fine_tune, lr=options.lr, progress=True)


def train_mlp(
    faces: common.Array, pairs: tuple[common.Array, common.Array], options: Any
) -> nn.models.StackedDenoisingAutoencoder:
    """The same network without pre-training: a plain MLP, trained on the pairs by backpropagation alone.

    It is given at least as many rows as the autoencoder, whose pre-training counts in epochs of the pairs.
    """
    extra = math.ceil(options.pretrain * len(options.hidden) * len(faces) / len(pairs[0]))
    net = make_restorer(faces, options)
    return net.fine_tune(*pairs, options.fine_tune + extra, lr=options.lr, progress=True)


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
    restorers: Restorers, net: nn.Module, test: datasets.ORLFaces, rng: np.random.Generator
) -> tuple[dict[str, float], list[tuple[str, common.Array]]]:
    """Accuracies in per cent, and lines of a picture: occluded faces, those restored by each network, and true ones."""
    faces = whole(test)

    def accuracy(images: common.Array) -> float:
        return 100 * float(np.mean(deep.answers(net, images) == test.labels))

    figures: dict[str, float] = {}
    shown = rng.permutation(len(faces))[:_SHOWN]
    lines: dict[str, list[common.Array]] = {"occluded": [], **{name: [] for name in restorers}, "true": []}
    for kind in ("whole", *occlusion.KINDS):
        given = faces if kind == "whole" else occlusion.occlude(faces, kind, rng)
        restored = {name: _restore(restorer, given) for name, restorer in restorers.items()}
        figures[kind] = accuracy(given)
        figures |= {f"{kind}, {name}": accuracy(images) for name, images in restored.items()}
        if kind != "whole":
            for name, images in {"occluded": given, **restored, "true": faces}.items():
                lines[name].append(images[shown])
    for suffix in ("", *(f", {name}" for name in restorers)):
        figures[f"occluded{suffix}"] = float(np.mean([figures[f"{kind}{suffix}"] for kind in occlusion.KINDS]))
    return figures, [(name, np.concatenate(images)) for name, images in lines.items()]


def _restore(restorer: nn.models.StackedDenoisingAutoencoder, images: common.Array) -> common.Array:
    return np.asarray(restorer.reconstruct(images.reshape(len(images), -1))).reshape(images.shape)


def run_seed(options: Any, seed: int) -> tuple[dict[str, float], list[tuple[str, common.Array]]]:
    """Trains all networks on one split and measures."""
    alpha.manual_seed(seed)
    rng = np.random.default_rng(seed)
    train, test = load(options, seed)
    faces = whole(train)
    both, labels = np.concatenate([faces, faces[:, :, ::-1]]), np.concatenate([train.labels, train.labels])
    pairs = make_pairs(both, options, rng)
    autoencoder = train_autoencoder(both, pairs, options)
    net = train_recogniser(both, labels, len(train.classes), options)
    restorers = {AUTOENCODER: autoencoder, MLP: train_mlp(both, pairs, options)}
    return measure(restorers, net, test, rng)


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
        gain = {name: mean[f"occluded, {name}"] - mean["occluded"] for name in (AUTOENCODER, MLP)}
        report = {"settings": settings, "accuracy": mean, "gain": gain}
        common.write_json(options.out / "report.json", {**report, "seeds": results, "versions": common.versions()})
        if seed == 0:
            deep.draw_images(options.out / "faces.png", lines)
        told = ", ".join(f"by the {name} {figures[f'occluded, {name}']:.1f} %" for name in (AUTOENCODER, MLP))
        print(f"seed {seed}: whole {figures['whole']:.1f} %, occluded {figures['occluded']:.1f} %, "
              f"restored {told}", flush=True)  # fmt: skip
    print_table(mean, len(results))
    print(f"report.json and faces.png are in {options.out}")
    return 0


def print_table(mean: dict[str, float], seeds: int) -> None:
    """A row for each kind of test face: accuracy as it is, and restored by each network."""
    print(f"accuracy, mean of {seeds}  as it is  {AUTOENCODER}  {MLP}")
    for kind in ("whole", *occlusion.KINDS, "occluded"):
        encoder, mlp = mean[f"{kind}, {AUTOENCODER}"], mean[f"{kind}, {MLP}"]
        print(f"{kind:<20} {mean[kind]:6.1f} % {encoder:10.1f} % {mlp:8.1f} %")


if __name__ == "__main__":
    common.run(main)
