"""Trains a DCGAN on CIFAR-10, plain or conditional: a grid of samples each epoch, a walk between latents at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import common
import deep
import numpy as np
import resuming
import run_folder
from resuming import Interrupts, command, run_to_end
from run_folder import Metrics, RunFolder

import alpha
from alpha import datasets, nn, optim
from alpha.serialization import load_checkpoint

SCRIPT = "dcgan"
COLUMNS = ("step", "discriminator", "generator")
BETAS = (0.5, 0.999)
"""Adam's, as in the paper."""
SHOWN = 8
"""Columns of the grid of samples, and its rows where they are no classes."""
WALK = 10
"""Images from one latent to another."""

DEFAULTS: common.Settings = {
    "conditional": False,
    "latent": 100,
    "base_width": 64,
    "dataset": "cifar10",
    "batch_size": 64,
    "lr": 2e-4,
    "seed": 0,
    "data": None,
    "epochs": 25,
    "steps": None,
    "engine": "cpu",
    "threads": None,
    "memory": None,
}
"""Every option's value where neither the command line nor the run that is resumed gives one."""

FIXED = ("conditional", "latent", "base_width", "dataset", "batch_size", "lr", "seed")
"""Options that shape the losses: a resumed run keeps them."""


def make_parser() -> common.Parser:
    """The command line. Options that are not given stay None, so that --resume can tell."""
    parser = common.Parser(__doc__ or "")
    group = parser.add_argument_group("network")
    group.add_argument(
        "--conditional", action="store_true", default=None, help="tell both networks the class of each image"
    )
    group.add_argument(
        "--latent", metavar="N", type=common.positive_int, help=_default("numbers in a latent", "latent")
    )
    group.add_argument(
        "--base-width",
        metavar="N",
        type=common.positive_int,
        help=_default("channels of its largest hidden maps", "base_width"),
    )
    group = parser.add_argument_group("data")
    group.add_argument("--dataset", choices=common.DATASETS, help=_default("the data set", "dataset"))
    group.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", metavar="N", type=common.positive_int, help=_default("passes over it", "epochs"))
    group.add_argument("--steps", metavar="N", type=common.positive_int, help="most training steps in all")
    group.add_argument(
        "--batch-size", metavar="N", type=common.positive_int, help=_default("images in a step", "batch_size")
    )
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, help=_default("Adam's learning rate", "lr"))
    group.add_argument("--seed", metavar="N", type=common.seed, help=_default("of all that is random", "seed"))
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, help="the run's folder (default: runs/dcgan-DATASET-TIME)")
    group.add_argument("--resume", metavar="RUN", type=Path, help="go on with the run in this folder")
    parser.add_engine()
    return parser


def _default(text: str, option: str) -> str:
    return f"{text} (default: {DEFAULTS[option]})"


# -- the run -----------------------------------------------------------------------------------------------------------


class Folder(RunFolder):
    """The paths of a run's files."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metrics = path / "losses.csv"
        self.picture = path / "losses.png"
        self.weights = path / "generator.safetensors"
        self.discriminator = path / "discriminator.safetensors"
        self.interpolation = path / "interpolation.png"

    def samples(self, epoch: int) -> Path:
        """The grid at an epoch's end."""
        return self.path / f"samples-epoch-{epoch}.png"


@dataclass
class Progress:
    """How far a run is: its steps, and sums over those of the epoch under way."""

    step: int = 0
    discriminator: float = 0.0
    generator: float = 0.0
    seconds: float = 0.0

    def start_epoch(self) -> None:
        """Starts the sums again."""
        self.discriminator, self.generator, self.seconds = 0.0, 0.0, 0.0

    def add(self, losses: tuple[float, float], seconds: float) -> None:
        """Adds a step's losses to the sums."""
        self.discriminator += losses[0]
        self.generator += losses[1]
        self.seconds += seconds


@dataclass
class Run:
    """Two networks in training, and all that their checkpoint holds."""

    folder: Folder
    settings: common.Settings
    net: nn.models.DCGAN
    optimizers: dict[str, optim.Optimizer]
    loader: datasets.DataLoader
    classes: Sequence[str]
    latents: common.Array
    progress: Progress = field(default_factory=Progress)

    @property
    def steps(self) -> int:
        """Training steps in all."""
        steps = int(self.settings["epochs"]) * len(self.loader)
        return min(steps, self.settings["steps"] or steps)

    @property
    def title(self) -> str:
        """What is trained on what."""
        return f"{'conditional ' if self.settings['conditional'] else ''}DCGAN on {self.settings['dataset']}"

    def save(self) -> None:
        """Writes the checkpoint; NumericsError, and the one before stays, if the networks are no longer finite."""
        resuming.save(
            SCRIPT,
            self.folder,
            self.progress.step,
            self.net,
            loader=self.loader,
            optimizers={name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            settings=self.settings,
            progress=asdict(self.progress),
        )

    def load(self) -> None:
        """Goes to where the checkpoint was written."""
        extra = load_checkpoint(self.folder.checkpoint, model=self.net, loader=self.loader)
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(extra["optimizers"][name])
        self.progress = Progress(**extra["progress"])

    def labels(self, classes: alpha.Tensor) -> alpha.Tensor | None:
        """What the networks are told of the images' classes."""
        return classes if self.settings["conditional"] else None


def open_run(given: Mapping[str, Any]) -> Run:
    """Makes a new run with its folder, or loads the one to resume."""
    if given["resume"] is None:
        settings = resuming.choose_settings(given, DEFAULTS)
        folder = Folder(given["out"] or Path("runs") / f"dcgan-{settings['dataset']}-{time.strftime('%Y%m%d-%H%M%S')}")
    else:
        folder = Folder.to_resume(given["resume"], given["out"])
        before = resuming.saved_settings(folder, f"{SCRIPT}.py", DEFAULTS)
        settings = resuming.choose_settings(given, before, FIXED)
    engine = common.use_engine(settings)
    if given["resume"] is None:
        folder.create()
    run = make_run(folder, settings, engine)
    if given["resume"] is None:
        run.save()  # from now on the run can be resumed, whatever happens to it
    else:
        run.load()
    common.write_json(folder.settings, {**settings, "versions": common.versions(), "machine": common.machine()})
    return run


def make_run(folder: Folder, settings: common.Settings, engine: alpha.Engine) -> Run:
    """A run at its start; the seed determines all of it."""
    alpha.manual_seed(settings["seed"])
    data = common.make_dataset(settings["dataset"], settings["data"], train=True)
    classes = data.classes if settings["conditional"] else []
    net = nn.models.DCGAN(settings["latent"], settings["base_width"], num_classes=len(classes)).to(engine).train()
    optimizers: dict[str, optim.Optimizer] = {
        name: optim.Adam(part.parameters(), lr=settings["lr"], betas=BETAS)
        for name, part in (("discriminator", net.discriminator), ("generator", net.generator))
    }
    loader = datasets.DataLoader(data, settings["batch_size"], shuffle=True, drop_last=True, engine=engine)
    return Run(folder, settings, net, optimizers, loader, classes, make_latents(settings["latent"], len(classes)))


def make_latents(size: int, classes: int) -> common.Array:
    """Latents (rows, SHOWN, size) to look at all along; a row is a class where there are any, of the same latents."""
    latents = alpha.random.normal((1 if classes else SHOWN, SHOWN, size))
    return np.repeat(latents, classes, axis=0) if classes else latents


# -- training ----------------------------------------------------------------------------------------------------------


def train(run: Run, interrupts: Interrupts) -> bool:
    """Trains to the last step, or until a signal comes; returns whether it got to the end. Either way all is saved."""
    with Metrics(run.folder.metrics, run.progress.step, COLUMNS) as metrics:
        interrupts.deferred = True
        while run.progress.step < run.steps and interrupts.received is None:
            train_epoch(run, metrics, interrupts)
        interrupts.deferred = False
    return interrupts.received is None


def train_epoch(run: Run, metrics: Metrics, interrupts: Interrupts) -> None:
    """Trains to the end of the epoch under way, or the run's last step, or a signal; saves, and draws samples."""
    progress, size = run.progress, run.settings["batch_size"]
    epoch, done = divmod(progress.step, len(run.loader))
    if done == 0:
        progress.start_epoch()
    title = f"epoch {epoch + 1}/{run.settings['epochs']}"
    with common.bar(len(run.loader) * size, title, done * size) as bar:
        start = time.perf_counter()
        for x, y in run.loader:
            losses = train_step(run, x, run.labels(y))
            progress.add(losses, time.perf_counter() - start)
            metrics.write(progress.step, *losses)
            bar.set_postfix_str("discriminator {:.4f}, generator {:.4f}".format(*losses), refresh=False)
            bar.update(size)
            if interrupts.received is not None or progress.step == run.steps:
                break
            start = time.perf_counter()
    run.save()
    steps = progress.step - epoch * len(run.loader)
    if steps == len(run.loader) or progress.step == run.steps:
        deep.draw_grid(run.folder.samples(epoch + 1), generate(run, run.latents), run.classes)
        print(
            f"{title}: discriminator {progress.discriminator / steps:.4f}, generator {progress.generator / steps:.4f}, "
            f"{steps * size / progress.seconds:.0f} images/s",
            flush=True,
        )


def train_step(run: Run, x: alpha.Tensor, labels: alpha.Tensor | None) -> tuple[float, float]:
    """An update of the discriminator, then one of the generator through it; returns the losses of both."""
    net = run.net
    fake = net(alpha.randn(len(x), run.settings["latent"]), labels)
    discriminator = net.discriminator_loss(x, fake, labels)
    descend(run.optimizers["discriminator"], discriminator)
    net.discriminator.requires_grad_(False)  # what is not wanted is not computed
    generator = net.generator_loss(fake, labels)
    descend(run.optimizers["generator"], generator)
    net.discriminator.requires_grad_(True)
    run.progress.step += 1
    losses = float(discriminator), float(generator)
    if not all(map(math.isfinite, losses)):
        raise resuming.diverged(SCRIPT, run.folder, run.progress.step, "loss", losses)
    return losses


def descend(optimizer: optim.Optimizer, loss: alpha.Tensor) -> None:
    """A step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# -- pictures ----------------------------------------------------------------------------------------------------------


def generate(run: Run, latents: common.Array) -> common.Array:
    """Images (rows, columns, H, W, C) in 0..1 of latents (rows, columns, size); a row is a class, if there are any."""
    rows, columns, size = latents.shape
    labels = run.labels(alpha.tensor(np.repeat(np.arange(rows), columns)))
    run.net.eval()
    with alpha.no_grad():
        images = np.array(run.net(alpha.tensor(latents.reshape(-1, size)), labels))
    run.net.train()
    found: common.Array = images.reshape(rows, columns, *images.shape[1:]) / 2 + 0.5
    return found


def walk(start: common.Array, end: common.Array) -> common.Array:
    """Latents (rows, WALK, size) from those at the start (rows, size) to those at the end.

    ((1 - t) start + t end) / sqrt((1 - t)^2 + t^2): on the straight line itself latents would be shorter in the middle
    than any that the generator was trained on.
    """
    t = np.linspace(0, 1, WALK, dtype=np.float32)[:, None]
    found: common.Array = ((1 - t) * start[:, None] + t * end[:, None]) / np.sqrt((1 - t) ** 2 + t**2)
    return found


def finish(run: Run) -> None:
    """Leaves the weights, the walk between latents and the losses' curves."""
    folder = run.folder
    alpha.save(run.net.generator.state_dict(), folder.weights)
    alpha.save(run.net.discriminator.state_dict(), folder.discriminator)
    deep.draw_grid(folder.interpolation, generate(run, walk(run.latents[:, 0], run.latents[:, 1])), run.classes)
    steps, *losses = np.array(run_folder.read_rows(folder.metrics), float).T
    curves = {f"{name}'s loss": values for name, values in zip(COLUMNS[1:], losses, strict=True)}
    run_folder.plot_curves(folder.picture, run.title, steps, curves)


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and draws; returns the exit code."""
    interrupts = Interrupts()
    run = open_run(vars(make_parser().parse_args(argv)))
    where = str(run.folder.path)
    pictures = f"draw its pictures: go on with: {command(f'{SCRIPT}.py', '--resume', where)}"
    if not run_to_end(interrupts, run, SCRIPT, lambda: train(run, interrupts), lambda: finish(run), pictures):
        return interrupts.exit_code
    print(f"weights, losses.csv, samples and interpolation.png are in {where}")
    return 0


if __name__ == "__main__":
    common.run(main)
