"""TensorBoard events of a run, written with the tensorboard package alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from alpha.errors import ArgumentError


class TensorBoard:
    """An event file in a folder; one row of numbers per step.

    Args:
        folder: where TensorBoard looks: ``tensorboard --logdir FOLDER``.
        step: a run that goes on says at which step: events after it, of steps that are done again, count no more.

    Raises:
        ArgumentError: where tensorboard is not installed.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ArgumentError(
                f"[--tensorboard] expected the tensorboard package, got {error}: pip install "
                "'dragon-alpha[tensorboard]'"
            ) from error
        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        self._writer: Any = EventFileWriter(str(folder))
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step + 1, session_log=start))

    def write(self, step: int, **values: float) -> None:
        """Adds a step's numbers by name."""
        scalars = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        summary = self._summaries.Summary(value=scalars)
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._writer.close()
