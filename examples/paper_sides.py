"""One side of reproduce_paper.py in a process of its own: trains one run of ours or of PyTorch's, can go on with it.

    python paper_sides.py OUT SIDE RUN

reads OUT/settings.json and OUT/weights-RUN.npz and leaves OUT/SIDE-RUN: checkpoint, losses.csv, weights, result.json.
"""

from __future__ import annotations

import importlib
import math
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import common
import numpy as np
from resuming import Interrupts

import alpha
from alpha import datasets, nn, optim
from alpha.errors import ArgumentError, NumericsError
from alpha.serialization import load_checkpoint, replacing, save_checkpoint

SIDES = ("alpha", "torch")
IMAGE_FOLDER = "imagefolder"
PRECISIONS = ("float32", "bf16")
Progress = dict[str, Any]


def from_root(module: str) -> Any:
    """A module of the repository, from beside the examples."""
    root = str(Path(__file__).resolve().parent.parent)
    if root not in sys.path:
        sys.path.append(root)
    return importlib.import_module(module)


def make_data(settings: common.Settings, train: bool, augment: bool = False) -> common.Images:
    """The images to train on, or those to test with; of a folder of images DIR/train and DIR/val."""
    if settings["dataset"] != IMAGE_FOLDER:
        return common.make_dataset(settings["dataset"], settings["data"], train=train)
    folder = Path(settings["data"]) / ("train" if train else "val")
    return datasets.ImageFolder(
        folder, size=settings["size"], augment=augment, transform=datasets.transforms.ToUnitRange()
    )


class Folder:
    """The files that a run of a side leaves."""

    def __init__(self, out: Path, side: str, run: int) -> None:
        self.path = out / f"{side}-{run}"
        self.checkpoint = self.path / "checkpoint"
        self.losses = self.path / "losses.csv"
        self.weights = self.path / ("model.safetensors" if side == "alpha" else "model.pt")
        self.result = self.path / "result.json"


class Side(Protocol):
    """A network in training."""

    def step(self, images: common.Array, labels: common.Array) -> Any:
        """Forward, backward, update on a batch (N, H, W, 3); returns the loss, still on the device."""

    def wait(self) -> None:
        """Until the device has done all that it was given."""

    def test(self, data: common.Images, title: str) -> float:
        """Per cent of right answers."""

    def save(self, file: Path, loader: datasets.DataLoader, progress: Progress) -> None:
        """Writes all that going on to the bit takes, whole or not at all."""

    def load(self, file: Path, loader: datasets.DataLoader) -> Progress:
        """Goes to where ``save`` was called."""

    def save_weights(self, file: Path) -> None:
        """Writes the weights alone."""

    def peak_mib(self) -> float:
        """Most memory so far."""


class AlphaSide:
    """Ours."""

    def __init__(self, settings: common.Settings, classes: int, run: int, weights: Path) -> None:
        self.engine = common.use_engine(settings)
        alpha.manual_seed(settings["seed"] + run)
        self.net = common.make_model({**settings, "style": "paper"}, classes).to(self.engine).train()
        with np.load(weights) as arrays:
            self.net.load_state_dict(nn.models.from_torch(dict(arrays), self.net))
        self.optimizer = optim.Adam(self.net.parameters(), lr=settings["lr"])
        self.batch_size, self.workers = settings["batch_size"], settings["workers"]
        self.host = None if settings["engine"] not in (None, "cpu") else from_root("benchmarks.workers").Memory()
        self.casts = partial(alpha.autocast, "bfloat16", enabled=settings["precision"] == "bf16")

    def step(self, images: common.Array, labels: common.Array) -> alpha.Tensor:
        x, y = alpha.tensor(images, engine=self.engine), alpha.tensor(labels, engine=self.engine)
        self.optimizer.zero_grad()
        with self.casts():
            loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def wait(self) -> None:
        self.engine.synchronize()

    def test(self, data: common.Images, title: str) -> float:
        with self.casts():
            images, right = common.test(self.net, data, self.batch_size, title, self.workers)
        return 100 * float(right.sum() / images.sum())

    def save(self, file: Path, loader: datasets.DataLoader, progress: Progress) -> None:
        save_checkpoint(file, model=self.net, optimizer=self.optimizer, loader=loader, progress=progress)

    def load(self, file: Path, loader: datasets.DataLoader) -> Progress:
        found = load_checkpoint(file, model=self.net, optimizer=self.optimizer, loader=loader)
        return dict(found["progress"])

    def save_weights(self, file: Path) -> None:
        alpha.save(self.net.state_dict(), file)

    def peak_mib(self) -> float:
        return float(self.engine.memory.peak / (1 << 20) if self.host is None else self.host.peak_mib())


class TorchSide:
    """PyTorch, in channels_last, with its fused Adam; with cuDNN's search on a GPU."""

    def __init__(self, settings: common.Settings, classes: int, run: int, weights: Path) -> None:
        torch = importlib.import_module("torch")
        self.torch = torch
        if settings["threads"] is not None:
            torch.set_num_threads(settings["threads"])
        cuda = settings["engine"] not in (None, "cpu")
        self.device = torch.device("cuda" if cuda else "cpu")
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(settings["seed"] + run)
        twin = from_root("benchmarks.torch_models").torch_twin
        options = {"base_width": settings["base_width"], "head": settings["head"], "image_size": settings["size"] or 32}
        net = twin(settings["model"], "paper", classes, **options)
        with np.load(weights) as arrays:
            net.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
        self.net = net.to(self.device, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=settings["lr"], fused=True)
        self.batch_size, self.workers = settings["batch_size"], settings["workers"]
        self.host = None if cuda else from_root("benchmarks.workers").Memory()
        halves = settings["precision"] == "bf16"
        self.casts = partial(torch.autocast, self.device.type, torch.bfloat16, enabled=halves)

    def _images(self, images: common.Array) -> Any:
        x = self.torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2)
        return x.contiguous(memory_format=self.torch.channels_last)

    def step(self, images: common.Array, labels: common.Array) -> Any:
        y = self.torch.from_numpy(labels).to(self.device)
        self.optimizer.zero_grad()
        with self.casts():
            loss = self.torch.nn.functional.cross_entropy(self.net(self._images(images)), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def test(self, data: common.Images, title: str) -> float:
        right = 0
        self.net.eval()
        with self.torch.no_grad(), self.casts(), common.bar(len(data), title) as bar:
            for x, y in datasets.DataLoader(data, self.batch_size, workers=self.workers):
                answers = self.net(self._images(np.array(x))).argmax(1).cpu().numpy()
                right += int((answers == np.array(y)).sum())
                bar.update(len(answers))
        self.net.train()
        return 100 * right / len(data)

    def save(self, file: Path, loader: datasets.DataLoader, progress: Progress) -> None:
        random = [self.torch.get_rng_state()]
        random += [self.torch.cuda.get_rng_state()] if self.device.type == "cuda" else []
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "random": random}
        with replacing("reproduce_paper", file) as temporary:
            self.torch.save({**state, "loader": loader.state_dict(), "progress": progress}, temporary)

    def load(self, file: Path, loader: datasets.DataLoader) -> Progress:
        state = self.torch.load(file, map_location="cpu", weights_only=False)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        self.torch.set_rng_state(state["random"][0])
        if len(state["random"]) > 1:
            self.torch.cuda.set_rng_state(state["random"][1])
        return dict(state["progress"])

    def save_weights(self, file: Path) -> None:
        with replacing("reproduce_paper", file) as temporary:
            self.torch.save(self.net.state_dict(), temporary)

    def peak_mib(self) -> float:
        if self.host is None:
            return float(self.torch.cuda.max_memory_allocated() / (1 << 20))
        return float(self.host.peak_mib())


# -- a run -------------------------------------------------------------------------------------------------------------


def train(
    side: Side, loader: datasets.DataLoader, settings: common.Settings, folder: Folder, name: str, progress: Progress
) -> bool:
    """Trains to the last step, or until a signal comes; returns whether it got to the end. Either way all is saved."""
    interrupts = Interrupts()
    interrupts.deferred = True
    epochs = settings["epochs"] if isinstance(side, AlphaSide) else settings["torch_epochs"] or settings["epochs"]
    steps = min(epochs * len(loader), settings["steps"] or math.inf)
    with common.bar(int(steps), name, progress["step"], unit=" steps") as bar:
        while progress["step"] < steps and interrupts.received is None:
            for x, y in loader:
                take_step(side, np.array(x), np.array(y), settings, progress)
                if progress["losses"]:
                    speed = len(y) / statistics.median(progress["seconds"])
                    bar.set_postfix_str(f"loss {progress['losses'][-1][1]:.4f}, {speed:.0f} images/s", refresh=False)
                bar.update()
                if interrupts.received is not None or progress["step"] >= steps:
                    break
                if progress["step"] % settings["checkpoint_every"] == 0:
                    side.save(folder.checkpoint, loader, progress)
    side.save(folder.checkpoint, loader, progress)
    interrupts.deferred = False
    return interrupts.received is None


def take_step(
    side: Side, images: common.Array, labels: common.Array, settings: common.Settings, progress: Progress
) -> None:
    """A step, its time, and its loss where it is one of those that are kept."""
    kept = progress["step"] % settings["every"] == 0
    start = time.perf_counter()
    loss = side.step(images, labels)
    if kept:
        value = float(loss)
        progress["losses"].append([progress["step"], value])
        if not math.isfinite(value):
            raise NumericsError(f"[reproduce_paper] expected a finite loss at step {progress['step']}, got {value}")
    side.wait()
    progress["seconds"].append(time.perf_counter() - start)
    progress["step"] += 1


def work(out: Path, name: str, run: int) -> int:
    """Trains a run of a side, from its beginning or from where it was stopped, then tests it; the exit code."""
    settings, folder = common.read_json(out / "settings.json"), Folder(out, name, run)
    folder.path.mkdir(exist_ok=True)
    data = make_data(settings, train=True, augment=True)
    weights = out / f"weights-{run}.npz"
    side: Side
    if name == "alpha":
        side = AlphaSide(settings, len(data.classes), run, weights)
    else:
        side = TorchSide(settings, len(data.classes), run, weights)
    seed, workers = settings["seed"] + run, settings["workers"]
    loader = datasets.DataLoader(data, settings["batch_size"], shuffle=True, seed=seed, workers=workers)
    progress: Progress = {"step": 0, "seconds": [], "losses": []}
    if folder.checkpoint.exists():
        progress = side.load(folder.checkpoint, loader)
    if not train(side, loader, settings, folder, f"{name}, run {run + 1}", progress):
        return 130
    peak = side.peak_mib()
    common.write_csv(folder.losses, [["step", "loss"], *([step, repr(loss)] for step, loss in progress["losses"])])
    side.save_weights(folder.weights)
    train_data, test_data = (make_data(settings, train) for train in (True, False))
    result = {
        "steps": progress["step"],
        "s_per_epoch": statistics.median(progress["seconds"]) * len(loader),  # whatever else the machine did
        "train_accuracy": side.test(train_data, f"{name}, run {run + 1}: training images"),
        "test_accuracy": side.test(test_data, f"{name}, run {run + 1}: test images"),
        "peak_mib": peak,
        "file_mb": folder.weights.stat().st_size / 1e6,
        "losses": progress["losses"],
    }
    common.write_json(folder.result, result)
    return 0


def main() -> int:
    """From the command line of reproduce_paper.py."""
    if len(sys.argv) != 4 or sys.argv[2] not in SIDES or not sys.argv[3].isdecimal():
        raise ArgumentError("[paper_sides] expected OUT, alpha or torch, and a run's number: use reproduce_paper.py")
    return work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    common.run(main)
