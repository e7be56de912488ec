"""One side of the training benchmark in a process of its own: builds the network, takes training steps, times them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import small_networks
from benchmarks.common import Setup
from benchmarks.sides import TORCH_WARMUP, AlphaSide, TorchSide
from benchmarks.torchvision_models import torchvision_models
from benchmarks.workers import page_faults, serve

Array = np.ndarray[Any, Any]

LEARNING_RATE = 1e-3
IMAGES = {"cifar10": ((32, 32, 3), 10), "ilsvrc2012": ((128, 128, 3), 1000)}
"""Shape of an image and number of classes of the data sets that the paper's heads are for."""
TRIAL_BATCH = 16
"""Images of the steps that choose PyTorch's form of Adam: a small batch, as Adam's work does not depend on it."""


@dataclass(frozen=True)
class Model:
    """Which network, and what both sides must agree on."""

    name: str
    style: str
    stem: str | None
    head: str | None
    base_width: int
    dtype: str
    seed: int
    batch_size: int
    size: int | None = None  # side of the images of torchvision's networks, which have 1000 classes

    @property
    def image(self) -> tuple[int, ...]:
        """Shape of an image: height, width, channels; for an MLP its features."""
        if self.name in small_networks.INPUTS:
            return small_networks.INPUTS[self.name]
        if self.size is not None:
            return self.size, self.size, 3
        return IMAGES[self.head or "cifar10"][0]

    @property
    def classes(self) -> int:
        """Number of classes."""
        if self.name in small_networks.INPUTS:
            return small_networks.CLASSES
        if self.size is not None:
            return 1000
        return IMAGES[self.head or "cifar10"][1]

    @property
    def options(self) -> dict[str, Any]:
        """What both sides' functions that make the network are given by name, without dropout."""
        given = {"stem": self.stem, "head": self.head}
        given = {name: value for name, value in given.items() if value is not None}
        return {"base_width": self.base_width, "dropout": 0.0, **given}

    def ours(self) -> Any:
        """The network here, without dropout."""
        from alpha import models, nn

        if self.name in small_networks.INPUTS:
            return small_networks.ours(self.name)
        if self.size is not None:
            return _without_dropout(models.get_model(self.name, **self._sized))
        return getattr(nn.models, self.name)(self.classes, self.style, **self.options)

    def theirs(self) -> Any:
        """The network in PyTorch, without dropout."""
        if self.name in small_networks.INPUTS:
            return small_networks.theirs(self.name)
        if self.size is not None:
            return _without_dropout(torchvision_models().get_model(self.name, **self._sized))
        from benchmarks.torch_models import torch_twin

        return torch_twin(self.name, self.style, self.classes, **self.options)

    @property
    def _sized(self) -> dict[str, Any]:
        """The argument of a network that is made for images of one size."""
        return {"image_size": self.size} if self.name.startswith("vit") else {}

    def batch(self) -> tuple[Array, Array]:
        """The fixed batch: images (N, H, W, C) uniform in [-1, 1] and int64 labels (N,)."""
        rng = np.random.default_rng(self.seed)
        images = rng.uniform(-1, 1, (self.batch_size, *self.image)).astype(self.dtype)
        return images, rng.integers(0, self.classes, self.batch_size)


def _without_dropout(net: Any) -> Any:
    """The network with all probabilities 0: those of dropout and of stochastic depth."""
    for part in net.modules():
        if hasattr(part, "p"):
            part.p = 0.0
    return net


class Alpha(AlphaSide):
    """Training with Dragon-Alpha."""

    def __init__(self, setup: dict[str, Any], model: dict[str, Any]) -> None:
        super().__init__(Setup(**setup))
        import alpha
        from alpha import nn, optim

        self._cross_entropy = nn.functional.cross_entropy
        spec = Model(**model)
        alpha.manual_seed(spec.seed)
        with self.driver.watch():
            self._net = spec.ours()
            self._net.to(self.engine).to(spec.dtype).train()
            self._optimizer = optim.Adam(self._net.parameters(), lr=LEARNING_RATE)
            images, labels = spec.batch()
            self._images = alpha.tensor(images, engine=self.engine)
            self._labels = alpha.tensor(labels, engine=self.engine)
        self._casts = partial(alpha.autocast, "bfloat16", enabled=self.setup.precision == "bf16")
        self._step: Callable[..., Any] = alpha.graph(self._plain_step) if self.setup.graph else self._plain_step

    def save_weights(self, path: str) -> None:
        """Writes the weights in PyTorch's layout."""
        from alpha import nn

        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in nn.models.to_torch(self._net).items()}
        np.savez(path, **arrays)

    def step(self, count: int = 1) -> dict[str, float]:
        """Training steps one after the other: seconds and page faults a step, the last one's loss."""
        faults = page_faults()
        with self.driver.watch():
            seconds, loss = self.clock.run(lambda: self._step(self._images, self._labels), count)
        faults = page_faults() - faults
        return {"seconds": seconds / count, "loss": float(loss.item()), "page_faults": faults / count}

    def _plain_step(self, images: Any, labels: Any) -> Any:
        self._optimizer.zero_grad()
        with self._casts():
            loss = self._cross_entropy(self._net(images), labels)
        loss.backward()
        self._optimizer.step()
        return loss


class Torch(TorchSide):
    """Training with PyTorch.

    Args:
        setup: what both sides compute with.
        model: the network.
        weights: file of its initial weights.
        layout: ``"contiguous"`` or ``"channels_last"``.
        adam: ``"fused"`` or ``"foreach"``, PyTorch's two fast forms.
        set_to_none: whether zero_grad drops the gradients or fills them with zeros.
    """

    def __init__(
        self, setup: dict[str, Any], model: dict[str, Any], weights: str, layout: str, adam: str, set_to_none: bool
    ) -> None:
        super().__init__(Setup(**setup))
        torch, spec = self.torch, Model(**model)
        order = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[layout]
        with self.driver.watch():
            net = spec.theirs()
            with np.load(weights) as arrays:
                net.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
            self._net = net.to(device=self.device, dtype=getattr(torch, spec.dtype), memory_format=order).train()
            images, labels = spec.batch()
            # In either layout PyTorch's images are (N, C, H, W).
            is_of_images = images.ndim == 4
            given = torch.from_numpy(images.transpose(0, 3, 1, 2) if is_of_images else images).to(self.device)
            self._images = given.contiguous(memory_format=order) if is_of_images else given
            self._labels = torch.from_numpy(labels).to(self.device)
            self._optimizer = self._adam(adam)
        step = partial(self._step, self._images, self._labels, self._optimizer, set_to_none)
        self._next = self._graphed_step(step) if self._is_captured else step

    @property
    def _is_captured(self) -> bool:
        """PyTorch captures steps on a GPU alone."""
        return self.setup.graph and self.setup.cuda

    def _adam(self, form: str) -> Any:
        """In a CUDA graph its count of steps is the device's too."""
        options = {form: True, "capturable": self._is_captured}
        return self.torch.optim.Adam(self._net.parameters(), lr=LEARNING_RATE, **options)

    def _graphed_step(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """Steps as they are at first; then the whole step is captured, gradients and all, and replayed."""
        calls, replay = 0, None

        def call() -> Any:
            nonlocal calls, replay
            calls += 1
            if calls <= TORCH_WARMUP:
                return self.on_side_stream(step)
            if replay is None:
                self._optimizer.zero_grad(set_to_none=True)  # the captured step's are made in the graph's own memory
                replay = self.captured(step)
            return replay()

        return call

    def compare_updates(self, rounds: int) -> dict[str, float]:
        """Least seconds of a step on few images, by form of Adam and of zero_grad."""
        forms = {(adam, drop): self._adam(adam) for adam in ("fused", "foreach") for drop in (True, False)}
        times: dict[str, list[float]] = {}
        images, labels = self._images[:TRIAL_BATCH], self._labels[:TRIAL_BATCH]
        for i in range(rounds + 1):
            for (adam, drop), optimizer in forms.items():
                seconds, _ = self.clock.run(partial(self._step, images, labels, optimizer, drop))
                if i:  # the first round makes the optimizers' state
                    times.setdefault(f"{adam} {drop}", []).append(seconds)
        return {form: min(values) for form, values in times.items()}

    def step(self, count: int = 1) -> dict[str, float]:
        """Training steps one after the other: seconds and page faults a step, the last one's loss."""
        faults = page_faults()
        with self.driver.watch():
            seconds, loss = self.clock.run(self._next, count)
        faults = page_faults() - faults
        return {"seconds": seconds / count, "loss": float(loss.item()), "page_faults": faults / count}

    def _step(self, images: Any, labels: Any, optimizer: Any, set_to_none: bool) -> Any:
        with self.torch.autocast(self.device.type, self.torch.bfloat16, enabled=self.setup.torch_autocasts):
            loss = self.torch.nn.functional.cross_entropy(self._net(images), labels)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss.backward()
        optimizer.step()
        return loss


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
