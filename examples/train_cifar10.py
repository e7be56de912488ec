"""Trains a network on CIFAR-10 (or CIFAR-100, or scikit-learn's digits), tests it, and can go on where it stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import common
import numpy as np
import recipes
import resuming
import run_folder
from monitoring import TensorBoard
from resuming import Interrupts, command, run_to_end
from run_folder import Metrics, RunFolder

import alpha
from alpha import datasets, nn, optim
from alpha import distributed as dist
from alpha.serialization import load_checkpoint

SCRIPT = "train_cifar10"

DEFAULTS: common.Settings = {
    "recipe": "paper",
    "model": "resnet18",
    "style": "paper",
    "stem": None,
    "base_width": 64,
    "dataset": "cifar10",
    "augment": False,
    "batch_size": 128,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "weight_decay": None,
    "label_smoothing": 0.0,
    "average": 0.0,
    "precision": "float32",
    "seed": 0,
    "data": None,
    "epochs": 1,
    "steps": None,
    "checkpoint_every": 200,
    "tensorboard": False,
    "engine": "cpu",
    "threads": None,
    "memory": None,
    "shards": None,
}
"""Every option's value where neither the command line nor the run that is resumed gives one."""

PRECISIONS = ("float32", "medium", "bf16")
"""What products are computed in: see ``alpha.set_float32_precision`` and ``alpha.autocast``."""

FIXED = (
    "recipe",
    "model",
    "style",
    "stem",
    "base_width",
    "dataset",
    "augment",
    "batch_size",
    "optimizer",
    "lr",
    "schedule",
    "weight_decay",
    "label_smoothing",
    "average",
    "precision",
    "seed",
    "shards",
)
"""Options that shape the loss curve: a resumed run keeps them."""


def make_parser() -> common.Parser:
    """The command line. Options that are not given stay None, so that --resume can tell."""
    parser = common.Parser(__doc__ or "")
    group = parser.add_argument_group("network")
    group.add_argument("--model", choices=common.MODELS, help=_default("the network", "model"))
    group.add_argument("--style", choices=common.STYLES, help=_default("whose variant of it", "style"))
    group.add_argument("--stem", choices=("3x3", "7x7"), help="of torchvision's ResNets (default: 7x7)")
    group.add_argument(
        "--base-width",
        metavar="N",
        type=common.positive_int,
        help=_default("channels of its first stage", "base_width"),
    )
    group = parser.add_argument_group("data")
    group.add_argument("--dataset", choices=common.DATASETS, help=_default("the data set", "dataset"))
    group.add_argument("--data", metavar="DIR", help="the folder it lies in (default: $ALPHA_DATA, then ./data)")
    group.add_argument("--augment", action="store_true", default=None, help="crop and mirror images at random")
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", metavar="N", type=common.positive_int, help=_default("passes over it", "epochs"))
    group.add_argument("--steps", metavar="N", type=common.positive_int, help="most training steps in all")
    group.add_argument(
        "--batch-size", metavar="N", type=common.positive_int, help=_default("images in a step", "batch_size")
    )
    group.add_argument("--optimizer", choices=common.OPTIMIZERS, help=_default("the optimizer", "optimizer"))
    group.add_argument("--lr", metavar="RATE", type=common.non_negative, help=_default("its learning rate", "lr"))
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help=_default("float32; medium: factors of products are bfloat16; bf16: autocast", "precision"),
    )
    group.add_argument("--seed", metavar="N", type=common.seed, help=_default("of all that is random", "seed"))
    recipes.add_options(parser, _default)
    group.add_argument(
        "--shards",
        metavar="N",
        type=common.positive_int,
        help="into how many parts each batch is cut; any number of ranks that divides it gives the same bits (default: "
        "the number of ranks that the run was started with)",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", type=Path, help="the run's folder (default: runs/MODEL-DATASET-TIME)")
    group.add_argument("--resume", metavar="RUN", type=Path, help="go on with the run in this folder")
    group.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=common.positive_int,
        help=_default("steps from one checkpoint to the next", "checkpoint_every"),
    )
    group.add_argument(
        "--tensorboard", action="store_true", default=None, help="write TensorBoard's events into the run's folder too"
    )
    parser.add_engine()
    return parser


def _default(text: str, option: str) -> str:
    return f"{text} (default: {DEFAULTS[option]})"


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """How far a run is: its steps, and sums over the images of the epoch under way."""

    step: int = 0
    images: int = 0
    loss: float = 0.0
    right: int = 0
    seconds: float = 0.0

    def start_epoch(self) -> None:
        """Starts the sums again."""
        self.images, self.loss, self.right, self.seconds = 0, 0.0, 0, 0.0

    def add(self, images: int, loss: float, right: int, seconds: float) -> None:
        """Adds a step's batch to the sums."""
        self.images += images
        self.loss += loss * images
        self.right += right
        self.seconds += seconds

    @property
    def mean_loss(self) -> float:
        """Mean loss of the epoch so far."""
        return self.loss / self.images

    @property
    def accuracy(self) -> float:
        """Accuracy of the epoch so far, in per cent."""
        return 100 * self.right / self.images


@dataclass
class Run:
    """A network in training, and all that its checkpoint holds."""

    folder: RunFolder
    settings: common.Settings
    net: nn.Module
    optimizers: list[optim.Optimizer]
    schedules: list[optim.LRScheduler]
    average: optim.AveragedModel[nn.Module] | None
    loader: datasets.DataLoader
    parallel: dist.DataParallel | None
    progress: Progress = field(default_factory=Progress)

    @property
    def steps(self) -> int:
        """Training steps in all."""
        steps = int(self.settings["epochs"]) * len(self.loader)
        return min(steps, self.settings["steps"] or steps)

    def casts(self) -> AbstractContextManager[object]:
        """What the forward pass is computed within."""
        return alpha.autocast("bfloat16", enabled=self.settings["precision"] == "bf16")

    @property
    def title(self) -> str:
        """What is trained on what."""
        return f"{self.settings['model']} ({self.settings['style']}) on {self.settings['dataset']}"

    @property
    def lr(self) -> float:
        """The learning rate of most parameters now."""
        return float(self.optimizers[0].param_groups[0]["lr"])

    def save(self) -> None:
        """Writes the checkpoint; NumericsError, and the one before stays, if the network is no longer finite."""
        resuming.save(
            SCRIPT,
            self.folder,
            self.progress.step,
            self.net,
            optimizer=self.optimizers[0],
            scheduler=self.schedules[0] if self.schedules else None,
            loader=self.loader,
            others=[part.state_dict() for part in self.others],
            settings=self.settings,
            progress=asdict(self.progress),
            average=None if self.average is None else {k: np.array(t) for k, t in self.average.state_dict().items()},
        )

    def load(self) -> None:
        """Goes to where the checkpoint was written."""
        extra = load_checkpoint(
            self.folder.checkpoint,
            model=self.net,
            optimizer=self.optimizers[0],
            scheduler=self.schedules[0] if self.schedules else None,
            loader=self.loader,
        )
        for part, state in zip(self.others, extra.get("others", []), strict=True):
            part.load_state_dict(state)
        self.progress = Progress(**extra["progress"])
        if self.average is not None:
            self.average.load_state_dict(extra["average"])

    @property
    def others(self) -> list[optim.Optimizer | optim.LRScheduler]:
        """Optimizers and schedules after the first ones."""
        return [*self.optimizers[1:], *self.schedules[1:]]

    def stops(self, interrupts: Interrupts) -> bool:
        """Whether to stop after this step; of several ranks all stop after the same one."""
        if self.parallel is None:
            return interrupts.received is not None
        if interrupts.received is not None:
            self.parallel.request_stop()
        return self.parallel.stopping

    @property
    def kept(self) -> nn.Module:
        """What is kept and tested: the average, where there is one."""
        return self.net if self.average is None else self.average.module


def choose_settings(given: Mapping[str, Any], saved: Mapping[str, Any] | None) -> common.Settings:
    """Each option from the command line, else from the run that is resumed, else the default.

    ArgumentError where the command line contradicts what shaped the run so far, or the recipe.
    """
    recipe = given["recipe"] or DEFAULTS["recipe"]
    before = saved or {**DEFAULTS, **recipes.RECIPES[recipe]}
    if saved is None:
        recipes.check_options(given, recipe)
    # A schedule goes over all epochs.
    fixed = FIXED if before["schedule"] == "constant" else (*FIXED, "epochs")
    return resuming.choose_settings(given, before, fixed if saved is not None else ())


def open_run(given: Mapping[str, Any]) -> Run:
    """Makes a new run with its folder, or loads the one to resume."""
    ranks = start_ranks(given)
    resume = given["resume"] or restarted(given)
    if resume is None:
        settings = choose_settings(given, None)
        name = f"{settings['model']}-{settings['dataset']}-{common.from_main(time.strftime('%Y%m%d-%H%M%S'))}"
        folder = RunFolder(given["out"] or Path("runs") / name)
        settings["shards"] = settings["shards"] or (ranks if ranks > 1 else None)
    else:
        folder = RunFolder.to_resume(resume, given["out"])
        settings = choose_settings(given, resuming.saved_settings(folder, f"{SCRIPT}.py", DEFAULTS))
    if settings["shards"] and not dist.is_initialized():
        dist.init()
    engine = common.use_engine(settings)
    if resume is None and common.is_main():
        folder.create()
    if settings["precision"] == "medium":
        alpha.set_float32_precision("medium")
    alpha.manual_seed(settings["seed"])
    data = common.make_dataset(settings["dataset"], settings["data"], train=True, augment=settings["augment"])
    net = common.make_model(settings, len(data.classes)).to(engine).train()
    if resume is None:
        recipes.prepare(net, data)
    optimizers = recipes.make_optimizers(settings, net)
    loader = datasets.DataLoader(data, settings["batch_size"], shuffle=True, engine=engine)
    schedules = recipes.make_schedules(settings, optimizers, len(loader))
    average = recipes.make_average(settings, net)
    parallel = dist.DataParallel(net, settings["shards"]) if settings["shards"] else None
    run = Run(folder, settings, net, optimizers, schedules, average, loader, parallel)
    if resume is None:
        run.save()  # from now on the run can be resumed, whatever happens to it
    else:
        run.load()
    if common.is_main():
        packages = common.versions()
        common.write_json(folder.settings, {**settings, "versions": packages, "machine": common.machine()})
    return run


def start_ranks(given: Mapping[str, Any]) -> int:
    """Makes this process one of the ranks that were started together, if there are several; their number."""
    if dist.is_launched() or given["shards"]:
        return dist.init().size
    return 1


def restarted(given: Mapping[str, Any]) -> Path | None:
    """The folder to go on in where the launcher has started this program again, and there was a checkpoint."""
    out = given["out"]
    if dist.restarts() and out is not None and RunFolder(out).checkpoint.is_file():
        return Path(out)
    return None


# -- training ----------------------------------------------------------------------------------------------------------


def train(run: Run, interrupts: Interrupts) -> bool:
    """Trains to the last step, or until a signal comes; returns whether it got to the end. Either way all is saved."""
    with metrics_of(run) as metrics, tensorboard_events(run) as events:
        interrupts.deferred = True
        while run.progress.step < run.steps and not run.stops(interrupts):
            train_epoch(run, metrics, events, interrupts)
        run.save()
        interrupts.deferred = False
    return not run.stops(interrupts)


def metrics_of(run: Run) -> AbstractContextManager[Metrics | None]:
    """The file of metrics, which the main rank writes."""
    return Metrics(run.folder.metrics, run.progress.step) if common.is_main() else nullcontext()


def tensorboard_events(run: Run) -> AbstractContextManager[TensorBoard | None]:
    """TensorBoard's events, if they are wanted."""
    wanted = run.settings["tensorboard"] and common.is_main()
    return TensorBoard(run.folder.events, run.progress.step) if wanted else nullcontext()


def train_epoch(run: Run, metrics: Metrics | None, events: TensorBoard | None, interrupts: Interrupts) -> None:
    """Trains to the end of the epoch under way, or the run's last step, or a signal."""
    progress, every = run.progress, run.settings["checkpoint_every"]
    images, epoch = len(run.loader.dataset), run.loader.epoch + 1
    if progress.images == images:
        progress.start_epoch()
    title = f"epoch {epoch}/{run.settings['epochs']}"
    with common.bar(images, title, progress.images) as bar:
        start = time.perf_counter()
        for x, y in run.loader:
            lr = run.lr
            loss, right, count = train_step(run, x, y)
            seconds = time.perf_counter() - start
            progress.add(count, loss, right, seconds)
            if metrics is not None:
                metrics.write(progress.step, epoch, loss, right / count, f"{count / seconds:.1f}", lr)
            if events is not None:
                events.write(progress.step, loss=loss, accuracy=right / count, images_per_s=count / seconds, lr=lr)
            bar.set_postfix_str(f"loss {progress.mean_loss:.4f}, accuracy {progress.accuracy:.1f} %", refresh=False)
            bar.update(count)
            if run.stops(interrupts) or progress.step == run.steps:
                break
            if progress.step % every == 0:
                run.save()
            start = time.perf_counter()
    if progress.images == images:
        speed = images / progress.seconds
        common.tell(
            f"{title}: loss {progress.mean_loss:.4f}, accuracy {progress.accuracy:.1f} %, {speed:.0f} images/s, "
            f"{progress.seconds:.1f} s"
        )


def train_step(run: Run, x: alpha.Tensor, y: alpha.Tensor) -> tuple[float, int, int]:
    """Forward, backward and update on one batch; returns the loss, right answers and images, of all ranks."""
    recipes.freeze_resting(run.settings, run.optimizers)
    gradients = gradients_of_rank if run.parallel is None else gradients_of_ranks
    loss, right, count = gradients(run, x, y)
    for optimizer in run.optimizers:
        optimizer.step()
    for schedule in run.schedules:
        schedule.step()
    if run.average is not None:
        run.average.update_parameters(run.net)
    run.progress.step += 1
    value = float(loss)
    if not math.isfinite(value):
        raise resuming.diverged(SCRIPT, run.folder, run.progress.step, "loss", value)
    return value, right(), count


Step = tuple[Any, Callable[[], int], int]
"""The loss, what counts the right answers, the number of images."""


def gradients_of_rank(run: Run, x: alpha.Tensor, y: alpha.Tensor) -> Step:
    """Forward and backward of one process."""
    for optimizer in run.optimizers:
        optimizer.zero_grad()
    with run.casts():
        logits = run.net(x)
        loss = nn.functional.cross_entropy(logits, y, label_smoothing=run.settings["label_smoothing"])
    loss.backward()
    return loss, lambda: right_answers(logits, y), len(y)


def gradients_of_ranks(run: Run, x: alpha.Tensor, y: alpha.Tensor) -> Step:
    """Forward and backward of this rank's shards; the gradients are those of all ranks' images."""
    parallel = run.parallel
    assert parallel is not None
    right = 0
    for optimizer in run.optimizers:
        optimizer.zero_grad()
    for images, labels in parallel.split(x, y):
        with run.casts():
            logits = parallel(images)
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=run.settings["label_smoothing"])
        parallel.backward(loss)
        right += right_answers(logits, labels)
    return parallel.loss, lambda: int(common.over_ranks(np.array(right))), parallel.rows


def right_answers(logits: alpha.Tensor, labels: alpha.Tensor) -> int:
    """How many of a batch's largest logits are the labels'."""
    return int((np.asarray(logits.detach().float()).argmax(axis=1) == np.asarray(labels)).sum())


# -- from the command line ---------------------------------------------------------------------------------------------


def finish(run: Run) -> None:
    """Leaves the weights and the picture, then tests."""
    settings = run.settings
    if common.is_main():
        alpha.save(run.kept.state_dict(), run.folder.weights)
        run_folder.plot(run.folder, run.title)
    data = common.make_dataset(settings["dataset"], settings["data"], train=False)
    common.print_accuracy(*common.test(recipes.tested(settings, run.kept), data, settings["batch_size"]))


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and tests; returns the exit code."""
    interrupts = Interrupts()
    run = open_run(vars(make_parser().parse_args(argv)))
    test = f"test with: {command('evaluate.py', str(run.folder.path))}"
    done = run_to_end(interrupts, run, SCRIPT, lambda: train(run, interrupts), lambda: finish(run), test)
    return 0 if done else interrupts.exit_code


if __name__ == "__main__":
    common.run(main)
