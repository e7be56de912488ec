"""The rows of the benchmarks on a GPU, in order of value, and how each is measured; a child of the commands.

``python -m benchmarks.gpu.measuring operators`` lists its rows and measures those asked for. The contestants' processes
stay from row to row, as PyTorch takes seconds to start; after a row that failed they start anew.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from alpha.cu32 import figures
from alpha.errors import AlphaError, ArgumentError, EngineError
from benchmarks import matvec, operators, training
from benchmarks.common import Setup, available_threads
from benchmarks.gpu.serving import Channel
from benchmarks.suites import SUITES, Layer, equal_batch
from benchmarks.workers import Worker

LAYOUTS = ("contiguous", "channels_last")
FIGURES = "the device's figures"
REWRITTEN = "rewritten"

_TRIED = Layer("tried", 6, 8, 8, 3, 1, 1)
"""The layer of a call with ``--small``."""

_HEADLINES = ("64", "128", "256", "512")
"""Layers of ResNet18 in which nearly all of its time is spent."""

_SMALL_LIMIT = 400.0
"""Seconds of a row there: kernels are compiled in them."""

_SMALL_BYTES = 1 << 20
"""What is copied and read to measure bandwidths in a call with ``--small``."""


@dataclass(frozen=True)
class Planned:
    """A row that can be measured.

    Attributes:
        name: what it is called; its settings tell rows of one name apart.
        limit: seconds that it may take.
    """

    name: str
    settings: Mapping[str, Any]
    limit: float


class Rows(ABC):
    """The rows of a command. ``small``: few of them, at sizes that a driver on the CPU can do."""

    def __init__(self, small: bool, against: str | None) -> None:
        self.small, self.against = small, against or ("torch" if importlib.util.find_spec("torch") else "none")
        self._kept: dict[tuple[str, Setup], dict[str, Worker]] = {}
        self._prepared: tuple[Any, ...] | None = None

    @abstractmethod
    def planned(self) -> Iterator[Planned]:
        """In order of value."""

    @abstractmethod
    def measure(self, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """A row's figures; a folder for what the contestants exchange."""

    def workers(self, module: str, setup: Setup, opponents: Mapping[str, str]) -> dict[str, Worker]:
        """The contestants' processes, ours first; ``opponents`` gives names to sides."""
        found = self._kept.get((module, setup))
        if found is None:
            self.close()  # whoever measured before gives its memory back
            options = {"setup": asdict(setup)}
            found = self._kept[module, setup] = {"alpha": Worker(module, "alpha", options, setup.threads)}
            if self.against == "torch":
                for name, side in opponents.items():
                    found[name] = Worker(module, side, options, setup.threads)
        return found

    def close(self) -> None:
        """Ends the processes."""
        for workers in self._kept.values():
            for worker in workers.values():
                worker.close()
        self._kept, self._prepared = {}, None


def _setup(precision: str, graph: bool) -> Setup:
    return Setup("cu32", available_threads(), precision, graph)


# -- operators ---------------------------------------------------------------------------------------------------------


class Operators(Rows):
    """The device's own figures, then convolutions and products layer by layer."""

    def planned(self) -> Iterator[Planned]:
        yield Planned(FIGURES, {"small": self.small}, 60.0)
        if self.small:
            yield from self._layer("tried", _TRIED, 2, "highest")
            yield from self._products(["64x64"])
            return
        resnet18 = {layer.name: layer for layer in SUITES["resnet18"]}
        rest = [name for name in resnet18 if name not in _HEADLINES]
        paper = [(layer, equal_batch(layer, 20.0)) for layer in SUITES["paper"]]
        for name in _HEADLINES:
            yield from self._layer("resnet18", resnet18[name], 512, "highest")
        for layer, batch in [pair for pair in paper if "deconv" in pair[0].operators]:
            yield from self._layer("paper", layer, batch, "highest")
        for name in _HEADLINES:
            yield from self._layer("resnet18", resnet18[name], 512, "high")
        for precision in ("highest", "high"):
            for name in rest:
                yield from self._layer("resnet18", resnet18[name], 512, precision)
        for layer, batch in [pair for pair in paper if "conv" in pair[0].operators]:
            yield from self._layer("paper", layer, batch, "highest")
        yield from self._products(["x".join(map(str, shape)) for shape in matvec.SHAPES.values()])

    def _layer(self, suite: str, layer: Layer, batch: int, precision: str) -> Iterator[Planned]:
        word = "float32" if precision == "highest" else "TF32"
        for operator in layer.operators:
            settings = {"operator": operator, "layer": asdict(layer), "batch": batch, "precision": precision}
            title = f"{suite} {layer.name}, batch {batch}, {word}: {operator}"
            yield Planned(title, {**settings, "against": self.against}, 120.0)

    def _products(self, shapes: list[str]) -> Iterator[Planned]:
        for shape in shapes:
            for operation in matvec.OPERATIONS:
                settings = {"operation": operation, "shape": shape, "against": self.against}
                yield Planned(f"matrix and vector, {shape}: {operation}", settings, 60.0)

    def measure(self, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        if "small" in settings:
            return self._figures()
        if "operation" in settings:
            return self._product(settings, folder)
        layer, setup = Layer(**settings["layer"]), _setup(settings["precision"], True)
        workers = self.workers("benchmarks.operators_worker", setup, dict.fromkeys(LAYOUTS, "torch"))
        layouts = {name: name for name in workers if name in LAYOUTS}
        problem = (setup, settings["layer"], settings["batch"])
        if self._prepared != problem:
            operators.prepare(workers, layouts, layer, settings["batch"], 0)
            self._prepared = problem
        turns = 2 if self.small else 5
        return operators.measure(
            settings["operator"], layer, settings["batch"], workers, folder, turns, setup.precision
        )

    def _product(self, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        setup, rows_columns = _setup("highest", True), [int(number) for number in settings["shape"].split("x")]
        workers = self.workers("benchmarks.matvec_worker", setup, {"torch": "torch"})
        problem = (setup, "matvec", settings["shape"])
        if self._prepared != problem:
            for worker in workers.values():
                worker.call("prepare", shape=rows_columns, seed=0)
            self._prepared = problem
        turns = 2 if self.small else 7
        shape = (rows_columns[0], rows_columns[1])
        return matvec.measure(settings["operation"], shape, workers, folder, turns)

    def _figures(self) -> dict[str, Any]:
        """FMA peak, bandwidths of memory and second-level cache, which later processes' cost model stands on."""
        workers = self.workers("benchmarks.operators_worker", _setup("highest", False), {})
        found: dict[str, Any] = workers["alpha"].call("speeds", nbytes=_SMALL_BYTES if self.small else None)
        self.close()
        if self.small:
            return {**found, "cost_model": "left as it is: small sizes tell nothing"}
        try:
            keep_figures(found)
        except (ArgumentError, OSError) as error:
            return {**found, "cost_model": f"left as it is: {error}"}
        return {**found, "cost_model": REWRITTEN}


def keep_figures(found: Mapping[str, Any]) -> None:
    """Has the cost model of later processes take a device's figures; ArgumentError where they cannot be a device's."""
    speeds = figures.Figures(*(float(found[name]) for name in figures.SPEEDS))
    figures.write(found["device"], found["multiprocessors"], found["clock"], speeds, measured_by="make gpu-operators")


# -- training ----------------------------------------------------------------------------------------------------------


class Training(Rows):
    """Whole steps of ResNet18; every contestant has a process of its own for each row, so that peaks are a row's."""

    def planned(self) -> Iterator[Planned]:
        batches = (2,) if self.small else (512, 128)
        for batch in batches:
            for precision, graph in (("highest", False), ("highest", True), ("high", True), ("high", False)):
                word, mode = "float32" if precision == "highest" else "TF32", "graph" if graph else "eager"
                settings = {"batch": batch, "precision": precision, "graph": graph, "against": self.against}
                yield Planned(f"ResNet18's step, batch {batch}, {word}, {mode}", settings, 150.0)

    def measure(self, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        words = ["--engine", "cu32", "--batch-size", str(settings["batch"]), "--precision", settings["precision"]]
        words += ["--graph"] if settings["graph"] else []
        words += ["--against", self.against, "--trial-steps", "0"]
        words += ["--base-width", "4", "--steps", "1", "--warmup", "3", "--steps-per-turn", "1"] if self.small else []
        words += [] if self.small else ["--steps", "10"]
        options: argparse.Namespace = training.make_parser().parse_args(words)
        return _flat(training.run(options))


def _flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """A training result's figures, and what the spread of each contestant's steps was."""
    names = ("alpha_s", "torch_s", "ratio", "alpha_peak_mib", "torch_peak_mib", "alpha_driver_mib", "torch_driver_mib")
    found = {name: result[name] for name in names}
    contestants = {
        name: {
            "median_s": one["median_s"],
            "spread": one["spread"],
            "peak": one["peak"],
            "first_loss": one["losses"][0],
        }
        for name, one in result["contestants"].items()
    }
    return {**found, "torch_layout": result["torch_layout"], "contestants": contestants}


# -- serving -----------------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[bool, str | None], Rows]] = {"operators": Operators, "training": Training}


def serve(channel: Channel, rows: Rows) -> None:
    """Lists rows and measures those asked for."""
    planned = [replace(row, limit=_SMALL_LIMIT) if rows.small else row for row in rows.planned()]
    channel.answer(rows=[asdict(row) for row in planned])
    for request in channel.requests():
        with tempfile.TemporaryDirectory(prefix="alpha-gpu-") as folder:
            channel.answer(**_answer(rows, request, Path(folder)))
    rows.close()


def _answer(rows: Rows, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    try:
        if "figures" in request:
            keep_figures(request["figures"])
            return {"result": {}}
        return {"result": _measured(rows, request["settings"], folder)}
    except (AlphaError, OSError, MemoryError) as error:
        rows.close()
        return {"error": " ".join(str(error).split()) or type(error).__name__}


def _measured(rows: Rows, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A row; where PyTorch is there but sees no GPU, the row of our side alone, which says so."""
    try:
        return rows.measure(settings, folder)
    except EngineError as error:
        if rows.against != "torch" or "which sees none" not in str(error):
            raise
        rows.close()
        rows.against = "none"
        return {**rows.measure(settings, folder), "opponent": "none: PyTorch sees no GPU"}


def main() -> int:
    """The child."""
    channel = Channel()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.measuring", description="Serves rows.")
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("--small", action="store_true", help="few rows of small sizes")
    parser.add_argument("--against", choices=("torch", "none"), help="the opponent")
    options = parser.parse_args()
    serve(channel, KINDS[options.kind](options.small, options.against))
    return 0


if __name__ == "__main__":
    sys.exit(main())
