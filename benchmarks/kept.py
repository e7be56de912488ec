"""The results that are kept in benchmarks/results: their kinds, titles and order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpha.errors import ArgumentError
from benchmarks import common, small_networks
from benchmarks.suites import PAPER

MODULE = "benchmarks.report"
RESULTS = common.ROOT / "benchmarks" / "results"

KINDS = (
    "training", "reproduction", "fast recipe", "inference", "operators", PAPER, "huge2", "segregation", "deeplab",
    "matvec", "functions", "pointwise", "gpt", "programs", "scaling", "first seconds", "sweep", "algorithms",
)  # fmt: skip
"""Kinds of results, in the report's order."""


@dataclass(frozen=True)
class Report:
    """One result: the file it comes from, and what is in it."""

    file: str
    result: dict[str, Any]

    @property
    def kind(self) -> str:
        """One of KINDS: a suite's name, or "operators" for those of convolutions alone."""
        suite = str(self.result["settings"].get("suite", "training"))
        return suite if suite in KINDS else "operators"

    @property
    def picture(self) -> str:
        """The file of its picture, in docs/."""
        return f"{Path(self.file).stem}.{'png' if self.kind == PAPER else 'svg'}"

    @property
    def place(self) -> str:
        """The engine, for titles of results that were not measured on the processor."""
        engine = str(self.result["settings"]["engine"])
        return "" if engine == "cpu" else f" on {engine}"

    @property
    def title(self) -> str:
        """What was measured."""
        settings = self.result["settings"]
        if self.kind == "training":
            how = " in a graph" if settings.get("graph") else ""
            halves = {"bf16": " within autocast to bfloat16", "medium": " with factors of bfloat16"}
            how += halves.get(settings["precision"], "")
            return f"Training {network(settings)}{how}, batch {settings['batch_size']}{self.place}"
        if self.kind == "sweep":
            return f"Operators over neighbouring shapes{self.place}"
        if self.kind == "inference":
            form = " in bfloat16" if settings["dtype"] == "bfloat16" else ""
            return f"Inference of ResNet18{form} on {settings['image'][0]}x{settings['image'][1]} images{self.place}"
        if self.kind == "reproduction":
            epochs = f"{settings['epochs']} epoch{'s' if settings['epochs'] > 1 else ''}"
            form = " within autocast to bfloat16" if settings.get("precision") == "bf16" else ""
            return f"The paper's training of {settings['model']}{form} on {settings['dataset']}, {epochs}{self.place}"
        if self.kind == "fast recipe":
            form = " within autocast to bfloat16" if settings["precision"] == "bf16" else ""
            return f"The recipe fast{form} on {settings['dataset']}, {settings['epochs']} epochs{self.place}"
        if self.kind == "huge2":
            return f"Generators' transposed convolutions, as HUGE2 compares them{self.place}"
        if self.kind == "segregation":
            return f"Transposed convolutions in one launch, or a convolution for each part of the filter{self.place}"
        if self.kind == "deeplab":
            return f"DeepLab's heads of dilated convolutions{self.place}"
        if self.kind == "matvec":
            return f"Products of a matrix and a vector{self.place}"
        if self.kind == "functions":
            sizes, counts = (" and ".join(map(str, settings[key])) for key in ("sizes", "thread_counts"))
            return f"Every public function, {sizes} numbers, {counts} thread{'s' if counts != '1' else ''}{self.place}"
        if self.kind == "pointwise":
            threads = settings["threads"]
            return f"A point-wise function of one's own, {threads} thread{'s' if threads > 1 else ''}{self.place}"
        if self.kind == "gpt":
            threads = settings["threads"]
            return f"A training step of a GPT block, {threads} thread{'s' if threads > 1 else ''}{self.place}"
        if self.kind == "programs":
            threads = settings["threads"]
            plural = "s" if threads > 1 else ""
            return f"Training steps of programs in PyTorch's words, {threads} thread{plural}{self.place}"
        if self.kind == "scaling":
            return f"Training of resnet18 by two ranks{self.place}"
        if self.kind == "first seconds":
            return f"The first seconds of a training, at revision {settings['revision']}{self.place}"
        if self.kind == "algorithms":
            path = f", {settings['path']} path" if "path" in settings else ""
            return f"Choices of algorithms, suite {settings['layers']}{path}{self.place}"
        if self.kind == PAPER:
            return f"The paper's comparison of operators, {settings['gflop']:g} GFLOP each{self.place}"
        batches = ", ".join(map(str, settings["batch_sizes"]))
        return f"Operators of suite {settings['suite']}, batch {batches}{self.place}"


def network(settings: dict[str, Any]) -> str:
    """A trained network's name, with its form where that is not the paper's."""
    if settings["name"] in small_networks.INPUTS:
        return str(settings["name"])
    if settings["style"] == "paper":
        return str(settings["name"]) + (" (ILSVRC2012's head)" if settings.get("head") == "ilsvrc2012" else "")
    stem = f", {settings['stem']} stem" if settings.get("stem") else ""
    return f"{settings['name']} ({settings['style']}{stem})"


def read(folder: Path = RESULTS) -> list[Report]:
    """The folder's results by kind, then by name and size."""
    reports = [Report(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json")]
    if not reports:
        raise ArgumentError(
            f"[{MODULE}] expected results in {folder}, got no *.json: run a benchmark with --json there"
        )

    def key(report: Report) -> tuple[object, ...]:
        settings = report.result["settings"]
        return (
            KINDS.index(report.kind),
            report.place,
            settings.get("name", settings.get("model", "")),
            settings.get("batch_size", 0),
            report.file,
        )

    return sorted(reports, key=key)
