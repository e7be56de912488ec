"""SummaryWriter: a training run's curves, pictures and texts for TensorBoard."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from alpha.arguments import whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.utils.tensorboard import summaries


class FileWriter:
    """Writes events to one file in a folder; ``SummaryWriter`` has one per run.

    Args:
        log_dir: the folder.
        max_queue: events that wait before they are written.
        flush_secs: seconds after which they are written in any case.
        filename_suffix: the end of the file's name.
    """

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Event, step: Any = None, walltime: float | None = None) -> None:
        """Writes an event, with a step and a time in seconds since 1970."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Summary, global_step: Any = None, walltime: float | None = None) -> None:
        """Writes a summary as an event."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Writes what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        self.event_writer.close()


class SummaryWriter:
    """Writes curves, histograms, pictures, texts and hyper-parameters to a folder that TensorBoard shows.

    Args:
        log_dir: the folder; by default ``runs/`` and a name of time and host, with the comment behind it.
        comment: the end of that name; it says nothing where ``log_dir`` is given.
        purge_step: TensorBoard forgets what the folder's older files have from this step on.
        max_queue: events that wait before they are written.
        flush_secs: seconds after which they are written in any case.
        filename_suffix: the end of the files' names.

    Every method takes ``global_step``, the step to which a value belongs, and ``walltime``, seconds since 1970.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = Path("runs") / f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}{comment}"
        self.log_dir = str(log_dir)
        self.purge_step = None if purge_step is None else whole("SummaryWriter", "purge_step", purge_step)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._writers: dict[str, FileWriter] = {}
        self._file()

    def _file(self, log_dir: str | None = None) -> FileWriter:
        """The writer of a folder, by default the run's; made anew after ``close``."""
        folder = log_dir or self.log_dir
        found = self._writers.get(folder)
        if found is None:
            found = self._writers[folder] = FileWriter(folder, *self._options)
            if self.purge_step is not None and log_dir is None:
                found.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                found.add_event(Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START)))
                self.purge_step = None
        return found

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    # -- numbers -----------------------------------------------------------------------------------------------------

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a point to a curve.

        Args:
            tag: the curve's name; ``"group/name"`` puts it into a group.
            scalar_value: a number, or a tensor or array of one element.
            new_style: writes it as a tensor, ``double_precision`` in float64.
        """
        value = summaries.number_of("add_scalar", scalar_value)
        self._file().add_summary(summaries.scalar(tag, value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a point to each of several curves in one plot; each has a run of its own, in a folder within this one's.

        Args:
            main_tag: the plot's name.
            tag_scalar_dict: the curves' names and numbers.
        """
        if not isinstance(tag_scalar_dict, Mapping):
            raise ArgumentError(f"[add_scalars] expected a dict of numbers, got {described(tag_scalar_dict)}")
        values = {tag: summaries.number_of("add_scalars", value) for tag, value in tag_scalar_dict.items()}
        walltime = time.time() if walltime is None else walltime
        for tag, value in values.items():
            file = self._file(f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}")
            file.add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds the distribution of values.

        Args:
            values: a tensor or array with elements.
            bins: ``"tensorflow"`` for limits that grow by a tenth, or what ``numpy.histogram`` takes.
            max_bins: neighbours become one bin until there are about so many.
        """
        numbers = summaries.array_of("add_histogram", values)
        if numbers.size == 0 or not np.isfinite(numbers).all():
            what = "none" if numbers.size == 0 else "values that are infinite or no numbers"
            raise ArgumentError(f"[add_histogram] expected finite values, got {what} for {tag!r}: leave them out")
        limits = summaries.DEFAULT_LIMITS if isinstance(bins, str) and bins == "tensorflow" else bins
        self._file().add_summary(summaries.histogram(tag, numbers, limits, max_bins), global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds precision over recall.

        Args:
            labels: 0 or 1 for each element.
            predictions: the probability that an element's label is 1.
            num_thresholds: points of the curve, 127 at most.
            weights: of the elements.
        """
        truth, found = (summaries.array_of("add_pr_curve", value) for value in (labels, predictions))
        weight = None if weights is None else summaries.array_of("add_pr_curve", weights)
        if truth.shape != found.shape or (weight is not None and weight.shape != truth.shape):
            raise ShapeError(f"[add_pr_curve] expected equal shapes, got {truth.shape} and {found.shape}")
        thresholds = whole("add_pr_curve", "num_thresholds", num_thresholds, least=2)
        self._file().add_summary(summaries.pr_curve(tag, truth, found, thresholds, weight), global_step, walltime)

    # -- pictures and texts ------------------------------------------------------------------------------------------

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds a picture, of uint8 or of floats from 0 to 1.

        Args:
            img_tensor: a tensor or array of 1, 3 or 4 channels.
            dataformats: its axes, such as ``"CHW"``, ``"HWC"``, ``"HW"``.
        """
        self._add_picture("add_image", tag, img_tensor, global_step, walltime, dataformats)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds several pictures of one size as one, in rows of eight.

        Args:
            img_tensor: a tensor or array.
            dataformats: its axes, such as ``"NCHW"`` or ``"NHWC"``.
        """
        self._add_picture("add_images", tag, img_tensor, global_step, walltime, dataformats)

    def _add_picture(
        self, function: str, tag: str, pixels: Any, step: Any, walltime: float | None, dataformats: str
    ) -> None:
        picture = summaries.to_hwc(function, summaries.array_of(function, pixels), dataformats)
        self._file().add_summary(summaries.image(tag, picture), step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Adds a figure of Matplotlib, or a list of them in rows of eight; ``close`` closes them."""
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figures = figure if isinstance(figure, list) else [figure]
        pictures = []
        for drawing in figures:
            canvas = FigureCanvasAgg(drawing)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba()).copy())
            if close:
                pyplot.close(drawing)
        self._add_picture("add_figure", tag, np.stack(pictures), global_step, walltime, "NHWC")

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a text, which TensorBoard reads as Markdown."""
        if not isinstance(text_string, str):
            raise ArgumentError(f"[add_text] expected a string, got {described(text_string)}: pass str() of it")
        self._file().add_summary(summaries.text(tag, text_string), global_step, walltime)

    # -- hyper-parameters --------------------------------------------------------------------------------------------

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Adds a run's hyper-parameters and results to TensorBoard's table, as a run within this one's folder.

        Args:
            hparam_dict: names -> numbers, strings, bools or None.
            metric_dict: names -> numbers.
            hparam_domain_discrete: names -> the values that a hyper-parameter can have.
            run_name: the folder's name; the time by default.
        """
        for name, given in {"hparam_dict": hparam_dict, "metric_dict": metric_dict}.items():
            if not isinstance(given, Mapping):
                raise ArgumentError(f"[add_hparams] expected {name} as a dict, got {described(given)}")
        domains = dict(hparam_domain_discrete or {})
        for name, values in domains.items():
            known = name in hparam_dict and isinstance(values, list)
            if not known or not all(isinstance(value, type(hparam_dict[name])) for value in values):
                raise ArgumentError(
                    f"[add_hparams] expected a list of values of the type of {name}, got {described(values)}"
                )
        results = {name: summaries.number_of("add_hparams", value) for name, value in metric_dict.items()}
        messages = summaries.hparams(hparam_dict, list(results), domains)
        folder = Path(self.log_dir) / (run_name or str(time.time()))
        file = FileWriter(folder, *self._options)
        for message in messages:
            file.add_summary(message, global_step)
        for name, value in results.items():
            file.add_summary(summaries.scalar(name, value), global_step)
        file.close()

    # -- the files ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes what waits."""
        for file in self._writers.values():
            file.flush()

    def close(self) -> None:
        """Writes what waits, and closes the files; what is added later goes to new ones."""
        writers, self._writers = self._writers, {}
        for file in writers.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
