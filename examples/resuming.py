"""How a training run stops and goes on: signals, its checkpoint, the settings that it keeps, the command to paste."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import common
from common import Settings, tell
from run_folder import RunFolder

from alpha import nn
from alpha.errors import ArgumentError, NumericsError
from alpha.serialization import load_checkpoint, save_checkpoint


class Interrupts:
    """Ctrl-C and SIGTERM: while ``deferred`` the first is only noted, so that a step is never cut in two."""

    def __init__(self) -> None:
        self.deferred = False
        self.received: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        again, self.received = self.received is not None, number
        if again or not self.deferred:
            raise KeyboardInterrupt
        # Not print(): the signal may have come in the middle of one. The terminal may have gone, which stops no step.
        with suppress(OSError):
            if common.is_main():
                os.write(2, b"\nstopping after this step; once more to stop at once\n")

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + (self.received or signal.SIGINT)


class Run(Protocol):
    """What a script's run tells of itself."""

    @property
    def folder(self) -> RunFolder:
        """The folder that the run writes to."""

    @property
    def title(self) -> str:
        """What is trained on what."""

    @property
    def steps(self) -> int:
        """Training steps in all."""

    @property
    def progress(self) -> Progress:
        """How far it is."""


class Progress(Protocol):
    """How far a run is."""

    step: int


def saved_settings(folder: RunFolder, script: str, defaults: Settings) -> Settings:
    """The settings that a checkpoint holds, or else their defaults; ArgumentError if another program wrote it."""
    extra = load_checkpoint(folder.checkpoint)
    if "settings" not in extra or "progress" not in extra:
        raise ArgumentError(
            f"[--resume] expected a checkpoint that {script} wrote, got another at {folder.checkpoint}: give the "
            "folder of one of its runs"
        )
    return {name: extra["settings"].get(name, default) for name, default in defaults.items()}


def choose_settings(given: Mapping[str, Any], before: Mapping[str, Any], fixed: Sequence[str] = ()) -> Settings:
    """Each option from the command line, else as it was before; ArgumentError where a fixed one would change."""
    for name in fixed:
        if given[name] is not None and given[name] != before[name]:
            option = name.replace("_", "-")
            raise ArgumentError(
                f"[--resume] expected --{option} {before[name]}, which the run was started with, got {given[name]}: "
                f"leave --{option} out, or start a new run"
            )
    return {name: value if given[name] is None else given[name] for name, value in before.items()}


def save(script: str, folder: RunFolder, step: int, net: nn.Module, **parts: Any) -> None:
    """Writes the checkpoint; NumericsError, and the one before stays, if the network is no longer finite."""
    for name, tensor in net.state_dict().items():
        if not bool(tensor.isfinite().all()):
            raise diverged(script, folder, step, name, "NaN or infinity")
    save_checkpoint(folder.checkpoint, model=net, **parts)


def diverged(script: str, folder: RunFolder, step: int, what: str, got: Any) -> NumericsError:
    """The error that ends a run whose numbers are no longer finite."""
    return NumericsError(
        f"[{script}] expected a finite {what} at step {step}, got {got}: lower --lr; the last good checkpoint is kept "
        f"in {folder.path}"
    )


def run_to_end(
    interrupts: Interrupts, run: Run, script: str, train: Callable[[], bool], finish: Callable[[], None], last: str
) -> bool:
    """Trains and finishes; whether it came so far. Else it told how to go on: ``last`` where only finishing is left."""
    where = str(run.folder.path)
    tell(f"{run.title}: step {run.progress.step} of {run.steps}, in {where}")
    resume = f"go on with: {command(f'{script}.py', '--resume', where)}"
    try:
        if not train():
            tell(f"stopped after step {run.progress.step}, all saved; {resume}", sys.stderr)
            return False
    except KeyboardInterrupt:
        tell(f"stopped at once in step {run.progress.step + 1}; from the last checkpoint {resume}", sys.stderr)
        return False
    try:
        finish()
    except KeyboardInterrupt:
        tell(f"stopped; the training is done and saved; {last}", sys.stderr)
        return False
    return True


def command(script: str, *arguments: str) -> str:
    """A command line that runs one of the scripts here, to be pasted into a shell."""
    python = os.path.relpath(sys.executable) if sys.executable.startswith(os.getcwd()) else sys.executable
    return shlex.join([python, os.path.relpath(Path(__file__).with_name(script)), *arguments])
