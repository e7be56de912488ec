"""What the example scripts share: options, errors on one line, data sets, networks and optimizers by name, testing."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
from tqdm import tqdm

import alpha
from alpha import datasets, nn, optim
from alpha import distributed as dist
from alpha.datasets import transforms
from alpha.datasets.transforms import Transform
from alpha.errors import AlphaError, ArgumentError
from alpha.files import in_progress
from alpha.interrupts import send_lost_again
from alpha.serialization import replacing

Array = np.ndarray[Any, Any]
Settings = dict[str, Any]
Images = datasets.ArrayDataset | datasets.ImageFolder

MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": nn.models.resnet18,
    "resnet34": nn.models.resnet34,
    "vgg16": nn.models.vgg16,
    "vgg19": nn.models.vgg19,
}
STYLES = ("paper", "torchvision")
HEADS = ("cifar10", "ilsvrc2012")
DATASETS: dict[str, Callable[..., datasets.ArrayDataset]] = {
    "cifar10": datasets.CIFAR10,
    "cifar100": datasets.CIFAR100,
    "digits": datasets.Digits,
}
AUGMENTATIONS: dict[bool | str, tuple[list[Transform], list[Transform]]] = {
    False: ([], []),
    True: ([transforms.RandomCrop(32, padding=4)], [transforms.RandomHorizontalFlip()]),
    "alternating": (
        [transforms.RandomCrop(32, padding=2, padding_mode="reflect")],
        [transforms.AlternatingFlip()],
    ),
}
"""What is done to training images: crops, and flips."""
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "nesterov": lambda params, lr: optim.SGD(params, lr, momentum=0.9, nesterov=True),
    "rmsprop": optim.RMSprop,
    "sgd": lambda params, lr: optim.SGD(params, lr, momentum=0.9),
}


# -- the command line --------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, and which knows what every script takes."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description, allow_abbrev=False)
        self.add_argument("--debug", action="store_true", help="show an error's whole traceback")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}: see --help\n")

    def add_engine(self) -> None:
        """--engine, --threads, --memory."""
        group = self.add_argument_group("engine")
        group.add_argument(
            "--engine", metavar="NAME", help="the engine that computes: cpu, cu32, cu32:1 (default: cpu)"
        )
        group.add_argument("--threads", metavar="N", type=positive_int, help="threads of the cpu engine (default: all)")
        group.add_argument(
            "--memory", metavar="SIZE", help="cap of its memory pool, as 8GB (default: 90 %% of what is there)"
        )


def positive_int(text: str) -> int:
    """An integer >= 1, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return value


def seed(text: str) -> int:
    """An integer >= 0, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def non_negative(text: str) -> float:
    """A finite number >= 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number >= 0, got {text!r}")
    return value


def run(main: Callable[[], int]) -> NoReturn:
    """Runs a script and ends the process.

    An error made by the user or the machine is one line on stderr and exit code 1, Ctrl-C is exit code 130; either
    shows its traceback with --debug. What is left is a bug, and always shows it.
    """
    script = Path(sys.argv[0]).stem
    code = 1
    send_lost_again()
    try:
        code = main()
    except (AlphaError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"{script}: error: {one_line(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        if "--debug" in sys.argv:
            raise
        print(f"{script}: stopped", file=sys.stderr)
        code = 130
    sys.exit(code)


def one_line(error: BaseException) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def use_engine(options: Settings) -> alpha.Engine:
    """The engine that the options ask for, as the default one from now on."""
    engine = alpha.engine(options["engine"] or "cpu", memory=options["memory"], threads=options["threads"])
    alpha.set_default_engine(engine)
    return engine


# -- data, network, optimizer ------------------------------------------------------------------------------------------


def make_dataset(name: str, root: str | None, train: bool, augment: bool | str = False) -> datasets.ArrayDataset:
    """A data set by name; ``augment`` is a key of AUGMENTATIONS. Digits, which have a left and a right, keep them."""
    crops, flips = AUGMENTATIONS[augment]
    steps = [*crops, *(() if name == "digits" else flips), transforms.ToUnitRange()]
    return DATASETS[name](root, train=train, transform=transforms.Compose(steps))


def make_model(settings: Settings, classes: int, **options: Any) -> nn.Module:
    """The network that the settings describe."""
    if settings["model"] == "airbench":  # of the fast recipe alone
        return nn.models.airbench(classes, base_width=settings["base_width"])
    model = MODELS[settings["model"]]
    if settings.get("stem") is not None:
        if not settings["model"].startswith("resnet"):
            raise ArgumentError(f"[--stem] expected a ResNet, got {settings['model']}: leave --stem out")
        options["stem"] = settings["stem"]
    if settings.get("head") is not None:
        options["head"] = settings["head"]
        if settings["model"].startswith("vgg"):  # its head for ILSVRC2012 expects larger images than CIFAR-10's
            options["image_size"] = settings["size"] or 32
    return model(classes, settings["style"], base_width=settings["base_width"], **options)


def test(net: nn.Module, data: Images, batch_size: int, title: str = "test", workers: int = 0) -> tuple[Array, Array]:
    """Runs a data set through a network, with a progress bar; returns images and right answers of each class.

    Several ranks test a part of each batch each.
    """
    labels, answers = [], []
    net.eval()
    with alpha.no_grad(), bar(len(data), title) as progress:
        for x, y in datasets.DataLoader(data, batch_size, workers=workers):
            labels.append(np.array(y))
            answers.append(np.asarray(net(x)).argmax(axis=1))
            progress.update(int(over_ranks(np.array(len(x)))))
    truth, answer = np.concatenate(labels), np.concatenate(answers)
    classes = len(data.classes)
    right = np.bincount(truth[truth == answer], minlength=classes)
    return over_ranks(np.bincount(truth, minlength=classes)), over_ranks(right)


def print_accuracy(images: Array, right: Array) -> None:
    """The line every test ends with."""
    tell(f"test accuracy: {100 * right.sum() / images.sum():.1f} %")


def bar(total: int, title: str, done: int = 0, unit: str = " images") -> Any:
    """A progress bar, on the main rank; where stderr is a file it writes only now and then."""
    interval = 0.1 if sys.stderr.isatty() else 10.0
    options: dict[str, Any] = {"mininterval": interval, "dynamic_ncols": True, "disable": not is_main()}
    return tqdm(total=total, initial=done, desc=title, unit=unit, **options)


# -- ranks -------------------------------------------------------------------------------------------------------------


def is_main() -> bool:
    """Whether this is the process that prints and writes files: the only one, or rank 0 of several."""
    return not dist.is_initialized() or dist.is_main()


def tell(text: str, file: TextIO | None = None) -> None:
    """Prints a line, on the main rank."""
    if is_main():
        print(text, file=file, flush=True)


def from_main(text: str) -> str:
    """A text as the main rank has it."""
    if not dist.is_initialized():
        return text
    data = np.zeros(256, np.uint8)
    content = np.frombuffer(text.encode(), np.uint8)
    data[: len(content)] = content
    return bytes(dist.broadcast(alpha.tensor(data, engine="cpu")).numpy()).rstrip(b"\0").decode()


def over_ranks(counts: Array) -> Array:
    """The sum of counts over all ranks."""
    if not dist.is_initialized():
        return counts
    return np.array(dist.all_reduce(alpha.tensor(np.asarray(counts, np.int64), engine="cpu")))


# -- files -------------------------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Makes a folder and tries to write there, before work is done whose result it could not keep."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = in_progress(path / "probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ArgumentError(
            f"[--out] expected a folder that can be written to, got {path} ({error.strerror}): choose another place"
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Writes a CSV file, whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Writes a file, whole or not at all; CheckpointError if that fails."""
    with replacing("write_text", path) as temporary:
        temporary.write_text(text)


def read_json(path: Path) -> Any:
    """Reads a JSON file; ArgumentError if it is missing or none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArgumentError(f"[{path.name}] expected a JSON file at {path}, got {one_line(error)}") from error


def machine() -> Settings:
    """What a measurement depends on: processor, cores, system."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": platform.platform(),
    }


def cores() -> int:
    """Processors that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return _model_name(file) or platform.machine()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()


def _model_name(file: TextIO) -> str:
    names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    return next(names, "")


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of Python, of ours, and of packages."""
    found = {"python": platform.python_version(), "dragon-alpha": alpha.__version__}
    for package in ("numpy", "numba", *packages):
        found[package] = metadata.version(package)
    return found
