"""Storms over a process: Ctrl-C again and again, forks beside threads that allocate, random shapes under a cap."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np

import alpha
from alpha import optim
from alpha.nn import functional as F
from tests.robustness.memory import CAP, OUTSIDE_POOL, watch
from tests.robustness.test_threads_and_forks import FORKS

SECONDS = 0.12
"""Between two interrupts, in the mean: a thousand of them in two minutes."""

LOST = 30.0
"""Seconds after which an interrupt that nobody saw counts as lost."""


class _Training:
    """A small convolutional network with BatchNorm and Adam on random images, one step per call."""

    def __init__(self, seed: int) -> None:
        from alpha import nn

        alpha.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 16, 10),
        ).train()
        self.optimizer = optim.Adam(self.net.parameters(), lr=1e-3)
        rng = np.random.default_rng(seed)
        self.images = [alpha.tensor(rng.random((16, 8, 8, 3), np.float32)) for _ in range(7)]
        self.labels = [alpha.tensor(rng.integers(0, 10, 16)) for _ in range(7)]
        self.losses: dict[int, float] = {}

    def step(self) -> None:
        """The step that follows those that were done; its loss is noted under its number before it counts."""
        number = self.optimizer.steps
        loss = F.cross_entropy(self.net(self.images[number % 7]), self.labels[number % 7])
        self.optimizer.zero_grad()
        loss.backward()
        self.losses[number] = loss.item()
        self.optimizer.step()


def interrupts(count: int, seed: int) -> dict[str, int]:
    """Interrupts a training ``count`` times; its losses must be those of one that nobody disturbs.

    Each interrupt waits for the one before it: Python tells of two that arrive together as of one.
    """
    _Training(seed).step()  # what is compiled first takes longer than from one interrupt to the next
    disturbed = _Training(seed)
    finished = threading.Event()
    sent = seen = wrong_modes = 0

    def disturb() -> None:
        nonlocal sent
        chooser = random.Random(seed)
        while sent < count and not finished.wait(chooser.uniform(0.2, 1.8) * SECONDS):
            until = time.monotonic() + LOST
            while seen < sent and time.monotonic() < until:
                time.sleep(0.001)
            sent += 1
            os.kill(os.getpid(), signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    while True:
        try:
            while seen < count and thread.is_alive():
                disturbed.step()
            finished.set()
            thread.join()
            break
        except KeyboardInterrupt:
            seen += 1
            wrong_modes += not alpha.is_grad_enabled()
    signal.signal(signal.SIGINT, old)
    calm = _Training(seed)
    while calm.optimizer.steps < disturbed.optimizer.steps:
        calm.step()
    done = range(disturbed.optimizer.steps)
    differing = sum(calm.losses[number] != disturbed.losses[number] for number in done)
    return {
        "interrupts": seen,
        "steps": disturbed.optimizer.steps,
        "fallen: losses that differ": differing,
        "fallen: modes that stayed": wrong_modes,
        "fallen: interrupts that were lost": max(0, sent - seen),
    }


def forks(count: int, seed: int) -> dict[str, int]:
    """Forks beside threads that allocate and compute, each child computing too."""
    done = subprocess.run([sys.executable, "-c", FORKS, str(count)], capture_output=True, text=True, check=False)
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    return {"forks": count, "fallen": int(done.returncode != 0 or done.stdout != "ended\n")}


def memory(count: int, seed: int) -> dict[str, int]:
    """Random shapes under a small cap: what the process holds at most, in megabytes, seen from outside."""
    figures = watch(count, seed)
    return {
        "shapes": count,
        "peak, MB": round(figures["peak"]),
        "fallen: MB beyond the cap and 300": max(0, round(figures["peak"]) - CAP - OUTSIDE_POOL),
        "fallen: other errors": len(figures["faults"]),
    }
