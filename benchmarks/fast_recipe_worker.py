"""One side of the benchmark of the fast recipe in a process of its own: whole runs, an epoch at a time.

Both sides begin with the same weights and draw the same batches: PyTorch's takes them from our network and our loader.
An epoch's seconds are those of its steps and of loading its batches.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import alpha
from alpha import datasets, nn
from benchmarks.common import ROOT, Setup
from benchmarks.sides import AlphaSide, TorchSide
from benchmarks.workers import serve

_STEPS_ON_TRIAL = 3


def from_examples(module: str) -> Any:
    """A module of the example scripts."""
    folder = str(ROOT / "examples")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(module)


class Recipe:
    """The recipe's parts for one run, as examples/train_cifar10.py makes them from the same settings."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.recipes, self.common = from_examples("recipes"), from_examples("common")
        self.settings = {**self.recipes.RECIPES["fast"], "recipe": "fast", **options}
        alpha.manual_seed(seed)
        data = self._data(train=True, augment=self.settings["augment"])
        self.net = self.common.make_model(self.settings, len(data.classes)).train()
        self.recipes.prepare(self.net, data)
        self.loader = datasets.DataLoader(data, self.settings["batch_size"], shuffle=True)

    def _data(self, train: bool, augment: bool | str = False) -> Any:
        return self.common.make_dataset(self.settings["dataset"], self.settings["data"], train, augment)

    def tested(self) -> datasets.DataLoader:
        """The test images."""
        return datasets.DataLoader(self._data(train=False), self.settings["batch_size"])


def _per_cent(loader: datasets.DataLoader, answers: Callable[[alpha.Tensor], Any]) -> float:
    """Per cent of a loader's images whose answer, the largest of (N, classes), is right."""
    right = [np.asarray(answers(x), np.float32).argmax(axis=1) == np.asarray(y) for x, y in loader]
    return 100 * float(np.concatenate(right).mean())


class Alpha(AlphaSide):
    """Dragon-Alpha."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))
        self._casts = partial(alpha.autocast, "bfloat16", enabled=self.setup.precision == "bf16")

    def prepare(self, options: dict[str, Any], seed: int) -> None:
        """Makes the network, its optimizers and its data."""
        self._recipe = recipe = Recipe(options, seed)
        self._optimizers = recipe.recipes.make_optimizers(recipe.settings, recipe.net)
        self._schedules = recipe.recipes.make_schedules(recipe.settings, self._optimizers, len(recipe.loader))

    def epoch(self) -> tuple[float, float]:
        """Seconds of the next epoch, and its mean loss."""
        return self.clock.run(lambda: statistics.fmean([self._step(x, y) for x, y in self._recipe.loader]))

    def _step(self, x: alpha.Tensor, y: alpha.Tensor) -> float:
        recipe = self._recipe
        recipe.recipes.freeze_resting(recipe.settings, self._optimizers)
        with self._casts():
            loss = nn.functional.cross_entropy(recipe.net(x), y, label_smoothing=recipe.settings["label_smoothing"])
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss.backward()
        for part in (*self._optimizers, *self._schedules):
            part.step()
        return float(loss)

    def accuracy(self) -> float:
        """Per cent of the test images, with averaged views."""
        recipe = self._recipe
        net = recipe.recipes.tested(recipe.settings, recipe.net.eval())
        with alpha.no_grad(), self._casts():
            return _per_cent(recipe.tested(), net)


class Torch(TorchSide):
    """PyTorch, in the memory layout that a trial found faster."""

    def __init__(self, setup: dict[str, Any]) -> None:
        TorchSide.__init__(self, Setup(**setup))
        self._casts = partial(self.torch.autocast, "cpu", self.torch.bfloat16, enabled=self.setup.precision == "bf16")

    def prepare(self, options: dict[str, Any], seed: int, channels_last: bool) -> None:
        """Makes the network, its optimizers and its data."""
        from benchmarks import torch_airbench

        self._recipe = recipe = Recipe(options, seed)
        settings, torch = recipe.settings, self.torch
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        net = torch_airbench.Airbench(recipe.net.fc.weight.shape[0], settings["base_width"])
        net.load_state_dict(nn.models.to_torch(recipe.net))
        self._net = net.to(memory_format=self._format).train()
        batches = len(recipe.loader)
        sizes = settings["batch_size"], batches, settings["epochs"]
        self._training = torch_airbench.Training(self._net, *sizes, self._casts)
        self._views = torch_airbench.averaged_views

    def _images(self, x: alpha.Tensor) -> Any:
        images = self.torch.from_numpy(np.asarray(x)).permute(0, 3, 1, 2)
        return images.contiguous(memory_format=self._format)

    def _step(self, x: alpha.Tensor, y: alpha.Tensor) -> float:
        return float(self._training.step(self._images(x), self.torch.from_numpy(np.array(y))))

    def trial(self) -> float:
        """Seconds of a step, after one to get warm."""
        x, y = next(iter(self._recipe.loader))
        self._step(x, y)
        return min(self.clock.run(lambda: self._step(x, y))[0] for _ in range(_STEPS_ON_TRIAL))

    def epoch(self) -> tuple[float, float]:
        """Seconds of the next epoch, and its mean loss."""
        return self.clock.run(lambda: statistics.fmean([self._step(x, y) for x, y in self._recipe.loader]))

    def accuracy(self) -> float:
        """Per cent of the test images, with averaged views."""
        net = self._net.eval()
        with self._casts():
            return _per_cent(self._recipe.tested(), lambda x: self._views(net, self._images(x)).float().numpy())


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
